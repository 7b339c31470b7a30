"""The output of commands: results to stdout in blocks of bytes, notes to stderr; escaped for a terminal."""

from __future__ import annotations

import errno
import functools
import json
import os
import select
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TextIO

import click

from rocketc.cli.exit_codes import COULD_NOT, DONE, INTERRUPTED, code_of
from rocketc.errors import CorruptRecordError, DamageWarning, MissingTopicWarning, PatternTimeoutError, RocketcError
from rocketc.report.text import in_words, plain, visible, visible_json

BLOCK_BYTES = 1 << 16
SHOWN_AFTER = 0.5  # seconds until the progress bar is shown
_REDRAW_SECONDS = 0.1  # least time between two updates of the bar


def has_color(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """Write one line to stderr."""
    if sys.stderr is not None:
        sys.stderr.write(f"rocketc: {visible(text)}\n")
        sys.stderr.flush()


def can_ask() -> bool:
    """Return True if a user at a terminal sees stderr and can answer on stdin."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def confirm(question: str) -> bool:
    """Ask on stderr, and return True if the answer on stdin is y or yes. Call it only if can_ask()."""
    sys.stderr.write(f"rocketc: {visible(question)} [y/N] ")
    sys.stderr.flush()
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):  # Ctrl-C or Ctrl-D: the next line begins at the left
            sys.stderr.write("\n")
            sys.stderr.flush()
    return answer.strip().lower() in ("y", "yes")


class OutputError(OSError):
    """Stdout can't be written: it is closed, or its disk is full."""


class Out:
    """Stdout for results. Bytes are written in blocks, or at once on a terminal or if `live`. Leaving it flushes."""

    def __init__(self, live: bool = False) -> None:
        if sys.stdout is None:
            raise OutputError(errno.EBADF, "stdout is closed")
        self._raw = sys.stdout.buffer
        self.is_terminal = sys.stdout.isatty()
        self.has_color = has_color(sys.stdout)
        self._live = live or self.is_terminal
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self.write_later(data)
        if self._live or self._size >= BLOCK_BYTES:
            self.flush()

    def write_later(self, data: bytes) -> None:
        """Add bytes to those that the next flush() writes."""
        self._parts.append(data)
        self._size += len(data)

    def forget(self) -> None:
        """Drop the bytes that were not given to the operating system yet."""
        self._parts.clear()
        self._size = 0

    def write_text(self, text: str) -> None:
        """Write text. Bytes of a file name that are not UTF-8 are escaped; in JSON, with the escapes of JSON."""
        self.write(text.encode("utf-8", "backslashreplace"))

    def json(self, value: Any) -> None:
        """Write a line of JSON. On a terminal, control characters are escaped."""
        text = json.dumps(value, ensure_ascii=False)
        self.write_text((visible_json(text) if self.is_terminal else text) + "\n")

    def flush(self) -> None:
        data = memoryview(b"".join(self._parts))
        self._parts.clear()
        self._size = 0
        with writes_output():
            while data:  # with PYTHONUNBUFFERED, write() may write only a part
                data = data[self._raw.write(data) :]
            self._raw.flush()

    def check_reader(self) -> None:
        """Raise BrokenPipeError if the reader of the pipe is gone; finds out without a write."""
        watch = select.poll()
        watch.register(self._raw, 0)
        if any(event & select.POLLERR for _, event in watch.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def __enter__(self) -> Out:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, where: TracebackType | None) -> None:
        if not isinstance(error, BrokenPipeError):
            self.flush()


@contextmanager
def writes_output() -> Iterator[None]:
    """A context in which an OSError that names no file is one of stdout."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None or isinstance(error, PatternTimeoutError):
            raise
        raise OutputError(error.errno, error.strerror) from None


class DamageNotes:
    """While entered, write each DamageWarning to stderr, after flushing the results before it to stdout."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._catching = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._catching.__enter__()
        warnings.simplefilter("always", DamageWarning)
        warnings.simplefilter("ignore", MissingTopicWarning)  # Selection.conclude() reports it
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


def print_result(as_json: bool, value: Callable[[], Any], draw: Callable[[bool], str]) -> None:
    """Print a report on stdout: value() as one line of JSON, or the text of `draw(has_color)`."""
    with Out() as out:
        if as_json:
            out.json(value())
        else:
            out.write_text(draw(out.has_color))


def command(
    *examples: str, name: str | None = None, above: str = "", below: str = "", **settings: Any
) -> Callable[[Callable[..., int]], click.Command]:
    """Decorate a function that returns the exit code, to make a command; its help ends with examples.

    name          of the command; None: that of the function
    above, below  paragraphs of the help before and after the examples
    settings      arguments of click.command()
    """
    listed = "\n  ".join(["\b\nExamples:", *examples])
    epilog = "\n\n".join(filter(None, (above, listed, below)))
    return lambda run: click.command(name, click.Command, epilog=epilog, **settings)(_ends_quietly(run))


def _ends_quietly(run: Callable[..., int]) -> Callable[..., None]:
    """Report errors of users, disks and pipes in one line, without a traceback."""

    @functools.wraps(run)
    def run_quietly(*args: Any, **options: Any) -> None:
        try:
            code = run(*args, **options)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BrokenPipeError as error:  # the reader of the pipe has ended
            code = INTERRUPTED if isinstance(error.__context__, KeyboardInterrupt) else DONE
            _discard_output()
        except CorruptRecordError as error:
            code = code_of(error)
            where = f"{error.file}: " if error.file else ""
            note(f"{where}damage at physical offset {error.offset}: {error.reason}{in_words(error.reason)}")
        except RocketcError as error:
            code = code_of(error)
            note(plain(error))
        except OutputError as error:
            code = COULD_NOT
            report_failed_output(error)
        except OSError as error:
            code = COULD_NOT
            note(plain(error))
        except UnicodeEncodeError as error:  # from an argument; open() accepts such file names
            raise click.UsageError(f"{error.object!r} is not UTF-8") from None
        click.get_current_context().exit(code)

    return run_quietly


def report_failed_output(error: OSError) -> None:
    """Say on stderr that stdout can't be written."""
    _discard_output()
    note(f"can't write: {plain(error)}")


def _discard_output() -> None:
    """Discard what is left in Python's buffers of stdout and stderr, so that Python's exit does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """While entered, update(done) moves a progress bar on stderr, if stderr is a terminal and the work takes long.

    what   the label of the bar: "exporting"
    total  bytes; 0: not known
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    bar = _Bar(what, total)
    try:
        yield bar.update
    finally:
        bar.close()


class _Bar:
    """The progress bar of rich, created when it is first shown."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._next = time.monotonic() + SHOWN_AFTER
        self._move: Callable[[int], None] | None = None
        self._stop: Callable[[], None] | None = None

    def update(self, done: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _REDRAW_SECONDS
        if self._move is None:
            self._start()
        assert self._move is not None
        self._move(done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(file=sys.stderr, legacy_windows=False)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TimeRemainingColumn(compact=True)
        bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        task = bar.add_task(self._what, total=self._total or None)
        bar.start()
        self._move = lambda done: bar.update(task, completed=done, refresh=True)
        self._stop = bar.stop

    def close(self) -> None:
        if self._stop is not None:
            self._stop()
