"""rocketc stats of a cluster: offsets and times of the queues, as the brokers know them; no message is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rocketc.cli.admin_options import show_when
from rocketc.cli.admin_tables import Table, draw_table
from rocketc.cli.cluster_selection import ClusterSelection
from rocketc.cli.exit_codes import DONE
from rocketc.cli.output import Out
from rocketc.client.cluster_state import QueueState
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import TopicReader
from rocketc.client.topic_scan import find_topics
from rocketc.remoting.loops import run_on_loop

_NAMES = ("~topic", "~broker", ">queue", ">messages", ">min offset", ">max offset", "first", "last")


class _Row(NamedTuple):
    """One queue; times are ms since 1970, 0 for an empty queue."""

    queue: MessageQueue
    least: int
    most: int
    first: int
    last: int


def show_queues(selection: ClusterSelection, as_json: bool) -> int:
    """Print a line for each queue of the topics, and return the exit code."""
    rows = run_on_loop(_read(selection))
    with Out() as out:
        if as_json:
            for row in rows:
                out.json(_object(row))
        else:
            out.write_text(draw_table(*Table(_NAMES, _cells(rows)), out.has_color).text)
    return DONE


async def _read(selection: ClusterSelection) -> list[_Row]:
    async with TopicReader(selection.access, group=selection.group, all_topics=selection.all_topics) as reader:
        states: dict[MessageQueue, QueueState] = {}
        for topic in await find_topics(reader, selection.topics, waits=False):
            states |= await reader.state(topic)
        filled = [queue for queue, state in states.items() if state.max_offset > state.min_offset]
        first = await reader.each(filled, reader.first_time)
        return [
            _Row(queue, one.min_offset, one.max_offset, max(first.get(queue, 0), 0), max(one.last_update, 0))
            for queue, one in states.items()
        ]


def _object(row: _Row) -> dict[str, Any]:
    found = {
        "topic": row.queue.topic,
        "brokerName": row.queue.broker_name,
        "queueId": row.queue.queue_id,
        "messages": row.most - row.least,
        "minOffset": row.least,
        "maxOffset": row.most,
    }
    times = {"firstStoreTimestamp": row.first, "lastStoreTimestamp": row.last}
    return found | {name: time for name, time in times.items() if time}


def _cells(rows: list[_Row]) -> Iterator[tuple[object, ...]]:
    for row in rows:
        messages = row.most - row.least
        yield *row.queue, messages, row.least, row.most, show_when(row.first), show_when(row.last)
    if len(rows) > 1:
        first = min((row.first for row in rows if row.first), default=0)
        last = max(row.last for row in rows)
        yield "total", "", "", sum(row.most - row.least for row in rows), "", "", show_when(first), show_when(last)
