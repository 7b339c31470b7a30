"""The pairs of a master and a slave, RocketMQ's or ours, under one load: the slave has the same, and serves it."""

import signal
import time

import pytest
from interop import scenarios
from interop.our_broker import wait_for
from interop.pairs import (
    FILE_SIZE,
    OURS,
    TOPIC,
    Load,
    Member,
    NameServer,
    assert_equal_files,
    assert_equal_tables,
    is_following,
    log_of,
    settle,
)
from interop.peer import RELEASES
from interop.test_our_master import ELSEWHERE
from interop.valve import Valve
from support import oracle

import rocketc

pytestmark = pytest.mark.timeout(300)

PAIRS = [pair for release in RELEASES for pair in ((release, release), (release, OURS), (OURS, release))]
BORN_ON_V6, TRANSACTION, COMMIT = 0x10, 0xC, 0x8


def begin_pair(begin, tmp_path, master, slave):
    """A master and a slave that follows it from the first message on."""
    names = begin(NameServer).address
    first = Member(begin, master, tmp_path / "master", names)
    second = Member(begin, slave, tmp_path / "slave", names, first)
    first.send(b"first")
    assert wait_for(lambda: is_following(first, second), 30)
    return first, second


def assert_is_varied(store, master):
    """The log has what the load is for."""
    records = oracle.records(oracle.walk_log(oracle.read_log(store / "commitlog"), crc="body"))
    flags = {record["sysFlag"] & TRANSACTION for record in records}
    assert flags == {0, COMMIT}  # half messages are stored without their flag, and a rollback is a mark only
    hosts = {record["bornHost"].rpartition(":")[0].strip("[]") for record in records if record["sysFlag"] & BORN_ON_V6}
    assert hosts == {"::1"} or hosts == {"0:0:0:0:0:0:0:1"}
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", TOPIC} <= {
        record["topic"] for record in records
    }
    assert all("__CRC32#" in record["properties"] for record in records) or master == "4.9.7"
    assert len(log_of(store)) > 2


def under_load(master, slave, files, quiet=3.0):
    """Give the master the load, and assert that both have the same files.

    files  how many files of the log are filled
    quiet  see settle()
    """
    with Load(master, seed=1) as load:
        load.until_bytes(files * FILE_SIZE // 2)
        master.commit(7)
        load.until_bytes(files * FILE_SIZE)
    load.bodies.add("first")
    settle(master, slave, quiet)
    assert_equal_files(master.store, slave.store)
    assert_is_varied(slave.store, master.kind)
    return load


def test_ours_at_ours_has_the_same_files(begin, tmp_path):
    under_load(*begin_pair(begin, tmp_path, OURS, OURS), files=2, quiet=1.5)


@pytest.mark.long
@pytest.mark.parametrize(("master", "slave"), [*PAIRS, (OURS, OURS)])
def test_the_slave_has_the_same_and_serves_it(begin, tmp_path, master, slave):
    first, second = begin_pair(begin, tmp_path, master, slave)
    load = under_load(first, second, files=4)
    assert_equal_tables(first, second)
    first.kill()
    release = next((one for one in (slave, master) if one != OURS), RELEASES[-1])
    clients = begin(scenarios.Clients, release, tmp_path / "clients")
    got = clients.step(second, TOPIC, "poll", group="later", count=len(load.bodies), millis=500)
    assert sorted(got) == sorted(load.bodies)


@pytest.mark.long
@pytest.mark.parametrize(("master", "slave"), [pair for pair in [*PAIRS, (OURS, OURS)] if OURS in pair])
def test_each_side_fails_under_load(begin, tmp_path, master, slave):
    """Killed, stopped for 3 s, and cut off: the slave has the same at the end, and every acknowledged message."""
    names = begin(NameServer).address
    elsewhere = ELSEWHERE if master == OURS else None  # masters of RocketMQ listen on all addresses
    first = Member(begin, master, tmp_path / "master", names, elsewhere=elsewhere)
    valve = begin(Valve, ("127.0.0.1", first.ha_port), elsewhere or "127.0.0.1", first.ha_port if elsewhere else 0)
    settings = {} if elsewhere else {"haMasterAddress": f"127.0.0.1:{valve.address[1]}"}
    second = Member(begin, slave, tmp_path / "slave", names, first, **settings)
    first.send(b"first")
    assert wait_for(lambda: is_following(first, second), 30)

    def stop(member):
        member.signal(signal.SIGSTOP)
        time.sleep(3)
        member.signal(signal.SIGCONT)

    with Load(first, seed=2, pause=0.01, is_hard=True) as load:

        def follow():
            """The slave gets what is sent from now on."""
            end = first.log_end()
            load.until(lambda: second.log_end() > end)
            load.more(50)

        load.more(50)
        second.kill()
        load.more(100)
        second.start()
        follow()
        stop(second)
        follow()
        valve.cut()
        follow()
        valve.state = "shut"
        load.more(200)
        valve.cut()
        valve.state = "open"
        follow()
        stop(first)
        follow()
        failed = load.failed
        first.kill()
        load.until(lambda: load.failed > failed)
        first.start()
        follow()
    settle(first, second)
    assert_equal_files(first.store, second.store, was_killed=True)
    second.kill()
    assert rocketc.verify(second.store).is_whole
    found = {message.body.decode() for message in rocketc.scan(second.store) if message.topic == TOPIC}
    assert load.bodies <= found
