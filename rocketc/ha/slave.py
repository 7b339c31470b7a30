"""A slave: it copies the log of a master into a store, over one connection after the other.

Source: RocketMQ DefaultHAClient.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from rocketc.errors import (
    ConnectionLostError,
    CorruptRecordError,
    FrameError,
    PageCacheBusyError,
    PhyOffsetError,
    ReplicaError,
    StoreFullError,
    StoreIOError,
)
from rocketc.ha.receiving import OVERLAP_BYTES, Difference, Receiver, choose_start, earlier_start
from rocketc.ha.replica_log import ReplicaLog
from rocketc.remoting.channel import backoff
from rocketc.remoting.socket_faults import connection_fault

_log = logging.getLogger("rocketc.ha")

Address = tuple[str, int]
Connect = Callable[[Callable[[], Any]], Awaitable[Any]]
Connector = Callable[[str, int], Connect]

_CONNECT_SECONDS = 5.0  # for one attempt
_PAUSE_MOST = 5.0  # seconds between attempts, and between appends to a full disk
_BUSY_SECONDS = 0.02  # before the next append, if the page cache is busy
_RATE_STEP = 0.1  # seconds; with a rate limit, one read takes at most the bytes of this time
_FURTHER = 8  # how many times further back each comparison begins, while the first difference is searched
_SHORTEST = 0.005  # seconds; a shorter pause of reading is not worth a timer
_HEAD = struct.Struct(">ii")  # size and magic number of a record
_LARGEST = 16 << 20  # bytes; no record is larger
_SIZE = "mapped_file_size_commit_log must be the master's mappedFileSizeCommitLog"


class ReplicaStore(ReplicaLog, Protocol):
    """What a slave needs of a store: a MessageStore has it."""

    def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
        """Append whole records, see MessageStore.append_raw()."""


class Slave:
    """Copies the log of a master into a store. Create it on the loop's thread; run() until it is canceled.

    store         a MessageStore that only this slave appends to
    master        host and port of the master's HA service; None: wait for change_master()
    acknowledge   True: report what the store has, as a slave of RocketMQ. False: report the start of each connection
                  again and again; the master then counts no message as replicated because of this slave
    from_start    physical offset at which an empty store begins; None: at the master's last file
    heartbeat     seconds between reports without progress
    housekeeping  seconds without a byte of the master, after which the connection is made again
    settle        seconds before a start may be reported without `acknowledge`, after the bytes before it came: the
                  producers of these messages must not wait for a slave any more
    chance        random numbers for the pauses between attempts
    connect       returns how to connect to (host, port); None: TCP
    rate_limit    bytes per second; None: no limit

    state           "waiting" (for an address, or between attempts), "connecting" or "transferring"
    connected       whether there is a connection
    connections     how many connections there were
    position        end of the store's log
    is_matched      whether the master has sent what is compared, over any connection. It may be behind us before that
    received_bytes  bytes of the log that were received, with those that were only compared
    last_error      why the last connection or attempt ended, or why nothing is appended now; None: all is well
    last_read, last_write  loop.time() of the last bytes from and to the master; None: there were none
    """

    def __init__(
        self,
        store: ReplicaStore,
        master: Address | None,
        *,
        acknowledge: bool = True,
        from_start: int | None = None,
        heartbeat: float = 5.0,
        housekeeping: float = 20.0,
        settle: float = 5.0,
        chance: random.Random,
        connect: Connector | None = None,
        rate_limit: int | None = None,
    ) -> None:
        self.store, self.master = store, master
        self.heartbeat, self.housekeeping, self.acknowledge = heartbeat, housekeeping, acknowledge
        self.rate_limit = rate_limit
        self._from_start, self._settle, self._chance = from_start, settle, chance
        self._loop = asyncio.get_running_loop()
        self._connect = connect if connect is not None else self._tcp
        self._changed = asyncio.Event()  # there is another master
        self._link: _Link | None = None
        self._failures = 0  # attempts and connections in a row that brought nothing
        self._refused_since: float | None = None  # the master closes one connection after the other since then
        self._refusal: ReplicaError | None = None  # of the connection that the master has just closed
        self._difference: Difference | None = None  # the first one so far, while an earlier one is searched
        self._overlap = OVERLAP_BYTES  # how far before it the next comparison begins
        self._damage: int | None = None  # physical offset at which the master sent a damaged record
        self._settled = self._loop.time()  # when the last bytes came
        self.state = "waiting"
        self.received_bytes = self.connections = 0
        self.is_matched = False
        self.last_error: str | None = None
        self.last_read: float | None = None
        self.last_write: float | None = None

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def is_idle(self) -> bool:
        """Whether the master said last that it has nothing more to send."""
        link = self._link  # other threads ask, too
        return link is not None and link.is_idle

    @property
    def position(self) -> int:
        return self.store.max_phy_offset

    def change_master(self, master: Address | None) -> None:
        """Copy from another master from now on; None: from no one."""
        if master == self.master:
            return
        self.master = master
        self._failures, self._damage, self._refused_since, self.is_matched = 0, None, None, False
        self._forget_difference()
        self._changed.set()
        if self._link is not None:
            self._link.end(ConnectionLostError("the master has changed"))

    async def run(self) -> None:
        """Copy until the task is canceled. Lost connections are made again.

        Raises ReplicaError if the logs do not fit; StoreFailedError, ClosedError or StoreIOError if the store can't be
        used any more.
        """
        self._refused_since = None
        self._forget_difference()
        try:
            while True:
                self._changed.clear()
                if self.master is None:
                    self.state = "waiting"
                    await self._changed.wait()
                    continue
                began, received, position, self._refusal = self._loop.time(), self.received_bytes, self.position, None
                try:
                    await self._copy(self.master)
                except Difference as difference:
                    self._compare_earlier(difference)
                    continue
                except StoreIOError:
                    raise
                except (OSError, FrameError) as error:
                    if not self._changed.is_set():
                        self.note(connection_fault(error))
                        self._count_refusal()
                has_lasted = self.received_bytes > received and self._loop.time() >= began + self.housekeeping
                if self.position > position or has_lasted:
                    self._failures = 0
                self._failures += 1
                await self._pause(backoff(self._failures, self._chance, most=_PAUSE_MOST))
        except ReplicaError as error:
            if self._difference is None:
                raise
            raise self._difference.error() from error
        finally:
            self.state = "waiting"

    def _compare_earlier(self, found: Difference) -> None:
        """Compare from further back at the next connection. Raises ReplicaError if this is the first difference."""
        if found.is_first:
            self._difference = None
            raise found.error()
        self._overlap = OVERLAP_BYTES if self._difference is None else self._overlap * _FURTHER
        self._difference = found

    def _forget_difference(self) -> None:
        self._difference, self._overlap = None, OVERLAP_BYTES

    def _count_refusal(self) -> None:
        """Raise ReplicaError if the master has refused us for as long as it may be silent.

        A master that is behind us closes the connection at once. One that is down does not accept any.
        """
        if self._refusal is None:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = self._loop.time()
        elif self._loop.time() >= self._refused_since + self.housekeeping:
            self._refused_since = None
            raise self._refusal

    async def _copy(self, master: Address) -> None:
        """Connect once, and copy until the connection ends. Raises why it ended."""
        if not self.acknowledge and self.store.max_phy_offset > 0:
            await self._pause(self._settled + self._settle - self._loop.time())
            if self._changed.is_set():
                return
        self.state = "connecting"
        link = _Link(self)
        try:
            connecting = asyncio.ensure_future(self._connect(*master)(lambda: link))
            try:
                await self._wait(_CONNECT_SECONDS, connecting)
            finally:
                connecting.cancel()
                if connecting.done() and not connecting.cancelled():
                    connecting.exception()  # it is not raised if the task was canceled
            if self._changed.is_set():
                return
            if not connecting.done():
                raise ConnectionLostError("no connection in time")
            try:
                connecting.result()
            except ValueError as error:  # a name that no host can have
                raise ConnectionLostError(str(error)) from None
            await link.ended
        finally:
            self._link, self.state = None, "waiting"
            link.end(ConnectionLostError("the slave ends"))
            if link.received_bytes:
                self._settled = self._loop.time()

    async def _pause(self, seconds: float) -> None:
        """Do nothing for some time, unless another master is named."""
        self.state = "waiting"
        if seconds > 0:
            await self._wait(seconds)

    async def _wait(self, seconds: float, *others: asyncio.Future[Any]) -> None:
        """Wait until one of the others is done, another master is named, or the time is over."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({changed, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def note(self, fault: str) -> None:
        """Keep why nothing is copied now, and log it: at WARNING if it is something new."""
        host, port = self.master or ("", 0)
        level = logging.DEBUG if fault == self.last_error else logging.WARNING
        _log.log(level, "%s:%d: replication waits: %s", host, port, fault)
        self.last_error = fault

    def _tcp(self, host: str, port: int) -> Connect:
        return functools.partial(self._loop.create_connection, host=host, port=port)

    def linked(self, link: _Link) -> None:
        """A connection was made."""
        self._link, self.state = link, "transferring"
        self.connections += 1
        host, port = self.master or ("", 0)
        _log.info("%s:%d: connected; the log ends at %d", host, port, self.position)

    def refused(self, misfit: ReplicaError) -> None:
        """The master has closed the connection without the bytes that it must have. misfit: the error for that."""
        self._refusal = misfit

    def new_receiver(self) -> Receiver:
        """Return the state of a new connection."""
        if self._difference is None:
            start = choose_start(self.store, self._from_start)
        else:
            start = earlier_start(self.store, self._difference.phy_offset - self._overlap)
        return Receiver(
            start,
            self.store,
            self._loop.time(),
            acknowledge=self.acknowledge,
            heartbeat=self.heartbeat,
            housekeeping=self.housekeeping,
        )

    def append(self, phy_offset: int, data: bytes | memoryview) -> int:
        """Append the whole records of a block; return where they end.

        Raises ReplicaError, FrameError for a damaged record that may come undamaged over another connection, and what
        append_raw() raises of the store itself.
        """
        try:
            return self.store.append_raw(phy_offset, data)
        except CorruptRecordError as error:
            if error.offset > phy_offset:
                self.store.append_raw(phy_offset, data[: error.offset - phy_offset])
            size = self.store.config.mapped_file_size_commit_log
            raise self._misfit(error, bytes(data[error.offset - phy_offset :][: _HEAD.size]), size) from None
        except PhyOffsetError as error:
            if self.store.max_phy_offset > 0:
                raise
            size = self.store.config.mapped_file_size_commit_log
            what = f"the master's log file begins at the physical offset {phy_offset}"
            raise ReplicaError(f"{what}, not at a multiple of {size}: {_SIZE}", error.phy_offset, "file_size") from None

    def _misfit(self, error: CorruptRecordError, head: bytes, file_size: int) -> ReplicaError | FrameError:
        """Return the exception for a record that can't be appended."""
        at = error.offset
        size = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
        rest = file_size - at % file_size
        if error.reason == "bad_blank" and size > 0:
            text = f"the master's log file ends at the physical offset {at + size}, ours at {at + rest}: {_SIZE}"
            return ReplicaError(text, at, "file_size")
        if error.reason == "bad_size" and rest - _HEAD.size < size <= _LARGEST:
            text = f"the master's log file continues at the physical offset {at + rest}, where ours ends: {_SIZE}"
            return ReplicaError(text, at, "file_size")
        text = f"the master sends a damaged record at the physical offset {at}: {error.reason}"
        if self._damage == at:
            return ReplicaError(f"{text}; verify the log of the master", at, "damaged")
        self._damage = at
        return FrameError(text)


class _Link(asyncio.BufferedProtocol):
    """One connection of a slave."""

    def __init__(self, slave: Slave) -> None:
        self._slave, self._loop = slave, asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()  # with the error that ended it
        self._is_ended = False
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._step = int(slave.rate_limit * _RATE_STEP) + 1 if slave.rate_limit is not None else None
        self._free_at = 0.0  # when the bytes that were received are paid for by the rate limit
        self._refused = 0  # appends in a row that a full disk has refused
        self.received_bytes = 0

    @property
    def is_idle(self) -> bool:
        return self._receiver is not None and self._receiver.is_idle

    # what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not derive from it
        if self._is_ended:
            self._transport.abort()
            return
        self._guarded(self._begin)

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self._receiver is not None
        try:
            return self._receiver.room()[: self._step]
        except FrameError as error:
            self.end(error)
            return memoryview(bytearray(1))

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_ended:
            self._guarded(self._read, nbytes)

    def eof_received(self) -> None:
        self._end_by_master("the master closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self._end_by_master(f"the connection was lost: {'it was closed' if error is None else connection_fault(error)}")

    def _end_by_master(self, text: str) -> None:
        receiver = self._receiver
        if not self._is_ended and receiver is not None and receiver.is_ahead and not receiver.received_bytes:
            self._slave.refused(receiver.misfit(closes=True))
        self.end(ConnectionLostError(text))

    # the work

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run it; an error ends the connection, and run() gets it."""
        try:
            work(*arguments)
        except Exception as error:
            self.end(error)

    def _begin(self) -> None:
        self._receiver = self._slave.new_receiver()
        self._slave.linked(self)
        self._slave.is_matched = self._slave.is_matched or not self._receiver.is_ahead
        self._tick()

    def _read(self, count: int) -> None:
        receiver, slave = self._receiver, self._slave
        assert receiver is not None
        now = slave.last_read = self._loop.time()
        receiver.filled(count, now)
        slave.is_matched = slave.is_matched or not receiver.is_ahead
        slave.received_bytes += receiver.received_bytes - self.received_bytes
        self.received_bytes = receiver.received_bytes
        if not self._refused:
            slave.last_error = None
        if slave.rate_limit is not None:
            self._free_at = max(self._free_at, now) + count / slave.rate_limit
        self._append()

    def _append(self) -> None:
        """Append what is there. If the store can't take it now, read no more and try it again later."""
        receiver, slave = self._receiver, self._slave
        assert receiver is not None
        pause = self._free_at - self._loop.time()
        block = receiver.block()
        if block is not None:
            try:
                receiver.appended(slave.append(*block))
                self._refused, slave.last_error = 0, None
            except PageCacheBusyError:
                pause = max(pause, _BUSY_SECONDS)
            except StoreFullError as error:
                receiver.appended(slave.position)  # the records for the last file were appended
                self._refused += 1
                pause = max(pause, min(_PAUSE_MOST, 0.1 * 2.0 ** min(self._refused, 10)))
                slave.note(str(error))
        self._report()
        if pause > _SHORTEST and self._resume is None:
            assert self._transport is not None
            self._transport.pause_reading()
            self._resume = self._loop.call_later(pause, self._guarded, self._continue)

    def _continue(self) -> None:
        """The pause is over: append what is left, then read again."""
        assert self._transport is not None
        self._resume = None
        self._append()
        if self._resume is None:
            self._transport.resume_reading()

    def _report(self) -> None:
        assert self._receiver is not None and self._transport is not None
        now = self._loop.time()
        report = self._receiver.report(now)
        if report is not None and not self._is_ended:
            self._transport.write(report)
            self._slave.last_write = now

    def _tick(self) -> None:
        """Send the report that is due, and look whether the master is silent."""
        assert self._receiver is not None
        if self._resume is not None:
            self._receiver.resumed(self._loop.time())  # we do not read now
        self._receiver.check(self._loop.time())
        self._report()
        self._timer = self._loop.call_at(self._receiver.next_time(), self._guarded, self._tick)

    def end(self, error: Exception) -> None:
        """End the connection. Only the first error counts."""
        if self._is_ended:
            return
        self._is_ended = True
        for timer in (self._timer, self._resume):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self.ended.done():  # run() was canceled
            self.ended.set_exception(error)
            self.ended.exception()  # it may not be awaited any more
