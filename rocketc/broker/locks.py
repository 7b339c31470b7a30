"""The locks of queues: one client of a group consumes a queue in order.

Source: RocketMQ RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

LOCK_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime
LOST_LOCK_MS = 31_000  # of an owner without a connection: clients trust a lock for 30 s, rebalance.lockMaxLiveTime
LOCKS_MOST = 100_000  # of all groups


class MessageQueue(NamedTuple):
    """A queue of a topic on a broker."""

    topic: str
    broker_name: str
    queue_id: int


class _Lock(NamedTuple):
    client_id: str
    last_update: int


class RebalanceLockManager:
    """Which client has locked which queue. Locks are kept in memory only. `now` is ms of the caller's clock.

    clients  returns the ids of the clients of a group that have a connection
    most     locks of all groups together; beyond, only queues that are locked already are locked
    A lock that is not taken again for LOCK_MS is free, and one whose owner is not connected after LOST_LOCK_MS. It is
    not free sooner: an owner that is cut off works on until it stops to trust its lock.

    >>> locks, queue = RebalanceLockManager(lambda group: ["c1"]), MessageQueue("orders", "broker-a", 0)
    >>> locks.lock("audit", [queue], "c1", now=0) == {queue}, locks.lock("audit", [queue], "c2", now=60_000)
    (True, set())
    >>> locks.lock("audit", [queue], "c2", now=60_001) == {queue}
    True
    """

    def __init__(self, clients: Callable[[str], Container[str]], most: int = LOCKS_MOST) -> None:
        self._clients, self._most = clients, most
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0  # locks of all groups
        self._expired_at = 0  # when expire() last looked, to make room

    def _expiry(self, group: str, now: int) -> Callable[[_Lock], bool]:
        """Return what tells if a lock of a group is free now. It looks at the group's clients at most once."""
        clients: Container[str] | None = None

        def is_expired(lock: _Lock) -> bool:
            nonlocal clients
            age = now - lock.last_update
            if not LOST_LOCK_MS < age <= LOCK_MS:
                return age > LOCK_MS
            if clients is None:
                clients = self._clients(group)
            return lock.client_id not in clients

        return is_expired

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: int) -> set[MessageQueue]:
        """Lock queues for a client, or renew its locks. Return those that it now has."""
        if self._count >= self._most and now - self._expired_at >= 1000:
            self._expired_at = now
            self.expire(now)
        locks, is_expired = self._groups.setdefault(group, {}), self._expiry(group, now)
        held = set()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= self._most:
                    continue
                self._count += 1
            elif lock.client_id != client_id and not is_expired(lock):
                continue
            locks[queue] = _Lock(client_id, now)
            held.add(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> set[MessageQueue]:
        """Remove a client's locks. Return the queues that it had locked; other clients' locks stay."""
        locks = self._groups.get(group)
        if locks is None:
            return set()
        return self._free(group, {queue for queue in queues if queue in locks and locks[queue].client_id == client_id})

    def unlock_all(self, group: str, client_id: str) -> set[MessageQueue]:
        """Remove all locks of a client that leaves a group. Return the queues that it had locked."""
        locks = self._groups.get(group, {})
        return self._free(group, {queue for queue, lock in locks.items() if lock.client_id == client_id})

    def _free(self, group: str, freed: set[MessageQueue]) -> set[MessageQueue]:
        if not freed:
            return freed
        locks = self._groups[group]
        for queue in freed:
            del locks[queue]
        self._count -= len(freed)
        if not locks:
            del self._groups[group]
        return freed

    def is_locked(self, group: str, queue: MessageQueue, client_id: str, now: int) -> bool:
        """Whether a client has a live lock of a queue."""
        lock = self._groups.get(group, {}).get(queue)
        return lock is not None and lock.client_id == client_id and not self._expiry(group, now)(lock)

    def all_expired(self, group: str, now: int) -> bool:
        """Whether all locks of a group are expired; also if it does not have any."""
        return all(map(self._expiry(group, now), self._groups.get(group, {}).values()))

    def count(self, group: str) -> int:
        """Return the number of a group's locks, with expired ones that expire() has not removed."""
        return len(self._groups.get(group, {}))

    def expire(self, now: int) -> int:
        """Remove expired locks; a look-up never needs it, but memory does. Return their number."""
        removed = 0
        for group, locks in list(self._groups.items()):
            is_expired = self._expiry(group, now)
            for queue in [queue for queue, lock in locks.items() if is_expired(lock)]:
                del locks[queue]
                removed += 1
            if not locks:
                del self._groups[group]
        self._count -= removed
        return removed
