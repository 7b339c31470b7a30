"""Clients and brokers that are broken in one way each, so that queues get two owners, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simulation.mutants import Change, nothing, replace

from rocketc.broker import locks
from rocketc.client import connections, group_member, heartbeats, queue_locks
from rocketc.remoting import channel

MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks client or broker, and words of what is then found


def mutant(found: str) -> Any:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


@mutant("two owners")
def a_heartbeat_that_fails_is_not_repeated() -> None:
    replace(heartbeats.Heartbeats, "_repeat", nothing)


@mutant("two owners")
def a_list_without_members_is_believed() -> None:
    """A broker that has just restarted does not know all members yet."""
    replace(heartbeats.Heartbeats, "settled_at", lambda self, address: 0.0)
    replace(group_member, "_LEAST_SECONDS", 5.0)  # so that a list that is not complete shows


@mutant("two owners")
def members_come_back_late() -> None:
    backoff = channel.backoff
    for module in (channel, heartbeats):
        replace(module, "backoff", lambda failures, chance: backoff(failures, chance, most=10.0))


@mutant("two owners")
def locks_are_not_asked_for_again() -> None:
    replace(queue_locks.QueueLocks, "renew", nothing)


@mutant("ordered had a queue with two owners")
def locks_count_from_their_answer() -> None:
    async def renew(self: Any, asked: Sequence[Any]) -> None:
        locked = await self.lock([one.queue for one in asked])
        for one in asked:
            one.process_queue.is_locked = one.queue in locked
            one.process_queue.last_lock = self._now()

    replace(queue_locks.QueueLocks, "_renew", renew)


@mutant("ordered had a queue with two owners")
def locks_end_with_the_connection() -> None:
    replace(locks, "LOST_LOCK_MS", 0)


@mutant("the owners of")
def dead_connections_stay() -> None:
    replace(connections.Connections, "leave", nothing)
