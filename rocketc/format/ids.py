"""Message ids: the offset id that a broker assigns, and the unique id that a client assigns (property UNIQ_KEY).

Both have 32 hex digits if the address in them is IPv4, 56 if it is IPv6, so an id does not show its kind. doubts()
returns the reasons against a kind.
"""

from __future__ import annotations

import datetime
import re
import struct
from dataclasses import dataclass

from rocketc._arguments import whole_number
from rocketc._layout import MSG_ID_V4_CHARS, MSG_ID_V6_CHARS

_NO_HEX = re.compile("[^0-9A-Fa-f]")
_ZERO_GROUPS = re.compile(r"\b0(?::0\b)+")
_LONGEST_MONTH = datetime.timedelta(days=31, hours=1)  # clocks may be set back in it
_INT32, _INT64 = (-(1 << 31), (1 << 31) - 1), (-(1 << 63), (1 << 63) - 1)
_LARGEST_OFFSET = 1 << 53  # 8 PiB: longer than any log


@dataclass(frozen=True)
class OffsetId:
    """Where a broker stored a message: RocketMQ's offsetMsgId.

    host        address of the broker, as text; IPv6 in its short form
    port        as stored: any 32-bit number
    phy_offset  of the record in the commit log
    Raises ValueError for a number that does not fit into an id.
    """

    host: str
    port: int
    phy_offset: int

    def __post_init__(self) -> None:
        whole_number("port", self.port, *_INT32)
        whole_number("phy_offset", self.phy_offset, *_INT64)

    @property
    def store_host(self) -> str:
        """Address and port in the format of Message.store_host."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def encode(self) -> str:
        """The id, in upper case as RocketMQ writes it.

        >>> OffsetId("192.168.1.10", 10911, 4096).encode()
        'C0A8010A00002A9F0000000000001000'
        """
        return (_packed(self.host) + struct.pack(">iq", self.port, self.phy_offset)).hex().upper()

    def doubts(self) -> list[str]:
        """Return the reasons why this is probably not an offset id; an empty list: there are none.

        >>> OffsetId("192.168.1.10", 10911, 4096).doubts(), OffsetId("10.0.0.1", 0, -1).doubts()
        ([], ['port 0 is not valid', 'the physical offset is negative'])
        """
        out = []
        if _is_not_a_host(_packed(self.host)):
            out.append(f"{self.host} can't be the address of a broker")
        if not 0 < self.port < 1 << 16:
            out.append(f"port {self.port} is not valid")
        if self.phy_offset < 0:
            out.append("the physical offset is negative")
        elif self.phy_offset > _LARGEST_OFFSET:
            out.append("the physical offset is too large for a log")
        return out


@dataclass(frozen=True)
class UniqueId:
    """The parts of the unique id that a client assigned to a message.

    ip                 address of the client, as text; IPv6 in its short form
    pid                the low 16 bits of its process id
    class_loader_hash  Java's hash code of its class loader; other clients use another number
    month_ms           ms since the start of the month, by the client's clock and time zone; the month is not in the id
    counter            counts the ids of the process; 16 bits
    Raises ValueError for a number that does not fit into an id.
    """

    ip: str
    pid: int
    class_loader_hash: int
    month_ms: int
    counter: int

    def __post_init__(self) -> None:
        whole_number("pid", self.pid, 0, 0xFFFF)
        whole_number("class_loader_hash", self.class_loader_hash, *_INT32)
        whole_number("month_ms", self.month_ms, 0, 0xFFFFFFFF)
        whole_number("counter", self.counter, 0, 0xFFFF)

    def encode(self) -> str:
        """The id, in upper case as RocketMQ writes it.

        >>> UniqueId("10.0.0.1", 2620, 0x18B4AAC2, 757_041_004, 3).encode()
        '0A0000010A3C18B4AAC22D1F876C0003'
        """
        numbers = struct.pack(">HiIH", self.pid, self.class_loader_hash, self.month_ms, self.counter)
        return (_packed(self.ip) + numbers).hex().upper()

    def doubts(self) -> list[str]:
        """Return the reasons why this is probably not a unique id; an empty list: there are none.

        >>> UniqueId("10.0.0.1", 2620, 0x18B4AAC2, 757_041_004, 3).doubts()
        []
        """
        out = []
        if self.pid == 0:
            out.append("process id 0 is not valid")
        if self._since_month_began >= _LONGEST_MONTH:
            out.append("its time is more than a month")
        return out

    def born(self, year: int, month: int, zone: datetime.tzinfo = datetime.timezone.utc) -> datetime.datetime:
        """Return when the id was created, if that was in this month of the client's time zone.

        Raises ValueError if the month is not that long.

        >>> UniqueId("10.0.0.1", 2620, 0x18B4AAC2, 757_041_004, 3).born(2026, 11).isoformat()
        '2026-11-09T18:17:21.004000+00:00'
        """
        start = datetime.datetime(year, month, 1, tzinfo=zone).astimezone(datetime.timezone.utc)
        try:
            when = (start + self._since_month_began).astimezone(zone)
        except OverflowError:
            raise ValueError(f"{year}-{month:02d} is not that long") from None
        if (when.year, when.month) != (year, month):
            raise ValueError(f"{year}-{month:02d} is not that long")
        return when

    def born_near(self, now: datetime.datetime) -> datetime.datetime | None:
        """Return the latest time before `now` (aware; in the client's time zone) at which the id may have been created.

        None if no month is that long.

        >>> now = datetime.datetime(2026, 11, 5, tzinfo=datetime.timezone.utc)
        >>> UniqueId("10.0.0.1", 2620, 0x18B4AAC2, 757_041_004, 3).born_near(now).isoformat()
        '2026-10-09T18:17:21.004000+00:00'
        """
        if now.tzinfo is None:
            raise ValueError("now: a datetime without a time zone; add one, such as datetime.timezone.utc")
        year, month = now.year, now.month
        for _ in range(3):  # one of three consecutive months has 31 days
            try:
                when = self.born(year, month, now.tzinfo)
            except ValueError:
                pass
            else:
                if when <= now:
                    return when
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
        return None

    @property
    def _since_month_began(self) -> datetime.timedelta:
        return datetime.timedelta(milliseconds=self.month_ms)


def decode_offset_id(text: str) -> OffsetId:
    """Decode the id of a stored message: Message.msg_id, RocketMQ's offsetMsgId.

    text  32 or 56 hex digits, upper or lower case
    Raises ValueError with the reason.

    >>> decode_offset_id("C0A8010A00002A9F0000000000001000")
    OffsetId(host='192.168.1.10', port=10911, phy_offset=4096)
    """
    raw = _bytes_of(text)
    port, phy_offset = struct.unpack(">iq", raw[-12:])
    return OffsetId(_address(raw[:-12]), port, phy_offset)


def decode_unique_id(text: str) -> UniqueId:
    """Decode the unique id that a client assigned to a message: its property UNIQ_KEY.

    text  32 or 56 hex digits, upper or lower case
    Raises ValueError with the reason.

    >>> decode_unique_id("0A0000010A3C18B4AAC22D1F876C0003")
    UniqueId(ip='10.0.0.1', pid=2620, class_loader_hash=414493378, month_ms=757041004, counter=3)
    """
    raw = _bytes_of(text)
    return UniqueId(_address(raw[:-12]), *struct.unpack(">HiIH", raw[-12:]))


def _bytes_of(text: str) -> bytes:
    if wrong := _NO_HEX.search(text):
        raise ValueError(
            f"{text!r} is not a message id: character {wrong.start() + 1} is {wrong[0]!r}, not a hex digit"
        )
    if len(text) not in (MSG_ID_V4_CHARS, MSG_ID_V6_CHARS):
        raise ValueError(f"{text!r} is not a message id: it has {len(text)} hex digits, not 32 (IPv4) or 56 (IPv6)")
    return bytes.fromhex(text)


def _packed(address: str) -> bytes:
    """Return the bytes of an address. Raises ValueError."""
    from ipaddress import ip_address  # late: keeps `import rocketc` fast

    return ip_address(address).packed


def _is_not_a_host(packed: bytes) -> bool:
    """Whether an address is unspecified, a multicast address or the broadcast address."""
    if len(packed) == 4:
        return packed[0] & 0xF0 == 0xE0 or packed in (b"\0" * 4, b"\xff" * 4)
    return packed[0] == 0xFF or not any(packed)


def _address(raw: bytes) -> str:
    """Format an IPv4 or IPv6 address as elsewhere in rocketc; ipaddress would show some IPv6 addresses with dots."""
    if len(raw) == 4:
        return ".".join(map(str, raw))
    text = ":".join(f"{group:x}" for group in struct.unpack(">8H", raw))
    zeros = max(_ZERO_GROUPS.finditer(text), key=lambda found: len(found[0]), default=None)
    if zeros is None:
        return text
    return text[: zeros.start()].rstrip(":") + "::" + text[zeros.end() :].lstrip(":")
