"""What a listener raises to get its messages again at a time of its choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocketc.client.outgoing import level_of
from rocketc.read._message import Message


class RetryLater(Exception):
    """A listener raises this to get its messages again later; any other exception leaves the time to the broker.

    delay_level  1 to 18, or the name of a level such as "10s"; -1: to the dead letters at once; 0: the broker decides
    messages     of a batch, those that failed: the other messages of the call are consumed. None: all. An orderly
                 listener gets all messages of the call again, because it consumes them in order
    Raises IllegalMessageError for the level, ValueError for an empty list.

    >>> RetryLater("10s").level
    3
    """

    def __init__(self, delay_level: int | str = 0, *, messages: Iterable[Message] | None = None) -> None:
        super().__init__(delay_level)
        is_other = type(delay_level) is int and delay_level in (-1, 0)
        self.level = int(delay_level) if is_other else level_of(delay_level)
        self.messages = None if messages is None else list(messages)
        if self.messages == []:
            raise ValueError("messages: expected at least one message; a listener that returns has consumed all")

    def failed_of(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return those messages of a call that failed: all if one of the named messages is not among them."""
        if self.messages is None:
            return messages
        named = {id(message) for message in self.messages}
        failed = [message for message in messages if id(message) in named]
        return failed if len(failed) == len(named) else messages
