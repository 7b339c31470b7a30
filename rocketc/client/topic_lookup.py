"""Finds messages of a cluster by id and by key, as mqadmin does.

Source: RocketMQ MQAdminImpl.viewMessage, queryMessage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rocketc.client.access import Access
from rocketc.client.connections import UNREACHABLE
from rocketc.client.contexts import AsyncContext
from rocketc.client.topic_reader import TIMEOUT, TopicReader
from rocketc.errors import AnswerError, TopicNotFoundError
from rocketc.format.ids import OffsetId
from rocketc.read._message import Message
from rocketc.read.record_block import RecordBlock
from rocketc.read.record_stream import RecordStream
from rocketc.remoting.codes import Code

_EVER = (1 << 63) - 1
_NOTHING_THERE = "can not find message by the offset"  # in the remark of a SYSTEM_ERROR; others are errors


class TopicLookup(AsyncContext):
    """Asks all brokers for messages. Use it on one event loop.

    access      the way to the cluster
    decompress  bodies
    Methods raise the errors of TopicReader.

    >>> import asyncio, rocketc
    >>> from rocketc.client.access import access_to
    >>> async def main(name_server):
    ...     async with TopicLookup(access_to(name_server)) as lookup:
    ...         return await lookup.with_key("orders", ["o-1"])
    >>> with rocketc.Broker() as broker, rocketc.client.Producer("shop", broker.name_server) as producer:
    ...     _ = producer.send("orders", b"one", keys="o-1")
    ...     [message.body for message in asyncio.run(main(broker.name_server))]
    [b'one']
    """

    def __init__(self, access: Access, *, decompress: bool = True, timeout: float = TIMEOUT) -> None:
        self._reader, self._decompress = TopicReader(access, timeout=timeout), decompress

    async def start(self) -> None:
        """Begin; `async with` does it."""
        await self._reader.start()

    async def close(self) -> None:
        """Close the connections."""
        await self._reader.close()

    async def at(self, wanted: OffsetId, topic: str | None = None) -> list[Message]:
        """Return the messages of the record that an offset id names; nothing if no broker has it.

        The broker at the address in the id is asked if it is one of the cluster. Otherwise all masters are asked: an id
        may have the address that a broker has inside its network. No other address is connected to.
        """
        masters = (await self._reader.cluster()).masters()
        address = str(wanted.store_host)
        asked = {name: one for name, one in masters.items() if one == address} or masters
        values: dict[str, Any] = {"topic": topic, "offset": wanted.phy_offset}
        blocks = await self._each(asked, "VIEW_MESSAGE_BY_ID", values)
        return [message for message in self._messages(blocks, topic) if message.msg_id == wanted.encode()]

    async def with_key(self, topic: str, keys: Sequence[str], *, most: int = 64) -> list[Message]:
        """Return the messages of a topic with one of some keys, by store time.

        keys  keys of the messages, or their unique ids
        most  messages that each broker returns for a key
        Raises TopicNotFoundError.
        """
        if await self._reader.find(topic) is None:
            raise TopicNotFoundError(await self._reader.missing(topic))
        masters, blocks = self._reader.masters(topic), list[RecordBlock]()
        for key in dict.fromkeys(keys):
            values = {"topic": topic, "key": key, "maxNum": most, "beginTimestamp": 0, "endTimestamp": _EVER}
            blocks += await self._each(masters, "QUERY_MESSAGE", values)
        found = {(m.broker_name, m.phy_offset, m.queue_offset): m for m in self._messages(blocks, topic, keys)}
        return sorted(found.values(), key=lambda m: (m.store_timestamp, m.phy_offset))

    async def _each(self, brokers: Mapping[str, str], name: str, values: dict[str, Any]) -> list[RecordBlock]:
        """Ask several brokers, by their names. One that is not reached fails the call if no other one has an answer."""
        asked = [self._records(address, name, values) for address in brokers.values()]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = zip(brokers, answers, strict=True)
        blocks = [RecordBlock(one, (broker,)) for broker, one in found if isinstance(one, bytes) and one]
        for one in answers:
            if isinstance(one, BaseException) and not (blocks and isinstance(one, (*UNREACHABLE, AnswerError))):
                raise one
        return blocks

    async def _records(self, address: str, name: str, values: dict[str, Any]) -> bytes:
        try:
            return await self._reader.records(address, name, values, (Code.QUERY_NOT_FOUND,))
        except AnswerError as error:
            if error.code == Code.SYSTEM_ERROR and _NOTHING_THERE in str(error):
                return b""
            raise

    def _messages(
        self, blocks: Sequence[RecordBlock], topic: str | None, keys: Sequence[str] | None = None
    ) -> list[Message]:
        """Return the messages of a topic with one of some keys; None: any. Brokers answer with all of the same hash."""
        records = RecordStream("answers", lambda idle: blocks, keys=keys, decompress=self._decompress)
        return [message for message in records if topic in (None, message.topic)]
