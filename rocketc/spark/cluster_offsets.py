"""Options with queues of a cluster and their offsets in JSON. Each broker counts its queues from 0.

"broker-a:0" is queue 0 of broker-a. "0" is the same, if no other broker of the topic has a queue 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rocketc.spark.offset_options import EARLIEST, LATEST, _is_number, _objects, _refuse, is_asked

_QUEUE = re.compile(r"(?:(.{1,255}):)?(\d{1,9})", re.ASCII | re.DOTALL)


class QueueName(NamedTuple):
    """A queue in an option; broker: None if the option does not name it."""

    broker: str | None
    queue_id: int

    def __str__(self) -> str:
        """Return the name as the options spell it.

        >>> str(QueueName("broker-a", 3)), str(QueueName(None, 3))
        ('broker-a:3', '3')
        """
        return f"{self.queue_id}" if self.broker is None else f"{self.broker}:{self.queue_id}"


Offsets = dict[str, dict[QueueName, int]]


@dataclass(frozen=True)
class Bounds:
    """The queues and offsets of the options.

    assigned  topic -> its queues, of the option assign; a name without a broker is that queue of each broker. None: all
    starting, ending  topic -> queue -> offset, EARLIEST or LATEST
    """

    assigned: dict[str, tuple[QueueName, ...]] | None = None
    starting: Offsets = field(default_factory=dict)
    ending: Offsets = field(default_factory=dict)

    def selects(self, topic: str, broker: str, queue_id: int) -> bool:
        """Whether a queue is read.

        >>> bounds = Bounds({"orders": (QueueName("broker-a", 0), QueueName(None, 1))})
        >>> [bounds.selects("orders", "broker-b", queue_id) for queue_id in (0, 1, 2)]
        [False, True, False]
        """
        if self.assigned is None:
            return True
        return any(one.queue_id == queue_id and one.broker in (None, broker) for one in self.assigned.get(topic, ()))


NO_BOUNDS = Bounds()


def bounds_of(values: Mapping[str, str], topics: Iterable[Any] | None) -> Bounds:
    """Return the queues and offsets of the options assign, startingOffsets and endingOffsets, if they are JSON.

    values  option -> its value
    topics  of subscribe or subscribePattern
    Raises ValueError as parse_options() does.

    >>> bounds_of({"startingOffsets": '{"orders": {"broker-a:0": 70, "1": -2}}'}, ["orders"]).starting
    {'orders': {QueueName(broker='broker-a', queue_id=0): 70, QueueName(broker=None, queue_id=1): -2}}
    """
    assigned: dict[str, tuple[QueueName, ...]] | None = None
    if "assign" in values:
        assigned = {}
        for topic, queues in _objects("assign", values["assign"]).items():
            why = f'the value of {topic!r} must be a list of queues, such as [0, 1] or ["broker-a:0"]'
            if not isinstance(queues, list):
                _refuse("assign", values["assign"], why)
            names = [_queue(str(one) if _is_number(one) else one) for one in queues]
            if None in names:
                _refuse("assign", values["assign"], why)
            assigned[topic] = tuple(name for name in names if name is not None)
        topics = list(assigned)
    bounds = Bounds(assigned)
    for name, offsets in (("startingOffsets", bounds.starting), ("endingOffsets", bounds.ending)):
        if not values.get(name, "").lstrip().startswith("{"):
            continue
        for topic, queues in _objects(name, values[name]).items():
            if not is_asked(topic, topics):
                _refuse(name, values[name], f"topic {topic!r} is not selected by assign, subscribe or subscribePattern")
            offsets[topic] = _offsets(name, values[name], topic, queues)
            for queue in offsets[topic]:
                if assigned is not None and not any(_overlap(queue, one) for one in assigned[topic]):
                    _refuse(name, values[name], f"queue {queue} of {topic!r} is not in option assign")
    return bounds


def _overlap(one: QueueName, other: QueueName) -> bool:
    return one.queue_id == other.queue_id and (None in (one.broker, other.broker) or one.broker == other.broker)


def _queue(text: Any) -> QueueName | None:
    found = _QUEUE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else QueueName(found[1], int(found[2]))


def _offsets(name: str, value: str, topic: str, queues: Any) -> dict[QueueName, int]:
    out: dict[QueueName, int] = {}
    if not isinstance(queues, dict):
        _refuse(name, value, f'the value of {topic!r} must map queues to offsets, such as {{"broker-a:0": 70}}')
    allowed = (EARLIEST, LATEST) if name == "startingOffsets" else (LATEST,)
    for text, offset in queues.items():
        queue = _queue(text)
        if queue is None:
            _refuse(name, value, f"of {topic!r}: {text!r} is not a queue; write broker-a:0, or 0 with one broker")
        if not _is_number(offset) and (isinstance(offset, bool) or offset not in allowed):
            words = "-2 for earliest, -1 for latest" if len(allowed) == 2 else "-1 for latest"
            _refuse(name, value, f"{topic!r}, queue {text}: it must be a queue offset, or {words}")
        out[queue] = offset
    return out
