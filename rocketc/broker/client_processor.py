"""Heartbeats of clients, their end, and the check of their subscriptions.

Source: RocketMQ ClientManageProcessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rocketc._layout import RETRY_PREFIX
from rocketc.broker.bodies import object_of, parse_body, text_of
from rocketc.broker.consumers import ClientChannel, ConsumerManager
from rocketc.broker.counts import BrokerCounts, Timed
from rocketc.broker.filters import AT_ONCE, filter_error, takes_long
from rocketc.broker.groups import GroupManager
from rocketc.broker.heartbeat import ConsumerData, Heartbeat, decode_heartbeat
from rocketc.broker.producers import ProducerManager
from rocketc.broker.subscriptions import EXPRESSION_MOST, TOPIC_MOST, Subscription
from rocketc.errors import BadRequestError, RocketcError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call, failed
from rocketc.remoting.subscribing import is_tag_type
from rocketc.tables.groups import CONSUMER_GROUP_MOST, RETRIED_GROUP_MOST, SubscriptionGroupConfig
from rocketc.tables.topics import TopicConfig

_log = logging.getLogger("rocketc.broker")

HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG = 34, 35, 46
GROUPS_OF_A_CONNECTION = 2000  # groups, those of producers too, that one connection may be in
LONG_NAMES_MOST = 1000  # of groups that a warning names
UNIT_SUBSCRIPTION = 2  # bit of TopicConfig.topic_sys_flag: the retry topic of a group in unit mode


class MakesRetryTopics(Protocol):
    """Creates a `%RETRY%` topic, or changes its `order`."""

    def __call__(self, name: str, queues: int, *, order: bool, sys_flag: int) -> object: ...


class RegistersFilters(Protocol):
    """Takes the subscriptions of a group, see ConsumerFilterManager.register()."""

    def __call__(self, group: str, subscriptions: Iterable[Subscription], room: int) -> int: ...


def _no_filters(group: str, subscriptions: Iterable[Subscription], room: int) -> int:
    return room


class ClientProcessor:
    """Answers heartbeats (34), unregistrations (35) and checks of subscriptions (46).

    topics                  by name
    make_retry_topic        called for the groups of a heartbeat if their retry topic is missing or has another `order`
    when_told               calls a function when name servers know the new topics, see NameServers.when_told()
    unlock_all              called with a group and the id of a client that leaves it: its queues are free at once
    clock                   gives ms
    counts, time            counts gets the times of registrations; time is loop.time
    is_property_filter_on   enablePropertyFilter: expressions of other types than TAG are allowed
    register_filters        called for each group of a heartbeat that has its subscriptions
    in_thread               compile long expressions on a thread; False for virtual time
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
        when_told: Callable[[Callable[[], object]], object] = lambda done: done(),
        unlock_all: Callable[[str, str], object] = lambda group, client_id: None,
        counts: BrokerCounts | None = None,
        time: Callable[[], float] = lambda: 0.0,
        is_property_filter_on: Callable[[], bool] = lambda: False,
        register_filters: RegistersFilters = _no_filters,
        in_thread: bool = False,
    ) -> None:
        self._consumers, self._producers, self._groups = consumers, producers, groups
        self._topics, self._make_retry_topic = topics, make_retry_topic
        self._when_told, self._unlock_all = when_told, unlock_all
        self._clock, self._counts = clock, BrokerCounts() if counts is None else counts
        self._time = time
        self._is_property_filter_on, self._register_filters = is_property_filter_on, register_filters
        self._in_thread = in_thread
        self._long_names: set[str] = set()  # of groups, after their warning

    def process(self, call: Call) -> Answer | None:
        try:
            if call.command.code == HEART_BEAT:
                return self._heart_beat(call)
            if call.command.code == UNREGISTER_CLIENT:
                return self._unregister(call)
            return self._check(call)
        except BadRequestError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))

    def _heart_beat(self, call: Call) -> Answer | None:
        """Register all groups of a heartbeat; groups that may not exist are left out. An error registers none.

        The client looks for the retry topics of its groups next, so the answer waits until name servers know new ones.
        """
        beat = decode_heartbeat(call.command.body, self._clock())
        self._check_room(call, beat)
        command, wants_full = call.command, not beat.is_v2
        found = [(data, self._groups.find(data.group)) for data in beat.consumers]
        allowed = [(data, config) for data, config in found if config is not None]
        has_new_topics = False
        for data, config in allowed:
            if len(data.group) > CONSUMER_GROUP_MOST:
                self._warn_of_name(data.group)
            if len(data.group) <= RETRIED_GROUP_MOST:
                has_new_topics |= self._keep_retry_topic(data, config, beat)
        client = ClientChannel(beat.client_id, command.language, command.version, self._clock())
        began, room = self._time(), AT_ONCE
        for data, _ in allowed:
            registered = self._consumers.register(
                call.connection, client, data, fingerprint=beat.fingerprint, is_light=beat.is_light
            )
            if not beat.is_light:
                room = self._register_filters(data.group, data.subscriptions, room)
            wants_full |= registered.wants_full
            began = self._count(self._counts.consumers, began)
        for group in beat.producers:
            self._producers.register(call.connection, group, client)
            began = self._count(self._counts.producers, began)
        answer = Answer(values={"IS_SUPPORT_HEART_BEAT_V2": True, "IS_SUB_CHANGE": wants_full})
        if not has_new_topics:
            return answer
        self._when_told(lambda: call.later(answer))
        return None

    def _warn_of_name(self, group: str) -> None:
        if group in self._long_names or len(self._long_names) >= LONG_NAMES_MOST:
            return
        self._long_names.add(group)
        _log.warning(
            "group %s: the name has %d characters. Groups with up to %d have dead letters, groups with up to %d have "
            "retries. A message that can't be a dead letter comes again after the longest delay; use a shorter name",
            *(group, len(group), CONSUMER_GROUP_MOST, RETRIED_GROUP_MOST),
        )

    def _count(self, timed: Timed, began: float) -> float:
        now = self._time()
        timed.add(now - began)
        return now

    def _check_room(self, call: Call, beat: Heartbeat) -> None:
        consumers, producers = self._consumers, self._producers
        names = {data.group for data in beat.consumers}.union(consumers.groups_of(call.connection))
        shops = set(beat.producers).union(producers.groups_of(call.connection))
        if len(names) + len(shops) > GROUPS_OF_A_CONNECTION:
            raise BadRequestError(
                f"the connection would be in {len(names) + len(shops)} groups; {GROUPS_OF_A_CONNECTION} at most"
            )

    def _keep_retry_topic(self, data: ConsumerData, config: SubscriptionGroupConfig, beat: Heartbeat) -> bool:
        """Return True if the topic of the retries of a group was made or changed."""
        name = RETRY_PREFIX + data.group
        there = self._topics.get(name)
        if there is not None and beat.is_light:
            return False
        wanted = (self._topics.get(subscription.topic) for subscription in data.subscriptions)
        order = any(topic is not None and topic.order for topic in wanted)
        if there is None or there.order != order:
            sys_flag = UNIT_SUBSCRIPTION if data.unit_mode else 0
            made = self._make_retry_topic(name, config.retry_queue_nums, order=order, sys_flag=sys_flag)
            return made is not None
        return False

    def _unregister(self, call: Call) -> Answer:
        """Remove the connection, whichever client id the request has: RocketMQ does the same."""
        if group := call.values.get("producerGroup"):
            self._producers.unregister(call.connection, group)
        if group := call.values.get("consumerGroup"):
            self._consumers.unregister(call.connection, group)
            self._unlock_all(group, call.values["clientID"])
        return Answer()

    def _check(self, call: Call) -> Answer | None:
        body = parse_body(call.command.body)
        found = None if body is None else object_of(body, "the body").get("subscriptionData")
        if found is None:
            return Answer()
        data = object_of(found, "the member subscriptionData")
        kind = text_of(data, "expressionType", TOPIC_MOST)
        if is_tag_type(kind):
            return Answer()
        if not self._is_property_filter_on():
            remark = f"The broker does not support consumer to filter message by {kind}"
            return Answer(Code.SYSTEM_ERROR, remark=remark)
        text = text_of(data, "subString", EXPRESSION_MOST)
        if self._in_thread and takes_long(kind, text):
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, lambda: loop.call_soon_threadsafe(call.later, _any_verdict(call, kind, text)))
            return None
        return _verdict(kind, text)


def _any_verdict(call: Call, kind: str, text: str) -> Answer:
    """Return the answer, also to what goes wrong on a thread."""
    try:
        return _verdict(kind, text)
    except Exception as error:
        return failed(call.connection, call.command, error)


def _verdict(kind: str, text: str) -> Answer:
    """Return the answer to the check of an expression. Threads may call it."""
    try:
        wrong = filter_error(kind, text)
    except RocketcError as error:  # without lark
        return Answer(Code.SYSTEM_ERROR, remark=str(error))
    return Answer() if wrong is None else Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark=wrong)
