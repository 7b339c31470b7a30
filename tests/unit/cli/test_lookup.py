"""cat with a consume queue and get with the index print the same as a scan, and work without missing or wrong files."""

import os
import shutil
import struct

import pytest
from support import stores

import rocketc as library
from rocketc.jobs import lookup


@pytest.fixture
def both(run, monkeypatch):
    """both(*args): the output of a command with and without the shortcuts, and whether the shortcuts were used."""

    def call(*args):
        taken = []
        find_in_queue, find = lookup.find_in_queue, lookup.KeyLookup.find
        with monkeypatch.context() as patch:
            patch.setattr("rocketc.cli.cat.find_in_queue", lambda *one: taken.append(find_in_queue(*one)) or taken[-1])
            patch.setattr(lookup.KeyLookup, "find", lambda self: taken.append(find(self)) or taken[-1])
            short = run(*args)
        with monkeypatch.context() as patch:
            patch.setattr("rocketc.cli.cat.find_in_queue", lambda *one: None)
            patch.setattr(lookup.KeyLookup, "find", lambda self: None)
            long = run(*args)
        assert short[:2] == long[:2]
        return short, [one is not None for one in taken] == [True]

    return call


def queue_file(root, topic, queue_id):
    return next((root / "consumequeue" / topic / str(queue_id)).iterdir())


# ---------------------------------------------------------------- cat by a queue
@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "v533-unclean", "flights-2013-01"])
def test_cat_of_golden_stores(golden, both, name):
    path = golden(name).path
    last = {}
    for m in library.scan(path):
        last[m.topic, m.queue_id] = m.queue_offset
    used = 0
    for (topic, queue_id), end in sorted(last.items())[:6]:
        for offset in {0, end // 2, end, end + 1}:
            _, taken = both("cat", path, "-t", topic, "-q", queue_id, "-o", offset, "--json", "-c", 50)
            used += taken
    assert used >= 6


def test_cat_with_other_options(golden, both):
    path = golden("flights-2013-01").path
    _, taken = both("cat", path, "-t", "flights", "-q", 1, "-o", 4000, "--tag", "UA", "--grep", "SFO", "--body", "hex")
    assert taken
    for more in (["-t", "x"], ["-q", 2]):
        both("cat", path, "-t", "flights", "-q", 1, "-o", 4400, *more)


@pytest.mark.parametrize("data", [bytes(20), struct.pack(">qiq", 0, 0x7FFFFFFF, 0), struct.pack(">qiq", 96, 100, 1)])
def test_cat_with_a_wrong_queue(tmp_path, both, data):
    root = stores.unpack("v497-broker", tmp_path).path
    queue = next(m for m in library.scan(root) if m.queue_offset == 3)
    path = queue_file(root, queue.topic, queue.queue_id)
    old = path.read_bytes()
    path.write_bytes(old[:60] + data + old[80:])
    short, taken = both("cat", root, "-t", queue.topic, "-q", queue.queue_id, "-o", 3)
    assert short[1] and not taken
    shutil.rmtree(root / "consumequeue")
    assert not both("cat", root, "-t", queue.topic, "-q", queue.queue_id, "-o", 3)[1]


# ---------------------------------------------------------------- get by the index
@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "v533-store", "flights-2013-01"])
def test_get_of_golden_stores(golden, both, name):
    path = golden(name).path
    messages = [m for m in library.scan(path) if m.keys]
    for m in messages[:: max(len(messages) // 8, 1)]:
        for key in {m.keys.split()[0], m.properties.get("UNIQ_KEY", m.keys.split()[0])}:
            short, taken = both("get", path, "--key", key, "-t", m.topic, "--json")
            assert short[0] == 0 and short[2] == ""
            assert taken == (path / "consumequeue" / m.topic).exists(), "keys in inner batches are not in the index"


def test_get_of_missing_messages(golden, run):
    code, out, err = run("get", golden("flights-2013-01").path, "--key", "none", "-t", "flights")
    assert (code, out) == (1, "") and "not in the index" in err


def test_get_by_id_and_with_a_count(golden, both):
    path = golden("flights-2013-01").path
    m = next(iter(library.scan(path)))
    assert both("get", path, "--id", m.properties["UNIQ_KEY"], "-t", "flights", "-c", 1)[1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_get_with_a_missing_index_file(tmp_path, both, number):
    root = stores.unpack("flights-2013-01", tmp_path).path
    sorted((root / "index").iterdir())[number].unlink()
    messages = list(library.scan(root))
    for m in messages[:: len(messages) // 10]:
        short, taken = both("get", root, "--key", m.keys.split()[0], "-t", m.topic, "--json")
        assert short[0] == 0 and taken


def test_get_with_a_damaged_index(tmp_path, both):
    root = stores.unpack("flights-2013-01", tmp_path).path
    m = next(iter(library.scan(root)))
    os.truncate(sorted((root / "index").iterdir())[1], 1000)
    short, taken = both("get", root, "--key", m.keys, "-t", m.topic)
    assert not taken and short[0] == 0 and "the index is damaged, so the log is searched" in short[2]


def test_get_without_an_index(tmp_path, both):
    root = stores.unpack("v497-broker", tmp_path).path
    m = next(m for m in library.scan(root) if m.keys)
    shutil.rmtree(root / "index")
    short, taken = both("get", root, "--key", m.keys.split()[0], "-t", m.topic)
    assert not taken and short[0] == 0 and short[2] == ""
