"""The timer wheel, the timer log and timercheck: bytes as RocketMQ's, and files with wrong bytes."""

import os
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from support import stores

from rocketc.derived import timer_check
from rocketc.derived._timer_log import DELETE, LEAST_BYTES, NORMAL, ROLL, UNIT_BYTES, TimerLog
from rocketc.derived._timer_wheel import SLOT_BYTES, SLOTS, TimerWheel
from rocketc.derived.timer_check import TimerCheck
from rocketc.errors import ClosedError, StoreIOError

NOW = 1_700_000_000_000
BLANK = 0xCBD43194


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return stores.unpack("v533-broker", tmp_path_factory.mktemp("golden"))


def wheel_of(folder, slots=64, precision=1000):
    return TimerWheel(folder / "timerwheel", precision, slots)


def log_of(folder, size=1000):
    log = TimerLog(folder / "timerlog", size)
    assert log.load() == 0
    return log


def unit(log, previous=-1, magic=NORMAL, time=NOW, delay=3000, phy_offset=0, size=300, topic_hash=7):
    return log.put(previous, magic, time, delay, phy_offset=phy_offset, size=size, topic_hash=topic_hash)


# the golden store


def test_the_wheel_of_rocketmq(golden):
    wheel = TimerWheel(golden.path / "timerwheel", 1000)
    assert not wheel.is_new and wheel.span_ms == 1000 * SLOTS
    slots = wheel.used()
    assert len(slots) == 16 and sum(count for *_, count in slots) == 40
    assert wheel.slot(1795248672000) == (104, 364, 3) and wheel.slot(1795248672999) == (104, 364, 3)
    assert wheel.slot(1795248670000) is None
    assert [time for time, *_ in wheel.used(1795248682000)] == sorted(
        time for time, *_ in slots if time > 1795252000000
    )


def test_the_log_of_rocketmq(golden):
    log = TimerLog(golden.path / "timerlog", 100 << 20)  # the size of the files counts
    assert (log.load(), log.file_size, log.start, log.end) == (0, 102400, 0, 40 * UNIT_BYTES)
    assert log.unit(208) == (104, NORMAL, 1795248669000, 3000, 59274, 458, 80811813)
    chain, pos = [], 2028
    while pos >= 0:
        chain.append(pos)
        pos = log.unit(pos)[0]
    assert chain == [2028, 1196, 520, 416]


def test_the_check_of_rocketmq(golden):
    path = golden.path / "config" / "timercheck"
    found = timer_check.read(path)
    assert found == TimerCheck(1795248714000, 2080, 40, 40, 0, 1795248714492, 45)
    assert found.encode() == path.read_bytes()


def test_the_same_units_make_the_same_bytes(golden, tmp_path):
    """RocketMQ's units, appended again, are its log and its wheel byte for byte."""
    theirs = TimerLog(golden.path / "timerlog", 1000)
    theirs.load()
    ours = log_of(tmp_path, 102400)
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    for pos in range(0, theirs.end, UNIT_BYTES):
        _, magic, time, delay, phy, size, code = theirs.unit(pos)
        slot = wheel.slot(time + delay)
        assert unit(ours, slot[1] if slot else -1, magic, time, delay, phy, size, code) == pos
        wheel.add(time + delay, pos)
    ours.flush()
    wheel.flush()
    name = "timerlog/00000000000000000000"
    assert (tmp_path / name).read_bytes() == (golden.path / name).read_bytes()
    assert (tmp_path / "timerwheel").read_bytes() == (golden.path / "timerwheel").read_bytes()


# the wheel


def test_a_wheel_is_sparse_and_durable(tmp_path):
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    assert wheel.is_new and wheel.used() == []
    wheel.add(NOW, 104)
    wheel.add(NOW + 999, 208)
    wheel.add(NOW, 208)  # it has this unit
    wheel.add(NOW, 312, deletes=True)
    wheel.flush()
    wheel.flush()
    info = os.stat(wheel.path)
    assert info.st_size == SLOTS * SLOT_BYTES == 38_707_200 and info.st_blocks * 512 <= 64 << 10
    wheel.close()
    wheel.close()
    again = TimerWheel(tmp_path / "timerwheel", 1000)
    assert not again.is_new and again.used() == [(NOW, 104, 312, 1)]
    with open(again.path, "rb") as file:
        file.seek(NOW // 1000 % SLOTS * SLOT_BYTES)
        assert struct.unpack(">qqqii", file.read(32)) == (NOW // 1000, 104, 312, 1, 0)


def test_a_slot_of_another_moment_is_unused(tmp_path):
    wheel = wheel_of(tmp_path)
    wheel.add(NOW, 0)
    assert wheel.slot(NOW + 64_000) is None and wheel.slot(NOW - 64_000) is None
    wheel.add(NOW + 64_000, 52)
    assert wheel.slot(NOW) is None and wheel.used() == [(NOW + 64_000, 52, 52, 1)]


def test_slots_are_cleared(tmp_path):
    wheel = wheel_of(tmp_path)
    for second in (0, 3, 4, 9):
        wheel.add(NOW + 1000 * second, 52 * second)
    wheel.clear(NOW + 1000, NOW + 9000)
    assert [time - NOW for time, *_ in wheel.used()] == [0, 9000]
    wheel.clear_all()
    assert wheel.used() == []
    wheel.add(NOW, 1)
    assert wheel.slot(NOW) == (1, 1, 1)


@pytest.mark.parametrize("time", [-1, 0, 999, -(1 << 63)])
def test_times_that_no_slot_has(tmp_path, time):
    wheel = wheel_of(tmp_path)
    assert wheel.slot(time) is None
    with pytest.raises(ValueError):
        wheel.add(time, 0)
    with pytest.raises(ValueError, match="an offset is not negative"):
        wheel.add(NOW, -1)
    with pytest.raises(ValueError, match="both are from 1 on"):
        TimerWheel(tmp_path / "other", 0)
    with pytest.raises(ValueError, match="both are from 1 on"):
        TimerWheel(tmp_path / "other", 1000, 0)


@pytest.mark.parametrize("size", [0, 31, 64 * 32 - 1, 64 * 32 + 1])
def test_a_wheel_of_another_size_is_emptied(tmp_path, size):
    (tmp_path / "timerwheel").write_bytes(b"\1" * size)
    wheel = wheel_of(tmp_path)
    assert wheel.is_new and wheel.used() == [] and os.path.getsize(wheel.path) == 64 * 32


def test_damaged_slots_are_unused(tmp_path):
    number = NOW // 1000
    for slot in (
        (number + 1, 0, 0, 1, 0),  # at the place of another one
        (-number, 0, 0, 1, 0),
        (1 << 62, 0, 0, 1, 0),
        (number, 0, -5, 1, 0),
    ):
        (tmp_path / "timerwheel").write_bytes(bytes(64 * 32))
        with open(tmp_path / "timerwheel", "r+b") as file:
            file.seek(number % 64 * 32)
            file.write(struct.pack(">qqqii", *slot))
        wheel = wheel_of(tmp_path)
        assert wheel.slot(NOW) is None and wheel.used() == []
    noise = os.urandom(64 * 32)
    (tmp_path / "timerwheel").write_bytes(noise)
    wheel_of(tmp_path).used()


def test_a_wheel_is_a_regular_file(tmp_path):
    (tmp_path / "timerwheel").mkdir()
    with pytest.raises(StoreIOError):
        wheel_of(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreIOError):
        TimerWheel(tmp_path / "link", 1000)


def test_a_closed_wheel(tmp_path):
    wheel = wheel_of(tmp_path)
    wheel.close()
    for call in (lambda: wheel.add(NOW, 0), lambda: wheel.slot(NOW), wheel.used, wheel.flush, wheel.clear_all):
        with pytest.raises(ClosedError, match="is closed"):
            call()


def test_a_wheel_that_was_cut(tmp_path):
    wheel = TimerWheel(tmp_path / "timerwheel", 1000)
    os.truncate(wheel.path, 0)
    with pytest.raises(StoreIOError):
        wheel.slot(NOW)
    with pytest.raises(StoreIOError):
        wheel.add(NOW, 0)


# the log


def test_a_full_file_is_closed_with_a_blank(tmp_path):
    log = log_of(tmp_path, 16 + 3 * 52 + 10)
    assert [unit(log, phy_offset=n) for n in range(4)] == [0, 52, 104, 182]
    log.flush()
    first = (tmp_path / "timerlog" / f"{0:020}").read_bytes()
    assert first[156:172] == struct.pack(">iqI", 26, 0, BLANK)
    assert log.end == 234 and [log.next(pos) for pos in (0, 1, 104, 105, 182, 183)] == [0, 52, 104, 182, 182, 234]
    again = log_of(tmp_path)
    assert again.end == 234 and again.unit(182)[4] == 3 and [len(again.files), again.file_size] == [2, 182]
    assert unit(again, 182, phy_offset=9) == 234


def test_a_file_with_room_for_exactly_its_units(tmp_path):
    log = log_of(tmp_path, LEAST_BYTES)
    assert [unit(log) for _ in range(3)] == [0, 68, 136]
    assert log_of(tmp_path).end == 136 + 52


@pytest.mark.parametrize("cut", range(1, 52))
def test_a_torn_unit_is_cleared(tmp_path, cut):
    log = log_of(tmp_path)
    unit(log)
    unit(log, phy_offset=0x0101010101010101, size=0x01010101, topic_hash=0x01010101)
    log.flush()
    path = log.files[0]
    with open(path, "r+b") as file:
        file.seek(52)
        torn = file.read(52)
        file.seek(52)
        file.write(bytes(4) + torn[4:cut] if cut > 4 else torn[:cut] + bytes(52 - cut) if cut < 4 else bytes(52))
    again = log_of(tmp_path)
    assert again.end == 52
    with open(path, "rb") as file:
        assert not any(file.read()[52:])
    assert unit(again, 0, phy_offset=5) == 52 and again.unit(52)[:1] == (0,)


WRONG = [
    {0: 51}, {0: 0}, {0: -52}, {12: 0}, {12: 8}, {12: -1}, {24: -1}, {36: 0}, {36: -1},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_damaged_unit_ends_the_log(tmp_path, wrong):
    log = log_of(tmp_path)
    for n in range(3):
        unit(log, 52 * (n - 1) if n else -1)
    log.flush()
    [(at, value)] = wrong.items()
    with open(log.files[0], "r+b") as file:
        file.seek(52 + at)
        file.write(struct.pack(">i", value))
    assert log.unit(52) is None and log.unit(104) is not None
    assert log_of(tmp_path).end == 52


@pytest.mark.parametrize("previous", [52, 53, 1 << 62, -2, -(1 << 63)])
def test_chains_go_back(tmp_path, previous):
    log = log_of(tmp_path)
    unit(log)
    unit(log, previous)
    assert log.unit(52) is None and log_of(tmp_path).end == 52


@pytest.mark.parametrize("pos", [-1, -(1 << 63), 1, 51, 53, 156, 1000, (1 << 63) - 1])
def test_offsets_without_a_unit(tmp_path, pos):
    log = log_of(tmp_path)
    for _ in range(3):
        unit(log)
    assert log.unit(pos) is None


def test_a_log_is_cut(tmp_path):
    log = log_of(tmp_path, 16 + 2 * 52)
    places = [unit(log, phy_offset=n) for n in range(7)]
    log.cut(places[-1] + 52)
    assert log.end == places[-1] + 52
    log.cut(places[3])
    assert log.end == places[3] and len(log.files) == 2 and log.unit(places[3]) is None
    assert unit(log, phy_offset=8) == places[3]
    log.cut(0)
    assert (log.end, len(log.files)) == (0, 1) and log_of(tmp_path).end == 0


def test_a_log_is_cut_before_a_damaged_unit(tmp_path):
    log = log_of(tmp_path, 16 + 2 * 52)
    places = [unit(log, phy_offset=n) for n in range(9)]
    for number in (7, 3):
        with open(log.files[number // 2], "r+b") as file:
            file.seek(places[number] % log.file_size)
            file.write(bytes(52))
    log.cut_damaged(places[8])
    assert log.end == places[8] + 52
    log.cut_damaged(places[4] + 1)
    assert log.end == places[7]
    log.cut_damaged(1 << 62)
    log.cut_damaged(0)
    assert log.end == places[3] and len(log.files) == 2


@pytest.mark.parametrize(("end", "left"), [(1 << 62, 9), (300 + 8, 9), (307, 8), (304, 4), (301, 2), (299, 0), (0, 0)])
def test_a_log_is_cut_before_units_of_lost_messages(tmp_path, end, left):
    """A record has 300 bytes; unit 4 is damaged."""
    log = log_of(tmp_path, 16 + 2 * 52)
    places = [unit(log, phy_offset=n) for n in range(9)]
    with open(log.files[2], "r+b") as file:
        file.write(bytes(52))
    log.cut_lost(end)
    assert log.end == ([*places, places[-1] + 52][left] if left else 0)


def test_files_of_deleted_messages_are_deleted(tmp_path):
    log = log_of(tmp_path, 16 + 2 * 52)
    for n in range(7):
        unit(log, phy_offset=100 * n)
    assert log.delete_before(100) == 0
    assert log.delete_before(301) == 1 or log.start
    assert log.start == 240 and log.unit(0) is None
    assert log.delete_before(1 << 60) == 1 and len(log.files) == 1
    again = log_of(tmp_path)
    assert (again.start, again.end) == (log.start, log.end)


def test_files_that_do_not_belong_to_the_log(tmp_path):
    log = log_of(tmp_path, 1000)
    for _ in range(40):
        unit(log)
    folder = tmp_path / "timerlog"
    (folder / "notes.txt").write_text("x")
    (folder / f"{9000:020}").write_bytes(bytes(1000))  # after a missing one
    (folder / f"{2500:020}").write_bytes(bytes(1000))
    again = TimerLog(folder, 1000)
    assert again.load() == 2 and again.end == log.end
    (folder / f"{3000:020}").write_bytes(bytes(7))
    (folder / f"{4000:020}").mkdir()
    assert TimerLog(folder, 1000).load() == 3
    assert sorted(os.listdir(f"{folder}.unused")) == [f"{start:020}" for start in (3000, 4000, 9000)]
    assert (folder / f"{2500:020}").exists()
    for _ in range(20):
        assert unit(again) is not None
    assert len(again.files) == 4
    (folder / f"{0:020}").write_bytes(b"")
    TimerLog(folder, 1000).load()


def test_a_log_of_noise(tmp_path):
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerlog" / f"{0:020}").write_bytes(os.urandom(1000))
    log = log_of(tmp_path)
    assert log.end == 0 and unit(log, magic=ROLL | DELETE | NORMAL) == 0


def test_a_folder_near_the_root():
    """The names of the folders above are not the log's: it does not sync them up to the root."""
    near = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        log = log_of(near)
        unit(log)
        assert log.flush() == 52
    finally:
        shutil.rmtree(near)


def test_sizes_that_are_refused(tmp_path):
    for size in (0, LEAST_BYTES - 1, 1 << 31):
        with pytest.raises(ValueError, match="allowed are"):
            TimerLog(tmp_path, size)


def test_a_log_that_was_cut_short(tmp_path):
    log = log_of(tmp_path, 100_000)
    unit(log)
    os.truncate(log.files[0], 0)
    with pytest.raises(StoreIOError):
        log.unit(0)
    with pytest.raises(StoreIOError):
        for _ in range(200):
            unit(log)


# timercheck


def test_a_check_is_written_and_read(tmp_path):
    path = tmp_path / "config" / "timercheck"
    assert timer_check.read(path) is None
    check = TimerCheck(NOW, 520, 11, 11, 2, NOW + 5, 7)
    timer_check.write(path, check)
    timer_check.write(path, check)
    assert timer_check.read(path) == check
    raw = path.read_bytes()
    assert len(raw) == 4096 and raw[:16] == struct.pack(">qq", NOW, 520) and not any(raw[56:])


@pytest.mark.parametrize(
    "raw", [b"", bytes(55), struct.pack(">7q", -1, 0, 0, 0, 0, 0, 0), struct.pack(">7q", NOW, -1, 0, 0, 0, 0, 0),
            struct.pack(">7q", NOW, 0, -1, 0, 0, 0, 0), struct.pack(">7q", 1 << 62, 0, 0, 0, 0, 0, 0)]
)  # fmt: skip
def test_checks_that_cannot_be(tmp_path, raw):
    (tmp_path / "timercheck").write_bytes(raw)
    assert timer_check.read(tmp_path / "timercheck") is None
    with pytest.raises(ValueError):
        timer_check.decode(raw)


def test_a_check_is_a_regular_file(tmp_path):
    (tmp_path / "timercheck").mkdir()
    assert timer_check.read(tmp_path / "timercheck") is None
    with pytest.raises(StoreIOError):
        timer_check.write(tmp_path / "timercheck", TimerCheck())
