"""The processors of tools' requests, as a controller serves them."""

from __future__ import annotations

from collections.abc import Callable

from rocketc.broker.admin.group_admin import GroupAdmin
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.admin.topic_admin import TopicAdmin
from rocketc.broker.groups import GroupManager
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.table_writer import TableWriter
from rocketc.broker.topics import TopicManager
from rocketc.remoting.server import Processor
from rocketc.store._store import MessageStore


class AdminProcessors:
    """All processors of this package.

    forget_topic  called with each topic before it is deleted
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicManager,
        groups: GroupManager,
        offsets: ConsumerOffsetManager,
        writer: TableWriter,
        *,
        forget_topic: Callable[[str], object],
    ) -> None:
        self._work = StoreWork(in_thread=store.background)
        self.topics = TopicAdmin(store, topics, self._work, forget_topic)
        self.processors: list[Processor] = [
            self.topics,
            GroupAdmin(groups, topics, offsets, writer, self.topics.delete),
        ]

    async def close(self) -> None:
        """Wait until nothing works on the store."""
        await self._work.close()
