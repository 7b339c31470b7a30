"""The stores of offsets: RocketMQ's own numbers, its file, and what each call sends, writes and forgets."""

import errno
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.client import offset_stores
from rocketc.client.bodies import parse_fields
from rocketc.client.offset_stores import (
    FAILED,
    NOT_FOUND,
    LocalFileOffsetStore,
    OffsetTable,
    RemoteBrokerOffsetStore,
    decode_offsets,
    encode_offsets,
    local_folder,
)
from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, ConfigTableError, NoAnswerError, StoreIOError
from rocketc.tables.fastjson import to_bytes

GOLDEN = Path(__file__).parents[2] / "golden" / "offsets-5.3.3.json"
GOOD = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:17}}'
ONE = MessageQueue("t", "b", 0)


def queue(number):
    return MessageQueue("orders", "broker-a", number)


@pytest.fixture(params=["remote", "local"])
def table(request, tmp_path):
    return RemoteBrokerOffsetStore("g") if request.param == "remote" else LocalFileOffsetStore(tmp_path, "c", "g")


@pytest.fixture
def local(tmp_path):
    return LocalFileOffsetStore(tmp_path, "c", "g")


def again(store):
    """A new store with the same file."""
    found = LocalFileOffsetStore(Path(store.path).parents[2], "c", "g")
    found.load()
    return found


def write(store, main, copy=None):
    path = Path(store.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, text in ((path, main), (path.with_name("offsets.json.bak"), copy)):
        if text is not None:
            name.write_text(text)


# ------------------------------------------------------------------------------------------ the table


def test_updates(table):
    assert table.get(queue(0)) == NOT_FOUND
    for offset, increase_only, then in [
        (1024, False, 1024),
        (1023, False, 1023),
        (1022, True, 1023),
        (1025, True, 1025),
    ]:
        table.update(queue(0), offset, increase_only=increase_only)
        assert table.get(queue(0)) == then
    assert table.get(queue(1)) == NOT_FOUND
    table.update(queue(1), 0, increase_only=True)
    assert table.offsets() == {queue(0): 1025, queue(1): 0}


def test_a_frozen_offset_stays_until_it_is_removed(table):
    table.update(queue(0), 500, increase_only=False)
    table.update_and_freeze(queue(0), 100)
    table.update(queue(0), 200, increase_only=False)
    table.update(queue(0), 300, increase_only=True)
    table.update(queue(1), 7, increase_only=True)
    assert (table.get(queue(0)), table.get(queue(1))) == (100, 7)
    table.update_and_freeze(queue(0), 50)
    assert table.get(queue(0)) == 50
    table.remove(queue(0))
    assert table.get(queue(0)) == NOT_FOUND
    table.update(queue(0), 200, increase_only=True)
    assert table.get(queue(0)) == 200


def test_remove_of_an_unknown_queue():
    OffsetTable().remove(queue(0))


# ------------------------------------------------------------------------------------------ in the broker


def test_outcomes_of_a_query():
    store = RemoteBrokerOffsetStore("g")
    assert store.answered(queue(0), 9) == 9
    assert store.answered(queue(0), 4) == 4  # the broker's value, also a smaller one
    assert store.get(queue(0)) == 4
    assert store.answered(queue(0), AnswerError("a:1", "unknown", 22)) == NOT_FOUND
    assert store.answered(queue(0), AnswerError("a:1", "failed", 1)) == FAILED
    assert store.answered(queue(0), AnswerError("a:1", "unreadable")) == FAILED
    assert store.answered(queue(0), NoAnswerError("late")) == FAILED
    assert store.get(queue(0)) == 4


def test_a_query_does_not_change_a_frozen_offset():
    store = RemoteBrokerOffsetStore("g")
    store.update_and_freeze(queue(0), 100)
    assert store.answered(queue(0), 9) == 9
    assert store.get(queue(0)) == 100


def test_persist_all_sends_what_is_owned_and_forgets_the_rest():
    store = RemoteBrokerOffsetStore("g")
    for number in (2, 0, 1):
        store.update(queue(number), 1024 + number, increase_only=False)
    store.update_and_freeze(queue(2), 5)
    store.update(queue(0), 1023, increase_only=False)
    fields = {"consumerGroup": "g", "topic": "orders"}
    assert store.persist_all([queue(1), queue(0), queue(9)]) == {
        queue(0): {**fields, "queueId": 0, "commitOffset": 1023},
        queue(1): {**fields, "queueId": 1, "commitOffset": 1025},
    }
    assert store.offsets() == {queue(0): 1023, queue(1): 1025}
    store.update(queue(2), 77, increase_only=False)  # forgotten, so not frozen either
    assert store.get(queue(2)) == 77
    assert store.persist_all([]) == {}
    assert len(store.offsets()) == 3
    assert store.persist(queue(2)) == {**fields, "queueId": 2, "commitOffset": 77}
    assert store.persist(queue(9)) is None


# ------------------------------------------------------------------------------------------ in a file


def test_path_and_folder(local, tmp_path, monkeypatch):
    assert local.path == f"{tmp_path}/c/g/offsets.json"
    monkeypatch.setenv("HOME", "/home/ann")
    assert local_folder() == "/home/ann/.rocketmq_offsets"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0"])
def test_names_that_are_not_folders(tmp_path, name):
    for names in ((name, "g"), ("c", name)):
        with pytest.raises(ValueError, match=re.escape(repr(name)) + " cannot be the name of a folder"):
            LocalFileOffsetStore(tmp_path, *names)


def test_nothing_is_stored_before_it_is_persisted(local):
    local.load()
    local.update(queue(0), 1024, increase_only=False)
    assert local.read(queue(0)) == NOT_FOUND
    local.persist_all([queue(0)])
    local.update(queue(0), 9, increase_only=False)
    assert local.read(queue(0)) == 1024
    assert local.get(queue(0)) == 1024


def test_persist_writes_one_queue(local):
    local.update(queue(0), 1, increase_only=False)
    local.update(queue(1), 2, increase_only=False)
    local.persist(queue(1))
    assert (local.read(queue(0)), local.read(queue(1))) == (NOT_FOUND, 2)
    local.persist(queue(7))
    assert again(local).offsets() == {queue(1): 2}


def test_persist_all_keeps_what_other_consumers_wrote(local):
    local.update(queue(0), 1024, increase_only=False)
    local.persist_all([queue(0)])
    local.remove(queue(0))
    assert local.get(queue(0)) == NOT_FOUND
    for number in (1, 2, 3):
        local.update(queue(number), number, increase_only=False)
    local.persist_all([queue(1), queue(2)])
    assert again(local).offsets() == {queue(0): 1024, queue(1): 1, queue(2): 2}


def test_the_previous_file_stays_as_bak(local):
    for offset in (1, 2):
        local.update(queue(0), offset, increase_only=False)
        local.persist_all([queue(0)])
    assert Path(f"{local.path}.bak").read_bytes() == to_bytes(encode_offsets({queue(0): 1}))


def test_an_unchanged_file_is_not_written(local):
    local.update(queue(0), 1, increase_only=False)
    local.persist_all([queue(0)])
    before = Path(local.path).stat()
    local.persist_all([queue(0), queue(5)])
    local.persist_all([])
    assert Path(local.path).stat().st_ino == before.st_ino
    Path(local.path).unlink()
    local.persist_all([queue(0)])
    assert Path(local.path).exists()


def test_nothing_is_written_without_offsets(local):
    local.persist_all([queue(0)])
    assert not Path(local.path).parent.exists()


def test_the_file_of_rocketmqs_own_consumer(local):
    write(local, GOLDEN.read_text())
    local.load()
    assert local.offsets() == {queue(0): 3, queue(1): 2, queue(2): 2}
    offsets = {queue(2): 2, queue(0): 3, queue(1): 2}  # in the order of the golden file
    assert to_bytes(encode_offsets(offsets)) == GOLDEN.read_bytes()
    local.update(queue(0), 4, increase_only=False)
    local.persist(queue(0))
    changed = GOLDEN.read_text().replace("}:3,", "}:4,")
    assert Path(local.path).read_text() == changed
    assert Path(f"{local.path}.bak").read_bytes() == GOLDEN.read_bytes()


# what RocketMQ 4.9.7 and 5.3.3 do with the same files, but for the files of "other" forms
@pytest.mark.parametrize(
    ("main", "copy", "offset", "warning"),
    [
        (GOOD, None, 17, None),
        (GOOD, "{", 17, None),
        ("{", GOOD, 17, r"line 1, column 2: .*: its \.bak is read instead"),
        ("", GOOD, 17, None),
        (None, GOOD, 17, None),
        (None, None, NOT_FOUND, None),
        ("", None, NOT_FOUND, None),
        ("", "", NOT_FOUND, None),
        ("{", None, NOT_FOUND, "there is no .bak, so the consumer begins without offsets"),
        ("{", "", NOT_FOUND, "there is no .bak, so the consumer begins without offsets"),
        ('{"offsetTable":null}', None, NOT_FOUND, None),
        ("{}", None, NOT_FOUND, None),
        ("[]", GOOD, 17, "not an object: its .bak"),  # other: RocketMQ reads it as an empty table
        (GOOD.replace("17", "null"), GOOD, 17, "contains None, which is not a number: its .bak is read"),
        (GOOD.replace("17", "-9"), None, -9, None),
        (GOOD.replace("}:17", ',"more":"x"}:17'), None, 17, None),
        (GOOD.replace('{"brokerName"', '{ "brokerName" ').replace("{{", "{\n{"), None, 17, None),
    ],
)
def test_files(local, caplog, main, copy, offset, warning):
    write(local, main, copy)
    with caplog.at_level(logging.WARNING, "rocketc.client"):
        local.load()
    assert local.get(ONE) == offset
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (warning is not None)
    assert warning is None or re.search(warning, said[0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "offsets.json.bak: line 1, column 2"),
        (GOOD.replace("17", "1.5"), "contains 1.5, which is not a number"),
        (GOOD.replace("17", "9223372036854775808"), "offsetTable is not a table of offsets by queue"),
        (GOOD.replace('"b"', "5"), "brokerName is 5, which is not a text"),
        (GOOD.replace('"queueId":0,', ""), "queueId is missing"),
        ('{"offsetTable":{"a":1}}', "offsetTable is not a table of offsets by queue"),
        ('{"offsetTable":[1]}', "offsetTable is [1], which is not an object"),
    ],
)
def test_two_damaged_files(local, text, says, caplog):
    write(local, "{", text)
    with pytest.raises(ConfigTableError, match=re.escape(says)):
        local.load()
    assert local.read(ONE) == FAILED
    assert "the offset of a queue cannot be read" in caplog.text
    local.update(ONE, 3, increase_only=False)
    local.persist_all([ONE])
    assert "the file of offsets is written again" in caplog.text
    assert again(local).offsets() == {ONE: 3}


def test_damaged_files_stay_while_there_is_nothing_to_write(local):
    write(local, "{", "[")
    local.persist_all([ONE])
    assert Path(local.path).read_text() == "{"


def test_a_damaged_file_is_repaired_from_its_copy(local):
    write(local, "{", GOOD)
    local.load()
    local.persist_all([ONE])
    assert again(local).offsets() == {ONE: 17}
    assert decode_offsets(parse_fields(Path(local.path).read_bytes())) == {ONE: 17}


def test_a_file_that_cannot_be_read(local, monkeypatch):
    write(local, GOOD)

    def fail(path, **_):
        raise StoreIOError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(offset_stores, "read_object", fail)
    with pytest.raises(StoreIOError, match="Input/output"):
        local.load()
    assert local.read(ONE) == FAILED

    def vanish(path, **_):
        raise StoreIOError(errno.ENOENT, "No such file", path)

    monkeypatch.setattr(offset_stores, "read_object", vanish)
    local.load()
    assert local.read(ONE) == NOT_FOUND


def test_a_folder_in_the_place_of_the_file(local):
    Path(local.path, "x").mkdir(parents=True)
    with pytest.raises(StoreIOError):
        local.load()


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 1 << 31))


@given(st.dictionaries(QUEUES, st.integers(-(1 << 63), (1 << 63) - 1), max_size=5), st.booleans())
def test_any_offsets_are_read_back(offsets, compact):
    assert decode_offsets(parse_fields(to_bytes(encode_offsets(offsets), compact=compact))) == offsets
