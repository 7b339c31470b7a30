"""The master: it listens for slaves, and sends each the bytes of the log as they are appended.

The bytes go from the mapped files to the sockets without a copy. A slave that does not read costs only its own
connection: at most UNREAD_BYTES wait for it, and then nothing is read for it. Nothing is polled: an append wakes the
loop if a slave waits for it.
Source: RocketMQ DefaultHAService, DefaultHAConnection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rocketc.errors import ClosedError, FrameError, PhyOffsetError, RocketcError
from rocketc.files._append_file import View
from rocketc.ha.group_transfer import SLAVE_TIMEOUT, GroupTransfer
from rocketc.ha.replicas import IN_SYNC_REPLICAS, MAX_GAP, Replica, Replicas
from rocketc.ha.sending import BATCH_BYTES, HEARTBEAT, HOUSEKEEPING, Sending
from rocketc.log._positions import Position, PositionDescriptor
from rocketc.store.futures import descriptors

_log = logging.getLogger("rocketc.ha")

CONNECTIONS_MOST = 128
READ_BYTES = 256 << 10  # of the log, in one turn of the loop for each slave
UNREAD_BYTES = 256 << 10  # that a slave has not read; above it, nothing more is written to it
RECENT_BYTES = 64 << 20  # at the end of the log, which are in memory


class MasterLog(Protocol):
    """What a Master needs of a store."""

    @property
    def path(self) -> str: ...
    @property
    def background(self) -> bool: ...
    @property
    def min_phy_offset(self) -> int: ...
    @property
    def max_phy_offset(self) -> int: ...
    @property
    def written_position(self) -> Position | None: ...
    def read_log(self, phy_offset: int, max_bytes: int, *, views: Literal[True]) -> View | None: ...


@dataclass(frozen=True)
class MasterSettings:
    """The settings of a Master, under RocketMQ's names.

    in_sync_replicas             replicas that must have a message before its send is acknowledged, with the master;
                                 0 and 1: none is waited for
    ha_max_gap_not_in_sync       bytes; a slave that is this far behind is not in sync
    ha_transfer_batch_size       bytes of a transfer at most
    ha_send_heartbeat_interval   ms without a transfer, after which a heartbeat is sent
    ha_housekeeping_interval     ms without a byte of a slave, after which its connection is closed
    slave_timeout                ms that a message waits for replicas
    max_ha_transfer_byte_in_second  bytes of the log a second for each slave; None: as many as it reads
    connections                  slaves at a time; more are closed at once
    """

    in_sync_replicas: int = IN_SYNC_REPLICAS
    ha_max_gap_not_in_sync: int = MAX_GAP
    ha_transfer_batch_size: int = BATCH_BYTES
    ha_send_heartbeat_interval: int = int(HEARTBEAT * 1000)
    ha_housekeeping_interval: int = int(HOUSEKEEPING * 1000)
    slave_timeout: int = int(SLAVE_TIMEOUT * 1000)
    max_ha_transfer_byte_in_second: int | None = None
    connections: int = CONNECTIONS_MOST


@dataclass(frozen=True)
class SlaveState:
    """One connected slave, as a master sees it.

    address         host:port of its end of the connection
    acknowledged    physical offset of its last report; -1: none yet
    next_offset     physical offset of the next byte that it is sent; -1: it has not reported yet
    behind          bytes of the log that it has not acknowledged
    sent_in_second  bytes of the log that it was sent in the last second
    transferred     bytes of the log that it was sent over this connection
    """

    address: str
    acknowledged: int
    next_offset: int
    behind: int
    is_in_sync: bool
    sent_in_second: int
    transferred: int


class Master:
    """The connections of all slaves of one store.

    log        open for writing; close() the Master before it
    file_size  of its files: mappedFileSizeCommitLog
    settings   see MasterSettings
    Create it on the thread of the event loop, and close() it there.
    """

    def __init__(self, log: MasterLog, file_size: int, settings: MasterSettings | None = None) -> None:
        self.settings = settings = MasterSettings() if settings is None else settings
        self.log, self.file_size = log, file_size
        self.replicas = Replicas(settings.in_sync_replicas, settings.ha_max_gap_not_in_sync)
        self.transfer = GroupTransfer(self.replicas, settings.slave_timeout / 1000)
        self.connections: dict[SlaveConnection, None] = {}  # in the order in which they came
        self.refused = 0  # connections beyond the limit
        self.faulty: dict[str | None, None] = {}  # hosts whose last peer was not a slave
        self._loop = asyncio.get_running_loop()
        self._listening: list[asyncio.Server] = []
        self._is_ending = False
        self._caught_up: dict[SlaveConnection, None] = {}  # they have all of the log, and wait for more
        self._armed_at = 0  # physical offset: an append after it wakes the loop
        position = log.written_position
        if position is None:
            raise ValueError(f"{log.path}: the store is open for reading only; a master needs one that is written")
        self._read, self._write = descriptors()
        try:
            self._written = PositionDescriptor(position, self._write)
        except BaseException:
            self._close_descriptors()
            raise
        self._loop.add_reader(self._read, self._on_append)

    # connections

    def connection(self) -> SlaveConnection:
        """Make the protocol of a new connection: the factory for a listening socket, or for a test's network."""
        return SlaveConnection(self)

    async def listen(self, host: str | None, port: int) -> tuple[str, int]:
        """Listen on an address; port 0 takes a free one. Return the host and port of the first socket.

        host  None: all addresses, IPv6 and IPv4
        Raises OSError, for example if the port is in use.
        """
        server = await self._loop.create_server(self.connection, host, port)
        self._listening.append(server)
        name = server.sockets[0].getsockname()
        return name[0], name[1]

    async def serve(self, listening: socket.socket) -> None:
        """Accept the connections of a socket that listens; close() closes it."""
        self._listening.append(await self._loop.create_server(self.connection, sock=listening))

    def configure(self, settings: MasterSettings) -> None:
        """Take other settings, also for the slaves that are connected. Messages that wait now keep their time-out."""
        self.settings, replicas = settings, self.replicas
        replicas.acks, replicas.max_gap = settings.in_sync_replicas, settings.ha_max_gap_not_in_sync
        self.transfer.configure(settings.slave_timeout / 1000)
        for connection in list(self.connections):
            connection.configure()

    def opened(self, connection: SlaveConnection) -> bool:
        """Note a new connection. False: there are too many. Peers that have not reported make room for others."""
        if len(self.connections) >= self.settings.connections:
            silent = next((one for one in self.connections if one.sending.next_offset is None), None)
            if silent is not None:
                silent.end("it has not reported yet, and another one came")
        if self._is_ending or len(self.connections) >= self.settings.connections:
            self.refused += 1
            _log.warning("%s: refused, there are %d slaves", connection.name, len(self.connections))
            return False
        self.connections[connection] = None
        return True

    def lost(self, connection: SlaveConnection) -> None:
        """Forget a connection that ended."""
        self._caught_up.pop(connection, None)
        self.connections.pop(connection, None)
        self.replicas.disconnect(connection.replica)

    def is_new_fault(self, host: str | None) -> bool:
        """Note that a peer is not a slave, or has another log. False: the last one from its host was not either."""
        if host in self.faulty:
            return False
        if len(self.faulty) >= CONNECTIONS_MOST:
            self.faulty.pop(next(iter(self.faulty)))
        self.faulty[host] = None
        return True

    @property
    def log_end(self) -> int:
        """The end of the log."""
        return self.log.max_phy_offset

    @property
    def in_sync_slaves(self) -> int:
        """How many slaves are in sync: connected, and not far behind."""
        return self.replicas.in_sync(self.log.max_phy_offset) - 1

    def slaves(self) -> list[SlaveState]:
        """Return the states of the connected slaves, in the order in which they came."""
        end, now = self.log.max_phy_offset, self._loop.time()
        return [
            SlaveState(
                address=one.name,
                acknowledged=one.replica.acknowledged,
                next_offset=-1 if one.sending.next_offset is None else one.sending.next_offset,
                behind=end - max(one.replica.acknowledged, 0),
                is_in_sync=self.replicas.is_in_sync(one.replica, end),
                sent_in_second=one.sending.sent_in_second(now),
                transferred=one.sending.transferred,
            )
            for one in self.connections
        ]

    # the log

    def wait(self, connection: SlaveConnection) -> bool:
        """Call connection.pump() after the next append. False: there is more in the log already."""
        assert connection.sending.next_offset is not None
        if not self._caught_up or connection.sending.next_offset < self._armed_at:
            self._armed_at = connection.sending.next_offset
            if not self._written.arm(self._armed_at + 1):
                return self.log.max_phy_offset <= self._armed_at  # True: the store is closed, nothing will ever come
        self._caught_up[connection] = None
        return True

    def _on_append(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 8)
        waiting, self._caught_up = self._caught_up, {}
        for connection in waiting:
            connection.pump()

    async def replicated(self, timeout: float) -> bool:
        """Wait until enough replicas have the whole log. False: there are none, or the seconds pass first."""
        done: asyncio.Future[bool] = self._loop.create_future()

        def finish(status: int) -> None:
            if not done.done():
                done.set_result(status == 0)

        self.transfer.add(self.log.max_phy_offset, finish)
        finished, _ = await asyncio.wait({done}, timeout=timeout)
        return bool(finished) and done.result()

    # the end

    async def close(self, grace: float = 1.0) -> None:
        """End in order: no new slaves; those in sync get the rest of the log, for up to `grace` seconds.

        A second call does nothing.
        """
        if self._read < 0:
            return
        self._is_ending = True
        for listening in self._listening:
            listening.close()
        try:
            end, wanted = self.log.max_phy_offset, self.settings.in_sync_replicas - 1
            if self.connections and sum(one.acknowledged >= end for one in self.replicas) < wanted:
                await self.replicated(grace)
        finally:  # also if the task is canceled
            self.abort()

    def abort(self) -> None:
        """End at once. A second call does nothing."""
        if self._read < 0:
            return
        self.transfer.close()
        for connection in list(self.connections):
            connection.end(None)
        self._loop.remove_reader(self._read)
        self._written.end()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for fd in {self._read, self._write}:
            os.close(fd)
        self._read = self._write = -1


class SlaveConnection(asyncio.Protocol):
    """The protocol of one accepted connection: the reports of a slave in, the bytes of the log out."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._loop = asyncio.get_running_loop()
        self.sending = Sending(self._loop.time(), **self._times_and_sizes())
        self.name = "?"
        self.replica = Replica(self.name)
        self._transport: asyncio.Transport | None = None  # None: not connected, or lost
        self._peer_reads = True
        self._is_starved = False  # the log begins after the next byte
        self._is_served = False  # the log had the offset that the slave has reported first
        self._is_loading = False  # a thread reads the next bytes from the disk
        self._timer: asyncio.TimerHandle | None = None
        self._more: asyncio.Handle | None = None  # the next pump()

    def _times_and_sizes(self) -> dict[str, Any]:
        settings = self._master.settings
        return {
            "batch": settings.ha_transfer_batch_size,
            "heartbeat": settings.ha_send_heartbeat_interval / 1000,
            "housekeeping": settings.ha_housekeeping_interval / 1000,
            "rate": settings.max_ha_transfer_byte_in_second,
        }

    def configure(self) -> None:
        """The master has other settings."""
        self.sending.configure(**self._times_and_sizes())
        self._set_timer()
        self.pump()

    # events of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        peer = transport.get_extra_info("peername")
        self.name = _name(peer)
        if not self._master.opened(self):
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(UNREAD_BYTES)
        self.replica = self._master.replicas.connect(self.name, str(peer[0]) if isinstance(peer, tuple) else None)
        self._set_timer()
        _log.debug("%s: connected", self.name)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        master, is_first = self._master, self.sending.next_offset is None
        log_end = master.log.max_phy_offset
        try:
            reported = self.sending.received(data, self._loop.time(), log_end=log_end, file_size=master.file_size)
        except FrameError as error:
            self.end(str(error))
            return
        if reported is None:
            return
        if is_first:
            assert self.sending.first_offset is not None
            master.transfer.begin(self.replica, self.sending.first_offset)
        master.transfer.report(self.replica, reported)
        if is_first:
            master.faulty.pop(self.replica.host, None)
            _log.info("%s: a slave; it gets the log from physical offset %d on", self.name, self.sending.next_offset)
            self._set_timer()  # now heartbeats are due too
            self.pump()

    def pause_writing(self) -> None:
        self._peer_reads = False

    def resume_writing(self) -> None:
        self._peer_reads = True
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            level = logging.DEBUG if self.sending.next_offset is None else logging.INFO  # DEBUG: a health check
            _log.log(level, "%s: the connection of a slave ended%s", self.name, "" if error is None else f": {error}")
            self._forget()

    # sending

    def pump(self) -> None:
        """Send what comes next, if the slave reads. One turn of the loop sends a part only."""
        if self._more is not None:
            self._more.cancel()
            self._more = None
        sending, now = self.sending, self._loop.time()
        if self._transport is None or not self._peer_reads or self._is_starved or self._is_loading:
            return
        if sending.next_offset is None:
            return
        most = sending.budget(now, READ_BYTES)
        if most == 0:
            self._more = self._loop.call_at(sending.next_second(now), self.pump)
            return
        try:
            view = self._master.log.read_log(sending.next_offset, most, views=True)
        except PhyOffsetError as error:
            if self._is_served:  # heartbeats would say that it has the whole log
                self.end(f"the next bytes of the slave were deleted: {error}")
                return
            self._is_starved = True
            _log.warning("%s: the slave gets nothing: %s", self.name, error)
            return
        except (RocketcError, OSError) as error:
            self.end(None if isinstance(error, ClosedError) else str(error))
            return
        self._is_served = True
        if view is None:
            if not self._master.wait(self):
                self._more = self._loop.call_soon(self.pump)
        elif self._is_cold(view):
            self._is_loading = True
            self._loop.run_in_executor(None, view.load).add_done_callback(lambda _: self._loaded(view))
        else:
            self._send(view)

    def _is_cold(self, view: View) -> bool:
        """Whether to send would wait for the disk, and with it all of this loop."""
        log = self._master.log
        return view.start < log.max_phy_offset - RECENT_BYTES and log.background and not view.is_in_memory()

    def _loaded(self, view: View) -> None:
        self._is_loading = False
        if self._transport is not None:
            self._send(view)

    def _send(self, view: View) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.writelines(self.sending.transfers(memoryview(view), self._loop.time()))
        transport.set_write_buffer_limits(UNREAD_BYTES)  # some releases of Python do not check them in writelines()
        if self._peer_reads:
            self._more = self._loop.call_soon(self.pump)

    def _on_time(self) -> None:
        now = self._loop.time()
        if self.sending.is_dead(now):
            self.end(f"nothing was received for {self._master.settings.ha_housekeeping_interval / 1000:g} s")
            return
        if self._peer_reads and self._transport is not None and not self._transport.is_closing():
            beat = self.sending.heartbeat(now)
            if beat is not None:
                self._transport.write(beat)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self.sending.next_time(self._loop.time()), self._on_time)

    # the end

    def end(self, why: str | None) -> None:
        """Close the connection at once; log why. A second call does nothing."""
        if self._transport is None:
            return
        if why is not None:
            is_new = self.sending.next_offset is not None or self._master.is_new_fault(self.replica.host)
            level = logging.WARNING if is_new else logging.DEBUG
            _log.log(level, "%s: %s; the connection is closed", self.name, why)
        transport = self._transport
        self._forget()
        transport.abort()

    def _forget(self) -> None:
        self._transport = None
        for handle in (self._timer, self._more):
            if handle is not None:
                handle.cancel()
        self._timer = self._more = None
        self._master.lost(self)


def _name(peer: object) -> str:
    """Return host:port of a peer."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
    return str(peer)
