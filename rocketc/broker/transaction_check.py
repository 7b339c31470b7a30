"""The check of transactions that are not ended: which half messages are done, given up, or asked for.

No clock but by argument, no I/O: steps() yields what it needs, and gets the answer by send().
Source: RocketMQ TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rocketc.broker import names
from rocketc.broker._ended_halves import EndedHalves
from rocketc.broker.half_messages import number_in

OPS_MOST = 32  # op messages of one read
PASS_MS = 60_000
WAIT_SECONDS = 1.0  # for op marks that are on their way, and after a refused put
TURN = 512  # half messages that are passed over without a turn of the loop


class Half(Protocol):
    """What the check needs of a half message."""

    @property
    def store_timestamp(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Rules:
    """The settings of a check.

    timeout      ms after which a producer is asked: transactionTimeOut
    checks       how often it is asked: transactionCheckMax
    reserved     ms after which a half message is given up: fileReservedTime
    """

    timeout: int
    checks: int
    reserved: int


# What a check needs


class ReadOps(NamedTuple):
    """Read op messages, OPS_MOST at most. The answer: Ops."""

    offset: int


class ReadHalf(NamedTuple):
    """Read a half message. The answer: a Half, or NoHalf."""

    offset: int


# The answer to PutBack, Ask and GiveUp: whether the half message is done. It is done, too, if its transaction is
# decided: then no copy is stored, and no producer is asked.


class PutBack(NamedTuple):
    """Store a copy of a half message at the end, whose producer is not asked yet."""

    half: Any
    times: int


class Ask(NamedTuple):
    """Store a copy of a half message at the end, then ask its producer."""

    half: Any
    times: int


class GiveUp(NamedTuple):
    """Store a copy of a half message in the topic of those that are given up."""

    half: Any
    times: int


class Pause(NamedTuple):
    """Wait; the answer does not matter."""

    seconds: float


Step = ReadOps | ReadHalf | PutBack | Ask | GiveUp | Pause


class Op(NamedTuple):
    """An op message.

    halves  offsets of half messages that are ended
    """

    offset: int
    born_timestamp: int
    halves: Sequence[int]


class Ops(NamedTuple):
    """The answer to ReadOps.

    next_offset  where the next read begins
    is_illegal   the offset is not one of the queue; next_offset is
    """

    found: Sequence[Op]
    next_offset: int
    is_illegal: bool = False


class NoHalf(NamedTuple):
    """The answer to ReadHalf if there is none.

    next_offset  of a half message that there may be
    is_end       the queue ends at the offset
    """

    next_offset: int
    is_end: bool


class OpProgress:
    """The op messages that a pass has read: which half messages they mark, and up to where they are done.

    >>> ops = OpProgress(0)
    >>> ops.add(Ops([Op(0, 0, [10, 12]), Op(1, 0, [11]), Op(2, 0, [15])], next_offset=3))
    >>> ops.is_marked(11), ops.is_marked(13), [ops.done(half) for half in (10, 12, 13, 16)]
    (True, False, [0, 0, 2, 3])
    """

    def __init__(self, offset: int) -> None:
        self.next_offset = offset  # of the next read
        self._ended = EndedHalves()
        self._read: deque[tuple[int, int]] = deque()  # op message, and the last half message of it and those before

    def add(self, ops: Ops) -> None:
        """Note what a read has found."""
        self.next_offset = ops.next_offset
        for op in ops.found:
            for half in op.halves:
                self._ended.add(0, half)
            last = max(op.halves, default=-1)
            if not self._read or last > self._read[-1][1]:
                self._read.append((op.offset, last))

    def is_marked(self, half: int) -> bool:
        """Whether a half message is marked as ended."""
        return self._ended.has(0, half)

    def done(self, half: int) -> int:
        """Return the first op message that is not done, if all half messages before `half` are."""
        while self._read and self._read[0][1] < half:
            self._read.popleft()
        return self._read[0][0] if self._read else self.next_offset


class CheckPass:
    """One look at a half queue.

    half_offset, op_offset  where the last one ended
    clock      ms since the epoch
    is_ended   whether a half message is ended by a mark that no op message has yet
    """

    def __init__(
        self,
        half_offset: int,
        op_offset: int,
        rules: Rules,
        clock: Callable[[], int],
        is_ended: Callable[[int], bool] = lambda half: False,
    ) -> None:
        self._half, self._rules, self._clock, self._is_ended = half_offset, rules, clock, is_ended
        self._ops = OpProgress(op_offset)
        self._is_at_end = False  # of the op queue
        self._last_op: Op | None = None

    @property
    def half_offset(self) -> int:
        """The first half message that is not done: ended, copied to the end, or given up."""
        return self._half

    @property
    def op_offset(self) -> int:
        """The first op message that marks half messages that are not done."""
        return self._ops.done(self._half)

    def steps(self) -> Generator[Step, Any, None]:
        """Look at half messages until one is too young, or for a minute. Its driver answers each step."""
        began = self._clock()
        if not (yield from self._read_ops()):
            return
        misses = passed = 0
        while self._clock() - began <= PASS_MS:
            if self._ops.is_marked(self._half) or self._is_ended(self._half):
                self._half += 1
                passed += 1
                if passed % TURN == 0:
                    yield Pause(0.0)
                continue
            found = yield ReadHalf(self._half)
            if isinstance(found, NoHalf):
                misses += 1
                if found.is_end or misses > 1:
                    return
                self._half = found.next_offset
                continue
            if not (yield from self._look(found, began)):
                return

    def _read_ops(self) -> Generator[Step, Any, bool]:
        """Read more op messages. False: the offset was wrong, and is corrected."""
        found: Ops = yield ReadOps(self._ops.next_offset)
        self._ops.add(found)
        self._is_at_end = not found.found
        if found.found:
            self._last_op = found.found[-1]
        return not found.is_illegal

    def _look(self, half: Half, began: int) -> Generator[Step, Any, bool]:
        """Look at a half message that is not marked yet. False: the pass ends."""
        if half.store_timestamp >= began:  # a copy of this pass: RocketMQ may give it up before its producer answers
            return False
        rules, properties = self._rules, half.properties
        times, age = number_in(properties.get(names.CHECK_TIMES), 0), self._clock() - half.born_timestamp
        is_over = times >= rules.checks
        times += not is_over
        if is_over or age > rules.reserved:
            yield from self._done(GiveUp(half, times))
            return True
        immunity, text = rules.timeout, properties.get(names.CHECK_IMMUNITY)
        if text is not None:
            seconds = number_in(text, -1)
            immunity = rules.timeout if seconds == -1 else 1000 * seconds
            first = number_in(properties.get(names.PREPARED_QUEUE_OFFSET), -1)
            if first >= 0 and (self._ops.is_marked(first) or self._is_ended(first)):
                self._half += 1
                return True
            if age < immunity:
                yield from self._done(PutBack(half, times))
                return True
        elif 0 <= age < immunity:
            return False
        if not self._is_needed(age, immunity, began):
            if not (yield from self._read_ops()):
                return False
            if self._is_at_end:
                yield Pause(WAIT_SECONDS)
            return True
        if self._is_at_end:  # again: it may have been ended meanwhile
            if not (yield from self._read_ops()):
                return False
            if not self._is_at_end or self._is_ended(self._half):
                return True
        yield from self._done(Ask(half, times))
        return True

    def _is_needed(self, age: int, immunity: int, began: int) -> bool:
        """Whether a producer is asked now: it had its time, and all marks are read."""
        if self._is_at_end:
            return age > immunity or age < 0
        assert self._last_op is not None
        return self._last_op.born_timestamp - began > self._rules.timeout

    def _done(self, step: PutBack | Ask | GiveUp) -> Generator[Step, Any, None]:
        """Store a copy. If the store refuses it, wait a little: it is tried again."""
        if (yield step):
            self._half += 1
        else:
            yield Pause(WAIT_SECONDS)
