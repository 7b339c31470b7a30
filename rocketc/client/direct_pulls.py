"""DirectPulls: pulls of a scan over sockets of its own, for plain connections.

It is the fast way of a scan, and takes what brokers usually answer. TopicMerge takes everything.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Mapping

from rocketc.client._pull_queues import encode_template
from rocketc.client._pull_stream import PullStream
from rocketc.client.pull_request import PullRequest
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import MessageQueue
from rocketc.read.record_block import RecordBlock
from rocketc.remoting.addresses import split_address

_log = logging.getLogger("rocketc.client")

QUEUES_MOST = 256  # of one scan; with more of them, the answers that wait would need too much memory
_FOREVER = (1 << 63) - 1
_OFFSET, _MOST, _OPAQUE = 7_777_777_777_777_777_777, 1_987_654_321, 1_876_543_210  # numbers that templates replace


class DirectPulls:
    """Reads ranges of queues in the order of TopicMerge, in the thread of the caller.

    request  the pulls
    ranges   of at most QUEUES_MOST queues
    address  returns the address of the broker of a queue
    until    ms since 1970: a queue ends at its first message that was stored then or later; None: at its range
    stops_at_gaps  stop where messages are missing, unless the broker selects
    timeout  seconds without an answer
    check    called some times a second while next() waits; what it raises ends next()
    Raises OSError if a broker is not reached.
    """

    def __init__(
        self,
        request: PullRequest,
        ranges: Mapping[MessageQueue, QueueRange],
        address: Callable[[MessageQueue], str],
        *,
        until: int | None = None,
        stops_at_gaps: bool = False,
        timeout: float,
        check: Callable[[], object] | None = None,
    ) -> None:
        self._ranges = dict(ranges)
        queues, addresses = list(ranges), {queue.broker_name: address(queue) for queue in ranges}
        self._brokers = tuple(addresses)
        numbers = {name: number for number, name in enumerate(addresses)}

        def encode(number: int, opaque: int, offset: int, most: int) -> bytes:
            return request.command(queues[number], offset, most, opaque=opaque).encode()

        asked = [
            (numbers[queue.broker_name], range.begin, range.end, _template(request, queue))
            for queue, range in ranges.items()
        ]
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(_connected(one, timeout)) for one in addresses.values()]
            self._stream = PullStream(
                [one.fileno() for one in sockets],
                asked,
                until=_FOREVER if until is None else min(until, _FOREVER),
                timeout=int(timeout * 1000),
                is_filtered=request.is_filtered,
                stops_at_gaps=stops_at_gaps,
                check=check,
                encode=encode if request.is_signed else None,
            )
            for one in sockets:
                one.detach()  # the stream closes them

    def next(self) -> RecordBlock:
        """Return the next block of records; nothing at the end of what this way can read: see left()."""
        block = self._stream.next()
        if not block and self._stream.why is not None:
            _log.debug("the scan continues without direct pulls for a moment: %s", self._stream.why)
        return RecordBlock(block, self._brokers, self._stream.runs())

    def left(self) -> dict[MessageQueue, QueueRange]:
        """Return the ranges whose records were not returned yet."""
        positions = self._stream.positions()
        left = {
            queue: QueueRange(position, range.end)
            for (queue, range), position in zip(self._ranges.items(), positions, strict=True)
        }
        return left if any(range.begin < range.end for range in left.values()) else {}

    def close(self) -> None:
        """Close the sockets."""
        self._stream.close()


def _connected(address: str, timeout: float) -> socket.socket:
    one = socket.create_connection(split_address(address), timeout)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def _template(request: PullRequest, queue: MessageQueue) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    frame = request.unsigned(queue, _OFFSET, _MOST, opaque=_OPAQUE).encode()
    return encode_template(frame, *(str(number).encode() for number in (_OFFSET, _MOST, _OPAQUE)))
