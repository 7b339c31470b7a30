"""Consumer groups as tools see them: created, changed, deleted, listed, and forbidden to read a topic.

Source: RocketMQ AdminBrokerProcessor, SubscriptionGroupManager; codes and remarks are those of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from rocketc._layout import RETRY_PREFIX
from rocketc.broker.admin import forms
from rocketc.broker.bodies import enum_of, flag_of, list_of, number_of, object_of, parse_body, text_of
from rocketc.broker.groups import GroupManager, is_group_name
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.table_writer import TableWriter, answering
from rocketc.broker.topics import TopicManager
from rocketc.errors import BadRequestError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.config_manager import camel
from rocketc.tables.groups import GROUP_MOST, GroupRetryPolicyType, SubscriptionGroupConfig

CREATE, CREATE_LIST, ALL, DELETE, ONE, FORBID = 200, 225, 201, 207, 352, 353
GROUPS_MOST = 10_000  # of one list
_TEXT_MOST = 10_000  # characters
_SUBSCRIPTIONS_MOST = 1000
_TOPIC_MOST = 255

DeleteTopic = Callable[[str, Callable[[str | None], object]], object]


class GroupAdmin:
    """Answers requests about consumer groups.

    delete_topic  see TopicAdmin.delete()
    """

    codes = (CREATE, CREATE_LIST, ALL, DELETE, ONE, FORBID)

    def __init__(
        self,
        groups: GroupManager,
        topics: TopicManager,
        offsets: ConsumerOffsetManager,
        writer: TableWriter,
        delete_topic: DeleteTopic,
    ) -> None:
        self._groups, self._topics, self._offsets = groups, topics, offsets
        self._writer, self._delete_topic = writer, delete_topic
        self._by_code: dict[int, Callable[[Call], Answer | None]] = {
            CREATE: self._create,
            CREATE_LIST: self._create_list,
            ALL: self._all,
            DELETE: self._delete,
            ONE: self._one,
            FORBID: self._forbid,
        }

    def process(self, call: Call) -> Answer | None:
        return self._by_code[call.command.code](call)

    def _create(self, call: Call) -> None:
        self._put(call, [decode_group(object_of(parse_body(call.command.body), "the body"))])

    def _create_list(self, call: Call) -> None:
        data = object_of(parse_body(call.command.body), "the body")
        if not isinstance(data.get("groupConfigList"), list):
            raise BadRequestError("the body lacks the list groupConfigList")
        found = list_of(data, "groupConfigList", GROUPS_MOST)
        self._put(call, [decode_group(object_of(one, "a group")) for one in found])

    def _put(self, call: Call, groups: list[SubscriptionGroupConfig]) -> None:
        for group in groups:
            self._groups.table.create(group, persist=False)
        self._writer.save(self._groups.table, answering(call, Answer()))

    def _all(self, call: Call) -> Answer:
        table = self._groups.table
        found = {
            "dataVersion": forms.data_version(table),
            "forbiddenTable": table.forbidden,
            "subscriptionGroupTable": {name: group.to_file() for name, group in dict(table).items()},
        }
        return Answer(body=forms.body(found))

    def _one(self, call: Call) -> Answer:
        name = call.values["group"]
        group = self._groups.find(name)
        if group is None:
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"No group in this broker. group: {name}")
        return Answer(body=forms.body(group.to_file()))

    def _delete(self, call: Call) -> None:
        """Delete a group; with cleanOffset also its offsets and the topic of its retries, not its dead letters."""
        name = call.values["groupName"]
        self._groups.table.delete(name, persist=False)
        if not (call.values.get("cleanOffset", False) or call.values.get("removeOffset", False)):
            self._writer.save(self._groups.table, answering(call, Answer()))
            return
        self._offsets.clean_group(name)
        retries = RETRY_PREFIX + name
        parts = 2 if self._topics.get(retries) is None else 3
        faults: list[str | None] = []

        def done(fault: str | None) -> None:
            faults.append(fault)
            if len(faults) == parts:
                answering(call, Answer())(next(filter(None, faults), None))

        self._offsets.save(self._writer, done)
        self._writer.save(self._groups.table, done)
        if parts == 3:
            self._delete_topic(retries, done)

    def _forbid(self, call: Call) -> Answer | None:
        group, topic, table = call.values["group"], call.values["topic"], self._groups.table
        readable = call.values.get("readable")
        if readable is not None:
            if not is_group_name(group) or len(topic) > _TOPIC_MOST:
                return Answer(Code.INVALID_PARAMETER, remark=f"{group[:40]!r} is not a name of a consumer group")
            if not readable and (refused := self._make_room(group, topic)) is not None:
                return refused
            table.set_readable(group, topic, readable)
        told = {"group": group, "readable": table.is_readable(group, topic), "topic": topic}
        answer = Answer(body=forms.body(told), remark="")
        if readable is None:
            return answer
        self._writer.save(table, answering(call, answer))
        return None

    def _make_room(self, group: str, topic: str) -> Answer | None:
        """Refuse what does not exist, and keep what is forbidden to as many pairs as there are.

        Pairs of deleted groups and topics stay, because they may be created again, until their room is needed.
        """
        groups, topics = self._groups.table, self._topics
        if group not in groups:
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"No group in this broker. group: {group}")
        if topics.get(topic) is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"No topic in this broker. topic: {topic}")
        if groups.forbidden_count >= len(groups) * len(topics.table):
            groups.keep_forbidden(lambda one, other: one in groups and other in topics.table)
        return None


def decode_group(data: dict[str, Any]) -> SubscriptionGroupConfig:
    """Return the settings of a group from a body. Missing members have RocketMQ's defaults.

    Raises BadRequestError for a name that is not allowed, wrong types, and attributes, which 5.3.3 does not have.

    >>> decode_group({"groupName": "audit", "retryMaxTimes": "3"}).retry_max_times
    3
    """
    name = text_of(data, "groupName", _TEXT_MOST)
    if not is_group_name(name):
        raise BadRequestError(
            f"{name[:40]!r} is not a name of a consumer group: 1 to {GROUP_MOST} letters, digits and %|_-"
        )
    found: dict[str, Any] = {}
    for field in fields(SubscriptionGroupConfig):
        key, kind = camel(field.name), str(field.type)
        if data.get(key) is None or field.name == "group_name":
            continue
        if kind == "int":
            found[field.name] = number_of(data, key)
        elif kind == "bool":
            found[field.name] = flag_of(data, key)
        elif kind.startswith("list"):
            found[field.name] = list_of(data, key, _SUBSCRIPTIONS_MOST)
        else:
            found[field.name] = object_of(data[key], f"the member {key}")
    policy = found.get("group_retry_policy", {})
    if (by := enum_of(policy, "type", GroupRetryPolicyType)) is not None:
        found["group_retry_policy"] = {**policy, "type": by.name}
    for attribute in found.get("attributes", {}):
        raise BadRequestError(f"unsupported key: {str(attribute)[:40].removeprefix('+')}")
    return SubscriptionGroupConfig(name, **found)
