"""Checks of put: the records of a store after a put, and calls that must be refused."""

import pytest

import rocketc
from rocketc.status import PutStatus
from support import oracle


def items(store):
    """What the oracle reads in the log, to its end."""
    return oracle.walk_log(oracle.read_log(f"{store.path}/commitlog"), crc="full")


def records(store):
    return oracle.records(items(store))


def bodies(path):
    """All bodies that rocketc reads."""
    return [m.body for m in rocketc.scan(path)]


def stored(store, r):
    """The bytes that a put wrote."""
    size = store.config.mapped_file_size_commit_log
    data = dict(entry[:2] for entry in oracle.read_log(f"{store.path}/commitlog"))[r.phy_offset - r.phy_offset % size]
    return data[r.phy_offset % size :][: r.size]


def refused(status, call, *args, **kwargs):
    """Assert that a call stores nothing and raises an exception with this status."""
    kind = {
        PutStatus.MESSAGE_ILLEGAL: rocketc.IllegalMessageError,
        PutStatus.PROPERTIES_SIZE_EXCEEDED: rocketc.IllegalMessageError,
        PutStatus.OS_PAGE_CACHE_BUSY: rocketc.PageCacheBusyError,
        PutStatus.SERVICE_NOT_AVAILABLE: (rocketc.ClosedError, rocketc.StoreFailedError),
        PutStatus.CREATE_MAPPED_FILE_FAILED: rocketc.StoreIOError,
    }[status]
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert caught.value.status is status
    return caught.value
