"""Requests that tools send to a client through its broker: its state, and one message to consume.

Source: RocketMQ AdminBrokerProcessor.callConsumer, Broker2Client; codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Protocol

from rocketc.broker.admin import forms
from rocketc.broker.admin.store_work import StoreWork
from rocketc.broker.consumers import ClientChannel, ConsumerManager
from rocketc.errors import BadRequestError, ConnectionLostError, NoAnswerError, NotSentError, RocketcError
from rocketc.format.ids import decode_offset_id
from rocketc.read._message import Message
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.server import Answer, Call

STATUS, RUNNING_INFO, CONSUME_DIRECTLY = 223, 307, 309
STATUS_FROM_CLIENT = 221
RELAY_SECONDS, STATUS_SECONDS = 10.0, 5.0
V3_0_7, V3_1_8 = 28, 62  # releases from which clients know STATUS_FROM_CLIENT, and the two others
CLIENTS_MOST = 1000  # that one request asks
UNSET = "not set any response code"

CallClient = Callable[[Any, int, Mapping[str, Any], bytes, float], "asyncio.Future[Command]"]
_LOST = (NotSentError, ConnectionLostError, NoAnswerError, ValueError)  # ValueError: the frame is too large


class RecordStore(Protocol):
    """What ClientRelay needs of a store."""

    def message(self, phy_offset: int, *, crc: str = "body", decompress: bool = True) -> Message | None: ...
    def read_raw(self, phy_offset: int, max_bytes: int = 262144) -> bytes: ...


class ClientRelay:
    """Answers requests with the answers of clients.

    call_client  see Server.call()
    work         reads records
    """

    codes = (STATUS, RUNNING_INFO, CONSUME_DIRECTLY)

    def __init__(
        self,
        store: RecordStore,
        consumers: ConsumerManager,
        call_client: CallClient,
        broker_name: str,
        work: StoreWork,
    ) -> None:
        self._store, self._consumers, self._call_client = store, consumers, call_client
        self._broker_name, self._work = broker_name, work
        self._tasks: set[asyncio.Task[None]] = set()

    def process(self, call: Call) -> Answer | None:
        if call.command.code == STATUS:
            return self._status(call)
        return self._running_info(call) if call.command.code == RUNNING_INFO else self._consume(call)

    # one client

    def _running_info(self, call: Call) -> Answer | None:
        return self._relay(call, call.values, b"")

    def _consume(self, call: Call) -> Answer | None:
        """Send the client the message with this offset id; it is consumed again, and no offset moves."""
        try:
            found = decode_offset_id(call.values.get("msgId", ""))
        except ValueError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))

        def relay(record: bytes | None) -> Answer | None:
            if record is None:
                return Answer(Code.SYSTEM_ERROR, remark=f"can not find message by the offset, {found.phy_offset}")
            values = {**call.values, "brokerName": self._broker_name, "groupSysFlag": 0}
            if "topic" in values:
                values["topicSysFlag"] = 0
            return self._relay(call, values, record)

        return self._work.look(call, lambda: self._record(found.phy_offset), relay)

    def _record(self, phy_offset: int) -> bytes | None:
        """Read the record of a message, on a thread; None if there is none."""
        try:
            message = self._store.message(phy_offset, crc="none", decompress=False)
        except (RocketcError, ValueError):
            return None
        return None if message is None else bytes(self._store.read_raw(message.phy_offset, 1))

    def _relay(self, call: Call, values: Mapping[str, Any], body: bytes) -> Answer | None:
        name, client_id = call.values["consumerGroup"], call.values.get("clientId")
        group = self._consumers.group(name)
        found = None if group is None or client_id is None else group.channel(client_id)
        if found is None:
            shown = "null" if client_id is None else client_id
            return Answer(Code.SYSTEM_ERROR, remark=f"The Consumer <{name}> <{shown}> not online")
        connection, channel = found
        if channel.version < V3_1_8:
            return Answer(
                Code.SYSTEM_ERROR,
                remark=f"The Consumer <{client_id}> Version <{channel.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        self._answer_later(call, self._ask(call, connection, f"<{name}> <{client_id}>", values, body))
        return None

    async def _ask(self, call: Call, connection: Hashable, who: str, values: Mapping[str, Any], body: bytes) -> Answer:
        try:
            answer = await self._call_client(connection, call.command.code, values, body, RELAY_SECONDS)
        except NoAnswerError as error:
            return Answer(Code.CONSUME_MSG_TIMEOUT, remark=f"consumer {who} Timeout: {error}")
        except _LOST as error:
            return Answer(Code.SYSTEM_ERROR, remark=f"invoke consumer {who} Exception: {error}")
        return Answer(answer.code, body=bytes(answer.body), remark=answer.remark, fields=answer.fields)

    # all clients of a group

    def _status(self, call: Call) -> Answer | None:
        name, topic, wanted = call.values["group"], call.values["topic"], call.values.get("clientAddr")
        group = self._consumers.group(name)
        if group is None:
            return Answer(Code.SYSTEM_ERROR, remark=f"the consumer group[{name}] not online")
        for channel in group.channels.values():
            if channel.version < V3_0_7:
                remark = f"the client does not support this feature. version={channel.version}"
                return Answer(Code.SYSTEM_ERROR, remark=remark)
        asked = [one for one in group.channels.items() if not wanted or one[1].client_id == wanted][:CLIENTS_MOST]
        self._answer_later(call, self._ask_all(asked, {"group": name, "topic": topic}))
        return None

    async def _ask_all(self, asked: list[tuple[Hashable, ClientChannel]], values: Mapping[str, Any]) -> Answer:
        """As in RocketMQ, clients that do not answer are left out."""
        calls = [self._status_of(connection, values) for connection, _ in asked]
        found = await asyncio.gather(*calls)
        tables = {
            channel.client_id: table for (_, channel), table in zip(asked, found, strict=True) if table is not None
        }
        body = forms.joined({"consumerTable": forms.joined(tables), "messageQueueTable": b"{}"})
        return Answer(body=body, remark=UNSET)

    async def _status_of(self, connection: Hashable, values: Mapping[str, Any]) -> bytes | None:
        try:
            answer = await self._call_client(connection, STATUS_FROM_CLIENT, values, b"", STATUS_SECONDS)
            if answer.code != Code.SUCCESS or not answer.body:
                return None
            return forms.queue_map(forms.queue_numbers(bytes(answer.body), "messageQueueTable"))
        except (*_LOST, BadRequestError):
            return None

    def _answer_later(self, call: Call, answer: Awaitable[Answer]) -> None:
        async def whole() -> None:
            call.later(await answer)

        call.hold()
        task = asyncio.get_running_loop().create_task(whole(), name="answer of a client")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End the calls that wait."""
        for task in self._tasks:
            task.cancel()
