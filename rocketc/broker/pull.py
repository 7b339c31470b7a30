"""PULL_MESSAGE and LITE_PULL_MESSAGE: messages of a queue, or a pull that waits for them.

Source: RocketMQ PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable
from typing import Any

from rocketc.broker._pull_path import CheckedPull, PullPath
from rocketc.broker._send_path import SendPath
from rocketc.broker.config import BrokerConfig
from rocketc.broker.consumers import ConsumerManager
from rocketc.broker.groups import GroupManager
from rocketc.broker.heartbeat import MessageModel
from rocketc.broker.held_pulls import SWEEP_SECONDS, HeldPull, HeldPulls
from rocketc.broker.offsets import ConsumerOffsetManager
from rocketc.broker.subscriptions import Subscription, is_tag_type, parse_subscription
from rocketc.broker.topics import TopicManager
from rocketc.errors import CorruptUnitError, RocketcError, SubscriptionError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer, Call
from rocketc.status import GetStatus
from rocketc.store._raw_records import RawGetResult
from rocketc.store._store import MessageStore
from rocketc.tables.groups import SubscriptionGroupConfig
from rocketc.tables.topics import PERM_READ

_log = logging.getLogger("rocketc.broker")

LITE_PULL = 361
FORBIDDEN_TOPIC = 5  # forbiddenType: the group must not read the topic
_WITHOUT_MESSAGES = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


class PullFlag(enum.IntEnum):
    """The bits of a pull's sysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8


class PullProcessor:
    """Answers pulls.

    sends        gets the frames of other requests
    is_readable  whether a group may read a topic
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
        config: BrokerConfig,
        sends: SendPath,
        is_readable: Callable[[str, str], bool] = lambda group, topic: True,
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._is_readable = is_readable
        self._consumers, self._offsets, self._config = consumers, offsets, config
        self._loop = asyncio.get_running_loop()
        sweep = SWEEP_SECONDS if config.long_polling_enable else config.short_polling_time_mills / 1000
        self.held = HeldPulls(self._answer_again, store.max_offset, self._loop, sweep)
        self.path = PullPath(sends, store, offsets, (topics, groups.table, consumers), self._check_for_path)

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
        return self.path.delivered

    def process(self, call: Call) -> Answer | None:
        pull = call.values
        checked = self._check(call.command.code, pull, call.connection.peer)
        if isinstance(checked, Answer):
            return checked
        offset = max(pull["queueOffset"], 0)
        if self._store.background and not self._store.in_memory(pull["topic"], pull["queueId"], offset):
            self._loop.run_in_executor(None, self._read_cold, call, checked)
            return None
        return self._answer(call, checked)

    def _answer(self, call: Call, checked: CheckedPull) -> Answer | None:
        pull = call.values
        answer = self._read(pull, checked)
        self._commit(pull, answer)
        if answer.code != Code.PULL_NOT_FOUND or not pull["sysFlag"] & PullFlag.SUSPEND:
            return answer
        return self._hold(call, checked)

    def _read_cold(self, call: Call, checked: CheckedPull) -> None:
        """Read the records of a pull from the disk, on a thread; then answer it on the loop."""
        pull = call.values
        with (
            contextlib.suppress(Exception),  # the answer says it
            self._get(pull, checked, pull["queueOffset"], pull["maxMsgNums"]) as found,
        ):
            found.touch()
        self._loop.call_soon_threadsafe(self._answer_cold, call, checked)

    def _answer_cold(self, call: Call, checked: CheckedPull) -> None:
        self._answer_later(call, self._answer, call, checked)

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
        frame = self.path.read(checked, pull["queueId"], pull["queueOffset"], pull["maxMsgNums"], call.command.opaque)
        if frame is not None:
            return Answer(Code.SUCCESS, frame=frame)
        answer = self._read(pull, checked)
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
            checked = self._check(code, pull, None)
            return None if isinstance(checked, Answer) else checked
        return None

    def _check(self, code: int, pull: dict[str, Any], peer: object) -> CheckedPull | Answer:
        config, generation = self._config, self.path.generation()
        if not config.broker_permission & PERM_READ:
            return Answer(Code.NO_PERMISSION, remark=f"the broker[{config.broker_ip1}] pulling message is forbidden")
        if code == LITE_PULL and not config.lite_pull_message_enable:
            return Answer(
                Code.NO_PERMISSION,
                remark=f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
            )
        name, topic_name = pull["consumerGroup"], pull["topic"]
        group = self._groups.find(name)
        if group is None:
            return Answer(
                Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"subscription group [{name}] does not exist, apply first"
            )
        if not group.consume_enable:
            return Answer(Code.NO_PERMISSION, remark=f"subscription group no permission, {name}")
        topic = self._topics.get(topic_name)
        if topic is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{topic_name}] not exist, apply first please! ")
        if not topic.perm & PERM_READ:
            return Answer(Code.NO_PERMISSION, remark=f"the topic[{topic_name}] pulling message is forbidden")
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
        return CheckedPull(group, topic, subscription, slow, generation)

    def _subscription(self, pull: dict[str, Any], group: SubscriptionGroupConfig) -> Subscription | Answer:
        name, topic = group.group_name, pull["topic"]
        if pull["sysFlag"] & PullFlag.SUBSCRIPTION:
            try:
                return parse_subscription(
                    topic, pull.get("subscription"), pull.get("expressionType"), sub_version=pull["subVersion"]
                )
            except SubscriptionError:
                return Answer(Code.SUBSCRIPTION_PARSE_FAILED, remark="parse the consumer's subscription failed")
        known = self._consumers.group(name)
        if known is None:
            return Answer(Code.SUBSCRIPTION_NOT_EXIST, remark="the consumer's group info not exist")
        if known.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            return Answer(Code.NO_PERMISSION, remark=f"the consumer group[{name}] can not consume by broadcast way")
        if not self._is_readable(name, topic):
            return Answer(
                Code.NO_PERMISSION,
                {"forbiddenType": FORBIDDEN_TOPIC},
                remark=f"the consumer group[{name}] is forbidden for topic[{topic}]",
            )
        found = self._consumers.find_subscription(name, topic)
        if found is None:
            return Answer(Code.SUBSCRIPTION_NOT_EXIST, remark="the consumer's subscription not exist")
        if found.sub_version < pull["subVersion"]:
            return Answer(Code.SUBSCRIPTION_NOT_LATEST, remark="the consumer's subscription not latest")
        return found

    # reading

    def _read(self, pull: dict[str, Any], checked: CheckedPull) -> Answer:
        group = checked.group
        topic, queue_id, offset = pull["topic"], pull["queueId"], pull["queueOffset"]
        reset = self._offsets.take_reset(group.group_name, topic, queue_id)
        try:
            if reset is None:
                found = self._get(pull, checked, offset, pull["maxMsgNums"])
            else:
                found = self._get(pull, checked, reset, 1)
        except CorruptUnitError as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        except (RocketcError, OSError) as error:
            return Answer(Code.SYSTEM_ERROR, remark=str(error))
        status = found.status if reset is None else GetStatus.OFFSET_RESET
        is_below = offset < 0 and reset is None and status not in _WITHOUT_MESSAGES  # get_raw() began at 0
        if is_below:
            status = GetStatus.OFFSET_TOO_SMALL
        slow = self._config.slave_read_enable and found.suggest_pulling_from_slave
        answer = Answer(
            code_of(status, offset),
            {
                "suggestWhichBrokerId": group.which_broker_when_consume_slowly if slow else 0,
                "nextBeginOffset": found.min_offset if is_below else found.next_offset if reset is None else reset,
                "minOffset": found.min_offset,
                "maxOffset": found.max_offset,
                "topicSysFlag": 0,
                "groupSysFlag": group.group_sys_flag,
            },
            remark=status.name,
        )
        if status is GetStatus.FOUND:
            answer.body = found.views
            self.path.count(topic, group.group_name, found.message_count, found.total_bytes)
        else:
            self.path.missed += 1
        return answer

    def _get(self, pull: dict[str, Any], checked: CheckedPull, offset: int, count: int) -> RawGetResult:
        return self._store.get_raw(
            pull["topic"],
            pull["queueId"],
            max(offset, 0),
            max(count, 1),
            tags=checked.subscription.tag_filter,
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


def _text_of(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
