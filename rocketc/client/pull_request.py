"""PullRequest: the pulls of a tool. They commit no offset, and bring their subscription.

Source: RocketMQ PullMessageRequestHeader, MQAdminUtils.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocketc.client.pull_decisions import HOLD_MS
from rocketc.client.routes import MessageQueue
from rocketc.remoting.command import Command
from rocketc.remoting.requests import CODES, REQUESTS
from rocketc.remoting.subscribing import ALL, TAG, PullFlag

PULL = CODES["PULL_MESSAGE"]


@dataclass(frozen=True)
class PullRequest:
    """What all pulls of one scan have in common.

    group       consumer group
    expression  tags between `||`: the broker leaves out most other messages
    expression_type  SQL92: the broker leaves out messages that do not match, unless its settings do not allow that
    most_bytes  of an answer; brokers have limits of their own
    hook        signs each request; None: they are not signed
    """

    group: str
    expression: str = ALL
    expression_type: str = TAG
    most_bytes: int = 256 << 10
    hook: Callable[[Command], object] | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether the broker leaves out messages.

        >>> PullRequest("audit").is_filtered, PullRequest("audit", "web||app").is_filtered
        (False, True)
        """
        return self.expression != ALL

    @property
    def is_signed(self) -> bool:
        return self.hook is not None

    def values(self, queue: MessageQueue, offset: int, most: int, *, holds: bool = False) -> dict[str, Any]:
        """Return the fields of a pull of at most `most` messages. holds: the broker waits up to 15 s for a message.

        >>> PullRequest("audit").values(MessageQueue("orders", "broker-a", 3), 17, 32)["queueOffset"]
        17
        """
        return {
            "consumerGroup": self.group,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "queueOffset": offset,
            "maxMsgNums": most,
            "sysFlag": int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND * holds),
            "commitOffset": 0,
            "suspendTimeoutMillis": HOLD_MS * holds,
            "subscription": self.expression,
            "subVersion": 0,
            "expressionType": self.expression_type,
            "maxMsgBytes": self.most_bytes,
        }

    def unsigned(self, queue: MessageQueue, offset: int, most: int, *, opaque: int) -> Command:
        """Return a pull that does not wait for messages, without a signature.

        >>> PullRequest("audit").unsigned(MessageQueue("orders", "broker-a", 3), 17, 32, opaque=5).fields["maxMsgNums"]
        '32'
        """
        return Command(PULL, REQUESTS[PULL].encode(self.values(queue, offset, most)), opaque=opaque)

    def command(self, queue: MessageQueue, offset: int, most: int, *, opaque: int) -> Command:
        """Return a pull that does not wait for messages, signed if there is a hook.

        >>> PullRequest("audit").command(MessageQueue("orders", "broker-a", 3), 17, 32, opaque=5).opaque
        5
        """
        command = self.unsigned(queue, offset, most, opaque=opaque)
        if self.hook is not None:
            self.hook(command)
        return command
