"""A store damaged in one byte anywhere in its files: at most the message with that byte is lost.

The loss is always reported, and everything else is unchanged: for readers, `verify`, `salvage`, and when the store is
opened for writing. ROCKETC_SEED=n damages the bytes of seed n; a failure names its seed.
"""

import contextlib
import logging
import os
import random
import shutil
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from support.promise_counts import count

import rocketc
from rocketc.files import _checkpoint

pytestmark = [pytest.mark.promise(4, 5, 6), pytest.mark.usefixtures("quiet")]

SEED = int(os.environ.get("ROCKETC_SEED", "1"))
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 8,
    "max_index_num": 16,
    "flush_interval_commit_log": 10,
}
QUEUES = [("orders", 0), ("orders", 1), ("Aa", 3)]  # in addition to `rare`, which has two messages, and `once`
COUNT = 60
KINDS = [(crc, end) for crc in ("property CRC", "body CRC") for end in ("closed", "killed")]
BODY_AT = 88
CRC_BYTES, CRC_DIGITS = 20, 11  # of the property of a record's own CRC; of its value and the separator


@dataclass
class Made:
    """A store before the damage: its files, and each record by its physical offset."""

    fields: dict[str, Any]
    crc: bool
    files: remains.Files
    records: dict[int, bytes]
    queued: dict[tuple[str, int], list[int]]


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "rocketc")


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def made(request: pytest.FixtureRequest) -> Made:
    crc, end = request.param
    fields = {**SIZES, "enabled_append_prop_crc": crc == "property CRC", "force_verify_prop_crc": crc == "property CRC"}
    chance = random.Random(7)
    with remains.memory() as folder:
        root = Path(folder, "store")
        with rocketc.open(root, **fields) as store:
            for n in range(COUNT):
                store._set_clock(1_700_000_000_000 + 10 * n)
                topic, queue_id = {20: ("once", 0), 9: ("rare", 0), 50: ("rare", 0)}.get(n) or chance.choice(QUEUES)
                tags, keys = chance.choice([None, "A", "B"]), chance.choice([None, f"k{n % 7}", f"k{n} both"])
                store.put(topic, b"%d." % n * chance.randrange(40), queue_id=queue_id, tags=tags, keys=keys)
            store.wait_dispatched(30)
            store.flush()
            if end == "killed":
                until_told(root / "checkpoint", store.max_phy_offset)
                files = remains.take(root)
        if end == "closed":
            files = remains.take(root)
    records, queued = {}, {}
    for record in remains.messages(files):
        at = record["physicalOffset"]
        records[at] = bytes_of(files, at, record["storeSize"])
        queued.setdefault((record["topic"], record["queueId"]), []).append(at)
    assert len(records) == COUNT and len(remains.log(files)) > 2
    return Made(fields, crc == "property CRC", files, records, queued)


def until_told(checkpoint: Path, end: int) -> None:
    """Wait until the checkpoint says that the log is durable to `end`: recovery may cut off the rest."""
    while _checkpoint.flushed_offset(checkpoint, _checkpoint.read(checkpoint)) < end:
        time.sleep(0.01)


def bytes_of(files: remains.Files, at: int, size: int) -> bytes:
    pos = at % SIZES["mapped_file_size_commit_log"]
    return files[f"commitlog/{at - pos:020d}"][pos : pos + size]


def hits(made: Made, seed: int, many: int) -> Iterator[tuple[str, int, int]]:
    """(file, byte, bits to flip): log files more often than others, used bytes more often than unused ones."""
    chance = random.Random(seed)
    logs = [name for name in made.files if name.startswith("commitlog/")]
    others = [name for name, data in made.files.items() if data and name not in logs]
    for _ in range(many):
        name = chance.choice(logs if chance.random() < 0.6 else others)
        data = made.files[name]
        used = len(data.rstrip(b"\0")) if chance.random() < 0.8 else 0
        yield (
            name,
            chance.randrange(used or len(data)),
            chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)]),
        )


def hit_record(made: Made, name: str, at: int) -> int | None:
    """Physical offset of the record that contains a byte of a file."""
    if not name.startswith("commitlog/"):
        return None
    at += int(name.partition("/")[2])
    starts = sorted(made.records)
    start = starts[bisect_right(starts, at) - 1]
    return start if at < start + len(made.records[start]) else None


def assert_all_but(made: Made, found: dict[int, bytes], hit: int | None, at: int, says: object) -> bool:
    """Assert that all records except the damaged one are unchanged; return whether that one is lost."""
    others = {where: record for where, record in made.records.items() if where != hit}
    assert {where: record for where, record in found.items() if where != hit} == others, says
    if hit is None or hit not in found:
        return hit is not None
    if found[hit] != made.records[hit]:
        assert not is_covered(made, hit, at), says
    return False


def is_covered(made: Made, hit: int, at: int) -> bool:
    """Whether a CRC covers a byte of a record's file.

    The body's CRC covers the body; the record's CRC, if it is stored, covers all but itself.
    """
    record = made.records[hit]
    pos = at - hit % SIZES["mapped_file_size_commit_log"]
    body_length = int.from_bytes(record[BODY_AT - 4 : BODY_AT], "big")
    if BODY_AT <= pos < BODY_AT + body_length:
        return True
    return made.crc and not len(record) - CRC_BYTES - 1 <= pos < len(record) - CRC_DIGITS


def one(made: Made, root: Path, name: str, at: int, turn: int, says: object) -> None:
    data = bytearray(made.files[name])
    data[at] ^= turn
    hit = hit_record(made, name, at)
    remains.lay({**made.files, name: bytes(data)}, root)

    scan = rocketc.scan(root, errors="skip", crc="full", decompress=False, unwrap=False)
    lost = assert_all_but(made, {m.phy_offset: m.record for m in scan}, hit, at, says)
    told = [(damage.start, damage.stop) for damage in scan.report.damage]
    assert not lost or any(start <= hit < stop for start, stop in told), (says, told)

    report = rocketc.verify(root)
    assert [(damage.start, damage.stop) for damage in report.damage] == told, says
    assert not lost or not report.is_whole, says

    new = root.with_name("salvaged")
    salvaged = rocketc.salvage(root, new)
    found = {
        m.phy_offset: m.record
        for m in rocketc.scan(new, crc="full", decompress=False, unwrap=False)
        if not stands_in(m)
    }
    assert assert_all_but(made, found, hit, at, says) == lost, says
    assert not lost or not salvaged.is_whole, says

    # A record that was damaged outside of a CRC may now belong to another queue.
    for path, number_kept in ((new, False), (root, lost)):
        with rocketc.open(path, **made.fields) as store:
            assert_all_but(made, by_queue(made, store, hit), hit, at, (says, path))
            for (topic, queue_id), places in made.queued.items():
                number = store.put(topic, b"more", queue_id=queue_id).queue_offset
                assert number >= len(places) - (places[-1] == hit and not number_kept), (says, path, topic, queue_id)
    count("damaged")


def stands_in(message: rocketc.Message) -> bool:
    """Whether the message replaces a lost one: salvage uses a topic of that name, cut to the space that there was."""
    return "rocketc_lost".startswith(message.topic) and message.sys_flag & 0xC == 0xC


def by_queue(made: Made, store: Any, hit: int | None) -> dict[int, bytes]:
    """The records that a store finds at their former queue offsets."""
    found = {}
    for (topic, queue_id), places in made.queued.items():
        for queue_offset, where in enumerate(places):
            with contextlib.suppress(*[rocketc.CorruptRecordError] if where == hit else []):
                for m in store.get(topic, queue_id, queue_offset, 1, crc="full", decompress=False):
                    if m.phy_offset == where:
                        found[where] = m.record
    return found


def run(made: Made, root: Path, seed: int, many: int) -> None:
    for i, (name, at, turn) in enumerate(hits(made, seed, many)):
        says = f"ROCKETC_SEED={seed}: case {i}: {name} at {at} by {turn}"
        one(made, root, name, at, turn, says)
        shutil.rmtree(root.with_name("salvaged"))


def test_some(made, memory_path):
    run(made, memory_path / "store", SEED, 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand(made, memory_path):
    run(made, memory_path / "store", SEED + 1, 2500)
