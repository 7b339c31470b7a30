"""RecordBlock: records one after the other, and the brokers that have sent them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class RecordBlock:
    """Records one after the other, each from anywhere in a log. It is true if it has records.

    records  their bytes
    brokers  the names of the brokers that have sent them; empty: they are from no broker
    runs     pairs of int32: the position after the last record of a run, and the index of its broker. Records after all
             runs are from the first broker

    >>> block = RecordBlock(b"...", ("broker-a",))
    >>> len(block), bool(RecordBlock())
    (3, False)
    """

    records: bytes = b""
    brokers: tuple[str, ...] = ()
    runs: bytes = b""

    def __len__(self) -> int:
        return len(self.records)


def block_of(parts: Iterable[tuple[str, bytes]]) -> RecordBlock:
    """Return the block of parts, each with the name of the broker that has sent it.

    >>> block_of([("broker-a", b"..."), ("broker-a", b"....")])
    RecordBlock(records=b'.......', brokers=('broker-a',), runs=b'')
    >>> list(array("i", block_of([("a", b"..."), ("b", b".."), ("b", b".")]).runs))
    [3, 0, 6, 1]
    """
    numbers: dict[str, int] = {}
    runs, found = array("i"), list[bytes]()
    stop, last = 0, -1
    for broker, records in parts:
        found.append(records)
        stop += len(records)
        number = numbers.setdefault(broker, len(numbers))
        if number == last:
            runs[-2] = stop
        else:
            runs.extend((stop, number))
            last = number
    return RecordBlock(b"".join(found), tuple(numbers), runs.tobytes() if len(numbers) > 1 else b"")


def joined_blocks(blocks: Iterable[RecordBlock]) -> RecordBlock:
    """Return one block of several.

    >>> joined_blocks([RecordBlock(b"...", ("a",)), RecordBlock(b"..", ("b",))]).brokers
    ('a', 'b')
    """
    blocks = list(blocks)
    if len(blocks) == 1:
        return blocks[0]
    if len({block.brokers for block in blocks}) < 2 and not any(block.runs for block in blocks):
        return RecordBlock(b"".join([block.records for block in blocks]), blocks[0].brokers if blocks else ())
    return block_of(part for block in blocks for part in _parts(block))


def _parts(block: RecordBlock) -> Iterable[tuple[str, bytes]]:
    """Yield the runs of a block."""
    start, runs = 0, array("i", block.runs)
    for stop, number in zip(runs[::2], runs[1::2], strict=True):
        yield block.brokers[number], block.records[start:stop]
        start = stop
    if start < len(block.records):
        yield block.brokers[0], block.records[start:]
