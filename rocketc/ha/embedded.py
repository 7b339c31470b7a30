"""rocketc.ha.Master: a program that puts into a store sends its log to slaves."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rocketc.errors import ClosedError
from rocketc.ha import master as service
from rocketc.ha.master import MasterSettings, SlaveState
from rocketc.remoting.addresses import join_address
from rocketc.remoting.loops import run_in_daemon
from rocketc.status import PutStatus

if TYPE_CHECKING:
    from typing_extensions import Self

    from rocketc.store._store import MessageStore

PORT = 10912
_SLICE_SECONDS = 1.0  # after which a waiting thread checks whether the loop still runs
_T = TypeVar("_T")


class Master:
    """Serves the slaves of an open store, on a thread with an event loop of its own.

        with rocketc.open("orders-store") as store, rocketc.ha.Master(store) as master:
            put = store.put("orders", b"hello")
            master.wait(put.end)                # PUT_OK: a slave has the message

    It is a context manager. start() and close() do the same. All threads may use it. Slaves are brokers of RocketMQ or
    of rocketc, and `rocketc replicate`. They get all bytes of the log, durable or not. A slave with an empty log begins
    at the last file.

    store     open for writing; close the Master first
    port      where slaves connect; 0: a free one, see `address`
    host      address to listen on. The protocol has neither accounts nor encryption
    settings  see MasterSettings
    start() raises OSError for a port that is in use, and ValueError for a store that is open for reading only.

    >>> import rocketc, tempfile
    >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
    ...     with Master(store, port=0) as master:
    ...         master.wait(store.put("orders", b"hello").end).name, master.slaves()
    ('SLAVE_NOT_AVAILABLE', [])
    """

    def __init__(
        self,
        store: MessageStore,
        port: int = PORT,
        *,
        host: str = "127.0.0.1",
        settings: MasterSettings | None = None,
    ) -> None:
        self._store, self._listen, self._settings = store, (host, port), settings
        self._thread: threading.Thread | None = None
        self._changing = threading.Lock()

    def start(self) -> None:
        """Begin to serve, and return then. Nothing happens if it does already."""
        with self._changing:
            if self._thread is not None:
                return
            self._ready: concurrent.futures.Future[str] = concurrent.futures.Future()
            self._failure: BaseException | None = None
            thread = threading.Thread(target=self._run, name="rocketc-master", daemon=True)
            thread.start()
            try:
                self._address = self._ready.result()
            except BaseException:
                thread.join()
                raise
            self._thread = thread

    def close(self) -> None:
        """End in order: slaves in sync get the rest of the log. A second call does nothing."""
        with self._changing:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has failed
                self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            if self._failure is not None:
                raise self._failure

    @property
    def address(self) -> str:
        """Where slaves connect, "host:port"."""
        self._serving()
        return self._address

    def wait(self, end: int) -> PutStatus:
        """Wait until enough replicas have the log up to a physical offset, such as the `end` of a put.

        PUT_OK: in_sync_replicas have it. FLUSH_SLAVE_TIMEOUT: not within slave_timeout. SLAVE_NOT_AVAILABLE, at once:
        no slave is connected, or all are far behind. The message is stored in any case. A slave counts for what it was
        sent over its present connection: wait soon after the put.
        """

        def ask(done: Callable[[PutStatus], None]) -> None:
            self._master.transfer.add(end, done)

        return self._ask(ask)

    def slaves(self) -> list[SlaveState]:
        """Return the states of the connected slaves."""
        return self._ask(lambda done: done(self._master.slaves()))

    def _serving(self) -> asyncio.AbstractEventLoop:
        if self._thread is None:
            raise ClosedError("the master is not started, or it is closed")
        return self._loop

    def _ask(self, ask: Callable[[Callable[[_T], None]], object]) -> _T:
        """Call ask(done) on the loop's thread; wait until `done` is called, and return its argument."""
        result: concurrent.futures.Future[_T] = concurrent.futures.Future()
        loop, thread = self._serving(), self._thread
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(ask, result.set_result)
        while True:
            try:
                return result.result(timeout=_SLICE_SECONDS)
            except concurrent.futures.TimeoutError:
                if thread is None or not thread.is_alive():
                    raise ClosedError("the master was closed meanwhile") from None

    def _run(self) -> None:
        try:
            run_in_daemon(self._serve())
        except BaseException as error:
            if self._ready.done():
                self._failure = error
            else:
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._master = service.Master(self._store, self._store.config.mapped_file_size_commit_log, self._settings)
        try:
            host, port = await self._master.listen(*self._listen)
            self._ready.set_result(join_address(host, port))
            await self._stop.wait()
        finally:
            await self._master.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<rocketc.ha.Master {self._address if self._thread else 'closed'}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Master can't be pickled: it belongs to its process")
