"""How the consumers of each topic ask for messages: by pulls. A slave of RocketMQ asks its master for this table.

Source: RocketMQ QueryAssignmentProcessor, MessageRequestModeSerializeWrapper; observed on 5.3.3.
"""

from __future__ import annotations

from rocketc.broker.admin import forms
from rocketc.remoting.server import Answer, Call


class RequestModes:
    """Answers GET_ALL_MESSAGE_REQUEST_MODE (402): no topic has the mode POP."""

    codes = (402,)

    def process(self, call: Call) -> Answer:
        return Answer(body=forms.body({"messageRequestModeMap": {}}))
