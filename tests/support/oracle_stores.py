"""Stores that the oracle wrote, with consume queues as specified, and readers of these queues."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rocketc import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.store._queue_reader import QueueReader
from support import derived, oracle

FILE = 1 << 16
QUEUE_FILE = 100 * 20
MESSAGE = {"topic": "orders", "queue_id": 1, "store_timestamp": 1_700_000_000_000}


def lay_down(root: Path, messages: Iterable[Mapping[str, Any]], *, base: int = 0, batch: Iterable[str] = ()) -> None:
    """Write a log and its consume queues as RocketMQ does."""
    (root / "commitlog").mkdir(parents=True)
    for start, data in oracle.lay_out(messages, FILE, base=base):
        (root / "commitlog" / f"{start:020}").write_bytes(data)
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    made = derived.queue_files(records, QUEUE_FILE, lmq=True, batch=tuple(batch), batch_size=50 * 46)
    for name, data in made.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def reader(root: Path, **fields: Any) -> QueueReader:
    log = MappedFileQueue([root / "commitlog"], FILE, only_read=True)
    log.load()
    queues = ConsumeQueues(str(root), QUEUE_FILE, 50 * 46, read_only=True)
    queues.load()
    return QueueReader(log, queues, StoreConfig(**fields))


def bodies(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{**MESSAGE, "body": b"%d" % n, "queue_offset": n, **fields} for n in range(count)]
