"""All exceptions of rocketc. Each says what was wrong, where, and what to do."""

from __future__ import annotations

from rocketc.status import PutStatus


class RocketcError(Exception):
    """The base of all errors that rocketc raises itself.

    status  of an error that a put raises: RocketMQ's word for it, a PutStatus; else None
    """

    status: PutStatus | None = None


class StoreIOError(RocketcError, OSError):
    """A file could not be read, mapped, written or made durable; `errno` and `filename` as in OSError."""


class StoreFullError(StoreIOError):
    """No room is left on the device (ENOSPC)."""


class StoreLockedError(RocketcError):
    """Another process, or this one, has the store open for writing."""


class StoreFailedError(RocketcError):
    """An earlier write or flush failed: the store takes no more messages until it is opened anew."""


class PageCacheBusyError(RocketcError):
    """Whoever appends has done so for longer than osPageCacheBusyTimeOutMills: try again a moment later."""


class CorruptRecordError(RocketcError, ValueError):
    """Bytes that are not what RocketMQ writes.

    file    the path, or None for a buffer
    offset  physical offset of the first damaged byte
    reason  one of the names in `docs/damage.md`, such as "bad_body_crc"
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
    """A unit of a consume queue that does not name the record it should: the queue is damaged, or the log.

    file    the path of the consume queue's file
    offset  the unit's position in it
    reason  as with CorruptRecordError; "bad_unit": a record is there, and it is another one
    """

    def __str__(self) -> str:
        return f"{self.file}: damage at byte {self.offset}: {self.reason}; {self.advice}"


class ConfigTableError(RocketcError, ValueError):
    """A broker's table, config/*.json, is no JSON; the message names file, line and column."""


class PhyOffsetError(RocketcError, ValueError):
    """A physical offset that a log does not have, that no record begins at, or that it does not go on at.

    phy_offset  the offset; the message says where the log begins, ends or goes on
    """

    def __init__(self, text: str, phy_offset: int) -> None:
        super().__init__(text, phy_offset)
        self.phy_offset = phy_offset

    def __str__(self) -> str:
        return str(self.args[0])


class IllegalMessageError(RocketcError, ValueError):
    """A message that the format can't hold: too long, or a field out of its range."""


class PatternTimeoutError(RocketcError, TimeoutError):
    """A regular expression took too long for one text."""


class ClosedError(RocketcError, ValueError):
    """The object was closed before."""


class MissingCodecError(RocketcError, ImportError):
    """A body is compressed in a way whose library is not installed; the message names the package."""


class DamageWarning(UserWarning):
    """Damaged bytes were stepped over (`errors="report"`)."""
