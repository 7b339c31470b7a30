"""One slave at its master: what it reported, which bytes of the log come next, what is due when. No socket, no clock.

Source: RocketMQ DefaultHAConnection, FlowMonitor.
"""

from __future__ import annotations

from rocketc.errors import FrameError
from rocketc.ha.protocol import TRANSFER_MOST, ReportDecoder, encode_header

BATCH_BYTES = 32 << 10  # haTransferBatchSize
HEARTBEAT = 5.0  # seconds: haSendHeartbeatInterval
HOUSEKEEPING = 20.0  # seconds: haHousekeepingInterval


class Sending:
    """The state of one slave's connection at the master.

    now           time of the connection; every time is in seconds, by the same clock
    batch         bytes of a transfer at most (haTransferBatchSize)
    heartbeat     seconds without a transfer, after which a heartbeat is due
    housekeeping  seconds without a byte of the slave, after which it is dead
    rate          bytes of the log a second at most (maxHaTransferByteInSecond); None: as many as the slave reads

    >>> sending = Sending(0.0)
    >>> sending.received(bytes([0, 0, 0, 0, 0, 0, 0, 7]), 0.1, log_end=10, file_size=1024)
    7
    >>> frames = sending.transfers(memoryview(b"abc"), 0.2)
    >>> b"".join(frames).hex(), sending.next_offset
    ('000000000000000700000003616263', 10)
    """

    __slots__ = (
        "_batch", "_heartbeat", "_housekeeping", "_last_read", "_last_write", "_rate", "_reports", "_second", "_sent",
        "_sent_before", "first_offset", "next_offset", "transferred",
    )  # fmt: skip

    def __init__(
        self,
        now: float,
        *,
        batch: int = BATCH_BYTES,
        heartbeat: float = HEARTBEAT,
        housekeeping: float = HOUSEKEEPING,
        rate: int | None = None,
    ) -> None:
        self.configure(batch=batch, heartbeat=heartbeat, housekeeping=housekeeping, rate=rate)
        self._reports = ReportDecoder()
        self._last_read = self._last_write = now
        self._second = int(now)
        self._sent = self._sent_before = 0  # bytes of the log in this second, and in the one before
        self.first_offset: int | None = None  # of the first transfer
        self.next_offset: int | None = None  # of the next one; None: the slave has not reported yet
        self.transferred = 0  # bytes of the log

    def configure(self, *, batch: int, heartbeat: float, housekeeping: float, rate: int | None) -> None:
        """Take other settings from now on."""
        self._batch = max(1, min(batch, TRANSFER_MOST))
        self._heartbeat, self._housekeeping, self._rate = heartbeat, housekeeping, rate

    def received(self, data: bytes, now: float, *, log_end: int, file_size: int) -> int | None:
        """Take bytes of the slave. Return the physical offset that it has acknowledged; None: no report has ended.

        log_end    end of the master's log
        file_size  of its files. A slave with an empty log gets the log from the start of the last file on
        Raises FrameError for an offset that the slave can't have: then it has another log, or it is not a slave.
        """
        reported = self._reports.receive(data)
        if reported is None:
            if self.first_offset is not None:
                self._last_read = now
            return None  # before its first report, bytes do not keep a connection alive
        self._last_read = now
        if self.next_offset is None:
            if reported > log_end:
                raise FrameError(f"a slave reports the physical offset {reported}; the log ends at {log_end}")
            start = reported if reported > 0 else log_end - log_end % file_size
            self.first_offset = self.next_offset = start
        elif reported > self.next_offset:
            raise FrameError(f"a slave reports the physical offset {reported}; it was sent {self.next_offset}")
        return reported

    def budget(self, now: float, most: int) -> int:
        """Return how many bytes of the log may be sent now, `most` at most."""
        if self._rate is None:
            return most
        self._count(now, 0)
        return max(0, min(most, self._rate - self._sent))

    def _count(self, now: float, size: int) -> None:
        if (second := int(now)) != self._second:
            self._sent_before = self._sent if second == self._second + 1 else 0
            self._second, self._sent = second, 0
        self._sent += size

    def sent_in_second(self, now: float) -> int:
        """Return how many bytes of the log were sent in the last whole second."""
        self._count(now, 0)
        return self._sent_before

    def transfers(self, data: memoryview, now: float) -> list[bytes | memoryview]:
        """Return the buffers that carry the next bytes of the log, without a copy of them: headers and pieces.

        data  the bytes at next_offset, of one file; within budget()
        """
        assert self.next_offset is not None
        out: list[bytes | memoryview] = []
        at, batch, size = self.next_offset, self._batch, len(data)
        for start in range(0, size, batch):
            piece = data[start : start + batch] if size > batch else data
            out.append(encode_header(at + start, len(piece)))
            out.append(piece)
        self.next_offset = at + size
        self.transferred += size
        self._count(now, size)
        self._last_write = now
        return out

    def heartbeat(self, now: float) -> bytes | None:
        """Return the heartbeat that is due now, or None."""
        if self.next_offset is None or now - self._last_write < self._heartbeat:
            return None
        self._last_write = now
        return encode_header(self.next_offset, 0)

    def is_dead(self, now: float) -> bool:
        """Whether the slave has been silent for too long."""
        return now - self._last_read >= self._housekeeping

    def next_time(self, now: float) -> float:
        """Return the time at which heartbeat() and is_dead() are to be asked again, after `now`."""
        due = self._last_read + self._housekeeping
        if self.next_offset is not None:
            due = min(due, self._last_write + self._heartbeat)
        return max(due, now + min(self._heartbeat, self._housekeeping) / 8)

    def next_second(self, now: float) -> float:
        """Return the time from which on budget() counts again from 0."""
        return float(int(now) + 1)
