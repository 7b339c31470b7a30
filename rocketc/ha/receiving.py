"""One connection of a slave to a master: where it starts, what it compares, what it reports and when it gives up.

No socket, no clock: times are arguments, in seconds.
Source: RocketMQ DefaultHAClient. It starts at its own end and compares only the offset of each header. This module also
compares bytes, because the log of another master may fit by its offsets.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketc.errors import ConnectionLostError, ReplicaError
from rocketc.ha.protocol import TransferDecoder, encode_report
from rocketc.ha.replica_log import ReplicaLog, message_before, record_start

OVERLAP_BYTES = 1 << 20  # how much of our log is compared with the master's, at most
_FIRST_BYTE = b"\0"  # of each log: the high byte of a size below 16 MiB


class Difference(Exception):
    """The master has another log.

    phy_offset  where the first record begins that differs, among those that were compared
    is_first    True: no record before it differs. A message before it was compared, and is the same; or there is none
    """

    def __init__(self, phy_offset: int, is_first: bool) -> None:
        super().__init__(phy_offset, is_first)
        self.phy_offset, self.is_first = phy_offset, is_first

    @classmethod
    def at(cls, log: ReplicaLog, compared_from: int, phy_offset: int) -> Difference:
        """Return it for the first byte that differs among those that were compared."""
        record = record_start(log, phy_offset)
        message = message_before(log, record)
        return cls(record, message is None or max(message, 1) >= compared_from)

    def error(self) -> ReplicaError:
        """Return the error for people."""
        at = self.phy_offset
        text = f"the master has another log: it differs from ours from the record at the physical offset {at} on"
        return ReplicaError(text if self.is_first else f"{text}; the master does not send its log before that", at)


class Start(NamedTuple):
    """Where a connection starts.

    report  the first report. 0: the master begins at its last file
    end     the end of our log. The bytes from `report` up to it are compared, as far as they can be read
    lead    what comes before the first byte of the master: byte 0, if the log is copied from its beginning
    asked   True: the caller named the start, so the master should have it
    """

    report: int
    end: int
    lead: bytes = b""
    asked: bool = False


def choose_start(log: ReplicaLog, from_start: int | None = None, most: int = OVERLAP_BYTES) -> Start:
    """Return where to start.

    from_start  physical offset for an empty log; None: at the master's last file. 0 can't be reported, because it means
                the last file: the report is 1, and byte 0 is added
    most        bytes to compare at most; all of them are in the last file that has any

    >>> from types import SimpleNamespace
    >>> sizes = SimpleNamespace(mapped_file_size_commit_log=100)
    >>> choose_start(SimpleNamespace(config=sizes, min_phy_offset=0, max_phy_offset=5), most=2)
    Start(report=3, end=5, lead=b'', asked=False)
    """
    end = log.max_phy_offset
    if end == 0:
        if from_start is None:
            return Start(0, 0)
        return Start(max(from_start, 1), 0, lead=b"" if from_start else _FIRST_BYTE, asked=True)
    last = end - 1 - (end - 1) % log.config.mapped_file_size_commit_log
    return Start(min(max(log.min_phy_offset, end - most, last, 1), end), end)


def earlier_start(log: ReplicaLog, phy_offset: int) -> Start:
    """Return where to start to compare from a physical offset on, or from the record that it is in.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     _ = store.put_many("orders", [b"one", b"two"])  # 100 bytes each
    ...     earlier_start(store, 150)
    Start(report=100, end=200, lead=b'', asked=False)
    """
    return Start(max(record_start(log, max(phy_offset, log.min_phy_offset)), 1), log.max_phy_offset)


class Receiver:
    """The state of one connection of a slave.

    start         see choose_start()
    log           its bytes are compared with the master's
    now           when the connection was made
    acknowledge   True: report the end of our log. False: report the start again and again; then no message counts as
                  replicated because of us
    heartbeat     seconds after which the last report is sent again
    housekeeping  seconds without a byte of the master after which the connection is dead

    A transport reads into room(), then calls filled(). Append the bytes of block(), then call appended(). Afterwards
    send report(). At the time next_time() call report() and check().

    >>> from rocketc.ha.protocol import encode_header
    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(min_phy_offset=0, read_log=lambda at, most: b"ab"[at - 100 :][:most])
    >>> connection = Receiver(Start(100, 102), log, now=0.0)
    >>> connection.report(0.0)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00d'
    >>> data = encode_header(100, 4) + b"abcd"
    >>> connection.room()[:len(data)] = data
    >>> connection.filled(len(data), 0.1)
    >>> [(at, bytes(data)) for at, data in [connection.block()]]
    [(102, b'cd')]
    >>> connection.appended(104)
    >>> connection.report(0.1)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00h'
    """

    __slots__ = (
        "_acknowledge",
        "_heartbeat",
        "_housekeeping",
        "_last_data",
        "_last_read",
        "_last_report",
        "_last_sent",
        "_lead",
        "_log",
        "_position",
        "_start",
        "_transfers",
        "is_idle",
        "received_bytes",
    )

    def __init__(
        self,
        start: Start,
        log: ReplicaLog,
        now: float,
        *,
        acknowledge: bool = True,
        heartbeat: float = 5.0,
        housekeeping: float = 20.0,
    ) -> None:
        self._start, self._log, self._lead, self._acknowledge = start, log, start.lead, acknowledge
        self._heartbeat, self._housekeeping = heartbeat, housekeeping
        self._transfers = TransferDecoder(start.report or None)
        self._position = start.report  # what an acknowledging slave reports
        self._last_report: int | None = None
        self._last_sent = self._last_read = self._last_data = now
        self.received_bytes = 0  # of the log
        self.is_idle = False  # the last thing that came is a heartbeat: there is nothing more

    @property
    def next_offset(self) -> int | None:
        """Physical offset of the next byte of the master's log; None if it is not known yet."""
        return self._transfers.next_offset

    @property
    def is_ahead(self) -> bool:
        """Whether we wait for bytes that the master must have: those that are compared, or the first ones."""
        received = self._start.report + self.received_bytes
        return received < self._start.end or (self._start.asked and self.received_bytes == 0)

    def room(self) -> memoryview:
        """Return where the next bytes go. Raises FrameError if a record of the master does not end."""
        return self._transfers.room()

    def filled(self, count: int, now: float) -> None:
        """Parse the next `count` bytes of room().

        Raises FrameError for bytes that are not a transfer of this log, and Difference for other bytes than ours.
        """
        before, heartbeats = len(self._transfers.block), self._transfers.heartbeats
        self._last_read = now
        self._transfers.filled(count)
        more = len(self._transfers.block) - before
        if more > 0 or self._transfers.heartbeats > heartbeats:
            self.is_idle = more == 0
        if more > 0:
            self.received_bytes += more
            self._last_data = now
            if self.block_offset < self._start.end:
                self._compare()

    @property
    def block_offset(self) -> int:
        """Physical offset of the first byte that was not appended or compared; 0 if it is not known yet."""
        return self._transfers.block_offset or 0

    def _compare(self) -> None:
        """Remove from the block what our log has already."""
        at = self.block_offset
        theirs = bytes(self._transfers.block[: self._start.end - at])
        pos = max(self._log.min_phy_offset - at, 0)  # expired files are deleted meanwhile, too
        while pos < len(theirs) and (ours := self._log.read_log(at + pos, len(theirs) - pos)):
            if not theirs.startswith(ours, pos):
                pos += next(i for i, byte in enumerate(ours) if theirs[pos + i] != byte)
                raise Difference.at(self._log, self._start.report, at + pos)
            pos += len(ours)
        self._transfers.take(len(theirs))
        if at + len(theirs) == self._start.end:
            self._position = self._start.end

    def block(self) -> tuple[int, memoryview | bytes] | None:
        """Return the bytes to append, with the physical offset of the first one; None if there are none.

        They are valid until the next call of room().
        """
        data = self._transfers.block
        if not data:
            return None
        if self._lead:
            return 0, self._lead + bytes(data)
        return self.block_offset, data

    def appended(self, end: int) -> None:
        """The bytes of block() were appended up to this physical offset."""
        if end > self.block_offset:
            self._transfers.take(end - self.block_offset)
            self._lead = b""
            self._position = end

    def report(self, now: float) -> bytes | None:
        """Return the report to send now; None if none is due: nothing is new, and it is too early for a heartbeat."""
        report = self._position if self._acknowledge else self._start.report
        if report == self._last_report and now < self._last_sent + self._heartbeat:
            return None
        self._last_report, self._last_sent = report, now
        return encode_report(report)

    def next_time(self) -> float:
        """Return when to call report() and check() at the latest."""
        silent = (self._last_data if self.is_ahead else self._last_read) + self._housekeeping
        return min(self._last_sent + self._heartbeat, self._last_read + self._housekeeping, silent)

    def check(self, now: float) -> None:
        """Raise an error if the master is silent for too long.

        Raises ConnectionLostError if it sends nothing. Raises ReplicaError if it sends only heartbeats while we are
        ahead of it, or while it does not have the start that the caller asked for.
        """
        if now >= self._last_read + self._housekeeping:
            raise ConnectionLostError(f"the master sent nothing for {self._housekeeping:g} s")
        if self.is_ahead and now >= self._last_data + self._housekeeping:
            raise self.misfit()

    def misfit(self, closes: bool = False) -> ReplicaError:
        """Return the error for a master that does not have what it must have. closes: it closes each connection."""
        at = self._start.report + self.received_bytes
        what = f"the master sends no bytes of its log from the physical offset {at} on"
        if closes:
            what = f"the master closes each connection, and sends no bytes of its log from the physical offset {at} on"
        why = "it is behind us or has another log, or it has deleted this part"
        if self._start.asked:
            why = "it has deleted this part, or its log ends before it"
        return ReplicaError(f"{what}: {why}", at, "silent")

    def resumed(self, now: float) -> None:
        """We read again after a pause of our own: the master's time begins now."""
        self._last_read = self._last_data = now
