"""The files of timed messages with any bytes: timercheck, slots of timerwheel, units of timerlog, timermetrics.

A broker with them starts, and delivers messages that were put: unchanged, and not early.
"""

from __future__ import annotations

import asyncio
import functools
import tempfile
from pathlib import Path
from unittest import mock

from crash import remains
from unit.broker.timed import EPOCH, Timed

from rocketc.broker import timers
from rocketc.derived._timer_wheel import SLOT_BYTES, TimerWheel

SLOTS = 512
DELAYS = (2, 3, 20, 20, 100, 300)  # s
CHECK = 56  # bytes that are read of timercheck
UNITS = 60 * len(DELAYS)  # more than the units have
CONFIG = {"timer_roll_window_slot": 200, "mapped_file_size_timer_log": 4096, "timer_precision_ms": 1000}
WHEEL, LOG, CHECKED, METRICS = "timerwheel", f"timerlog/{0:020}", "config/timercheck", "config/timermetrics"


def places() -> list[int]:
    """Where the slots of the messages are in the wheel."""
    return sorted({(EPOCH // 1000 + min(delay, 200) + n) % SLOTS * SLOT_BYTES for delay in DELAYS for n in (0, 1)})


@functools.cache
def whole() -> dict[str, bytes]:
    """The files of a store with timed messages."""

    async def made(root: Path) -> remains.Files:
        t = await Timed(root, **CONFIG).open()
        for n, delay in enumerate(DELAYS):
            t.put(f"m{n}", TIMER_DELAY_SEC=delay)
        await t.run()
        t.end()
        return remains.take(root)

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(timers, "TimerWheel", wheel):
        return asyncio.run(made(Path(folder)))


wheel = functools.partial(TimerWheel, slots=SLOTS)


def joined(files: dict[str, bytes]) -> bytes:
    """Return the input for files. The parts have fixed sizes; timermetrics is the last one."""
    slots = b"".join(files[WHEEL][at : at + SLOT_BYTES] for at in places())
    return b"\0" + files[CHECKED][:CHECK] + slots + files[LOG][:UNITS] + files[METRICS]


def laid(data: bytes) -> dict[str, bytes]:
    """Return the files of an input. Bits of its first byte leave files out."""
    files = dict(whole())
    how, data = data[0], data[1:]
    slots, units = data[CHECK:], data[CHECK + SLOT_BYTES * len(places()) :]
    files[CHECKED] = (data[:CHECK] + files[CHECKED][len(data[:CHECK]) :])[: 4096 if how & 16 == 0 else len(data)]
    changed = bytearray(files[WHEEL])
    for n, at in enumerate(places()):
        slot = slots[SLOT_BYTES * n : SLOT_BYTES * (n + 1)]
        changed[at : at + len(slot)] = slot
    files[WHEEL] = bytes(changed)
    files[LOG] = units[:UNITS] + files[LOG][len(units[:UNITS]) :]
    if rest := units[UNITS:]:
        files[METRICS] = rest
    for bit, name in enumerate((WHEEL, LOG, CHECKED, METRICS)):
        if how & 1 << bit:
            del files[name]
    return files


def service(data: bytes, folder: Path) -> None:
    """A broker whose files of timed messages are damaged in any way."""
    if not data:
        return
    with mock.patch.object(timers, "TimerWheel", wheel):
        remains.lay(laid(data), folder / "store")
        asyncio.run(_delivered(folder / "store"))


async def _delivered(root: Path) -> None:
    t = await Timed(root, **CONFIG).open()
    try:
        for seconds in (0, 1, 4, 30, 150, 301, 400):
            t.now = EPOCH + 1 + 1000 * seconds
            for _ in range(2000):
                while t.store.step():
                    pass
                if await t.service._step() != 0.0:
                    break
            else:
                raise AssertionError("the service does not come to an end")
        for message in t.got():
            n = int(message.body[1:])
            assert message.body == b"m%d" % n and message.properties["UNIQ_KEY"] == f"m{n}", message
            assert message.store_timestamp >= EPOCH + 1000 * DELAYS[n], (message, "early")
        t.service.persist(last=True)
    finally:
        t.service.close()
        t.store.close()
