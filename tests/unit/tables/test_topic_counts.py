"""transactionMetrics and timermetrics: RocketMQ's files, changes, and files with something else."""

import pytest
from support import stores

from rocketc.tables.topic_counts import TimerCounts, TransactionCounts

NOW = 1_700_000_000_000
WRITTEN = (
    '{"dataVersion":{"counter":17,"stateVersion":0,"timestamp":1795693039201},'
    '"transactionCount":{"T":{"count":-1,"timeStamp":1795693039201}}}'
)  # by RocketMQ 5.3.3


@pytest.fixture(params=[TransactionCounts, TimerCounts])
def kind(request):
    return request.param


def file_of(root, kind):
    (root / "config").mkdir(exist_ok=True)
    return root / "config" / kind.NAME


def test_the_timermetrics_of_rocketmq(tmp_path):
    store = stores.unpack("v533-broker", tmp_path).path
    found = TimerCounts(store, clock=lambda: NOW)
    assert found.get("Timer") == 9 and found.get("other") == 0 and found.items() == [("Timer", 9)]
    found.add("Timer", -10)
    found.add("ünï", 2)
    assert found.persist() and not found.persist()
    assert file_of(store, TimerCounts).read_text() == (
        '{"dataVersion":{"counter":73,"stateVersion":0,"timestamp":1700000000000},"timingCount":'
        '{"ünï":{"count":2,"timeStamp":1700000000000},"Timer":{"count":-1,"timeStamp":1700000000000}}}'
    )
    assert dict(TimerCounts(store).items()) == {"Timer": -1, "ünï": 2}


def test_the_transactionmetrics_of_rocketmq(tmp_path):
    path = file_of(tmp_path, TransactionCounts)
    path.write_text(WRITTEN)
    counts = TransactionCounts(tmp_path, clock=lambda: 1795693039999)
    assert counts.items() == [("T", -1)] and not counts.persist()
    counts.add("T", 1)
    assert counts.persist()
    assert path.read_text() == WRITTEN.replace(":17,", ":18,").replace("9201", "9999").replace(":-1,", ":0,")
    assert path.with_suffix(".bak").read_text() == WRITTEN


def test_a_new_file(tmp_path, kind):
    counts = kind(tmp_path, clock=lambda: 5)
    for topic, change in (("a", 1), ("b", 1), ("a", 1), ("b", -1)):
        counts.add(topic, change)
    assert counts.persist() and not counts.changed
    again = kind(tmp_path)
    assert (again.get("a"), again.get("b"), again.get("c")) == (2, 0, 0) and again.load_error is None
    assert file_of(tmp_path, kind).read_bytes().count(b"\n") == 0


@pytest.mark.parametrize(
    "entry", ["5", "{}", '{"count":"1"}', '{"count":true}', '{"count":1,"timeStamp":"x"}', "[]", "null"]
)
def test_entries_without_a_count(tmp_path, kind, entry):
    file_of(tmp_path, kind).write_text(f'{{"{kind._KEY}":{{"bad":{entry},"T":{{"count":3}}}}}}')
    counts = kind(tmp_path)
    assert counts.items() == [("T", 3)]
    assert counts.load_error is not None and "bad: not a count; it is skipped" in counts.load_error


@pytest.mark.parametrize("text", ["", "{", "[]", '{"transactionCount":5,"timingCount":5}'])
def test_a_damaged_file_is_read_as_empty(tmp_path, kind, text):
    file_of(tmp_path, kind).write_text(text)
    counts = kind(tmp_path)
    assert counts.items() == [] and counts.load_error is not None
    counts.add("T", 1)
    counts.persist()
    assert kind(tmp_path).get("T") == 1
