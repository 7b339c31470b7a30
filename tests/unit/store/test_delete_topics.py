"""MessageStore.delete_topics: what it deletes, what it keeps, and that deleted topics do not come back."""

import shutil
import threading

import pytest
from support.derived import files_of

import rocketc
from rocketc.tables.deleted_topics import DeletedTopics

SMALL = {"mapped_file_size_commit_log": 8 << 10, "mapped_file_size_consume_queue": 200}


@pytest.fixture(params=["small", "large"])
def log(request, monkeypatch):
    if request.param == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)


def folders(root, kind="consumequeue"):
    return sorted(path.name for path in (root / kind).iterdir())


def test_deleting_topics_leaves_the_others(open_store, tmp_path, log):
    """Deletes 8 of 10 topics, as RocketMQ's own test does."""
    store = open_store(**SMALL)
    for n in range(200):
        store.put(f"T{n % 10}", b"%d" % n, queue_id=n // 10 % 2, keys=f"k{n}")
    assert store.delete_topics([f"T{n}" for n in range(8)]) == 8
    for _ in range(3):
        assert store.queues() == [("T8", 0), ("T8", 1), ("T9", 0), ("T9", 1)]
        assert folders(tmp_path) == ["T8", "T9"]
        got = store.get("T0")
        assert (got.status.name, got.next_offset, len(got)) == ("NO_MESSAGE_IN_QUEUE", 0, 0)
        assert store.max_offset("T0") == 0
        assert [m.body for m in store.get("T9")] == [b"%d" % n for n in range(9, 200, 20)]
        assert [m.body for m in store.query("T0", "k10")] == [b"10"]  # it is still in the log
        before = files_of(tmp_path, "consumequeue")
        store.close()
        store = open_store(**SMALL)  # deleted topics do not come back
        assert files_of(tmp_path, "consumequeue") == before


def test_delete_topics_returns_the_number_of_deleted_topics(open_store, tmp_path):
    store = open_store(**SMALL)
    store.put("orders", b"")
    store.create_topic("audit")
    store.create_topic("both")
    store.put("both", b"")
    assert store.delete_topics(["orders", "audit", "both", "none"]) == 3
    assert store.delete_topics("orders") == 0
    assert store.queues() == [] and [*store.topics()] == []
    store.put("both", b"")
    assert [*store.topics()] == ["both"]
    store.close()
    assert [*open_store(**SMALL).topics()] == ["both"]


def test_a_topic_name_is_not_a_list_of_names(open_store):
    store = open_store(**SMALL)
    store.put("a", b"")
    assert store.delete_topics("abc") == 0
    assert store.queues() == [("a", 0)]


def test_a_recreated_topic_begins_at_0(open_store, tmp_path, log):
    store = open_store(**SMALL)
    store.put_many("orders", [b"old"] * 30)
    store.put("orders", b"old", queue_id=1)
    store.delete_topics("orders")
    for n in range(3):
        assert store.put("orders", b"%d" % n).queue_offset == n
    for n in range(3, 6):
        assert (store.min_offset("orders"), store.max_offset("orders", committed=False)) == (0, n)
        assert store.wait_dispatched(10)
        assert [m.body for m in store.get("orders", max_count=100)] == [b"%d" % n for n in range(n)]
        assert store.get("orders", 1).status.name == "NO_MESSAGE_IN_QUEUE"
        store.close()
        store = open_store(**SMALL)
        assert store.put("orders", b"%d" % n).queue_offset == n
    assert store.put("orders", b"0", queue_id=1).queue_offset == 0


def copy(root, name, *, abort):
    made = shutil.copytree(root, root.with_name(name), ignore=shutil.ignore_patterns("lock"))
    (made / "abort").touch() if abort else (made / "abort").unlink(missing_ok=True)
    return made


@pytest.mark.some(24)
@pytest.mark.parametrize(
    "lost", [(), ("consumequeue",), ("consumequeue", "index", "checkpoint"), ("consumequeue/orders",)]
)
@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("new", [0, 1, 30])
def test_a_deleted_topic_stays_deleted(open_store, tmp_path, caplog, log, lost, abort, new):
    """After a kill, and after the loss of files derived from the log. Later acknowledged messages remain."""
    store = open_store(tmp_path / "store", **SMALL)
    store.put_many("orders", [b"old"] * 20)
    store.put("audit", b"1")
    store.delete_topics("orders")
    for n in range(new):
        store.put("orders", b"%d" % n)
    store.flush()
    assert store.wait_dispatched(10)
    root = copy(tmp_path / "store", "killed", abort=True)
    if not abort:
        store.close()
        root = copy(tmp_path / "store", "closed", abort=False)
    for name in lost:
        if (root / name).is_dir():
            shutil.rmtree(root / name)
        else:
            (root / name).unlink(missing_ok=True)
    store = open_store(root, **SMALL)
    for _ in range(2):
        assert store.queues() == [("audit", 0), ("orders", 0)][: 2 if new else 1]
        assert [m.body for m in store.get("orders", max_count=100)] == [b"%d" % n for n in range(new)]
        assert store.put("orders", b"%d" % new).queue_offset == new
        new += 1
        assert store.wait_dispatched(10)
        store.close()
        assert rocketc.verify(root).is_whole
        rocketc.rebuild(root)
        assert rocketc.verify(root).is_whole
        caplog.clear()
        store = open_store(root, **SMALL)
        assert caplog.text == ""


def test_deleted_queues_are_not_reported_as_missing(open_store, tmp_path, caplog, log):
    """The process is killed after it has deleted a topic that existed when the store was opened."""
    store = open_store(tmp_path / "store", **SMALL)
    for topic in ("orders", "audit"):
        store.put_many(topic, [b"old"] * 25)
    store.close()
    store = open_store(tmp_path / "store", **SMALL)
    store.delete_topics("orders")
    root = copy(tmp_path / "store", "killed", abort=True)
    one = open_store(root, **SMALL)
    assert one.queues() == [("audit", 0)]
    assert caplog.text == ""


def test_files_left_by_a_crash_are_deleted(open_store, tmp_path, caplog, log):
    """The deletion is recorded on disk. The old files exist completely, partly, or without units that a power cut
    removed. New messages are durable."""
    store = open_store(tmp_path / "store", **SMALL)
    store.put_many("orders", [b"old"] * 25)
    store.put("orders", b"old", queue_id=1)
    store.wait_dispatched(10)
    before = files_of(tmp_path / "store", "consumequeue")
    store.delete_topics("orders")
    store.put("orders", b"new")
    store.flush()
    store.wait_dispatched(10)
    some = [*before.items()]
    for n, left in enumerate((before, dict(some[:1]), {some[1][0]: bytes(len(some[1][1]))})):
        root = copy(tmp_path / "store", f"killed {n}", abort=True)
        shutil.rmtree(root / "consumequeue")
        for name, data in left.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        caplog.clear()
        one = open_store(root, **SMALL)
        assert "topic orders was deleted, but its queues still existed" in caplog.text
        assert one.queues() == [("orders", 0)]
        assert [m.body for m in one.get("orders")] == [b"new"]
        assert one.put("orders", b"next").queue_offset == 1
        one.close()
        caplog.clear()
        open_store(root, **SMALL).close()
        assert caplog.text == ""


def test_rocketmq_has_rebuilt_the_topic(open_store, tmp_path, log):
    """RocketMQ's queue files start with the old messages and continue with later ones: the files are used."""
    store = open_store(**SMALL)
    store.put_many("orders", [b"old"] * 25)
    store.close()
    before = files_of(tmp_path, "consumequeue")
    store = open_store(**SMALL)
    store.delete_topics("orders")
    store.close()
    note = (tmp_path / "config/deletedTopics.json").read_bytes()
    (tmp_path / "config/deletedTopics.json").unlink()
    for name, data in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    store = open_store(**SMALL)
    assert store.put("orders", b"new").queue_offset == 25
    store.close()
    (tmp_path / "config/deletedTopics.json").write_bytes(note)
    assert rocketc.verify(tmp_path).derived.is_whole
    store = open_store(**SMALL)
    assert [m.body for m in store.get("orders", max_count=100)] == [b"old"] * 25 + [b"new"]
    assert DeletedTopics(tmp_path).ends == {}


def test_the_log_ends_before_the_deletion(open_store, tmp_path, log):
    """A power cut removed the end of the log; messages put there afterwards are new."""
    store = open_store(**SMALL)
    store.put("orders", b"old")
    end = store.put("audit", b"gone").phy_offset
    store.delete_topics("orders")
    store.close()
    path = tmp_path / "commitlog" / f"{0:020}"
    path.write_bytes(path.read_bytes()[:end].ljust(SMALL["mapped_file_size_commit_log"], b"\0"))
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    store = open_store(**SMALL)
    assert DeletedTopics(tmp_path).ends == {"orders": end}
    assert (store.put("orders", b"new").phy_offset, store.wait_dispatched(10)) == (end, True)
    for _ in range(2):
        assert [m.body for m in store.get("orders")] == [b"new"]
        store.close()
        store = open_store(**SMALL)


def test_a_damaged_record_of_deleted_topics(open_store, tmp_path, caplog):
    """The queue files show the same, as long as they exist."""
    store = open_store(**SMALL)
    store.put_many("orders", [b"old"] * 25)
    store.delete_topics("orders")
    store.put("orders", b"new")
    store.close()
    path = tmp_path / "config/deletedTopics.json"
    for text in ('{"deletedTopics":{', '{"deletedTopics":[]}', '{"deletedTopics":{"orders":"x"}}', ""):
        path.write_text(text)
        caplog.clear()
        store = open_store(**SMALL)
        assert str(path) in caplog.text
        assert [m.body for m in store.get("orders")] == [b"new"]
        store.close()


def test_entries_are_dropped_when_the_log_has_lost_the_messages(open_store, tmp_path):
    store = open_store(**SMALL)
    store.put("orders", b"old")
    store.delete_topics("orders")
    store.put_many("audit", [bytes(1000)] * 30)
    store.wait_dispatched(10)
    assert store.clean(expired_ms=-1).log_files > 0
    assert list(DeletedTopics(tmp_path).ends) == ["orders"]
    store.delete_topics("audit")
    assert list(DeletedTopics(tmp_path).ends) == ["audit"]


def test_a_deletion_that_cannot_be_recorded_changes_nothing(open_store, tmp_path):
    store = open_store(**SMALL)
    store.put_many("orders", [b"old"] * 25)
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config/deletedTopics.json.tmp").mkdir()
    with pytest.raises(rocketc.StoreIOError):
        store.delete_topics("orders")
    assert store.put("orders", b"next").queue_offset == 25
    assert store.wait_dispatched(10)
    assert len(store.get("orders", max_count=100)) == 26
    (tmp_path / "config/deletedTopics.json.tmp").rmdir()
    assert store.delete_topics("orders") == 1
    assert store.put("orders", b"new").queue_offset == 0


def test_lost_queues_are_not_mistaken_for_deleted_ones(open_store, tmp_path, log):
    store = open_store(**SMALL)
    for n in range(200):
        store.put(f"T{n % 10}", b"%d" % n)
    store.delete_topics("T0")
    store.close()
    shutil.rmtree(tmp_path / "consumequeue/T1")
    store = open_store(**SMALL)
    assert [m.body for m in store.get("T1")] == [b"%d" % n for n in range(1, 200, 10)]


def test_batch_queues_and_extensions(open_store, tmp_path):
    fields = {**SMALL, "enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 1000}
    store = open_store(**fields)
    store.create_topic("batches", queue_type="BatchCQ")
    for topic in ("batches", "orders", "audit"):
        for n in range(100):
            store.put(topic, b"%d" % n, tags="a")
    assert store.wait_dispatched(10)
    assert folders(tmp_path, "batchconsumequeue") == ["batches"]
    assert folders(tmp_path, "consumequeue_ext") == ["audit", "orders"]
    assert store.delete_topics(["batches", "orders"]) == 2
    assert folders(tmp_path, "batchconsumequeue") == []
    assert folders(tmp_path, "consumequeue_ext") == folders(tmp_path) == ["audit"]
    store.put("batches", b"")  # nothing says any longer that its queues are batch queues
    assert store.wait_dispatched(10)
    assert folders(tmp_path) == ["audit", "batches"]
    assert [m.body for m in store.get("audit", tags="a", max_count=100)] == [b"%d" % n for n in range(100)]


def test_unused_topics(open_store, tmp_path):
    """All topics except 2 of 10 are deleted, as in RocketMQ's own test. System topics and light queues stay."""
    store = open_store(**SMALL)
    others = ["TBW102", "%LMQ%a", "rmq_sys_x"]
    for topic in [*(f"T{n}" for n in range(10)), *others]:
        store.put(topic, b"old")
    store.wait_dispatched(10)
    assert store.clean_unused_topics(["T3", "T5"]) == [f"T{n}" for n in (0, 1, 2, 4, 6, 7, 8, 9)]
    assert folders(tmp_path) == sorted(["T3", "T5", *others])
    assert store.clean_unused_topics("T5") == ["T3"]
    assert store.put("T3", b"new").queue_offset == 0


class Late:
    """Names to retain. While puts wait for the deletion, a thread puts to a topic, and then the name is here."""

    def __init__(self, store, name):
        self.names, self._store, self._name, self._calls, self.puts = set(), store, name, 0, []

    def __iter__(self):
        return iter(self.names)

    def __contains__(self, name):
        if name == self._name and not self.puts:
            self.puts.append(threading.Thread(target=self._store.put, args=(name, b"new")))
            self.puts[0].start()
            self.puts[0].join(0.2)
            assert self.puts[0].is_alive()
            self.names.add(name)  # as a table of topics has it from the moment of the put
        return name in self.names


def test_a_topic_that_a_put_creates_meanwhile_is_retained(open_store):
    store = open_store(**SMALL)
    for topic in ("one", "two"):
        store.put(topic, b"old")
    store.wait_dispatched(10)
    retain = Late(store, "one")
    assert store.clean_unused_topics(retain) == ["two"]
    retain.puts[0].join()
    assert store.wait_dispatched(10)
    assert [m.body for m in store.get("one")] == [b"old", b"new"] and store.queues() == [("one", 0)]
    assert store.delete_topics(["one", "two"], retain=retain) == 0
    assert store.delete_topics("one") == 1


@pytest.mark.parametrize("retain", ["orders", ["orders"], (name for name in ["orders", "more"])])
def test_names_to_keep(open_store, retain):
    """A name is not taken for the letters in it."""
    store = open_store(**SMALL)
    for topic in ("order", "orders", "audit"):
        store.put(topic, b"")
    store.wait_dispatched(10)
    assert store.delete_topics(["order", "orders", "audit"], retain=retain) == 2
    assert store.queues() == [("orders", 0)]


def test_expired_queues(open_store, tmp_path):
    """A queue that had messages and is empty now is deleted. Its topic stays with other queues; its entry stays."""
    store = open_store(**SMALL)
    store.create_topic("old")
    for topic, queue_id in [("old", 0), ("old", 1), ("both", 0), ("TBW102", 0)]:
        store.put(topic, b"", queue_id=queue_id)
    store.put_many("new", [bytes(1000)] * 20)
    store.put("both", b"", queue_id=1)
    store.wait_dispatched(10)
    assert store.clean_expired_queues() == []
    assert store.clean(expired_ms=-1).log_files > 0
    assert store.clean_expired_queues() == [("both", 0), ("old", 0), ("old", 1)]
    assert folders(tmp_path) == ["TBW102", "both", "new"]
    assert "old" in store.topics()
    assert not (tmp_path / "config/deletedTopics.json").exists()
    for _ in range(2):
        assert store.queues() == [("TBW102", 0), ("both", 1), ("new", 0)]
        assert store.max_offset("old", committed=False) == 0
        store.close()
        store = open_store(**SMALL)
    for n in range(2):
        assert store.put("both", b"%d" % n, queue_id=0).queue_offset == n
    store.close()
    assert [m.body for m in open_store(**SMALL).get("both", 0)] == [b"0", b"1"]


def test_a_read_only_store_deletes_no_topics(open_store, tmp_path):
    open_store(**SMALL).put("orders", b"")
    with pytest.raises(rocketc.RocketcError):
        open_store(read_only=True, **SMALL).delete_topics("orders")
