"""Format text that is safe for a terminal, times, time spans, sizes and counts."""

from __future__ import annotations

import datetime
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketc.read.scan_report import Damage

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def show_time(ms: int) -> str:
    """Format a time as ISO-8601 in UTC with milliseconds; outside of the years 1 to 9999 as a number of ms.

    >>> show_time(1700000000123), show_time(-(1 << 63))
    ('2023-11-14T22:13:20.123Z', '-9223372036854775808ms')
    """
    try:
        when = EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms}ms"
    return when.isoformat(timespec="milliseconds")[:-6] + "Z"


def show_span(ms: int) -> str:
    """Format a time span in its two largest units.

    >>> show_span(18_154), show_span(3 * 86_400_000 + 7_500_000), show_span(40)
    ('18 s', '3 d 2 h', '40 ms')
    """
    if ms < 1000:
        return f"{ms} ms"
    seconds = ms // 1000
    units = [("d", seconds // 86400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next(i for i, (_, n) in enumerate(units) if n)
    return " ".join(f"{n} {unit}" for unit, n in units[first : first + 2] if n)


# Characters that a terminal may interpret or show in a misleading order: C0, DEL and C1 controls, marks of the writing
# direction, line separators, and surrogates (bytes of a file name that is not UTF-8).
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

REASONS = {
    "bad_size": "these bytes are not the size of a record",
    "truncated": "the record is longer than what is left of the file",
    "bad_magic": "no record begins here",
    "bad_body_length": "the body's length does not fit the record",
    "bad_topic_length": "the topic's length does not fit the record",
    "bad_properties_length": "the properties' length does not fit the record",
    "bad_length": "the record's size is not the sum of its parts",
    "bad_body_crc": "the body does not match its CRC",
    "missing_property_crc": "the property CRC is missing",
    "bad_property_crc": "the properties do not match their CRC",
    "bad_property": "a property that RocketMQ reads as a number is not one",
    "bad_physical_offset": "the record contains another physical offset",
    "bad_compression": "the body cannot be decompressed",
    "missing_codec": "the library for its compression is not installed: pip install 'rocketc[compression]'",
    "too_large": "the body is too large to be decompressed",
    "bad_inner_batch": "the inner batch in the body is damaged",
    "zeroed": "zeros instead of records",
    "bad_blank": "the blank record at the end of the file has a wrong size",
    "missing_file": "a file between two others is missing",
    "no_permission": "there is no permission to read the file",
    "unreadable": "the disk cannot read the file",
    "file_cut": "the file became shorter, or its disk failed, while it was read",
    "bad_chain": "a chain of the index contains an invalid unit number",
    "bad_unit": "a unit of a consume queue points to another place than its record",
}


def visible(text: str) -> str:
    """Escape a text to one line without characters that a terminal interprets.

    >>> visible("a\\tb\\x1b[31m")
    'a\\\\tb\\\\x1b[31m'
    """
    return text if text.isprintable() else _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if char < "\u0100" else f"\\u{ord(char):04x}")


def visible_json(text: str) -> str:
    """Return the same JSON text without characters that a terminal interprets."""
    return text if text.isprintable() else _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def in_words(reason: str) -> str:
    """Return the meaning of a reason in parentheses, after a blank."""
    return f" ({REASONS[reason]})" if reason in REASONS else ""


def damage_text(damage: Damage, what: str = "") -> str:
    """Describe the position and the kind of damage; `what` is inserted before the kind."""
    name = os.path.basename(damage.file or "")
    return f"{damage.start} to {damage.stop} in {name}: {what}{damage.reason}{in_words(damage.reason)}"


def gap_text(start: int, stop: int) -> str:
    """Describe a range of the log for which there is no file."""
    return f"{start} to {stop} ({show_size(stop - start)}): no file"


def deleted_text(start: int, stop: int) -> str:
    """Describe a range of the log that the store's owner deleted before it was read.

    >>> deleted_text(0, 4096)
    'physical offsets 0 to 4096: deleted by the owner of the store during this command; the rest was read'
    """
    return deleted_file_text(f"physical offsets {start} to {stop}")


def deleted_file_text(path: str) -> str:
    """Say that the store's owner deleted a file before it was read."""
    return f"{path}: deleted by the owner of the store during this command; the rest was read"


def plain(error: Exception) -> str:
    """Return the message of an error; of an OSError without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}" if error.filename is not None else error.strerror


def many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def show_size(size: int) -> str:
    """Format a number of bytes in a suitable unit.

    >>> show_size(512), show_size(4 << 20), show_size(1536)
    ('512 B', '4.0 MiB', '1.5 KiB')
    """
    if size < 1024:
        return f"{size} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = next((i for i in range(1, 4) if size < 1023.95 * 1024**i), 4)
    return f"{size / 1024**power:.1f} {units[power - 1]}"
