"""A folder whose files hold any bytes, opened for writing: the store accepts messages, returns them, and loses no
record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crash import remains
from fuzz import whole

import rocketc

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": whole.SECOND,
    "mapped_file_size_consume_queue": 200,
    "mapper_file_size_batch_consume_queue": 230,
    "mapped_file_size_consume_queue_ext": 128,
}
INDEX: dict[str, Any] = {"max_hash_slot_num": 8, "max_index_num": 10}
WAITING = 20.0  # seconds
PUTS = (("t", 0), ("b", 0), ("new", 3))


def store(data: bytes, folder: Path) -> None:
    """Open the store, put some messages and get them; close it and repeat: the second opening must succeed.

    Byte 0 holds the options: bit 0 flush="sync", 1 the sizes of the existing index, 2 no index, 3 extended consume
    queues, 4 the transient pool. The rest are the files, as whole.split() reads them.
    """
    if not data:
        return
    how, files = data[0], whole.split(data[1:])
    fields = {
        **SIZES,
        **({} if how & 2 else INDEX),
        "flush": "sync" if how & 1 else "async",
        "message_index_enable": not how & 4,
        "enable_consume_queue_ext": bool(how & 8),
        "transient_store_pool_enable": bool(how & 16),
    }
    root = remains.lay(files, folder / "store")
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    found = _records(root)
    put: dict[int, tuple[str, int, int]] = {}
    for turn in range(2):
        try:
            opened = rocketc.open(root, **fields)
        except rocketc.RocketcError:
            assert turn == 0, "the store opened before, and was closed"
            _keeps(root, found)
            return
        with opened:
            for topic, queue_id in PUTS:
                result = opened.put(topic, b"body %d" % turn, queue_id=queue_id, keys="k1", tags="A")
                assert result.status.name == "PUT_OK", result
                assert result.phy_offset not in put, "a physical offset was assigned twice"
                put[result.phy_offset] = topic, queue_id, result.queue_offset
            assert opened.wait_dispatched(WAITING), "the messages must be dispatched"
            for phy_offset, (topic, queue_id, queue_offset) in put.items():
                assert opened.message(phy_offset).queue_offset == queue_offset
                got = opened.get(topic, queue_id, queue_offset, 1)
                assert [message.phy_offset for message in got] == [phy_offset], got.status
            if not how & 4:
                assert {message.phy_offset for message in opened.query("new", "k1")} >= {
                    at for at, (topic, _, _) in put.items() if topic == "new"
                }
        _keeps(root, found)
        found |= {at: raw for at, raw in _records(root).items() if at in put}
        assert put.keys() <= found.keys()
        assert not (root / "abort").exists()


def _records(root: Path) -> dict[int, bytes]:
    """Physical offset and bytes of each record of the log."""
    scan = rocketc.scan(root, errors="skip", decompress=False, unwrap=False)
    return {message.phy_offset: message.record for message in scan}


def _keeps(root: Path, found: dict[int, bytes]) -> None:
    """Assert that each record is still in the log, or was cut off and kept."""
    now = _records(root)
    lost = {at: raw for at, raw in found.items() if now.get(at) != raw}
    for at, raw in lost.items():
        kept = [(int(path.name[:20]), path) for path in root.glob("cut/*")]
        taken = [path.read_bytes()[at - base :][: len(raw)] for base, path in kept if base <= at]
        assert any(some.ljust(len(raw), b"\0") == raw for some in taken), at  # zeros at the end are not kept
