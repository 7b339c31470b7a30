"""Puts to new queues on a full file system are refused, and nothing that was acknowledged is lost."""

import contextlib
import errno
import os
import subprocess
import time
import uuid

import pytest

import rocketc
from rocketc.status import PutStatus


@pytest.fixture
def small(tmp_path):
    """small(options): mount a tmpfs below tmp_path, or mount it again with other options."""
    place = tmp_path / "small"
    place.mkdir()
    is_mounted = False

    def mount(options):
        nonlocal is_mounted
        options = f"remount,{options}" if is_mounted else options
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("may not mount a file system")
        is_mounted = True
        return place

    yield mount
    if is_mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(store, topics):
    """Put one message to each of many new topics until a put is refused, and append the topics. Return the error.

    Queues whose files do not exist yet count as three inodes and blocks each, some take less.
    """
    refused = None
    while True:
        try:
            store.put(f"topic{len(topics)}", b"%d" % len(topics))
        except rocketc.StoreFullError as error:
            if refused == len(topics):
                return error
            refused = len(topics)
            store.wait_dispatched()
        else:
            topics.append(f"topic{len(topics)}")


def check_all(store, topics):
    """Every message that was acknowledged is in its queue."""
    store.wait_dispatched()
    for topic in topics:
        assert store.get(topic, 0, 0).messages[0].body == topic[5:].encode()


@pytest.mark.parametrize(
    "little, more",
    [("size=64m,nr_inodes=400", "size=64m,nr_inodes=800"), ("size=5m,nr_inodes=40000", "size=9m,nr_inodes=40000")],
    ids=["inodes", "space"],
)
def test_a_new_queue_without_room_is_refused(small, little, more):
    root = small(little) / "store"
    with rocketc.open(root, mapped_file_size_commit_log=1 << 20, message_index_enable=False) as store:
        topics = []
        error = fill(store, topics)
        assert len(topics) > 50
        assert error.errno == errno.ENOSPC and error.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "is too full for more consume queues" in str(error) and str(root / "consumequeue") in str(error)
        check_all(store, topics)
        assert store.failed is None
        assert store.put(topics[0], b"again").queue_offset == 1  # an existing queue
        with pytest.raises(rocketc.StoreFullError):
            store.put_many("one more", [b"x"] * 3)
    with rocketc.open(root, read_only=True) as store:
        assert store.get(topics[0], 0, 1).messages[0].body == b"again"
    with rocketc.open(root) as store:
        check_all(store, topics)
        fill(store, topics)
        check_all(store, topics)
        small(more)
        assert store.put("one more", b"x").queue_offset == 0
        store.wait_dispatched()
        assert len(store.queues()) == len(topics) + 1
    assert rocketc.verify(root).is_whole


def test_puts_wait_for_a_dispatcher_that_is_behind(small):
    """The inodes are enough for these queues, but not if each had a folder for its topic."""
    root = small("size=64m,nr_inodes=4100") / "store"
    with rocketc.open(root, mapped_file_size_commit_log=1 << 20, message_index_enable=False) as store:
        for n in range(2000):
            store.put("t", b"x", queue_id=n)
        store.wait_dispatched()
        assert len(store.queues()) == 2000


def test_puts_are_refused_while_the_queues_can_not_be_written(small):
    """Another program takes the last inodes after the put counted them."""
    place = small("size=64m,nr_inodes=200")
    root = place / "store"
    with rocketc.open(root, mapped_file_size_commit_log=1 << 20, background=False, clock=lambda: 1) as store:
        store.put("first", b"1")
        store.step()
        store.put("second", b"2")  # acknowledged, not dispatched yet
        taken = []
        with contextlib.suppress(OSError):
            while True:
                path = place / f"taken{len(taken)}"
                path.touch()
                taken.append(path)
        store.step()
        for _ in range(2):
            with pytest.raises(
                rocketc.StoreFullError, match=r"is too full for more consume queues.* and 0 inodes are free"
            ):
                store.put("first", b"3")
        assert store.message(0).body == b"1"
        for path in taken:
            path.unlink()
        store.step()
        assert store.put("first", b"3").queue_offset == 1
        store.step()
        assert [m.body for m in store.get("second")] == [b"2"]
    assert rocketc.verify(root).is_whole


def take(place, left):
    """Create files until the file system has this number of free inodes. Return them."""
    taken = []
    while os.statvfs(place).f_favail > left:
        taken.append(place / str(uuid.uuid4()))
        taken[-1].touch()
    return taken


def test_puts_continue_at_once_when_there_is_room(small):
    """They don't wait for the next try of the dispatcher, which would come half a second later."""
    place = small("size=64m,nr_inodes=400")
    with rocketc.open(place / "store", mapped_file_size_commit_log=1 << 20) as store:
        store.put("first", b"1")
        store.wait_dispatched()
        for n in range(50):
            taken = take(place, 19)  # as many as a put to a new queue asks for
            store.put(f"topic{n}", b"2")
            taken += take(place, 0)
            time.sleep(0.01)
            try:
                store.put("first", b"3")
            except rocketc.StoreFullError:
                break
            for path in taken:  # the dispatcher was faster
                path.unlink()
            store.wait_dispatched()
        else:
            pytest.skip("the dispatcher was always faster than the other program")
        for path in taken:
            path.unlink()
        store.put("first", b"4")
        store.wait_dispatched()
        assert [m.body for m in store.get(f"topic{n}")] == [b"2"]
    assert rocketc.verify(place / "store").is_whole


def test_queues_of_which_the_put_failed_return_their_room(small):
    """They hold room until all records are dispatched, and no longer. No log file can be created here."""
    root = small("size=13m,nr_inodes=100") / "store"
    with rocketc.open(root, mapped_file_size_commit_log=8 << 20, background=False, clock=lambda: 1) as store:
        store.put_many("t", [bytes(3_900_000)] * 2)
        for n in range(50):  # together they would take more inodes than there are
            with pytest.raises(rocketc.StoreFullError) as caught:
                store.put(f"topic{n}", bytes(1_000_000))
            assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
            store.step()
