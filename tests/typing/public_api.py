"""What a type checker sees of the public names. mypy reads this file (`make lint`), nothing runs it."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from typing_extensions import assert_type

import rocketc


def scanning() -> None:
    assert_type(rocketc.scan("store"), rocketc.Scan)
    assert_type(rocketc.scan(Path("store"), topics=["a", re.compile("b.*")], queues=[0], tags=["x"]), rocketc.Scan)
    assert_type(rocketc.scan(["a", Path("b")], begin=1, end=datetime.now(timezone.utc)), rocketc.Scan)
    assert_type(
        rocketc.scan("s", where=lambda message: message.queue_id == 0, errors="report", crc="full"), rocketc.Scan
    )
    assert_type(rocketc.decode(b"", base_offset=None), rocketc.Scan)
    assert_type(rocketc.decode(memoryview(b"")), rocketc.Scan)
    rocketc.scan("store", errors="ignore")  # type: ignore[arg-type]
    rocketc.scan("store", crc="half")  # type: ignore[arg-type]


def results(scan: rocketc.Scan) -> None:
    assert_type(iter(scan), Iterator[rocketc.Message])
    assert_type(scan.count(), int)
    report = scan.report
    assert_type(report, rocketc.ScanReport)
    assert_type((report.records, report.bytes, report.blanks, report.files), tuple[int, int, int, int])
    assert_type(report.damage, list[rocketc.Damage])
    for damage in report.damage:
        assert_type((damage.start, damage.stop, damage.reason), tuple[int, int, str])


def messages(message: rocketc.Message) -> None:
    assert_type((message.topic, message.queue_id, message.queue_offset), tuple[str, int, int])
    assert_type((message.keys, message.tags), tuple[str | None, str | None])
    assert_type((message.body, message.stored_body), tuple[bytes, bytes])
    assert_type((message.store_timestamp, message.store_time), tuple[int, datetime])
    properties: Mapping[str, str] = message.properties
    assert_type(properties["KEYS"], str)
    message.queue_id = 1  # type: ignore[misc]


def errors(error: rocketc.CorruptRecordError) -> None:
    assert_type((error.file, error.offset, error.reason), tuple[str | None, int, str])
    value_error: ValueError = error
    assert value_error
