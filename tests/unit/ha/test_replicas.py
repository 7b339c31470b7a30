"""Which offsets the connected slaves have. Names of RocketMQ's tests: HAServerTest."""

import random

import pytest

from rocketc.ha.replicas import IN_SYNC_REPLICAS, MAX_GAP, Replicas
from rocketc.status import PutStatus

GAP = 1000


def slaves(*offsets, acks=2, max_gap=GAP):
    replicas = Replicas(acks, max_gap)
    for n, offset in enumerate(offsets):
        replicas.report(replicas.connect(str(n)), offset)
    return replicas


def test_connection_count():
    """HAServerTest.testConnectionList."""
    replicas = Replicas()
    one = replicas.connect("one")
    assert len(replicas) == 1
    two, three = replicas.connect("two"), replicas.connect("three")
    assert len(replicas) == 3 and list(replicas) == [one, two, three]
    replicas.disconnect(two)
    replicas.disconnect(two)
    assert len(replicas) == 2


def test_in_sync_replicas_nums():
    """HAServerTest.inSyncReplicasNums."""
    replicas = slaves(123, 124, 123, 125)
    assert [replicas.in_sync(end + GAP) for end in (0, 123, 124, 125)] == [5, 3, 2, 1]


def test_is_slave_ok():
    """HAServerTest.isSlaveOK."""
    assert not Replicas(max_gap=GAP).is_slave_ok(0)
    replicas = slaves(123, 124)
    assert replicas.is_slave_ok(122 + GAP) and not replicas.is_slave_ok(124 + GAP)


def test_push_2_slave_max_offset():
    """HAServerTest.testPush2SlaveMaxOffset. It never decreases, even if all slaves leave."""
    replicas = Replicas()
    assert replicas.pushed == 0
    one, two = replicas.connect("one"), replicas.connect("two")
    for replica, offset, pushed in ((one, 100, 100), (two, 300, 300), (one, 200, 300), (two, 50, 300)):
        replicas.report(replica, offset)
        assert (replicas.pushed, replica.acknowledged) == (pushed, offset)
    replicas.disconnect(one)
    replicas.disconnect(two)
    assert replicas.pushed == 300


def test_the_defaults():
    replicas = Replicas()
    assert (replicas.acks, replicas.max_gap) == (IN_SYNC_REPLICAS, MAX_GAP) == (2, 256 << 20)


# ---------------------------------------------------------------------------------------------- replicated


@pytest.mark.parametrize(("acks", "replicated"), [(2, 400), (3, 300), (4, 100), (5, 0), (6, 0)])
def test_replicated_by_number(acks, replicated):
    assert slaves(300, 100, 400, acks=acks).replicated == replicated


def test_replicated_does_not_decrease():
    replicas = Replicas(3)
    one, two = replicas.connect("one"), replicas.connect("two")
    assert not replicas.report(one, 100)
    assert replicas.report(two, 70)
    assert not replicas.report(two, 60), "a slave may report less, for example when it compares its last records"
    replicas.disconnect(one)
    assert not replicas.report(two, 500) and replicas.replicated == 70
    three = replicas.connect("three")
    assert not replicas.report(three, 69)
    assert replicas.report(three, 71) and replicas.replicated == 71


def test_a_slave_that_has_left_does_not_acknowledge():
    """One after the other: at no time did two slaves have it."""
    replicas = Replicas(3)
    for name in ("one", "two"):
        replica = replicas.connect(name)
        replicas.report(replica, 500)
        replicas.disconnect(replica)
    assert replicas.replicated == 0


def test_any_order_of_reports():
    """`replicated` is the greatest offset that enough slaves had at the same time."""
    chance = random.Random(7)
    for _ in range(200):
        acks = chance.randint(2, 4)
        replicas, there, most = Replicas(acks), {}, 0
        for n in range(60):
            if there and chance.random() < 0.1:
                gone = chance.choice(list(there))
                replicas.disconnect(gone)
                del there[gone]
            elif chance.random() < 0.15:
                there[replicas.connect(str(n))] = -1
            elif there:
                one = chance.choice(list(there))
                there[one] = max(0, there[one] + chance.randint(-20, 100))
                moved = replicas.report(one, there[one])
                offsets = sorted(there.values(), reverse=True)
                now = max(offsets[acks - 2] if len(offsets) >= acks - 1 else 0, 0)
                assert moved == (now > most)
                most = max(most, now)
            assert replicas.replicated == most


# ---------------------------------------------------------------------------------------------- refusal


def test_no_slave():
    """HATest: after the slave has stopped. 4.9.7 answers so; 5.x waits for its time-out."""
    replicas = Replicas()
    assert replicas.refusal(100) is PutStatus.SLAVE_NOT_AVAILABLE
    replica = replicas.connect("one")
    assert replicas.refusal(100) is PutStatus.SLAVE_NOT_AVAILABLE, "it may be no slave at all"
    replicas.report(replica, 0)
    assert replicas.refusal(100) is None
    replicas.disconnect(replica)
    assert replicas.refusal(100) is PutStatus.SLAVE_NOT_AVAILABLE


def test_all_slaves_behind():
    replicas = slaves(100, 150)
    assert replicas.refusal(149 + GAP) is None
    assert replicas.refusal(150 + GAP) is PutStatus.SLAVE_NOT_AVAILABLE
    replicas.disconnect(list(replicas)[1])
    assert replicas.refusal(99 + GAP) is None
    assert replicas.refusal(100 + GAP) is PutStatus.SLAVE_NOT_AVAILABLE, "what the other one had does not count"
    assert replicas.is_slave_ok(149 + GAP), "4.x counts it"


@pytest.mark.parametrize("acks", [0, 1])
def test_sends_that_wait_for_no_slave(acks):
    assert Replicas(acks).refusal(100) is PutStatus.PUT_OK


def test_a_slave_that_connects_again_counts_once():
    """Its former connection was lost without a sign. A message on its machine has one replica."""
    replicas = Replicas(acks=3)
    former, other = replicas.connect("one:1", "one"), replicas.connect("two:1", "two")
    replicas.report(other, 100)
    replicas.report(former, 300)
    assert replicas.replicated == 100
    again = replicas.connect("one:2", "one")
    replicas.report(again, 200)
    replicas.report(again, 400)
    assert replicas.replicated == 100
    replicas.report(other, 350)
    assert replicas.replicated == 350


def test_two_slaves_on_one_machine_count_twice():
    replicas = Replicas(acks=3)
    first, second = replicas.connect("one:1", "one"), replicas.connect("one:2", "one")
    replicas.report(first, 100)
    replicas.report(second, 100)
    assert replicas.replicated == 0
    replicas.report(first, 100)
    assert replicas.replicated == 100


# ---------------------------------------------------------------------------------------------- what was sent


def begun(replicas, name, first):
    """A slave that gets the log from `first` on, and has reported so."""
    replica = replicas.connect(name)
    replica.first = first
    replicas.report(replica, first)
    return replica


@pytest.mark.parametrize("acks", [2, 3])
def test_the_first_report_acknowledges_nothing(acks):
    """The slave may have another log up to there."""
    replicas = Replicas(acks, GAP)
    slaves = [begun(replicas, str(n), 100) for n in range(acks - 1)]
    assert (replicas.replicated, replicas.pushed) == (0, 100)
    assert replicas.in_sync(100) == acks and replicas.refusal(100) is None, "it is a slave, and not far behind"
    for replica in slaves:
        assert replicas.report(replica, 100) is False and replicas.report(replica, 50) is False
    moved = [replicas.report(replica, 101) for replica in slaves]
    assert moved == [False] * (acks - 2) + [True] and replicas.replicated == 101


def test_which_slaves_have_a_message():
    replicas = Replicas(2, GAP)
    one = begun(replicas, "one", 100)
    assert not replicas.have(100) and not replicas.have(101)
    replicas.report(one, 200)
    assert [replicas.have(end) for end in (99, 100, 101, 200, 201)] == [False, False, True, True, False]
    replicas.acks = 3
    two = begun(replicas, "two", 150)
    replicas.report(two, 300)
    assert [replicas.have(end) for end in (101, 150, 151, 200, 201)] == [False, False, True, True, False]
    two.is_doubtful = True
    assert not replicas.have(151)


def test_the_nearest_slave():
    """What refusal() asks is the greatest last report of those that are connected, in any order of events."""
    chance = random.Random(11)
    for _ in range(100):
        replicas = Replicas(2, GAP)
        for n in range(60):
            there = list(replicas)
            if not there or chance.random() < 0.2:
                replicas.connect(str(n))
            elif chance.random() < 0.15:
                replicas.disconnect(chance.choice(there))
            else:
                replicas.report(chance.choice(there), chance.randrange(3 * GAP))
            end = chance.randrange(4 * GAP)
            assert (replicas.refusal(end) is None) == (replicas.in_sync(end) > 1)
