"""What options of the command line take: numbers, sizes, regular expressions, where to begin. Times are in times.py."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import click

from rocketc.paths import base_of


class Number(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A whole number from `least` to `most`."""

    name = "number"

    def __init__(self, least: int, most: int = (1 << 63) - 1) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        if number < self._least:
            self.fail(f"{number} is less than {self._least}", param, ctx)
        if number > self._most:
            self.fail(f"{number} is more than {self._most}", param, ctx)
        return number


class Seconds(click.FloatRange):
    """A time in seconds; click takes nan for one that is in its range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no time in seconds", param, ctx)
        return seconds


class Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Bytes, or with a unit: 64MiB, 1G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number = value.upper().removesuffix("B").removesuffix("I")
        shift = {"K": 10, "M": 20, "G": 30}.get(number[-1:], 0)
        digits = number[:-1] if shift else number
        if not (digits.isascii() and digits.isdigit()) or not 0 < int(digits) << shift < 1 << 40:
            self.fail(f"{value!r} is no size; such as 64MiB", param, ctx)
        return int(digits) << shift


class Regex(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A regular expression; with `slashes` only what stands between slashes is one, and all else a plain text."""

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
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


@dataclass(frozen=True)
class Start:
    """Where to begin in each queue: from a queue offset on, behind the end, or with the last so many."""

    kind: Literal["offset", "end", "last"]
    number: int = 0


class StartAt(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """kcat's -o: a queue offset, -N, `end`, or `beginning`, which is None."""

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
        self.fail(f"{value!r} is neither a queue offset, nor -N (the last N), nor `beginning` or `end`", param, ctx)


def refuse_a_log(store: str, names: Iterable[str] | None = None) -> None:
    """Raise UsageError for the folder of a commit log where a store's root is asked for; names: what is in it."""
    try:
        found = os.listdir(store) if names is None else names
    except OSError:
        return  # whoever uses it says what is wrong
    if any(base_of(name) is not None for name in found):
        raise click.UsageError(f"{store} is a commit log; say the folder above it")
