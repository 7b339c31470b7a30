"""Messages that wait for slaves. Names of RocketMQ's tests: HAServerTest, HATest."""

import asyncio

from simulation import virtual

from rocketc.ha.group_transfer import GroupTransfer
from rocketc.ha.replicas import Replicas
from rocketc.status import PutStatus

OK, TIMEOUT, NOT_AVAILABLE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE


def play(main, acks=2, max_gap=1 << 20, timeout=3.0):
    """Run main(transfer, add, slave, answers): slave(offset) connects one; answers has (end, status, time) in order."""

    async def run():
        replicas = Replicas(acks, max_gap)
        transfer, answers = GroupTransfer(replicas, timeout), []
        loop = asyncio.get_running_loop()

        def slave(offset):
            replica = replicas.connect("slave")
            transfer.report(replica, offset)
            return replica

        def add(*ends):
            for end in ends:
                transfer.add(end, lambda status, end=end: answers.append((end, status, round(loop.time(), 6))))

        await main(transfer, add, slave, answers)
        transfer.close()

    virtual.run(run())


def test_without_slaves():
    async def main(transfer, add, slave, answers):
        add(124)
        assert answers == [], "not within add()"
        await asyncio.sleep(0)
        assert answers == [(124, NOT_AVAILABLE, 0.0)] and len(transfer) == 0

    play(main)


def test_a_slave_that_has_the_message():
    async def main(transfer, add, slave, answers):
        slave(124)
        add(124)
        await asyncio.sleep(0)
        assert answers == [(124, OK, 0.0)]

    play(main)


def test_an_answer_that_fails_ends_no_other_wait():
    """The others are answered, and later ones still have their time-out."""

    def fails(status):
        raise RuntimeError("the answer failed")

    async def main(transfer, add, slave, answers):
        loop, errors = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda loop, context: errors.append(str(context["exception"])))
        one = slave(100)
        transfer.add(200, fails)
        add(201)
        await asyncio.sleep(3.1)
        transfer.add(300, fails)
        add(301, 302)
        transfer.report(one, 301)
        await asyncio.sleep(3.1)
        transfer.add(400, fails)
        add(401)
        transfer.close()
        await asyncio.sleep(0)
        assert answers == [(201, TIMEOUT, 3.0), (301, OK, 3.1), (302, TIMEOUT, 6.1), (401, TIMEOUT, 6.2)]
        assert errors == ["the answer failed"] * 3

    play(main)


def test_three_acks():
    """HAServerTest: one slave at 125, then a second one at 128."""

    async def main(transfer, add, slave, answers):
        slave(125)
        add(124)
        await asyncio.sleep(4)
        assert answers == [(124, TIMEOUT, 3.0)]
        slave(128)
        add(124)
        await asyncio.sleep(0)
        assert answers[1:] == [(124, OK, 4.0)]

    play(main, acks=3)


def test_one_report_ends_all_waits_that_it_covers():
    async def main(transfer, add, slave, answers):
        replica = slave(0)
        add(100, 200, 300)
        await asyncio.sleep(1)
        transfer.report(replica, 250)
        assert answers == [(100, OK, 1.0), (200, OK, 1.0)] and len(transfer) == 1
        add(400)
        await asyncio.sleep(1)
        transfer.report(replica, 400)
        assert answers[2:] == [(300, OK, 2.0), (400, OK, 2.0)]

    play(main)


def test_a_slow_slave():
    """HATest on 5.x: each wait has its own time-out; a later one is not delayed by an earlier one."""

    async def main(transfer, add, slave, answers):
        replica = slave(0)
        add(100)
        await asyncio.sleep(1)
        add(200)
        await asyncio.sleep(2.5)
        assert answers == [(100, TIMEOUT, 3.0)]
        transfer.report(replica, 200)
        assert answers[1:] == [(200, OK, 3.5)]
        add(300)
        await asyncio.sleep(3)
        assert answers[2:] == [(300, TIMEOUT, 6.5)]

    play(main)


def test_a_slave_that_leaves_and_comes_back_in_time():
    async def main(transfer, add, slave, answers):
        replica = slave(50)
        add(100)
        transfer._replicas.disconnect(replica)
        add(150)
        await asyncio.sleep(1)
        assert answers == [(150, NOT_AVAILABLE, 0.0)]
        slave(150)
        assert answers[1:] == [(100, OK, 1.0)]

    play(main)


def test_slaves_that_are_too_far_behind():
    async def main(transfer, add, slave, answers):
        replica = slave(100)
        add(1099, 1100)
        await asyncio.sleep(0)
        assert answers == [(1100, NOT_AVAILABLE, 0.0)]
        transfer.report(replica, 1099)
        assert answers[1:] == [(1099, OK, 0.0)]

    play(main, max_gap=1000)


def test_ends_in_another_order():
    """Threads may add them so. No wait is answered too early, and none waits for longer than its time-out."""

    async def main(transfer, add, slave, answers):
        replica = slave(0)
        add(300)
        await asyncio.sleep(1)
        add(100)
        transfer.report(replica, 200)
        assert answers == []
        await asyncio.sleep(3)
        assert answers == [(300, TIMEOUT, 3.0), (100, OK, 3.0)]
        add(400, 150)  # both end at the same time
        await asyncio.sleep(4)
        assert answers[2:] == [(400, TIMEOUT, 7.0), (150, OK, 7.0)]

    play(main)


def test_one_acknowledgement_waits_for_nothing():
    async def main(transfer, add, slave, answers):
        add(100)
        await asyncio.sleep(0)
        assert answers == [(100, OK, 0.0)]

    play(main, acks=1)


def test_the_end():
    async def main(transfer, add, slave, answers):
        slave(0)
        add(100, 200)
        transfer.close()
        assert answers == [(100, TIMEOUT, 0.0), (200, TIMEOUT, 0.0)]
        add(300)
        await asyncio.sleep(0)
        assert answers[2:] == [(300, TIMEOUT, 0.0)]
        transfer.close()
        await asyncio.sleep(10)
        assert len(answers) == 3

    play(main)


# ---------------------------------------------------------------------------------------------- slaves that come


def test_a_slave_that_comes_acknowledges_only_what_it_is_sent():
    """Its log up to there may be another one. Its next report ends the wait of what it was sent, and of that only."""

    async def main(transfer, add, slave, answers):
        other = slave(0)
        add(100, 200)
        await asyncio.sleep(1)
        late = transfer._replicas.connect("late")
        transfer.begin(late, 200)
        transfer.report(late, 200)
        add(300, 400)
        assert answers == [] and len(transfer) == 4
        transfer.report(late, 300)
        assert answers == [(300, OK, 1.0)] and len(transfer) == 3
        transfer.report(other, 100)
        assert answers[1:] == [(100, OK, 1.0)]
        transfer.report(late, 400)
        assert answers[2:] == [(400, OK, 1.0)] and len(transfer) == 1
        add(500)
        await asyncio.sleep(5)
        assert answers[3:] == [(200, TIMEOUT, 3.0), (500, TIMEOUT, 4.0)] and len(transfer) == 0

    play(main)


def test_a_wait_ends_in_time_behind_later_ones():
    async def main(transfer, add, slave, answers):
        slave(0)
        add(100)
        transfer.begin(transfer._replicas.connect("late"), 100)
        await asyncio.sleep(2)
        add(200)
        transfer.close()
        assert answers == [(100, TIMEOUT, 2.0), (200, TIMEOUT, 2.0)]

    play(main)


def test_three_acks_of_slaves_that_come():
    async def main(transfer, add, slave, answers):
        one = slave(0)
        add(100)
        two = transfer._replicas.connect("two")
        transfer.begin(two, 100)
        transfer.report(two, 100)
        add(200)
        transfer.report(one, 200)
        assert answers == [], "only one slave was sent the first message"
        transfer.report(two, 200)
        assert answers == [(200, OK, 0.0)]
        transfer.report(slave(0), 150)
        assert answers[1:] == [(100, OK, 0.0)]

    play(main, acks=3)


# ---------------------------------------------------------------------------------------------- other settings


def test_fewer_acks_end_waits():
    async def main(transfer, add, slave, answers):
        slave(250)
        add(100, 200, 300)
        assert answers == []
        transfer._replicas.acks = 2
        transfer.configure(3.0)
        assert answers == [(100, OK, 0.0), (200, OK, 0.0)]
        transfer._replicas.acks = 1
        transfer.configure(3.0)
        assert answers[2:] == [(300, OK, 0.0)] and len(transfer) == 0

    play(main, acks=3)


def test_another_timeout():
    """Waits that began before it keep theirs; later ones are not held back by its timer."""

    async def main(transfer, add, slave, answers):
        one = slave(0)
        add(100)
        transfer.report(one, 100)
        transfer.configure(0.5)
        add(200)
        await asyncio.sleep(1)
        assert answers == [(100, OK, 0.0), (200, TIMEOUT, 0.5)]
        add(300)
        transfer.configure(5.0)
        add(400)
        await asyncio.sleep(6)
        assert answers[2:] == [(300, TIMEOUT, 1.5), (400, TIMEOUT, 6.0)]

    play(main)
