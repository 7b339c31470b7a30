"""Tables whose new entries are written after the others: what a kill leaves at any byte, and what makes them whole."""

import errno
import os
from pathlib import Path

import pytest

from rocketc.errors import StoreFullError, StoreIOError
from rocketc.tables import growing_file, table_file
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.table_file import read_object, read_table
from rocketc.tables.topics import PERM_READ, Topics

pytestmark = pytest.mark.promise(6)


@pytest.fixture
def topics(tmp_path):
    return grown(tmp_path)


def grown(root: Path) -> Topics:
    topics = Topics(root)
    topics.grow()
    topics.create("first")
    return topics


def writes(monkeypatch) -> list[tuple[str, int]]:
    """Return a list that gets each write to a file: its name and the number of bytes."""
    found, write = [], growing_file.write_all

    def noted(fd, raw, at=None):
        found.append((Path(os.readlink(f"/proc/self/fd/{fd}")).name, len(raw)))
        write(fd, raw, at)

    for module in (growing_file, table_file):
        monkeypatch.setattr(module, "write_all", noted)
    return found


def test_a_new_entry_is_written_alone_whatever_the_size_of_the_table(tmp_path, monkeypatch):
    made = []
    for number in (1, 1000):
        topics = grown(tmp_path / str(number))
        for n in range(number):
            topics.create(f"t{n}", persist=False)
        topics.persist()
        found = writes(monkeypatch)
        topics.create("new-topic")
        assert [name for name, _ in found] == ["topics.json.bak", "topics.json"]
        made.append(sum(size for _, size in found))
        assert "new-topic" in Topics(tmp_path / str(number))
        monkeypatch.undo()
    assert made[1] - made[0] < 20  # digits of the counter


def test_the_file_is_the_whole_table_and_so_is_its_copy(topics):
    for n in range(5):
        topics.create(f"t{n}", queues=n + 1)
    topics.create("a", persist=False)
    topics.create("b", persist=False)
    topics.create("a", queues=7, persist=False)  # changed before it is written
    topics.persist()
    found = read_table(topics.path).data
    assert found == read_table(f"{topics.path}.bak").data
    assert list(found) == ["topicConfigTable", "dataVersion"]
    assert list(found["topicConfigTable"]) == ["first", "t0", "t1", "t2", "t3", "t4", "a", "b"]
    assert found["topicConfigTable"] == {name: config.to_file() for name, config in topics.items()}
    assert found["dataVersion"]["counter"] == topics.version[0] == 9
    assert not topics.changed and not topics.persist()


@pytest.mark.parametrize("change", ["change", "delete", "delete and create", "version"])
def test_other_changes_are_written_as_a_whole(topics, monkeypatch, change):
    topics.create("second")
    found = writes(monkeypatch)
    if change == "change":
        topics.create("first", perm=PERM_READ)
    elif change == "version":
        topics.change_version()
        topics.persist()
    else:
        topics.delete("first", persist=change == "delete")
        if change != "delete":
            topics.create("first", queues=9)
    assert {name for name, _ in found} == {"topics.json.tmp", "topics.json.bak.tmp"}
    found.clear()
    topics.create("third")
    assert [name for name, _ in found] == ["topics.json.bak", "topics.json"]
    assert dict(Topics(Path(topics.path).parents[1])) == dict(topics)
    assert sorted(os.listdir(Path(topics.path).parent)) == ["topics.json", "topics.json.bak"]


def test_a_group_is_written_alone_and_forbidden_topics_stay(tmp_path, monkeypatch):
    groups = SubscriptionGroups(tmp_path)
    groups.grow()
    groups.create(SubscriptionGroupConfig("audit"))
    groups.set_readable("audit", "orders", False)
    groups.persist()
    found = writes(monkeypatch)
    groups.create(SubscriptionGroupConfig("bill", retry_max_times=3))
    assert [name for name, _ in found] == ["subscriptionGroup.json.bak", "subscriptionGroup.json"]
    again = SubscriptionGroups(tmp_path)
    assert dict(again) == dict(groups) and again.forbidden == {"audit": {"orders": 4}}


@pytest.mark.parametrize("left", ["as it was", "no copy", "another copy", "of RocketMQ"])
def test_a_table_that_is_opened_again(tmp_path, monkeypatch, left):
    topics = grown(tmp_path)
    topics.create("second")
    path, bak = Path(topics.path), Path(f"{topics.path}.bak")
    if left == "no copy":
        bak.unlink()
    elif left == "another copy":  # a kill between the two
        bak.write_bytes(bak.read_bytes()[:-5])
    elif left == "of RocketMQ":
        table_file.write_table(path, {name: topics._to_write()[name] for name in ("dataVersion", "topicConfigTable")})
    again = Topics(tmp_path)
    again.grow()
    found = writes(monkeypatch)
    assert again.persist() is (left != "as it was")
    assert path.read_bytes() == bak.read_bytes()
    found.clear()
    again.create("third")
    assert [name for name, _ in found] == ["topics.json.bak", "topics.json"]
    assert set(Topics(tmp_path)) == {"first", "second", "third"}


def test_a_file_that_another_program_has_written_is_replaced(topics):
    for n, name in enumerate(("topics.json", "topics.json.bak")):
        path = Path(topics.path).with_name(name)
        path.write_bytes(path.read_bytes().replace(b"\t", b" "))
        topics.create(f"after-{n}")
        path.unlink()
        topics.create(f"without-{n}")
    assert dict(Topics(Path(topics.path).parents[1])) == dict(topics)
    assert read_table(f"{topics.path}.bak").data == read_table(topics.path).data


class Kill(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("name", ["topics.json.bak", "topics.json"])
def test_a_kill_in_any_write_loses_no_topic_that_was_written(memory_path, monkeypatch, name):
    """A kill can end a write at any byte, and a power cut too. The file is then cut, or longer and wrong."""
    writing = growing_file.write_all
    topics = grown(memory_path)
    topics.create("second")
    config = Path(topics.path).parent
    before = {path: path.read_bytes() for path in config.iterdir()}
    size = cut = 0
    while cut <= size:
        for path, raw in before.items():
            path.write_bytes(raw)
        topics = Topics(memory_path)
        topics.grow()

        def killed(fd, raw, pos, cut=cut):
            nonlocal size
            if Path(os.readlink(f"/proc/self/fd/{fd}")).name != name:
                return writing(fd, raw, pos)
            size = len(raw)
            writing(fd, raw[:cut], pos)
            raise Kill

        monkeypatch.setattr(growing_file, "write_all", killed)
        with pytest.raises(Kill):
            topics.create("third")
        monkeypatch.setattr(growing_file, "write_all", writing)
        opened = Topics(memory_path)
        assert {"first", "second"} <= set(opened) <= {"first", "second", "third"}
        assert opened.version[0] == len(opened)
        if name == "topics.json.bak":
            assert "third" not in opened and opened.load_error is None
        if cut % 32 == 0:
            opened.grow()
            opened.persist()
            opened.create("fourth")
            assert (config / "topics.json").read_bytes() == (config / "topics.json.bak").read_bytes()
            again = Topics(memory_path)
            assert dict(again) == dict(opened) and again.load_error is None
        cut += 1
    assert size > 200


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["open", "pwrite", "fdatasync"])
def test_a_call_that_fails(topics, monkeypatch, call, number):
    real = getattr(os, call)
    for at in range(1, 9):
        topics.create(f"before{at}")
        calls = iter(range(1, 99))

        def failing(*args, at=at, calls=calls, **options):
            if next(calls) == at:
                raise OSError(number, os.strerror(number))
            return real(*args, **options)

        monkeypatch.setattr(os, call, failing)
        try:
            topics.create(f"new{at}")
        except StoreIOError as error:
            assert isinstance(error, StoreFullError) is (number == errno.ENOSPC)
            assert "topics.json" in error.filename and topics.changed
            monkeypatch.undo()
            assert f"before{at}" in Topics(Path(topics.path).parents[1])
            assert topics.persist()
        else:
            monkeypatch.undo()
            break
    assert at == 3  # both files
    again = Topics(Path(topics.path).parents[1])
    assert dict(again) == dict(topics) and again.load_error is None
    assert read_table(f"{topics.path}.bak").data == read_table(topics.path).data


def test_a_reader_that_meets_a_write_reads_again(topics, monkeypatch):
    """A store may be read while a broker writes it: rocketc.scan(), rocketc info, Spark."""
    read, times = table_file.BlockFile.read, iter(range(9))

    def meeting(self, *range):
        if self.path == topics.path and next(times) == 0:
            raw = read(self, *range)
            topics.create("meanwhile")
            return raw[:-9]
        return read(self, *range)

    monkeypatch.setattr(table_file.BlockFile, "read", meeting)
    assert "meanwhile" in read_object(topics.path)["topicConfigTable"]
    assert next(times) == 2


def test_a_table_of_a_broker_of_4_keeps_its_form(tmp_path):
    path = tmp_path / "config/topics.json"
    path.parent.mkdir()
    path.write_text('{"dataVersion":{"counter":5,"timestatmp":7},"topicConfigTable":{"old":{"topicName":"old"}}}')
    topics = Topics(tmp_path)
    topics.grow()
    topics.persist()
    topics.create("new")
    found = read_table(path).data
    assert (
        found["dataVersion"].keys() == {"counter", "timestatmp"}
        and "attributes" not in found["topicConfigTable"]["new"]
    )
    assert list(Topics(tmp_path)) == ["old", "new"]
