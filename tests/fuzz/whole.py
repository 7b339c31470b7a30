"""A store's folder whose files hold any bytes: verify() reports what a scan finds, and no file is changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from crash import remains

import rocketc
from rocketc.jobs.verify import VerifyReport

LIMIT = 1 << 16
SECOND = 1024  # physical offset of the log's second file

NAMES = (
    f"commitlog/{0:020d}",
    f"commitlog/{SECOND:020d}",
    f"consumequeue/t/0/{0:020d}",
    f"consumequeue/t/0/{200:020d}",
    f"consumequeue/t/1/{0:020d}",
    f"batchconsumequeue/b/0/{0:020d}",
    f"consumequeue_ext/t/0/{0:020d}",
    "index/20240101000000000",
    "index/20240102000000000",
    "checkpoint",
    "abort",
    "config/topics.json",
    "config/consumerOffset.json",
    "config/delayOffset.json",
    "config/deletedTopics.json",
)


def split(data: bytes) -> dict[str, bytes]:
    """Split an input into files: repeatedly the number of a name, the size in two bytes, and the bytes."""
    files: dict[str, bytes] = {}
    while len(data) >= 3:
        size = data[1] << 8 | data[2]
        files[NAMES[data[0] % len(NAMES)]] = data[3 : 3 + size]
        data = data[3 + size :]
    return files


def join(files: Mapping[str, bytes]) -> bytes:
    """The input for these files."""
    return b"".join(bytes([NAMES.index(name)]) + len(raw).to_bytes(2, "big") + raw for name, raw in files.items())


def store(data: bytes, folder: Path) -> None:
    """Run verify() on the folder twice, and compare it with a scan of its log."""
    files = split(data)
    root = remains.lay(files, folder / "store")
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    report = rocketc.verify(root, jobs=1)
    told = report.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert rocketc.verify(root, jobs=1).to_dict() == told, "both reports must be equal"
    assert remains.take(root) == files, "no file may change"
    _agrees_with_a_scan(report, root)
    _opens_for_reading(root)
    assert remains.take(root) == files, "no file may change"


def _agrees_with_a_scan(report: VerifyReport, root: Path) -> None:
    scan = rocketc.scan(root, errors="skip", crc="full", decompress=False, unwrap=False)
    records = list(scan)
    assert report.records == len(records)
    damage = [one for one in scan.report.damage if one.reason != "missing_file"]  # verify() lists them as `missing`
    assert report.damage == damage
    assert report.bytes == scan.report.bytes
    assert report.missing == scan.report.missing
    assert report.queues == len({(record.topic, record.queue_id) for record in records})
    assert not report.is_log_whole or not scan.report.damage
    assert rocketc.scan(root, errors="skip", crc="full", unwrap=False).count() == len(records)


def _opens_for_reading(root: Path) -> None:
    """A store open for reading answers, or reports what is wrong; all messages that get() returns are in the log."""
    known = {record.phy_offset: record.record for record in rocketc.scan(root, errors="skip", unwrap=False)}
    try:
        with rocketc.open(root, read_only=True) as store:
            for topic, queue_id in (("t", 0), ("t", 1), ("b", 0)):
                low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                for offset in {0, low, high - 1}:
                    try:
                        got = store.get(topic, queue_id, offset, 100)
                    except rocketc.CorruptRecordError:
                        continue
                    for message in got:
                        assert message.phy_offset in known
            list(store.query("t", "k1"))
    except (rocketc.RocketcError, ValueError):
        return
