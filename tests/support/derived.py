"""Consume queues and key index, built from the records of a log by their specification alone.

The files that rocketc writes are compared with these. Like the oracle, slow and plain on purpose.
"""

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.oracle import Record, index_file, java_hash, key_hash

Files = tuple[dict[str, bytes], list[bytes]]  # consume queues by path, index files from the oldest on

FOLDERS = ("consumequeue", "batchconsumequeue", "index")
PREPARED, ROLLBACK = 0x4, 0xC
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
MINUTE = 60_000
DELAYS = [1000, 5000, 10_000, 30_000, *(n * MINUTE for n in [*range(1, 11), 20, 30, 60, 120])]  # ms, from level 1 on
UNIT, BATCH_UNIT = struct.Struct(">qiq"), struct.Struct(">qiqqqhii")
EXT_UNIT = struct.Struct(">hqqh")
EXT_END = 4  # bytes that stay free in a consume queue extension file
PRE_BLANK = UNIT.pack(0, 0x7FFFFFFF, 0)
HEADER, ENTRY = struct.Struct(">qqqqii"), struct.Struct(">iqii")


# Settings of a store whose consume queues and index have several files, and the same for from_log().
SMALL = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 20,
    "max_index_num": 40,
}
CONFIG = {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 20, "maxIndexNum": 40}


def fill(store: Any) -> None:
    """Put 300 messages to 6 queues, with 600 keys, and close the store."""
    for n in range(300):
        store.put(f"T{n % 3}", bytes(n), queue_id=n % 2, tags=f"t{n}", keys=f"k{n % 50} l{n}")
    store.close()


def transaction(record: Record) -> int:
    kind: int = record["sysFlag"] & ROLLBACK
    return kind


def tags_code(record: Record) -> int:
    """The tags code of a unit: the hash of the tags, or the delivery time of a delayed message."""
    properties = record["properties"]
    level = properties.get("DELAY")
    if record["topic"] == SCHEDULE and level is not None and int(level) > 0:
        due: int = record["storeTimestamp"] + DELAYS[min(int(level), len(DELAYS)) - 1]
        return due
    tags = properties.get("TAGS")
    return java_hash(tags) if tags else 0


def units(records: Iterable[Record], *, lmq: bool = False) -> dict[tuple[str, int], dict[int, bytes]]:
    """(topic, queue id) -> queue offset -> unit of 20 bytes."""
    queues: dict[tuple[str, int], dict[int, bytes]] = {}
    for record in records:
        if transaction(record) in (PREPARED, ROLLBACK):
            continue
        unit = UNIT.pack(record["physicalOffset"], record["storeSize"], tags_code(record))
        queues.setdefault((record["topic"], record["queueId"]), {})[record["queueOffset"]] = unit
        names = record["properties"].get("INNER_MULTI_DISPATCH") if lmq else None
        if names:
            offsets = record["properties"]["INNER_MULTI_QUEUE_OFFSET"].split(",")
            for name, offset in zip(names.split(","), offsets, strict=True):
                queue_id = 0 if name.startswith("%LMQ%") else record["queueId"]
                queues.setdefault((name, queue_id), {})[int(offset)] = unit
    return queues


def batch_units(records: Iterable[Record]) -> dict[tuple[str, int], list[bytes]]:
    """(topic, queue id) -> units of 46 bytes, in order."""
    queues: dict[tuple[str, int], list[bytes]] = {}
    for record in records:
        if transaction(record) in (PREPARED, ROLLBACK):
            continue
        base = int(record["properties"].get("INNER_BASE", record["queueOffset"]))
        count = int(record["properties"].get("INNER_NUM", 1))
        unit = BATCH_UNIT.pack(
            record["physicalOffset"],
            record["storeSize"],
            tags_code(record),
            record["storeTimestamp"],
            base,
            count,
            -1,
            0,
        )
        queues.setdefault((record["topic"], record["queueId"]), []).append(unit)
    return queues


def files(queue: dict[int, bytes], size: int) -> dict[str, bytes]:
    """Name -> bytes of the files of a consume queue, each `size` rounded up to whole units.

    A pre-blank unit is before the first unit of the queue if the first file has room for it, and in the place of each
    missing unit.
    """
    size = -(-size // UNIT.size) * UNIT.size
    each = size // UNIT.size
    made = {}
    for start in range(min(queue) // each * each, max(queue) + 1, each):
        numbers = range(start, min(start + each, max(queue) + 1))
        data = b"".join(queue.get(n, PRE_BLANK) for n in numbers)
        made[f"{start * UNIT.size:020}"] = data.ljust(size, b"\0")
    return made


def batch_files(queue: list[bytes], size: int) -> dict[str, bytes]:
    each = size // BATCH_UNIT.size
    return {
        f"{start * BATCH_UNIT.size:020}": b"".join(queue[start : start + each]).ljust(size, b"\0")
        for start in range(0, len(queue), each)
    }


def ext_files(records: Iterable[Record], size: int, ext_size: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Path -> bytes of consume queues with `enableConsumeQueueExt`, and of their extension files of ext_size bytes.

    Extension units are (size, tags code, store time, no bitmap). The units refer to them by position, as offset -
    2**63.
    """
    queues: dict[tuple[str, int], tuple[dict[int, bytes], bytearray]] = {}
    for record in records:
        if transaction(record) in (PREPARED, ROLLBACK):
            continue
        queue, ext = queues.setdefault((record["topic"], record["queueId"]), ({}, bytearray()))
        unit = EXT_UNIT.pack(EXT_UNIT.size, tags_code(record), record["storeTimestamp"], 0)
        if len(unit) > ext_size - len(ext) % ext_size - EXT_END:
            ext += b"\xff\xff".ljust(ext_size - len(ext) % ext_size, b"\0")
        queue[record["queueOffset"]] = UNIT.pack(record["physicalOffset"], record["storeSize"], len(ext) - (1 << 63))
        ext += unit
    made, extended = {}, {}
    for (topic, queue_id), (queue, ext) in queues.items():
        for name, data in files(queue, size).items():
            made[f"consumequeue/{topic}/{queue_id}/{name}"] = data
        for start in range(0, len(ext), ext_size):
            data = bytes(ext[start : start + ext_size]).ljust(ext_size, b"\0")
            extended[f"consumequeue_ext/{topic}/{queue_id}/{start:020}"] = data
    return made, extended


@dataclass
class Index:
    """The index files that dispatching records fills, without their names, which are times of day."""

    slots: int
    units: int  # of a file; number 0 stays unused
    files: list["IndexFile"] = field(default_factory=list)

    def add(self, record: Record) -> None:
        if transaction(record) == ROLLBACK or (self.files and record["physicalOffset"] < self.files[-1].end_phy_offset):
            return
        properties = record["properties"]
        keys = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
        for key in filter(None, keys):
            if not self.files or self.files[-1].count >= self.units:
                last = self.files[-1] if self.files else None
                self.files.append(IndexFile(self.slots, self.units, last))
            self.files[-1].put(key_hash(record["topic"], key), record["physicalOffset"], record["storeTimestamp"])


class IndexFile:
    def __init__(self, slots: int, units: int, before: "IndexFile | None") -> None:
        self.units = units
        self.begin_timestamp = self.end_timestamp = before.end_timestamp if before else 0
        self.begin_phy_offset = self.end_phy_offset = before.end_phy_offset if before else 0
        self.chains = [0] * slots
        self.entries = [bytes(ENTRY.size)]
        self.slot_count = 0

    @property
    def count(self) -> int:
        return len(self.entries)

    def put(self, key: int, phy_offset: int, store_timestamp: int) -> None:
        slot = key % len(self.chains)
        seconds = (store_timestamp - self.begin_timestamp) // 1000 if self.begin_timestamp > 0 else 0
        seconds = min(max(seconds, 0), 0x7FFFFFFF)
        if self.chains[slot] == 0:
            self.slot_count += 1
        if self.count <= 1:
            self.begin_phy_offset, self.begin_timestamp = phy_offset, store_timestamp
        self.end_phy_offset, self.end_timestamp = phy_offset, store_timestamp
        self.entries.append(ENTRY.pack(key, phy_offset, seconds, self.chains[slot]))
        self.chains[slot] = self.count - 1

    def data(self) -> bytes:
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.slot_count,
            self.count,
        )
        chains = struct.pack(f">{len(self.chains)}i", *self.chains)
        return header + chains + b"".join(self.entries).ljust(ENTRY.size * self.units, b"\0")


def index(records: Iterable[Record], slots: int, entries: int) -> list[bytes]:
    """The bytes of the index files, oldest first."""
    made = Index(slots, entries)
    for record in records:
        made.add(record)
    return [file.data() for file in made.files]


def queue_files(
    records: Iterable[Record], size: int, *, lmq: bool = False, batch: Collection[str] = (), batch_size: int = 0
) -> dict[str, bytes]:
    """Path below the store's root -> bytes, of all consume queues. batch: the topics that have batch queues."""
    known = list(records)
    made = {}
    for (topic, queue_id), queue in units((r for r in known if r["topic"] not in batch), lmq=lmq).items():
        for name, data in files(queue, size).items():
            made[f"consumequeue/{topic}/{queue_id}/{name}"] = data
    for (topic, queue_id), batches in batch_units(r for r in known if r["topic"] in batch).items():
        for name, data in batch_files(batches, batch_size).items():
            made[f"batchconsumequeue/{topic}/{queue_id}/{name}"] = data
    return made


def from_log(records: Iterable[Record], config: Mapping[str, Any], batch: Collection[str] = ()) -> Files:
    """All derived files except extensions, for these settings of RocketMQ."""
    known = list(records)
    queues = queue_files(
        known,
        int(config["mappedFileSizeConsumeQueue"]),
        lmq=config.get("enableLmq") == "true",
        batch=batch,
        batch_size=int(config.get("mapperFileSizeBatchConsumeQueue", 0)),
    )
    return queues, index(known, int(config["maxHashSlotNum"]), int(config["maxIndexNum"]))


def files_of(root: Path, *folders: str) -> dict[str, bytes]:
    """Path below the root -> bytes, of all files in the folders."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def without_names(found: Mapping[str, bytes]) -> Files:
    """Replace index files, which are named by the time of day, by their contents in the order of the names.

    RocketMQ creates an index file with the first record, rocketc with the first key: a file without keys is skipped.
    """
    queues = {path: data for path, data in found.items() if not path.startswith("index/")}
    indexes = [found[path] for path in sorted(found) if path not in queues]
    return queues, [data for data in indexes if index_file(data, 0)[0].index_count > 1]


def same_files(found: Files, wanted: Files) -> None:
    """Assert that two sets of files are equal; name the files that differ, not their bytes."""
    assert sorted(found[0]) == sorted(wanted[0])
    assert [path for path in found[0] if found[0][path] != wanted[0][path]] == []
    assert len(found[1]) == len(wanted[1])
    assert [n for n, (one, other) in enumerate(zip(found[1], wanted[1], strict=True)) if one != other] == []
