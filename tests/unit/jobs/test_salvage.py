"""salvage(): the new store has all readable messages at their offsets; the damaged store is unchanged."""

import json
import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from support import oracle, stores
from support.derived import SMALL, files_of, fill

import rocketc
from rocketc.files.lock_file import AbortFile, StoreLock
from rocketc.jobs import salvage_files
from rocketc.jobs.salvage_files import TOPIC, filler_records

pytestmark = pytest.mark.promise(5)

ROLLBACK = 0xC
NO_FIELDS = ("file", "of", "to_dict", "to_json")
ATTRIBUTES = [name for name in dir(rocketc.Message) if name[0] != "_" and name not in NO_FIELDS]
SIZE = SMALL["mapped_file_size_commit_log"]
BOTH = pytest.mark.parametrize("compact", [False, True], ids=["kept", "compact"])


def is_ours(message):
    """Whether the message is a filler for lost records."""
    return message.sys_flag == ROLLBACK and TOPIC.startswith(message.topic)


def told(path, *, places=True, **options):
    """Return all messages of a scan except fillers; without their positions if `places` is false."""
    found = []
    for m in rocketc.scan(path, errors="skip", crc="full", unwrap=False, decompress=False, **options):
        if is_ours(m):
            continue
        one = {name: getattr(m, name) for name in ATTRIBUTES}
        if not places:
            for name in ("phy_offset", "msg_id", "record"):
                del one[name]
            one["properties"] = {name: value for name, value in m.properties.items() if name != "__CRC32#"}
        found.append(one)
    return found


def state(root):
    """Return the files in a folder, with their contents and modification times."""
    out = {}
    for path in [root, *root.rglob("*")]:
        out[str(path.relative_to(root))] = path.read_bytes() if path.is_file() else None, path.lstat().st_mtime_ns
    return out


def is_sound(root):
    """Check that log, queues and index are valid and agree. Queue offsets of lost messages may be missing."""
    report = rocketc.verify(root)
    assert (report.damage, report.missing, report.duplicate_offsets) == ([], [], [])
    assert report.derived is not None and report.derived.is_whole, report.derived
    assert not AbortFile(root).exists()
    return True


def hit(root, at, data, size=SIZE):
    """Overwrite bytes at a physical offset."""
    with open(root / "commitlog" / f"{at - at % size:020d}", "r+b") as file:
        file.seek(at % size)
        file.write(data)


@pytest.fixture
def root(open_store, tmp_path):
    """A closed store of 300 messages in 6 queues and 10 files."""
    root = tmp_path / "old"
    store = open_store(root, **SMALL)
    fill(store)
    return root


# ---------------------------------------------------------------- stores of RocketMQ
@pytest.mark.some(5)
@BOTH
@pytest.mark.parametrize("name", stores.NAMES)
def test_golden(golden, tmp_path, name, compact):
    store = golden(name)
    before = state(store.path)
    wanted = told(store.path, places=not compact)
    verified = rocketc.verify(store.path)
    new = tmp_path / "new"
    report = rocketc.salvage(store.path, new, compact=compact)
    assert state(store.path) == before
    assert told(new, places=not compact) == wanted
    assert is_sound(new)
    assert report.lost == verified.damage and report.records == len(wanted) == verified.records
    assert report.messages == verified.messages and report.unqueued == 0
    assert {*report.files, "salvage.json"} == {p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file()}
    assert os.listdir(tmp_path) == ["new"]
    config = files_of(store.path, "config")
    assert {**config, **files_of(new, "config")} == config
    assert {*config} - {*files_of(new, "config")} <= ({"config/timercheck"} if compact else set())
    if not compact:
        for path in store.log_files:
            made = new / "commitlog" / path.name
            if made.exists():
                assert made.stat().st_mtime_ns == path.stat().st_mtime_ns
                assert made.stat().st_size == path.stat().st_size
    before = files_of(new, "consumequeue", "batchconsumequeue")
    rocketc.open(new, config=store.config).close()
    assert files_of(new, "consumequeue", "batchconsumequeue") == before


@pytest.mark.some(2)
@pytest.mark.parametrize("name", stores.WHOLE)
def test_an_undamaged_log_is_copied_unchanged(golden, tmp_path, name):
    store = golden(name)
    report = rocketc.salvage(store.path, tmp_path / "new")
    assert report.is_whole
    for path in store.log_files:
        if path.read_bytes().strip(b"\0"):
            assert (tmp_path / "new" / "commitlog" / path.name).read_bytes() == path.read_bytes()


# ---------------------------------------------------------------- damage
@pytest.mark.parametrize("seed", [8, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 150))])
@BOTH
def test_one_byte_costs_at_most_its_message(root, tmp_path, compact, seed):
    chance = random.Random(seed)
    places = {m.phy_offset: m.store_size for m in rocketc.scan(root)}
    wanted = dict(zip(places, told(root, places=False), strict=True))
    end = max(at + size for at, size in places.items())
    for n in range(6):
        old, new = tmp_path / f"old{n}", tmp_path / f"new{n}"
        shutil.copytree(root, old)
        at = chance.randrange(end)
        path = old / "commitlog" / f"{at - at % SIZE:020d}"
        data = bytearray(path.read_bytes())
        data[at % SIZE] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        mine = next((start for start, size in places.items() if start <= at < start + size), None)
        report = rocketc.salvage(old, new, compact=compact)
        found = told(new, places=False)
        others = [m for start, m in wanted.items() if start != mine]
        kept = [m for m in found if m in others]
        assert kept == others, at
        assert len(found) <= len(wanted) and (len(found) == len(wanted)) == (not report.lost or mine is None), at
        if not compact:
            assert all(m["phy_offset"] in places for m in told(new))
        assert is_sound(new)
        shutil.rmtree(old)
        shutil.rmtree(new)


@BOTH
def test_lost_ranges_of_all_kinds(root, tmp_path, compact):
    """The start of a file, its end with the blank record, a whole file, several records, a missing file."""
    hit(root, SIZE, bytes(100))
    hit(root, 3 * SIZE - 50, b"\xff" * 50)
    hit(root, 3 * SIZE, b"\xff" * SIZE)
    hit(root, 4 * SIZE + 3000, b"\xff" * 2000)
    (root / "commitlog" / f"{6 * SIZE:020d}").unlink()
    wanted = told(root, places=not compact)
    verified = rocketc.verify(root)
    assert len(verified.damage) == 4 and len(verified.missing) == 1 and verified.missing_offsets
    report = rocketc.salvage(root, tmp_path / "new", compact=compact)
    assert (report.lost, report.missing) == (verified.damage, verified.missing)
    assert told(tmp_path / "new", places=not compact) == wanted
    assert is_sound(tmp_path / "new")
    after = rocketc.verify(tmp_path / "new")
    numbers = [(one.topic, one.queue_id, one.start, one.stop) for one in verified.missing_offsets]
    assert [(one.topic, one.queue_id, one.start, one.stop) for one in after.missing_offsets] == numbers
    with rocketc.open(tmp_path / "new") as store:
        found = {(t, q, m.queue_offset) for t, q in store.queues() for m in store.get(t, q, max_count=1000)}
    assert found == {(m["topic"], m["queue_id"], m["queue_offset"]) for m in wanted}


def test_fillers_describe_the_lost_bytes(root, tmp_path):
    (_, first, second, *_) = rocketc.scan(root)
    hit(root, first.phy_offset + 4, b"lost")
    report = rocketc.salvage(root, tmp_path / "new")
    [stands] = filter(is_ours, rocketc.scan(tmp_path / "new", crc="full"))
    assert (stands.phy_offset, stands.store_size) == (first.phy_offset, first.store_size)
    (tmp_path / "far").mkdir()
    assert stands.store_timestamp == second.store_timestamp
    assert report.lost_bytes == first.store_size


@pytest.mark.parametrize("room", [92, 93, 103, 111, 112, 122, 123, 124, 180, 200, 5000, (1 << 20) + 1, 3 << 20])
def test_fillers_of_any_size(room):
    lost = rocketc.Damage("f", 4096, 4096 + room, "bad_magic")
    records = list(filler_records(4096, 4096 + room, lost, 77))
    data = b"".join(record for _, record in records)
    found = list(rocketc.decode(data, 4096, crc="full"))
    assert len(data) == room and [m.phy_offset for m in found] == [at for at, _ in records]
    assert all(is_ours(m) and m.store_timestamp == 77 and m.store_size <= 1 << 20 for m in found)
    if room >= 200:
        assert json.loads(found[0].body) == {"lost": [4096, 4096 + room], "reason": "bad_magic"}


def test_a_lost_range_too_short_for_a_record(tmp_path):
    (tmp_path / "commitlog").mkdir()
    one = rocketc.encode("a", b"first")
    two = rocketc.encode("a", b"second", phy_offset=len(one) + 40, queue_offset=1)
    log = one + b"\xee" * 40 + two
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(log.ljust(4096, b"\0"))
    new = tmp_path.with_name("new")
    with pytest.raises(rocketc.StoreIOError, match=r"40 bytes lost at physical offset 97 .*--compact"):
        rocketc.salvage(tmp_path, new)
    assert not new.exists() and not new.with_name("new.unfinished").exists()
    report = rocketc.salvage(tmp_path, new, compact=True)
    assert [(m.phy_offset, m.body) for m in rocketc.scan(new)] == [(4096, b"first"), (4193, b"second")]
    runs = [json.loads(line) for line in Path(report.map).read_text().splitlines()]
    assert runs == [{"start": 0, "stop": 97, "to": 4096}, {"start": 137, "stop": 137 + len(two), "to": 4193}]


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 200))])
@BOTH
def test_random_damage(root, tmp_path, compact, seed):
    """Files are cut, extended, overwritten, exchanged: each readable message is salvaged, or the report says why
    not."""
    chance = random.Random(seed)
    for path in sorted((root / "commitlog").iterdir()):
        data = bytearray(path.read_bytes())
        kind = chance.randrange(8)
        if kind == 0:
            del data[chance.randrange(len(data)) :]
        elif kind == 1:
            data += chance.randbytes(chance.randrange(1, 5000))
        elif kind == 2:
            path.unlink()
            continue
        for _ in range(chance.randrange(4) if kind < 6 else 0):
            at, size = chance.randrange(len(data) + 1), chance.choice([1, 4, 100, 3000])
            data[at : at + size] = chance.choice([chance.randbytes(size), bytes(size), data[:size]])[: len(data) - at]
        path.write_bytes(data)
    before = state(root)
    wanted = told(root, places=not compact)
    try:
        report = rocketc.salvage(root, tmp_path / "new", compact=compact)
    except rocketc.StoreIOError as error:
        assert "--compact" in str(error) and not compact
        assert os.listdir(tmp_path) == ["old"]
    else:
        assert report.records == len(wanted)
        if wanted:
            assert told(tmp_path / "new", places=not compact) == wanted
            verified = rocketc.verify(tmp_path / "new")  # overwritten queue offsets may occur twice
            assert (verified.damage, verified.missing) == ([], [])
    assert state(root) == before


# ---------------------------------------------------------------- compact
def test_the_map_has_the_new_offset_of_each_record(root, tmp_path):
    hit(root, 3 * SIZE + 100, b"\xff" * 3000)
    report = rocketc.salvage(root, tmp_path / "new", compact=True)
    assert report.map == str(tmp_path / "new" / "salvage-map.jsonl")
    runs = [json.loads(line) for line in Path(report.map).read_text().splitlines()]

    def moved(at):
        [to] = [run["to"] + at - run["start"] for run in runs if run["start"] <= at < run["stop"]]
        return to

    wanted = [(moved(m.phy_offset), m.body) for m in rocketc.scan(root, errors="skip")]
    assert [(m.phy_offset, m.body) for m in rocketc.scan(tmp_path / "new") if not is_ours(m)] == wanted


def test_records_longer_than_the_copy_buffer(open_store, tmp_path, monkeypatch):
    """With and without the system call for copies."""
    store = open_store(tmp_path / "old", mapped_file_size_commit_log=8 << 20)
    for n in range(6):
        store.put("a", bytes([n]) * (3 << 20 if n % 2 else 100))
    store.close()
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    for compact in (False, True):
        rocketc.salvage(tmp_path / "old", tmp_path / f"{compact}", compact=compact)
        assert told(tmp_path / f"{compact}", places=not compact) == told(tmp_path / "old", places=not compact)
        assert is_sound(tmp_path / f"{compact}")


def test_a_recreated_topic(open_store, tmp_path):
    """Its queues have the same start, and deleted messages stay deleted."""
    for compact in (False, True):
        root, new = tmp_path / f"old{compact}", tmp_path / f"new{compact}"
        store = open_store(root, **SMALL)
        for _ in range(30):
            store.put("a", b"deleted")
            store.put("b", b"stays")
            store.put("c", b"deleted")
        store.delete_topics("a")
        store.delete_topics("c")
        puts = [store.put("a", b"new") for _ in range(3)]
        store.close()
        hit(root, 100, b"\xff" * 200)
        rocketc.salvage(root, new, compact=compact)
        with rocketc.open(new) as store:
            assert [(m.queue_offset, m.body) for m in store.get("a")] == [(n, b"new") for n in range(len(puts))]
            assert ("c", 0) not in store.queues()


# ---------------------------------------------------------------- sources
def test_a_store_with_a_running_writer(open_store, tmp_path):
    store = open_store(tmp_path / "old", **SMALL)
    for n in range(100):
        store.put("a", bytes(n), keys="k")
    rocketc.salvage(tmp_path / "old", tmp_path / "new")
    assert told(tmp_path / "new") == told(tmp_path / "old")
    assert is_sound(tmp_path / "new")


def test_a_log_without_its_store(root, tmp_path):
    report = rocketc.salvage(root / "commitlog", tmp_path / "new")
    assert told(tmp_path / "new") == told(root) and report.queues == 6
    one = sorted((root / "commitlog").iterdir())[2]
    report = rocketc.salvage(one, tmp_path / "one", config=rocketc.StoreConfig().replace(**SMALL))
    assert told(tmp_path / "one") == told(one) and is_sound(tmp_path / "one")


def test_dry_run(root, tmp_path):
    hit(root, 3 * SIZE + 100, b"\xff" * 3000)
    for compact in (False, True):
        before = state(tmp_path)
        dry = rocketc.salvage(root, tmp_path / "new", compact=compact, dry_run=True)
        assert state(tmp_path) == before
        real = rocketc.salvage(root, tmp_path / "new", compact=compact)
        logs = {path: size for path, size in real.files.items() if path.startswith("commitlog")}
        assert (dry.lost, dry.records, dry.bytes, dry.files) == (real.lost, real.records, real.bytes, logs)
        assert dry.dry and not real.dry
        shutil.rmtree(tmp_path / "new")


def test_links_are_not_followed(root, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").unlink(missing_ok=True)
    (root / "config" / "topics.json").symlink_to(tmp_path / "secret")
    rocketc.salvage(root, tmp_path / "new")
    assert not (tmp_path / "new" / "config" / "topics.json").exists()


def test_progress_is_reported(root, tmp_path):
    shown = []
    rocketc.salvage(root, tmp_path / "new", tell=shown.append)
    assert shown == sorted(shown) and shown[-1] > SIZE * 10


# ---------------------------------------------------------------- refused calls
def test_invalid_destinations(root, tmp_path):
    before = state(tmp_path)
    for place in (root, root / "new", root / "commitlog" / "new", tmp_path, tmp_path / "x" / ".." / "old" / "new"):
        with pytest.raises(ValueError, match="overlap: salvage into another folder"):
            rocketc.salvage(root, place)
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(ValueError, match="overlap: salvage into another folder"):
        rocketc.salvage(root, tmp_path / "link" / "new")
    (tmp_path / "link").unlink()
    (tmp_path / "there").mkdir()
    (tmp_path / "new.unfinished").mkdir()
    (tmp_path / "new.unfinished" / "mine").write_text("")
    for place, dry in [("there", False), ("there", True), ("new", False)]:
        with pytest.raises(rocketc.StoreIOError, match="exists"):
            rocketc.salvage(root, tmp_path / place, dry_run=dry)
    assert os.listdir(tmp_path / "there") == [] and os.listdir(tmp_path / "new.unfinished") == ["mine"]
    assert {path: one for path, one in state(tmp_path).items() if path.startswith("old")} == {
        path: one for path, one in before.items() if path.startswith("old")
    }


def test_nothing_to_salvage(tmp_path):
    (tmp_path / "old" / "commitlog").mkdir(parents=True)
    for path in ("nowhere", "old"):
        with pytest.raises(rocketc.StoreIOError):
            rocketc.salvage(tmp_path / path, tmp_path / "new")
    (tmp_path / "old" / "commitlog" / f"{0:020}").write_bytes(b"\xee" * 4096)
    report = rocketc.salvage(tmp_path / "old", tmp_path / "new")
    assert (report.records, report.lost_bytes, report.files) == (0, 4096, {})
    assert os.listdir(tmp_path) == ["old"]
    with pytest.raises(rocketc.StoreIOError, match=r"it is a URL; salvage\(\) takes local paths only; copy it first"):
        rocketc.salvage("s3://bucket/store", tmp_path / "new")


def test_a_pipe_is_not_a_log_file(root, tmp_path):
    """Opening a pipe would wait for a writer."""
    path = sorted((root / "commitlog").iterdir())[3]
    path.unlink()
    os.mkfifo(path)
    for act in (lambda: rocketc.salvage(root, tmp_path / "new"), lambda: rocketc.open(root)):
        with pytest.raises(rocketc.StoreIOError, match="not a regular file") as told:
            act()
        assert told.value.filename == str(path)


def test_invalid_units_do_not_affect_the_log(root, tmp_path):
    rng = random.Random(5)
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(rng.randbytes(path.stat().st_size))
    assert rocketc.salvage(root, tmp_path / "new").is_whole


@pytest.mark.parametrize("gone", [1, 4])
def test_files_that_are_missing_at_the_end(root, tmp_path, gone):
    paths = sorted((root / "commitlog").iterdir())
    there = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    for path in paths[-gone:]:
        path.unlink()
    left = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    report = rocketc.salvage(root, tmp_path / "new")
    assert (report.records, report.behind, report.behind_to) == (len(left), len(there) - len(left), there[-1]["stop"])
    assert not report.is_whole and report.to_dict()["behind"] == report.behind


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"0": 4096, "5000": 4096}, "does not fit into a row"),
        ({"0": 4096, str(1 << 60): 4096}, "missing files, too many"),
        ({"notes": 4096}, "file name must be its physical offset"),
    ],
)
def test_positions_that_cannot_be_kept(tmp_path, files, why):
    (tmp_path / "old").mkdir()
    for name, size in files.items():
        base = int(name) if name.isdigit() else 0
        log = rocketc.encode("a", b"x" * 100, phy_offset=base).ljust(size, b"\0")
        (tmp_path / "old" / (f"{base:020d}" if name.isdigit() else name)).write_bytes(log)
    path = tmp_path / "old" if "notes" not in files else tmp_path / "old" / "notes"
    with pytest.raises(rocketc.StoreIOError, match=why):
        rocketc.salvage(path, tmp_path / "new")
    if "notes" not in files:
        report = rocketc.salvage(path, tmp_path / "new", compact=True)
        assert report.records == len(told(tmp_path / "new")) == len(files)


# ---------------------------------------------------------------- kills and full disks
def steps(act):
    """Return patches that call act() before each step that changes files: (owner, name, replacement)."""

    def before(run):
        def step(*args, **named):
            act()
            return run(*args, **named)

        return step

    names = ("fsync", "pwrite", "ftruncate", "copy_file_range", "rename", "unlink", "mkdir", "rmdir", "utime")
    return [(os, name, before(getattr(os, name))) for name in names if hasattr(os, name)]


def killed_at(number, src, dst, compact):
    """Salvage in a child that dies at the number-th step that changes files. Return False if there are fewer steps."""
    pid = os.fork()
    if pid == 0:
        left = number

        def act():
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)

        for owner, name, replacement in steps(act):
            setattr(owner, name, replacement)
        try:
            rocketc.salvage(src, dst, compact=compact)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def logs_of(new):
    return files_of(new, "commitlog", "consumequeue", "config"), (new / "checkpoint").read_bytes()


@pytest.mark.parametrize("every", [83, pytest.param(1, marks=pytest.mark.long)])
@BOTH
def test_killed_at_any_step(root, tmp_path, compact, every):
    hit(root, 3 * SIZE + 100, b"\xff" * 3000)
    (root / "commitlog" / f"{6 * SIZE:020d}").unlink()
    before = state(root)
    rocketc.salvage(root, tmp_path / "whole", compact=compact)
    wanted = logs_of(tmp_path / "whole")
    number, went_on = compact, 0
    while True:
        new = tmp_path / "new"
        alive = not killed_at(number, root, new, compact)
        if not alive and not new.exists():
            with pytest.raises((rocketc.StoreIOError, ValueError)):
                rocketc.scan(tmp_path / "new.unfinished")
            notes = tmp_path / "new.unfinished" / "notes.jsonl"
            went_on += notes.exists() and notes.read_bytes().count(b"\n") > 1
            report = rocketc.salvage(root, new, compact=compact)
            assert len(report.lost) == 1 and len(report.missing) == 1
        assert logs_of(new) == wanted and is_sound(new)
        if compact:
            assert (new / "salvage-map.jsonl").read_bytes() == (tmp_path / "whole" / "salvage-map.jsonl").read_bytes()
        if (tmp_path / "new.unfinished").exists():  # killed at the very end
            report = None
            try:
                report = rocketc.salvage(root, new, compact=compact)
            except rocketc.StoreIOError as error:
                assert "already exists" in str(error)
            assert report is None or report.records > 200
        assert sorted(os.listdir(tmp_path)) == ["new", "old", "whole"]
        shutil.rmtree(new)
        if alive:
            break
        number += every
    assert number > 50 and went_on > 0
    assert state(root) == before


@BOTH
def test_a_full_disk(root, tmp_path, monkeypatch, compact):
    """At some steps the disk is full; the same call continues later."""
    rocketc.salvage(root, tmp_path / "whole", compact=compact)
    for number in (0, 9, 60):
        calls = []

        def act(calls=calls, number=number):
            calls.append(1)
            if len(calls) > number:
                raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            for owner, name, replacement in steps(act):
                if name in ("pwrite", "fsync"):
                    patch.setattr(owner, name, replacement)
            patch.delattr(os, "copy_file_range")
            what = "new.unfinished is kept; make the same call again to continue" if number else "No space left"
            with pytest.raises(rocketc.StoreFullError, match=what):
                rocketc.salvage(root, tmp_path / "new", compact=compact)
        assert not (tmp_path / "new").exists()
        rocketc.salvage(root, tmp_path / "new", compact=compact)
        assert logs_of(tmp_path / "new") == logs_of(tmp_path / "whole")
        shutil.rmtree(tmp_path / "new")


def test_an_unfinished_salvage(root, tmp_path):
    """With other arguments it starts again. Another store and a second salvage at the same time are refused."""
    other = tmp_path / "other"
    shutil.copytree(root, other)
    assert killed_at(60, root, tmp_path / "new", False)
    with pytest.raises(rocketc.StoreIOError, match=r"unfinished salvage of .*old: finish that salvage"):
        rocketc.salvage(other, tmp_path / "new")
    lock = StoreLock(tmp_path / "new.unfinished")
    with pytest.raises(rocketc.StoreLockedError):
        rocketc.salvage(root, tmp_path / "new")
    lock.release()
    hit(root, 100, b"\xff" * 200)  # the source has changed
    report = rocketc.salvage(root, tmp_path / "new")
    assert len(report.lost) == 1 and told(tmp_path / "new") == told(root)
    shutil.rmtree(tmp_path / "new")
    assert killed_at(60, root, tmp_path / "new", False)
    rocketc.salvage(root, tmp_path / "new", compact=True)
    assert told(tmp_path / "new", places=False) == told(root, places=False)


def noted(new):
    """Return the physical offsets of the files that an unfinished salvage has completed."""
    path = new.with_name(f"{new.name}.unfinished") / "notes.jsonl"
    return [json.loads(line)["base"] for line in path.read_bytes().splitlines()[1:]]


@pytest.mark.parametrize("back", [0, 4], ids=["first", "middle"])
@BOTH
def test_a_file_that_is_restored_before_the_salvage_continues(root, tmp_path, compact, back):
    """The file comes from a backup, for example. The salvage without the file is not continued."""
    path, new = root / "commitlog" / f"{back * SIZE:020d}", tmp_path / "new"
    path.rename(tmp_path / "kept")
    number = 40
    while killed_at(number, root, new, compact) and max(noted(new), default=0) < 6 * SIZE:
        number += 5
    assert not new.exists() and back * SIZE not in noted(new)
    (tmp_path / "kept").rename(path)
    report = rocketc.salvage(root, new, compact=compact)
    assert (report.records, report.is_whole) == (300, True)
    assert told(new, places=not compact) == told(root, places=not compact) and is_sound(new)


def test_a_file_that_shrinks_during_the_salvage(root, tmp_path, monkeypatch):
    find = salvage_files.find

    def shrink(file, tell):
        found = find(file, tell)
        if file.base == 4 * SIZE:
            os.truncate(file.path, 1000)
        return found

    data = (root / "commitlog" / f"{4 * SIZE:020d}").read_bytes()

    monkeypatch.setattr(sys.modules["rocketc.jobs.salvage"], "find", shrink)
    for compact in (False, True):
        (root / "commitlog" / f"{4 * SIZE:020d}").write_bytes(data)
        with pytest.raises(rocketc.StoreIOError, match="became shorter"):
            rocketc.salvage(root, tmp_path / "new", compact=compact)
    monkeypatch.undo()
    assert rocketc.salvage(root, tmp_path / "new").lost
