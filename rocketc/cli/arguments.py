"""Types of command line options: numbers, sizes, regular expressions, start positions. Times are in times.py."""

from __future__ import annotations

import functools
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from rocketc.cli.output import Out
from rocketc.config import StoreConfig
from rocketc.config_fields import parse_size
from rocketc.derived.queue_files import UNIT_BYTES
from rocketc.errors import SqlError, StoreIOError
from rocketc.files.paths import base_of
from rocketc.jobs.file_kinds import KINDS, Files, find_files
from rocketc.read.sql import whole_sql
from rocketc.report.messages import BODY_FORMS, Printer, compile_format, json_printer

JAVA_INT_MAX = (1 << 31) - 1


class Number(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A whole number from `least` to `most`."""

    name = "number"

    def __init__(self, least: int, most: int = (1 << 63) - 1) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self._least:
            self.fail(f"{number} is less than {self._least}", param, ctx)
        if number > self._most:
            self.fail(f"{number} is more than {self._most}", param, ctx)
        return number


class Seconds(click.FloatRange):
    """A time in seconds. click's FloatRange accepts nan as a value in its range; this type does not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a time in seconds", param, ctx)
        return seconds


class Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number of bytes, with or without a unit: 4096, 64MiB, 1G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            size = parse_size(value)
        except ValueError:
            size = 0
        if not 0 < size < 1 << 40:
            self.fail(f"{value!r} is not a size such as 64MiB", param, ctx)
        return size


class Regex(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A regular expression. With `slashes`, only /text/ is a regular expression; other values are plain text."""

    name = "regex"

    def __init__(self, slashes: bool = False) -> None:
        self._slashes = slashes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if self._slashes:
            if len(value) < 3 or not (value.startswith("/") and value.endswith("/")):
                return value
            value = value[1:-1]
        try:
            return re.compile(value)
        except (re.error, OverflowError, RecursionError) as error:
            self.fail(f"{value!r} is not a regular expression: {error}", param, ctx)


class Sql(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An SQL92 filter of RocketMQ, compiled."""

    name = "filter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return whole_sql(value)
        except SqlError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True)
class Start:
    """Where to begin in each queue: at a queue offset, after the last message, or with the last `number` messages."""

    kind: Literal["offset", "end", "last"]
    number: int = 0


class StartAt(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The values of kcat's -o: a queue offset, -N, `end`, or `beginning`. convert() returns None for `beginning`."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start | None:
        if isinstance(value, Start) or value == "beginning":
            return value if isinstance(value, Start) else None
        if value == "end":
            return Start("end")
        if re.fullmatch(r"\d{1,18}", value, re.ASCII):
            return Start("offset", int(value))
        if re.fullmatch(r"-0*[1-9]\d{0,8}", value, re.ASCII):
            return Start("last", -int(value))
        self.fail(f"{value!r} is neither a queue offset nor -N (the last N), `beginning` or `end`", param, ctx)


def refuse_a_log(store: str, names: Iterable[str] | None = None) -> None:
    """Raise UsageError if `store` is the folder of a commit log and not a store.

    names  the names in the folder; None: list it
    """
    try:
        found = os.listdir(store) if names is None else names
    except OSError:
        return  # the function that opens the store reports the error
    if any(base_of(name) is not None for name in found):
        raise click.UsageError(f"{store} is a commit log; give the folder that contains it")


def is_new_store(store: str) -> bool:
    """Whether `store` is a store that never had a message: it has neither log files nor consume queues."""
    try:
        return not os.listdir(os.path.join(store, "commitlog")) and not any(
            os.path.isdir(os.path.join(store, kind)) and os.listdir(os.path.join(store, kind)) for kind in UNIT_BYTES
        )
    except OSError:
        return False  # the function that opens the store reports the error


def takes_kind(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --as and --index-slots to a command, which gets them as `kind` and `index_slots`."""
    slots = "Number of hash slots of an index file (the broker's maxHashSlotNum). Default: found from its content."
    command = click.option("--index-slots", type=Number(1, JAVA_INT_MAX), metavar="N", help=slots)(command)
    kinds = f"Kind of the files: {', '.join(KINDS)}. Default: found from their path."
    return click.option("--as", "kind", type=click.Choice(KINDS), metavar="KIND", help=kinds)(command)


def named_files(paths: Sequence[str], kind: str | None, index_slots: int | None) -> list[Files] | None:
    """Return the files that the paths of a command name; None if the paths name commit logs.

    Raises click.UsageError for paths that one command can't read together.
    """
    try:
        return find_files(paths, kind, index_slots)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def prints_messages(format_help: str, body_help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --count and the options for choose_printer() to a command."""
    options = [
        click.option("-c", "--count", type=Number(1), metavar="N", help="Stop after N messages."),
        click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object per message."),
        click.option("-f", "--format", "spec", metavar="FORMAT", help=f"Format of a message: {format_help}."),
        click.option("--body", type=click.Choice(["text", *BODY_FORMS]), default="text", help=body_help),
    ]
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def choose_printer(
    spec: str | None, as_json: bool, body: str, out: Out, usual: Callable[[str, bool], Printer]
) -> Printer:
    """Return the printer for --json, -f and --body. Without --json and -f, it is `usual(body, color)`."""
    if as_json and spec is not None:
        raise click.UsageError("--json and --format exclude each other")
    if as_json:
        return json_printer(body, out.is_terminal)
    if spec is None:
        return usual(body, out.has_color)
    try:
        return compile_format(spec, body, out.is_terminal)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-f") from None


# For commands that create files: of the same sizes as the existing files, unless a broker.conf sets them.
sizes_option = click.option(
    "--conf", type=click.Path(), metavar="FILE",
    help="The broker.conf, for file sizes, paths and delay levels. Default: the sizes of the existing files.",
)  # fmt: skip


def read_conf(path: str) -> StoreConfig:
    """Return the settings of a broker.conf that StoreConfig has; ignore the others.

    Raises click.UsageError for a wrong value, StoreIOError if the file can't be read.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return StoreConfig.from_properties(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise StoreIOError(error.errno, error.strerror, error.filename) from None
