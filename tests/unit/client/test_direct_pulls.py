"""Pulls of scans over sockets of their own: against a model, and against brokers that answer in every other way."""

import random
import socket
import threading
import time
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.client.pull_servers import FOUND, NO_MATCHED, NOT_FOUND, OFFSET_MOVED, PullServer, answer, stored

from rocketc.client._pull_queues import encode_template
from rocketc.client._pull_stream import PullStream
from rocketc.client.direct_pulls import QUEUES_MOST, DirectPulls
from rocketc.client.pull_request import PullRequest
from rocketc.client.queue_range import QueueRange
from rocketc.client.routes import MessageQueue
from rocketc.errors import ClosedError
from rocketc.read._pulled_records import record_places
from rocketc.remoting.command import Form
from rocketc.remoting.signing import Credentials, Signer

pytestmark = pytest.mark.timeout(60)

REQUEST = PullRequest("audit")


def queues_of(count, length, size=10, brokers=1):
    """Records of queues, one after the other in the log: by broker, by queue id."""
    logs = [{queue_id: [] for queue_id in range(count)} for _ in range(brokers)]
    places = [0] * brokers
    for number in range(count * length * brokers):
        broker, turn = number % brokers, number // brokers
        one = stored(turn % count, turn // count, places[broker], 1000 + number, size)
        logs[broker][turn % count].append(one)
        places[broker] += len(one.data)
    return logs


@contextmanager
def reading(servers, ranges=None, request=REQUEST, **options):
    """A reader of all queues of servers, or of the ranges by (server, queue id)."""
    queues = {
        MessageQueue("orders", f"broker-{number}", queue_id): (server, records)
        for number, server in enumerate(servers)
        for queue_id, records in server._queues.items()
    }
    chosen = {
        queue: QueueRange(records[0].queue_offset, records[-1].queue_offset + 1) if records else QueueRange(0, 0)
        for queue, (_, records) in queues.items()
    }
    for (number, queue_id), range_ in (ranges or {}).items():
        chosen[MessageQueue("orders", f"broker-{number}", queue_id)] = QueueRange(*range_)
    options = {"timeout": 5.0, **options}
    with closing(DirectPulls(request, chosen, lambda queue: queues[queue][0].address, **options)) as pulls:
        yield pulls


def all_of(pulls):
    blocks = []
    while block := pulls.next():
        blocks.append(block.records)
    return b"".join(blocks)


def in_order(logs, ranges=None, until=None):
    """What a reader of queues returns, by a slow reference: logs by server, by queue id."""
    rest = []
    for number, log in enumerate(logs):
        heads = []
        for queue_id, records in log.items():
            begin, end = (ranges or {}).get((number, queue_id), (0, 1 << 62))
            kept = []
            for one in records:
                if one.queue_offset >= end or (until is not None and one.store_timestamp >= until):
                    break
                if one.queue_offset >= begin:
                    kept.append(one)
            heads += kept
        rest.append(sorted(heads, key=lambda one: one.phy_offset))
    found = []
    while any(rest):
        first = min((log for log in rest if log), key=lambda log: log[0].store_timestamp)
        found.append(first.pop(0))
    return found


def data_of(records):
    return b"".join(one.data for one in records)


@given(st.data())
def test_records_come_in_order_whatever_the_brokers_do(data):
    draw = data.draw
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    logs, ranges = [], {}
    for number in range(draw(st.integers(1, 3))):
        offsets = {queue_id: chance.choice((0, 7, 1 << 40)) for queue_id in range(draw(st.integers(1, 5)))}
        log = {queue_id: [] for queue_id in offsets}
        place, when = 0, 1000
        for _ in range(draw(st.integers(0, 150))):
            queue_id = chance.choice(list(log))
            when += chance.choice((0, 1, 1, 5))
            one = stored(queue_id, offsets[queue_id], place, 10 * when + number, chance.choice((0, 10, 3000)))
            offsets[queue_id] += 1
            place += len(one.data) + chance.choice((0, 0, 1000))
            log[queue_id].append(one)
        for queue_id, records in log.items():
            if records and chance.random() < 0.3:
                ranges[number, queue_id] = tuple(
                    sorted(records[0].queue_offset + chance.randint(0, len(records)) for _ in range(2))
                )
        logs.append(log)
    limit = chance.choice((1, 8, 32, 1000, None))
    servers = [
        PullServer(log, limit=lambda: limit or chance.randint(1, 40), chance=random.Random(chance.random()))
        for log in logs
    ]
    until = chance.choice((None, None, 10_300))
    try:
        with reading(servers, ranges, until=until) as pulls:
            assert all_of(pulls) == data_of(in_order(logs, ranges, until))
            assert pulls.left() == {}
            assert not pulls.next()
    finally:
        for server in servers:
            server.close()


def test_pulls_are_asked_ahead():
    [log] = queues_of(1, 2000)
    with PullServer(log) as server, reading([server]) as pulls:
        assert all_of(pulls) == data_of(log[0])
    assert [offset for _, offset, _ in server.asked] == list(range(0, 2000, 32))
    assert {most for *_, most in server.asked} == {32, 2000 % 32}


def test_pulls_are_as_long_as_the_answers():
    [log] = queues_of(1, 4000)
    with PullServer(log, limit=lambda: 8) as server, reading([server]) as pulls:
        assert all_of(pulls) == data_of(log[0])
    asked = [most for *_, most in server.asked]
    assert asked[:10].count(32) == 10 and asked.count(8) > 400
    assert len(asked) < 700  # the rest of an answer that is too short is asked for, and a longer one now and then


def test_a_filtered_pull_waits_for_the_answer_before_it():
    [log] = queues_of(1, 400)
    with PullServer(log) as server, reading([server], request=PullRequest("audit", "web")) as pulls:
        assert all_of(pulls) == data_of(log[0])
    assert [offset for _, offset, _ in server.asked] == list(range(0, 400, 32))


def test_a_filter_that_matches_nothing_in_an_answer():
    [log] = queues_of(1, 100)

    def change(number, request, frame):
        offset = int(request.fields["queueOffset"])
        return answer(request, NO_MATCHED, b"", offset + 50) if number == 0 else frame

    with PullServer(log, change=change) as server, reading([server], request=PullRequest("audit", "web")) as pulls:
        assert all_of(pulls) == data_of(log[0][50:])
        assert pulls.left() == {}


def test_headers_in_the_binary_form():
    [log] = queues_of(2, 100)

    def change(number, request, frame):
        size = int.from_bytes(frame[4:8], "big")
        behind = next(int(text) for text in frame[8 : 8 + size].split(b'"nextBeginOffset":"')[1].split(b'"')[:1])
        return answer(request, FOUND, frame[8 + size :], behind, Form.ROCKETMQ)

    with PullServer(log, change=change) as server, reading([server]) as pulls:
        assert all_of(pulls) == data_of(in_order([log]))


def test_requests_are_signed():
    [log] = queues_of(1, 70)
    signed = []
    with PullServer(log, change=lambda number, request, frame: signed.append(request.fields) or frame) as server:
        request = PullRequest("audit", hook=Signer(Credentials("account", "secret-key")))
        with reading([server], request=request) as pulls:
            assert all_of(pulls) == data_of(log[0])
    assert {fields["AccessKey"] for fields in signed} == {"account"}
    assert len({fields["Signature"] for fields in signed}) == len(signed) > 1


def test_a_large_record_gets_a_larger_block():
    [log] = queues_of(1, 3, size=3 << 20)
    with PullServer(log) as server, reading([server]) as pulls:
        assert [pulls.next().records for _ in range(4)] == [*(one.data for one in log[0]), b""]


def test_blocks_are_about_a_mebibyte():
    [log] = queues_of(4, 1000, size=1000)
    with PullServer(log) as server, reading([server]) as pulls:
        sizes = []
        while block := pulls.next():
            sizes.append(len(block))
        assert sum(sizes) == len(data_of(in_order([log]))) and max(sizes) <= 1 << 20
        assert len(sizes) < 40


def next_offset_of(shift):
    def change(number, request, frame):
        records = [stored(0, int(request.fields["queueOffset"]) + i, 0, 1000) for i in range(4)]
        return answer(request, FOUND, data_of(records), int(request.fields["queueOffset"]) + shift)

    return change


def cut(count, size):
    """After some answers, the next one is cut, and the connection is closed."""

    def change(number, request, frame):
        if number < count:
            return frame
        return None if size is None or number > count else frame[:size]

    return change


def later(request):
    """The offset after the messages of a pull."""
    return int(request.fields["queueOffset"]) + int(request.fields["maxMsgNums"])


STRANGE = {
    "another code": lambda number, request, frame: answer(request, NOT_FOUND, b"", 0),
    "the offset is gone": lambda number, request, frame: answer(request, OFFSET_MOVED, b"", later(request)),
    "nothing matched, without a filter": lambda number, request, frame: answer(
        request, NO_MATCHED, b"", later(request)
    ),
    "found, without messages": lambda number, request, frame: answer(request, FOUND, b"", later(request)),
    "the next offset is the same": next_offset_of(0),
    "the next offset is lower": next_offset_of(-5),
    "not a frame": lambda number, request, frame: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a frame of 2 GiB": lambda number, request, frame: b"\x7f\xff\xff\xff" + frame[4:],
    "a header longer than its frame": lambda number, request, frame: frame[:4] + b"\0\xff\xff\xff" + frame[8:],
    "a header that is not JSON": lambda number, request, frame: frame[:8] + b"x" + frame[9:],
    "a request": lambda number, request, frame: request.encode(),
    "an answer to no request": lambda number, request, frame: frame.replace(
        b'"opaque":%d' % request.opaque, b'"opaque":%d' % (request.opaque + 500)
    ),
    "an answer to a queue that is not there": lambda number, request, frame: frame.replace(
        b'"opaque":%d' % request.opaque, b'"opaque":1099999999'
    ),
    "two answers": lambda number, request, frame: frame + frame,
    "without the next offset": lambda number, request, frame: frame.replace(b"nextBeginOffset", b"nextBeginOffsex"),
    "a next offset that is not a number": lambda number, request, frame: frame.replace(
        b'"nextBeginOffset":"', b'"nextBeginOffset":"x'
    ),
    "a body that is not records": lambda number, request, frame: answer(request, FOUND, b"x" * 200, later(request)),
    "a record that is cut": lambda number, request, frame: answer(
        request, FOUND, stored(0, 0, 0, 1).data[:-1], later(request)
    ),
    "a message before its pull": lambda number, request, frame: answer(
        request, FOUND, stored(0, int(request.fields["queueOffset"]) - 1, 0, 1).data, later(request)
    ),
}


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("what", STRANGE)
def test_it_stops_at_a_strange_answer(what, at):
    [log] = queues_of(1, 1000)
    change = STRANGE[what]
    server = PullServer(log, change=lambda n, request, frame: frame if n <= at else change(n, request, frame))
    with server, reading([server]) as pulls:
        found = all_of(pulls)
        [(_, left)] = pulls.left().items()
    places, _ = record_places(found)
    assert found == data_of(log[0][: len(places)])
    assert left == QueueRange(len(places), 1000) and len(places) <= 32 * (at + 4)


def test_a_broker_that_doubles_messages_by_its_next_offset():
    [log] = queues_of(1, 200)

    def change(number, request, frame):
        offset = int(request.fields["queueOffset"])
        records = log[0][offset : offset + int(request.fields["maxMsgNums"])]
        return answer(request, FOUND, data_of(records), offset + 1 + len(records) // 2)

    with PullServer(log, change=change) as server, reading([server]) as pulls:
        assert all_of(pulls) == data_of(log[0])


@pytest.mark.parametrize("size", [None, 0, 1, 4, 7, 8, 20, 500])
def test_a_connection_that_ends(size):
    [log] = queues_of(2, 500)
    server = PullServer(log, change=cut(20, size))
    with server, reading([server]) as pulls:
        found = all_of(pulls)
        left = {queue.queue_id: range.begin for queue, range in pulls.left().items()}
    places, _ = record_places(found)
    assert len(places) >= 1 and found == data_of(in_order([log])[: len(places)])
    assert sum(left.values()) == len(places)


def test_a_gap_stops_a_reader_that_must_not_lose_messages():
    [log] = queues_of(1, 300)
    log = {0: log[0][:96] + log[0][100:]}
    for stops, count in ((False, 296), (True, 96)):
        with PullServer(log) as server, reading([server], {(0, 0): (0, 300)}, stops_at_gaps=stops) as pulls:
            assert all_of(pulls) == data_of(log[0][:count])
            left = pulls.left()
        assert left == ({} if count == 296 else {MessageQueue("orders", "broker-0", 0): QueueRange(96, 300)})


def test_a_broker_that_does_not_answer():
    [log] = queues_of(1, 300)
    with PullServer(log, change=lambda n, request, frame: frame if n < 2 else b"") as server:
        began = time.monotonic()
        with reading([server], timeout=0.2) as pulls:
            assert all_of(pulls) == data_of(log[0][:64])
            assert [range.begin for range in pulls.left().values()] == [64]
        assert 0.15 < time.monotonic() - began < 5


def test_what_the_check_raises_ends_a_wait():
    [log] = queues_of(1, 300)
    closed = threading.Event()

    def check():
        if closed.is_set():
            raise ClosedError("the scan is closed")

    with PullServer(log, change=lambda n, request, frame: b"") as server, reading([server], check=check) as pulls:
        threading.Timer(0.1, closed.set).start()
        with pytest.raises(ClosedError):
            pulls.next()


def test_a_port_where_nothing_listens():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    queue = MessageQueue("orders", "broker-a", 0)
    with pytest.raises(OSError):
        DirectPulls(PullRequest("audit"), {queue: QueueRange(0, 1)}, lambda queue: address, timeout=1)


def test_a_socket_that_is_not_open():
    template = encode_template(b"12345678offset 17, most 23, opaque 42", b"17", b"23", b"42")
    stream = PullStream([1 << 20], [(0, 0, 5, template)], until=1 << 62, timeout=1000, is_filtered=False)
    assert stream.next() == b"" and stream.why == "the connection is lost"
    assert stream.positions() == [0]


def test_many_queues_share_what_is_under_way():
    [log] = queues_of(QUEUES_MOST, 5)
    with PullServer(log) as server, reading([server]) as pulls:
        assert all_of(pulls) == data_of(in_order([log]))


@pytest.mark.parametrize(
    ("fds", "queues", "text"),
    [
        ([0], [(0, 0, 1, ((b"",) * 4, (0, 1, 2)))] * 257, "257 queues; at most 256 are allowed"),
        ([0], [(1, 0, 1, ((b"",) * 4, (0, 1, 2)))], "queue 0 has an invalid link or template"),
        ([0], [(0, 0, 1, ((b"",) * 3, (0, 1, 2)))], "queue 0 has an invalid link or template"),
        ([0], [(0, 0, 1, ((b"",) * 4, (0, 1, 1)))], "queue 0 has an invalid link or template"),
    ],
)
def test_wrong_arguments(fds, queues, text):
    with pytest.raises(ValueError, match=text):
        PullStream(fds, queues, until=0, timeout=0, is_filtered=False)


def test_a_stream_of_nothing():
    stream = PullStream([], [], until=0, timeout=0, is_filtered=False)
    assert (stream.next(), stream.why, stream.positions()) == (b"", None, [])
    with pytest.raises(ValueError):
        stream.__init__([], [], until=0, timeout=0, is_filtered=False)
