"""Consume queues, key index and checkpoint of each golden store, compared with RocketMQ's files byte for byte.

They are built from the commit log alone. A store that is only opened and closed keeps its files.
"""

import logging
import shutil

import pytest
from support import oracle, stores
from support.derived import FOLDERS, files_of, from_log, same_files, without_names

import rocketc

pytestmark = pytest.mark.promise(9)


def only_the_log(store, folder):
    """A store with the golden store's commit log and the types of its topics."""
    shutil.copytree(store.path / "commitlog", folder / "commitlog")
    topics = store.path / "config" / "topics.json"
    if topics.exists():
        (folder / "config").mkdir()
        shutil.copy2(topics, folder / "config")
    return folder


def from_log_of(records, store):
    """The derived files that follow from records of a log with the golden store's settings."""
    return from_log(records, store.about["config"], store.batch_topics)


def open_and_close(root, config):
    """Open and close the store; return the records of its log."""
    rocketc.open(root, config=config).close()
    return records_of(root)


def records_of(root):
    """The records that are dispatched.

    After a clean shutdown the bodies are not checked, as in RocketMQ: a record with a damaged body has its unit and
    keys, and a reader reports the damage.
    """
    return oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog"), crc="none"))


@pytest.fixture(params=["small", "large"])
def taken_for(request, monkeypatch):
    """When a large log is opened, only its end is dispatched again; here any log is treated as large."""
    if request.param == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)


@pytest.mark.some(12)
@pytest.mark.parametrize("name", stores.NAMES)
@pytest.mark.usefixtures("taken_for")
def test_derived_files_are_built_from_the_log(golden, tmp_path, name):
    store = golden(name)
    records = open_and_close(only_the_log(store, tmp_path), store.config)
    found = without_names(files_of(tmp_path, *FOLDERS))
    if name in stores.WHOLE or name in ("v497-unclean", "v533-unclean"):
        same_files(found, without_names(files_of(store.path, *FOLDERS)))
    same_files(found, from_log_of(records, store))


@pytest.mark.parametrize("name", [*stores.WHOLE, "v497-unclean", "v533-unclean"])
@pytest.mark.usefixtures("taken_for")
def test_an_untouched_store_keeps_its_derived_files(tmp_path, name, caplog):
    store = stores.unpack(name, tmp_path)
    before = files_of(store.path, "config", *FOLDERS)
    times = {path: (store.path / path).stat().st_mtime_ns for path in before}
    caplog.set_level(logging.INFO, "rocketc")
    rocketc.open(store.path, config=store.config).close()
    after = files_of(store.path, "config", *FOLDERS)
    if name in stores.DAMAGED:  # RocketMQ's rule: after a crash, the index part after the checkpoint is deleted
        same_files(without_names(after), without_names(before))
    else:
        assert sorted(after) == sorted(before)
        assert [path for path in before if after[path] != before[path]] == []
        assert {path: (store.path / path).stat().st_mtime_ns for path in before} == times, "RocketMQ 4 uses these times"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("name", stores.DAMAGED)
@pytest.mark.usefixtures("taken_for")
def test_derived_files_of_a_damaged_store_follow_from_the_rest_of_its_log(tmp_path, name):
    store = stores.unpack(name, tmp_path)
    records = open_and_close(store.path, store.config)
    wanted = from_log_of(records, store)
    same_files(without_names(files_of(store.path, *FOLDERS)), wanted)


@pytest.mark.some(16)
@pytest.mark.parametrize("from_log", [True, False], ids=["built", "kept"])
@pytest.mark.parametrize("name", stores.NAMES)
@pytest.mark.usefixtures("taken_for")
def test_checkpoint(tmp_path, name, from_log):
    """logicsMsgTimestamp: the last message, as all queues are durable. indexMsgTimestamp: end of the last full file."""
    store = stores.unpack(name, tmp_path)
    root = only_the_log(store, tmp_path) if from_log else store.path
    records = open_and_close(root, store.config)
    last = records[-1]["storeTimestamp"]
    headers = [oracle.index_file(data, store.config.max_hash_slot_num)[0] for data in files_of(root, "index").values()]
    full = [header.end_timestamp for header in headers if header.index_count >= store.config.max_index_num]
    found = oracle.checkpoint((root / "checkpoint").read_bytes())
    assert (found.physic_msg_timestamp, found.logics_msg_timestamp) == (last, last)
    assert found.index_msg_timestamp == (full[-1] if full else 0)
    assert not (root / "abort").exists()


@pytest.mark.parametrize("name", stores.WHOLE)
def test_put_again_gives_the_same_derived_files(golden, tmp_path, name):
    """The files are not built at opening, but dispatched after the puts."""
    from test_golden_put import calls, golden_log, put

    store = golden(name)
    items = oracle.walk_log(golden_log(store), crc="full")
    size = store.config.mapped_file_size_commit_log
    topics = store.path / "config" / "topics.json"
    if topics.exists():
        (tmp_path / "config").mkdir()
        shutil.copy2(topics, tmp_path / "config")
    with rocketc.open(tmp_path, config=store.config, check_before_put_message=False) as opened:
        for run in calls(items):
            if not isinstance(run[0], oracle.Blank):
                put(opened, run, store.config.enabled_append_prop_crc)
            elif run[0].stop - run[0].start == size:
                opened._roll()
                opened._roll()
    same_files(without_names(files_of(tmp_path, *FOLDERS)), without_names(files_of(store.path, *FOLDERS)))
