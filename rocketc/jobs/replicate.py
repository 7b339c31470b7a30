"""A hot copy of a master's log in a store, without a broker: a slave that by default acknowledges nothing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from rocketc.client.connections import UNREACHABLE, Connector
from rocketc.client.loop_thread import LoopThread
from rocketc.client.security import Credentials, Tls
from rocketc.config import StoreConfig
from rocketc.errors import AnswerError, ReplicaError, RocketcError
from rocketc.files.paths import StrPath
from rocketc.files.remote import local_target
from rocketc.ha.slave import Slave
from rocketc.jobs.replica_master import DEFAULT_FILE_SIZE, MasterBroker, MasterSettings, broker_of
from rocketc.remoting.addresses import split_address
from rocketc.remoting.codes import Code
from rocketc.store._store import MessageStore
from rocketc.store.opening import open as open_store
from rocketc.store.opening import with_detected_file_size

if TYPE_CHECKING:
    from typing_extensions import Self

_ASK_SECONDS = 1.0  # between two questions to the broker where its log ends
LEAST_SETTLE, MORE_SETTLE = 5.0, 2.0  # seconds; more than producers wait for slaves
AGAIN_SECONDS, _TRIES = 1.0, 4  # questions to a broker that answers SYSTEM_ERROR
_LEAST_FILE = 128  # bytes; no log file of a store is smaller


@dataclass(frozen=True)
class ReplicaProgress:
    """How far a copy is.

    phy_offset         end of the copy's log
    min_phy_offset     its beginning
    received_bytes     of the log, since replicate() began
    bytes_per_second   received since the last progress
    master_phy_offset  end of the master's log, as its broker said last; None: it did not
    state              "waiting", "connecting" or "transferring", see ha.slave.Slave
    connections        how many there were
    error              why nothing is copied now; None: all is well
    caught_up          whether the copy has all that the master had when replicate() began, and its log fits
    """

    phy_offset: int
    min_phy_offset: int
    received_bytes: int
    bytes_per_second: float
    master_phy_offset: int | None
    state: str
    connections: int
    error: str | None
    caught_up: bool

    @property
    def is_connected(self) -> bool:
        return self.state == "transferring"

    @property
    def lag(self) -> int | None:
        """Bytes that the master has and the copy does not; None: not known."""
        return None if self.master_phy_offset is None else max(self.master_phy_offset - self.phy_offset, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the lag, with the names of the JSON output.

        >>> ReplicaProgress(100, 0, 100, 50.0, 120, "transferring", 1, None, False).to_dict()["lag"]
        20
        """
        found = asdict(self) | {"lag": self.lag}
        return {_camel(name): value for name, value in found.items()}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Replication:
    """A copy that runs in a thread; an iterator of ReplicaProgress. replicate() makes it, close() ends it.

    store   the copy, open; for reading only
    master  host:port of the HA service
    notes   what the caller should know, a sentence each
    last    the last progress that was returned; after close() the progress at the end
    """

    def __init__(self, thread: LoopThread, copying: _Copying, interval: float) -> None:
        self._thread, self._copying, self._interval = thread, copying, interval
        self.store, self.notes, self.master = copying.store, copying.notes, copying.master
        self.last = copying.progress(0.0)
        self._at = time.monotonic()
        self._is_closed = False
        self._future = thread.submit(copying.run())

    def __repr__(self) -> str:
        return f"<rocketc.Replication of {self.master}, up to {self.last.phy_offset}{', closed' * self._is_closed}>"

    def __iter__(self) -> Iterator[ReplicaProgress]:
        return self

    def __next__(self) -> ReplicaProgress:
        """Wait for the interval, and return the progress. Raises the error that has ended the copy."""
        if self._is_closed:
            raise StopIteration
        done, _ = concurrent.futures.wait((self._future,), timeout=self._interval)
        if self._is_closed:  # by another thread
            raise StopIteration
        if done:
            self._future.result()
        now, received = time.monotonic(), self._copying.slave.received_bytes
        rate = (received - self.last.received_bytes) / (now - self._at) if now > self._at else 0.0
        self._at, self.last = now, self._copying.progress(rate)
        return self.last

    def close(self) -> None:
        """End the copy, and close its store. A second call does nothing.

        >>> import rocketc, tempfile
        >>> copy = rocketc.replicate("127.0.0.1:1", tempfile.mkdtemp(), mapped_file_size=1 << 20)
        >>> copy.close()
        >>> list(copy)
        []
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._future.cancel()
        concurrent.futures.wait((self._future,), timeout=5.0)
        self._thread.close()
        self.last = self._copying.progress(0.0)
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def replicate(
    master: str,
    store: StrPath,
    *,
    start: Literal["start"] | int | None = None,
    acknowledge: bool = False,
    mapped_file_size: int | None = None,
    rate_limit: int | None = None,
    broker: str | None = None,
    credentials: Credentials | None = None,
    tls: bool | Tls = False,
    interval: float = 1.0,
    connector: Connector | None = None,
    **fields: Any,
) -> Replication:
    """Copy the log of a master into a store, until close(). Return an iterator of the progress.

    master       host:port of the HA service of a master, RocketMQ's or ours: port 10912 by default
    store        path of the copy. An existing copy continues where it ends; it is created if it does not exist
    start        where a new copy begins. None: at the master's last file. "start": at its first byte. An int: at this
                 physical offset, where a file of the master begins
    acknowledge  True: report what the copy has, as a slave: a SYNC_MASTER counts it as a replica. False: a SYNC_MASTER
                 never does
    mapped_file_size  bytes of the master's log files; None: what its broker says, or 1 GiB
    rate_limit   bytes per second; None: no limit
    broker       host:port of the master's broker, for the size and the ends of its log; None: the port before that of
                 `master`
    credentials, tls  for requests to the broker, as those of client.admin.Admin
    interval     seconds between two progresses
    connector    how to connect, for tests; None: TCP
    fields       settings of the copy, see StoreConfig
    Each record is checked before it is appended. Programs may read the copy meanwhile.
    Raises ReplicaError if the logs do not fit; so does the iterator. Raises NotSentError, ConnectionLostError,
    NoAnswerError and AnswerError if start is "start" and the broker does not answer. Otherwise the copy waits for a
    master that is not reached. Raises ValueError for a wrong argument, and what rocketc.open() raises.

    >>> import rocketc, tempfile
    >>> with rocketc.replicate("127.0.0.1:1", tempfile.mkdtemp(), mapped_file_size=1 << 20, interval=0.05) as copy:
    ...     progress = next(copy)
    >>> progress.phy_offset, progress.lag, progress.connections
    (0, None, 0)
    """
    address = split_address(master)
    if address[1] == 0:
        raise ValueError(f"{master!r} is not an address such as 10.0.0.1:10912")
    if not os.fspath(store):
        raise ValueError("store: the path is empty")
    root = local_target(store, "replicate()")
    if start is not None and start != "start" and (type(start) is not int or start < 0):
        raise ValueError(f"start: expected 'start' or a physical offset, got {start!r}")
    if rate_limit is not None and rate_limit < 1:
        raise ValueError(f"rate_limit must be at least 1 byte per second, not {rate_limit}")
    asked = MasterBroker(
        broker_of(master) if broker is None else broker, credentials=credentials, tls=tls, connector=connector
    )
    with contextlib.ExitStack() as undo:
        thread = undo.enter_context(LoopThread())
        found = thread.run(_ask(asked, address[1], explicit=broker is not None))
        existing = _existing_file_size(root)
        size = _file_size(root, existing, mapped_file_size, found)
        if existing is None:
            StoreConfig(mapped_file_size_commit_log=size)  # nothing is created if the size or the start is wrong
            _first_offset(start, size, found)
        opened = open_store(root, **{"mapped_file_size_commit_log": size, "broker_role": "SLAVE", **fields})
        undo.callback(opened.close)
        copying = _Copying(opened, master, asked, found)
        copying.begin_at(start)
        slave_timeout = found.settings.slave_timeout if found.settings is not None else 0
        settle = max(LEAST_SETTLE, slave_timeout / 1000 + MORE_SETTLE)
        thread.run(copying.prepare(acknowledge, settle, rate_limit, connector))
        replication = Replication(thread, copying, interval)
        undo.pop_all()
    return replication


@dataclass
class _Found:
    """What the broker has said; `fault`: why it has not."""

    settings: MasterSettings | None = None
    log_range: tuple[int, int] | None = None
    fault: RocketcError | None = None


async def _ask(broker: MasterBroker, ha_port: int, explicit: bool) -> _Found:
    """Ask a broker for all. A broker that was guessed, and serves another HA port, is not that of the master."""
    found = _Found()
    try:
        async with broker:
            found.settings = await broker.settings()
            if found.settings.ha_port not in (None, ha_port) and not explicit:
                found.settings = None
                raise AnswerError(broker.address, f"its HA service does not listen on port {ha_port}")
            for left in reversed(range(_TRIES)):
                try:
                    found.log_range = await broker.log_range()
                    break
                except AnswerError as error:
                    if error.code != Code.SYSTEM_ERROR or left == 0:
                        raise
                    await asyncio.sleep(AGAIN_SECONDS)  # for about 1 s after its start, RocketMQ 4.x fails to answer
    except (*UNREACHABLE, AnswerError) as error:
        found.fault = error
    return found


def _existing_file_size(root: str) -> int | None:
    """Return the size of the log files of a copy that exists; None: there is none."""
    probe = StoreConfig(mapped_file_size_commit_log=_LEAST_FILE)
    found = with_detected_file_size(root, probe).mapped_file_size_commit_log
    return None if found == _LEAST_FILE else found


def _file_size(root: str, existing: int | None, named: int | None, found: _Found) -> int:
    """Return the size of the copy's log files."""
    of_master = found.settings.file_size if found.settings is not None else None
    wanted = named if named is not None else of_master
    if existing is not None:
        if wanted is not None and wanted != existing:
            what = f"{root}: the log files of this copy have {existing} bytes, those of the master {wanted}"
            raise ReplicaError(f"{what}: begin a new copy in another folder", 0, "file_size")
        return existing
    return wanted if wanted is not None else DEFAULT_FILE_SIZE


def _first_offset(start: Literal["start"] | int | None, file_size: int, found: _Found) -> int | None:
    """Return where a new copy begins, see Slave. Raises as replicate()."""
    if start is None:
        return None
    log_range = found.log_range
    if start == "start":
        if log_range is None:
            assert found.fault is not None
            raise found.fault
        least, end = log_range
        return least if end > 0 else None  # a report of 0 is right for an empty log
    if start % file_size:
        raise ValueError(f"start {start}: no file of the master begins there; its files have {file_size} bytes")
    if log_range is not None and not log_range[0] <= start <= log_range[1]:
        raise _deleted(start, *log_range)
    return None if start == 0 and log_range is not None and log_range[1] == 0 else start


class _Copying:
    """The work on the loop of the thread."""

    slave: Slave

    def __init__(self, store: MessageStore, master: str, broker: MasterBroker, found: _Found) -> None:
        self.store, self.master, self._broker, self._found = store, master, broker, found
        self._range = found.log_range
        self._target = found.log_range[1] if found.log_range is not None else None
        self._from: int | None = None
        self.notes: list[str] = []
        if found.fault is not None:
            self.notes.append(f"the master's broker does not say how far its log is: {found.fault}")

    def begin_at(self, start: Literal["start"] | int | None) -> None:
        """Check where the copy begins. Raises as replicate()."""
        if start is None:
            return
        if self.store.max_phy_offset > 0:
            self.notes.append(f"the copy exists: it continues at the physical offset {self.store.max_phy_offset}")
            return
        self._from = _first_offset(start, self.store.config.mapped_file_size_commit_log, self._found)

    async def prepare(
        self, acknowledge: bool, settle: float, rate_limit: int | None, connector: Connector | None
    ) -> None:
        self.slave = Slave(
            self.store,
            split_address(self.master),
            acknowledge=acknowledge,
            from_start=self._from,
            settle=settle,
            chance=random.Random(),
            connect=connector,
            rate_limit=rate_limit,
        )

    async def run(self) -> None:
        """Copy until this task is canceled."""
        async with self._broker:
            watching = asyncio.create_task(self._watch())
            try:
                await self.slave.run()
            except ReplicaError as error:
                raise await self._explained(error) from None
            finally:
                watching.cancel()

    async def _watch(self) -> None:
        """Ask the broker again and again where its log ends."""
        while True:
            await self._look()
            await asyncio.sleep(_ASK_SECONDS)

    async def _look(self) -> None:
        try:
            self._range = await self._broker.log_range()
        except (*UNREACHABLE, AnswerError):
            self._range = None
        if self._target is None and self._range is not None:
            self._target = self._range[1]

    async def _explained(self, error: ReplicaError) -> ReplicaError:
        """Return a better error if the broker says why the master is silent."""
        if error.reason != "silent":
            return error
        await self._look()
        if self._range is None:
            return error
        least, end = self._range
        ours = self.store.max_phy_offset
        if error.phy_offset < least:
            return _deleted(error.phy_offset, least, end)
        if end < ours:
            text = f"the master's log ends at {end} and the copy at {ours}: the master is behind us or has another log"
            return ReplicaError(text, end, "silent")
        return error

    def progress(self, rate: float) -> ReplicaProgress:
        slave, end = self.slave, self.store.max_phy_offset
        is_caught_up = slave.is_idle if self._target is None else end >= self._target
        return ReplicaProgress(
            end,
            self.store.min_phy_offset,
            slave.received_bytes,
            rate,
            None if self._range is None else self._range[1],
            slave.state,
            slave.connections,
            slave.last_error,
            slave.is_matched and is_caught_up,
        )


def _deleted(at: int, least: int, end: int) -> ReplicaError:
    what = f"the master does not have the physical offset {at} any more: its log goes from {least} to {end}"
    if at > end:
        what = f"the master does not have the physical offset {at}: its log goes from {least} to {end}"
    return ReplicaError(f"{what}; begin a new copy in another folder", at, "silent")
