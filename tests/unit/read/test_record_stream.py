"""RecordStream: records from anywhere in the log, with the filters, columns and reports of a scan."""

import pickle
import warnings
from typing import NamedTuple

import pytest

import rocketc
from rocketc.errors import CorruptRecordError, DamageWarning
from rocketc.read._pulled_records import cut_records, data_size, record_places
from rocketc.read.record_stream import RecordStream


def record(i, **more):
    options = {"queue_offset": i, "phy_offset": 5000 - 100 * i, "store_timestamp": 1000 + i, **more}
    return rocketc.encode("orders", b"body %d" % i, **options)


def stream(*blocks, **options):
    return RecordStream("a test", lambda idle: iter(blocks), **options)


def damaged(i):
    return record(i).replace(b"body", b"bodx")


def test_the_messages_have_their_own_offsets():
    found = list(stream(record(0) + record(3), record(1)))
    assert [(m.body, m.queue_offset, m.phy_offset) for m in found] == [
        (b"body 0", 0, 5000), (b"body 3", 3, 4700), (b"body 1", 1, 4900),
    ]  # fmt: skip
    assert found[0].file is None


def test_more_records_than_a_block_has():
    block = b"".join(record(i, phy_offset=i) for i in range(1000))
    one = stream(block)
    assert [m.queue_offset for m in one] == list(range(1000))
    assert one.count() == 1000
    report = one.report
    assert (report.records, report.bytes, report.damage, report.end) == (1000, len(block), [], None)


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"tags": "web"}, [0]),
        ({"keys": "k1"}, [1]),
        ({"sql": "TAGS = 'web' OR KEYS IS NOT NULL"}, [0, 1]),
        ({"queues": 2}, [2]),
        ({"begin": 1001, "end": 1002}, [1]),
        ({"where": lambda m: b"2" in m.body}, [2]),
    ],
)
def test_filters_are_those_of_a_scan(options, numbers):
    block = record(0, properties={"TAGS": "web"}) + record(1, properties={"KEYS": "k1"}) + record(2, queue_id=2)
    assert [m.queue_offset for m in stream(block, **options)] == numbers
    assert stream(block, **options).to_arrow()["queueOffset"].to_pylist() == numbers


def test_columns_are_those_of_a_scan():
    assert stream(record(4), columns=["topic", "body", "physicalOffset"]).to_arrow().to_pylist() == [
        {"topic": "orders", "body": b"body 4", "physicalOffset": 4600}
    ]


def test_a_record_with_a_wrong_crc_is_left_out():
    one = stream(record(0) + damaged(1) + record(2), errors="skip")
    assert [m.queue_offset for m in one] == [0, 2]
    size = len(record(1))
    assert [(d.start, d.stop, d.reason) for d in one.report.damage] == [(4900, 4900 + size, "bad_body_crc")]
    assert [m.body for m in stream(damaged(1), crc="none")] == [b"bodx 1"]


def test_nothing_is_read_after_a_record_with_an_impossible_length():
    one = stream(record(0) + b"\x00\x00\x00\x05rest" + record(1), record(2), errors="report")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        assert [m.queue_offset for m in one] == [0, 2]
    [lost] = one.report.damage
    assert lost.start == 5000 + len(record(0))
    assert lost.stop - lost.start == 8 + len(record(1))
    assert [each.category for each in noted] == [DamageWarning]


@pytest.mark.parametrize("rest", [bytes(100), b"\x00\x00\x00\x20\xcb\xd4\x31\x94" + bytes(24)])
def test_zeros_and_blank_records_are_damage(rest):
    one = stream(rest, errors="skip")
    assert list(one) == []
    assert [(d.start, d.stop, d.reason) for d in one.report.damage] == [(0, len(rest), "bad_magic")]


def test_damage_raises():
    with pytest.raises(CorruptRecordError, match="physical offset 4900: bad_body_crc"):
        list(stream(record(0) + damaged(1)))


def test_a_body_that_cannot_be_decompressed_is_damage():
    one = stream(record(0, sys_flag=1) + record(1), errors="skip")
    assert [m.queue_offset for m in one] == [1]
    assert one.report.damage[0].start == 5000
    with pytest.raises(CorruptRecordError, match="physical offset 5000"):
        list(stream(record(0, sys_flag=1)))


def test_following_gives_the_source_the_function_to_call_while_it_waits():
    calls = []

    def source(idle):
        yield record(0)
        idle()
        yield record(1)

    one = RecordStream("a test", source)
    assert [m.queue_offset for m in one.follow(idle=lambda: calls.append(1))] == [0, 1]
    assert calls == [1]
    assert [m.queue_offset for m in RecordStream("a test", source).follow()] == [0, 1]


def test_a_stream_stays_in_its_process():
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(stream())
    assert repr(stream(tags="web")) == "<rocketc.Scan of a test, a stream, tags='web'>"


class Cut(NamedTuple):
    phy_offset: int
    store_timestamp: int
    queue_offset: int
    data: bytes | None
    is_last: bool


@pytest.mark.parametrize(
    ("end", "until", "count"),
    [(9, 9999, 4), (2, 9999, 2), (0, 9999, 0), (9, 1003, 3), (9, 1000, 0), (3, 1002, 2), ((1 << 63) - 1, -5, 0)],
)
def test_records_are_cut_before_an_offset_and_a_time(end, until, count):
    body = b"".join(map(record, range(4)))
    places, _ = record_places(body)
    found, behind, is_cut = cut_records(body, places, end, until, Cut)
    assert found == [Cut(5000 - 100 * i, 1000 + i, i, record(i), False) for i in range(count)]
    assert type(found[0]) is Cut if found else True
    assert (behind, is_cut) == (count * len(record(0)), count < 4)
    assert data_size([*found, Cut(0, 0, 0, None, False)], 10) == count * (len(record(0)) + 10)


@pytest.mark.parametrize("place", [(0, 0, 0, -1, 5), (0, 0, 0, 6, 5), (0, 0, 0, 0, 6)])
def test_a_place_that_is_not_in_the_answer(place):
    with pytest.raises(ValueError, match=r"a record is at .* of 5 bytes"):
        cut_records(b"12345", [place], 9, 9, Cut)


@pytest.mark.parametrize("places", [[(1, 2)], [5], 5, [(0, "0", 0, 0, 5)], [(0, 0, 0, None, 5)]])
def test_places_of_a_wrong_type(places):
    with pytest.raises((TypeError, ValueError)):
        cut_records(b"12345", places, 9, 9, Cut)


@pytest.mark.parametrize("cut", range(1, 99))
def test_places_end_before_a_record_that_is_cut(cut):
    whole, next_one = record(0), record(1)
    places, end = record_places(whole + next_one[:cut])
    assert places == [(5000, 1000, 0, 0, len(whole))]
    assert end == len(whole)
