"""Check the files of timed messages: timerwheel, timerlog and config/timercheck. Nothing is written."""

from __future__ import annotations

import os
import struct

from rocketc.derived import timer_check
from rocketc.derived._timer_log import BLANK_MAGIC, DELETE, LEAST_BYTES, UNIT_BYTES
from rocketc.derived._timer_wheel import SLOT_BYTES
from rocketc.files.block_file import BlockFile

_SLOT = struct.Struct(">qqqii")
_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqi")


def wheel_fault(path: str, root: str) -> str | None:
    """Return what is wrong with a timer wheel; None if nothing is. Parts that were never written are not read.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes(64)), file.flush()
    ...     wheel_fault(file.name, "") is None
    True
    """
    with BlockFile(path) as file:
        slots = file.size // SLOT_BYTES
        if file.size % SLOT_BYTES or slots == 0:
            return f"{file.size} bytes are not slots of {SLOT_BYTES} bytes; a broker makes it again from the timer log"
        for start, block in file.blocks(0, file.size, SLOT_BYTES):
            for number, (time, first, last, _, magic) in enumerate(_SLOT.iter_unpack(block), start // SLOT_BYTES):
                if time == 0 and first == 0 and last == 0:
                    continue
                if time > 0 and (time % slots != number or first > last or magic != 0):
                    return (
                        f"slot {number}: time {time}, units {first} to {last}; "
                        "a broker makes it again from the timer log"
                    )
    return None


def log_fault(path: str, root: str) -> str | None:
    """Return what is wrong with a file of the timer log; None if nothing is.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "00000000000000000000"
    >>> _ = path.write_bytes(bytes(1000))
    >>> log_fault(str(path), "") is None
    True
    """
    name = os.path.basename(path)
    if not (len(name) == 20 and name.isascii() and name.isdecimal()):
        return "not the name of a file of the timer log; it is not read"
    base = int(name)
    with BlockFile(path) as file:
        if file.size < LEAST_BYTES or base % file.size:
            return f"{file.size} bytes can't be a file of the timer log that begins at {base}; it is not read"
        most = (file.size - _BLANK.size) // UNIT_BYTES * UNIT_BYTES
        end = 0
        for start, block in file.blocks(0, most, UNIT_BYTES):
            if start != end:
                break
            for unit in _UNIT.iter_unpack(block):
                if not _is_unit(unit, base + end):
                    break
                end += UNIT_BYTES
            if end < start + len(block):
                break
        rest = file.read(end, _BLANK.size)
        if _BLANK.unpack(rest)[::2] == (file.size - end, BLANK_MAGIC):
            return None
        for start, block in file.blocks(end, file.size, 1):
            if block.strip(b"\0"):
                at = start + len(block) - len(block.lstrip(b"\0"))
                return f"byte {at} is after the last unit, which ends at {end}; a broker ends the log there"
    return None


def _is_unit(unit: tuple[int, ...], pos: int) -> bool:
    size, previous, magic, time, delay, phy_offset, record_size, _, _ = unit
    return (
        size == UNIT_BYTES
        and -1 <= previous < pos
        and 0 < magic < 2 * DELETE
        and time >= 0
        and delay >= 0
        and phy_offset >= 0
        and record_size > 0
    )


def check_fault(path: str, root: str) -> str | None:
    """Return what is wrong with a timercheck; None if nothing is.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     check_fault(file.name, "")
    'a timercheck has at least 56 bytes, not 0; a broker reads the timer log instead'
    """
    with BlockFile(path) as file:
        try:
            timer_check.decode(file.read(0, timer_check.FILE_BYTES))
        except ValueError as error:
            return f"{error}; a broker reads the timer log instead"
    return None
