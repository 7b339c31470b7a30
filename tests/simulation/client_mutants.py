"""Clients that are broken in one way each: the simulation must find what is wrong with every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rocketc.client import (
    async_consumer,
    async_producer,
    concurrent_service,
    connections,
    group_member,
    heartbeats,
    in_flight,
    instance,
    orderly_service,
    owned_queue,
    process_queue,
    queue_locks,
    route_table,
    strategies,
)
from rocketc.client.consume_results import ConsumeOrderlyStatus
from rocketc.errors import ConnectionLostError, NoAnswerError
from rocketc.remoting import channel

Change = Callable[[], object]
MUTANTS: dict[str, tuple[Change, str]] = {}  # what breaks the client, and words of what is then found


def mutant(found: str) -> Callable[[Change], Change]:
    def note(change: Change) -> Change:
        MUTANTS[change.__name__] = change, found
        return change

    return note


def replace(owner: Any, name: str, other: Any) -> None:
    assert hasattr(owner, name), f"there is no {name} in {owner}"
    setattr(owner, name, other)


async def later(*arguments: Any, **named: Any) -> None:
    pass


# offsets


@mutant("is not consumed")
def offsets_pass_messages_in_hand() -> None:
    remove = process_queue.ProcessQueue.remove

    def removed(self: Any, messages: Any) -> int:
        offset = remove(self, messages)
        return offset if offset == process_queue.NOTHING else self.pulled_to

    replace(process_queue.ProcessQueue, "remove", removed)


@mutant("is not consumed")
def orderly_offsets_pass_messages_in_hand() -> None:
    commit = process_queue.ProcessQueue.commit

    def committed(self: Any) -> int:
        offset = commit(self)
        return offset if offset == process_queue.NOTHING else self.pulled_to

    replace(process_queue.ProcessQueue, "commit", committed)


@mutant("is not consumed")
def readers_commit_what_is_pulled() -> None:
    submit = async_consumer._Iterated.submit

    def submitted(self: Any, owned: Any, messages: Any, begins: bool) -> None:
        submit(self, owned, messages, begins)
        self._member.offsets.update(owned.queue, messages[-1].queue_offset + 1, increase_only=True)

    replace(async_consumer._Iterated, "submit", submitted)


@mutant("is not consumed|never consumed")
def filtered_pulls_move_the_offset() -> None:
    """An empty pull moves the offset, also while messages are in hand."""
    after = group_member.after_pull
    replace(group_member, "after_pull", lambda *what: after(*what)._replace(saves_offset=True))


@mutant("never consumed|is not consumed|out of order|at the end, the offset")
def queues_begin_at_their_end() -> None:
    async def begin(queue: Any, where: Any, timestamp: int, read: Any, broker: Any) -> int:
        return int(await broker.max_offset(queue))

    replace(group_member, "compute_pull_from_where", begin)


# messages


@mutant("never consumed|is not consumed")
def pulls_skip_a_message() -> None:
    pulled = group_member.pulled_messages

    def skipping(body: Any, *what: Any) -> Any:
        messages, errors, end = pulled(body, *what)
        return [one for one in messages if one.queue_offset % 50 != 7], errors, end

    replace(group_member, "pulled_messages", skipping)


@mutant("never consumed")
def failed_messages_are_dropped() -> None:
    async def back(self: Any, *what: Any) -> bool:
        return True

    replace(concurrent_service.ConcurrentService, "_send_back", back)


@mutant("never consumed")
def sends_without_an_answer_are_acknowledged() -> None:
    """Some lost connections count as success."""
    call = connections.Connections.call_frame

    async def called(self: Any, address: str, code: int, *what: Any, **how: Any) -> Any:
        try:
            return await call(self, address, code, *what, **how)
        except (NoAnswerError, ConnectionLostError):
            fields = {"msgId": "0", "queueId": "0", "queueOffset": "1000000"}
            return channel.Command(0, fields)

    replace(connections.Connections, "call_frame", called)


# order


@mutant("stored out of order")
def shards_take_any_queue() -> None:
    """Messages of a shard overtake each other: a send returns before it is answered."""
    send = async_producer.AsyncProducer.send

    async def early(self: Any, topic: str, body: Any, **how: Any) -> Any:
        before = getattr(self, "before", None)
        sent = await send(self, topic, body, **how)
        self.before = sent
        return before or sent if how.get("shard") else sent

    replace(async_producer.AsyncProducer, "send", early)


@mutant("out of order")
def failures_of_orderly_listeners_are_skipped() -> None:
    replace(orderly_service, "orderly_status", lambda returned: ConsumeOrderlyStatus.SUCCESS)
    status = orderly_service.OrderlyService._status

    async def success(self: Any, *what: Any) -> ConsumeOrderlyStatus:
        await status(self, *what)
        return ConsumeOrderlyStatus.SUCCESS

    replace(orderly_service.OrderlyService, "_status", success)


@mutant("out of order")
def messages_that_failed_come_last() -> None:
    def again(self: Any, messages: Any) -> None:
        for message in messages:
            self._waiting[message.queue_offset] = self._in_hand.pop(message.queue_offset)
            self._order.append(message.queue_offset)

    replace(process_queue.ProcessQueue, "make_again", again)


@mutant("at the same time")
def locks_are_not_asked_for() -> None:
    async def lock(self: Any, queues: Any) -> set[Any]:
        return set(queues)

    replace(queue_locks.QueueLocks, "lock", lock)


@mutant("at the same time")
def queues_are_unlocked_in_a_call() -> None:
    async def goes_on(self: Any) -> bool:
        return True

    replace(owned_queue.Owned, "wait_between_calls", goes_on)


@mutant("out of order")
def two_turns_of_a_queue() -> None:
    submit = orderly_service.OrderlyService.submit

    def submitted(self: Any, owned: Any, messages: Any, begins: bool) -> None:
        owned.consuming = asyncio.Lock()
        submit(self, owned, messages, True)

    replace(orderly_service.OrderlyService, "submit", submitted)


# groups


@mutant("the owners of")
def members_are_not_sorted() -> None:
    members = group_member.GroupMember._members

    async def shuffled(self: Any, topic: str) -> list[str]:
        found = await members(self, topic)
        self._instance.chance.shuffle(found)
        return found

    replace(group_member.GroupMember, "_members", shuffled)


@mutant("the owners of")
def the_last_queue_goes_to_nobody() -> None:
    for kind in (strategies.Averagely, strategies.AveragelyByCircle):
        replace(kind, "allocate", _short(kind.allocate))


def _short(allocate: Any) -> Any:
    def allocated(self: Any, group: str, client_id: str, queues: Any, client_ids: Any) -> Any:
        return allocate(self, group, client_id, queues[:-1] or queues, client_ids)

    return allocated


@mutant("the owners of")
def queues_are_never_given_back() -> None:
    update = group_member.GroupMember._update

    async def keep(self: Any, topic: str, mine: Any) -> bool:
        held = [queue for queue in self.owned if queue.topic == topic]
        return bool(await update(self, topic, [*mine, *(queue for queue in held if queue not in mine)]))

    replace(group_member.GroupMember, "_update", keep)


@mutant("the owners of")
def changes_are_not_looked_at() -> None:
    replace(group_member, "_REBALANCE_SECONDS", 1e6)
    replace(group_member.GroupMember, "members_changed", lambda self: None)


@mutant("the owners of|never consumed")
def pulls_end_with_the_connection() -> None:
    once = group_member.GroupMember._pull_once

    async def ended(self: Any, one: Any) -> int | None:
        try:
            return await once(self, one)  # type: ignore[no-any-return]
        except ConnectionLostError:
            return None

    replace(group_member.GroupMember, "_pull_once", ended)


@mutant("the owners of|never consumed")
def heartbeats_are_sent_once() -> None:
    async def every(self: Any, interval_ms: int, work: Any) -> None:
        await asyncio.sleep(1e6)

    replace(instance.ClientInstance, "_every", every)
    replace(heartbeats.Heartbeats, "_repeat", lambda self, *what: None)
    send = heartbeats.Heartbeats.heartbeat_and_wait

    async def once(self: Any, address: str, *what: Any) -> None:
        if address not in self.versions:
            await send(self, address, *what)

    replace(heartbeats.Heartbeats, "heartbeat_and_wait", once)


@mutant("the owners of|never consumed|send took")
def lost_connections_stay() -> None:
    replace(channel.Channel, "_leave", lambda self, link: None)


# ends


@mutant("a send took")
def deadlines_are_late() -> None:
    expire = channel.Channel._expire
    replace(channel.Channel, "_expire", lambda self: self._loop.call_later(5.0, expire, self))


@mutant(" left ")
def tasks_stay() -> None:
    async def stop(self: Any) -> None:
        self._is_stopped = True

    replace(concurrent_service.ConcurrentService, "stop", stop)


@mutant(" left |the end took")
def pulls_stay() -> None:
    stop = group_member.GroupMember.stop

    async def stopped(self: Any) -> None:
        for one in self.owned.values():
            one.pulling = None
        await stop(self)

    replace(group_member.GroupMember, "stop", stopped)
    replace(group_member.GroupMember, "stop_pulling", lambda self: None)


@mutant("the end took")
def the_end_waits_for_ever() -> None:
    replace(in_flight.InFlight, "give_back", lambda self, size: None)
    wait = in_flight.InFlight.wait_empty

    async def waits(self: Any, seconds: float) -> None:
        await wait(self, 1000 * seconds)

    replace(in_flight.InFlight, "wait_empty", waits)


@mutant("never consumed|the owners of")
def routes_go_with_the_name_server() -> None:
    replace(route_table, "_KEPT_SECONDS", 0.0)
    replace(route_table.RouteTable, "refresh", later)
