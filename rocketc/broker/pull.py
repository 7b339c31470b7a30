"""PULL_MESSAGE and LITE_PULL_MESSAGE: messages of a queue, or a pull that waits for them.

Source: RocketMQ PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from rocketc._layout import RETRY_PREFIX
from rocketc.broker._pull_path import CheckedPull, PullPath
from rocketc.broker._send_path import SendPath
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.fast_failure import REJECTED
from rocketc.broker.filters import ConsumerFilterManager, compiled, takes_long, text_filter
from rocketc.broker.groups import GroupManager
from rocketc.broker.held_pulls import SWEEP_SECONDS, HeldPull, HeldPulls
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.subscriptions import Subscription, parse_subscription
from rocketc.broker.topics import TopicManager
from rocketc.errors import CorruptUnitError, RocketcError, SubscriptionError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.remoting.subscribing import ConsumeType, MessageModel, PullFlag, is_tag_type
from rocketc.status import GetStatus
from rocketc.store._raw_records import RawGetResult
from rocketc.store._results import TagFilter
from rocketc.store._store import MessageStore
from rocketc.tables.config_manager import Clock
from rocketc.tables.groups import SubscriptionGroupConfig
from rocketc.tables.topics import PERM_READ

_log = logging.getLogger("rocketc.broker")

LITE_PULL = 361
AHEAD_BYTES = 2 << 20  # of the log, that a read from the disk reads ahead: one thread's work for many pulls

_BROKER, _GROUP, _TOPIC, _BROADCAST, _SUBSCRIPTION = range(1, 6)  # forbiddenType: what must not be read, and by whom
_WITHOUT_MESSAGES = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


class PullProcessor:
    """Answers pulls.

    filters      the SQL92 filters of the groups
    sends        gets the frames of other requests
    is_readable  whether a group may read a topic
    clock        gives ms; the subscriptions that pulls have are known for a while
    is_slave     pulls are refused unless slaveReadEnable is on; offsets outside of a queue are not corrected
    Its `path` is the compiled way for pulls that find messages; it has the counts of all pulls.
    """

    codes = (11, LITE_PULL)

    def __init__(
        self,
        store: MessageStore,
        topics: TopicManager,
        groups: GroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        filters: ConsumerFilterManager,
        config: BrokerConfig,
        sends: SendPath,
        is_readable: Callable[[str, str], bool] = lambda group, topic: True,
        is_slave: bool = False,
        *,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._store, self._topics, self._groups = store, topics, groups
        self._is_readable, self._is_slave = is_readable, is_slave
        self._keeps_offsets = is_slave and not store.config.offset_check_in_slave
        self._consumers, self._offsets, self._filters, self._config = consumers, offsets, filters, config
        self._loop = asyncio.get_running_loop()
        sweep = SWEEP_SECONDS if config.long_polling_enable else config.short_polling_time_mills / 1000
        self.path = PullPath(sends, store, offsets, (topics, groups.table, consumers, filters), self._check_for_path)
        self.held = HeldPulls(self._answer_again, store.max_offset, self._loop, sweep, self.path.find)
        self.settings_changed()

    def settings_changed(self) -> None:
        """Apply changed settings of the broker; check all pulls again."""
        self.path.enabled = not self._is_refused
        self.path.forget()

    @property
    def _is_refused(self) -> bool:
        return self._is_slave and not self._config.slave_read_enable

    @property
    def pulled(self) -> int:
        """Messages that were pulled."""
        return self.path.pulled

    @property
    def found(self) -> int:
        """Pulls that were answered with messages."""
        return self.path.found

    @property
    def missed(self) -> int:
        """Other pulls that were read, each time."""
        return self.path.missed

    @property
    def delivered(self) -> dict[tuple[str, str], list[int]]:
        """Messages, bytes and answers by topic and group."""
        return {key: one.total() for key, one in self.path.delivered.items()}

    @property
    def delivered_by_queue(self) -> list[tuple[str, str, int, int, int, int, float]]:
        """Topic, group, queue id, messages, bytes, answers and the seconds of these answers together."""
        return [(*key, *queue) for key, one in self.path.delivered.items() for queue in one.queues()]

    def process(self, call: Call) -> Answer | None:
        if self._is_refused:
            return Answer(Code.SYSTEM_BUSY, remark=REJECTED)
        text = self._long_filter(call.values)
        if text is not None:
            self._loop.run_in_executor(None, self._compile, call, text)
            return None
        return self._process(call)

    def _long_filter(self, pull: dict[str, Any]) -> str | None:
        """Return the expression of a pull if it takes long to compile, which a thread should do."""
        if not self._config.enable_property_filter or not self._store.background:
            return None
        kind, text = pull.get("expressionType"), pull.get("subscription")
        if not pull["sysFlag"] & PullFlag.SUBSCRIPTION:
            data = self._filters.find(pull["topic"], pull["consumerGroup"])
            kind, text = (None, None) if data is None else (data.expression_type, data.expression)
        return text if takes_long(kind, text) else None

    def _compile(self, call: Call, text: str) -> None:
        """Compile the filter of a pull, on a thread; then process it on the loop."""
        with contextlib.suppress(Exception):  # the answer says it
            compiled(text)
        self._loop.call_soon_threadsafe(self._answer_compiled, call)

    def _answer_compiled(self, call: Call) -> None:
        if not call.values["sysFlag"] & PullFlag.SUBSCRIPTION:
            self.path.forget()  # it may take the later pulls
        self._answer_later(call, self._process, call)

    def _process(self, call: Call) -> Answer | None:
        pull, began = call.values, self._loop.time()
        unmatched = self.path.take_unmatched(call.connection, call.command.opaque)
        if unmatched is not None:
            return self._answer(call, unmatched[0], began, unmatched[1])
        checked = self._check(call.command.code, pull, call.connection.peer)
        if isinstance(checked, Answer):
            return checked
        offset = max(pull["queueOffset"], 0)
        if self._store.background and not self._store.in_memory(pull["topic"], pull["queueId"], offset):
            self._loop.run_in_executor(None, self._read_cold, call, checked, began)
            return None
        return self._answer(call, checked, began)

    def _answer(
        self, call: Call, checked: CheckedPull, began: float, found: RawGetResult | None = None
    ) -> Answer | None:
        pull = call.values
        answer = self._read(pull, checked, began, found)
        self._commit(pull, answer)
        if answer.code != Code.PULL_NOT_FOUND or not pull["sysFlag"] & PullFlag.SUSPEND:
            return answer
        return self._hold(call, checked)

    def _read_cold(self, call: Call, checked: CheckedPull, began: float) -> None:
        """Read the records of a pull from the disk, on a thread; then answer it on the loop."""
        pull = call.values
        with (
            contextlib.suppress(Exception),  # the answer says it
            self._get(pull, checked, pull["queueOffset"], pull["maxMsgNums"]) as found,
        ):
            found.touch(AHEAD_BYTES)
        self._loop.call_soon_threadsafe(self._answer_cold, call, checked, began)

    def _answer_cold(self, call: Call, checked: CheckedPull, began: float) -> None:
        self._answer_later(call, self._answer, call, checked, began)

    def _answer_later(self, call: Call, work: Callable[..., Answer | None], *how: Any) -> None:
        """Answer a pull outside of process(), with work(*how). No error ends the service that calls this."""
        if call.connection.is_lost:
            return
        try:
            answer = work(*how)
        except Exception as error:
            _log.exception("%s: request %d failed", call.connection.peer, call.command.code)
            answer = Answer(Code.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if answer is not None:
            call.later(answer)

    def _hold(self, call: Call, checked: CheckedPull) -> Answer | None:
        pull = call.values
        wait = pull["suspendTimeoutMillis"] / 1000
        if not self._config.long_polling_enable:
            wait = self._config.short_polling_time_mills / 1000
        key, offset = (pull["topic"], pull["queueId"]), pull["queueOffset"]
        held = HeldPull(call, key, offset, checked, self._loop.time() + wait)
        self.held.add(held)
        call.hold()
        if self._store.max_offset(*key) > offset and self.held.remove(held):  # put since the first look
            return self._second_answer(held)
        return None

    def _answer_again(self, held: HeldPull) -> None:
        self._answer_later(held.call, self._second_answer, held)

    def _second_answer(self, held: HeldPull) -> Answer:
        """Answer a pull that has waited; it is not held again, and its offset is not committed again."""
        call, pull = held.call, held.call.values
        checked: CheckedPull | Answer = held.checked
        if not self.path.is_current(held.checked):  # a table has changed
            checked = self._check(call.command.code, pull, call.connection.peer)
        if isinstance(checked, Answer):
            return checked
        if checked is held.checked and held.looked > held.offset:  # what did not match is not read again
            pull = {**pull, "queueOffset": held.looked}
        frame = self.path.read(checked, pull["queueId"], pull["queueOffset"], pull["maxMsgNums"], call.command.opaque)
        if frame is not None:
            return Answer(Code.SUCCESS, frame=frame)
        unmatched = self.path.take_unmatched(None, call.command.opaque)
        answer = self._read(pull, checked, found=None if unmatched is None else unmatched[1])
        if answer.code == Code.PULL_NOT_FOUND and pull["queueOffset"] > held.offset:
            answer.code, answer.remark = Code.PULL_RETRY_IMMEDIATELY, GetStatus.NO_MATCHED_MESSAGE.name
        self._offsets.commit_pull(
            call.values["consumerGroup"],
            call.values["topic"],
            call.values["queueId"],
            answer.values.get("nextBeginOffset", 0),
        )
        return answer

    # checks, in RocketMQ's order

    def _check_for_path(self, code: int, pull: dict[str, Any]) -> CheckedPull | None:
        with contextlib.suppress(Exception):  # process() gets it, too
            if self._long_filter(pull) is not None:
                return None
            checked = self._check(code, pull, None)
            return None if isinstance(checked, Answer) else checked
        return None

    def _check(self, code: int, pull: dict[str, Any], peer: object) -> CheckedPull | Answer:
        config, generation = self._config, self.path.generation()
        if not config.broker_permission & PERM_READ:
            return _forbidden(_BROKER, f"the broker[{config.broker_ip1}] pulling message is forbidden")
        if code == LITE_PULL and not config.lite_pull_message_enable:
            return _forbidden(_BROKER, f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden")
        name, topic_name = pull["consumerGroup"], pull["topic"]
        group = self._groups.find(name)
        if group is None:
            return Answer(
                Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"subscription group [{name}] does not exist, apply first"
            )
        if not group.consume_enable:
            return _forbidden(_GROUP, f"subscription group no permission, {name}")
        topic = self._topics.get(topic_name)
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{topic_name}] not exist, apply first please! ")
        if not topic.perm & PERM_READ:
            return _forbidden(_TOPIC, f"the topic[{topic_name}] pulling message is forbidden")
        if not 0 <= pull["queueId"] < topic.read_queue_nums:
            return Answer(
                Code.INVALID_PARAMETER,
                remark=f"queueId[{pull['queueId']}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{_text_of(peer)}]",
            )
        subscription = self._subscription(pull, group)
        if isinstance(subscription, Answer):
            return subscription
        if not is_tag_type(subscription.expression_type) and not config.enable_property_filter:
            return Answer(
                Code.SYSTEM_ERROR,
                remark=f"The broker does not support consumer to filter message by {subscription.expression_type}",
            )
        slow = group.which_broker_when_consume_slowly if config.slave_read_enable else 0
        try:
            selected = self._property_filter(pull, name, subscription)
        except RocketcError as error:  # without lark
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        if isinstance(selected, Answer):
            return selected
        return CheckedPull(group, topic, subscription, slow, generation, selected)

    def _property_filter(self, pull: dict[str, Any], group: str, wanted: Subscription) -> TagFilter | Answer | None:
        """Return the filter for an expression of another type than TAG; None: all messages.

        As in RocketMQ, an expression in the pull that is not valid selects all messages.
        """
        topic = pull["topic"]
        if is_tag_type(wanted.expression_type) or wanted.class_filter_mode:
            return None
        if self._config.filter_support_retry and topic.startswith(RETRY_PREFIX):
            return self._filters.retry_filter(topic)
        if not pull["sysFlag"] & PullFlag.SUBSCRIPTION:
            return self._filters.pull_filter(topic, group) or _no_filter()
        found = text_filter(wanted.expression_type, wanted.sub_string)
        if found is None:
            _log.debug("group %s, topic %s: a pull lacks a valid filter: all messages match", group, topic)
        return found

    def _subscription(self, pull: dict[str, Any], group: SubscriptionGroupConfig) -> Subscription | Answer:
        name, topic = group.group_name, pull["topic"]
        if pull["sysFlag"] & PullFlag.SUBSCRIPTION:
            try:
                own = parse_subscription(
                    topic, pull.get("subscription"), pull.get("expressionType"), sub_version=pull["subVersion"]
                )
            except SubscriptionError:
                return Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark="parse the consumer's subscription failed")
            self._consumers.compensate(name, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING, own, self._clock())
            return own
        known = self._consumers.group(name)
        if known is None:
            return Answer(Code.SUBSCRIPTION_NOT_EXIST, remark="the consumer's group info not exist")
        if known.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            return _forbidden(_BROADCAST, f"the consumer group[{name}] can not consume by broadcast way")
        if not self._is_readable(name, topic):
            return _forbidden(_SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{topic}]")
        found = self._consumers.find_subscription(name, topic)
        if found is None:
            return Answer(Code.SUBSCRIPTION_NOT_EXIST, remark="the consumer's subscription not exist")
        if found.sub_version < pull["subVersion"]:
            return Answer(Code.SUBSCRIPTION_NOT_LATEST, remark="the consumer's subscription not latest")
        if not is_tag_type(found.expression_type):
            data = self._filters.find(topic, name)
            if data is None:
                return _no_filter()
            if data.client_version < found.sub_version:
                return Answer(Code.FILTER_DATA_NOT_LATEST, remark="the consumer's consumer filter data not latest")
        return found

    # reading

    def _read(
        self,
        pull: dict[str, Any],
        checked: CheckedPull,
        began: float | None = None,
        found: RawGetResult | None = None,
    ) -> Answer:
        """Read messages.

        began  when the pull came; None: it was held
        found  what was read already; None: nothing
        """
        group = checked.group
        topic, queue_id, offset = pull["topic"], pull["queueId"], pull["queueOffset"]
        reset = self._offsets.take_reset(group.group_name, topic, queue_id)
        try:
            if reset is not None:
                found = self._get(pull, checked, reset, 1)
            elif found is None:
                found = self._get(pull, checked, offset, pull["maxMsgNums"])
        except CorruptUnitError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        except (RocketcError, OSError) as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        status = found.status if reset is None else GetStatus.OFFSET_RESET
        is_below = offset < 0 and reset is None and status not in _WITHOUT_MESSAGES  # get_raw() began at 0
        if is_below:
            status = GetStatus.OFFSET_TOO_SMALL
        slow = self._config.slave_read_enable and found.suggest_pulling_from_slave
        corrected = offset if self._keeps_offsets else found.min_offset
        answer = Answer(
            self._code_of(status, offset),
            {
                "suggestWhichBrokerId": group.which_broker_when_consume_slowly if slow else 0,
                "nextBeginOffset": corrected if is_below else found.next_offset if reset is None else reset,
                "minOffset": found.min_offset,
                "maxOffset": found.max_offset,
                "topicSysFlag": checked.topic.topic_sys_flag,
                "groupSysFlag": group.group_sys_flag,
            },
            remark=status.name,
        )
        if status is GetStatus.FOUND:
            answer.body = found.views
            seconds = 0.0 if began is None else self._loop.time() - began
            self.path.count(topic, group.group_name, queue_id, found.message_count, found.total_bytes, seconds)
        else:
            self.path.missed += 1
        return answer

    def _code_of(self, status: GetStatus, offset: int) -> Code:
        code = code_of(status, offset)
        return Code.PULL_RETRY_IMMEDIATELY if code == Code.PULL_OFFSET_MOVED and self._keeps_offsets else code

    def _get(self, pull: dict[str, Any], checked: CheckedPull, offset: int, count: int) -> RawGetResult:
        return self._store.get_raw(
            pull["topic"],
            pull["queueId"],
            max(offset, 0),
            max(count, 1),
            tags=checked.filter,
            exact_tags=False,
            broker_limits=True,
        )

    def _commit(self, pull: dict[str, Any], answer: Answer) -> None:
        group, topic, queue_id = pull["consumerGroup"], pull["topic"], pull["queueId"]
        self._offsets.commit_pull(group, topic, queue_id, answer.values.get("nextBeginOffset", 0))
        if pull["sysFlag"] & PullFlag.COMMIT_OFFSET and pull["commitOffset"] >= 0:
            self._offsets.commit(group, topic, queue_id, pull["commitOffset"])


def code_of(status: GetStatus, offset: int) -> Code:
    """Return the code of an answer for the status of a read at `offset`.

    >>> code_of(GetStatus.FOUND, 7).name, code_of(GetStatus.NO_MESSAGE_IN_QUEUE, 7).name
    ('SUCCESS', 'PULL_OFFSET_MOVED')
    """
    if status is GetStatus.FOUND:
        return Code.SUCCESS
    if status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
        return Code.PULL_RETRY_IMMEDIATELY
    if status in _WITHOUT_MESSAGES:
        return Code.PULL_NOT_FOUND if offset == 0 else Code.PULL_OFFSET_MOVED
    if status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_FOUND_NULL):
        return Code.PULL_NOT_FOUND
    return Code.PULL_OFFSET_MOVED


def _forbidden(kind: int, remark: str) -> Answer:
    return Answer(Code.NO_PERMISSION, {"forbiddenType": kind}, remark=remark)


def _no_filter() -> Answer:
    remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
    return Answer(Code.FILTER_DATA_NOT_EXIST, remark=remark)


def _text_of(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
