"""The sizes of a store's files: small ones in a new store, its own in an old one. close() frees unused disk space."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import preload
from support.disks import can_free, mounted, used

import rocketc
from rocketc.config import ROCKETMQ_SIZES, StoreConfig
from rocketc.derived._index_reader import IndexFile
from rocketc.derived.queue_files import detect_file_sizes

KIB, MIB = 1 << 10, 1 << 20
LOG, QUEUE, INDEX = 64 * MIB, 400_000, 40 + 4 * 100_000 + 20 * 400_000
SHIM = Path(__file__).parents[2] / "support/failing.c"


def lengths(root, kind):
    return [path.stat().st_size for path in sorted((Path(root) / kind).rglob("*")) if path.is_file()]


def shape(root):
    """(slots, units) of the index's last file."""
    with IndexFile(max((Path(root) / "index").iterdir())) as file:
        return file.slots, file.capacity + 1


def puts(root, count=1, **fields):
    with rocketc.open(root, **fields) as store:
        for n in range(count):
            store.put("a", b"x", keys=f"k{n}")


@pytest.fixture
def disk(tmp_path):
    """A folder on a file system that can free parts of a file."""
    if not can_free(tmp_path):
        pytest.skip("the temporary folder is neither on ext4 nor on XFS")
    return tmp_path


def check_small(root):
    with rocketc.open(root):
        pass
    assert used(root) <= 200 * KIB
    with rocketc.open(root) as store:
        store.put("a", b"x", keys="k")
    assert used(root) <= 1 * MIB
    for n in range(3):  # the disk space that an opening allocates is freed by its close()
        with rocketc.open(root) as store:
            assert [message.body for message in store.query("a", "k")] == [b"x"]
            assert len(store.get("a")) == n + 1
            assert store.put("a", b"y", keys=f"k{n}").queue_offset == n + 1
        assert used(root) <= 1 * MIB
    assert (lengths(root, "commitlog"), lengths(root, "index")) == ([LOG], [INDEX])
    assert rocketc.verify(root).is_whole


def test_a_small_store_takes_little_of_the_disk(disk):
    check_small(disk / "store")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_small_store_on_a_file_system_of_its_own(tmp_path, kind):
    with mounted(tmp_path, kind) as folder:
        check_small(folder / "store")
        with rocketc.Queue(folder / "queue") as queue:
            queue.put(b"x")
        assert used(folder / "queue") <= 1 * MIB


def test_the_files_of_a_new_store_are_small(tmp_path):
    with rocketc.open(tmp_path) as store:
        store.put("a", b"x")
        assert store.config == StoreConfig()
    assert (lengths(tmp_path, "commitlog"), lengths(tmp_path, "consumequeue")) == ([LOG], [QUEUE])
    assert lengths(tmp_path, "index") == [], "there is no key yet"
    puts(tmp_path)
    assert (lengths(tmp_path, "index"), shape(tmp_path)) == ([INDEX], (100_000, 400_000))


@pytest.mark.parametrize("made", ["Queue", "put"])
def test_the_files_of_other_new_stores_are_small(tmp_path, made):
    if made == "Queue":
        with rocketc.Queue(tmp_path / "store") as queue:
            queue.put(b"x", keys="k")
    else:
        command = [sys.executable, "-m", "rocketc", "put", "store", "-t", "a", "--key", "k"]
        subprocess.run(command, check=True, cwd=tmp_path, input=b"x\n")
    sizes = [lengths(tmp_path / "store", kind) for kind in ("commitlog", "consumequeue", "index")]
    assert sizes == [[LOG], [QUEUE], [INDEX]]


def test_rocketmq_has_its_own_sizes():
    config = StoreConfig.rocketmq()
    assert {name: getattr(config, name) for name in ROCKETMQ_SIZES} == ROCKETMQ_SIZES
    assert StoreConfig.rocketmq(max_index_num=9).max_index_num == 9
    assert StoreConfig.rocketmq().replace(**{name: getattr(StoreConfig(), name) for name in ROCKETMQ_SIZES}) == (
        StoreConfig()
    )


@pytest.fixture(scope="module")
def rocketmqs(tmp_path_factory):
    """A store with RocketMQ's sizes."""
    root = tmp_path_factory.mktemp("rocketmq") / "store"
    puts(root, 3, config=StoreConfig.rocketmq())
    yield root
    shutil.rmtree(root)


@pytest.fixture
def old(tmp_path, rocketmqs):
    """A copy of it; the holes stay."""
    subprocess.run(["cp", "-a", "--sparse=always", str(rocketmqs), str(tmp_path / "old")], check=True)
    return tmp_path / "old"


@pytest.mark.parametrize("config", [None, StoreConfig(), StoreConfig(flush_disk_type="SYNC_FLUSH")])
@pytest.mark.parametrize("lost", [[], ["index"], ["index", "consumequeue"]])
def test_a_store_keeps_its_sizes(old, config, lost):
    """Files that are lost get the sizes that the others show: a broker opens the store with its own settings again."""
    for name in lost:
        shutil.rmtree(old / name)
    puts(old, 2, config=config)
    assert set(lengths(old, "commitlog")) == {1 << 30}
    assert set(lengths(old, "consumequeue")) == {6_000_000}
    assert shape(old) == (5_000_000, 20_000_000)
    with rocketc.open(old, read_only=True) as store:
        assert (store.config.mapped_file_size_commit_log, len(store.get("a"))) == (1 << 30, 5)
        assert len(list(store.query("a", "k2"))) == 1


def test_a_rebuild_keeps_the_sizes(old):
    shutil.rmtree(old / "consumequeue")
    shutil.rmtree(old / "index")
    rocketc.rebuild(old)
    assert set(lengths(old, "consumequeue")) == {6_000_000}
    assert shape(old) == (5_000_000, 20_000_000)


def test_a_small_store_stays_small_with_rocketmqs_settings(tmp_path):
    puts(tmp_path)
    puts(tmp_path, 2, config=StoreConfig.rocketmq())
    assert [set(lengths(tmp_path, kind)) for kind in ("commitlog", "consumequeue", "index")] == [
        {LOG}, {QUEUE}, {INDEX},
    ]  # fmt: skip
    assert detect_file_sizes(str(tmp_path), StoreConfig.rocketmq()).max_index_num == 400_000


def test_a_store_with_a_log_of_another_size_gets_a_small_index(tmp_path):
    with rocketc.open(tmp_path, mapped_file_size_commit_log=MIB) as store:
        store.put("a", b"x")
    puts(tmp_path)
    assert (lengths(tmp_path, "commitlog"), lengths(tmp_path, "index")) == ([MIB], [INDEX])


def test_a_size_that_the_log_does_not_have_is_refused(tmp_path):
    puts(tmp_path)
    with pytest.raises(rocketc.StoreIOError, match="check the file size setting"):
        rocketc.open(tmp_path, mapped_file_size_commit_log=2 * MIB)
    with pytest.raises(rocketc.StoreIOError, match="check the file size setting"):
        rocketc.open(tmp_path, config=StoreConfig(mapped_file_size_commit_log=2 * MIB))


def test_closing_changes_no_byte_and_no_time(disk):
    """Files are found by the time of their last message, so freeing disk space must not change it."""
    root = disk / "store"
    puts(root, 100)
    kinds = ("commitlog", "consumequeue", "index")
    files = [path for kind in kinds for path in (root / kind).rglob("*") if path.is_file()]
    before = [(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    for path in files:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        os.utime(path, ns=(10**18, 10**18))
    with rocketc.open(root) as store:
        assert used(root) > LOG
        assert len(store.get("a")) > 0
    assert used(root) < QUEUE + INDEX + MIB, "that of the log is freed; nothing was put into the others"
    after = [(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    assert [each[0] for each in after] == [each[0] for each in before]
    others = [each[1] for path, each in zip(files, after, strict=True) if path.parent.name != "commitlog"]
    assert others == [10**18] * 2, "an opening prepares pages of the log, which sets its time"
    assert [each[2] for each in after] == [each[2] for each in before]


def test_queues_and_index_free_what_they_did_not_use(disk):
    root = disk / "store"
    with rocketc.open(root) as store:
        for n in range(500):  # more than the first window of a queue
            store.put("a", b"x", keys=f"k{n}")
    assert used(root / "consumequeue/a/0") <= 500 * 20 + 8 * KIB
    header_and_slots = 4 + 100  # pages: each of 500 keys may have a page of its own
    assert used(root / "index") <= (header_and_slots + 4) * 4 * KIB


def test_a_store_whose_disk_is_full_opens_and_continues(tmp_path):
    """The space of its last file was freed when it was closed."""
    script = """
        import json, sys, pathlib, rocketc
        root, full = sys.argv[1], pathlib.Path(sys.argv[2])
        with rocketc.open(root) as store:
            store.put("a", b"before")
        full.touch()
        told = {}
        for background in (True, False):
            with rocketc.open(root, background=background) as store:
                told["read"] = [m.body.decode() for m in store.get("a")]
                try:
                    store.put("a", b"refused")
                except rocketc.StoreFullError as error:
                    told["refused"] = error.errno
                told["failed"] = repr(store.failed)
        store = rocketc.open(root)
        try:
            store.put("a", b"refused")
        except rocketc.StoreFullError:
            full.unlink()
        store.put("a", b"after")
        store.put_many("a", [b"more"] * 3)
        store.flush()
        store.close()
        told["bodies"] = [m.body.decode() for m in rocketc.scan(root)]
        print(json.dumps(told))
    """
    environment = {
        **os.environ,
        "LD_PRELOAD": preload.loading(preload.built(SHIM)),
        **{"FAIL_CALL": "fallocate", "FAIL_AT": "1", "FAIL_ERRNO": "28", "FAIL_PATH": "commitlog"},
        "FAIL_ARMED": str(tmp_path / "full"),
    }
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "store"), str(tmp_path / "full")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == {
        "read": ["before"],
        "refused": 28,
        "failed": "None",
        "bodies": ["before", "after", "more", "more", "more"],
    }
    assert rocketc.verify(tmp_path / "store").is_whole


def test_a_store_with_a_transient_pool_frees_disk_space(disk):
    root = disk / "store"
    fields = {"transient_store_pool_enable": True, "mapped_file_size_commit_log": 8 * MIB}
    for n in range(2):
        with rocketc.open(root, **fields) as store:
            store.put_many("a", [b"%d" % n] * 100)
        assert used(root / "commitlog") <= 100 * KIB
    assert [message.body for message in rocketc.scan(root)] == [b"0"] * 100 + [b"1"] * 100


def test_a_store_that_was_killed_frees_disk_space_when_it_is_closed(disk):
    root = disk / "store"
    script = """
        import os, rocketc, sys, time
        store = rocketc.open(sys.argv[1])
        store.put("a", b"x", keys="k")
        store.flush()
        while len(os.listdir(sys.argv[1] + "/commitlog")) < 2:  # the next file is made ahead
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(root)], check=False)
    assert used(root) >= 2 * LOG
    with rocketc.open(root) as store:
        assert store.put("a", b"y").queue_offset == 1
    assert used(root) <= 1 * MIB
    assert [message.body for message in rocketc.scan(root)] == [b"x", b"y"]
