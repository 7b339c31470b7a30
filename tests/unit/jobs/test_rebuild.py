"""rebuild(): the rebuilt queues and index agree with the log, whatever files existed and whenever it is killed."""

import os
import shutil

import pytest
from support import oracle, stores
from support.derived import FOLDERS, SMALL, files_of, fill, from_log, same_files, without_names

import rocketc
from rocketc.files import _checkpoint
from rocketc.files.lock_file import AbortFile, StoreLock

QUEUES = FOLDERS[:2]


@pytest.fixture
def root(open_store, tmp_path):
    """A closed store of 300 messages in 6 queues."""
    fill(open_store(**SMALL))
    return tmp_path


def derived(root):
    return without_names(files_of(root, *FOLDERS))


def config():
    return rocketc.StoreConfig().replace(**SMALL)


@pytest.mark.some(5)
# ---------------------------------------------------------------- RocketMQ's own stores
@pytest.mark.parametrize("name", stores.NAMES)
def test_a_brokers_files_byte_for_byte(tmp_path, name):
    """First with the existing files, then with only the log; both without the records of a torn tail."""
    store = stores.unpack(name, tmp_path)
    rest = files_of(store.path, "commitlog", "config")
    records = oracle.records(oracle.walk_log(oracle.read_log(store.path / "commitlog"), crc="none"))
    wanted = from_log(records, store.about["config"], store.batch_topics)
    if name in stores.WHOLE:
        same_files(derived(store.path), wanted)
    rocketc.rebuild(store.path)
    same_files(derived(store.path), wanted)
    for folder in FOLDERS:
        shutil.rmtree(store.path / folder, ignore_errors=True)
    report = rocketc.rebuild(store.path, config=store.config)
    same_files(derived(store.path), wanted)
    assert report.files == {path: len(data) for path, data in files_of(store.path, *FOLDERS).items()}
    assert report.queues == len({os.path.dirname(path) for path in wanted[0]})
    assert files_of(store.path, "commitlog", "config") == rest
    assert not (store.path / "rebuild").exists()


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "v533-unclean"])
def test_open_repairs_nothing(tmp_path, name, caplog):
    store = stores.unpack(name, tmp_path)
    rocketc.rebuild(store.path)
    before = files_of(store.path, *QUEUES)
    rocketc.open(store.path, config=store.config).close()
    assert files_of(store.path, *QUEUES) == before
    assert [record for record in caplog.records if "different from the log" in record.getMessage()] == []


# ---------------------------------------------------------------- repairs
def test_wrong_units_are_written_again(root):
    before = derived(root)
    for folder in FOLDERS[::2]:
        for path in sorted(path for path in (root / folder).rglob("*") if path.is_file())[::2]:
            path.write_bytes(bytes(reversed(path.read_bytes())))
    report = rocketc.rebuild(root, config=config())
    same_files(derived(root), before)
    assert (report.queues, report.messages, report.is_whole) == (6, 300, True)
    assert report.keys == 600


@pytest.mark.parametrize(("only", "made", "kept"), [("cq", QUEUES, ("index",)), ("index", ("index",), QUEUES)])
def test_only_queues_or_only_index(root, only, made, kept):
    sound = derived(root)
    for path in [path for folder in made for path in (root / folder).rglob("*") if path.is_file()]:
        path.write_bytes(bytes(path.stat().st_size))
    before = {path: (root / path).stat().st_mtime_ns for path in files_of(root, *kept)}
    report = rocketc.rebuild(root, only, config=config())
    same_files(derived(root), sound)
    assert {path: (root / path).stat().st_mtime_ns for path in files_of(root, *kept)} == before
    assert all(path.split("/")[0] in made for path in report.files)


def test_sizes_are_those_of_the_existing_files(root):
    before = derived(root)
    next((root / "consumequeue" / "T0" / "0").iterdir()).write_bytes(b"short")
    rocketc.rebuild(root)
    same_files(derived(root), before)


def test_records_that_fit_into_no_queue_are_counted(tmp_path):
    (tmp_path / "commitlog").mkdir()
    one = rocketc.encode("a/b", b"x")
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(one + rocketc.encode("a", b"x", phy_offset=len(one)))
    report = rocketc.rebuild(tmp_path, "cq")
    assert (report.unqueued, report.messages, report.is_whole) == (1, 1, False)


def test_damage_in_the_log_loses_only_the_damaged_records(root):
    path = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(path.read_bytes())
    data[0:4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    report = rocketc.rebuild(root)
    assert len(report.damage) == 1 and not report.is_whole
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog"), crc="none"))
    files = from_log(records, {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 20, "maxIndexNum": 40})
    same_files(derived(root), files)
    assert report.messages == len(records) < 300  # the blank unit of a lost message does not count


def test_the_checkpoint_has_the_time_of_durable_messages(root):
    path = root / "checkpoint"
    before = _checkpoint.read(path)
    _checkpoint.write(path, before._replace(logics_msg_timestamp=0, index_msg_timestamp=0))
    rocketc.rebuild(root)
    after = _checkpoint.read(path)
    assert after.logics_msg_timestamp == after.physic_msg_timestamp == before.physic_msg_timestamp
    assert after.index_msg_timestamp == before.index_msg_timestamp > 0


def test_progress_is_reported(root):
    told = []
    report = rocketc.rebuild(root, tell=told.append)
    assert told[-1] == report.bytes and told == sorted(told)


# ---------------------------------------------------------------- refused calls
def test_an_open_store(open_store, tmp_path):
    store = open_store(**SMALL)
    store.put("a", b"x")
    with pytest.raises(rocketc.StoreLockedError):
        rocketc.rebuild(tmp_path)
    assert not (tmp_path / "rebuild").exists()


def test_no_log(tmp_path):
    (tmp_path / "consumequeue" / "a" / "0").mkdir(parents=True)
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(rocketc.StoreIOError, match=r"No such file|no commit log"):
            rocketc.rebuild(path)
    assert (tmp_path / "consumequeue" / "a").exists() and os.listdir(tmp_path) == ["consumequeue"]


def test_neither_queues_nor_index(root):
    with pytest.raises(ValueError, match="only='all': must be 'cq', 'index' or None"):
        rocketc.rebuild(root, "all")


def test_an_error_changes_nothing(root, monkeypatch):
    before = files_of(root, *FOLDERS, "checkpoint")

    calls = []

    def fails(fd):
        calls.append(fd)
        if len(calls) > 3:  # the first calls are those of the lock and of folders
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(rocketc.StoreFullError):
            rocketc.rebuild(root)
    assert files_of(root, *FOLDERS, "checkpoint") == before
    assert not (root / "rebuild").exists()
    StoreLock(root).release()


# ---------------------------------------------------------------- killed
def killed_at(root, number):
    """Rebuild in a child that dies at the number-th step that changes files. Return False if there are fewer steps."""
    pid = os.fork()
    if pid == 0:
        left = number

        def dying(run):
            def step(*args, **named):
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return run(*args, **named)

            return step

        os.rename, os.fsync, shutil.rmtree = dying(os.rename), dying(os.fsync), dying(shutil.rmtree)
        AbortFile.create, AbortFile.remove = dying(AbortFile.create), dying(AbortFile.remove)
        _checkpoint.write = dying(_checkpoint.write)
        try:
            rocketc.rebuild(root, config=config())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.mark.parametrize(
    ("then", "broken"),
    [
        ("rebuild", True),
        pytest.param("open", False, marks=pytest.mark.long),
        pytest.param("rebuild", False, marks=pytest.mark.long),
        pytest.param("open", True, marks=pytest.mark.long),
    ],
)
def test_killed_anywhere(root, tmp_path_factory, monkeypatch, then, broken):
    """The next rebuild, or only open(), has the same result. The log is treated as a large one."""
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", 0)
    sound = derived(root)
    log = files_of(root, "commitlog")
    if broken:
        shutil.rmtree(root / "consumequeue")
    number = 0
    while True:
        copy = tmp_path_factory.mktemp("copy") / "store"
        shutil.copytree(root, copy)
        if not killed_at(copy, number):
            break
        if then == "rebuild":
            rocketc.rebuild(copy, config=config())
        else:
            rocketc.open(copy, config=config()).close()
        same_files(derived(copy), sound)
        assert {path: data for path, data in files_of(copy, "commitlog").items() if path in log} == log
        shutil.rmtree(copy)
        number += 9 if number < 60 else 1  # the first steps only flush existing files
    assert number > 60


def test_queues_with_extension_files(open_store, tmp_path):
    fields = SMALL | {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 400}
    store = open_store(**fields)
    for n in range(100):
        store.put("T", bytes(n), queue_id=n % 2, tags=f"t{n}")
    store.close()
    kinds = ("consumequeue", "consumequeue_ext")
    before = files_of(tmp_path, *kinds)
    assert any(path.startswith("consumequeue_ext") for path in before)
    assert rocketc.verify(tmp_path).derived.is_whole
    rocketc.rebuild(tmp_path)
    assert files_of(tmp_path, *kinds) == before
    shutil.rmtree(tmp_path / "consumequeue_ext")
    assert rocketc.verify(tmp_path).derived.counts == {"bad_tags_code": 100}
