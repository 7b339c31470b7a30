"""The exit codes of all commands. docs/troubleshooting.md has the table for users; tests compare both."""

from __future__ import annotations

from collections.abc import Collection

from rocketc.errors import (
    ConfigTableError,
    CorruptRecordError,
    IllegalMessageError,
    PhyOffsetError,
    ReplicaError,
    TopicNotFoundError,
)

DONE = 0  # also for a store that is merely empty
DAMAGED = 1  # bytes are damaged or missing; of put: a line that is not a message
NOT_FOUND = 1  # a message or a topic that the command line names does not exist; of clean: the answer was no
USAGE = 2  # the command line is wrong
COULD_NOT = 3  # a wrong path, no permission, an error of the disk, a lock, a package that is not installed
INTERRUPTED = 130  # Ctrl-C; other signals end a command with 128 + their number

SUMMARY = f"""\
{DONE} done, {DAMAGED} damage or nothing found, {USAGE} wrong usage, {COULD_NOT} could not (path, permission, disk)"""

_DAMAGE = (ConfigTableError, CorruptRecordError, IllegalMessageError, PhyOffsetError, ReplicaError)


def code_of(error: BaseException) -> int:
    """Return the exit code for an error that ends a command.

    >>> code_of(CorruptRecordError(None, 0, "bad_magic")), code_of(OSError(28, "No space left on device"))
    (1, 3)
    """
    if isinstance(error, TopicNotFoundError):
        return NOT_FOUND
    return DAMAGED if isinstance(error, _DAMAGE) else COULD_NOT


def code_of_files(codes: Collection[int], was_read: bool) -> int:
    """Return the exit code of a command that reads several files.

    codes     those of the errors
    was_read  whether anything was read: then a file that could not be read is missing data, as damage is

    >>> code_of_files({COULD_NOT}, False), code_of_files({COULD_NOT}, True), code_of_files([], True)
    (3, 1, 0)
    """
    if not codes:
        return DONE
    return COULD_NOT if not was_read and set(codes) == {COULD_NOT} else DAMAGED
