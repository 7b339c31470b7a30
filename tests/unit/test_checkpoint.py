"""_checkpoint against the oracle, and against what RocketMQ tells of its own files."""

import struct

import oracle
import pytest
import stores
from hypothesis import given
from hypothesis import strategies as st

from rocketc import _checkpoint


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_checkpoints(golden, name):
    store = golden(name)
    data = (store.path / "checkpoint").read_bytes()
    assert len(data) == _checkpoint.FILE_BYTES
    mine = _checkpoint.decode(data)
    assert mine == oracle.checkpoint(data)
    assert mine.physic_msg_timestamp > 1_700_000_000_000
    if name in stores.DAMAGED:
        told = (store.recovered.get("clean start") or store.recovered)["diskBefore"]["checkpoint"]
        assert list(mine) == told


@given(st.lists(st.integers(-1 << 63, (1 << 63) - 1), min_size=5, max_size=5), st.binary(max_size=50))
def test_any_checkpoint(fields, rest):
    data = struct.pack(">5q", *fields) + rest
    mine = _checkpoint.decode(data)
    assert mine == tuple(fields) == oracle.checkpoint(data)
    assert mine._fields == oracle.Checkpoint._fields


@pytest.mark.parametrize("length", range(40))
def test_a_torn_checkpoint(length):
    with pytest.raises(ValueError, match=f"40 bytes and more, this one {length}"):
        _checkpoint.decode(bytes(length))
