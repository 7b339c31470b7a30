"""The locks of the queues of an orderly consumer, which brokers keep: only the owner of a lock consumes the queue.

Source: RocketMQ RebalanceImpl.lock, lockAll, unlock; RebalancePushImpl.removeUnnecessaryMessageQueue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from rocketc.client.connections import UNREACHABLE
from rocketc.client.instance import ClientInstance
from rocketc.client.owned_queue import Owned
from rocketc.client.routes import MessageQueue
from rocketc.client.troubles import Troubles
from rocketc.client.waiters import wait_set
from rocketc.errors import AnswerError
from rocketc.remoting.requests import CODES
from rocketc.tables.fastjson import to_bytes

_log = logging.getLogger("rocketc.client")

_LOCK_PERIOD = 20.0  # seconds between two renewals of all locks
_AGAIN_SECONDS = 1.0  # after a renewal that a broker did not answer


class QueueLocks:
    """Locks queues, renews the locks while keep() runs, and unlocks queues.

    owned   the queues of this consumer, which the caller changes
    master  returns the address of the master of a queue; raises AnswerError
    now     ms of a clock that is never set back
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        owned: Mapping[MessageQueue, Owned],
        master: Callable[[MessageQueue], str],
        now: Callable[[], int],
    ) -> None:
        self._instance, self._group, self._owned, self._master, self._now = instance, group, owned, master, now
        self._is_failed = False  # a broker did not answer
        self._troubles = Troubles()
        self._due = asyncio.Event()

    def renew(self) -> None:
        """Renew all locks at once: a broker may have restarted, and it keeps them in memory only."""
        self._due.set()

    async def keep(self) -> None:
        """Renew all locks again and again."""
        seconds = _LOCK_PERIOD
        while True:
            await wait_set(self._due, seconds)
            self._due.clear()
            self._is_failed = False
            await self._renew(list(self._owned.values()))
            seconds = _AGAIN_SECONDS if self._is_failed else _LOCK_PERIOD  # its queues are not pulled until then

    async def relock(self, one: Owned) -> bool:
        """Ask for the lock of a queue that this consumer had; return whether it has it now."""
        await self._renew([one])
        return one.process_queue.is_locked

    async def _renew(self, asked: Sequence[Owned]) -> None:
        """Ask for the locks of queues that this consumer had. Those that it took meanwhile keep their own."""
        now = self._now()  # a lock counts from its request on: the answer may take long
        locked = await self.lock([one.queue for one in asked])
        for one in asked:
            if one.queue in locked:
                one.process_queue.set_locked(now)
            else:
                one.process_queue.is_locked = False

    async def lock(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Ask for the locks of some queues; return those that this consumer has."""
        locked: set[MessageQueue] = set()
        for address, body in self._by_broker(queues).items():
            what = f"{self._group}: a lock of queues at {address}"
            try:
                found = await self._instance.connections.ask(
                    address, CODES["LOCK_BATCH_MQ"], {}, lambda fields: fields.objects("lockOKMQSet"), body
                )
                locked |= {
                    MessageQueue(each.text("topic"), each.text("brokerName"), each.number("queueId")) for each in found
                }
            except (*UNREACHABLE, AnswerError, ValueError) as error:
                self._is_failed = True
                self._troubles.failed(what, error)
            else:
                self._troubles.works(what)
        return locked

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        """Unlock some queues. A lock that its broker does not release expires."""
        for address, body in self._by_broker(queues).items():
            try:
                await self._instance.connections.send(address, CODES["UNLOCK_BATCH_MQ"], {}, body)
            except (*UNREACHABLE, AnswerError) as error:
                _log.debug("%s: queues at %s are not unlocked: %s", self._group, address, error)

    def _by_broker(self, queues: Sequence[MessageQueue]) -> dict[str, bytes]:
        """The bodies of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ by the address of the master."""
        found: dict[str, list[dict[str, object]]] = {}
        for queue in queues:
            try:
                address = self._master(queue)
            except AnswerError:
                continue
            entry: dict[str, object] = {
                "brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic,
            }  # fmt: skip
            found.setdefault(address, []).append(entry)
        return {
            address: to_bytes(
                {
                    "clientId": self._instance.client_id,
                    "consumerGroup": self._group,
                    "mqSet": entries,
                    "onlyThisBroker": False,
                },
                compact=True,
            )
            for address, entries in found.items()
        }
