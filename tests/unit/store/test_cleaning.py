"""Every rule of cleaning by its name: real log files, with a simulated clock and simulated disk usage."""

import os
import shutil
import struct
import time
from types import SimpleNamespace

import pytest

import rocketc
from rocketc.config import StoreConfig
from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.derived._key_index import KeyIndex
from rocketc.derived.queue_files import IndexOnDisk, QueuesOnDisk, derived_bytes, files_before
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.store.cleaning import Cleaner, LogOnDisk, expired_queues, unused_topics

SIZE = 128
HOUR = 3_600_000
NOON = int(time.mktime((2026, 6, 15, 12, 30, 0, 0, 0, -1))) * 1000  # local time


def at_hour(hour: int, minute: int = 0) -> int:
    return int(time.mktime((2026, 6, 15, hour, minute, 0, 0, 0, -1))) * 1000


class Setting:
    """The files of a store and a Cleaner for them. `use`: usage of the disks in percent."""

    def __init__(self, root, ages, **fields):
        self.root, self.now = root, NOON
        self.use = {"log": 10, "queues": 10}
        self.pauses, self.flags, self.queues = [], [], []
        (root / "commitlog").mkdir()
        (root / "consumequeue").mkdir()
        for number in range(len(ages)):
            (root / "commitlog" / f"{number * SIZE:020d}").write_bytes(bytes([1]) * SIZE)
        self.age(ages)
        self.log = MappedFileQueue([root / "commitlog"], SIZE)
        self.log.load()
        self.config = StoreConfig(**{"file_reserved_time": 1, **fields})
        self.cleaner = Cleaner(
            self.log, self.config, root=root, queues=self, index=None, clock=lambda: self.now,
            statvfs=self.statvfs, pause=self.pauses.append, on_full=lambda *flags: self.flags.append(flags),
        )  # fmt: skip

    def age(self, ages):
        for number, hours in enumerate(ages):
            changed = (NOON - int(hours * HOUR)) * 1_000_000
            os.utime(self.root / "commitlog" / f"{number * SIZE:020d}", ns=(changed, changed))

    def delete_expired(self, min_phy, pause):
        """Delete as ConsumeQueues does."""
        found = {}
        for number, queue in enumerate(self.queues):
            if count := queue.delete_expired(min_phy):
                found[str(number)] = count
                if pause():
                    break
        return found

    def statvfs(self, path):
        used = self.use["queues" if path.endswith("consumequeue") else "log"]
        if used is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return SimpleNamespace(f_frsize=4096, f_blocks=1000, f_bfree=1000 - used * 10, f_bavail=1000 - used * 10)

    def run(self, **options):
        """Call run(), after a check that plan() reports the same and changes nothing."""
        before, state = sorted(self.root.rglob("*")), (self.cleaner.disk_full, self.cleaner._asked)
        plan = self.cleaner.plan(**{k: v for k, v in options.items() if k != "detailed"})
        assert sorted(self.root.rglob("*")) == before
        assert (self.cleaner.disk_full, self.cleaner._asked) == state and plan.dry
        report = self.cleaner.run(**options)
        assert not report.dry and report.because == plan.because and report.at_once == plan.at_once
        self.planned = plan
        return report

    def deleted(self, **options):
        report = self.run(**options)
        numbers = [int(os.path.basename(one.path)) // SIZE for one in report.deleted if one.kind == "commitlog"]
        planned = [one.path for one in self.planned.deleted if one.kind == "commitlog"]
        assert planned == [one.path for one in report.deleted if one.kind == "commitlog"]
        assert not any(os.path.exists(path) for path in planned)
        return numbers


@pytest.fixture
def setting(tmp_path):
    return lambda ages, **fields: Setting(tmp_path, ages, **fields)


# ---------------------------------------------------------------- reasons to delete
@pytest.mark.parametrize("when", ["04", "4", "16;4", "04;16", " 4 ; 5"])
def test_expired_files_are_deleted_at_the_hours_of_delete_when(setting, when):
    s = setting([2, 2, 0, 0], delete_when=when)
    s.now = at_hour(3, 59)
    assert s.deleted() == []
    for minute in (0, 59):  # the whole hour
        s.now = at_hour(4, minute)
        assert s.cleaner.plan().because == ["it is 4 o'clock"]
    s.now = at_hour(5) if "5" not in when else at_hour(6)
    assert s.deleted() == []
    s.now = at_hour(4)
    assert s.deleted(expired_ms=-7 * HOUR) == [0, 1]  # modified at 10:30


def test_only_expired_files_are_deleted_at_those_hours(setting):
    s = setting([2, 2, 0, 2, 0], delete_when="12")
    assert s.deleted() == [0, 1]  # the run ends at the first file that has not expired
    assert s.run().kept.why == "it is younger than 1 h"


def test_a_file_is_expired_after_file_reserved_time(setting):
    s = setting([72, 71.99, 0], delete_when="12", file_reserved_time=72)
    assert s.deleted() == [0]


def test_outside_those_hours_no_file_is_deleted(setting):
    s = setting([100, 100, 100])
    report = s.run()
    assert (report.because, report.deleted, report.min_phy_offset) == ([], [], 0)
    assert report.kept.why == "there is no reason to delete anything now"
    assert s.planned.kept.why == "it is not 04 o'clock, and the disk is not full"


def test_a_request_lasts_for_twenty_runs(setting):
    s = setting([2] * 30 + [0], delete_file_batch_max=1)
    s.cleaner.ask()
    assert [number for _ in range(30) for number in s.deleted()] == list(range(20))


def test_a_single_run_can_be_requested(setting):
    s = setting([2, 2, 0])
    assert s.deleted(asked=True) == [0, 1]
    assert s.cleaner.run().because == []


def test_a_run_can_set_the_expiry_age(setting):
    s = setting([5, 4, 3, 2, 1])
    assert s.deleted(asked=True, expired_ms=3 * HOUR) == [0, 1, 2]
    assert s.deleted(asked=True, expired_ms=0) == [3]


# ---------------------------------------------------------------- number of files
def test_unneeded_files_are_deleted_whatever_their_age(setting):
    s = setting([0, 0, 0, 0], delete_when="4")
    s.use["log"] = 99
    told = []
    for phy_offset in (-1, 0, SIZE - 1, SIZE, SIZE, 3 * SIZE + 1, 100 * SIZE):
        report = s.cleaner.delete_before(phy_offset)
        told.append(
            ([int(os.path.basename(one.path)) // SIZE for one in report.deleted], report.min_phy_offset // SIZE)
        )
    assert told == [([], 0), ([], 0), ([], 0), ([0], 1), ([], 1), ([1, 2], 3), ([], 3)]
    assert not s.cleaner.disk_full and s.flags == []


def test_an_unneeded_file_stays_while_it_is_in_use(setting):
    s = setting([0, 0, 0, 0])
    view = s.log.select(SIZE)
    assert s.cleaner.delete_before(3 * SIZE).min_phy_offset == SIZE
    view.release()
    assert s.cleaner.delete_before(3 * SIZE).min_phy_offset == 3 * SIZE


def test_a_run_deletes_ten_files(setting):
    s = setting([2] * 15 + [0], delete_when="12")
    assert s.deleted() == list(range(10))
    assert s.deleted() == list(range(10, 15))


def test_the_number_of_files_per_run_is_configured(setting):
    s = setting([2] * 15, delete_when="12", delete_file_batch_max=3)
    report = s.run()
    assert report.log_files == 3 and report.size == 3 * SIZE
    assert report.kept.why == "a run deletes at most 3 files"


def test_the_last_file_is_never_deleted(setting):
    s = setting([99, 99], delete_when="12")
    s.use["log"] = 99
    assert s.deleted() == [0]
    report = s.run()
    assert report.deleted == [] and report.kept.why == "it is the last one"


def test_an_empty_log(setting):
    s = setting([], delete_when="12")
    report = s.run()
    assert (report.deleted, report.kept, report.min_phy_offset) == ([], None, -1)


def test_between_two_files_there_is_a_pause(setting):
    s = setting([2, 2, 2, 0], delete_when="12", delete_commit_log_files_interval=250)
    assert s.deleted() == [0, 1, 2]
    assert s.pauses == [0.25, 0.25]


def test_closing_the_store_ends_the_run(setting):
    s = setting([2, 2, 2, 0], delete_when="12")
    s.cleaner._pause = lambda seconds: True
    report = s.cleaner.run()
    assert report.log_files == 1 and report.kept.why == "the store is being closed"


# ---------------------------------------------------------------- disk use
@pytest.mark.parametrize("disk", ["log", "queues"])
def test_expired_files_are_deleted_at_any_hour_above_disk_max_used_space_ratio(setting, disk):
    s = setting([2, 2, 0, 0])
    s.use[disk] = 75
    assert s.deleted() == []
    s.use[disk] = 76
    assert s.deleted() == [0, 1]
    assert s.flags == []


@pytest.mark.parametrize("disk", ["log", "queues"])
def test_a_disk_with_unknown_usage(setting, disk):
    s = setting([2, 0])
    s.use[disk] = None
    assert s.deleted() == [0]


@pytest.mark.parametrize("disk", ["log", "queues"])
def test_above_the_force_level_unexpired_files_are_deleted(setting, disk):
    s = setting([0] * 25)
    s.use[disk] = 86
    assert s.deleted() == list(range(10))
    assert s.deleted() == list(range(10, 20))
    assert s.deleted() == list(range(20, 24))
    assert s.flags == []


def test_without_clean_file_forcibly_enable_unexpired_files_stay(setting):
    s = setting([2, 0, 0], clean_file_forcibly_enable=False)
    s.use["log"] = 95
    assert s.deleted() == [0]
    assert s.deleted() == []
    assert s.flags == [(True, False)]


def test_above_the_warning_level_the_disk_is_full(setting):
    s = setting([0, 0, 0])
    s.use["log"] = 91
    report = s.run()
    assert report.disk_full and s.cleaner.disk_full and report.log_files == 2
    assert s.flags == [(True, False)]


def test_the_disk_of_the_queues_has_its_own_flag(setting):
    s = setting([0, 0, 0])
    s.use["queues"] = 91
    s.run()
    assert s.flags == [(False, True)] and s.cleaner.queues_full
    s.use["queues"] = 84
    s.run()
    assert s.flags == [(False, True), (False, False)]


def test_between_the_levels_the_flag_keeps_its_value(setting, caplog):
    s = setting([0, 0])
    for use, full in (
        (88, False),
        (91, True),
        (88, True),
        (86, True),
        (85, False),
        (88, False),
        (90, False),
        (91, True),
    ):
        s.use["log"] = use
        assert s.run().disk_full is full, use
        assert s.cleaner.disk_full is full, use
    assert s.flags == [(True, False), (False, False), (True, False)]
    assert "messages are refused until there is space" in caplog.text


def test_new_files_are_created_in_folders_whose_disk_is_not_full(tmp_path):
    """A disk above the level `force` is full. Its folder takes files again when the disk has room."""
    folders = [str(tmp_path / letter) for letter in "abc"]
    use = dict.fromkeys([*folders, str(tmp_path)], 10)

    def disk(path):
        return SimpleNamespace(f_frsize=1, f_blocks=100, f_bfree=100 - use[path], f_bavail=100 - use[path])

    log = MappedFileQueue(folders, SIZE)
    log.make_folders()
    log.load()
    config = StoreConfig(store_path_commit_log=",".join(folders), clean_file_forcibly_enable=False)
    cleaner = Cleaner(log, config, root=tmp_path, statvfs=disk)
    made = []
    for n, full in enumerate(["", "", "b", "b", "ab", "ab", "abc", "abc", "", ""]):
        use.update({folder: 86 if folder[-1] in full else 85 for folder in folders})
        cleaner.run(NOON, expired_ms=1 << 60)
        log.create(n * SIZE)
        made.append(log.files[-1][-22])
    assert made == ["a", "b", "a", "c", "c", "c", "a", "b", "c", "a"]


def test_the_levels_are_configured(setting):
    s = setting([0, 0, 0], disk_space_clean_forcibly_ratio=40, disk_max_used_space_ratio=30)
    s.use["log"] = 41
    assert s.deleted() == [0, 1]


def test_several_stores_share_a_disk(setting):
    s = setting([0, 0, 0, 0], replicas_per_disk_partition=10_000)  # each store's share is 409 bytes, the log has 512
    s.use["log"] = 80
    assert s.deleted() == [0, 1, 2]


def test_a_full_disk_without_deletable_files_is_logged(setting, caplog):
    s = setting([0])
    s.use["log"] = 86
    s.run()
    assert "above 85 %, but no file can be deleted" in caplog.text


# ---------------------------------------------------------------- files in use
def test_a_file_held_by_a_view_stays_and_so_do_later_files(setting):
    s = setting([2, 2, 2, 0], delete_when="12")
    view = s.log.select(SIZE)
    s.age([2, 2, 2, 0])
    report = s.run()
    assert [one.path[-3:] for one in report.deleted] == ["000"]
    assert report.kept.path.endswith("128") and report.kept.why == "it is in use, or in a read-only folder"
    assert bytes(view) == bytes([1]) * SIZE
    view.release()
    assert s.deleted() == [1, 2]


def test_a_file_that_was_in_use_is_tried_again_at_any_hour(setting, caplog):
    s = setting([2, 2, 0, 0])
    view = s.log.select(0)
    s.age([2, 2, 0, 0])
    assert s.run(asked=True).deleted == []
    s.now += 119_999
    assert s.run().deleted == []
    view.release()
    s.now += 1
    report = s.run()
    assert [(one.path[-3:], one.why) for one in report.deleted] == [("000", "no longer in use")]
    assert report.min_phy_offset == SIZE
    s.now += 10 * HOUR
    assert s.run().deleted == []  # only the file that was in use


def test_a_file_that_is_held_for_long_is_logged_and_never_deleted(setting, caplog):
    s = setting([2, 0], destroy_maped_file_interval_forcibly=200_000)
    view = s.log.select(0)
    s.age([2, 0])
    s.run(asked=True)
    for _ in range(4):
        s.now += 120_000
        assert s.run().deleted == []
    assert caplog.text.count("should be deleted, but has been in use for") == 3
    assert bytes(view) == bytes([1]) * SIZE
    view.release()


def test_files_in_read_only_folders_stay(tmp_path):
    s = Setting(tmp_path, [2, 2, 0], delete_when="12")
    s.log = MappedFileQueue([tmp_path / "new"], SIZE, [tmp_path / "commitlog"])
    s.log.load()
    s.cleaner._log = s.log
    assert s.run().kept.why == "it is in use, or in a read-only folder"


# ---------------------------------------------------------------- queues and index
class Derived:
    """Deletes by the first 64-bit integer of its files, as a consume queue does by their last units."""

    def __init__(self, *lasts):
        self.lasts, self.asked = list(lasts), []

    def delete_expired(self, min_phy):
        self.asked.append(min_phy)
        before = len(self.lasts)
        while len(self.lasts) > 1 and self.lasts[0] < min_phy:
            self.lasts.pop(0)
        return before - len(self.lasts)


def test_queues_and_index_are_cleaned_after_the_log(setting):
    s = setting([2, 2, 2, 0, 0], delete_when="12", delete_consume_queue_files_interval=70)
    many, none = Derived(100, 200, 380, 500), Derived(500)
    index = s.cleaner._index = Derived(300, 500)
    s.queues = [many, none]
    report = s.run()
    assert report.min_phy_offset == 3 * SIZE == 384
    assert (many.lasts, none.lasts, index.lasts) == ([500], [500], [500])
    assert many.asked == none.asked == index.asked == [384]
    assert report.derived == 4
    assert s.pauses == [0.1, 0.1, 0.07]  # only after a queue that has deleted files
    s.run()
    assert many.asked == [384]  # not again before the log begins at a later offset


def test_queues_are_cleaned_again_after_an_interrupted_run(setting):
    s = setting([2, 0], delete_when="12")
    first, second = Derived(1, 2, 999), Derived(1, 999)
    s.queues = [first, second]
    s.cleaner._pause = lambda seconds: True
    s.cleaner.run()
    assert (len(first.lasts), len(second.lasts)) == (1, 2)
    s.cleaner.run()
    assert (len(first.lasts), len(second.lasts)) == (1, 1)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def lay_derived(root, messages, units=7, keys=7):
    """Consume queue and index files of this many messages, each with a log file of its own."""
    for first in range(0, messages, units):
        here = [struct.pack(">qiq", n * SIZE, SIZE, 0) for n in range(first, min(first + units, messages))]
        write(root / "consumequeue/orders/0" / f"{first * 20:020d}", b"".join(here).ljust(20 * units, b"\0"))
    for first in range(0, messages, keys):
        last = min(first + keys, messages) - 1
        head = struct.pack(">qqqqii", 0, 0, first * SIZE, last * SIZE, 1, last - first + 2)
        write(root / "index" / f"{20260101000000000 + first}", head)


class OnDisk:
    """Deletes files by RocketMQ's rule, as a consume queue or an index does."""

    def __init__(self, folder, at):
        self.folder, self.at = folder, at

    def delete_expired(self, min_phy):
        count = 0
        for path in sorted(self.folder.iterdir())[:-1]:
            raw = path.read_bytes()
            if struct.unpack_from(">q", raw, self.at if self.at >= 0 else len(raw) + self.at)[0] >= min_phy:
                break
            path.unlink()
            count += 1
        return count


def derived(s):
    return len(list((s.root / "consumequeue/orders/0").iterdir())), len(list((s.root / "index").iterdir()))


@pytest.fixture
def clean_files_test(setting):
    """DefaultMessageStoreCleanFilesTest: 55 log files of one message; queue and index files of 7 messages."""

    def make(old=15, **fields):
        s = setting([2] * old + [0] * (55 - old), **fields)
        lay_derived(s.root, 55)
        s.queues = [OnDisk(s.root / "consumequeue/orders/0", -20)]
        s.cleaner._index = OnDisk(s.root / "index", 24)
        assert len(s.log.files) == 55 and derived(s) == (8, 8)
        return s

    return make


@pytest.mark.parametrize("why", ["time is up", "disk above the ratio", "asked for"])
def test_clean_files_deletes_ten_then_five_and_their_queues_and_index(clean_files_test, why):
    s = clean_files_test(**{"delete_when": "12"} if why == "time is up" else {})
    if why == "disk above the ratio":
        s.use["log"] = 80
    if why == "asked for":
        s.cleaner.ask()
    assert s.deleted(detailed=True) == list(range(10))
    assert derived(s) == (8 - 10 // 7, 8 - 10 // 7)
    assert s.deleted(detailed=True) == list(range(10, 15))
    assert derived(s) == (8 - 15 // 7, 8 - 15 // 7)
    assert s.deleted() == []


def test_clean_files_above_the_force_level_deletes_ten_a_run(clean_files_test):
    s = clean_files_test(old=0)
    s.use["log"] = 86
    for run in range(1, 6):
        assert s.deleted() == list(range(10 * run - 10, 10 * run))
        assert derived(s) == (8 - 10 * run // 7, 8 - 10 * run // 7)


def test_clean_files_with_the_queues_and_the_index_of_a_store(tmp_path):
    """The same with the log files, queues and index of a store."""
    size = 320  # one message in each file
    fields = {"mapped_file_size_consume_queue": 140, "max_index_num": 8, "max_hash_slot_num": 10}
    with rocketc.open(tmp_path, mapped_file_size_commit_log=size, **fields) as store:
        for number in range(55):
            store.put("orders", bytes(100), keys=f"k{number}")
    for path in sorted((tmp_path / "commitlog").iterdir())[55:]:  # files created in advance
        path.unlink()
    log = MappedFileQueue([tmp_path / "commitlog"], size)
    log.load()
    queues = ConsumeQueues(str(tmp_path), 140)
    queues.load()
    queues.begin(1 << 62)
    queues.finish(0)
    index = KeyIndex(tmp_path / "index", 10, 8)
    index.load()
    assert (len(log.files), queues.range("orders"), len(index.files)) == (55, (0, 55), 8)
    now = int(time.time() * 1000)
    for path in log.files[:15]:
        os.utime(path, (now / 1000 - 7200, now / 1000 - 7200))
    config = StoreConfig(file_reserved_time=1, clean_file_forcibly_enable=False)
    cleaner = Cleaner(log, config, root=tmp_path, queues=queues, index=index, clock=lambda: now, pause=lambda _: False)
    for deleted in (10, 15, 15):
        plan = cleaner.plan(asked=True)
        report = cleaner.run(asked=True, detailed=True)
        assert [one.path for one in plan.deleted] == [one.path for one in report.deleted]
        assert (len(log.files), report.min_phy_offset) == (55 - deleted, deleted * size)
        assert derived(SimpleNamespace(root=tmp_path)) == (8 - deleted // 7, 8 - deleted // 7)
        assert queues.range("orders") == (deleted, 55)
        assert len(index.files) == 8 - deleted // 7
        assert list(index.offsets("orders", "k6")) == ([] if deleted >= 7 else [6 * size])
        assert list(index.offsets("orders", "k54")) == [54 * size]


def test_the_report_names_deleted_queue_and_index_files(clean_files_test):
    s = clean_files_test(delete_when="12")
    report = s.run(detailed=True)
    assert [one.kind for one in report.deleted] == ["commitlog"] * 10 + ["consumequeue", "index"]
    assert [one.path for one in s.planned.deleted] == [one.path for one in report.deleted]
    assert report.derived == s.planned.derived == 2
    assert report.size == s.planned.size == 10 * SIZE + 140 + 40
    found = report.to_dict()
    assert found["minPhyOffset"] == 10 * SIZE and found["deleted"][-1]["kind"] == "index"


def test_files_before_a_physical_offset(tmp_path):
    lay_derived(tmp_path, 20)
    names = [(one.kind, one.size) for one in files_before(tmp_path, 14 * SIZE)]
    assert names == [("consumequeue", 140)] * 2 + [("index", 40)] * 2
    assert [one.kind for one in files_before(tmp_path, 14 * SIZE - SIZE)] == ["consumequeue", "index"]
    assert len(list(files_before(tmp_path, 1 << 40))) == 4  # never the last file
    assert derived_bytes(tmp_path) == 3 * 140 + 3 * 40
    for kind, number in (("consumequeue/orders/0", f"{0:020d}"), ("index", "20260101000000000")):
        (tmp_path / kind / number).write_bytes(b"short")
    assert list(files_before(tmp_path, 1 << 40)) == []  # an unreadable file stays, and so do the files after it
    unit = struct.pack(">qiqqqh8x", 5, 1, 0, 0, 0, 1)
    write(tmp_path / "batchconsumequeue/batch/3" / f"{0:020d}", unit)
    write(tmp_path / "batchconsumequeue/batch/3" / f"{46:020d}", unit)
    write(tmp_path / "batchconsumequeue/batch/no-number" / f"{46:020d}", unit)
    assert [one.path.split("/")[-4:-1] for one in files_before(tmp_path, 6)] == [["batchconsumequeue", "batch", "3"]]


def test_a_log_that_is_not_open(tmp_path):
    s = Setting(tmp_path, [2, 2, 2, 0, 0])
    for start in (5 * SIZE, 6 * SIZE):  # files created in advance
        (tmp_path / "commitlog" / f"{start:020d}").write_bytes(bytes(SIZE))
    (tmp_path / "commitlog/notes.txt").write_text("x")
    log = LogOnDisk([str(tmp_path / "commitlog"), str(tmp_path / "none")])
    assert [os.path.basename(path) for path in log.files] == [f"{n * SIZE:020d}" for n in range(5)]
    assert log.delete_expired(HOUR, s.now, batch=2) == 2
    assert log.delete_expired(HOUR, s.now) == 1
    assert log.delete_expired(HOUR, s.now, immediately=True) == 1
    assert log.delete_expired(0, s.now, immediately=True) == 0  # the last file
    assert log.files == LogOnDisk([str(tmp_path / "commitlog")]).files
    assert len(log.files) == 1 and os.path.exists(log.files[0])


def test_queues_and_index_that_are_not_open(tmp_path):
    lay_derived(tmp_path, 30)
    shutil.copytree(tmp_path / "consumequeue/orders/0", tmp_path / "consumequeue/orders/1")
    queues, index = QueuesOnDisk(tmp_path), IndexOnDisk(tmp_path)
    folders = [str(tmp_path / "consumequeue/orders" / queue) for queue in "01"]
    assert queues.delete_expired(7 * SIZE, lambda: None) == dict.fromkeys(folders, 1)
    assert queues.delete_expired(14 * SIZE, lambda: True) == {folders[0]: 1}
    assert queues.delete_expired(14 * SIZE, lambda: True) == {folders[1]: 1}
    assert index.delete_expired(14 * SIZE) == 2
    assert [len(os.listdir(folder)) for folder in (*folders, tmp_path / "index")] == [3, 3, 3]
    assert index.delete_expired(14 * SIZE) == 0


def test_a_queue_file_that_ends_with_lost_records(tmp_path):
    lay_derived(tmp_path, 20)
    path = tmp_path / "consumequeue/orders/0" / f"{0:020d}"
    raw = path.read_bytes()
    lost = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
    for count in range(1, 8):
        path.write_bytes(raw[: -20 * count] + lost * count)
        last = (6 - count) * SIZE  # of the remaining records; negative: none remain
        assert len(list(files_before(tmp_path, last, ("consumequeue",)))) == 0
        assert len(list(files_before(tmp_path, last + 1, ("consumequeue",)))) == (last >= 0)
    assert len(list(files_before(tmp_path, 1, ("consumequeue",)))) == 1


# ---------------------------------------------------------------- deleted topics
def test_queues_without_remaining_messages_are_expired():
    ends = [("a", 0, 999), ("a", 1, 1000), ("b", 0, -1), ("SCHEDULE_TOPIC_XXXX", 2, 5), ("rmq_sys_x", 0, 5)]
    assert expired_queues(ends, 1000) == [("a", 0)]


def test_unused_topics_exclude_retained_system_and_light_topics():
    topics = ["a", "b", "%LMQ%c", "rmq_sys_d", "TBW102", "%RETRY%e"]
    assert unused_topics(topics, {"a"}) == ["b", "%RETRY%e"]
    assert unused_topics(topics, topics) == []


def test_limits_are_printed_with_a_fitting_unit(setting):
    s = setting([0, 0])
    minutes, seconds = (90 * 60_000, "90 min"), [(1000, "1 s"), (5001, "5 s")]
    for ms, said in [(HOUR, "1 h"), (72 * HOUR, "72 h"), (168 * HOUR, "7 d"), minutes, *seconds]:
        assert s.cleaner.plan(asked=True, expired_ms=ms).kept.why == f"it is younger than {said}"
