"""`rocketc admin lag --slaves`: how much of the log of their masters slaves do not have yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rocketc.cli.admin_tables import Table, print_tables
from rocketc.cli.exit_codes import COULD_NOT, DONE
from rocketc.cli.output import note
from rocketc.client.admin import Admin
from rocketc.client.cluster_state import BrokerState, ConsumeState, Replica

MASTER = 0
_BROKERS = ("~broker", ">id", "address", ">log begins", ">log ends", ">behind")
_REPLICAS = ("~broker", "replica", ">has", ">behind", "in sync", ">bytes/s")

_OFFSETS = ("~group", "~topic", "~broker", ">queue", ">id", ">consumer offset", ">max offset")

States = tuple[list[BrokerState], dict[str, list[Replica]]]


async def slave_states(admin: Admin) -> States:
    """Ask all brokers how long their logs are, and all masters which replicas are connected."""
    return await asyncio.gather(admin.brokers(), admin.replicas())


def show_slaves(found: States, as_json: bool) -> int:
    """Print the states. Return the exit code: COULD_NOT if a broker does not answer."""
    brokers, replicas = found
    ends = {one.name: one.log_end for one in brokers if one.broker_id == MASTER}
    print_tables(
        as_json,
        lambda: {
            "brokers": [_broker_json(one, ends) for one in brokers],
            "replicas": [_replica_json(name, one) for name, some in replicas.items() for one in some],
        },
        Table(_BROKERS, [_broker_row(one, ends) for one in brokers]),
        Table(_REPLICAS, [_replica_row(name, one) for name, some in replicas.items() for one in some]),
    )
    for one in brokers:
        if one.fault is not None:
            note(f"{one.name} {one.address}: {one.fault}")
    for name in sorted({one.name for one in brokers} - ends.keys()):
        note(f"{name}: no master is registered")
    return COULD_NOT if any(one.fault for one in brokers) else DONE


OfGroup = list[tuple[str, int, ConsumeState]]


async def group_states(admin: Admin, groups: Sequence[str]) -> dict[str, OfGroup]:
    """Ask all brokers, slaves included, for the offsets of groups."""
    return {group: await admin.consume_states(group) for group in groups}


def show_offsets(found: dict[str, OfGroup], as_json: bool) -> None:
    """Print the offsets of groups in each queue on each broker, those of a master above those of its slaves."""
    rows = sorted(
        (group, queue.topic, name, queue.queue_id, broker_id, one.consumer_offset, one.broker_offset)
        for group, states in found.items()
        for name, broker_id, state in states
        for queue, one in state.queues.items()
    )
    names = ("group", "topic", "broker", "queueId", "brokerId", "consumerOffset", "maxOffset")
    print_tables(
        as_json,
        lambda: {"queues": [dict(zip(names, row, strict=True)) for row in rows]},
        Table(_OFFSETS, [(*row[:5], f"{row[5]:,}", f"{row[6]:,}") for row in rows]),
    )


def _behind(one: BrokerState, ends: dict[str, int | None]) -> int | None:
    """Bytes of its master's log that a slave lacks; None for a master, and if one of the two ends is not known."""
    end = ends.get(one.name)
    if one.broker_id == MASTER or end is None or one.log_end is None:
        return None
    return max(end - one.log_end, 0)


def _broker_row(one: BrokerState, ends: dict[str, int | None]) -> Sequence[object]:
    behind = "-" if one.broker_id == MASTER else _shown(_behind(one, ends))
    return one.name, one.broker_id, one.address, _shown(one.log_start), _shown(one.log_end), behind


def _broker_json(one: BrokerState, ends: dict[str, int | None]) -> dict[str, Any]:
    return {
        "broker": one.name,
        "brokerId": one.broker_id,
        "address": one.address,
        "fault": one.fault,
        "logStart": one.log_start,
        "logEnd": one.log_end,
        "behind": _behind(one, ends),
    }


def _replica_row(name: str, one: Replica) -> Sequence[object]:
    in_sync = "yes" if one.is_in_sync else "no"
    return name, one.address, _shown(one.acknowledged), _shown(one.behind), in_sync, _shown(one.bytes_per_second)


def _replica_json(name: str, one: Replica) -> dict[str, Any]:
    return {
        "broker": name,
        "address": one.address,
        "acknowledged": one.acknowledged,
        "behind": one.behind,
        "inSync": one.is_in_sync,
        "bytesPerSecond": one.bytes_per_second,
    }


def _shown(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
