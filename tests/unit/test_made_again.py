"""catch_up: a topic that was deleted and made again has each number twice in the log; its queue says which is meant."""

import derived
import oracle
import pytest

SETTINGS = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 50,
    "max_index_num": 100,
}


def messages(*runs):
    """Runs (topic, first queue offset, count) of messages, one behind the other."""
    return [
        {"topic": topic, "queue_id": 0, "body": b"%d" % at, "queue_offset": n, "store_timestamp": 1_700_000_000_000}
        for at, (topic, n) in enumerate((topic, n) for topic, first, count in runs for n in range(first, first + count))
    ]


def lay_down(root, old, new):
    """A log of the old messages and the new ones, and the queues of the new ones alone; records by topic."""
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
        monkeypatch.setattr("rocketc.catch_up.SMALL_BYTES", 0)


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
def test_its_queue_stays_as_it_is(open_store, tmp_path, caplog, log, old, new, abort):
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
def test_a_first_unit_that_claims_another_record_is_not_believed(open_store, tmp_path, log, claim):
    """Behind the log, amid it, or the last record of the queue."""
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


def test_without_its_files_the_first_messages_come_back(open_store, tmp_path):
    """Nothing tells any more that they were deleted: RocketMQ does the same."""
    lay_down(tmp_path, messages(("a", 0, 3)), [])
    assert open_store(**SETTINGS).max_offset("a") == 3
