"""rocketc put as users run it: lines, files and JSON Lines become messages; and how the command ends."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import rocketc, start
from unit.cli.putting import NEW, SMALL, bodies, messages, put_command

import rocketc as library
from rocketc.cli.put_input import BLOCK_BYTES, lines, message_of, whole
from rocketc.errors import IllegalMessageError
from rocketc.files.lock_file import AbortFile


@pytest.fixture
def call(run, monkeypatch, tmp_path):
    return put_command(run, monkeypatch, tmp_path)


# ---------------------------------------------------------------- lines
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (b"a\nb\nc\n", [b"a", b"b", b"c"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\n\nb\n", [b"a", b"", b"", b"b"]),
        (b"a\r\nb\n", [b"a\r", b"b"]),
        (b"\n", [b""]),
        (b"\xff\0\n\x80", [b"\xff\0", b"\x80"]),
    ],
)
def test_lines_of_stdin(call, text, meant):
    code, out, err = call("s", "-t", "orders", *SMALL, stdin=text)
    count = f"{len(meant)} message{'s' if len(meant) > 1 else ''}"
    told = rf"rocketc: {count} put into s: {sum(map(len, meant))} B in \d+\.\d s, [\d,]+/s; offsets 0 to (\d+)\n"
    assert (code, out) == (0, "") and (match := re.fullmatch(told, err)), err
    found = messages("s")
    assert [m.body for m in found] == meant
    assert {(m.topic, m.queue_id, m.tags, m.keys) for m in found} == {("orders", 0, None, None)}
    assert [m.queue_offset for m in found] == list(range(len(meant)))
    assert found[-1].phy_offset + found[-1].store_size == int(match[1])


@pytest.mark.parametrize("option", ["--topic=%s", "--tag=%s", "--key=%s", "--property=%s=1", "--property=a=%s"])
def test_an_argument_that_is_not_utf8(call, option):
    code, out, err = call("store", "--topic=orders", option % "\udcff", *SMALL, stdin=b"x")
    assert (code, out) == (2, "")
    assert r"'\udcff' is not UTF-8" in err
    assert not os.path.exists("store")


def test_lines_of_a_named_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"1\n2\n"), daemon=True)
    writer.start()
    done = rocketc("put", tmp_path / "s", pipe, "-t", "t", *SMALL, timeout=20)
    assert (done.returncode, bodies(tmp_path / "s")) == (0, [b"1", b"2"]), done.stderr


def test_lines_of_files_and_stdin_in_order(call, tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2")
    (tmp_path / "b").write_bytes(b"4\n")
    code, _, _ = call("s", "a", "-", "b", "-t", "t", *SMALL, stdin=b"3\n")
    assert (code, bodies("s")) == (0, [b"1", b"2", b"3", b"4"])


def test_options_apply_to_every_message(call):
    options = ["--tag", "A", "--key", "k1", "--key", "k2", "--property", "name=a=b", "--property", "empty-less=1"]
    code, _, _ = call("s", "-t", "t", "-q", "3", *options, *SMALL, stdin=b"x\ny\n")
    assert code == 0
    for message in messages("s"):
        assert (message.tags, message.keys, message.queue_id) == ("A", "k1 k2", 3)
        assert message.properties == {"TAGS": "A", "KEYS": "k1 k2", "name": "a=b", "empty-less": "1"}


def test_queues_are_used_in_rotation(call):
    code, _, _ = call("s", "-t", "t", "--queues", "3", "--tag", "A", *SMALL, stdin=b"0\n1\n2\n3\n4\n")
    assert code == 0
    assert [(m.queue_id, m.queue_offset, m.body) for m in messages("s")] == [
        (0, 0, b"0"), (1, 0, b"1"), (2, 0, b"2"), (0, 1, b"3"), (1, 1, b"4")
    ]  # fmt: skip


def test_repeated_puts_into_one_store(call):
    for i in range(3):
        code, _, err = call("s", "-t", "t", *(SMALL if i == 0 else ()), stdin=b"%d\n" % i)
        assert code == 0, err
    assert bodies("s") == [b"0", b"1", b"2"]
    assert [m.queue_offset for m in messages("s")] == [0, 1, 2]
    assert {os.path.getsize(f"s/commitlog/{name}") for name in os.listdir("s/commitlog")} == {64 << 10}


def test_many_lines_fill_many_files(call):
    made = [b"%06d " % i + b"x" * (i % 97) for i in range(20_000)]
    code, _, _ = call("s", "-t", "t", *SMALL, stdin=b"\n".join(made))
    assert code == 0
    assert bodies("s") == made
    assert library.verify("s").is_whole


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_flush(call, flush):
    code, _, _ = call("s", "-t", "t", "--flush", flush, *SMALL, stdin=b"a\nb\n")
    assert (code, bodies("s")) == (0, [b"a", b"b"])


def test_nothing_to_read(call):
    assert call("s", "-t", "t", *SMALL) == (0, "", "rocketc: nothing to read: stdin\n")


def test_summary_as_json(call):
    code, out, err = call("s", "-t", "t", "--json", *SMALL, stdin=b"abc\nd\n")
    told = json.loads(out)
    assert told.pop("seconds") > 0
    last = messages("s")[-1]
    stop = last.phy_offset + last.store_size
    assert (code, err) == (0, "")
    assert told == {"path": "s", "messages": 2, "bytes": 4, "start": 0, "stop": stop}


# ---------------------------------------------------------------- whole files
def test_whole_files(call, tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(bytes(range(256)) * 8192)
    code, _, err = call("s", "-t", "t", "--whole", "a", "b", "c", "-", stdin=b"\n")
    assert code == 0 and "4 messages" in err
    assert bodies("s") == [b"1\n2\n", b"", bytes(range(256)) * 8192, b"\n"]


# ---------------------------------------------------------------- JSON lines
COPIED = ("topic", "queueId", "bornTimestamp", "keys", "tags", "body", "bodyBase64", "properties", "flag",
          "reconsumeTimes", "bornHost", "preparedTransactionOffset")  # fmt: skip


@pytest.mark.parametrize("name", ["v533-broker", "v497-broker", "v533-store"])
def test_cat_and_put_copy_a_store(call, golden, name):
    """cat | put --jsonl: the content of the messages is unchanged, their positions are new."""
    source = list(library.scan(golden(name).path))
    printed = rocketc("cat", "--json", golden(name).path).stdout
    code, _, err = call("s", "--jsonl", "--any-topic", "--file-size", "1MiB", stdin=printed)
    assert code == 0, err
    copied = messages("s")
    assert len(copied) == len(source)
    queues: dict[tuple[str, int], int] = {}
    for theirs, mine in zip(source, copied, strict=True):
        one, other = theirs.to_dict(), mine.to_dict()
        assert {key: one.get(key) for key in COPIED} == {key: other.get(key) for key in COPIED}
        assert mine.body == theirs.body and mine.sys_flag & 0x7C1 == 0
        if mine.sys_flag & 0xC in (0, 8):
            assert mine.queue_offset == queues.get((mine.topic, mine.queue_id), 0)
            queues[mine.topic, mine.queue_id] = mine.queue_offset + 1


def test_bodies_stay_compressed_if_printed_compressed(call, golden):
    path = golden("v533-broker").path
    compressed = [m for m in library.scan(path, decompress=False) if m.sys_flag & 1]
    printed = "".join(m.to_json() + "\n" for m in compressed)
    assert call("s", "--jsonl", "--file-size", "8MiB", stdin=printed.encode())[0] == 0
    assert len(compressed) > 10
    assert [(m.sys_flag, m.body) for m in messages("s")] == [
        (m.sys_flag, n.body) for m, n in zip(compressed, (m for m in library.scan(path) if m.sys_flag & 1), strict=True)
    ]


def test_options_override_the_fields_of_a_line(call):
    line = b'{"topic":"a","queueId":7,"tags":"A","keys":"k","body":"x","properties":{"p":"1","q":"2"}}\n'
    options = ["-t", "b", "-q", "1", "--tag", "B", "--key", "l", "--property", "p=3"]
    assert call("s", "--jsonl", *options, *SMALL, stdin=line)[0] == 0
    [message] = messages("s")
    assert (message.topic, message.queue_id, message.tags, message.keys) == ("b", 1, "B", "l")
    assert message.properties == {"p": "3", "q": "2", "TAGS": "B", "KEYS": "l"}


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ('{"topic":"a","body":""}', {"topic": "a", "body": b""}),
        ('{"body":"\u00e9\\n"}', {"body": "\u00e9\n".encode()}),
        ('{"bodyBase64":"/w=="}', {"body": b"\xff"}),
        ('{"bodyHex":"ff 00"}', {"body": b"\xff\0"}),
        ('{"body":"x","keys":null,"tags":null,"properties":{}}', {"body": b"x"}),
        ('{"body":"x","tags":"A","properties":{"TAGS":"B","p":""}}',
         {"body": b"x", "properties": {"TAGS": "A", "p": ""}}),
        ('{"body":"x","bornHost":"10.0.0.1:123"}', {"body": b"x", "born_host": ("10.0.0.1", 123)}),
        ('{"body":"x","bornHost":"[::1]:123"}', {"body": b"x", "born_host": ("::1", 123)}),
        ('{"body":"x","properties":{"a":"b","__CRC32#":"12"}}', {"body": b"x", "properties": {"a": "b"}}),
        ('{"body":"x","sysFlag":63}', {"body": b"x", "sys_flag": 15}),
        ('{"body":"x","sysFlag":2047,"bodyCRC":1}', {"body": b"x", "sys_flag": 14}),
        ('{"body":"x","sysFlag":193,"bodyCRC":215750275}', {"body": b"x", "sys_flag": 193}),
        ('{"body":"x","msgId":"1","file":"f","storeHost":"h","queueOffset":-1,"physicalOffset":5,"storeSize":9,'
         '"storeTimestamp":1}', {"body": b"x"}),
        ('{"body":"x","flag":-1,"reconsumeTimes":2,"preparedTransactionOffset":3,"bornTimestamp":4,"queueId":5}',
         {"body": b"x", "flag": -1, "reconsume_times": 2, "prepared_transaction_offset": 3, "born_timestamp": 4,
          "queue_id": 5}),
    ],
)  # fmt: skip
def test_message_of(line, meant):
    assert message_of(line.encode()) == meant


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "not JSON: Expecting value"),
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ('{"body":' + "9" * 5000 + "}", "not JSON: "),
        ("\xff", "not JSON: "),
        ("[]", "not a JSON object"),
        ('{"tag":"A"}', "unknown field 'tag'; a message can have body, bodyBase64, "),
        ("{}", "give exactly one of body, bodyBase64, bodyHex; given: nothing"),
        ('{"body":null}', "given: nothing"),
        ('{"body":"","bodyHex":""}', "given: body, bodyHex"),
        ('{"body":1}', "body is 1, not a text"),
        ('{"body":"\\ud800"}', "body: "),
        ('{"bodyBase64":"?"}', "bodyBase64: "),
        ('{"bodyHex":"f"}', "bodyHex: "),
        ('{"body":"","topic":5}', "topic is 5, not a text"),
        ('{"body":"","queueId":"1"}', "queueId is '1', not a whole number"),
        ('{"body":"","queueId":1.0}', "queueId is 1.0, not a whole number"),
        ('{"body":"","flag":true}', "flag is True, not a whole number"),
        ('{"body":"","keys":["a"]}', "keys is ['a'], not a text"),
        ('{"body":"","properties":[]}', "properties is not an object with text values"),
        ('{"body":"","properties":{"a":1}}', "properties is not an object with text values"),
        ('{"body":"","bornHost":"::1"}', "bornHost '::1' must have the form 127.0.0.1:10911"),
        ('{"body":"","bornHost":"localhost"}', "bornHost 'localhost'"),
    ],
)
def test_a_line_that_is_not_a_message(line, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        message_of(line.encode("latin-1"))


@pytest.mark.parametrize(
    "line",
    [
        b"{", b'{"body":"x"}',
        b'{"topic":"a","body":"x","queueId":2147483648}', b'{"topic":"","body":"x"}',
        b'{"topic":"\\ud800","body":"x"}', b'{"topic":"a","body":"x","bornHost":"h:1"}',
        b'{"topic":"a","body":"x","bornHost":"1.1.1.1:99999999999"}', b'{"topic":"a","body":"x","flag":4294967296}',
        b'{"topic":"a","body":"x","bornTimestamp":9223372036854775808}', b'{"topic":"a","body":"x","keys":"\\ud800"}',
    ],
)  # fmt: skip
def test_a_wrong_line_ends_the_command(call, line):
    good = b'{"topic":"a","body":"x"}\n'
    code, out, err = call("s", "--jsonl", *SMALL, stdin=good * 2 + line + b"\n" + good)
    assert (code, out) == (1, "")
    assert err.startswith("rocketc: stdin, line 3: ") and "2 messages put into s" in err.splitlines()[1]
    assert err.count("\n") == 2 and bodies("s") == [b"x", b"x"]


# ---------------------------------------------------------------- readers
def nothing():
    return contextlib.nullcontext()


@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(1, 40))
def test_lines_are_those_of_split(parts, cut):
    text = b"\n".join(parts)
    reader, writer = os.pipe()
    for at in range(0, len(text), cut):  # a pipe returns what it has
        os.write(writer, text[at : at + cut])
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", pipe)
        patch.setattr("rocketc.cli.put_input.BLOCK_BYTES", cut)
        blocks = list(lines(["-"], 1 << 20, nothing))
    meant = text.split(b"\n")
    assert [line for block in blocks for line in block.lines] == meant[: -1 if meant[-1] == b"" else None]
    first = 1
    for block in blocks:
        assert block.first == first and block.place(1) == f"stdin, line {first + 1}"
        first += len(block.lines)
    assert not blocks or blocks[-1].read == len(text)


@pytest.mark.parametrize("form", [lines, whole])
def test_endless_input_does_not_fill_the_memory(form):
    seen = 0

    @contextlib.contextmanager
    def waiting():
        nonlocal seen
        seen += 1
        yield

    with pytest.raises(IllegalMessageError, match=r"^/dev/zero(, line 1)?: longer than 4194304 bytes$"):
        list(form(["/dev/zero"], 4 << 20, waiting))
    assert seen <= (4 << 20) // BLOCK_BYTES + 2


def test_a_line_that_is_too_long(call):
    code, _, err = call("s", "-t", "t", stdin=b"a\nb\n" + b"x" * (4 << 20) + b"\n" + b"y" * ((4 << 20) + 1) + b"\nz\n")
    assert code == 1
    assert err.splitlines()[0] == "rocketc: stdin, line 4: longer than 4194304 bytes"
    assert [len(body) for body in bodies("s")] == [1, 1, 4 << 20]


# ---------------------------------------------------------------- wrong usage
@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "Missing argument 'STORE'"),
        (["s"], "give the topic: -t TOPIC"),
        (["s", "-t", "t", "-q", "1", "--queues", "2"], "--queue and --queues exclude each other"),
        (["s", "-t", "t", "-q", "-1"], "-1 is less than 0"),
        (["s", "-t", "t", "--queues", "0"], "0 is less than 1"),
        (["s", "-t", "t", "--property", "a"], "'a' is not NAME=VALUE"),
        (["s", "-t", "t", "--property", "=a"], "'=a' is not NAME=VALUE"),
        (["s", "-t", "t", "--property", "a=\x02"], "is not NAME=VALUE"),
        (["s", "-t", "t", "--property", "a="], "'a=' is not NAME=VALUE"),
        (["s", "-t", "t", "--flush", "now"], "now"),
        (["s", "-t", "t", "--recovery", "mine"], "mine"),
        (["s", "-t", "t", "--file-size", "1"], "mapped_file_size_commit_log is 1; allowed are 128 to 2147483647"),
        (["s", "-t", "t", "--file-size", "many"], "'many' is not a size"),
        (["s", "-t", "t", "--conf", "wrong.conf"], "wrong.conf: maxMessageSize is 'x', which is not a whole number"),
        (["notes/a.txt", "-t", "t"], "notes/a.txt is not a folder; give the store first, then the files"),
        (["log", "-t", "t"], "log is a commit log; give the folder that contains it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(call, tmp_path, args, says):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{0:020d}").touch()
    (tmp_path / "wrong.conf").write_text("maxMessageSize=x")
    code, out, err = call(*args, stdin=b"x\n")
    assert (code, out) == (2, "")
    assert says in err and err.startswith("rocketc put: ") and err.count("\n") == 1
    assert not (tmp_path / "s").exists() and os.listdir(tmp_path / "notes") == ["a.txt"]


def test_a_folder_of_other_files(call, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    told = "rocketc: notes: not a store, and not empty; check the path\n"
    assert call("notes", "-t", "t", stdin=b"x\n") == (3, "", told)
    assert os.listdir(tmp_path / "notes") == ["a.txt"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["s", "nope", "-t", "t"], "nope: No such file or directory"),
        (["s", "notes", "-t", "t"], "notes: Is a directory"),
        (["s", "-t", "t", "--conf", "nope.conf"], "nope.conf: No such file or directory"),
    ],
)
def test_unreadable_input(call, tmp_path, args, told):
    (tmp_path / "notes").mkdir()
    code, out, err = call(*args, *SMALL)
    assert (code, out, err.splitlines()[0]) == (3, "", f"rocketc: {told}")


def test_a_topic_that_is_too_long(call):
    code, _, err = call("s", "-t", "x" * 300, "--any-topic", *SMALL, stdin=b"x\n")
    assert code == 1 and "topic" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("topic", "wrong"),
    [
        ("new orders", "a topic name may only have letters, digits and %|_-"),
        ("größe", "a topic name may only have letters, digits and %|_-"),
        ("", "a topic name must not be empty"),
        ("x" * 128, "a topic name like this has 127 characters at most, not 128"),
    ],
)
def test_topics_that_brokers_refuse(call, tmp_path, topic, wrong):
    """Nothing is stored, and no store is created; --any-topic allows all that can be the name of a folder."""
    code, _, err = call("s", "-t", topic, *SMALL, stdin=b"x\n")
    assert code == 2 and f"topic {topic!r}: {wrong}; --any-topic allows it" in " ".join(err.split())
    assert not (tmp_path / "s").exists()
    line = json.dumps({"topic": topic, "body": "x"})
    code, _, err = call("s", "--jsonl", *SMALL, stdin=f'{{"topic":"a","body":"x"}}\n{line}\n'.encode())
    assert code == 1 and f"stdin, line 2: topic {topic!r}: {wrong}; --any-topic allows it" in err
    assert len(messages(tmp_path / "s")) == 1
    if topic:
        assert call("s", "-t", topic, "--any-topic", stdin=b"x\n")[0] == (0 if len(topic) < 128 else 1)
        assert call("s", "--jsonl", "--any-topic", stdin=line.encode())[0] == 0
        assert messages(tmp_path / "s")[-1].topic == topic


def test_topics_that_brokers_accept(call, tmp_path):
    for topic in ("Az09%|_-", "x" * 127, "%RETRY%" + "g" * 248):
        assert call("s", "-t", topic, *SMALL, stdin=b"x\n")[0] == 0
    assert len(messages(tmp_path / "s")) == 3


# ---------------------------------------------------------------- broker.conf, places
def test_a_broker_conf_of_a_sync_master(call, tmp_path, run):
    """put is refused: nothing would wait for the replica. Commands that only read take the file."""
    (tmp_path / "broker.conf").write_text("brokerRole=SYNC_MASTER\n")
    code, _, err = call("s", "-t", "t", "--conf", "broker.conf", stdin=b"x\n")
    assert code == 2
    assert "broker_role is SYNC_MASTER" in err and "use ASYNC_MASTER" in err
    assert not (tmp_path / "s").exists()
    assert call("s", "-t", "t", stdin=b"x\n")[0] == 0
    for command in ("top -n 0.1 --once", "clean --dry-run", "rebuild"):
        name, *options = command.split()
        code, _, err = run(name, tmp_path / "s", *options, "--conf", tmp_path / "broker.conf")
        assert (code, err) == (0, ""), (name, err)


def test_broker_conf(call, tmp_path):
    conf = (
        "flushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=65536\nbrokerIP1=10.1.2.3\nlistenPort=99\nhaListenPort=9\n"
    )
    (tmp_path / "broker.conf").write_text(conf + "enabledAppendPropCRC=true\n")
    code, _, err = call("s", "-t", "t", "--conf", "broker.conf", stdin=b"x\n")
    assert code == 0
    assert err.splitlines()[0] == "rocketc: broker.conf: not used here: haListenPort"
    [message] = messages("s")
    assert message.store_host == "10.1.2.3:99" and "__CRC32#" in message.properties
    assert os.path.getsize(f"s/commitlog/{0:020d}") == 65536


@pytest.mark.parametrize("recovery", ["keep", "java"])
def test_recovery(call, golden, tmp_path, recovery):
    """Damage far after the last flush: `keep` loses one message, `java` loses that and all later messages."""
    store = shutil.copytree(golden("v533-bitrot").path, tmp_path / "s")
    last_file = sorted((store / "commitlog").iterdir())[-1]
    damaged = list(library.scan(last_file))[5]
    with open(last_file, "r+b") as file:
        file.seek(damaged.phy_offset - int(last_file.name))
        file.write(b"lost")
    code, out, err = call(store, "-t", "new", "--recovery", recovery, "--json", stdin=b"x\n")
    assert code == 0, err
    assert "skipped" in err if recovery == "keep" else "cut off and kept" in err
    assert (library.scan(store, topics=["new"], errors="skip").count(), json.loads(out)["messages"]) == (1, 1)
    [new] = library.scan(store, topics=["new"], errors="skip")
    assert (new.phy_offset == damaged.phy_offset) == (recovery == "java")


def test_a_store_can_be_created_on_an_empty_disk(call, tmp_path):
    (tmp_path / "s" / "lost+found").mkdir(parents=True)
    assert call("s", "-t", "t", *SMALL, stdin=b"x\n")[0] == 0


def test_a_store_that_rocketmq_wrote(call, golden, tmp_path):
    """New messages follow the last one, in files of the existing size."""
    from support.stores import unpack

    store = unpack("v533-store", tmp_path)
    before = list(library.scan(store.path))
    code, _, err = call(store.path, "-t", "new", stdin=b"x\n")
    assert code == 0, err
    assert [m.body for m in library.scan(store.path)][: len(before)] == [m.body for m in before]
    last = list(library.scan(store.path))[-1]
    assert (last.topic, last.body, last.queue_offset) == ("new", b"x", 0)


# ---------------------------------------------------------------- new stores
def test_a_new_store_is_announced_once(call, tmp_path):
    """With its full path, before its first message; `..` and links are the user's."""
    (tmp_path / "here").mkdir()
    code, out, err = call("here/../s", "-t", "t", *SMALL, stdin=b"x\n", keep_new=True)
    assert (code, out) == (0, "")
    assert err.splitlines()[0] == f"rocketc: new store: {tmp_path}/s" and "1 message put into" in err.splitlines()[1]
    code, out, err = call("s", "-t", "t", stdin=b"x\n", keep_new=True)
    assert code == 0 and "new store" not in err and err.count("\n") == 1


def test_a_new_store_is_announced_before_the_input_is_read(tmp_path):
    with start("put", tmp_path / "s", "-t", "t", *SMALL, stdin=subprocess.PIPE) as process:
        assert process.stderr.readline().decode() == f"rocketc: new store: {tmp_path}/s\n"
        process.stdin.write(b"x\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert bodies(tmp_path / "s") == [b"x"]


def test_the_announcement_is_not_on_stdout(call):
    code, out, err = call("s", "-t", "t", "--json", *SMALL, stdin=b"x\n", keep_new=True)
    assert code == 0 and json.loads(out)["messages"] == 1 and re.fullmatch(NEW, err)


def test_a_store_that_cannot_be_created_is_not_announced(call, tmp_path):
    (tmp_path / "file").touch()
    code, _, err = call("file/s", "-t", "t", *SMALL, stdin=b"x\n", keep_new=True)
    assert code != 0 and "new store" not in err


@pytest.mark.parametrize("names", [None, [], ["lost+found"], ["config"], ["config", "index", "src"]], ids=str)
def test_no_create_refuses_a_path_without_a_store(call, tmp_path, names):
    """Folders `config` and `index` alone are not a store: other programs have such folders."""
    for name in names or ():
        (tmp_path / "s" / name).mkdir(parents=True)
    if names == []:
        (tmp_path / "s").mkdir()
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call("s", "-t", "t", "--no-create", *SMALL, stdin=b"x\n", keep_new=True)
    assert (code, out) == (3, "")
    assert err == "rocketc: s: not a store; check the path, or create a store there without --no-create\n"
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "stdin"] == before
    code, _, err = call("s", "-t", "t", *SMALL, stdin=b"x\n", keep_new=True)
    assert code == 0 and err.startswith(f"rocketc: new store: {tmp_path}/s\n")


@pytest.mark.parametrize("killed", [False, True])
def test_no_create_puts_into_an_existing_store(call, tmp_path, killed):
    call("s", "-t", "t", *SMALL, stdin=b"x\n")
    if killed:
        AbortFile(tmp_path / "s").create()
    code, _, err = call("s", "-t", "t", "--no-create", stdin=b"y\n", keep_new=True)
    assert code == 0 and "new store" not in err and bodies("s") == [b"x", b"y"]


def test_a_store_whose_log_is_elsewhere_is_not_new(call, tmp_path):
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={tmp_path}/log\nmappedFileSizeCommitLog=65536\n")
    args = ("s", "-t", "t", "--conf", "broker.conf")
    assert re.match(NEW, call(*args, stdin=b"x\n", keep_new=True)[2])
    shutil.rmtree(tmp_path / "s")
    code, _, err = call(*args, "--no-create", stdin=b"y\n", keep_new=True)
    assert code == 0 and "new store" not in err and bodies("log") == [b"x", b"y"]
