"""How long bytes have waited: never said to be longer than it was, and close to it."""

import bisect

from hypothesis import given
from hypothesis import strategies as st

from rocketc.remoting._backlog import Backlog

STEP = 0.01


def test_a_stream_that_is_read_in_time():
    backlog = Backlog()
    assert backlog.since(0) == -1
    backlog.note(0, 1.0)
    assert backlog.since(1) == -1


def test_marks_that_are_close_together_are_left_out_but_for_the_newest():
    backlog = Backlog()
    backlog.note(10, 1.0)
    backlog.note(20, 1.0 + STEP / 4)
    backlog.note(30, 1.0 + STEP / 2)
    backlog.note(30, 4.0)  # no more bytes
    assert (backlog.since(10), backlog.since(20), backlog.since(30)) == (1.0, 1.0 + STEP / 2, 1.0 + STEP / 2)


def test_more_marks_than_there_is_room_for():
    """Every second one is kept, and they are taken at half the rate; after a pause, at the first rate again."""
    backlog = Backlog()
    for i in range(100):
        backlog.note(i, i * 1.5 * STEP)
    kept = []
    while (found := backlog.since(int(kept[-1] / (1.5 * STEP)) + 1 if kept else 0)) >= 0:
        kept.append(found)
    assert kept[0] == 0 and len(kept) <= 16 and kept[-1] > 80 * 1.5 * STEP
    backlog.note(200, 10.0)
    backlog.note(201, 10.0 + 1.5 * STEP)
    assert (backlog.since(200), backlog.since(201)) == (10.0, 10.0 + 1.5 * STEP)


@given(
    arrivals=st.lists(st.tuples(st.integers(1, 100), st.floats(0.001, 0.05)), min_size=1, max_size=60),
    reads=st.lists(st.tuples(st.integers(1, 150), st.floats(0.001, 0.05)), min_size=1, max_size=120),
)
def test_against_the_true_times(arrivals, reads):
    """Bytes arrive in pieces at known times, and are read in others. The time is never earlier than the true one."""
    ends, times, end, now = [], [], 0, 0.0
    for size, pause in arrivals:
        now += pause
        end += size
        ends.append(end)
        times.append(now)
    backlog, position, now, longest = Backlog(), 0, 0.0, 0.0
    for size, pause in reads:
        now += pause
        longest = max(longest, pause)
        there = bisect.bisect_right(times, now)
        if not there or ends[there - 1] == position:
            continue
        position = min(position + size, ends[there - 1])
        arrived = times[bisect.bisect_left(ends, position)]  # of the last byte that is read
        found = backlog.since(position)
        assert found == -1 or arrived <= found <= now
        backlog.note(ends[there - 1], now)
