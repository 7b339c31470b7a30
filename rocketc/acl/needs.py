"""What a request needs: permissions by name, or an administrator.

Source: RocketMQ PlainAccessValidator.parse of 4.9.7; for sends to retry topics, batches and recalls that of 5.3.2.
LITE_PULL_MESSAGE needs what PULL_MESSAGE needs: RocketMQ forgets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rocketc._layout import RETRY_PREFIX
from rocketc.acl.accounts import Permission
from rocketc.remoting.command import Command

Needs = dict[str, Permission]  # by topic; groups are under the names of their retry topics
Subscribed = Iterable[tuple[str, Iterable[str]]]  # groups of consumers, and the topics of each
ReadHeartbeat = Callable[[bytes], Subscribed]

HEART_BEAT = 34
ACL_CODES = frozenset({50, 51, 52, 53, 54})  # they read and change accounts, so no white list is enough for them
# 18 and 225 are lists of 17 and 200. 306, 314, 316, 329 and 353 change what others have; RocketMQ forgets them.
ADMIN_CODES = frozenset({17, 18, 25, 200, 207, 215, 225, 306, 314, 316, 329, 353, 513}) | ACL_CODES
REPLIES = (324, 325)  # each account may send them to the topic of replies, and to no other without permission
REPLY_TOPIC_END = "_REPLY_TOPIC"

# The fields that name the topic of a send, and those that name the topic and the group of other requests.
_SENT_TO = {10: "topic", 310: "b", 320: "b", 324: "topic", 325: "b", 370: "topic"}
_READS = {
    11: ("topic", "consumerGroup"),
    12: ("topic", ""),
    15: ("topic", "consumerGroup"),
    35: ("", "consumerGroup"),
    36: ("", "group"),
    38: ("", "consumerGroup"),
    361: ("topic", "consumerGroup"),
}


def needs_of(command: Command, read_heartbeat: ReadHeartbeat) -> Needs:
    """Return the permissions that a request needs. A field that is missing adds nothing.

    read_heartbeat  returns the groups and topics in the body of HEART_BEAT, as its processor reads them
    Raises BadRequestError, as read_heartbeat() does.

    >>> needs_of(Command(38, {"consumerGroup": "shop"}), lambda body: ())
    {'%RETRY%shop': <Permission.SUB: 8>}
    """
    fields: Mapping[str, str] = command.fields
    code = command.code
    needs: Needs = {}
    if code in _SENT_TO:
        topic = fields.get(_SENT_TO[code])
        if topic is not None and not (code in REPLIES and topic.endswith(REPLY_TOPIC_END)):
            needs[topic] = Permission.SUB if topic.startswith(RETRY_PREFIX) else Permission.PUB
    elif code in _READS:
        topic, group = map(fields.get, _READS[code])
        if topic is not None:
            needs[topic] = Permission.SUB
        if group is not None:
            needs[RETRY_PREFIX + group] = Permission.SUB
    elif code == HEART_BEAT:
        for group, topics in read_heartbeat(command.body):
            needs[RETRY_PREFIX + group] = Permission.SUB
            for topic in topics:
                needs[topic] = Permission.SUB
    return needs
