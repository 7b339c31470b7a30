"""Ranges that consume queues assign to other topics are not read, and no message is lost, whatever the queues hold."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import stores

import rocketc
from rocketc.files.paths import Log, resolve
from rocketc.spark import partition_reader
from rocketc.spark.partition_reader import read_files
from rocketc.spark.partitions import plan

pytestmark = pytest.mark.spark

Golden = Callable[[str], stores.GoldenStore]
Row = tuple[str, int, int, int]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reader, "LEAST_BYTES", 0)
    monkeypatch.setattr(partition_reader, "_RECORD_BYTES", 1)


def rows(path: Any, parts: int, **scan: Any) -> list[Row]:
    columns = ["topic", "queueId", "queueOffset", "physicalOffset"]
    options = {"errors": "skip", **scan}
    out: list[Row] = []
    for task in plan(resolve(path), min_partitions=parts):
        for batch in read_files(task, columns, options):
            out += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
    return out


def wanted(path: Any, **scan: Any) -> list[Row]:
    return [(m.topic, m.queue_id, m.queue_offset, m.phy_offset) for m in rocketc.scan(path, errors="skip", **scan)]


def read_bytes(path: Any, parts: int, **scan: Any) -> tuple[int, int]:
    """Bytes of the log that are read, and all bytes, without the unwritten space at the end."""
    scan_all = rocketc.scan(path)
    scan_all.count()
    last = scan_all.report.end
    tasks = plan(resolve(path), min_partitions=parts)
    some = 0
    for part in (part for task in tasks for part in partition_reader.known_parts(task, scan)):
        for file in part.files if isinstance(part, Log) else [part]:
            end = min(file.base + file.size if file.stop is None else file.stop, last)
            some += end - (file.base if file.start is None else file.start)
    return some, last


@pytest.mark.some(10)
@pytest.mark.parametrize("name", stores.NAMES)
@pytest.mark.parametrize("parts", [1, 9])
def test_each_topic_is_read_whole(golden: Golden, name: str, parts: int) -> None:
    path = golden(name).path
    topics = sorted({m.topic for m in rocketc.scan(path, errors="skip")})
    for topic in [*topics[:6], "none"]:
        assert rows(path, parts, topics=[topic]) == wanted(path, topics=[topic])
        offsets = {topic: {0: (1, 5), 1: (0, None)}}
        scan: dict[str, Any] = {"topics": [topic], "offsets": offsets}
        assert rows(path, parts, **scan) == wanted(path, **scan)
    assert rows(path, parts, queues=[1]) == wanted(path, queues=[1])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four topics, one of them rare, in files of 1 MiB; the last few records are not dispatched."""
    root = tmp_path_factory.mktemp("known") / "store"
    chance = random.Random(5)
    with rocketc.open(root, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=6000) as opened:
        for n in range(6000):
            topic = "rare" if n % 200 == 0 else chance.choice(["one", "two", "three"])
            opened.put(topic, bytes(chance.randrange(900)), queue_id=n % 3)
    return root


def test_records_of_other_topics_are_not_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reader, "_GAP_BYTES", 1 << 10)
    for parts in (1, 5):
        assert rows(store, parts, topics=["rare"]) == wanted(store, topics=["rare"])
    some, whole = read_bytes(store, 3, topics=["none"])
    assert some < whole // 20
    some, whole = read_bytes(store, 1, topics=["one", "two", "three", "rare"])
    assert some == whole, "most of the log is needed: it is read as a whole"


def test_small_records_are_not_skipped_one_by_one(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reader, "_RECORD_BYTES", 4096)
    some, whole = read_bytes(store, 1, topics=["none"])
    assert some == whole


def test_gaps_between_ranges_are_not_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reader, "_GAP_BYTES", 0)
    some, whole = read_bytes(store, 1, topics=["rare"])
    assert some < whole // 20
    assert rows(store, 4, topics=["rare"]) == wanted(store, topics=["rare"])


@pytest.mark.parametrize("seed", range(12))
def test_wrong_queues_lose_no_messages(store: Path, tmp_path: Path, seed: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(partition_reader, "_GAP_BYTES", 0)
    chance = random.Random(seed)
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    files = sorted(path for path in (copy / "consumequeue").rglob("*") if path.is_file())
    for path in chance.sample(files, 3):
        data = bytearray(path.read_bytes())
        kind = chance.choice(["flip", "zero", "shift", "unlink", "cut", "twice"])
        if kind == "flip":
            for _ in range(chance.randrange(1, 30)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == "zero":
            at = chance.randrange(len(data))
            data[at : at + 400] = bytes(len(data[at : at + 400]))
        elif kind == "shift":
            data = data[20:] + bytes(20)
        elif kind == "twice":
            at = chance.randrange(0, len(data) - 20, 20)
            data = data[:at] + data[at : at + 20] + data[at:-20]
        elif kind == "cut":
            data = data[: chance.randrange(len(data))]
        path.write_bytes(data)
        if kind == "unlink":
            path.unlink()
    if chance.random() < 0.3:
        shutil.rmtree(chance.choice(sorted((copy / "consumequeue").iterdir())))
    for topic in ("rare", "one", "none"):
        assert rows(copy, chance.choice([1, 3, 8]), topics=[topic]) == wanted(copy, topics=[topic])


def test_a_damaged_record_is_reported_for_its_topic(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    hit = list(rocketc.scan(copy, topics="rare"))[3]
    path = copy / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[hit.phy_offset + 4] ^= 1
    path.write_bytes(data)
    assert rows(copy, 2, topics=["rare"]) == wanted(copy, topics=["rare"])
    with pytest.raises(rocketc.CorruptRecordError, match=f"offset {hit.phy_offset}"):
        rows(copy, 2, topics=["rare"], errors="raise")


def test_unreadable_queues(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    shutil.rmtree(copy / "consumequeue")
    (copy / "consumequeue").write_bytes(b"no folder")
    assert rows(copy, 2, topics=["rare"]) == wanted(copy, topics=["rare"])
    os.unlink(copy / "consumequeue")
    assert rows(copy, 2, topics=["rare"]) == wanted(copy, topics=["rare"])
