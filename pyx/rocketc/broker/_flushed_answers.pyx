# cython: language_level=3
"""Answers that wait until the records of their sends are durable."""
from rocketc.remoting._connection cimport ConnectionCore

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.command import Command


class FlushedAnswers:
    """Answers of a fast path that wait for a flush.

    connection, count, answers  where they go, of how many requests, and the frames
    times                       RpcTimes, which count the sends
    counts                      pairs of a request code, and the number of its sends
    clock                       loop.time
    began                       its time when the sends arrived
    """

    __slots__ = ("_answers", "_began", "_clock", "_connection", "_count", "_counts", "_times")

    def __init__(self, connection, count, answers, times, counts, clock, began):
        self._connection, self._count, self._answers = connection, count, answers
        self._times, self._counts, self._clock, self._began = times, counts, clock, began

    def __call__(self, code):
        """Send the answers; another code than 0 replaces theirs."""
        answers = self._answers if code == 0 else with_code(self._answers, code)
        answer_later(self._connection, self._count, answers)
        seconds = self._clock() - self._began
        for request, count in self._counts:
            if count > 0:
                self._times.add(request, code, seconds, False, count)


cdef int answer_later(ConnectionCore connection, Py_ssize_t count, bytes answers) except -1:
    """Answer requests that a fast path counts as in flight."""
    return connection.answer(count, answers)


def with_code(bytes answers not None, int code):
    """Return frames of answers with another code.

    >>> from rocketc.remoting.command import Command
    >>> from rocketc.remoting._frames import FrameDecoder
    >>> [frame] = FrameDecoder().receive(with_code(Command(0, opaque=7).encode(), 10))
    >>> Command.decode(*frame).code
    10
    """
    out = []
    for frame in FrameDecoder().receive(answers):
        command = Command.decode(*frame)
        command.code = code
        out.append(command.encode())
    return b"".join(out)
