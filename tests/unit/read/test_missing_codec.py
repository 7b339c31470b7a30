"""A body whose codec is not installed costs its message only, and only if the body is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketc
from rocketc.exports.export import export

ZSTD = 0x1 | 2 << 8
RECORDS = 100


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Messages 0 to 99; the body of 70 is zstd."""
    out, at = b"", 0
    for n in range(RECORDS):
        out += rocketc.encode("t", b"%d" % n, phy_offset=at, queue_offset=n, sys_flag=ZSTD if n == 70 else 0)
        at = len(out)
    path = tmp_path / f"{0:020d}"
    path.write_bytes(out)
    return path


@pytest.fixture(autouse=True)
def _no_codec(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("backports.zstd", "compression.zstd", "lz4.frame"):
        monkeypatch.setitem(sys.modules, name, None)
    yield


def test_skip_lists_it(log: Path) -> None:
    scan = rocketc.scan(log, errors="skip")
    assert [m.queue_offset for m in scan] == [n for n in range(RECORDS) if n != 70]
    [damage] = scan.report.damage
    assert damage.reason == "missing_codec" and damage.start < damage.stop
    assert scan.to_arrow().num_rows == RECORDS - 1
    assert scan.report.damage == [damage]


@pytest.mark.parametrize("way", ["messages", "batches"])
def test_raise_returns_the_messages_before_it(log: Path, way: str) -> None:
    scan = rocketc.scan(log)
    seen: list[Any] = []
    with pytest.raises(
        rocketc.MissingCodecError,
        match=rf"^{log}: physical offset \d+: .* zstd: pip install 'rocketc\[compression\]' \(package .*zstd\); "
        "decompress=False returns the stored body$",
    ):
        if way == "messages":
            seen.extend(m.queue_offset for m in scan)
        else:
            for batch in scan.batches():
                seen += batch.column("queueOffset").to_pylist()
    assert seen == list(range(70))


def test_only_bodies_that_are_needed(log: Path, tmp_path: Path) -> None:
    assert rocketc.scan(log).count() == RECORDS
    assert rocketc.scan(log, columns=["topic", "queueOffset"]).to_arrow().num_rows == RECORDS
    assert len(list(rocketc.scan(log, decompress=False))) == RECORDS
    assert export(rocketc.scan(log, columns=["topic"]), tmp_path / "topics.jsonl").rows == RECORDS
    with pytest.raises(rocketc.MissingCodecError):
        export(rocketc.scan(log, columns=["body"]), tmp_path / "bodies.jsonl")
    assert not (tmp_path / "bodies.jsonl").exists()
    with pytest.raises(rocketc.MissingCodecError):  # the predicate may need it
        list(rocketc.scan(log, columns=["topic"], where=lambda m: True))
