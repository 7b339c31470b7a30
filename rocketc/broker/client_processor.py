"""Heartbeats of clients, their end, and the check of their subscriptions.

Source: RocketMQ ClientManageProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from rocketc._layout import RETRY_PREFIX
from rocketc.broker.bodies import object_of, parse_body, text_of
from rocketc.broker.consumers import ClientChannel, ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.heartbeat import ConsumerData, Heartbeat, decode_heartbeat
from rocketc.broker.producers import ProducerManager
from rocketc.broker.subscriptions import EXPRESSION_MOST, TOPIC_MOST, is_tag_type
from rocketc.errors import BadRequestError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.tables.groups import SubscriptionGroupConfig
from rocketc.tables.topics import TopicConfig

HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG = 34, 35, 46
GROUPS_OF_A_CONNECTION = 2000  # groups, those of producers too, that one connection may be in
UNIT_SUBSCRIPTION = 2  # bit of TopicConfig.topic_sys_flag: the retry topic of a group in unit mode


class MakesRetryTopics(Protocol):
    """Creates a `%RETRY%` topic, or changes its `order`."""

    def __call__(self, name: str, queues: int, *, order: bool, sys_flag: int) -> object: ...


def _no_filters(expression_type: str, text: str) -> str | None:
    return f"there is no filter of type {expression_type}"


class ClientProcessor:
    """Answers heartbeats (34), unregistrations (35) and checks of subscriptions (46).

    topics                  by name
    make_retry_topic        called for the groups of a heartbeat if their retry topic is missing or has another `order`
    clock                   gives ms
    is_property_filter_on   enablePropertyFilter: expressions of other types than TAG are allowed
    filter_error            returns what is wrong with an expression: (type, text); None: it can be used
    """

    codes = (HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG)

    def __init__(
        self,
        consumers: ConsumerManager,
        producers: ProducerManager,
        groups: GroupManager,
        *,
        topics: Mapping[str, TopicConfig],
        make_retry_topic: MakesRetryTopics,
        clock: Callable[[], int],
        is_property_filter_on: bool = False,
        filter_error: Callable[[str, str], str | None] = _no_filters,
    ) -> None:
        self._consumers, self._producers, self._groups = consumers, producers, groups
        self._topics, self._make_retry_topic = topics, make_retry_topic
        self._clock = clock
        self._is_property_filter_on, self._filter_error = is_property_filter_on, filter_error

    def process(self, call: Call) -> Answer:
        try:
            if call.command.code == HEART_BEAT:
                return self._heart_beat(call)
            if call.command.code == UNREGISTER_CLIENT:
                return self._unregister(call)
            return self._check(call)
        except BadRequestError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))

    def _heart_beat(self, call: Call) -> Answer:
        """Register all groups of a heartbeat; groups that may not exist are left out. An error registers none."""
        beat = decode_heartbeat(call.command.body)
        self._check_room(call, beat)
        command, wants_full = call.command, not beat.is_v2
        found = [(data, self._groups.find(data.group)) for data in beat.consumers]
        allowed = [(data, config) for data, config in found if config is not None]
        for data, config in allowed:
            self._keep_retry_topic(data, config, beat)
        client = ClientChannel(beat.client_id, command.language, command.version, self._clock())
        for data, _ in allowed:
            registered = self._consumers.register(
                call.connection, client, data, fingerprint=beat.fingerprint, is_light=beat.is_light
            )
            wants_full |= registered.wants_full
        for group in beat.producers:
            self._producers.register(call.connection, group, client)
        return Answer(values={"IS_SUPPORT_HEART_BEAT_V2": True, "IS_SUB_CHANGE": wants_full})

    def _check_room(self, call: Call, beat: Heartbeat) -> None:
        consumers, producers = self._consumers, self._producers
        names = {data.group for data in beat.consumers}.union(consumers.groups_of(call.connection))
        shops = set(beat.producers).union(producers.groups_of(call.connection))
        if len(names) + len(shops) > GROUPS_OF_A_CONNECTION:
            raise BadRequestError(
                f"the connection would be in {len(names) + len(shops)} groups; {GROUPS_OF_A_CONNECTION} at most"
            )

    def _keep_retry_topic(self, data: ConsumerData, config: SubscriptionGroupConfig, beat: Heartbeat) -> None:
        name = RETRY_PREFIX + data.group
        there = self._topics.get(name)
        if there is not None and beat.is_light:
            return
        wanted = (self._topics.get(subscription.topic) for subscription in data.subscriptions)
        order = any(topic is not None and topic.order for topic in wanted)
        if there is None or there.order != order:
            sys_flag = UNIT_SUBSCRIPTION if data.unit_mode else 0
            self._make_retry_topic(name, config.retry_queue_nums, order=order, sys_flag=sys_flag)

    def _unregister(self, call: Call) -> Answer:
        """Remove the connection, whichever client id the request has: RocketMQ does the same."""
        if group := call.values.get("producerGroup"):
            self._producers.unregister(call.connection, group)
        if group := call.values.get("consumerGroup"):
            self._consumers.unregister(call.connection, group)
        return Answer()

    def _check(self, call: Call) -> Answer:
        body = parse_body(call.command.body)
        found = None if body is None else object_of(body, "the body").get("subscriptionData")
        if found is None:
            return Answer()
        data = object_of(found, "the member subscriptionData")
        kind = text_of(data, "expressionType", TOPIC_MOST)
        if is_tag_type(kind):
            return Answer()
        if not self._is_property_filter_on:
            remark = f"The broker does not support consumer to filter message by {kind}"
            return Answer(Code.SYSTEM_ERROR, remark=remark)
        wrong = self._filter_error(kind, text_of(data, "subString", EXPRESSION_MOST))
        return Answer() if wrong is None else Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark=wrong)
