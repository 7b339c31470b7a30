"""`rocketc admin lag --slaves`: how much of the log of their masters slaves do not have yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rocketc.cli.admin_tables import Table, print_tables
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, DONE
from rocketc.cli.output import note
from rocketc.client.admin import Admin
from rocketc.client.cluster_state import BrokerState, ConsumeState, Replica

MASTER = 0
_ANOTHER = "another log"
_BROKERS = ("~broker", ">id", "address", ">log begins", ">log ends", ">behind")
_REPLICAS = ("~broker", "replica", ">has", ">behind", "in sync", ">bytes/s")

_OFFSETS = ("~group", "~topic", "~broker", ">queue", ">id", ">consumer offset", ">max offset")

States = tuple[list[BrokerState], dict[str, list[Replica]]]


async def slave_states(admin: Admin) -> States:
    """Ask all brokers how long their logs are, and all masters which replicas are connected.

    A slave that was asked later than its master may have more. Then all are asked again: a master that still has less
    than its slave had does not have the slave's log.
    """
    brokers, replicas = await asyncio.gather(admin.brokers(), admin.replicas())
    ends = _master_ends(brokers)
    if any(_is_ahead(one, ends) for one in brokers):
        masters = {one.address: one for one in await admin.brokers() if one.broker_id == MASTER}
        brokers = [masters.get(one.address, one) for one in brokers]
    return brokers, replicas


def show_slaves(found: States, as_json: bool) -> int:
    """Print the states. Return the exit code: COULD_NOT: a broker does not answer; DAMAGED: a slave does not copy."""
    brokers, replicas = found
    ends = _master_ends(brokers)
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
        elif fault := _replication_fault(one, ends):
            note(f"{one.name} {one.address}: {fault}; see docs/howto/slaves.md for what to do")
    for name in sorted({one.name for one in brokers} - ends.keys()):
        note(f"{name}: no master is registered")
    if any(one.fault for one in brokers):
        return COULD_NOT
    return DAMAGED if any(_replication_fault(one, ends) for one in brokers) else DONE


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


def _master_ends(brokers: Sequence[BrokerState]) -> dict[str, int | None]:
    return {one.name: one.log_end for one in brokers if one.broker_id == MASTER}


def _is_ahead(one: BrokerState, ends: dict[str, int | None]) -> bool:
    """Whether a slave has more than its master."""
    end = ends.get(one.name)
    return one.broker_id != MASTER and end is not None and one.log_end is not None and one.log_end > end


def _replication_fault(one: BrokerState, ends: dict[str, int | None]) -> str | None:
    """Why a slave does not copy its master's log; None: it does, or RocketMQ's slave does not say."""
    if one.replication_fault is not None:
        return f"replication has stopped: {one.replication_fault}"
    return f"{_ANOTHER}: it ends after its master's, at {ends[one.name]}" if _is_ahead(one, ends) else None


def _behind(one: BrokerState, ends: dict[str, int | None]) -> int | None:
    """Bytes of its master's log that a slave lacks; None: a master, an end that is not known, or a slave that does not
    copy."""
    end = ends.get(one.name)
    if one.broker_id == MASTER or end is None or one.log_end is None or _replication_fault(one, ends):
        return None
    return end - one.log_end


def _broker_row(one: BrokerState, ends: dict[str, int | None]) -> Sequence[object]:
    fault = _replication_fault(one, ends)
    behind = "-" if one.broker_id == MASTER else _shown(_behind(one, ends))
    if fault is not None:
        behind = _ANOTHER if _ANOTHER in fault else "stopped"
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
        "replicationFault": _replication_fault(one, ends),
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
