"""What an archive writes of the spans of queues: rows, counts, damage, losses, and where it ended."""

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rocketc
from rocketc.client.pull_decisions import PullStatus
from rocketc.client.queue_spans import Span
from rocketc.client.routes import MessageQueue
from rocketc.client.topic_reader import Place, Pulled, QueueRange
from rocketc.errors import AnswerError, MissingCodecError, NotSentError
from rocketc.exports.archive_queues import MISSING_MESSAGES, QueueDamage, Reached
from rocketc.exports.archive_spans import SpansJob, Written, as_json, from_json, moved, write_spans
from rocketc.read._pulled_records import record_places
from rocketc.remoting.codes import Code

DAY = 86_400_000
COLUMNS = ("topic", "queueId", "queueOffset", "body", "storeTimestamp")
ONE, TWO = MessageQueue("orders", "broker-a", 0), MessageQueue("bills", "broker-b", 1)


class Loop:
    """Runs coroutines, as LoopThread."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()

    def run(self, work):
        return self._loop.run_until_complete(work)

    def close(self):
        self._loop.close()


@pytest.fixture
def loop():
    one = Loop()
    yield one
    one.close()


def record(queue, offset, body=b"body", stored=20_000 * DAY, **more):
    how = {"queue_id": queue.queue_id, "queue_offset": offset, "phy_offset": 1000 * offset + 1, **more}
    return rocketc.encode(queue.topic, body, store_timestamp=stored, **how)


class Cluster:
    """A TopicReader with the records of queues: queue -> queue offset -> record."""

    def __init__(self, queues, most=3):
        self.queues, self.most, self.begins, self.errors = queues, most, {}, {}

    def is_known(self, topic):
        return True

    async def find(self, topic):
        return topic

    async def range_of(self, queue):
        return QueueRange(self.begins.get(queue, 0), max(self.queues[queue], default=-1) + 1)

    async def pull_surely(self, queue, offset, most=32, **how):
        if (queue, offset) in self.errors:
            raise self.errors[queue, offset]
        found = [at for at in sorted(self.queues[queue]) if at >= offset][: min(most, self.most)]
        if not found:
            return Pulled(PullStatus.OFFSET_ILLEGAL, b"", (), offset)
        body = b"".join(self.queues[queue][at] for at in found)
        places, end = record_places(body, Place)
        behind = 1 + (places[-1].queue_offset if places else offset)  # as TopicReader: bytes may follow
        return Pulled(PullStatus.FOUND, body, places, found[-1] + 1 if end == len(body) else behind)


def written(loop, cluster, spans, staging, **how):
    return write_spans(loop, cluster, spans, SpansJob(str(staging), "part-1", COLUMNS, {}, **how))


def rows(staging, found):
    out = []
    for path, size, count in found.files:
        table = pq.read_table(staging / path, partitioning=None)
        assert (table.num_rows, (staging / path).stat().st_size) == (count, size)
        out += [(path.split("/")[1:3], *row.values()) for row in table.to_pylist()]
    return sorted((folder[0], folder[1], queue, offset, body) for folder, queue, offset, body, _ in out)


def test_rows_counts_and_ends(loop, tmp_path):
    cluster = Cluster(
        {ONE: {at: record(ONE, at, stored=20_000 * DAY + at * DAY // 4) for at in range(8)}, TWO: {3: record(TWO, 3)}}
    )
    found = written(loop, cluster, [Span(ONE, 2, 7), Span(TWO, 3, 4)], tmp_path)
    assert rows(tmp_path, found) == [
        ("topic=bills", "date=2024-10-04", 1, 3, b"body"),
        *(("topic=orders", f"date=2024-10-0{4 + at // 4}", 0, at, b"body") for at in range(2, 7)),
    ]
    size = len(record(ONE, 0))
    us = 20_000 * DAY * 1000
    assert sorted(found.statistics) == [
        ["bills", 20_000, 1, len(record(TWO, 3)), us, us],
        ["orders", 20_000, 2, 2 * size, us + DAY * 500, us + DAY * 750],
        ["orders", 20_001, 3, 3 * size, us + DAY * 1000, us + DAY * 1500],
    ]
    assert [(span, position, last.phy_offset) for span, position, last in found.reached] == [
        (Span(ONE, 2, 7), 7, 6001), (Span(TWO, 3, 4), 4, 3001)
    ]  # fmt: skip
    assert (found.size, found.messages, found.damage) == (5 * size + len(record(TWO, 3)), 6, [])
    assert from_json(as_json(found)) == found


def test_it_ends_at_a_message_after_the_wanted_bytes(loop, tmp_path):
    cluster = Cluster({ONE: {at: record(ONE, at) for at in range(20)}, TWO: {at: record(TWO, at) for at in range(9)}})
    found = written(loop, cluster, [Span(ONE, 0, 20), Span(TWO, 0, 9)], tmp_path, most_bytes=700)
    ends = {span.queue: position for span, position, _ in found.reached}
    assert ends == {ONE: 6, TWO: 3} and [row[3] for row in rows(tmp_path, found)] == [*range(3), *range(6)]
    states = moved({ONE: Reached(0), TWO: Reached(0)}, [found])
    assert [one.next_offset for one in states.values()] == [6, 3]
    rest = written(loop, cluster, [Span(ONE, 6, 20), Span(TWO, 3, 9)], tmp_path)
    assert [row[3] for row in rows(tmp_path, rest)] == [*range(3, 9), *range(6, 20)]


def test_a_damaged_record_is_left_out_and_named(loop, tmp_path):
    damaged = bytearray(record(ONE, 4))
    damaged[90] ^= 1
    queue = {at: record(ONE, at) for at in range(12)} | {4: bytes(damaged), 9: bytes(100), 11: bytes(100)}
    found = written(loop, Cluster({ONE: queue}, most=30), [Span(ONE, 0, 12)], tmp_path)
    assert [row[3] for row in rows(tmp_path, found)] == [0, 1, 2, 3, 5, 6, 7, 8, 10]
    reasons = [(4, 5, "bad_body_crc"), (9, 10, "bad_magic"), (11, 12, MISSING_MESSAGES)]
    assert found.damage == [QueueDamage(*ONE, *one) for one in reasons] and found.reached[0][1] == 12


def test_messages_that_are_deleted_while_they_are_read(loop, tmp_path):
    cluster = Cluster({ONE: {at: record(ONE, at) for at in range(7, 10)}})
    cluster.begins[ONE] = 7
    found = written(loop, cluster, [Span(ONE, 5, 10)], tmp_path)
    assert found.damage == [QueueDamage(*ONE, 5, 7, MISSING_MESSAGES)]
    assert [row[3] for row in rows(tmp_path, found)] == [7, 8, 9] and found.reached[0][1] == 10


def test_a_queue_that_gets_shorter_loses_nothing(loop, tmp_path, monkeypatch):
    monkeypatch.setattr("rocketc.client.queue_spans._PAUSE", 0)
    cluster = Cluster({ONE: {at: record(ONE, at) for at in range(5)}})
    found = written(loop, cluster, [Span(ONE, 2, 10)], tmp_path)
    assert (found.damage, found.reached[0][1], found.messages) == ([], 5, 3)


def test_a_broker_that_goes_down_ends_its_span(loop, tmp_path, caplog):
    cluster = Cluster({ONE: {at: record(ONE, at) for at in range(9)}, TWO: {at: record(TWO, at) for at in range(9)}})
    cluster.errors[ONE, 3] = NotSentError("127.0.0.1:1: refused")
    spans = [Span(ONE, 0, 9), Span(TWO, 0, 9)]
    found = written(loop, cluster, spans, tmp_path)
    assert [(position, found.damage) for _, position, _ in found.reached] == [(3, []), (9, [])]
    assert [row[3] for row in rows(tmp_path, found)] == [*range(9), *range(3)]
    assert "the queues on broker-a wait: 127.0.0.1:1: refused" in caplog.text
    deleted = AnswerError("127.0.0.1:1", "no topic", Code.TOPIC_NOT_EXIST)
    cluster.errors[ONE, 3] = deleted
    assert [position for _, position, _ in written(loop, cluster, spans, tmp_path).reached] == [3, 9]
    assert f"orders queue 0 on broker-a waits: {deleted}" in caplog.text
    cluster.errors[ONE, 3] = AnswerError("127.0.0.1:1", "no permission", Code.NO_PERMISSION)
    with pytest.raises(AnswerError):
        written(loop, cluster, spans, tmp_path)


def test_a_broker_that_is_down_is_asked_once(loop, tmp_path, caplog):
    queues = {MessageQueue("orders", broker, number): {} for broker in ("broker-a", "broker-b") for number in range(9)}
    cluster = Cluster({queue: {at: record(queue, at) for at in range(3)} for queue in queues})
    cluster.errors = {(queue, 0): NotSentError("127.0.0.1:1: refused") for queue in queues if queue[1] == "broker-a"}
    found = written(loop, cluster, [Span(queue, 0, 3) for queue in queues], tmp_path)
    ends = {span.queue: position for span, position, _ in found.reached}
    assert [ends.get(queue, 0) for queue in queues] == [0] * 9 + [3] * 9
    assert caplog.text.count("the queues on broker-a wait") == 1


def test_where_it_waits_for_brokers_an_error_leaves_no_files(loop, tmp_path, monkeypatch):
    monkeypatch.setattr("rocketc.exports.archive_spans.REACH_SECONDS", 0)
    cluster = Cluster({ONE: {at: record(ONE, at) for at in range(9)}})
    cluster.errors[ONE, 3] = NotSentError("127.0.0.1:1: refused")
    with pytest.raises(NotSentError):
        written(loop, cluster, [Span(ONE, 0, 9)], tmp_path, waits=True)
    assert list(tmp_path.iterdir()) == []


def test_an_error_after_a_check_moves_nothing(loop, tmp_path):
    """The broker answers with later messages, and goes down before it says where the queue begins."""
    cluster = Cluster({ONE: {at: record(ONE, at) for at in (0, 1, 2, 5, 6, 7)}})
    ranges = []

    async def range_of(queue):
        ranges.append(queue)
        raise NotSentError("127.0.0.1:1: refused")

    cluster.range_of = range_of
    found = written(loop, cluster, [Span(ONE, 0, 8)], tmp_path)
    assert (found.reached[0][1], found.messages, found.damage, len(ranges)) == (3, 3, [], 1)


def test_a_missing_codec_ends_the_run(loop, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "backports.zstd", None)
    monkeypatch.setitem(__import__("sys").modules, "compression.zstd", None)
    cluster = Cluster({ONE: {0: record(ONE, 0, sys_flag=0x1 | 2 << 8)}})
    with pytest.raises(MissingCodecError, match="orders queue 0 on broker-a: the library for a compressed body"):
        written(loop, cluster, [Span(ONE, 0, 1)], tmp_path)
    assert not list(Path(tmp_path).rglob("*.parquet"))


def test_spans_of_a_queue_must_follow_one_another():
    parts = [Written(reached=[(Span(ONE, 3, 6), 6, None)]), Written(reached=[(Span(ONE, 0, 3), 2, None)])]
    with pytest.raises(ValueError, match="ended at queue offset 2 while it was read"):
        moved({ONE: Reached(0)}, parts)
    parts[1].reached = [(Span(ONE, 0, 3), 3, Place(1, 2, 2, 0, 1))]
    assert moved({ONE: Reached(0), TWO: Reached(5)}, parts) == {ONE: Reached(6, 2, 1, 2), TWO: Reached(5)}
