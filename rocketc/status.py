"""PutStatus and GetStatus: the result of a put or a get, under RocketMQ's names."""

from __future__ import annotations

import enum


class PutStatus(enum.IntEnum):
    """RocketMQ's PutMessageStatus, names and ordinals of 5.x.

    A put returns PUT_OK, or a status that says what is unknown about a message that is stored: FLUSH_DISK_TIMEOUT, and
    for replicas FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE. All other values are the `status` of the exception that
    the put raises; nothing is stored then.

    >>> PutStatus.FLUSH_DISK_TIMEOUT.is_stored, PutStatus.MESSAGE_ILLEGAL.is_stored
    (True, False)
    """

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    PUT_TO_REMOTE_BROKER_FAIL = 11
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 12
    WHEEL_TIMER_FLOW_CONTROL = 13
    WHEEL_TIMER_MSG_ILLEGAL = 14
    WHEEL_TIMER_NOT_ENABLE = 15

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log and will be consumed (RocketMQ's isOk)."""
        return self <= PutStatus.SLAVE_NOT_AVAILABLE


class GetStatus(enum.IntEnum):
    """RocketMQ's GetMessageStatus, names and ordinals of 5.x: why a get() returned these messages, or none.

    FOUND                   there are messages
    NO_MATCHED_MESSAGE      no message has passed the filter so far: continue at next_offset
    MESSAGE_WAS_REMOVING    the messages were deleted from the log: continue at next_offset
    OFFSET_FOUND_NULL       a consume queue file is missing: continue at next_offset, after that file
    OFFSET_OVERFLOW_BADLY   the offset is greater than the end of the queue
    OFFSET_OVERFLOW_ONE     the offset is the end of the queue: there are no new messages yet
    OFFSET_TOO_SMALL        the offset is before the first message that is left
    NO_MATCHED_LOGIC_QUEUE  the queue does not exist; not used: RocketMQ then creates the queue and returns
                            NO_MESSAGE_IN_QUEUE, which rocketc returns, too
    NO_MESSAGE_IN_QUEUE     the queue has never had a message
    OFFSET_RESET            returned by brokers of RocketMQ 5, never by a store

    >>> GetStatus.FOUND.name, int(GetStatus.OFFSET_TOO_SMALL)
    ('FOUND', 6)
    """

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9
