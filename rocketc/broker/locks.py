"""The locks of queues: one client of a group consumes a queue in order.

Source: RocketMQ RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LOCK_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime
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

    live_ms  a lock that is not taken again for longer is free
    most     locks of all groups together; beyond, only queues that are locked already are locked

    >>> locks, queue = RebalanceLockManager(), MessageQueue("orders", "broker-a", 0)
    >>> locks.lock("audit", [queue], "c1", now=0) == {queue}, locks.lock("audit", [queue], "c2", now=60_000)
    (True, set())
    >>> locks.lock("audit", [queue], "c2", now=60_001) == {queue}
    True
    """

    def __init__(self, live_ms: int = LOCK_MS, most: int = LOCKS_MOST) -> None:
        self._live_ms, self._most = live_ms, most
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0  # locks of all groups
        self._expired_at = 0  # when expire() last looked, to make room

    def _is_expired(self, lock: _Lock, now: int) -> bool:
        return now - lock.last_update > self._live_ms

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now: int) -> set[MessageQueue]:
        """Lock queues for a client, or renew its locks. Return those that it now has."""
        if self._count >= self._most and now - self._expired_at >= 1000:
            self._expired_at = now
            self.expire(now)
        locks = self._groups.setdefault(group, {})
        held = set()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= self._most:
                    continue
                self._count += 1
            elif lock.client_id != client_id and not self._is_expired(lock, now):
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
        freed = {queue for queue in queues if queue in locks and locks[queue].client_id == client_id}
        for queue in freed:
            del locks[queue]
        self._count -= len(freed)
        if not locks:
            del self._groups[group]
        return freed

    def is_locked(self, group: str, queue: MessageQueue, client_id: str, now: int) -> bool:
        """Whether a client has a live lock of a queue."""
        lock = self._groups.get(group, {}).get(queue)
        return lock is not None and lock.client_id == client_id and not self._is_expired(lock, now)

    def all_expired(self, group: str, now: int) -> bool:
        """Whether all locks of a group are expired; also if it does not have any."""
        return all(self._is_expired(lock, now) for lock in self._groups.get(group, {}).values())

    def count(self, group: str) -> int:
        """Return the number of a group's locks, with expired ones that expire() has not removed."""
        return len(self._groups.get(group, {}))

    def expire(self, now: int) -> int:
        """Remove expired locks; a look-up never needs it, but memory does. Return their number."""
        removed = 0
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if self._is_expired(lock, now)]:
                del locks[queue]
                removed += 1
            if not locks:
                del self._groups[group]
        self._count -= removed
        return removed
