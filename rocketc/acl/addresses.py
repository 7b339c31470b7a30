"""Patterns of the addresses whose requests are accepted without a signature.

Source: RocketMQ RemoteAddressStrategyFactory. Patterns with which RocketMQ fails at each request are refused here.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import dataclass

Range = tuple[int, int, int]  # 4 or 6; the lowest and the highest address, as numbers

_EVERY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_SPAN = re.compile(r"([0-9]{1,3})-([0-9]{1,3})", re.ASCII)
_PART = re.compile(r"[0-9]{1,3}", re.ASCII)
_HEX_SPAN = re.compile(r"([0-9a-fA-F]{1,4})-([0-9a-fA-F]{1,4})", re.ASCII)


@dataclass(frozen=True)
class Addresses:
    """A set of addresses.

    every   each address is in it, also one that is not an IP address
    ranges  what is in it otherwise
    """

    every: bool = False
    ranges: tuple[Range, ...] = ()

    def __bool__(self) -> bool:
        return self.every or bool(self.ranges)

    def __or__(self, other: Addresses) -> Addresses:
        return Addresses(self.every or other.every, self.ranges + other.ranges)

    def matches(self, address: str) -> bool:
        """Whether an address is in the set; False for a text that is not an IP address, unless each one is.

        >>> parse_addresses("10.0.0.1-9").matches("10.0.0.5"), parse_addresses("::1").matches("[0:0:0:0:0:0:0:1]")
        (True, True)
        """
        if self.every or not self.ranges:
            return self.every
        place = _place(address)
        return place is not None and any(
            version == place[0] and low <= place[1] <= high for version, low, high in self.ranges
        )


NOWHERE = Addresses()


def parse_addresses(pattern: str) -> Addresses:
    """Return the addresses of a pattern: one address, a list, a range or a set, as RocketMQ reads it.

    Raises ValueError. A blank pattern matches nothing.

    >>> parse_addresses("10.0.*.*").matches("10.0.7.1"), parse_addresses("10.0.0.{1,2}").matches("10.0.0.3")
    (True, False)
    """
    if not pattern.strip():
        return NOWHERE
    if pattern in _EVERY:
        return Addresses(every=True)
    if pattern.endswith("}"):
        before, brace, members = pattern[:-1].partition("{")
        if not brace or not before.endswith((".", ":")):
            raise _fault(pattern)
        return Addresses(ranges=tuple(_single(before + member, pattern) for member in members.split(",")))
    if "," in pattern:
        return Addresses(ranges=tuple(_single(one, pattern) for one in pattern.split(",")))
    if "*" in pattern or "-" in pattern:
        return Addresses(ranges=(_range_v6(pattern) if ":" in pattern else _range_v4(pattern),))
    return Addresses(ranges=(_single(pattern, pattern),))


def _fault(pattern: str, why: str = "it is not an address, a list, a range or a set") -> ValueError:
    return ValueError(f"the address pattern {pattern[:100]!r} is wrong: {why}")


def _single(text: str, pattern: str) -> Range:
    try:
        if "%" in text or text != text.strip():
            raise ValueError(text)
        found = ipaddress.ip_address(text)
    except ValueError:
        raise _fault(pattern) from None
    return found.version, int(found), int(found)


def _range_v4(pattern: str) -> Range:
    """The first `*` or span decides; parts after it do not count, as in RocketMQ."""
    parts = pattern.split(".")
    if len(parts) != 4 or not _PART.fullmatch(parts[0]):
        raise _fault(pattern, "it needs four parts, and the first one must be a number")
    base, span = 0, None
    for at, part in enumerate(parts):
        found = _SPAN.fullmatch("0-255" if part == "*" else part)
        if not found and not _PART.fullmatch(part):
            raise _fault(pattern, "a part is `*`, a number or a range such as 1-20")
        low, high = map(int, found.groups() if found else (part, part))
        if not low <= high <= 255 or (found and high == 0):
            raise _fault(pattern, "a range ends with 0, or before its begin, or a number is above 255")
        if found and span is None:
            shift = 8 * (3 - at)
            span = (base << 8 | low) << shift, (base << 8 | high) << shift | (1 << shift) - 1
        base = base << 8 | low
    if span is None:
        raise _fault(pattern)
    return 4, *span


def _range_v6(pattern: str) -> Range:
    """`*` as the last part, a span as the last part, or both as the last two."""
    parts = pattern.split(":")
    low = high = shift = 0
    if parts[-1] == "*":
        parts[-1], high, shift = "0", 0xFFFF, 16
    found = _HEX_SPAN.fullmatch(parts[-1 if shift == 0 else -2])
    if found:
        first, last = (int(text, 16) for text in found.groups())
        if first > last or last == 0:
            raise _fault(pattern, "the end of a range is 0 or less than its begin")
        parts[-1 if shift == 0 else -2] = "0"
        low, high = first << shift, last << shift | high
    _, base, _ = _single(":".join(parts), pattern)
    return 6, base + low, base + high


@functools.lru_cache(4096)
def _place(address: str) -> tuple[int, int] | None:
    """The version and the number of an address. One that IPv6 contains as an IPv4 address is that address."""
    try:
        found = ipaddress.ip_address(address.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.version, int(found)
