"""All exceptions of rocketc. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from rocketc.status import PutStatus

FILE_TEXTS = {  # errno -> what has taken the place of a file
    errno.ELOOP: "a symbolic link, which a writer does not follow: put the file itself in its place",
    errno.ENXIO: "not a regular file",
}


class RocketcError(Exception):
    """The base class of all errors that rocketc raises itself.

    status  RocketMQ's PutStatus for an error raised by a put; otherwise None
    """

    status: PutStatus | None = None


class StoreIOError(RocketcError, OSError):
    """A file could not be read, mapped, written or made durable; `errno` and `filename` as in OSError."""


class StoreFullError(StoreIOError):
    """There is no space left on the device (ENOSPC)."""


class StoreLockedError(RocketcError):
    """This process or another one has the store open for writing."""


class StoreFailedError(RocketcError):
    """An earlier write or flush failed, or the store has lost its lock: it accepts no more messages until it is opened
    again."""


class PageCacheBusyError(RocketcError):
    """A put has held the put lock for longer than osPageCacheBusyTimeOutMills: try again a moment later."""


class FrameError(RocketcError, ValueError):
    """Bytes that do not form a frame of the remoting or the HA protocol. The connection must be closed."""


class BadRequestError(RocketcError, ValueError):
    """A request lacks a field that it needs, or a field has a value of the wrong type."""


class SubscriptionError(RocketcError, ValueError):
    """The expression of a subscription cannot be parsed. A broker answers SUBSCRIPTION_PARSE_FAILED.

    Also: a topic of a push consumer lacks a listener, or has a second one, or consumers of a group differ.
    """


class SqlError(RocketcError, ValueError):
    """An SQL92 filter that RocketMQ refuses, or that is too long. A broker answers SUBSCRIPTION_PARSE_FAILED.

    position  index of the first character that does not fit; the message has its line and column, and what fits
    """

    def __init__(self, text: str, position: int = 0) -> None:
        super().__init__(text, position)
        self.position = position

    def __str__(self) -> str:
        return str(self.args[0])


class NotSentError(RocketcError, ConnectionError):
    """A request never left this process: it may be sent again, to any server."""


class ConnectionLostError(RocketcError, ConnectionError):
    """The connection ended before the answer to a request: the request may have been carried out."""


class NoAnswerError(RocketcError, TimeoutError):
    """The answer to a request did not come in time: the request may have been carried out."""


class RequestTimeoutError(RocketcError, TimeoutError):
    """The reply to a request of a producer did not come in time. The request is stored: a consumer may carry it out."""


class UnsupportedError(RocketcError, NotImplementedError):
    """A server of this release cannot do what was asked for. Nothing was sent; the message says what works there."""


class AnswerError(RocketcError):
    """A server answered a request with an error, or with something that is not an answer to it.

    code     of the answer; None: the answer cannot be read
    address  host:port of the server
    """

    def __init__(self, address: str, text: str, code: int | None = None) -> None:
        super().__init__(address, text, code)
        self.address, self.code = address, code

    def __str__(self) -> str:
        return f"{self.address}: {self.args[1]}"


class ChangeError(RocketcError):
    """Several servers were asked for a change, and some of them failed. Nothing is undone.

    changed  what the other ones returned, by name: of a broker, or host:port of a name server
    failed   the errors by name
    """

    def __init__(self, changed: Mapping[str, Any], failed: Mapping[str, RocketcError]) -> None:
        super().__init__(changed, failed)
        self.changed, self.failed = dict(changed), dict(failed)

    def fault(self, name: str) -> str:
        """Return why a server failed, as a text."""
        return str(self.failed[name]).removeprefix(f"{name}: ")

    def __str__(self) -> str:
        faults = "; ".join(f"{name}: {self.fault(name)}" for name in self.failed)
        return f"not changed on {faults}; changed on: {', '.join(self.changed) or 'none'}"


class TopicNotFoundError(RocketcError, LookupError):
    """No broker of the cluster has a topic, or the topic is without queues; the message says what to do."""


class TopicPermissionError(RocketcError, PermissionError):
    """A topic exists, and no broker allows to write it. Nothing was sent; the message says how to allow it."""


class PartlySentError(RocketcError):
    """Some batches were stored, and then one failed, or a message was refused.

    results  those of the messages before, in order; at least one
    error    why the others were not sent; after ConnectionLostError and NoAnswerError, one more batch may be stored
    """

    def __init__(self, results: Sequence[object], error: Exception) -> None:
        super().__init__(results, error)
        self.results, self.error = results, error

    def __str__(self) -> str:
        count = len(self.results)
        if count == 1:
            return f"1 message was stored, and then: {self.error}"
        return f"{count} messages were stored, and then: {self.error}"


class HalfMessageError(RocketcError):
    """A broker stored a half message with another status than SEND_OK. It is rolled back, and no transaction begins.

    result  the SendResult
    """

    def __init__(self, result: object, text: str) -> None:
        super().__init__(result, text)
        self.result = result

    def __str__(self) -> str:
        return str(self.args[1])


class BackpressureError(RocketcError, BlockingIOError):
    """A producer has as much in flight as its settings allow: wait for results, or raise the limits."""


class AssignmentError(RocketcError, RuntimeError):
    """A pull consumer does not have the queue of a call now.

    Also: it lacks topics or queues, or a call mixes subscribed topics and assigned queues.
    """


class QueueOffsetError(RocketcError, ValueError):
    """An offset that a queue does not have, or that a consumer may not commit yet."""


class CorruptRecordError(RocketcError, ValueError):
    """Bytes that RocketMQ does not write.

    file    the path, or None for a buffer
    offset  physical offset of the first damaged byte
    reason  a name in `docs/damage.md`, such as "bad_body_crc"
    """

    def __init__(self, file: str | None, offset: int, reason: str, advice: str = "") -> None:
        super().__init__(file, offset, reason, advice)
        self.file = file
        self.offset = offset
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        more = f"; {self.advice}" if self.advice else ""
        return f"{where}damage at physical offset {self.offset}: {self.reason}{more}"


class CorruptUnitError(CorruptRecordError):
    """A unit of a consume queue that does not match the record it points to: the queue or the log is damaged.

    file    the path of the consume queue file
    offset  position of the unit in the file
    reason  as in CorruptRecordError; "bad_unit": there is a valid record, but of another message
    """

    def __str__(self) -> str:
        return f"{self.file}: damage at byte {self.offset}: {self.reason}; {self.advice}"


class ConfigTableError(RocketcError, ValueError):
    """A broker's table, config/*.json, is not valid JSON; the message names file, line and column."""


class PhyOffsetError(RocketcError, ValueError):
    """A physical offset that is not in the log, not the start of a record, or not the end of the log where it must be.

    phy_offset  the offset; the message says where the log begins, ends or continues
    """

    def __init__(self, text: str, phy_offset: int) -> None:
        super().__init__(text, phy_offset)
        self.phy_offset = phy_offset

    def __str__(self) -> str:
        return str(self.args[0])


class ReplicaError(RocketcError, ValueError):
    """The log of a replica and that of its master do not fit. Replication ends, and nothing that differs is appended.

    phy_offset  where; the message names it too
    reason      "differs": the master has other bytes. "silent": the master does not send bytes that it should have.
                "file_size": the master's log files have another size. "damaged": the master sends a damaged record
    """

    def __init__(self, text: str, phy_offset: int, reason: str = "differs") -> None:
        super().__init__(text, phy_offset, reason)
        self.phy_offset, self.reason = phy_offset, reason

    def __str__(self) -> str:
        return str(self.args[0])


class IllegalMessageError(RocketcError, ValueError):
    """A message that does not fit the format: it is too long, or a field is out of range."""


class PatternTimeoutError(RocketcError, TimeoutError):
    """A regular expression did not finish in time for one text."""


class ClosedError(RocketcError, ValueError):
    """The object is closed."""


class MissingCodecError(RocketcError, ImportError):
    """The library for the compression of a body is not installed; the message names the package."""


class DamageWarning(UserWarning):
    """Damaged bytes were skipped (`errors="report"`)."""


class MissingTopicWarning(UserWarning):
    """A scan found no message, and the store does not have the topics that were asked for."""
