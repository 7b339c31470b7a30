"""decode_partition() and splits() in this process: the work of a task, without Spark."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import stores

import rocketc
from rocketc.files.paths import resolve
from rocketc.spark import SCHEMA, Split, decode_partition, schema, splits
from rocketc.spark.partitions import plan

Golden = Callable[[str], stores.GoldenStore]


def keys(messages: Any) -> list[tuple[int, int, bytes]]:
    return [(m.phy_offset, m.queue_offset, m.body) for m in messages]


def test_rocketc_does_not_import_spark() -> None:
    code = "import sys, rocketc; print([m for m in ('pyspark', 'pyarrow', 'rocketc.spark') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_pyspark_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import rocketc.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "ImportError: rocketc.spark needs pyspark: pip install 'rocketc[spark]'"


@pytest.mark.parametrize("processors", [1, 3])
def test_there_is_a_task_for_each_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    (tmp_path / "00000000000000000000").write_bytes(b"x" * (12 << 20))
    assert len(plan(resolve(tmp_path))) == processors


@pytest.mark.parametrize("name", stores.NAMES)
def test_splits_cover_each_file_once(golden: Golden, name: str) -> None:
    store = golden(name)
    for max_bytes in (1 << 40, 50_000, 4096):
        cut = splits(store.path, max_bytes)
        files = {split.path: [s for s in cut if s.path == split.path] for split in cut}
        assert list(files) == [str(path) for path in store.log_files if path.read_bytes()[:8].strip(b"\0")]
        for path, parts in files.items():
            base = int(Path(path).name)
            bounds = [part.start for part in parts] + [parts[-1].stop]
            assert bounds[0] == base and bounds[-1] == base + Path(path).stat().st_size
            assert [part.stop for part in parts[:-1]] == bounds[1:-1]
            sizes = [part.stop - part.start for part in parts[:-1]]  # the last one may have space after its data
            assert max(sizes, default=1) - min(sizes, default=1) <= 1 and max(sizes, default=1) <= max_bytes


def test_splits_of_odd_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records = b"".join(rocketc.encode("t", b"%d" % i, phy_offset=5000 + 93 * i) for i in range(9))
    (tmp_path / "log.bak").write_bytes(records)  # no offset in its name
    cut = splits("log.bak", 300)
    assert (cut[0].path, cut[0].start, cut[-1].stop) == (str(tmp_path / "log.bak"), 5000, 5000 + len(records))
    assert [m.body for m in decode_partition(cut, as_="message")] == [b"%d" % i for i in range(9)]
    (tmp_path / f"{0:020d}").write_bytes(b"")
    assert splits(f"{0:020d}") == []
    with pytest.raises(ValueError, match="max_bytes=0"):
        splits("log.bak", 0)
    with pytest.raises(rocketc.StoreIOError, match="nowhere"):
        splits("nowhere")


@pytest.mark.parametrize("name", [name for name in stores.NAMES if name != "flights-2013-01"])
@pytest.mark.parametrize("max_bytes", [1 << 30, 30_000, 1_111])
def test_any_number_of_splits_gives_the_same_messages(golden: Golden, name: str, max_bytes: int) -> None:
    store = golden(name)
    whole = list(rocketc.scan(store.path, errors="skip"))
    cut = splits(store.path, max_bytes)
    got = list(decode_partition(cut, as_="message", errors="skip"))
    assert got == whole
    assert [m.file for m in got] == [m.file for m in whole]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_number_of_splits_gives_the_same_messages_of_a_damaged_log(
    golden: Golden, tmp_path: Path, data: st.DataObject
) -> None:
    first, second = golden("v533-store").log_files[:2]
    content = bytearray(first.read_bytes())
    starts = [m.phy_offset for m in rocketc.scan(first)]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(starts)) + data.draw(st.sampled_from([0, 0, 1, 4, 30, 90]))
        length = min(data.draw(st.sampled_from([1, 4, 300, 9000])), len(content) - at)
        taken = data.draw(st.sampled_from([None, *starts]))  # zeros, or bytes from another place in the file
        old = bytes(length) if taken is None else bytes(content[taken : taken + length])
        content[at : at + len(old)] = old
    (tmp_path / first.name).write_bytes(content)
    (tmp_path / second.name).write_bytes(second.read_bytes())
    cut = splits(tmp_path, data.draw(st.sampled_from([1_000, 5_000, 30_000])))
    got = decode_partition(cut, as_="message", errors="skip")
    assert keys(got) == keys(rocketc.scan(tmp_path, errors="skip"))


def test_a_split_may_leave_its_bounds_open(golden: Golden) -> None:
    path = str(golden("v533-store").log_files[1])
    whole = keys(rocketc.scan(path))
    middle = whole[len(whole) // 2][0]
    for split, wanted in (
        ((path, None, None), whole),
        ([path, middle, None], [k for k in whole if k[0] >= middle]),
        (Split(path, 0, middle), [k for k in whole if k[0] < middle]),
        ((path, middle, middle), []),
    ):
        assert keys(decode_partition([split], as_="message")) == wanted
    options: dict[str, Any] = {"start": whole[2][0], "stop": whole[9][0]}  # the narrower bounds are used
    assert keys(decode_partition([(path, whole[1][0], whole[5][0])], as_="message", **options)) == whole[2:5]
    assert keys(decode_partition([(path, whole[3][0], whole[-1][0])], as_="message", **options)) == whole[3:9]
    assert keys(decode_partition([(path, Path(path).read_bytes())], as_="message", **options)) == whole[2:9]
    with pytest.raises(ValueError, match="the second number is the end, not the length"):
        list(decode_partition([(path, 65536, 1000)]))


def test_items_of_all_kinds_may_be_mixed(golden: Golden, tmp_path: Path) -> None:
    store = golden("v533-store")
    a, b, c, d = store.log_files[:4]
    items = [str(a), ("file:" + str(b), b.read_bytes()), splits(c)[0], d, store.path / "commitlog"]
    whole = list(rocketc.scan(store.path))
    got = list(decode_partition(items, as_="message"))
    first = [m for m in whole if m.file in {str(path) for path in (a, b, c, d)}]
    assert got == first + whole
    assert [m.file for m in got] == [m.file for m in first + whole]


@pytest.mark.parametrize(
    "item",
    [None, 7, b"path", (), ("path",), ("path", "text"), ("path", 1), ("path", 1.0, 2.0), (1, 2, 3), ("a", b"", 1, 2)]
    + [{"path": "a"}, ("path", "0", "1"), (b"path", 0, 1)],
)
def test_an_item_of_another_type_is_a_clear_error(item: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a split \(file, start, stop\) .* a path or a pair \(path, bytes\)"):
        list(decode_partition([item]))


def test_a_long_item_is_shortened_in_the_error() -> None:
    with pytest.raises(TypeError) as caught:
        list(decode_partition([("path", b"x" * 1_000_000, 1)]))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("as_", ["Row", "json", None])
def test_an_unknown_form_is_a_clear_error(as_: Any) -> None:
    with pytest.raises(ValueError, match="'row', 'message', 'dict', 'batch'"):
        decode_partition([], as_=as_)


def test_paths_as_uris(golden: Golden, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20cé+x"
    folder.mkdir()
    name = golden("v533-store").log_files[0].name
    path = folder / name
    path.write_bytes(golden("v533-store").log_files[0].read_bytes())
    whole = list(rocketc.scan(path))
    for uri in (f"file:{path}", f"file://{path}", f"file://localhost{path}", f"file:{quote(str(path))}", path.as_uri()):
        got = list(decode_partition([uri], as_="message"))
        assert got == whole and {m.file for m in got} == {str(path)}
    with pytest.raises(rocketc.StoreIOError, match=r"quux.*quux://there/x"):
        list(decode_partition([("quux://there/x", 0, 1)]))
    got = list(decode_partition([(f"hdfs://there/{name}", path.read_bytes())], as_="message"))
    assert got == whole and {m.file for m in got} == {f"hdfs://there/{name}"}


def test_bytes_without_an_offset_in_their_name() -> None:
    record = rocketc.encode("t", b"x", phy_offset=123456)
    assert [m.phy_offset for m in decode_partition([("somewhere", record)], as_="message")] == [123456]
    for form in (bytes, bytearray, memoryview):
        [m] = decode_partition([(f"a/{123456:020d}", form(record + bytes(99)))], as_="message")
        assert (m.phy_offset, m.file) == (123456, f"a/{123456:020d}")
    with pytest.raises(rocketc.CorruptRecordError, match=f"{7:020d}: damage at physical offset 7: bad_physical_offset"):
        list(decode_partition([(f"{7:020d}", record)]))


def test_zeros_in_a_middle_file_are_damage_in_a_split_too(golden: Golden, tmp_path: Path) -> None:
    source = golden("v533-store").log_files[:2]
    content = bytearray(source[0].read_bytes())
    records = list(rocketc.scan(source[0]))
    content[records[5].phy_offset :] = bytes(len(content) - records[5].phy_offset)
    (tmp_path / source[0].name).write_bytes(content)
    (tmp_path / source[1].name).write_bytes(source[1].read_bytes())
    first, second, third = splits(tmp_path / source[0].name, len(content) // 3 + 1)
    at = records[5].phy_offset
    assert at < first.stop
    with pytest.raises(rocketc.CorruptRecordError, match=f"{first.path}: damage at physical offset {at}: zeroed"):
        list(decode_partition([first]))
    assert keys(decode_partition([first], as_="message", errors="skip")) == keys(records[:5])
    assert list(decode_partition([second, third])) == []  # the damage belongs to the first file


@pytest.mark.parametrize("columns", [None, ["body", "topic"], ["storeTimestamp"], "keys", []])
def test_columns(golden: Golden, columns: Any) -> None:
    store = golden("v533-broker")
    names = [field.name for field in schema(columns)]
    wanted = rocketc.scan(store.path, columns=columns).to_arrow()
    rows = list(decode_partition([str(store.path)], columns=columns))
    assert [list(row.asDict()) for row in rows[:2]] == [names, names]
    assert len(rows) == wanted.num_rows or not names
    for name in names:
        values = wanted.column(name).to_pylist()
        assert [row[name] for row in rows] == [dict(v) if name == "properties" else v for v in values]
    batches = list(decode_partition([str(store.path)], as_="batch", columns=columns))
    assert [batch.schema.names for batch in batches] == [names] * len(batches)
    dicts = list(decode_partition([str(store.path)], as_="dict", columns=columns))
    whole = [m.to_dict() for m in rocketc.scan(store.path)]
    also = ["bodyBase64"] if "body" in names else []
    assert dicts == [{k: v for k, v in d.items() if k in names + also} for d in whole]
    assert json.loads(json.dumps(dicts)) == dicts


def test_an_unknown_column_is_named() -> None:
    for use in (schema, lambda columns: list(decode_partition([], columns=columns))):
        with pytest.raises(ValueError, match="unknown column 'nope'; the columns are topic, queueId"):
            use(["topic", "nope"])


def test_schema_is_what_spark_makes_of_our_arrow_columns() -> None:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    ours = pa.schema(rocketc.decode(b""))
    assert from_arrow_schema(ours) == SCHEMA
    assert [field.name for field in SCHEMA] == list(rocketc.COLUMN_NAMES)
    assert all(field.nullable for field in SCHEMA)


def test_rows_and_messages_can_be_pickled(golden: Golden) -> None:
    for as_ in ("row", "message", "dict", "batch"):
        items = list(decode_partition([str(golden("v533-broker").path)], as_=as_))
        assert pickle.loads(pickle.dumps(items)) == items
