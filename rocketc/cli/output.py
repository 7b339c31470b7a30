"""Where output goes: results to stdout in blocks of bytes, notes to stderr, each fit for what is at the other end."""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import select
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

import click

from rocketc.errors import CorruptRecordError, DamageWarning, RocketcError

BLOCK_BYTES = 1 << 16

# What a terminal may obey, or show in a misleading order: C0, DEL and C1 controls, marks that turn the direction of
# writing, line separators, and surrogates (bytes of a file name that are no UTF-8).
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

REASONS = {
    "bad_size": "no record's size stands here",
    "truncated": "the record is longer than what is left of the file",
    "bad_magic": "no record begins here",
    "bad_body_length": "the body's length does not fit the record",
    "bad_topic_length": "the topic's length does not fit the record",
    "bad_properties_length": "the properties' length does not fit the record",
    "bad_length": "the record's size is not the sum of its parts",
    "bad_body_crc": "the body is not what its CRC says",
    "missing_property_crc": "the record has no CRC of its properties",
    "bad_property_crc": "the properties are not what their CRC says",
    "bad_property": "a property that RocketMQ reads as a number is none",
    "bad_physical_offset": "the record says that it belongs elsewhere",
    "bad_compression": "the body can't be decompressed",
    "too_large": "the body is too large to be decompressed",
    "bad_inner_batch": "the batch in the body is broken",
    "zeroed": "zero bytes where records should be",
    "bad_blank": "the record that closes the file has a wrong size",
    "file_cut": "the file became shorter, or its disk failed, while it was read",
    "bad_chain": "a chain of the index leads nowhere",
    "bad_unit": "a unit of a consume queue leads to no record",
}


def visible(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey.

    >>> visible("a\\tb\\x1b[31m")
    'a\\\\tb\\\\x1b[31m'
    """
    return text if text.isprintable() else _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if char < "\u0100" else f"\\u{ord(char):04x}")


def visible_json(text: str) -> str:
    """The same JSON text, with nothing in it that a terminal would obey."""
    return text if text.isprintable() else _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """One line on stderr."""
    if sys.stderr is not None:
        sys.stderr.write(f"rocketc: {visible(text)}\n")
        sys.stderr.flush()


class Out:
    """Stdout for results: bytes in blocks; at once on a terminal, or if `live`. Leave it (`with`) to flush."""

    def __init__(self, live: bool = False) -> None:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "stdout is closed")
        self._raw = sys.stdout.buffer
        self.is_terminal = sys.stdout.isatty()
        self.has_colour = has_colour(sys.stdout)
        self._live = live or self.is_terminal
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._live or self._size >= BLOCK_BYTES:
            self.flush()

    def write_text(self, text: str) -> None:
        """Text as it is. What is no UTF-8 in a file's name becomes escapes; in JSON they are JSON's own."""
        self.write(text.encode("utf-8", "backslashreplace"))

    def json(self, value: Any) -> None:
        """A line of JSON, without anything that a terminal would obey, if there is one."""
        text = json.dumps(value, ensure_ascii=False)
        self.write_text((visible_json(text) if self.is_terminal else text) + "\n")

    def flush(self) -> None:
        data = memoryview(b"".join(self._parts))
        self._parts.clear()
        self._size = 0
        while data:  # with PYTHONUNBUFFERED a write may take a part
            data = data[self._raw.write(data) :]
        self._raw.flush()

    def check_reader(self) -> None:
        """Raise BrokenPipeError if nobody will read what comes next, without a write to find out."""
        watch = select.poll()
        watch.register(self._raw, 0)
        if any(event & select.POLLERR for _, event in watch.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def __enter__(self) -> Out:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, where: TracebackType | None) -> None:
        if not isinstance(error, BrokenPipeError):
            self.flush()


class DamageNotes:
    """While entered, each DamageWarning is a line on stderr, after what was read before it is out on stdout."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._catching = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._catching.__enter__()
        warnings.simplefilter("always", DamageWarning)
        self._usual = warnings.showwarning
        warnings.showwarning = self._show

    def __exit__(self, *error: Any) -> None:
        self._catching.__exit__(*error)

    def _show(self, message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, DamageWarning):
            self._usual(message, category, *where, **more)
            return
        self._out.flush()
        text = str(message)
        note(text + in_words(text.rpartition(": ")[2]))


def in_words(reason: str) -> str:
    """What a reason means, in brackets behind a blank."""
    return f" ({REASONS[reason]})" if reason in REASONS else ""


def ends_quietly(run: Callable[..., int]) -> Callable[..., None]:
    """Make a command of a function that returns the exit code: no tracebacks for what users, disks and pipes do."""

    @functools.wraps(run)
    def command(*args: Any, **options: Any) -> None:
        try:
            code = run(*args, **options)
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError as error:  # who reads has seen enough
            code = 130 if isinstance(error.__context__, KeyboardInterrupt) else 0
            _let_go_of_output()
        except CorruptRecordError as error:
            code = 1
            where = f"{error.file}: " if error.file else ""
            note(f"{where}damage at physical offset {error.offset}: {error.reason}{in_words(error.reason)}")
        except RocketcError as error:
            code = 1
            note(plain(error))
        except OSError as error:  # stdout: no room, closed
            code = 1
            _let_go_of_output()
            note(f"can't write: {plain(error)}")
        except UnicodeEncodeError as error:  # an argument; a file's name gets as far as open()
            raise click.UsageError(f"{error.object!r} is no UTF-8") from None
        click.get_current_context().exit(code)

    return command


def plain(error: Exception) -> str:
    """An error's text; of an OSError without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror


def _let_go_of_output() -> None:
    """Send what is left in Python's own buffers nowhere, so that its exit can't fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
