"""config/*.json: tables of brokers, JSON in general, and invalid files."""

import errno
import json
import math
import os
import re
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import stores

from rocketc.errors import ConfigTableError, StoreFullError, StoreIOError
from rocketc.tables.fastjson import DEEPEST, _parse_fast, _Parser, in_java_order, parse, to_bytes
from rocketc.tables.table_file import ConfigTable, read_table, write_table

pytestmark = pytest.mark.promise(6)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1 << 63, (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip
WITH_INT_NAMES = st.dictionaries(
    st.integers(-1 << 63, (1 << 63) - 1) | st.text(max_size=5),
    st.integers() | st.text(max_size=5) | st.dictionaries(st.integers(-9, 9), st.integers(-9, 9), max_size=3),
    max_size=5,
)


def independent(text):
    """Read JSON after quoting unquoted integer names. Only for files without similar text in their strings."""
    return json.loads(re.sub(r"([{,]\s*)(-?\d+)(\s*:)", r'\1"\2"\3', text))


def with_text_names(value):
    if isinstance(value, dict):
        return {str(name): with_text_names(inner) for name, inner in value.items()}
    return [with_text_names(inner) for inner in value] if isinstance(value, list) else value


def as_fastjson(value):
    """Return compact JSON with unquoted integer names."""
    if isinstance(value, dict):
        names = ((str(name) if isinstance(name, int) else json.dumps(name)) for name in value)
        return "{" + ",".join(f"{n}:{as_fastjson(v)}" for n, v in zip(names, value.values(), strict=True)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_fastjson, value)) + "]"
    return json.dumps(value)


@pytest.fixture
def table(tmp_path):
    """table(main, bak): the path of a table; None: the file does not exist."""

    def make(main, bak=None):
        path = tmp_path / "topics.json"
        for place, text in ((path, main), (tmp_path / "topics.json.bak", bak)):
            place.unlink(missing_ok=True)
            if text is not None:
                place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


# ---------------------------------------------------------------- golden stores


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_tables(golden, name):
    folder = golden(name).path / "config"
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        if path.name == "timercheck":
            continue
        found = read_table(path)
        assert (found.file, found.load_error) == (str(path), None)
        assert with_text_names(found.data) == independent(path.read_text(encoding="utf-8"))


def test_contents_of_golden_tables(golden):
    folder = golden("v533-broker").path / "config"
    assert read_table(folder / "delayOffset.json").data["offsetTable"] == {1: 51, 2: 25, 3: 16, 17: 0, 18: 0}
    offsets = read_table(folder / "consumerOffset.json").data["offsetTable"]
    assert all(isinstance(queue_id, int) for queues in offsets.values() for queue_id in queues)
    assert read_table(folder / "transactionMetrics").data["transactionCount"]["Tx"]["count"] == -6
    assert read_table(folder / "topics.json").data["topicConfigTable"]["Orders"]["readQueueNums"] == 4


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_tables_read_and_written_again_are_the_same(golden, name, tmp_path):
    folder = golden(name).path / "config"
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        if path.name == "timercheck":
            continue
        raw = path.read_bytes()
        write_table(
            tmp_path / path.name, read_table(path).data, compact="Metrics" in path.name or "metrics" in path.name
        )
        assert (tmp_path / path.name).read_bytes() == raw
        assert to_bytes(parse(raw), compact=b"\n" not in raw) == raw


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_tables_have_the_order_of_a_java_map(golden, name):
    buckets = {"topicConfigTable": 2048, "subscriptionGroupTable": 2048, "offsetTable": 1024}
    folder = golden(name).path / "config"
    for path in sorted(folder.glob("*.json")):
        for key, inner in read_table(path).data.items():
            if key in buckets and path.name != "delayOffset.json":
                mixed = dict(sorted(inner.items()))
                assert list(in_java_order(mixed, buckets[key])) == list(inner)


# ---------------------------------------------------------------- .bak


@pytest.mark.parametrize(
    ("main", "why"),
    [
        (None, "No such file or directory"),
        ("", "line 1, column 1: empty"),
        (" \n ", "line 2, column 2: only whitespace"),
        ('{"a":1', "line 1, column 7: expected , or }"),
        ("\0" * 100, "line 1, column 1: expected a value"),
        ("[1]", "line 1, column 1: not an object"),
        ('{"a":1e400}', "line 1, column 6: a number that is too large"),
        (b'{"a":\n"\xff"}', "line 2, column 2: not UTF-8"),
    ],
)
def test_an_invalid_main_file(table, main, why):
    path = table(main, '{"of":"bak"}')
    found = read_table(path)
    assert found == ConfigTable(f"{path}.bak", {"of": "bak"}, f"{path}: {why}")
    with pytest.raises((ConfigTableError, StoreIOError)) as raised:
        read_table(table(main))
    assert str(path) in str(raised.value) and why in str(raised.value)
    with pytest.raises((ConfigTableError, StoreIOError)):
        read_table(table('{"of":"main"}', main).with_suffix(".json.bak"))


def test_both_files_are_invalid(table):
    path = table('{"a":\n\t}', '{"b"}')
    with pytest.raises(ConfigTableError) as raised:
        read_table(path)
    first, second = f"{path}: line 2, column 2: expected a value", f"{path}.bak: line 1, column 5: expected :"
    assert str(raised.value) == f"{first}; {second}"
    with pytest.raises(ConfigTableError) as raised:
        read_table(table(None, "{"))
    assert str(raised.value) == f"{path}.bak: line 1, column 2: expected a name in quotes, or a whole number"


def test_both_files_are_missing(table):
    with pytest.raises(StoreIOError) as raised:
        read_table(table(None))
    assert raised.value.filename.endswith("topics.json")


def test_with_a_valid_main_file_the_bak_file_is_not_read(table):
    path = table('{"of":"main"}', "garbage")
    assert read_table(path) == ConfigTable(str(path), {"of": "main"})


def test_a_pipe_and_a_folder_are_not_tables(tmp_path):
    os.mkfifo(tmp_path / "topics.json")
    (tmp_path / "topics.json.bak").mkdir()
    with pytest.raises(ConfigTableError, match=r"not a regular file; .*Is a directory"):
        read_table(tmp_path / "topics.json")


# ---------------------------------------------------------------- JSON


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_in_python(value, indent):
    for ascii_only in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        assert parse(text) == json.loads(text) == value
    assert parse(json.dumps(value).encode()) == value


@given(WITH_INT_NAMES)
def test_names_may_be_whole_numbers(value):
    assert parse(as_fastjson(value)) == value


SAME = r"""
    {"a":{1:2},"b":"{1:2,3:4"}
    {"{1:":{2:3}}
    ["{1:"]
    {"\u0001":{1:2}}
    {"\u00011":"\u0001"}
    {1:"}"}
    {"a":"[[{","b":{ -1 : [] , 2:{}}}
    {"a":"\\"}
    {"a\"{1:":1}
    {1:{2:{3:[{4:5}]}}}
    {"1":1,1:2}
    {"a":",1:"}
    {0:-0}
    7
"""


@pytest.mark.parametrize("text", SAME.split("\n")[1:-1])
def test_the_fast_parser_reads_the_same(text):
    slow = _Parser(text).parse()
    assert parse(text) == slow and json.dumps(parse(text)) == json.dumps(slow)
    try:
        fast = _parse_fast(text)
    except ValueError:
        return
    assert json.dumps(fast) == json.dumps(slow)


@given(WITH_INT_NAMES | JSON, st.booleans())
def test_both_parsers_read_the_same(value, pretty):
    text = to_bytes(value, compact=not pretty).decode("utf-8")
    assert parse(text) == _Parser(text).parse() == value


@given(st.text(st.sampled_from('{}[]",:0123456789.-eE\\u trfalsn\n\t\1'), max_size=30))
def test_both_parsers_refuse_the_same(text):
    try:
        slow = _Parser(text).parse()
    except ValueError:
        with pytest.raises(ValueError, match="line"):
            parse(text)
    else:
        assert json.dumps(parse(text)) == json.dumps(slow)


def finite(number):
    """Return a float. Raise ValueError for one that Python reads as infinity, which JSON cannot represent."""
    if math.isinf(float(number)):
        raise ValueError(number)
    return float(number)


@given(st.text(st.sampled_from('{}[]",:0123456789.-eE\\u trfalsn\n\t'), max_size=30))
@example("1E310")
def test_what_python_refuses_is_refused(text):
    try:
        expected = json.loads(text, parse_constant=pytest.fail, parse_float=finite)
    except (ValueError, pytest.fail.Exception):
        try:
            parse(text)
        except ValueError as error:
            assert re.match(r"line \d+, column \d+: ", str(error))
        else:
            independent(text)  # only unquoted names may make the difference
    else:
        assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("{", (1, 2), "expected a name"),
        ("{,}", (1, 2), "expected a name"),
        ('{"a":1,,}', (1, 8), "expected a name"),
        ("{1.5:2}", (1, 3), "expected :"),
        ("{12345678901234567890:1}", (1, 2), "expected a name"),
        ("[,1]", (1, 2), "expected a value"),
        ("[1 2]", (1, 4), "expected , or ]"),
        ('{"a" 1}', (1, 6), "expected :"),
        ('{"a":1}}', (1, 8), "more data after the end"),
        ("{}\n{}", (2, 1), "more data after the end"),
        ("01", (1, 1), "expected a value"),
        ("-", (1, 1), "expected a value"),
        ("NaN", (1, 1), "expected a value"),
        ("9" * 5000, (1, 1), "expected a value"),
        ('"abc', (1, 1), "unterminated string"),
        ('"abc\\"', (1, 1), "unterminated string"),
        ('{\n\t"é\\q":1}', (2, 4), "an invalid escape"),
        ('"a\nb"', (1, 3), "a control character"),
        ("", (1, 1), "empty"),
        (b"\n\xc3\xa9\xff", (2, 2), "not UTF-8"),
    ],
)
def test_line_and_column(text, where, what):
    with pytest.raises(ValueError, match=re.escape(what)) as raised:
        parse(text)
    assert str(raised.value).startswith("line %d, column %d: " % where)


def test_depth(table):
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert json.dumps(parse(deep)) == deep
    with pytest.raises(ValueError, match=f"line 1, column {DEEPEST + 1}: more than {DEEPEST} objects and lists"):
        parse("[" + deep + "]")
    assert parse(f"{{1:{deep[1:-1]}}}") == {1: json.loads(deep[1:-1])}
    assert parse('["' + deep + '[[["]') == [f"{deep}[[["]
    with pytest.raises(ConfigTableError, match="more than"):
        read_table(table('{"a":' * 1_000_000))


@pytest.mark.measure
def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "topics.json"
    with open(path, "wb") as out:
        out.truncate(1 << 40)
    tracemalloc.start()
    with pytest.raises(ConfigTableError, match="1099511627776 bytes are too large for a table"):
        read_table(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, '"' * 500_001, "{" + "1" * 1_000_000, "[" + "0," * 100_000])
def test_long_texts_take_linear_time(text):
    """With a quadratic algorithm these texts would take hours, and the test would time out."""
    with pytest.raises(ValueError, match="line 1"):
        parse(text)


# ---------------------------------------------------------------- writing
@given(st.dictionaries(st.text(), JSON, max_size=5) | WITH_INT_NAMES)
def test_a_written_table_is_read_back(value):
    for compact in (True, False):
        assert parse(to_bytes(value, compact=compact)) == value


def test_the_style():
    table = {"a": {}, "b": [], "c": {0: 1, 1: 2}, "d": {"e": [1, "x"], "f": None}, "g": {0: {"h": True}, -1: 1.5}}
    assert to_bytes(table).decode() == (
        '{\n\t"a":{},\n\t"b":[],\n\t"c":{0:1,1:2\n\t},\n\t"d":{\n\t\t"e":[1,"x"],\n\t\t"f":null\n\t},\n\t"g":'
        '{0:{\n\t\t\t"h":true\n\t\t},-1:1.5\n\t}\n}'
    )
    assert to_bytes({"ä\t\ud800": "\U0001f600"}, compact=True) == '{"ä\\t\\ud800":"\U0001f600"}'.encode()


KEY = (("brokerName", "b"), ("queueId", 0), ("topic", 't"'))


def test_objects_as_names():
    key = '\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"t\\""\n\t\t'
    pretty = '{\n\t"a":{{' + key + '}:7,{}:{\n\t\t\t"c":1\n\t\t}\n\t}\n}'
    table = {"a": {KEY: 7, (): {"c": 1}}}
    assert to_bytes(table).decode() == pretty
    assert to_bytes(table, compact=True) == b'{"a":{{"brokerName":"b","queueId":0,"topic":"t\\""}:7,{}:{"c":1}}}'
    for text in (pretty, to_bytes(table, compact=True), pretty.replace("{{", "{ {"), pretty.replace(":", " : ")):
        assert parse(text, object_names=True) == table


@pytest.mark.parametrize(
    "text", ['{{"a":1', '{{"a":1 "b":2}:1}', '{{"a":1,}:1}', '{{"a" 1}:1}', '{{"a":[]}:1}', "{{:1}"]
)
def test_invalid_objects_as_names(text):
    with pytest.raises(ValueError, match="line 1, column"):
        parse(text, object_names=True)
    with pytest.raises(ValueError, match="line 1, column 2: expected a name"):
        parse(text)


def test_invalid_tables_are_not_written(tmp_path):
    path = tmp_path / "topics.json"
    write_table(path, {"a": 1})
    deep = {}
    for _ in range(DEEPEST):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="more than 100 objects"):
        write_table(path, {"a": deep})
    for data in ({1.5: 1}, {True: 1}, {"a": object()}, {"a": {None: 1}}):
        with pytest.raises(TypeError):
            write_table(path, data)
    with pytest.raises(ValueError, match="JSON"):
        write_table(path, {"a": float("nan")})
    with pytest.raises(ValueError, match="a table is an object"):
        write_table(path, [1])
    assert read_table(path).data == {"a": 1}
    assert os.listdir(tmp_path) == ["topics.json"]


def test_a_write_keeps_the_previous_table(table):
    path = table(None)
    for number in range(3):
        write_table(path, {"number": number})
        assert read_table(path) == ConfigTable(str(path), {"number": number})
    assert sorted(os.listdir(path.parent)) == ["topics.json", "topics.json.bak"]
    path.write_bytes(path.read_bytes()[:-1])
    assert read_table(path).data == {"number": 1}
    write_table(path, {"number": 4})  # over a damaged file
    assert read_table(path).data == {"number": 4}


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_call_that_fails_while_a_table_is_written(table, monkeypatch, call, number):
    real = getattr(os, call)
    for at in range(1, 10):
        path = table('{"of":"main"}', '{"of":"bak"}')
        calls = 0
        error = None

        def failing(*args, at=at, **options):
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(number, os.strerror(number))
            return real(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            try:
                write_table(path, {"of": "new"})
            except StoreIOError as raised:
                error = raised
        assert not list(path.parent.glob("*.tmp"))
        if error is None:
            break
        assert isinstance(error, StoreFullError) is (number == errno.ENOSPC)
        assert error.filename.startswith(str(path.parent))
        assert read_table(path).data in ({"of": "main"}, {"of": "new"})
    assert at > 1
    assert (read_table(path).data, read_table(f"{path}.bak").data) == ({"of": "new"}, {"of": "main"})


def test_without_hard_links_the_previous_table_is_copied(table, monkeypatch):
    def refused(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    path = table('{"of":"main"}', '{"of":"bak"}')
    write_table(path, {"of": "new"})
    assert (read_table(path).data, read_table(f"{path}.bak").data) == ({"of": "new"}, {"of": "main"})


def test_a_table_in_a_missing_folder(tmp_path):
    with pytest.raises(StoreIOError) as raised:
        write_table(tmp_path / "config/topics.json", {})
    assert raised.value.errno == errno.ENOENT and "config/topics.json" in raised.value.filename


@pytest.mark.parametrize("count", [1535, 1536, 4000])
def test_a_java_map_grows(count):
    """A map of 2048 buckets doubles when it is three quarters full. The order remains that of the buckets."""
    names = [f"topic-{number}" for number in range(count)]
    ordered = list(in_java_order(dict.fromkeys(names), 2048))
    assert sorted(ordered) == sorted(names)
    assert ordered == list(in_java_order(dict.fromkeys(names), 8192 if count >= 3072 else 4096)) or count < 1536


def test_the_order_of_a_very_long_name_takes_little_time():
    """A client may choose it: the time must not grow with the square of its length."""
    began = time.perf_counter()
    assert list(in_java_order({"x" * 1_000_000: 1, "a": 2}, 1024)) in (["a", "x" * 1_000_000], ["x" * 1_000_000, "a"])
    assert time.perf_counter() - began < 5
