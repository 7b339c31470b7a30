"""One queue of a consumer, with its messages and the pull of more.

Source: RocketMQ ProcessQueue, PullRequest.
"""

from __future__ import annotations

import asyncio

from rocketc.client.process_queue import ProcessQueue
from rocketc.client.pull_decisions import PullRequest
from rocketc.client.routes import MessageQueue
from rocketc.client.send_backs import LocalRetries
from rocketc.read._message import Message

_CALL_SECONDS = 0.5  # that a queue waits for the end of a call of the listener


class Owned:
    """One queue of this member.

    room       is set when messages were consumed while the pull waits for that
    consuming  held during each call of an orderly listener: another member gets the queue between calls
    retries    deliveries that the messages themselves do not know
    last_stored  when the last message was stored that was pulled, ms since 1970; None: none was pulled
    was_missing  the broker did not have the topic at the last pull
    """

    def __init__(self, queue: MessageQueue, offset: int, now: int) -> None:
        self.queue = queue
        self.consuming = asyncio.Lock()
        self.process_queue: ProcessQueue[Message] = ProcessQueue(now)
        self.request = PullRequest(queue, self.process_queue, offset)
        self.room = asyncio.Event()
        self.pulling: asyncio.Task[None] | None = None
        self.retries = LocalRetries()
        self.last_stored: int | None = None
        self.was_missing = False

    async def wait_between_calls(self) -> bool:
        """Wait a moment for the end of a call of an orderly listener; return whether it ended."""
        waiting = asyncio.ensure_future(self.consuming.acquire())
        done, _ = await asyncio.wait({waiting}, timeout=_CALL_SECONDS)
        if not done:
            waiting.cancel()
            return False
        self.consuming.release()
        return True
