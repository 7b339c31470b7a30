"""A golden store as master: copying its log by read_raw() and append_raw() gives the same store.

The log is equal to RocketMQ's byte for byte, including the bytes after the start of its blank records; queues and index
are equal too.
"""

import shutil

import pytest
from support import oracle, replicas, stores
from support.derived import FOLDERS, files_of, from_log, same_files, without_names

import rocketc
from rocketc.errors import CorruptRecordError

pytestmark = pytest.mark.promise(9)


@pytest.fixture
def empty(tmp_path):
    """empty(golden store): make a folder for its replica, with the types of its topics, which are not in the log."""

    def make(store):
        topics = store.path / "config" / "topics.json"
        if topics.exists():
            (tmp_path / "config").mkdir()
            shutil.copy2(topics, tmp_path / "config")
        return tmp_path

    return make


@pytest.mark.some(6)
@pytest.mark.parametrize("max_bytes", [1, 32 << 10, 1 << 20])
@pytest.mark.parametrize("name", [*stores.WHOLE, "v497-unclean", "v533-unclean"])
def test_a_replica_of_a_golden_store(golden, empty, name, max_bytes):
    store = golden(name)
    root = empty(store)
    with (
        rocketc.open(store.path, config=store.config, read_only=True) as master,
        rocketc.open(root, config=store.config) as replica,
    ):
        replicas.copy(master, replica, max_bytes=max_bytes)
    replicas.assert_equal(store.path, root)


@pytest.mark.parametrize("name", stores.WHOLE)
def test_a_replica_that_begins_with_the_last_file(golden, empty, name):
    """RocketMQ's slaves begin like that."""
    store = golden(name)
    root = empty(store)
    start = max(int(path.name) for path in store.log_files if any(path.read_bytes()))
    with (
        rocketc.open(store.path, config=store.config, read_only=True) as master,
        rocketc.open(root, config=store.config) as replica,
    ):
        replicas.copy(master, replica, start=start, max_bytes=10_000)
    ours, theirs = replicas.log_of(root), replicas.log_of(store.path)
    assert list(ours) == [f"commitlog/{start:020}"]
    assert ours[f"commitlog/{start:020}"] == theirs[f"commitlog/{start:020}"]
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    same_files(without_names(files_of(root, *FOLDERS)), from_log(records, store.about["config"], store.batch_topics))


@pytest.mark.parametrize("name", ["v533-bitrot", "v533-torn", "v497-torn"])
def test_damage_of_a_golden_store_is_refused(golden, empty, name):
    """The bytes before the damage are copied; the error names the damaged record, which is not copied."""
    store = golden(name)
    root = empty(store)
    damage = oracle.damage(oracle.walk_log(oracle.read_log(store.path / "commitlog")))[0]
    at = 0
    with (
        rocketc.open(store.path, config=store.config, read_only=True) as master,
        rocketc.open(root, config=store.config) as replica,
    ):
        with pytest.raises((CorruptRecordError, rocketc.PhyOffsetError), match=f"offset {damage.start}: "):
            while block := master.read_raw(at, 1):
                at = replica.append_raw(at, block)
        assert at == replica.max_phy_offset == damage.start
    ours, theirs = replicas.log_of(root), replicas.log_of(store.path)
    for path, data in ours.items():
        end = damage.start - int(path[-20:])
        assert data[:end] == theirs[path][:end]
        assert not any(data[max(end, 0) :]) or end >= len(data)
