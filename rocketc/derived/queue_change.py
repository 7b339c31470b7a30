"""QueueChange: what a subscriber of the change feed is told of a queue."""

from __future__ import annotations

from typing import NamedTuple


class QueueChange(NamedTuple):
    """A queue that got messages.

    topic, queue_id
    max_offset       queue offset behind its last message. It is lower than one told before if the topic was deleted
                     and has come again
    tags_codes       of the new units, each once: the hashes of their tags, 0 for none, as the consume queue has them;
                     the delivery times of SCHEDULE_TOPIC_XXXX. None: more than 16, or unknown

    >>> QueueChange("orders", 0, 7, (2598919,))
    QueueChange(topic='orders', queue_id=0, max_offset=7, tags_codes=(2598919,))
    """

    topic: str
    queue_id: int
    max_offset: int
    tags_codes: tuple[int, ...] | None
