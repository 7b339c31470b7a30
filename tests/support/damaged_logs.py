"""Logs as another program leaves them, with chosen damage, and what recovery finds in them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.files import _checkpoint
from rocketc.files._checkpoint import Checkpoint
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.log import recovery
from support import oracle

SIZE = 4096
T0 = 1_700_000_000_000  # record n has the store timestamp T0 + 1000 n


def message(n: int, **fields: Any) -> dict[str, Any]:
    return {
        "topic": "t",
        "body": b"%04d" % n + bytes([n % 251]) * 200,
        "queue_id": n % 2,
        "queue_offset": n // 2,
        "born_timestamp": T0,
        "store_timestamp": T0 + 1000 * n,
        "properties": {"a": "b"},
        **fields,
    }


def write(
    root: Path, messages: Iterable[dict[str, Any]], *, base: int = 0, abort: bool = True, checkpoint: int = 0
) -> list[oracle.Item]:
    """Write a store as another program leaves it; return its items as the oracle reads them."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for start, data in oracle.lay_out(messages, SIZE, base=base):
        (folder / f"{start:020d}").write_bytes(data)
    if abort:
        (root / "abort").touch()
    if checkpoint:
        _checkpoint.write(str(root / "checkpoint"), Checkpoint(checkpoint, checkpoint, 0, 0, 0))
    return oracle.walk_log(oracle.read_log(folder))


def messages(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [message(n, **fields) for n in range(count)]


def recover(root: Path, **options: Any) -> tuple[recovery.Recovery, dict[tuple[str, int], int]]:
    """Recover a store as open() does; return what recovery found, and the next offset of each queue."""
    queue = MappedFileQueue([root / "commitlog"], SIZE)
    queue.load()
    queues = ConsumeQueues(str(root))
    queues.load()
    found, offsets = recovery.recover(
        str(root),
        queue,
        queues,
        **{
            "clean": not (root / "abort").exists(),
            "checkpoint": _checkpoint.read(str(root / "checkpoint")),
            **options,
        },
    )
    assert queue.wrote == queue.flushed == found.end
    return found, dict(offsets.items())


def damage(root: Path, at: int, data: bytes | None = None) -> None:
    """Overwrite bytes at a physical offset; by default invert one byte."""
    path = root / "commitlog" / f"{at - at % SIZE:020d}"
    with open(path, "r+b") as file:
        if data is None:
            file.seek(at % SIZE)
            data = bytes([file.read(1)[0] ^ 0xFF])
        file.seek(at % SIZE)
        file.write(data)


def log(root: Path) -> list[oracle.Item]:
    return oracle.walk_log(oracle.read_log(root / "commitlog"))


def log_bytes(root: Path, start: int, size: int) -> bytes:
    path = root / "commitlog" / f"{start // SIZE * SIZE:020d}"
    return path.read_bytes()[start % SIZE :][:size]


def stop_of(item: oracle.Item) -> int:
    return item.stop if isinstance(item, oracle.Blank) else item["stop"]


class Stop(Exception):
    """The exception of stopping()."""


def stopping(original: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """Return the function wrapped so that it raises Stop after this number of calls."""
    left = calls

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stop
        return original(*args, **kwargs)

    return call
