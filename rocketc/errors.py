"""All exceptions of rocketc. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

import errno

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
    """Bytes that do not form a frame of the remoting protocol. The connection that they came from must be closed."""


class BadRequestError(RocketcError, ValueError):
    """A request lacks a field that it needs, or a field has a value of the wrong type."""


class SubscriptionError(RocketcError, ValueError):
    """The expression of a subscription cannot be parsed. A broker answers SUBSCRIPTION_PARSE_FAILED."""


class NotSentError(RocketcError, ConnectionError):
    """A request never left this process: it may be sent again, to any server."""


class ConnectionLostError(RocketcError, ConnectionError):
    """The connection ended before the answer to a request: the request may have been carried out."""


class NoAnswerError(RocketcError, TimeoutError):
    """The answer to a request did not come in time: the request may have been carried out."""


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
