"""The check of transactions: each step of a pass, and random histories against a model."""

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rocketc.broker.transaction_check import (
    OPS_MOST,
    TURN,
    Ask,
    CheckPass,
    GiveUp,
    NoHalf,
    Op,
    OpProgress,
    Ops,
    Pause,
    PutBack,
    ReadHalf,
    ReadOps,
    Rules,
)

RULES = Rules(timeout=6000, checks=15, reserved=72 * 3_600_000)
TIMES, IMMUNITY, FIRST = "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRAN_PREPARED_QUEUE_OFFSET"


class World:
    """A half queue, an op queue, and a clock. Answers the steps of a pass."""

    def __init__(self, now=1_000_000):
        self.now = now
        self.halves, self.ops = [], []
        self.half_offset = self.op_offset = 0
        self.first_half = 0  # the log no longer has earlier ones
        self.log = []  # (step, name of the half message, check times)
        self.refused = self.per_step = 0  # puts that the store refuses; ms that each step takes
        self.waiting = set()  # halves that are ended, without an op message
        self.steps = []

    def prepare(self, name, age=0, stored=None, **properties):
        """Add a half message that was born `age` ms ago; `stored` ms ago it was stored."""
        stored = self.now - (age if stored is None else stored)
        half = {"name": name, "born_timestamp": self.now - age, "store_timestamp": stored, "properties": properties}
        self.halves.append(SimpleNamespace(**half))
        return len(self.halves) - 1

    def mark(self, *halves, age=0):
        self.ops.append(Op(len(self.ops), self.now - age, list(halves)))

    def offset_of(self, half):
        """Copies may be equal: two passes of one ms store the same."""
        return next(offset for offset, each in enumerate(self.halves) if each is half)

    def run(self, rules=RULES):
        """One pass."""
        one = CheckPass(self.half_offset, self.op_offset, rules, lambda: self.now, self.waiting.__contains__)
        steps, answer, self.log, self.steps = one.steps(), None, [], []
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                break
            self.steps.append(step)
            assert len(self.steps) < 10_000, "endless"
            self.now += self.per_step
            answer = self.answer(step)
        self.half_offset, self.op_offset = one.half_offset, one.op_offset
        return [(type(step).__name__, *told) for step, *told in self.log]

    def pauses(self, seconds):
        return sum(isinstance(step, Pause) and step.seconds == seconds for step in self.steps)

    def answer(self, step):
        if isinstance(step, ReadOps):
            if step.offset > len(self.ops):
                return Ops([], len(self.ops), is_illegal=True)
            found = self.ops[step.offset : step.offset + OPS_MOST]
            return Ops(found, step.offset + len(found))
        if isinstance(step, ReadHalf):
            end = len(self.halves)
            if step.offset > end or step.offset < self.first_half:
                return NoHalf(end if step.offset > end else self.first_half, is_end=False)
            return self.halves[step.offset] if step.offset < end else NoHalf(end, is_end=True)
        if isinstance(step, Pause):
            self.now += int(step.seconds * 1000)
            return None
        if self.refused > 0:
            self.refused -= 1
            return False
        half = step.half
        self.log.append((step, half.name, step.times))
        if not isinstance(step, GiveUp):
            properties = {**half.properties, TIMES: str(step.times)}
            if isinstance(step, PutBack):
                properties.setdefault(FIRST, str(self.offset_of(half)))
            copy = {**vars(half), "store_timestamp": self.now, "properties": properties}
            self.halves.append(SimpleNamespace(**copy))
        return True


@pytest.fixture
def world():
    return World()


# one step after the other


def test_nothing_to_do(world):
    assert world.run() == [] and world.steps == [ReadOps(0), ReadHalf(0)]
    assert (world.half_offset, world.op_offset) == (0, 0)


def test_an_old_half_is_asked_for_and_moves_to_the_end(world):
    world.prepare("a", age=7000)
    assert world.run() == [("Ask", "a", 1)] and world.half_offset == 1
    assert world.halves[1].properties == {TIMES: "1"}
    world.now += 1
    assert world.run() == [("Ask", "a", 2)] and world.half_offset == 2


def test_a_pass_does_not_ask_for_its_own_copies(world):
    world.prepare("a", age=7000)
    world.prepare("b", age=7000)
    assert world.run() == [("Ask", "a", 1), ("Ask", "b", 1)] and world.half_offset == 2


@pytest.mark.parametrize(("age", "asked"), [(0, 0), (1, 0), (5999, 0), (6001, 1), (-1, 1), (-10_000, 1)])
def test_how_old_it_must_be(world, age, asked):
    world.prepare("a", age=age, stored=7000)
    world.prepare("b", age=9000)
    found = world.run()
    assert [name for _, name, _ in found] == (["a", "b"] if asked else []) and world.half_offset == 2 * asked


def test_exactly_as_old_as_the_timeout(world):
    """It is asked a moment later, in the same pass."""
    world.prepare("a", age=6000)
    assert world.run() == [("Ask", "a", 1)] and world.pauses(1.0) == 1


def test_an_ended_half_is_passed_over_unread(world):
    for name in "abc":
        world.prepare(name, age=7000)
    world.mark(1, 0)
    assert world.run() == [("Ask", "c", 1)]
    assert next(step for step in world.steps if isinstance(step, ReadHalf)) == ReadHalf(2)
    assert (world.half_offset, world.op_offset) == (3, 1)


def test_a_young_half_ends_the_pass_before_an_ended_one(world):
    world.prepare("a", age=100)
    world.prepare("b", age=7000)
    world.mark(1)
    assert world.run() == [] and (world.half_offset, world.op_offset) == (0, 0)


def test_op_messages_are_done_in_their_order(world):
    for name in "abcd":
        world.prepare(name, age=7000)
    world.prepare("young")
    world.mark(0)
    world.mark(1, 4)  # the young one, too
    world.mark(2)
    assert world.run() == [("Ask", "d", 1)]
    assert (world.half_offset, world.op_offset) == (5, 3)  # it was marked: passed over
    world.prepare("e")  # 6
    world.mark(6)
    world.half_offset = 5
    assert world.run() == [] and world.half_offset == 5 and world.op_offset == 3


def test_an_op_message_of_earlier_halves_is_done(world):
    for name in "ab":
        world.prepare(name, age=7000)
    world.half_offset = 1
    world.mark(0)
    world.mark()
    world.mark(0)
    assert world.run() == [("Ask", "b", 1)] and world.op_offset == 3


def test_all_marks_are_read_before_a_producer_is_asked(world):
    last = 40 * OPS_MOST
    for n in range(last):
        world.prepare(f"n{n}", age=7000)
        world.mark(last - 1 - n)
    assert world.run() == []
    assert (world.half_offset, world.op_offset) == (last, last)


def test_marks_that_arrive_during_a_pass(world):
    """The pass waits a second for marks that are on their way, then reads the op queue again."""
    world.prepare("a", age=7000)
    world.mark()
    answer = world.answer

    def late(step):
        if isinstance(step, Pause):
            world.mark(0)
        return answer(step)

    world.answer = late
    assert world.run() == [] and (world.half_offset, world.op_offset) == (1, 2)
    assert world.pauses(1.0) == 1


def test_an_end_without_an_op_message_yet(world):
    world.prepare("a", age=7000)
    world.waiting.add(0)
    assert world.run() == [] and world.half_offset == 1


def test_an_end_during_the_last_read(world):
    world.prepare("a", age=7000)
    answer = world.answer

    def late(step):
        if isinstance(step, ReadOps):
            world.waiting.add(0)
        return answer(step)

    world.answer = late
    assert world.run() == [] and world.half_offset == 1


def test_a_queue_of_op_messages_that_grows_for_longer_than_the_timeout(world):
    """The last one was born long after the start of the pass: the half message is not ended by an earlier one."""
    world.prepare("a", age=7000)
    answer = world.answer

    def growing(step):
        if isinstance(step, ReadOps):
            world.now += 4000
            world.mark()
        return answer(step)

    world.answer = growing
    assert world.run() == [("Ask", "a", 1)]


# giving up


@pytest.mark.parametrize(
    ("times", "found"),
    [("14", ("Ask", "a", 15)), ("15", ("GiveUp", "a", 15)), ("99", ("GiveUp", "a", 99)), ("x", ("Ask", "a", 1))],
)
def test_after_the_last_check_it_is_given_up(world, times, found):
    world.prepare("a", age=7000, **{TIMES: times})
    assert world.run() == [found] and world.half_offset == 1


def test_the_producer_has_time_to_answer_the_last_check(world):
    world.prepare("a", age=7000, **{TIMES: "14"})
    assert world.run() == [("Ask", "a", 15)]
    world.now += 1
    assert world.run() == [("GiveUp", "a", 15)] and world.half_offset == 2


@pytest.mark.parametrize(("hours", "kind"), [(71, "Ask"), (73, "GiveUp")])
def test_a_half_that_is_too_old_is_given_up(world, hours, kind):
    world.prepare("a", age=hours * 3_600_000)
    assert world.run() == [(kind, "a", 1)] and len(world.halves) == 1 + (kind == "Ask")


def test_giving_up_comes_before_the_immunity(world):
    world.prepare("a", age=100, stored=5000, **{TIMES: "15", IMMUNITY: "600"})
    assert world.run() == [("GiveUp", "a", 15)]


# immunity


@pytest.mark.parametrize(
    ("text", "age", "kind"),
    [
        ("60", 59_000, "PutBack"), ("60", 61_000, "Ask"), ("1", 500, "PutBack"), ("1", 1500, "Ask"), ("0", 100, "Ask"),
        ("x", 5000, "PutBack"), ("x", 7000, "Ask"), ("-1", 5000, "PutBack"), ("100.5", 7000, "Ask"),
        ("60", -5000, "PutBack"), ("-5", 100, "Ask"),
    ],
)  # fmt: skip
def test_the_time_in_which_the_producer_is_not_asked(world, text, age, kind):
    world.prepare("a", age=age, stored=100_000, **{IMMUNITY: text})
    assert world.run() == [(kind, "a", 1)] and world.half_offset == 1


def test_an_immune_half_does_not_end_the_pass(world):
    world.prepare("a", age=100, stored=9000, **{IMMUNITY: "60"})
    world.prepare("b", age=7000)
    assert world.run() == [("PutBack", "a", 1), ("Ask", "b", 1)]


def test_the_end_of_an_immune_half_names_its_first_copy(world):
    world.prepare("a", age=100, stored=9000, **{IMMUNITY: "600"})
    assert world.run() == [("PutBack", "a", 1)] and world.halves[1].properties[FIRST] == "0"
    world.now += 30_000
    assert world.run() == [("PutBack", "a", 2)] and world.halves[2].properties[FIRST] == "0"
    world.now += 30_000
    world.mark(0)
    assert world.run() == [] and (world.half_offset, world.op_offset) == (3, 1)


def test_the_same_for_an_end_without_an_op_message_and_after_the_immunity(world):
    world.prepare("a", age=100, stored=9000, **{IMMUNITY: "60"})
    world.run()
    world.now += 70_000
    world.waiting.add(0)
    assert world.run() == [] and world.half_offset == 2


# offsets that lead nowhere


def test_half_messages_that_the_log_no_longer_has(world):
    for name in "abcd":
        world.prepare(name, age=7000)
    world.mark(1)
    world.first_half = 2
    assert world.run() == [("Ask", "c", 1), ("Ask", "d", 1)]
    assert (world.half_offset, world.op_offset) == (4, 1)


def test_a_half_offset_after_the_end(world):
    world.prepare("a", age=7000)
    world.half_offset = 9
    assert world.run() == [] and world.half_offset == 1


def test_a_second_miss_ends_the_pass(world):
    world.prepare("a", age=7000)
    world.answer = lambda step: Ops([], 0) if isinstance(step, ReadOps) else NoHalf(step.offset + 1, is_end=False)
    assert world.run() == [] and len(world.steps) == 3 and world.half_offset == 1


def test_a_wrong_op_offset_is_corrected_and_ends_the_pass(world):
    world.prepare("a", age=7000)
    world.op_offset = 5
    assert world.run() == [] and (world.half_offset, world.op_offset) == (0, 0)
    assert world.run() == [("Ask", "a", 1)]


# the store


@pytest.mark.parametrize("properties", [{}, {TIMES: "15"}, {IMMUNITY: "60"}])
def test_a_refused_copy_is_tried_again(world, properties):
    world.prepare("a", age=7000, **properties)
    world.refused = 3
    assert len(world.run()) == 1 and world.half_offset == 1 and world.pauses(1.0) >= 3


def test_a_store_that_refuses_everything(world):
    world.prepare("a", age=7000)
    world.refused = 10_000
    began = world.now
    assert world.run() == [] and world.half_offset == 0
    assert 60_000 < world.now - began < 62_000


def test_a_pass_ends_after_a_minute(world):
    for n in range(100):
        world.prepare(f"n{n}", age=7000)
    world.per_step = 1000
    found = world.run()
    assert 10 < len(found) < 40 and world.half_offset == len(found)
    again = world.run()
    assert again[0][1] == f"n{len(found)}"


def test_other_work_has_its_turn(world):
    for n in range(3 * TURN):
        world.prepare(f"n{n}", age=7000)
    world.mark(*range(3 * TURN))
    assert world.run() == [] and world.pauses(0.0) == 3


# op messages


def test_marks_of_any_size():
    ops = OpProgress(0)
    ops.add(Ops([Op(0, 0, [10**17, 5, 5, 8191, 8192])], 1))
    assert [ops.is_marked(half) for half in (4, 5, 8191, 8192, 8193, 10**17)] == [False, True, True, True, False, True]
    assert (ops.done(10**17), ops.done(10**17 + 1)) == (0, 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), max_size=5), max_size=20), st.lists(st.integers(0, 45), max_size=6))
def test_an_op_message_is_done_after_all_its_halves(marks, looks):
    ops = OpProgress(0)
    ops.add(Ops([Op(n, 0, halves) for n, halves in enumerate(marks)], len(marks)))
    for half in sorted(looks):
        done = ops.done(half)
        assert all(max(halves, default=-1) < half for halves in marks[:done])
        if done < len(marks):  # and it moves as far as it can, but for messages that an earlier one covers
            assert max((max(halves, default=-1) for halves in marks[: done + 1]), default=-1) >= half
    for half in range(41):
        assert ops.is_marked(half) == any(half in halves for halves in marks)


# random histories


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("prepare"), st.sampled_from([None, "1", "20", "x"])),
        st.tuples(st.just("wait"), st.sampled_from([1, 500, 3000, 7000, 30_000])),
        st.tuples(st.just("end"), st.integers(0, 1000)),  # by the producer, of its first copy
        st.tuples(st.just("answer"), st.integers(0, 1000)),  # to the latest check
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("check"), st.sampled_from([0, 0, 400])),  # ms that a step takes
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=60,
)


class History:
    """Transactions, and what must hold for them."""

    def __init__(self):
        self.world, self.rules = World(), Rules(timeout=6000, checks=4, reserved=10**9)
        self.born, self.named, self.ended, self.unmarked = {}, {}, {}, {}
        self.saved = (0, 0)
        self.done = set()  # transactions that were given up
        self.lost_marks = False

    def play(self, move, value):
        world = self.world
        names = sorted(self.named)
        if move == "prepare":
            name = f"t{len(self.born)}"
            self.born[name] = world.now
            self.named[name] = [world.prepare(name, **({} if value is None else {IMMUNITY: value}))]
        elif move == "wait":
            world.now += value
        elif move in ("end", "answer") and names:
            name = names[value % len(names)]
            offset = self.named[name][0 if move == "end" else -1]
            self.ended.setdefault(name, []).append(offset)
            self.unmarked[offset] = None
            world.waiting.add(offset)
        elif move == "flush":
            self.flush()
        elif move == "check":
            self.check(value)
        elif move == "restart":  # a kill loses the marks in memory, and perhaps the latest offsets
            self.unmarked.clear()
            world.waiting.clear()
            self.lost_marks = True
            if value:
                world.half_offset, world.op_offset = self.saved

    def flush(self):
        if self.unmarked:
            self.world.mark(*self.unmarked)
            self.unmarked.clear()
            self.world.waiting.clear()

    def check(self, per_step):
        world = self.world
        self.saved = world.half_offset, world.op_offset
        world.per_step = per_step
        began, first = world.now, len(world.halves)
        marked = {half for op in world.ops for half in op.halves} | set(world.waiting)
        before = world.half_offset
        world.run(self.rules)
        for step, name, times in world.log:
            half = step.half
            assert 1 <= times <= self.rules.checks and half.store_timestamp < began
            if isinstance(step, Ask):
                limit = half.properties.get(IMMUNITY)
                seconds = {None: 6, "x": 6}.get(limit) or int(limit)
                assert world.now - self.born[name] > 1000 * seconds
                assert world.offset_of(half) not in marked  # an ended one is not asked for
            if isinstance(step, GiveUp):
                self.done.add(name)
        for offset in range(first, len(world.halves)):
            self.named[world.halves[offset].name].append(offset)
        assert before <= world.half_offset <= len(world.halves)
        for op in world.ops[: world.op_offset]:
            assert all(half < world.half_offset for half in op.halves)

    def holds(self):
        """No half message is lost: what is not ended has a copy that the next passes will see, or was given up."""
        for name, offsets in self.named.items():
            if name not in self.ended and name not in self.done:
                assert offsets[-1] >= self.world.half_offset


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MOVES)
@example([("prepare", "1"), ("wait", 1), ("check", 0), ("restart", True), ("answer", 0), ("check", 0)])
def test_random_histories(moves):
    history = History()
    for move, value in moves:
        history.play(move, value)
        history.holds()
    history.flush()
    for _ in range(12):  # finally, each half message has its fate, and all op messages are done
        history.world.now += 60_000
        history.check(0)
        history.holds()
    world = history.world
    assert world.half_offset == len(world.halves) and world.op_offset == len(world.ops)
