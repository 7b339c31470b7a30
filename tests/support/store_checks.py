"""A store opened again, and checks that its answers agree with its log."""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rocketc
from support import derived, oracle

Queue = tuple[str, int]


@dataclass
class Opened:
    """An open store, and what was logged while it was opened."""

    store: Any
    told: list[str]


@contextmanager
def opened(root: Path, **fields: Any) -> Iterator[Opened]:
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("rocketc.recovery")
    logger.addHandler(handler)
    try:
        store = rocketc.open(root, **fields)
    finally:
        logger.removeHandler(handler)
    with store:
        yield Opened(store, told)


def records_of(root: Path) -> list[oracle.Record]:
    return oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))


def by_queue(records: list[oracle.Record]) -> dict[Queue, list[oracle.Record]]:
    queues: dict[Queue, list[oracle.Record]] = {}
    for record in records:
        queues.setdefault((record["topic"], record["queueId"]), []).append(record)
    return queues


def assert_answers(
    store: Any, records: list[oracle.Record], says: object = None, *, queued: list[oracle.Record] | None = None
) -> None:
    """Assert that each range and each get by queue, tag, key and time agrees with the log's records.

    queued  the records that are in queues; None: all
    """
    keys: dict[tuple[str, str], list[int]] = {}
    for record in records:
        properties = record["properties"]
        for key in {properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")} - {""}:
            keys.setdefault((record["topic"], key), []).append(record["physicalOffset"])
    for (topic, key), phy_offsets in keys.items():
        assert store.query(topic, key, max_count=1 << 20).phy_offsets == phy_offsets, (says, topic, key)
    for (topic, queue_id), queue in by_queue(records if queued is None else queued).items():
        what = (says, topic, queue_id)
        offsets = [record["queueOffset"] for record in queue]
        low, high = offsets[0], offsets[-1] + 1
        assert (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)) == (low, high), what
        assert store.max_offset(topic, queue_id, committed=False) == high, what
        assert read_all(store, topic, queue_id, low) == [record["physicalOffset"] for record in queue], what
        tag = queue[len(queue) // 2]["properties"].get("TAGS")
        tagged = [record["physicalOffset"] for record in queue if record["properties"].get("TAGS") == tag]
        if tag:
            assert read_all(store, topic, queue_id, low, tags=tag) == tagged, what
        stamps = [record["storeTimestamp"] for record in queue]
        if stamps == sorted(stamps) and offsets == list(range(low, high)):
            for when in {stamps[0], stamps[len(stamps) // 2], stamps[-1]}:
                wanted = low + bisect_left(stamps, when)
                assert store.offset_by_time(topic, queue_id, when) == wanted, (what, when)


def read_all(store: Any, topic: str, queue_id: int, offset: int, **how: Any) -> list[int]:
    """Physical offsets of a queue's messages, read from an offset to its end as a consumer does."""
    found: list[int] = []
    while True:
        got = store.get(topic, queue_id, offset, 1000, **how)
        found += got.phy_offsets
        if got.next_offset <= offset:
            return found
        offset = got.next_offset


def config_of(fields: Mapping[str, Any]) -> dict[str, int]:
    """The settings that derived.from_log needs."""
    return {
        "mappedFileSizeConsumeQueue": fields["mapped_file_size_consume_queue"],
        "maxHashSlotNum": fields["max_hash_slot_num"],
        "maxIndexNum": fields["max_index_num"],
    }


def assert_files(root: Path, fields: Mapping[str, Any]) -> None:
    """Assert that consume queues and index follow byte by byte from the log; an empty queue may keep a file."""
    files = derived.files_of(root, *derived.FOLDERS)
    found = derived.without_names({path: data for path, data in files.items() if any(data)})
    derived.same_files(found, derived.from_log(records_of(root), config_of(fields)))
