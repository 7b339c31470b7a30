"""QueueChange: what the change feed reports about a queue."""

from __future__ import annotations

from typing import NamedTuple


class QueueChange(NamedTuple):
    """A queue that received messages.

    topic, queue_id
    max_offset       queue offset after its last message. It is lower than in an earlier change if the topic was deleted
                     and created again
    tags_codes       distinct tags codes of the new units, as in the consume queue: the hashes of their tags, 0 for no
                     tag; delivery times for SCHEDULE_TOPIC_XXXX. None: more than 16, or unknown

    >>> QueueChange("orders", 0, 7, (2598919,))
    QueueChange(topic='orders', queue_id=0, max_offset=7, tags_codes=(2598919,))
    """

    topic: str
    queue_id: int
    max_offset: int
    tags_codes: tuple[int, ...] | None
