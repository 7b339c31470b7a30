"""_key_index: RocketMQ's files byte for byte, chains over files, damage, full disks, readers beside a writer."""

import datetime
import shutil
from pathlib import Path

import oracle
import pytest
import stores
from index_files import SPECIFIED, T0

import rocketc
from rocketc._key_index import KeyIndex

ROLLBACK = 0xC  # of sysFlag
DEFAULT = {"slots": 10, "units": 4}


@pytest.fixture
def index(tmp_path):
    """index(slots=10, units=4, **fields): a KeyIndex of the folder `index`, loaded."""
    made = []

    def make(slots=10, units=4, folder=tmp_path / "index", load=True, **fields):
        made.append(KeyIndex(folder, slots, units, **fields))
        if load:
            assert made[-1].load() == []
        return made[-1]

    yield make
    for one in made:
        one.close()


def name_time(name):
    """The clock that a file's name was made by, in ms."""
    moment = datetime.datetime.strptime(str(name)[:14], "%Y%m%d%H%M%S").astimezone()
    return int(moment.timestamp()) * 1000 + int(str(name)[14:])


def fill(index, count, topic="t", step=100, start=0, time=T0):
    for n in range(start, start + count):
        index.put_keys(topic, n * step, time + n * 1000, keys=f"k{n}")


def found(index, key, topic="t", **fields):
    return list(index.offsets(topic, key, **fields))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


# ---------------------------------------------------------------- what RocketMQ wrote


def test_the_file_of_the_specification(index):
    one = index()
    for key, phy_offset, time in [("k1", 0, T0), ("k1", 133, T0 + 2500), ("k2", 266, T0 + 3999)]:
        one.put_keys("TopicTest", phy_offset, time, keys=key)
    [path] = one.files
    assert Path(path).read_bytes() == SPECIFIED
    assert found(one, "k1", "TopicTest") == [133, 0]
    one.put_keys("TopicTest", 399, T0 + 5000, keys="k1")  # RocketMQ refuses it in this file: the next one
    assert Path(path).read_bytes() == SPECIFIED
    assert len(one.files) == 2
    assert found(one, "k1", "TopicTest") == [399, 133, 0]


def keyed(store):
    """(topic, physical offset, store timestamp, UNIQ_KEY, KEYS) of what RocketMQ puts into the index, in log order."""
    for m in rocketc.scan(store.path, errors="skip", unwrap=False, decompress=False, crc="none"):
        if m.sys_flag & ROLLBACK != ROLLBACK:
            yield m.topic, m.phy_offset, m.store_timestamp, m.properties.get("UNIQ_KEY"), m.properties.get("KEYS")


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_files_are_made_byte_for_byte(golden, index, tmp_path, name):
    store = golden(name)
    slots, units = (int(store.about["config"][key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    one = index(slots, units)
    told = contents(store.path / "index")
    names = iter(sorted(told))
    for topic, phy_offset, time, unique_key, keys in keyed(store):
        for key in [unique_key, *(keys or "").split(" ")]:
            if key:
                if not one.files or one.headers()[-1][1].index_count == units:
                    one._hook("clock", name_time(next(names)))
                one.put_keys(topic, phy_offset, time, keys=key)
    one.flush()
    made = contents(tmp_path / "index")
    if name in stores.WHOLE:
        assert made == told
    else:  # damaged stores were killed: their newest file may have had more than the log
        assert list(made)[: len(told)] == list(told)[: len(made)]
        assert made[min(told)] == told[min(told)]


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_files_agree_with_their_log(golden, index, tmp_path, name):
    """Walked from its begin, its middle and its end, nothing is in doubt and nothing is written."""
    store = golden(name)
    slots, units = (int(store.about["config"][key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    shutil.copytree(store.path / "index", tmp_path / "index")
    before = contents(tmp_path / "index")
    log = list(keyed(store))
    one = index(slots, units)
    assert one.check() == []
    for start in (0, 1, len(log) // 3, len(log) // 2, len(log) - 1):
        one.start_check(log[start][1])
        assert all(one.put_keys(*record, compare=True) for record in log[start:])
        assert one.end_check(), one.doubt
    assert one.doubt is None
    assert contents(tmp_path / "index") == before


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_chains_are_found(golden, name):
    """Every key of a golden store, as the oracle finds it in its files."""
    store = golden(name)
    slots = int(store.about["config"]["maxHashSlotNum"])
    one = KeyIndex(store.path / "index", read_only=True)  # the number of slots is found out
    assert one.load() == []
    chains = {}
    for data in contents(store.path / "index").values():
        header, _, entries = oracle.index_file(data, slots)
        for e in entries[1 : header.index_count]:
            chains.setdefault(e.key_hash, []).insert(0, e.phy_offset)
    for topic, _, _, unique_key, keys in keyed(store):
        for key in filter(None, [unique_key, *(keys or "").split(" ")]):
            assert found(one, key, topic) == chains[oracle.key_hash(topic, key)]
    one.close()
