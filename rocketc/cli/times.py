"""Times and ages in options of the command line. Times without a zone are UTC."""

from __future__ import annotations

import datetime
import re
import time

import click

from rocketc.report.text import EPOCH

_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d{1,9}))?)?)?)?"
    r"\s*(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_NOW = time.time_ns() // 1_000_000  # the same for all times of a command line
_WHAT_IS_TAKEN = "a time is ISO-8601 (2026-01-31T09:30, UTC without a zone like +08:00), epoch ms, -15m, -2h, -3d, now"


def parse_time(text: str, now: int) -> int:
    """Return a time in milliseconds since the epoch.

    text  ISO-8601 (without a zone: UTC), epoch milliseconds, an age such as -15m (s, m, h, d, w), or "now"
    now   ms since the epoch; an age is subtracted from it
    Raises ValueError for any other text.

    >>> parse_time("1970-01-01T01:00+01:00", 0), parse_time("-2m", 600_000), parse_time("1700000000123", 0)
    (0, 480000, 1700000000123)
    """
    text = text.strip()
    if text.lower() == "now":
        return now
    if text.startswith("-") and (age := _parse_age(text[1:])) is not None:
        return now - age
    if re.fullmatch(r"\d+", text, re.ASCII):
        return _parse_number(text)
    iso = _ISO.fullmatch(text)
    if iso is None:
        raise ValueError(f"{text!r}: {_WHAT_IS_TAKEN}")
    day, hour, minute, second, fraction, zone = iso.groups()
    try:
        start = datetime.datetime.fromisoformat(f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}+00:00")
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    ms = (start - EPOCH) // datetime.timedelta(milliseconds=1) + int((fraction or "").ljust(3, "0")[:3])
    if zone and zone not in "Zz":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        ms -= int(zone[0] + "1") * (int(digits[:2]) * _MS["h"] + int(digits[2:]) * _MS["m"])
    return ms


def _parse_age(text: str) -> int | None:
    """Return the milliseconds of an age such as 15m; None if the text is not an age."""
    age = re.fullmatch(r"(\d{1,9})([smhdw])", text, re.ASCII | re.IGNORECASE)
    return None if age is None else int(age[1]) * _MS[age[2].lower()]


def _parse_number(text: str) -> int:
    """Return epoch milliseconds. Raises ValueError for numbers that look like a date or like epoch seconds."""
    if len(text) == 8:
        raise ValueError(f"{text!r}: write a date with dashes: {text[:4]}-{text[4:6]}-{text[6:]}")
    if 9 <= len(text) <= 11:
        raise ValueError(f"{text!r}: this looks like seconds; in epoch milliseconds it is {text}000")
    if len(text) > 18:
        raise ValueError(f"{text!r}: too large for milliseconds")
    return int(text)


class Age(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An age, converted to milliseconds: 90m, 72h, 7d."""

    name = "age"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        age = value if isinstance(value, int) else _parse_age(str(value).strip())
        return self.fail(f"{value!r} is not an age such as 90m, 72h, 7d", param, ctx) if age is None else age


class When(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A time as in parse_time(), converted to epoch milliseconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time(str(value), _NOW)
        except ValueError as error:
            self.fail(str(error), param, ctx)
