"""Which messages a pull consumer returns, and which offsets it may commit: examples, and a model of one queue."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from rocketc.client.polled_queues import PolledQueues
from rocketc.client.process_queue import ProcessQueue
from rocketc.client.routes import MessageQueue

A, B = (MessageQueue("orders", "broker-a", i) for i in range(2))


def message(offset):
    return SimpleNamespace(queue_offset=offset, body=b"x")


def queues(*names, offset=0):
    found = PolledQueues()
    for name in names:
        found.add(name, ProcessQueue(), offset)
    return found


def put(found, queue, *offsets):
    found._queues[queue].held.put([message(offset) for offset in offsets], 0)


def take(found, most):
    return [(one.queue, one.messages[0].queue_offset, len(one.messages)) for one in found.take(most, 0)]


def test_queues_take_turns():
    found = queues(A, B)
    put(found, A, *range(10))
    put(found, B, *range(10))
    assert [take(found, 4) for _ in range(3)] == [[(A, 0, 4)], [(B, 0, 4)], [(A, 4, 4)]]
    assert take(found, 7) == [(B, 4, 6), (A, 8, 1)]
    assert found.count == 1


def test_a_paused_queue_returns_nothing():
    found = queues(A, B)
    put(found, A, 0)
    put(found, B, 0)
    found.pause(A, True)
    assert take(found, 5) == [(B, 0, 1)] and found.is_paused(A)
    found.seek(A, 0)  # stays paused
    put(found, A, 0)
    assert take(found, 5) == []
    found.pause(A, False)
    assert take(found, 5) == [(A, 0, 1)]


def test_what_was_not_moved_is_not_committed():
    found = queues(A, B, offset=5)
    assert found.positions() == found.finished() == {} and found.remove(B) is None
    put(found, A, 5)
    take(found, 1)
    assert found.positions() == {A: 6} and found.remove(A) == 5
    assert found.remove(A) is None


def test_filtered_messages_are_progress_only_behind_returned_ones():
    found = queues(A)
    put(found, A, 0)
    found.pulled(A, 9)
    assert found.positions() == {}
    take(found, 1)
    found.pulled(A, 9)
    assert (found.positions(), found.finished()) == ({A: 9}, {A: 0})
    found.begin()
    assert found.finished() == {A: 9}
    found.pulled(A, 12)  # nothing is in the hands of the caller
    assert found.finished() == {A: 12}
    found.pulled(A, 3)
    found.pulled(B, 3)
    assert found.positions() == {A: 12}


def test_an_offset_that_a_broker_moves():
    found = queues(A)
    put(found, A, 0, 1)
    found.moved(A, 2, 100)  # the messages between expired: those that were pulled are still returned
    assert take(found, 5) == [(A, 0, 2)] and found.positions() == {A: 2}
    found.moved(A, 2, 100)
    assert found.positions() == {A: 100}
    put(found, A, 100)
    found.moved(A, 101, 40)  # an operator has reset the group
    assert take(found, 5) == [] and found.positions() == {A: 40}
    found.moved(B, 1, 0)


def test_messages_that_did_not_reach_the_caller_come_again():
    found = queues(A)
    put(found, A, *range(5))
    first = found.take(2, 0)
    found.begin()
    found.give_back(first, 0)
    assert (found.positions(), found.finished()) == ({A: 0}, {A: 0})
    assert take(found, 5) == [(A, 0, 5)]
    late = found.take(1, 0)
    found.seek(A, 3)
    found.give_back(late, 0)
    assert take(found, 5) == [] and found.positions() == {A: 3}


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("pull"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("give back"), st.just(0)),
        st.tuples(st.just("poll"), st.just(0)),
        st.tuples(st.just("seek"), st.integers(0, 40)),
        st.tuples(st.just("moved"), st.integers(-9, 9)),
    ),
    max_size=40,
)


@given(ACTIONS, st.sets(st.integers(0, 60)))
def test_no_offset_is_past_what_was_returned(actions, filtered):
    """The model: `due` is where reading continues. No wanted message from there on may be before a committed offset."""
    found, held, at = PolledQueues(), ProcessQueue(), 0
    found.add(A, held, 0)
    due, started, last = 0, 0, []  # the next offset to return; the same at the begin of the poll; the last take
    for name, number in actions:
        if name == "pull":
            wanted = [offset for offset in range(at, at + number) if offset not in filtered]
            at += number
            held.skip_to(at)
            if wanted:
                held.put([message(offset) for offset in wanted], 0)
            else:
                found.pulled(A, at)
        elif name == "poll":
            found.begin()
            started, last = due, []
        elif name == "take":
            last = found.take(number, 0)
            for one in last:
                offsets = [each.queue_offset for each in one.messages]
                assert offsets == [offset for offset in range(due, offsets[-1] + 1) if offset not in filtered]
                due = offsets[-1] + 1
        elif name == "give back":
            found.give_back(last, 0)
            for one in last:
                due = one.messages[0].queue_offset
                started = min(started, due)
            last = []
        elif name == "seek":
            found.seek(A, number)
            at = due = started = number
            last = []
        else:
            before, at = at, max(0, at + number)
            found.moved(A, before, at)
            if at <= before:
                due = started = at
                last = []
            else:
                filtered = filtered | set(range(before, at))
        position = found.positions().get(A, 0)
        finished = found.finished().get(A, 0)
        assert not [offset for offset in range(due, position) if offset not in filtered]
        assert not [offset for offset in range(started, finished) if offset not in filtered]
        assert finished <= position
