"""Attributes of topics in the syntax of tools: `+name=value` adds or changes one, `-name` removes one.

Source: RocketMQ AttributeParser, AttributeUtil, TopicAttributes; the texts of errors are those of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketc.tables.fastjson import in_java_order
from rocketc.tables.topics import ALLOWED_ATTRIBUTES, MESSAGE_TYPE, QUEUE_TYPE

RESERVE_TIME = "reserve.time"
_LONG_MOST = (1 << 63) - 1
_UNCHANGEABLE = (QUEUE_TYPE,)


def parse_attributes(text: str) -> dict[str, str]:
    """Return the changes of a text, by name with its sign. Raises ValueError.

    >>> parse_attributes("+message.type=FIFO,-reserve.time")
    {'+message.type': 'FIFO', '-reserve.time': ''}
    """
    changes: dict[str, str] = {}
    for part in text.split(",") if text else []:
        name, is_pair, value = part.partition("=")
        if is_pair and not name.startswith("+"):
            raise ValueError(f"add/alter attribute format is wrong: {name}")
        if not is_pair and not name.startswith("-"):
            raise ValueError(f"delete attribute format is wrong: {name}")
        if name in changes:
            raise ValueError(f"key duplication: {name}")
        changes[name] = value
    return changes


def changed_attributes(before: Mapping[str, str], changes: Mapping[str, str], *, is_new: bool) -> dict[str, str]:
    """Return the attributes of a topic after changes. Raises ValueError.

    is_new  the topic is being created

    >>> changed_attributes({"message.type": "FIFO"}, {"-message.type": "", "+reserve.time": "5"}, is_new=False)
    {'reserve.time': '5'}
    """
    after, seen = dict(before), set()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        if sign not in ("+", "-") or not name or "+" in name or "-" in name:
            raise ValueError("kv string format wrong.")
        if name in seen:
            raise ValueError(f"key duplication: {signed}")
        seen.add(name)
        if is_new and sign == "-":
            raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
        if name not in ALLOWED_ATTRIBUTES and name != RESERVE_TIME:
            raise ValueError(f"unsupported key: {name}")
        if name in _UNCHANGEABLE and not is_new:
            raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            if name not in after:
                raise ValueError(f"attempt to delete a nonexistent key: {name}")
            del after[name]
        else:
            _check(name, value)
            after[name] = value
    return in_java_order(after, 16)


def _check(name: str, value: str) -> None:
    allowed = ALLOWED_ATTRIBUTES.get(name)
    if allowed is not None and value not in allowed:
        raise ValueError(f"value is not in set: [{', '.join(allowed)}]")
    if allowed is None and not (value.isascii() and value.isdecimal() and len(value) < 20 and int(value) <= _LONG_MOST):
        raise ValueError(f"value is not in range(-1, {_LONG_MOST})")


def asks_for_mixed(changes: Mapping[str, str]) -> bool:
    """Whether changes allow messages of all types in the topic, which brokers refuse by default.

    >>> asks_for_mixed({"+message.type": "MIXED"})
    True
    """
    return changes.get(f"+{MESSAGE_TYPE}") == "MIXED"
