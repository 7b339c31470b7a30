"""What a broker answers to messages that its store does not accept, and what its log says."""

import logging
import types

import pytest

from rocketc.broker.put_refusals import PutRefusals
from rocketc.config import StoreConfig
from rocketc.errors import ClosedError, StoreFullError
from rocketc.status import PutStatus

SHARES = "CL:  0.95 CQ:  0.95 INDEX:  0.95"
MARKED = (
    f"service not available now: the broker's disk is full [{SHARES}]; "
    "messages are accepted again when /log is at most 85% full"
)


@pytest.fixture
def disk():
    return types.SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=50, f_bavail=50)


@pytest.fixture
def clock():
    return types.SimpleNamespace(seconds=100.0)


@pytest.fixture
def refusals(disk, clock):
    config = StoreConfig(store_path_commit_log="/log", mapped_file_size_commit_log=1 << 20)
    store = types.SimpleNamespace(path="/store", config=config)
    return PutRefusals(store, lambda: clock.seconds, lambda path: disk)


def full():
    error = StoreFullError(28, "the disk is nearly full", "/store")
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    return error


@pytest.mark.parametrize("status", PutStatus)
def test_each_status_has_its_code(refusals, status):
    code, remark = refusals.of_status(status)
    expected = {
        PutStatus.PUT_OK: 0, PutStatus.FLUSH_DISK_TIMEOUT: 10, PutStatus.FLUSH_SLAVE_TIMEOUT: 12,
        PutStatus.SLAVE_NOT_AVAILABLE: 11, PutStatus.SERVICE_NOT_AVAILABLE: 14, PutStatus.MESSAGE_ILLEGAL: 13,
        PutStatus.PROPERTIES_SIZE_EXCEEDED: 13, PutStatus.WHEEL_TIMER_MSG_ILLEGAL: 13, PutStatus.OS_PAGE_CACHE_BUSY: 2,
    }  # fmt: skip
    assert code == expected.get(status, 1) and remark


def test_a_marked_disk(refusals, disk, clock):
    assert refusals.of_error(full()) == (14, MARKED)
    disk.f_bfree = disk.f_bavail = 200
    assert "0.95" in refusals.of_error(full())[1]  # a description of the disks is used for half a second
    clock.seconds += 1
    assert "CL:  0.80 " in refusals.of_error(full())[1]


def test_a_disk_without_room_for_the_next_file(refusals):
    why = f"the broker's disk is full [{SHARES}]; messages are accepted again when /log has"
    assert refusals.of_status(PutStatus.CREATE_MAPPED_FILE_FAILED) == (
        1, f"create mapped file failed, server is busy or broken: {why} 1048576 free bytes; it has 204800",
    )  # fmt: skip
    assert refusals.of_status(PutStatus.SERVICE_NOT_AVAILABLE) == (
        14, f"service not available now: {why} 5242880 free bytes; it has 204800",
    )  # fmt: skip


def test_what_is_not_for_lack_of_space(refusals, disk):
    disk.f_bavail = disk.f_bfree = 700
    code, remark = refusals.of_status(PutStatus.CREATE_MAPPED_FILE_FAILED)
    assert code == 1 and "is full" not in remark and "its disk is busy" in remark
    closed = ClosedError("the store is closed")
    closed.status = PutStatus.SERVICE_NOT_AVAILABLE
    assert refusals.of_error(closed) == (14, "service not available now: the store is closed")
    assert refusals.of_error(OSError(5, "Input/output error")) == (1, "[Errno 5] Input/output error")


def test_one_line_a_minute(refusals, clock, caplog):
    caplog.set_level(logging.DEBUG)
    for seconds in (0, 0.2, 59, 1, 0.3):
        clock.seconds += seconds
        refusals.of_error(full())
    refusals.of_status(PutStatus.MESSAGE_ILLEGAL)  # is the fault of its producer
    head = "/store: messages refused since the last such line:"
    assert [one.getMessage() for one in caplog.records] == [f"{head} 1; {MARKED}", f"{head} 3; {MARKED}"]
