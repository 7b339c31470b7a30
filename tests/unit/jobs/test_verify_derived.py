"""verify: units of queues and index that differ from the log, and a valid store without such units."""

import json
import os
import random
import shutil
import struct
import threading
import time
from functools import partial

import pytest
from support import stores
from support.derived import fill
from support.promise_counts import count

import rocketc
from rocketc.files import _checkpoint
from rocketc.files.paths import resolve
from rocketc.jobs import verify_derived
from rocketc.jobs.verify_derived import Comparison

pytestmark = pytest.mark.promise(6)

SMALL = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 20,
    "max_index_num": 1000,
}
UNITS_AT = 40 + 4 * SMALL["max_hash_slot_num"]


@pytest.fixture
def root(open_store, tmp_path):
    """A closed store of 300 messages in 6 queues with 600 keys."""
    fill(open_store(**SMALL))
    return tmp_path


def derived(path):
    return rocketc.verify(path).derived


def queue(root, topic="T0", queue_id=0):
    return next((root / "consumequeue" / topic / str(queue_id)).iterdir())


def index(root):
    return next((root / "index").iterdir())


def change(path, at, data):
    old = bytearray(path.read_bytes())
    old[at : at + len(data)] = data
    path.write_bytes(old)


def only(report):
    """Return the only finding: its kind, first and last number."""
    (found,) = report.findings
    assert report.counts == {found.what: found.count} and not report.is_whole
    return found.what, found.first, found.last


# ---------------------------------------------------------------- valid stores
@pytest.mark.parametrize("name", [name for name in stores.NAMES if "torn" not in name])
def test_a_brokers_store_is_whole(golden, name):
    report = derived(golden(name).path)
    assert report.is_whole and report.units > 0 and report.keys > 0 and report.behind == 0
    assert report.queues == sum(1 for _ in golden(name).path.glob("*consumequeue/*/*"))


def test_a_store_of_rocketc(root):
    report = derived(root)
    assert report.is_whole and (report.queues, report.units, report.keys) == (6, 300, 600)


def test_without_derived_files(root):
    for name in ("consumequeue", "index", "checkpoint"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = rocketc.verify(root)
    assert report.is_whole and (report.derived.queues, report.derived.keys) == (None, None)


def test_only_the_root_of_a_store_has_derived_files(root):
    assert rocketc.verify(root / "commitlog").derived is None
    assert rocketc.verify([root, root]).derived is None


def test_remaining_files_of_a_cleaned_store(root):
    """Units before the first existing record refer to deleted records."""
    for path in sorted((root / "commitlog").iterdir())[:3]:
        path.unlink()
    report = derived(root)
    assert report.is_whole and 0 < report.units < 300


# ---------------------------------------------------------------- queues
def test_units_of_another_record(root):
    change(queue(root), 5 * 20, struct.pack(">q", 1234))
    assert only(derived(root)) == ("elsewhere", 5, 5)


def test_units_of_another_queue(root):
    shutil.copy(queue(root, "T1", 1), queue(root))
    what, first, last = only(derived(root))
    assert (what, first, last) == ("elsewhere", 0, 49)


def test_a_wrong_size(root):
    change(queue(root), 7 * 20 + 8, struct.pack(">i", 77))
    assert only(derived(root)) == ("bad_size", 7, 7)


def test_wrong_tags(root):
    change(queue(root), 3 * 20 + 12, struct.pack(">qqiq", 1, *struct.unpack_from(">qiq", queue(root).read_bytes(), 80)))
    assert only(derived(root)) == ("bad_tags_code", 3, 3)


def test_blank_units(root):
    change(queue(root), 10 * 20, struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 4)
    assert only(derived(root)) == ("lacks", 10, 13)


def test_units_after_the_last_record(root):
    change(queue(root), 50 * 20, struct.pack(">qiq", 100, 200, 0) * 2)
    assert only(derived(root)) == ("no_record", 50, 51)


def test_a_missing_queue(root):
    shutil.rmtree(root / "consumequeue" / "T2" / "0")
    report = derived(root)
    assert only(report)[0] == "no_queue" and report.findings[0].count == 50


def test_queue_offsets_moved_by_one(root):
    data = queue(root).read_bytes()
    queue(root).write_bytes(data[20 : 50 * 20] + bytes(20) + data[50 * 20 :])
    report = derived(root)
    assert report.counts == {"elsewhere": 49, "lacks": 1}


@pytest.mark.parametrize(("field", "value"), [(">i", 8), (">q", 24), (">i", 32)])
def test_batch_queues(tmp_path, field, value):
    """Size, base offset and physical offset of their units."""
    store = stores.unpack("v533-broker", tmp_path)
    path = next(
        path for path in sorted(store.path.glob("batchconsumequeue/*/*/*")) if path.read_bytes()[8:12] != bytes(4)
    )
    at = value
    change(path, at, struct.pack(field, 3))
    report = derived(store.path)
    assert not report.is_whole and sum(report.counts.values()) <= 2, report.counts


# ---------------------------------------------------------------- index
def test_a_key_without_a_record(root):
    change(index(root), UNITS_AT + 10 * 20, struct.pack(">i", 99))
    report = derived(root)
    assert report.counts == {"key_no_record": 1, "key_lacks": 1}
    assert any("bad_chain" in text for text in report.problems)


def test_index_units_without_a_record(root):
    change(index(root), UNITS_AT + 10 * 20 + 4, struct.pack(">q", 1 << 40))
    report = derived(root)
    assert report.counts == {"key_no_record": 1, "key_lacks": 1}
    assert [(one.first, one.last) for one in report.findings if one.what == "key_no_record"] == [(10, 10)]


def test_a_wrong_time(root):
    change(index(root), UNITS_AT + 20 * 20 + 12, struct.pack(">i", 5000))
    assert only(derived(root)) == ("key_bad_time", 20, 20)


@pytest.fixture
def some_index_files(open_store, tmp_path):
    """A dict of five index files, the last one not full, and their bytes. Some records have a key twice."""
    now = 1_700_000_000_000
    with open_store(**SMALL | {"max_hash_slot_num": 7, "max_index_num": 20}) as store:
        for n in range(30):
            store._set_clock(now + 700 * n)
            store.put("T", b"x", keys=f"k{n % 4} k{n % 3} k{n % 4}", queue_id=n % 2)
    paths = sorted((tmp_path / "index").iterdir())
    assert len(paths) == 5 and derived(tmp_path).is_whole
    return {path: path.read_bytes() for path in paths}


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_every_byte_of_an_index(some_index_files, tmp_path, step):
    for number, path in enumerate(some_index_files):
        data = some_index_files[path]
        [count] = struct.unpack_from(">i", data, 36)
        for at in range(number % step, 40 + 7 * 4 + min(count, 20) * 20, step):
            if 68 <= at < 88 or (100 <= at < 104 and number == 0):
                continue  # unit 0, which is never read, and a time relative to the end of a file before the first
            change(path, at, bytes([data[at] ^ 1 << at % 8]))
            assert not derived(tmp_path).is_whole, (path.name, at)
        path.write_bytes(data)


@pytest.mark.parametrize(("at", "unit"), [(0, 1), (8, 19), (24, 19)])
def test_a_header_of_another_record(some_index_files, tmp_path, at, unit):
    """Start and end in the header. In the last file, which is not full, they are checked only in a closed store."""
    _, second, *_, last = some_index_files
    change(second, at + 7, bytes([some_index_files[second][at + 7] ^ 1]))
    found = [(one.what, one.first) for one in derived(tmp_path).findings]
    assert ("key_bad_header", unit) in found
    second.write_bytes(some_index_files[second])

    [count] = struct.unpack_from(">i", some_index_files[last], 36)
    change(last, 8, bytes(8))
    assert [(one.what, one.first) for one in derived(tmp_path).findings] == [("key_bad_header", count - 1)]
    (tmp_path / "abort").touch()
    assert derived(tmp_path).is_whole


def test_the_time_of_the_first_unit(some_index_files, tmp_path):
    """The time counts from the end of the previous file, if there is one."""
    first, second, *_ = some_index_files
    change(second, 68 + 20 + 15, b"\x07")
    assert only(derived(tmp_path)) == ("key_bad_time", 1, 1)
    first.unlink()
    assert "key_bad_time" not in derived(tmp_path).counts


def test_missing_keys(open_store, tmp_path):
    store = open_store(**SMALL | {"max_index_num": 41})
    for n in range(100):
        store.put("T", b"x", keys=f"k{n}")
    store.close()
    paths = sorted((tmp_path / "index").iterdir())
    paths[1].unlink()
    report = derived(tmp_path)
    assert (len(paths), report.counts, report.keys) == (3, {"key_lacks": 40}, 60)
    assert report.findings[0].count == 40


def test_an_index_file_that_is_cut(root):
    os.truncate(index(root), 100)
    assert not derived(root).is_whole


# ---------------------------------------------------------------- one scan of the log, or two
def damage(root, rng):
    """Change, cut or delete a few files of a store, and describe the damage."""
    what = []
    for _ in range(rng.randrange(1, 4)):
        logs = rng.random() < 0.6
        path = rng.choice(sorted(p for p in root.glob("commitlog/*" if logs else "*/**/*") if p.is_file()))
        size = path.stat().st_size
        at, kind = rng.randrange(max(size, 1)), rng.random()
        if kind < 0.1:
            os.truncate(path, at)
        elif kind < 0.15:
            path.unlink()
        else:
            data = rng.choice([rng.randbytes, bytes])(rng.choice([1, 1, 8, 100, 5000]))
            change(path, at, data[: size - at])
        what.append((path.name, at, round(kind, 2)))
    if rng.random() < 0.3:
        (root / "abort").touch()
    return what


@pytest.mark.some(4)
@pytest.mark.parametrize("seed", range(12))
def test_one_thread_finds_the_same_as_two(root, seed):
    """One thread compares queues and index while it checks the log up to the first damage; two do it separately."""
    for n in range(12):
        rng = random.Random(f"{seed} {n}")
        store = root / f"damaged-{n}"
        shutil.copytree(root, store, ignore=shutil.ignore_patterns("damaged-*"))
        what = damage(store, rng)
        one, two = (rocketc.verify(store, jobs=jobs).to_dict() for jobs in (1, 2))
        assert one == two, f"seed {seed} {n}: {what}"
        count("damaged")


def test_units_of_damaged_records_are_valid(root):
    """The comparison continues after the damage with records whose body CRC is wrong: their units are valid."""
    path = sorted((root / "commitlog").iterdir())[1]
    change(path, 300, b"?")
    report = rocketc.verify(root, jobs=1)
    assert [damage.reason for damage in report.damage] == ["bad_body_crc"]
    assert report.derived.is_whole and (report.derived.units, report.derived.keys) == (300, 600)


def test_files_that_cannot_be_read_do_not_end_the_check_of_the_log(root):
    """The queue file became shorter during the comparison. This is reported, and all records are checked."""
    with open(queue(root), "r+b") as file:
        file.truncate(100)
    one, two = (rocketc.verify(root, jobs=jobs) for jobs in (1, 2))
    assert one == two and one.records == 300 and not one.is_whole and one.is_log_whole


@pytest.mark.parametrize("beside", [False, True])
def test_a_stopped_comparison_reads_no_further_file(root, beside):
    (log,) = resolve(root)
    asked = []

    def ask(audit, note):
        asked.append(comparison.walked)
        comparison.stop = True

    comparison = Comparison(str(root), log.files, [ask] * len(log.files) if beside else ())
    comparison.stop = not beside
    comparison()
    assert comparison.walked == 0 and len(asked) == beside


# ---------------------------------------------------------------- a store that was not closed; the checkpoint
def test_missing_units_at_the_end_are_reported_and_allowed_with_abort(root):
    """With the file `abort` units may be missing at the end; without it they must not."""
    for topic in ("T0", "T1", "T2"):
        for n in (0, 1):
            change(queue(root, topic, n), 45 * 20, bytes(5 * 20))
    assert derived(root).counts == {"lacks": 30}
    (root / "abort").write_bytes(b"")
    report = derived(root)
    assert report.is_whole and report.behind == 30


def test_units_that_are_written_between_the_readings_of_two_queues(root, monkeypatch):
    """A writer dispatches on while the queues are loaded one after the other: the first ones have fewer units."""
    (root / "abort").write_bytes(b"")
    first, load = queue(root), verify_derived.load_unmodified
    whole = first.read_bytes()
    loaded = []

    def load_slowly(*args):
        loaded.append(args)
        change(first, 45 * 20, bytes(5 * 20))
        queues = load(*args)
        first.write_bytes(whole)
        return queues

    monkeypatch.setattr(verify_derived, "load_unmodified", load_slowly)
    report = derived(root)
    assert report.is_whole and (report.units, report.behind, len(loaded)) == (300, 0, 1)


def test_units_that_are_missing_before_the_last_dispatched_record_are_damage(root):
    (root / "abort").write_bytes(b"")
    change(queue(root), 45 * 20, bytes(5 * 20))
    report = derived(root)
    assert only(report) == ("lacks", 45, 49) and report.behind == 0


@pytest.mark.parametrize("topic", ["T0", "T2"])
def test_a_queue_that_is_missing_beside_a_writer_is_damage(root, topic):
    (root / "abort").write_bytes(b"")
    shutil.rmtree(root / "consumequeue" / topic / "1")
    report = derived(root)
    assert not report.is_whole and report.counts["no_queue"] + report.behind == 50 and report.behind <= 1


def test_a_store_that_is_closed_during_verify(root, monkeypatch):
    """The last records were not dispatched when the queues were read. The writer has dispatched them since."""
    (root / "abort").write_bytes(b"")
    wholes = {file: file.read_bytes() for file in root.glob("consumequeue/*/*/*")}
    for file in wholes:
        change(file, 45 * 20, bytes(5 * 20))
    walk = Comparison._walk

    def close_and_walk(self, *args, **options):
        (root / "abort").unlink(missing_ok=True)
        for file, whole in wholes.items():
            file.write_bytes(whole)
        return walk(self, *args, **options)

    monkeypatch.setattr(Comparison, "_walk", close_and_walk)
    report = derived(root)
    assert report.is_whole and (report.units, report.behind) == (270, 30)


def test_a_store_that_is_opened_and_closed_during_verify(root, monkeypatch):
    """Records that were put after the queues were read are in the log that verify reads."""
    walk, opened = Comparison._walk, []

    def put_and_walk(self, *args, **options):
        if not opened:
            with rocketc.open(root, **SMALL) as store:
                opened.append(store.put("T0", b"x", queue_id=0))
        return walk(self, *args, **options)

    monkeypatch.setattr(Comparison, "_walk", put_and_walk)
    report = derived(root)
    assert report.is_whole and (report.units, report.behind) == (301, 0)


def test_the_command_beside_a_writer(root, run):
    (root / "abort").write_bytes(b"")
    for file in root.glob("consumequeue/*/*/*"):
        change(file, 45 * 20, bytes(5 * 20))
    code, out, _ = run("verify", root)
    assert code == 0 and "30 records behind: not dispatched yet" in " ".join(out.split())


@pytest.mark.parametrize("size", [8 << 10, 16 << 20])
def test_a_store_that_is_written_during_verify(open_store, tmp_path, size):
    store = open_store(**SMALL | {"mapped_file_size_commit_log": size})
    store.put("t", b"x", keys="k")
    assert store.wait_dispatched(10)
    until = time.monotonic() + 2

    def write():
        n = 0
        while time.monotonic() < until:
            store.put("t", b"x", keys=f"k{n % 7} {n}")
            n += 1
            time.sleep(0.0002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        reports = []
        while time.monotonic() < until:
            reports.append(rocketc.verify(tmp_path))
    finally:
        thread.join()
    assert [r.derived.to_dict() for r in reports if not r.is_whole] == []
    assert len(reports) > 2 and reports[-1].derived.keys > reports[0].derived.keys


def test_times_later_than_the_log(root):
    path = root / "checkpoint"
    _checkpoint.write(path, _checkpoint.read(path)._replace(logics_msg_timestamp=1 << 42))
    report = derived(root)
    assert not report.is_whole and "logics_msg_timestamp is 4398046511104" in report.problems[0]


def test_log_files_created_during_verify(root):
    """Units may refer to records of later files, which are not read. If there is no record, this is reported."""
    files = resolve(root)[0].files
    report = Comparison(str(root), files[:4])()
    assert report.is_whole and 50 < report.units < 250 and report.keys == 2 * report.units
    for file in files[4:]:
        with open(file.path, "r+b") as data:
            data.write(bytes(file.size))
    lost = Comparison(str(root), files[:4])()
    assert lost.counts == {"no_record": 300 - report.units, "key_no_record": 600 - report.keys}
    assert rocketc.verify(root).derived.counts == lost.counts


def test_a_checkpoint_written_during_verify(root):
    path = root / "checkpoint"
    later = _checkpoint.read(path)._replace(physic_msg_timestamp=1 << 42)
    assert rocketc.verify(root, tell=lambda _: _checkpoint.write(path, later)).is_whole
    assert not rocketc.verify(root).is_whole


# ---------------------------------------------------------------- the command
def test_the_command(root, run):
    call = partial(run, "verify", root)
    code, out, err = call()
    assert (
        (code, err) == (0, "") and "300 units of 6 queues as the log says" in out and "600 keys as the log says" in out
    )
    change(queue(root), 5 * 20, struct.pack(">q", 1234))
    change(index(root), UNITS_AT + 20 * 20 + 12, struct.pack(">i", 5000))
    code, out, err = call()
    assert code == 1 and "T0/0: 5 point to another place than byte" in " ".join(out.split())
    assert "unit 20 have another store time" in " ".join(out.split()) and err == ""
    assert f"`rocketcrebuild{root}`" in "".join(out.split())
    code, out, err = call("--json")
    told = json.loads(out)
    assert code == 1 and not told["isWhole"] and not told["derived"]["isWhole"]
    assert told["derived"]["counts"] == {"elsewhere": 1, "key_bad_time": 1}
    rocketc.rebuild(root)
    assert call()[0] == 0
