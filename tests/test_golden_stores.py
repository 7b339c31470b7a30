"""Golden stores are unpacked as RocketMQ left them."""

import os
import tarfile

import pytest
from support import stores

pytestmark = pytest.mark.promise(9)


@pytest.mark.parametrize("name", stores.NAMES)
def test_sizes_and_times_are_restored(golden, name):
    store = golden(name)
    with tarfile.open(stores.FOLDER / f"{name}.tar.xz") as archive:
        for member in archive:
            found = (store.path.parent / member.name).stat()
            assert abs(found.st_mtime - member.mtime) < 0.001, member.name
            if member.isfile():
                assert found.st_size == member.size, member.name


@pytest.mark.skipif(not hasattr(os, "SEEK_HOLE"), reason="SEEK_HOLE is not available")
def test_holes_are_kept(golden):
    wheel = golden("v533-broker").path / "timerwheel"
    assert wheel.stat().st_size > 30_000_000
    assert wheel.stat().st_blocks * 512 < 1_000_000


@pytest.mark.parametrize("name", stores.WHOLE)
def test_expected_records_agree_with_their_counts(golden, name):
    store = golden(name)
    assert len(store.messages) == store.about["counts"]["messages"]
    assert len(store.expected) - len(store.messages) == store.about["counts"].get("blank records", 0)


@pytest.mark.parametrize("name", stores.DAMAGED)
def test_damaged_stores_have_their_recovery(golden, name):
    assert golden(name).recovered
