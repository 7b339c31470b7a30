"""A connection of a slave is cut after each byte, with RocketMQ on one side: the slave ends whole."""

import asyncio
import random
import shutil

import pytest
from interop.our_broker import wait_for
from interop.pairs import FILE_SIZE, OURS, Load, Member, NameServer, differing, is_following, log_of
from interop.peer import RELEASES
from interop.test_our_master import ELSEWHERE, Between
from net.proxy import Proxy, Rule

import rocketc
from rocketc.ha.protocol import HEADER_BYTES, REPORT_BYTES
from rocketc.ha.slave import Slave

pytestmark = [pytest.mark.promise(13), pytest.mark.long, pytest.mark.timeout(300)]

SIZES = {"mapped_file_size_commit_log": FILE_SIZE, "max_hash_slot_num": 50, "max_index_num": 200}
DATA_BYTES = 40  # of the log, after whose bytes a connection is cut
REPORTS = 2


async def copied(store, address, end, rules):
    """Copy the log up to its end; return how many connections that took, and what passed."""
    async with Proxy(address, rules=rules) as proxy:
        slave = Slave(store, proxy.address, heartbeat=0.5, chance=random.Random(1))
        copying = asyncio.create_task(slave.run())
        for _ in range(4000):
            if store.max_phy_offset >= end or copying.done():
                break
            await asyncio.sleep(0.005)
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        return slave.connections, proxy.pieces


@pytest.fixture
def master(request, begin, tmp_path):
    """A master of RocketMQ with some messages; address of its HA port, and its log."""
    one = Member(begin, request.param, tmp_path / "master", begin(NameServer).address)
    for n in range(20):
        one.send(b"%03d" % n * (1 + n))
    end = one.log_end()
    [data] = log_of(one.store).values()
    return ("127.0.0.1", one.ha_port), data[:end]


def copy_with_cut(path, master, rule, before=b""):
    """A new store, which has `before` of the log already, copies the rest over a connection that is cut."""
    address, log = master
    with rocketc.open(path, broker_role="SLAVE", **SIZES) as store:
        if before:
            assert store.append_raw(0, before) == len(before)
        connections, pieces = asyncio.run(copied(store, address, len(log), [rule]))
        size = sum(len(one.data) for one in pieces if one.connection == 0 and one.to_server == rule.to_server)
        assert (connections, size) == (2, rule.after), "the cut was made, and once"
        assert store.max_phy_offset == len(log)
        assert store.read_log(0, len(log)) == log
    assert rocketc.verify(path).is_whole
    shutil.rmtree(path)


@pytest.mark.parametrize("master", RELEASES, indirect=True)
def test_our_slave_is_cut_after_each_byte_of_the_master(master, tmp_path):
    for after in range(HEADER_BYTES + DATA_BYTES + 1):
        copy_with_cut(tmp_path / "slave", master, Rule("cut", to_server=False, after=after, connection=0))


@pytest.mark.parametrize("master", RELEASES, indirect=True)
def test_our_slave_is_cut_after_each_byte_of_the_overlap(master, tmp_path):
    """It has half of the log: the master sends these bytes first, from offset 1 on, and they are compared."""
    _, log = master
    half = 0
    while half < len(log) // 2:
        half += int.from_bytes(log[half : half + 4], "big")
    border = HEADER_BYTES + half - 1  # where the first new record begins in the stream
    for after in (*range(HEADER_BYTES + 4), *range(border - 4, border + DATA_BYTES)):
        rule = Rule("cut", to_server=False, after=after, connection=0)
        copy_with_cut(tmp_path / "slave", master, rule, log[:half])


@pytest.mark.parametrize("master", RELEASES, indirect=True)
def test_our_slave_is_cut_after_each_byte_of_its_reports(master, tmp_path):
    for after in range(REPORT_BYTES):
        copy_with_cut(tmp_path / "slave", master, Rule("cut", after=after, connection=0))


@pytest.mark.parametrize("release", RELEASES)
def test_a_slave_of_rocketmq_is_cut(begin, tmp_path, release):
    """It waits 5 s before it connects again, so this is a sample of cuts."""
    names = begin(NameServer).address
    first = Member(begin, OURS, tmp_path / "master", names, elsewhere=ELSEWHERE)
    first.send(b"first")
    cuts = [Rule("cut", to_server=False, after=after) for after in (0, 5, HEADER_BYTES, HEADER_BYTES + 1, 30, 40_000)]
    cuts += [Rule("cut", after=after) for after in (1, REPORT_BYTES - 1)]
    rules = [Rule(rule.what, rule.to_server, rule.after, connection=n) for n, rule in enumerate(cuts)]
    between = begin(Between, first.ha_port, rules)
    with Load(first, seed=3, pause=0.01) as load:
        load.until_bytes(FILE_SIZE // 2)
    second = Member(begin, release, tmp_path / "slave", names, first)
    last = lambda: max((one.connection for one in between.pieces), default=0)  # noqa: E731
    assert wait_for(lambda: last() == len(rules), 120), last()
    with Load(first, seed=4) as load:
        load.until_bytes(3 * FILE_SIZE)
    assert wait_for(lambda: is_following(first, second), 60)
    assert wait_for(lambda: differing(log_of(second.store), log_of(first.store)) == [])
