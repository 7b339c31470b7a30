"""Slaves that begin with another log than they ended with, and masters that have deleted files."""

import re
import shutil

import pytest
from interop.our_broker import wait_for
from interop.pairs import (
    FILE_SIZE,
    OURS,
    Load,
    Member,
    NameServer,
    assert_equal_files,
    differing,
    is_following,
    log_of,
    settle,
)
from interop.peer import RELEASES

import rocketc

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PAIRS = [pair for release in RELEASES for pair in ((release, OURS), (OURS, release))]


def begin_pair(begin, tmp_path, master, slave, **settings):
    names = begin(NameServer).address
    first = Member(begin, master, tmp_path / "master", names, **settings)
    second = Member(begin, slave, tmp_path / "slave", names, first, **settings)
    first.send(b"first")
    assert wait_for(lambda: is_following(first, second), 30)
    return first, second


def replace(store, other=None):
    """Another store takes the place of this one; None: an empty one."""
    shutil.rmtree(store)
    if other is not None:
        shutil.copytree(other, store)


def next_line(broker, pattern):
    """The next line that our broker logs with this pattern."""
    for line in broker._process._process.stderr:
        if found := re.search(pattern, line.decode()):
            return found
    raise AssertionError("it has ended")


@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_a_slave_continues_with_an_older_log(begin, tmp_path, master, slave):
    first, second = begin_pair(begin, tmp_path, master, slave)
    with Load(first, seed=5) as load:
        load.until_bytes(3 * FILE_SIZE // 2)
    assert wait_for(lambda: is_following(first, second))
    second.end()
    shutil.copytree(second.store, tmp_path / "older")
    second.start()
    with Load(first, seed=6) as load:
        load.until_bytes(5 * FILE_SIZE // 2)
    assert wait_for(lambda: is_following(first, second), 30)
    second.kill()
    replace(second.store, tmp_path / "older")
    second.start()
    settle(first, second)
    assert_equal_files(first.store, second.store, was_killed=True)


@pytest.mark.parametrize("release", RELEASES)
def test_our_slave_refuses_another_log(begin, tmp_path, release):
    """The log is not longer than the master's. The first record that differs is named, and nothing is appended."""
    names = begin(NameServer).address
    first = Member(begin, release, tmp_path / "master", names)
    for n in range(100):
        first.send(b"theirs %d" % n)
    with rocketc.open(tmp_path / "slave/store", mapped_file_size_commit_log=FILE_SIZE) as store:
        for n in range(50):
            store.put("orders", b"ours %d" % n)
        end = store.max_phy_offset
    assert end < first.log_end()
    second = Member(begin, OURS, tmp_path / "slave", names, first)
    before = log_of(second.store)
    line = "replication has stopped: the master has another log: it differs from ours from the record at the physical "
    assert next_line(second, line + r"offset (\d+) on")[1] == "0"
    assert second.log_end() == end and differing(log_of(second.store), before) == []


@pytest.mark.parametrize("release", RELEASES)
def test_our_master_refuses_a_slave_that_is_ahead(begin, tmp_path, release):
    """A slave of RocketMQ with a longer log gets nothing; one that begins with an empty log is served."""
    first, second = begin_pair(begin, tmp_path, OURS, release)
    second.end()
    shutil.copytree(first.store, tmp_path / "earlier")
    with Load(first, seed=7) as load:
        load.more(50)
    second.start()
    assert wait_for(lambda: is_following(first, second), 30)
    ahead = second.log_end()
    first.kill()
    replace(first.store, tmp_path / "earlier")
    first.start()
    end = first.log_end()
    found = next_line(first, r"a slave reports the physical offset (\d+); the log ends at (\d+)")
    assert [int(one) for one in found.groups()] == [ahead, end]
    assert second.log_end() == ahead
    second.kill()
    replace(second.store)
    second.start()
    first.send(b"more")
    assert wait_for(lambda: is_following(first, second), 30)
    assert differing(log_of(second.store), log_of(first.store)) == []


@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_the_master_has_deleted_its_first_files(begin, tmp_path, master, slave):
    """Slaves whose log ends after what was deleted continue, and empty ones begin at the last file. Others get nothing:
    neither a gap nor a wrong byte."""
    first, second = begin_pair(begin, tmp_path, master, slave, haHousekeepingInterval=3000)
    ends = []
    for name, size in (("early", 5 * FILE_SIZE // 4), ("late", 9 * FILE_SIZE // 4)):
        with Load(first, seed=size, pause=0.002) as load:
            load.until_bytes(size)
        assert wait_for(lambda: is_following(first, second), 30)
        ends.append(second.log_end())
        second.end()
        shutil.copytree(second.store, tmp_path / name)
        second.start()
    assert ends[0] < 2 * FILE_SIZE < ends[1], "in a file that is deleted, and in one that stays"
    second.kill()
    with Load(first, seed=8) as load:
        load.until_bytes(4 * FILE_SIZE + FILE_SIZE // 4)
    first.end()
    deleted = sorted((first.store / "commitlog").iterdir())[:2]
    for path in deleted:
        path.unlink()
    first.start()
    second.start()  # with the late log
    settle(first, second)
    missing = [f"commitlog/{path.name}" for path in deleted]
    assert differing(log_of(second.store), log_of(first.store)) == missing, "the slave keeps them"

    second.kill()
    replace(second.store, tmp_path / "early")
    second.start()
    before, end = log_of(second.store), second.log_end()
    if slave == OURS:
        found = next_line(second, r"the master sends no bytes of its log from the physical offset (\d+) on")
        assert int(found[1]) < end
    else:
        assert next_line(first, r"the slave gets nothing: .*")
    assert second.log_end() == end and differing(log_of(second.store), before) == []

    second.kill()
    replace(second.store)
    second.start()
    first.send(b"more")
    assert wait_for(lambda: is_following(first, second), 30)
    copied, written = log_of(second.store), log_of(first.store)
    assert list(copied) == sorted(written)[-1:]
    assert differing(copied, written) == sorted(written)[:-1]
