"""Answers that wait for the disk and for slaves: both in parallel, and which status counts."""

import pytest

from rocketc.broker.answer_waits import BothWaits, answer_waits
from rocketc.remoting.codes import Code

OK, DISK, SLAVE, NONE = Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE


class Waits:
    def __init__(self):
        self.added, self.closed = [], False

    def __len__(self):
        return len(self.added)

    def add(self, end, done):
        self.added.append((end, done))

    def close(self):
        self.closed = True


@pytest.mark.parametrize("order", ["flush first", "replicas first"])
@pytest.mark.parametrize(
    ("flushed", "replicated", "answer"),
    [(OK, OK, OK), (DISK, OK, DISK), (OK, SLAVE, SLAVE), (OK, NONE, NONE), (DISK, SLAVE, SLAVE), (DISK, NONE, NONE)],
)
def test_the_status_of_the_replicas_comes_after_that_of_the_flush(order, flushed, replicated, answer):
    flush, replicas, answers = Waits(), Waits(), []
    waits = answer_waits(flush, replicas)
    waits.add(100, answers.append)
    assert [end for end, _ in (*flush.added, *replicas.added)] == [100, 100], "in parallel"
    ends = [(flush, flushed), (replicas, replicated)]
    for waiting, code in ends if order == "flush first" else reversed(ends):
        assert answers == []
        waiting.added[0][1](code)
    assert answers == [answer]


def test_what_there_is_to_wait_for():
    flush, replicas = Waits(), Waits()
    assert answer_waits(None, None) is None
    assert answer_waits(flush, None) is flush and answer_waits(None, replicas) is replicas
    both = answer_waits(flush, replicas)
    assert isinstance(both, BothWaits) and len(both) == 0
    flush.add(1, print)
    assert len(both) == 1
    both.close()
    assert flush.closed and replicas.closed
