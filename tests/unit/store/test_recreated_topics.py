"""catch_up: a recreated topic has each queue offset twice in the log; its queue shows the valid record."""

import shutil

import pytest
from support import derived, oracle

import rocketc

SETTINGS = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 50,
    "max_index_num": 100,
}


def messages(*runs):
    """Return messages of consecutive runs (topic, first queue offset, count)."""
    return [
        {"topic": topic, "queue_id": 0, "body": b"%d" % at, "queue_offset": n, "store_timestamp": 1_700_000_000_000}
        for at, (topic, n) in enumerate((topic, n) for topic, first, count in runs for n in range(first, first + count))
    ]


def lay_down(root, old, new):
    """Write a log of the old and the new messages, and queues of only the new ones. Return the records by topic."""
    (root / "commitlog").mkdir(parents=True)
    for start, data in oracle.lay_out([*old, *new], SETTINGS["mapped_file_size_commit_log"]):
        (root / "commitlog" / f"{start:020}").write_bytes(data)
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    for name, data in derived.queue_files(records[len(old) :], SETTINGS["mapped_file_size_consume_queue"]).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return records


@pytest.fixture(params=["small", "large"])
def log(request, monkeypatch):
    if request.param == "large":
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([("a", 0, 3)], [("a", 0, 1)]),
        ([("a", 0, 3)], [("a", 0, 5)]),
        ([("a", 0, 30)], [("b", 0, 3), ("a", 0, 7)]),
        ([("a", 50, 30)], [("a", 0, 25), ("b", 0, 3)]),
        ([("a", 0, 9), ("a", 0, 4)], [("a", 0, 2)]),  # twice
        ([("a", 900, 3)], [("a", 0, 40)]),
    ],
)
def test_the_queue_of_a_recreated_topic_stays_unchanged(open_store, tmp_path, caplog, log, old, new, abort):
    new = [("c", 0, 2), *new, ("c", 2, 2)]
    records = lay_down(tmp_path, messages(*old), messages(*new))
    if abort:
        (tmp_path / "abort").touch()
    before = derived.files_of(tmp_path, "consumequeue")
    wanted = [r["physicalOffset"] for r in records if r["topic"] == "a"][sum(count for _, _, count in old) :]
    store = open_store(**SETTINGS)
    assert [m.phy_offset for m in store.get("a", max_count=100)] == wanted
    assert derived.files_of(tmp_path, "consumequeue") == before
    assert "consumequeue" not in caplog.text
    put = store.put("a", b"next")
    assert put.queue_offset == len(wanted)
    assert store.wait_dispatched(10) and store.max_offset("a") == len(wanted) + 1
    assert store.get("a", offset=len(wanted)).messages[0].phy_offset == put.phy_offset


@pytest.mark.parametrize("claim", [(1 << 40, 100), (400, 100), (-1, None)])
def test_a_first_unit_of_another_record_is_ignored(open_store, tmp_path, log, claim):
    """The unit points after the end of the log, into the middle, or to the last record of the queue."""
    records = lay_down(tmp_path, [], messages(("a", 0, 25), ("b", 0, 3)))
    before = derived.files_of(tmp_path, "consumequeue")
    first = tmp_path / "consumequeue/a/0" / f"{0:020d}"
    of_a = [r["physicalOffset"] for r in records if r["topic"] == "a"]
    unit = derived.UNIT.pack(claim[0] if claim[1] else of_a[-1], claim[1] or 100, 0)
    first.write_bytes(unit + first.read_bytes()[20:])
    store = open_store(**SETTINGS)
    if len(of_a) and store.wait_dispatched(10):
        assert [m.phy_offset for m in store.get("a", max_count=100)] == of_a
    assert store.put("a", b"next").queue_offset == 25
    store.close()
    after = derived.files_of(tmp_path, "consumequeue")
    for name, data in before.items():
        if "/b/" in name:
            assert after[name] == data


def test_without_queue_files_the_old_messages_come_back(open_store, tmp_path):
    """Without the queue files nothing shows that the messages were deleted: RocketMQ does the same."""
    lay_down(tmp_path, messages(("a", 0, 3)), [])
    assert open_store(**SETTINGS).max_offset("a") == 3


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([("a", 0, 3)], [("a", 0, 1)]),
        ([("a", 0, 300)], [("b", 0, 3), ("a", 0, 700)]),
        ([("a", 50, 30)], [("a", 0, 25), ("b", 0, 3)]),
        ([("a", 0, 9), ("a", 0, 4)], [("a", 0, 2)]),
    ],
)
def test_a_recreated_topic_is_valid_and_a_rebuild_changes_nothing(
    open_store, tmp_path, caplog, monkeypatch, old, new, small
):
    if not small:
        monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    lay_down(tmp_path, messages(*old), messages(("c", 0, 2), *new, ("c", 2, 2)))
    open_store(**SETTINGS).close()
    before = derived.files_of(tmp_path, "consumequeue")
    report = rocketc.verify(tmp_path)
    assert report.is_whole, report
    assert list(report.derived.made_again) == [("a", 0)]
    rocketc.rebuild(tmp_path)
    assert derived.files_of(tmp_path, "consumequeue") == before
    assert rocketc.verify(tmp_path).is_whole
    caplog.clear()
    open_store(**SETTINGS).close()
    assert caplog.text == ""
    assert derived.files_of(tmp_path, "consumequeue") == before
    shutil.rmtree(tmp_path / "consumequeue")  # now nothing shows which messages were deleted
    rocketc.rebuild(tmp_path)
    assert derived.files_of(tmp_path, "consumequeue") != before
    open_store(**SETTINGS).close()
    assert caplog.text == ""  # the earlier queues are not reported as missing


@pytest.mark.parametrize("claim", [(1 << 40, 100), (400, 100)])
def test_verify_and_rebuild_ignore_a_wrong_first_unit(open_store, tmp_path, claim):
    lay_down(tmp_path, [], messages(("a", 0, 25), ("b", 0, 3)))
    open_store(**SETTINGS).close()
    before = derived.files_of(tmp_path, "consumequeue")
    first = tmp_path / "consumequeue/a/0" / f"{0:020d}"
    first.write_bytes(derived.UNIT.pack(*claim, 0) + first.read_bytes()[20:])
    report = rocketc.verify(tmp_path)
    assert report.is_log_whole and not report.derived.is_whole
    assert report.derived.units == 27 and report.derived.made_again == {}
    rocketc.rebuild(tmp_path)
    assert derived.files_of(tmp_path, "consumequeue") == before


def test_verify_still_finds_duplicate_queue_offsets(tmp_path):
    lay_down(tmp_path, [], messages(("a", 0, 25), ("a", 20, 3)))
    report = rocketc.verify(tmp_path)
    assert [(each.start, each.stop) for each in report.duplicate_offsets] == [(20, 23)]
    assert not report.is_whole


def test_batch_queues(open_store, tmp_path):
    """A batch queue counts its units itself; its first unit shows the valid record, too."""
    records = lay_down(tmp_path, messages(("a", 0, 30)), messages(("a", 0, 7)))
    shutil.rmtree(tmp_path / "consumequeue")
    for name, data in derived.queue_files(records[30:], 200, batch=["a"], batch_size=230).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "config").mkdir()
    table = '{"topicConfigTable":{"a":{"topicName":"a","attributes":{"queue.type":"BatchCQ"}}}}'
    (tmp_path / "config/topics.json").write_text(table)
    before = derived.files_of(tmp_path, "batchconsumequeue")
    assert rocketc.verify(tmp_path).is_whole
    rocketc.rebuild(tmp_path)
    assert derived.files_of(tmp_path, "batchconsumequeue") == before
    fields = {**SETTINGS, "mapper_file_size_batch_consume_queue": 230}
    store = open_store(**fields)
    assert [m.phy_offset for m in store.get("a")] == [r["physicalOffset"] for r in records[30:]]
