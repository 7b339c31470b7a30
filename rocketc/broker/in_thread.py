"""A broker on a thread of this process, as Broker() starts it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading

from rocketc.broker.config import BrokerConfig
from rocketc.broker.running import RunningBroker, running_broker
from rocketc.broker.settings import temporary_folder
from rocketc.config import StoreConfig
from rocketc.remoting.loops import run_in_daemon
from rocketc.tables.topics import NEW_TOPIC_QUEUES, TopicConfig


class BrokerThread:
    """A broker on a thread with an event loop; the constructor returns when it serves, or raises why it does not."""

    def __init__(self, root: str | None, config: BrokerConfig, store_config: StoreConfig, namesrv_port: int) -> None:
        self._settings = (config, store_config, namesrv_port)
        self._ready: concurrent.futures.Future[RunningBroker] = concurrent.futures.Future()
        self._failure: BaseException | None = None
        self._folder = temporary_folder() if root is None else contextlib.nullcontext(root)
        self._thread = threading.Thread(target=self._run, name="rocketc-broker", daemon=True)
        self._thread.start()
        try:
            running = self._ready.result()
        except BaseException:  # of the start, or Ctrl-C
            concurrent.futures.wait([self._ready])
            if self._ready.exception() is None:
                self.close()
            self._thread.join()
            raise
        self._controller = running.controller
        self.store, self.topics = running.controller.store, running.controller.topics.table
        self.name_server, self.address = running.name_server, running.address
        self.ha_address, self.metrics_url = running.ha_address, running.metrics_url

    def _run(self) -> None:
        try:
            with self._folder as self.path:
                run_in_daemon(self._serve())
        except BaseException as error:
            if self._ready.done():
                self._failure = error
            else:
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        config, store_config, namesrv_port = self._settings
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with running_broker(self.path, config, store_config, namesrv_port=namesrv_port) as running:
            self._ready.set_result(running)
            await running.controller.run_until(self._stop)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the broker has failed
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def forget(self) -> None:
        """In a forked child there is no thread, and nothing to close."""

    def create_topic(self, name: str, queue_nums: int | None) -> TopicConfig:
        return asyncio.run_coroutine_threadsafe(
            self._create_topic(name, queue_nums or NEW_TOPIC_QUEUES), self._loop
        ).result()

    async def _create_topic(self, name: str, queue_nums: int) -> TopicConfig:
        topic = self._controller.topics.create_if_missing(name, queue_nums)
        if topic is None:
            raise ValueError(f"{name}: the topic is being deleted; create it again when that has ended")
        await self._controller.name_servers.register()
        return topic
