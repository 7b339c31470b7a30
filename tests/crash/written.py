"""What must be in a store whose writer was killed during the job `write` of crash.zygote."""

from pathlib import Path

from crash import remains
from crash.zygote import COUNT, body
from support.store_checks import assert_answers, assert_files, opened, records_of

import rocketc


def assert_written(root: Path, fields: dict[str, object], lines: list[str], says: object) -> None:
    """Assert that a store whose writer was killed has what it acknowledged, perhaps one message more, and works."""
    closed = lines[-1:] == ["closed"]
    if closed:
        lines = lines[:-1]
        assert not (root / "abort").exists(), says
    with opened(root, **fields) as one:
        assert one.told == [] or not closed, (says, one.told)
        assert_answers(one.store, records_of(root), says)
        end = one.store.max_phy_offset
    if not fields.get("enable_consume_queue_ext"):  # the oracle does not write extensions
        assert_files(root, fields)
    found = remains.messages(remains.take(root))
    assert len(lines) <= len(found) <= (COUNT if closed else min(len(lines) + 1, COUNT)), says
    assert [m["storedBody"] for m in found] == [body(n) for n in range(len(found))], says
    for line, m in zip(lines, found, strict=False):
        assert line == f"{m['queueOffset']} {m['physicalOffset']} {m['queueOffset']}", says
    with rocketc.open(root, **fields) as store:
        assert store.max_phy_offset == end, says
        result = store.put("orders", b"next")
        assert (result.phy_offset >= end, result.queue_offset) == (True, len(found)), says
    assert [m["storedBody"] for m in remains.messages(remains.take(root))][len(found) :] == [b"next"], says
    if not fields.get("enable_consume_queue_ext"):  # the oracle does not write extensions
        assert_files(root, fields)
