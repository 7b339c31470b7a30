"""rocketc.Broker: a broker and a name server inside a program, for tests."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from rocketc._arguments import whole_number
from rocketc.broker.child import ChildBroker
from rocketc.broker.config import MOST_PORT, BrokerConfig
from rocketc.broker.settings import served_config, split_fields, temporary_config
from rocketc.config import StoreConfig
from rocketc.config_fields import Flush
from rocketc.errors import ClosedError, IllegalMessageError
from rocketc.files.paths import StrPath
from rocketc.files.remote import refuse_urls

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from rocketc.broker.in_thread import BrokerThread
    from rocketc.broker.settings import BrokerFields
    from rocketc.store._store import MessageStore
    from rocketc.tables.topics import TopicConfig

_OTHERS = ("path", "port", "namesrv_port", "flush", "process")
_MOST_QUEUES = (1 << 31) - 1
_open: set[Broker] = set()  # those that serve: a broker serves until close(), or until this process ends


class Broker:
    """A broker and a name server in this program: real clients, of any language, send to it and consume from it.

        with rocketc.Broker() as broker:
            broker.topics.create("orders")
            ...                             # clients connect to broker.name_server

    It is a context manager, also with `async with`. start() and close() do the same. All threads may use it.

    path          root folder of a store, which is kept; None: a temporary store of small files, removed at the end.
                  Messages of a kept store expire, as a broker's do: see file_reserved_time
    port          of the broker, on 127.0.0.1; 0: a free one
    namesrv_port  of the name server; 0: a free one. There is none if namesrv_addr is given
    flush         "async" (default): a send is answered when the message is in the log; "sync": when it is on the disk
    process       False: the broker runs on a thread of this process, and `store` is its open store. True: it runs in
                  a process of its own, which ends with this one
    fields        fields of BrokerConfig, such as broker_name, and of StoreConfig, such as max_message_size. With
                  metrics_exporter_type="PROM" the broker serves metrics; metrics_prom_exporter_port is a free one if it
                  is not set
    A broker that is not closed ends in order with this process, after the last thread that is not a daemon.
    A forked child cannot use the broker of its parent.
    Raises TypeError for an unknown keyword and ValueError for a wrong value. start() raises the errors of
    rocketc.open(), and OSError for a port that is in use.

    >>> import rocketc
    >>> with rocketc.Broker() as broker:
    ...     _ = broker.topics.create("orders")
    ...     _ = broker.store.put("orders", b"hello")
    ...     broker.topics["orders"].write_queue_nums
    4
    """

    def __init__(
        self,
        path: StrPath | None = None,
        *,
        port: int = 0,
        namesrv_port: int = 0,
        flush: Flush | None = None,
        process: bool = False,
        **fields: Unpack[BrokerFields],
    ) -> None:
        fields.setdefault("metrics_prom_exporter_port", 0)
        of_broker, of_store = split_fields("Broker()", fields, _OTHERS)
        port = whole_number("port", port, 0, MOST_PORT)
        self._config = BrokerConfig(listen_port=port, **of_broker)
        self._store_config = StoreConfig.of(flush=flush, **of_store)
        self._namesrv_port = whole_number("namesrv_port", namesrv_port, 0, MOST_PORT)
        if path is None:
            self._root = None
            self._store_config = temporary_config(self._store_config, of_store)
        else:
            refuse_urls([os.fspath(path)], "Broker()")
            self._store_config = served_config(self._store_config, of_store)
            self._root = os.path.abspath(os.fspath(path))
        self._flush, self._fields = flush, fields
        self._is_child = process
        self._engine: BrokerThread | ChildBroker | None = None
        self._changing = threading.RLock()
        self._pid = os.getpid()

    def start(self) -> None:
        """Start the broker, and return when it serves; nothing happens if it does already.

        >>> import rocketc
        >>> broker = rocketc.Broker()
        >>> broker.start()
        >>> broker.name_server.partition(":")[0]
        '127.0.0.1'
        >>> broker.close()
        """
        with self._changing:
            if self._engine is not None:
                self._running()  # raises in a forked child
                return
            self._pid = os.getpid()
            if self._is_child:
                options = ["--port", str(self._config.listen_port), "--namesrv-port", str(self._namesrv_port)]
                options += ["--flush", self._flush] if self._flush else []
                self._engine = ChildBroker(self._root, options, self._fields)
            else:
                from rocketc.broker.in_thread import BrokerThread  # late: it loads the broker

                self._engine = BrokerThread(self._root, self._config, self._store_config, self._namesrv_port)
            _close_at_exit()
            _open.add(self)

    def close(self) -> None:
        """End the broker in order. A second call does nothing, and so does a call in a forked child.

        Raises the error that ended the broker, if one did.

        >>> import rocketc
        >>> rocketc.Broker().close()
        """
        if self._pid != os.getpid():
            return
        with self._changing:
            if self._engine is None:
                return
            try:
                self._engine.close()
            except Exception:  # not Ctrl-C: then it is still open, and ends at the latest with this process
                self._forget()
                raise
            self._forget()

    def _forget(self) -> None:
        self._engine = None
        _open.discard(self)

    def _running(self) -> BrokerThread | ChildBroker:
        engine = self._engine
        if engine is None:
            raise ClosedError("the broker is not started, or it is closed")
        if self._pid != os.getpid():
            raise ClosedError(f"the broker belongs to process {self._pid}, from which this one was forked")
        return engine

    @property
    def name_server(self) -> str:
        """Address of the name server, "host:port": what clients are given."""
        return self._running().name_server

    @property
    def address(self) -> str:
        """Address of the broker, "host:port"."""
        return self._running().address

    @property
    def ha_address(self) -> str:
        """Address where slaves connect, "host:port": what `rocketc.replicate` and `haMasterAddress` of a slave take.

        >>> import rocketc
        >>> with rocketc.Broker() as broker:
        ...     broker.ha_address.partition(":")[0]
        '127.0.0.1'
        """
        return self._running().ha_address

    @property
    def metrics_port(self) -> int | None:
        """Port on which the metrics are served over HTTP, as /metrics; None: metrics_exporter_type does not ask for it.

        >>> import rocketc, urllib.request
        >>> with rocketc.Broker(metrics_exporter_type="PROM") as broker:
        ...     url = f"http://127.0.0.1:{broker.metrics_port}/metrics"
        ...     b"rocketmq_broker_permission" in urllib.request.urlopen(url, timeout=20).read()
        True
        """
        url = self._running().metrics_url
        return None if url is None else int(url.rpartition(":")[2].partition("/")[0])

    @property
    def path(self) -> str:
        """Root folder of the store."""
        return self._running().path

    @property
    def store(self) -> MessageStore:
        """The open MessageStore. With process=True there is none: another process has it open."""
        store = self._running().store
        if store is None:
            raise AttributeError("store: the broker runs in another process; use Broker() without process=True")
        return store

    @property
    def topics(self) -> BrokerTopics:
        """The topics: a mapping of TopicConfig by name, with create() and delete()."""
        return BrokerTopics(self._running)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(*((Exception,) if kind is not None else ())):
            self.close()

    async def __aenter__(self) -> Self:
        import asyncio  # late, as all that a broker in another process does not need: it costs time

        from rocketc.store.futures import close_in_thread

        starting = asyncio.get_running_loop().run_in_executor(None, self.start)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if starting.exception() is None:
                await close_in_thread(self.close)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        from rocketc.store.futures import close_in_thread

        with contextlib.suppress(*((Exception,) if kind is not None else ())):
            await close_in_thread(self.close)

    def __repr__(self) -> str:
        engine = self._engine
        if engine is None or self._pid != os.getpid():
            return "<rocketc.Broker, closed>"
        return f"<rocketc.Broker {engine.address}, name server {engine.name_server}, store {engine.path}>"


class BrokerTopics(Mapping[str, "TopicConfig"]):
    """The topics of a broker, by name.

    >>> import rocketc
    >>> with rocketc.Broker() as broker:
    ...     _ = broker.topics.create("orders", 8)
    ...     broker.topics.delete("orders")
    ...     "orders" in broker.topics
    False
    """

    def __init__(self, running: Callable[[], BrokerThread | ChildBroker]) -> None:
        self._running = running

    def __getitem__(self, name: str) -> TopicConfig:
        return self._running().topics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._running().topics))

    def __len__(self) -> int:
        return len(self._running().topics)

    def create(self, name: str, queue_nums: int | None = None) -> TopicConfig:
        """Return a topic; create it if it does not exist. When this returns, clients find its queues.

        queue_nums  None: 4 for a new topic, and any number for one that exists. With process=True,
                    default_topic_queue_nums is the most, 8 if it is not set, and auto_create_topic_enable must be True
        Raises IllegalMessageError for a name that RocketMQ does not allow, ValueError if the topic has another number
        of queues.
        """
        from rocketc.tables.topics import topic_name_error

        if wrong := topic_name_error(name):
            raise IllegalMessageError(f"{name!r}: {wrong}")
        if queue_nums is not None:
            queue_nums = whole_number("queue_nums", queue_nums, 1, _MOST_QUEUES)
        made = self._running().create_topic(name, queue_nums)
        if queue_nums is not None and made.write_queue_nums != queue_nums:
            raise ValueError(
                f"topic {name!r} has {made.write_queue_nums} queues, not {queue_nums}: delete() it before, or change "
                "it with Admin.create_topic()"
            )
        return made

    def delete(self, name: str) -> None:
        """Delete a topic with its messages, and the offsets of all groups in it. Then clients do not find it any more.

        It is deleted on all brokers that the name server knows. Raises AnswerError if no broker has it.
        """
        import asyncio  # late: see Broker
        import concurrent.futures

        from rocketc.client.admin import Admin

        async def delete() -> None:
            async with Admin(self._running().name_server) as admin:
                await admin.delete_topic(name)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:  # the caller's thread may run a loop
            pool.submit(asyncio.run, delete()).result()

    def __repr__(self) -> str:
        return f"<topics {sorted(self)}>"


def _forked() -> None:
    for broker in _open:
        if broker._engine is not None:
            broker._engine.forget()
    _open.clear()


def _close_all() -> None:
    for broker in list(_open):
        with contextlib.suppress(Exception):
            broker.close()


@functools.cache
def _close_at_exit() -> None:
    """Have open brokers closed at exit, before the store closes its files: handlers run in the reverse order."""
    atexit.register(_close_all)


os.register_at_fork(after_in_child=_forked)
