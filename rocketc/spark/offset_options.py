"""Options with queues and queue offsets in JSON, as of Spark's Kafka source, as arguments of rocketc.scan()."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from rocketc.read.regex import limited

EARLIEST, LATEST = -2, -1
Bounds = tuple[int | None, int | None]
_OFFSETS = {"startingOffsets": EARLIEST, "endingOffsets": LATEST}


def assigned(values: Mapping[str, str], topics: list[str | re.Pattern[str]] | None) -> dict[str, Any]:
    """Return the arguments for the options assign, startingOffsets and endingOffsets, if they are JSON.

    values  option -> its value
    topics  the topics of subscribe or subscribePattern
    Raises ValueError as parse_options() does.

    >>> assigned({"assign": '{"orders": [0, 2]}', "startingOffsets": '{"orders": {"2": 70}}'}, None)
    {'topics': ['orders'], 'offsets': {'orders': {0: (None, None), 2: (70, None)}}}
    >>> assigned({"endingOffsets": '{"orders": {"0": 9}}'}, None)
    {'offsets': {'orders': {0: (None, 9), None: (None, None)}}}
    """
    offsets: dict[str, dict[int | None, Bounds]] = {}
    out: dict[str, Any] = {}
    if "assign" in values:
        for topic, queues in _objects("assign", values["assign"]).items():
            if not isinstance(queues, list) or not all(_is_number(queue_id) for queue_id in queues):
                _refuse("assign", values["assign"], f"the value of {topic!r} must be a list of queue ids")
            offsets[topic] = dict.fromkeys(queues, (None, None))
        out["topics"] = list(offsets)
    for at, (name, whole) in enumerate(_OFFSETS.items()):
        if not values.get(name, "").lstrip().startswith("{"):
            continue
        for topic, queues in _objects(name, values[name]).items():
            if not is_asked(topic, offsets if "assign" in values else topics):
                _refuse(name, values[name], f"topic {topic!r} is not selected by assign, subscribe or subscribePattern")
            for queue_id, offset in _offsets(name, values[name], topic, queues, whole).items():
                known = offsets.setdefault(topic, {None: (None, None)})
                if queue_id not in known and None not in known:
                    _refuse(name, values[name], f"queue {queue_id} of {topic!r} is not in option assign")
                low, high = known.get(queue_id, (None, None))
                known[queue_id] = (offset, high) if at == 0 else (low, offset)
    for queues_of in offsets.values():
        if None in queues_of:  # move it after the named queues
            queues_of[None] = queues_of.pop(None)
    return {**out, "offsets": offsets} if offsets else out


def _offsets(name: str, value: str, topic: str, queues: Any, whole: int) -> dict[int, int | None]:
    out: dict[int, int | None] = {}
    if not isinstance(queues, dict):
        _refuse(name, value, f'the value of {topic!r} must map queue ids to offsets, such as {{"0": 70}}')
    for queue_id, offset in queues.items():
        if not re.fullmatch(r"\d{1,9}", queue_id, re.ASCII):
            _refuse(name, value, f"of {topic!r}: {queue_id!r} is not a queue id")
        if offset != whole and not _is_number(offset):
            word = "earliest" if whole == EARLIEST else "latest"
            _refuse(name, value, f"{topic!r}, queue {queue_id}: it must be a queue offset, or {whole} for {word}")
        out[int(queue_id)] = None if offset == whole else offset
    return out


def _objects(name: str, value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        _refuse(name, value, f"not JSON: {error}")
    if not isinstance(found, dict):
        _refuse(name, value, 'it must be a JSON object of topics, such as {"orders": ...}')
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def is_asked(topic: str, topics: Iterable[str | re.Pattern[str]] | None) -> bool:
    """Whether rocketc.scan(topics=) selects messages of a topic.

    >>> is_asked("orders", ["bills", re.compile("ord.*")]), is_asked("orders", None), is_asked("orders", [])
    (True, True, False)
    """
    if topics is None:
        return True
    return any(one == topic if isinstance(one, str) else limited(one.fullmatch, topic) is not None for one in topics)


def _refuse(name: str, value: str, why: str) -> NoReturn:
    raise ValueError(f"rocketmq: option {name}={value!r}: {why}")
