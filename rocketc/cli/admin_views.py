"""The commands of `rocketc admin` that only ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from rocketc._layout import RETRY_PREFIX
from rocketc.broker.groups import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from rocketc.cli.admin_options import admin_command, show_perm, show_when
from rocketc.cli.admin_slaves import OfGroup, group_states, show_offsets, show_slaves, slave_states
from rocketc.cli.admin_tables import Table, print_tables
from rocketc.cli.exit_codes import COULD_NOT, DONE, NOT_FOUND
from rocketc.cli.output import note
from rocketc.client.admin import Admin
from rocketc.client.cluster_state import BrokerState, ClientState, ConsumersState, ConsumeState, QueueState
from rocketc.client.hidden_topics import is_hidden
from rocketc.client.routes import MessageQueue, TopicRoute
from rocketc.errors import AnswerError
from rocketc.remoting.codes import Code
from rocketc.remoting.versions import version_name

T = TypeVar("T")
Asks = Callable[[Callable[[Admin], Awaitable[Any]]], Any]

_AT_ONCE = 64  # requests on the way
_JSON = click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object; times in ms.")
_ALL = click.option("--all", "every", is_flag=True, help="Show those of the system, too.")


@admin_command("rocketc admin brokers", "rocketc admin brokers -n 10.0.0.5:9876 --json | jq .brokers", partial=True)
@_JSON
def brokers(asks: Asks, as_json: bool) -> int:
    """Show all brokers of the clusters: version, rates per second, messages since midnight, use of the disk.

    The exit code is 3 if a broker does not answer; the others are shown.
    """
    found: list[BrokerState] = asks(lambda admin: admin.brokers())
    names = ("~cluster", "~broker", ">id", "address", "version", ">in/s", ">out/s", ">disk", ">in today", ">out today")
    print_tables(
        as_json, lambda: {"brokers": [_broker_json(one) for one in found]}, Table(names, map(_broker_row, found))
    )
    for one in found:
        if one.fault is not None:
            note(f"{one.name} {one.address}: {one.fault}")
    if not found:
        note("the name server does not know a broker")
    return DONE if found and not any(one.fault for one in found) else COULD_NOT


def _broker_row(one: BrokerState) -> Sequence[object]:
    disk = one.disk_ratio
    return (
        *(one.cluster, one.name, one.broker_id, one.address, one.version or "?"),
        *(_shown(one.rate(name), ",.1f") for name in ("putTps", "getTransferredTps")),
        _shown(None if disk is None else disk * 100, ".0f", "%"),
        *(_shown(one.today(name), ",") for name in ("Put", "Get")),
    )


def _broker_json(one: BrokerState) -> dict[str, Any]:
    return {
        "cluster": one.cluster,
        "broker": one.name,
        "brokerId": one.broker_id,
        "address": one.address,
        "fault": one.fault,
        "version": one.version or None,
        "putTps": one.rate("putTps"),
        "getTransferredTps": one.rate("getTransferredTps"),
        "putToday": one.today("Put"),
        "getToday": one.today("Get"),
        "diskRatio": one.disk_ratio,
        "bootTimestamp": one.started_at,
    }


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "?" if value is None else f"{value:{form}}{unit}"


@admin_command("rocketc admin topics", "rocketc admin topics orders --json | jq .queues", partial=True)
@click.argument("topic", nargs=-1)
@_ALL
@_JSON
def topics(asks: Asks, topic: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Show the topics of the cluster, or each queue of the topics TOPIC.

    Topics of the system, retry topics and dead letter topics are shown with --all, or by name.
    The exit code is 1 if there is no topic TOPIC.
    """
    found: dict[str, _Topic] = asks(lambda admin: _topics(admin, topic, every))
    present = {name: one for name, one in found.items() if not isinstance(one, str)}
    names = (
        ("~topic", "~broker", ">queue", ">min offset", ">max offset", "last message")
        if topic
        else ("~topic", ">brokers", ">queues", "permission", ">messages", "last message")
    )
    print_tables(
        as_json,
        lambda: {"queues": _queues_json(present)} if topic else {"topics": _topics_json(present)},
        Table(names, _queue_rows(present) if topic else _topic_rows(present)),
    )
    for name, one in found.items():
        if isinstance(one, str):
            note(one)
            continue
        for fault in (one[0].unreadable(name) if topic else None, one[0].misordered(name)):
            if fault is not None:
                note(fault)
    if not found and not as_json:
        note("there are no topics; --all shows those of the system")
    return NOT_FOUND if topic and len(present) < len(found) else DONE


_Topic = tuple[TopicRoute, dict[MessageQueue, QueueState]] | str  # why it cannot be shown


async def _topics(admin: Admin, names: Sequence[str], every: bool) -> dict[str, _Topic]:
    if not names:
        cluster, known = await asyncio.gather(admin.cluster(), admin.topics())
        names = [name for name in known if every or not is_hidden(name, cluster)]
    return dict(zip(names, await _each(names, lambda name: _topic(admin, name)), strict=True))


async def _topic(admin: Admin, name: str) -> _Topic:
    try:
        route, state = await admin.route(name), await admin.topic_state(name)
    except AnswerError as error:
        if error.code == Code.TOPIC_NOT_EXIST:
            return f"there is no topic {name!r}"
        raise
    masters = route.masters().values()
    if masters and not state and admin.faults.keys().isdisjoint(masters):
        return f"the name server lists the topic {name!r}, but no broker has it; delete-topic removes it there"
    return route, state


def _topic_rows(found: dict[str, Any]) -> Iterable[Sequence[object]]:
    for one in _topics_json(found):
        perm = "/".join(dict.fromkeys(map(show_perm, one["permissions"])))
        when = show_when(one["lastUpdateTimestamp"])
        yield one["topic"], one["brokers"], one["queues"], perm, f"{one['messages']:,}", when


def _topics_json(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "topic": name,
            "brokers": len(route.queues),
            "queues": sum(data.read_queue_nums for data in route.queues),
            "permissions": [data.perm for data in sorted(route.queues, key=lambda data: data.broker_name)],
            "messages": sum(queue.max_offset - queue.min_offset for queue in queues.values()),
            "lastUpdateTimestamp": max((queue.last_update for queue in queues.values()), default=0),
        }
        for name, (route, queues) in found.items()
    ]


def _queue_rows(found: dict[str, Any]) -> Iterable[Sequence[object]]:
    for _, queues in found.values():
        for queue, state in queues.items():
            yield *queue, f"{state.min_offset:,}", f"{state.max_offset:,}", show_when(state.last_update)


def _queues_json(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": state.min_offset,
            "maxOffset": state.max_offset,
            "lastUpdateTimestamp": state.last_update,
        }
        for _, queues in found.values()
        for queue, state in queues.items()
    ]


@admin_command(
    "rocketc admin groups", "rocketc admin groups --json | jq '.groups[] | select(.lag > 1000)'", partial=True
)
@_ALL
@_JSON
def groups(asks: Asks, every: bool, as_json: bool) -> int:
    """Show the consumer groups: how many consumers are online, how fast they are, and how far behind."""
    found: dict[str, tuple[ConsumersState, ConsumeState]] = asks(lambda admin: _groups(admin, every))
    names = ("~group", ">consumers", "model", ">out/s", ">lag", "~topics")
    print_tables(
        as_json,
        lambda: {"groups": [_group_json(name, *one) for name, one in found.items()]},
        Table(names, (_group_row(name, *one) for name, one in found.items())),
    )
    if not found and not as_json:
        note("there are no consumer groups; --all shows those of the system")
    return DONE


async def _groups(admin: Admin, every: bool) -> dict[str, tuple[ConsumersState, ConsumeState]]:
    names = [name for name in await admin.groups() if every or not _is_system_group(name)]
    return dict(zip(names, await _each(names, lambda name: _group(admin, name)), strict=True))


async def _group(admin: Admin, name: str) -> tuple[ConsumersState, ConsumeState]:
    return await admin.consumers(name), await admin.consume_state(name)


def _is_system_group(name: str) -> bool:
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def _group_row(name: str, online: ConsumersState, state: ConsumeState) -> Sequence[object]:
    model = online.message_model.lower() or "-"
    lag = "-" if online.is_broadcasting else f"{state.lag:,}"  # each of its consumers keeps its own offsets
    return name, len(online.clients), model, f"{state.tps:,.1f}", lag, ", ".join(_topics_of(name, online, state))


def _group_json(name: str, online: ConsumersState, state: ConsumeState) -> dict[str, Any]:
    return {
        "group": name,
        "consumers": len(online.clients),
        "consumeType": online.consume_type or None,
        "messageModel": online.message_model or None,
        "consumeTps": state.tps,
        "lag": state.lag,
        "topics": _topics_of(name, online, state),
    }


def _topics_of(group: str, online: ConsumersState, state: ConsumeState) -> list[str]:
    found = {*online.subscriptions, *(queue.topic for queue in state.queues)}
    return sorted(found - {RETRY_PREFIX + group})


@admin_command(
    "rocketc admin lag",
    "rocketc admin lag billing --json | jq '[.queues[].lag] | add'",
    "rocketc admin lag --slaves",
    partial=True,
)
@click.argument("group", nargs=-1)
@click.option("--slaves", is_flag=True, help="Show how far slaves are behind; with GROUP, its offsets on all brokers.")
@_JSON
def lag(asks: Asks, group: tuple[str, ...], slaves: bool, as_json: bool) -> int:
    """Show how many messages consumer groups have not consumed, the largest first; each queue of the groups GROUP.

    The offsets of a broadcasting group are with its consumers; brokers do not know them.
    The exit code is 1 if a group GROUP has never consumed.
    """
    if slaves and not group:
        return show_slaves(asks(slave_states), as_json)
    if slaves:
        offsets: dict[str, OfGroup] = asks(lambda admin: group_states(admin, group))
        show_offsets(offsets, as_json)
        unknown = [name for name, states in offsets.items() if not any(one.queues for _, _, one in states)]
        for name in unknown:
            note(f"the group {name!r} has consumed nothing")
        return NOT_FOUND if unknown else DONE
    found: dict[str, ConsumeState] = asks(lambda admin: _lags(admin, group))
    names = (
        ("~group", "~topic", "~broker", ">queue", ">lag", ">broker offset", ">consumer offset", "last consumed")
        if group
        else (">lag", ">out/s", "~group", "~topic")
    )
    print_tables(
        as_json,
        lambda: {"queues": _lags_json(found)} if group else {"groups": _sums(found)},
        Table(names, _lag_rows(found) if group else _sum_rows(found)),
    )
    missing = [name for name in group if not found[name].queues]
    is_empty = not any(state.queues for state in found.values())
    lost: list[str] = asks(_without_master) if missing or is_empty else []
    for name in lost:
        note(f"no master of {name} is registered now: --slaves asks its slaves")
    for name in missing if not lost else ():
        note(f"the group {name!r} has consumed nothing")
    if not group and not as_json and is_empty and not lost:
        note("no consumer group has consumed anything")
    return NOT_FOUND if missing else DONE


async def _without_master(admin: Admin) -> list[str]:
    """The names of the brokers of which only slaves are registered."""
    return [name for name, one in sorted((await admin.cluster()).brokers.items()) if one.master is None]


async def _lags(admin: Admin, names: Sequence[str]) -> dict[str, ConsumeState]:
    names = names or [name for name in await admin.groups() if not _is_system_group(name)]
    return dict(zip(names, await _each(names, admin.consume_state), strict=True))


def _sums(found: dict[str, ConsumeState]) -> list[dict[str, Any]]:
    """Each topic of each group; a retry topic only if it has messages."""
    sums: dict[tuple[str, str], int] = {}
    for name, state in found.items():
        for queue, one in state.queues.items():
            sums[name, queue.topic] = sums.get((name, queue.topic), 0) + one.lag
    return [
        {"group": group, "topic": topic, "lag": lag, "consumeTps": found[group].tps}
        for (group, topic), lag in sorted(sums.items(), key=lambda one: (-one[1], one[0]))
        if lag or topic != RETRY_PREFIX + group
    ]


def _sum_rows(found: dict[str, ConsumeState]) -> Iterable[Sequence[object]]:
    return ((f"{one['lag']:,}", f"{one['consumeTps']:,.1f}", one["group"], one["topic"]) for one in _sums(found))


def _lag_rows(found: dict[str, ConsumeState]) -> Iterable[Sequence[object]]:
    for name, state in found.items():
        for queue, one in state.queues.items():
            numbers = (f"{number:,}" for number in (one.lag, one.broker_offset, one.consumer_offset))
            yield name, *queue, *numbers, show_when(one.last_timestamp)


def _lags_json(found: dict[str, ConsumeState]) -> list[dict[str, Any]]:
    return [
        {
            "group": name,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "brokerOffset": one.broker_offset,
            "consumerOffset": one.consumer_offset,
            "lag": one.lag,
            "lastTimestamp": one.last_timestamp,
        }
        for name, state in found.items()
        for queue, one in state.queues.items()
    ]


@admin_command("rocketc admin connections billing", "rocketc admin connections shop --producers", partial=True)
@click.argument("group")
@click.option("--producers", is_flag=True, help="GROUP is a group of producers.")
@_JSON
def connections(asks: Asks, group: str, producers: bool, as_json: bool) -> int:
    """Show the consumers of the group GROUP that are online, and what they subscribe to; or its producers.

    The exit code is 1 if none is online.
    """
    if producers:
        state = ConsumersState(tuple(asks(lambda admin: admin.producers(group))))
    else:
        state = asks(lambda admin: admin.consumers(group))
    print_tables(
        as_json,
        lambda: _clients_json(group, state),
        Table(("~client id", "address", "language", "version"), map(_client_row, state.clients)),
        Table(("~topic", "~subscription"), state.subscriptions.items()),
    )
    if not state.clients:
        note(f"no {'producer' if producers else 'consumer'} of the group {group!r} is online")
    return DONE if state.clients else NOT_FOUND


def _client_row(one: ClientState) -> Sequence[object]:
    return one.client_id, one.address, one.language, version_name(one.version)


def _clients_json(group: str, state: ConsumersState) -> dict[str, Any]:
    return {
        "group": group,
        "consumeType": state.consume_type or None,
        "messageModel": state.message_model or None,
        "subscriptions": state.subscriptions,
        "clients": [
            {
                "clientId": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
                "versionName": version_name(one.version),
            }
            for one in state.clients
        ],
    }


async def _each(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
    """Ask for each name, for many at once."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> T:
        async with free:
            return await ask(name)

    return await asyncio.gather(*map(one, names))
