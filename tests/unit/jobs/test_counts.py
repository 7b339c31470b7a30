"""GroupCounter and count(): sums by group, compared with a plain count in Python."""

import math
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import compare, expected_counts, oracle, stores, strategies

import rocketc
from rocketc.jobs._counts import DIMENSIONS, GroupCounter
from rocketc.jobs.counts import Count, count
from rocketc.read.scan import Scan

Golden = Callable[[str], stores.GoldenStore]

MIXES = [
    [],
    *([name] for name in DIMENSIONS),
    ["topic", "hour"],
    ["hour", "topic"],
    ["tag", "queue", "size"],
    ["key", "host", "minute"],
    list(DIMENSIONS),
]


def told(found: Count | GroupCounter) -> expected_counts.Groups:
    """Return the groups in the form of expected_counts.count(), each once."""
    rows = [tuple(group) for group in found]
    out = {row[0]: list(row[1:]) for row in rows}
    assert len(out) == len(rows) == len(found)
    return out


def fed(scan: Scan, by: Iterable[str], **options: Any) -> GroupCounter:
    """Return a GroupCounter of all batches of a scan."""
    tally = GroupCounter(by, **options)
    for batch in scan.run(tally.columns).batches():
        tally.add(batch)
    return tally


def records_of(store: stores.GoldenStore, crc: str = "body") -> list[oracle.Record]:
    """Return all readable messages, as read by the oracle."""
    walked = oracle.walk_log(oracle.read_log(store.path / "commitlog"), crc=crc)
    return oracle.records(compare.expected(walked, decompress=False))


@pytest.mark.some(5)
@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_stores_by_every_dimension(golden: Golden, name: str) -> None:
    store = golden(name)
    records = records_of(store, crc="none")
    for by in MIXES:
        found = count(rocketc.scan(store.path, crc="none", errors="skip"), by)
        assert told(found) == expected_counts.count(records, by), by
        assert found.by == tuple(by)
    assert list(found.total[1:]) == expected_counts.count(records, [])[()]
    assert found.more.messages == 0
    check_percentiles(found, records)


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_stores_as_read_by_rocketmq(golden: Golden, name: str) -> None:
    """Without the wrapper records of inner batches: RocketMQ's output has one line for such a record."""
    store = golden(name)
    lines: dict[tuple[str, int], list[int]] = {}
    for record in store.messages:
        group = lines.setdefault((record["topic"], record["queueId"]), [0, 0])
        group[0] += 1
        group[1] += record["size"]
    found = count(rocketc.scan(store.path, unwrap=False), ["topic", "queue"])
    assert {key: group[:2] for key, group in told(found).items()} == lines
    assert found.report.records == sum(n for n, _ in lines.values())


def check_percentiles(found: Count | GroupCounter, records: Iterable[oracle.Record]) -> None:
    """The documented accuracy: a percentile is at least the true value and at most 1/32 larger."""
    sizes = expected_counts.sizes(records)
    for part in (0, 0.001, 0.5, 0.9, 0.99, 1):
        true = sizes[max(math.ceil(part * len(sizes)) - 1, 0)]
        said = found.percentile(part)
        assert said is not None and true <= said <= true + true / 32
    assert found.percentile(1) == sizes[-1]


@settings(max_examples=25)
@given(
    log=strategies.logs(odd=False),
    by=st.lists(st.sampled_from(DIMENSIONS), unique=True, max_size=4),
    unwrap=st.booleans(),
)
def test_any_log(log: strategies.Log, by: list[str], unwrap: bool) -> None:
    records = oracle.records(compare.expected(oracle.walk_log(log.files), decompress=False, unwrap=unwrap))
    tally = GroupCounter(by)
    for base, data in log.files:
        scan = rocketc.decode(data, base, errors="skip", unwrap=unwrap, batch_bytes=600)
        for batch in scan.run(tally.columns).batches():
            tally.add(batch)
        tally.end_file()
    assert told(tally) == expected_counts.count(records, by)
    if records:
        check_percentiles(tally, records)


def test_the_size_of_an_inner_batch_counts_once() -> None:
    entries = [(0, b"a", {"TAGS": "A"}), (0, b"b", {"TAGS": "B"}), (0, b"c", {"TAGS": "A"})]
    data = oracle.encode_inner_batch("t", entries)
    first = len(data)
    data += oracle.encode_inner_batch("t", entries[:1], phy_offset=first)
    assert [group[:3] for group in fed(rocketc.decode(data), ["tag"])] == [(("A",), 3, len(data)), (("B",), 1, 0)]


def test_the_record_at_the_same_offset_of_another_file_counts() -> None:
    data = oracle.encode_inner_batch("t", [(0, b"a", {})])
    tally = GroupCounter()
    for again in (False, True):
        for batch in rocketc.decode(data).run(tally.columns).batches():
            tally.add(batch)
        assert tally.total[2] == len(data) * (1 + again)
        tally.end_file()


def test_each_copy_of_a_file_is_counted(tmp_path: Path) -> None:
    data = oracle.encode_inner_batch("t", [(0, b"a", {})])
    paths = [tmp_path / name for name in ("first", "second")]
    for path in paths:
        path.write_bytes(data)
    assert count(rocketc.scan(paths), threads=1).total[1:3] == (2, 2 * len(data))


def test_times_before_1970_and_out_of_range() -> None:
    times = [-1, 0, -(24 * 3_600_000), 59_999, (1 << 63) - 1, -(1 << 63)]
    data = b""
    for when in times:
        data += oracle.encode("t", b"", store_timestamp=when, phy_offset=len(data))
    minutes = [(group[0][0], group[1]) for group in fed(rocketc.decode(data), ["minute"])]
    assert minutes == [(-60_000, 1), (0, 2), (-86_400_000, 1), (None, 2)]
    assert fed(rocketc.decode(data), []).total[3:5] == (-86_400_000, 59_999)
    [none] = fed(rocketc.decode(oracle.encode("t", b"", store_timestamp=1 << 62)), ["day"])
    assert none == ((None,), 1, 92, None, None, 92, 92)


def test_every_size_has_a_bucket() -> None:
    """Sizes around each power of two, each counted alone: the percentile is the size itself."""
    for power in range(7, 20):
        for size in {(1 << power) - 1, 1 << power, (1 << power) + 1, (1 << power) * 3 // 2, 91, 92}:
            [group] = tally = fed(rocketc.decode(oracle.encode("", b"x" * (size - 91))), ["size"])
            assert group == ((1 << (size.bit_length() - 1),), 1, size, 0, 0, size, size)
            assert tally.percentile(0.5) == size


def distinct(number: int) -> bytes:
    """Return a log in which each message has its own key."""
    data = bytearray()
    for n in range(number):
        data += rocketc.encode("t", b"", properties={"KEYS": f"k{n}"}, phy_offset=len(data))
    return bytes(data)


def test_many_groups() -> None:
    tally = fed(rocketc.decode(distinct(20_000), batch_bytes=10_000), ["key"])
    assert [group[:2] for group in tally] == [((f"k{n}",), 1) for n in range(20_000)]


def test_groups_beyond_the_limit_are_counted_together() -> None:
    data = distinct(100)
    tally = fed(rocketc.decode(data + distinct_again(data)), ["key"], max_groups=60)
    assert [group[:2] for group in tally] == [((f"k{n}",), 2 if n < 50 else 1) for n in range(60)]
    assert tally.more[:2] == ((), 40)
    assert tally.total[1] == 150 == sum(group[1] for group in tally) + tally.more[1]
    assert tally.total[2] == sum(group[2] for group in tally) + tally.more[2]


def distinct_again(behind: bytes) -> bytes:
    data = bytearray()
    for n in range(50):
        data += rocketc.encode("t", b"", properties={"KEYS": f"k{n}"}, phy_offset=len(behind) + len(data))
    return bytes(data)


@pytest.mark.parametrize("by_messages", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3, 16, 17, 1000])
def test_the_largest_groups(golden: Golden, number: int, by_messages: bool) -> None:
    found = count(rocketc.scan(golden("v533-broker").path), ["topic"])
    columns = ("messages", "bytes") if by_messages else ("bytes", "messages")
    ordered = sorted(found, key=lambda group: [-getattr(group, name) for name in columns])
    groups, rest = found.largest(number, by_messages)
    assert groups == ordered[:number]
    assert rest.messages == sum(group.messages for group in ordered[number:])
    assert rest.bytes == sum(group.bytes for group in ordered[number:])
    assert rest.first == min((group.first for group in ordered[number:] if group.first), default=None)
    assert rest.largest == max((group.largest for group in ordered[number:] if group.largest), default=None)


def test_the_order_of_equal_groups_is_stable() -> None:
    data = distinct(500)
    tally = fed(rocketc.decode(data, start=20_000), ["key"])
    tally.merge(fed(rocketc.decode(data, stop=20_000), ["key"]))
    again = fed(rocketc.decode(data), ["key"])
    assert [group[0] for group in tally] != [group[0] for group in again]
    assert tally.largest(30) == again.largest(30)
    few = fed(rocketc.decode(data), ["key"], max_groups=10)
    assert few.largest(10)[1] == few.more
    assert few.largest(4)[1][1] == 496


def test_merging_equals_counting_both() -> None:
    data = distinct(100)
    both = rocketc.decode(data)
    first, second = (fed(scan, ["key", "hour"]) for scan in (rocketc.decode(data, stop=5000), both))
    alone = told(first)
    first.merge(second)
    expected = told(second)
    for key, group in alone.items():
        expected[key][:2] = [expected[key][0] + group[0], expected[key][1] + group[1]]
    assert told(first) == expected
    assert first.total[1] == 100 + len(alone)
    assert first.percentile(1) == second.percentile(1)


def test_merging_keeps_the_limit() -> None:
    data = distinct(100)
    half = fed(rocketc.decode(data, stop=5000), ["key"], max_groups=70)
    known = len(half)
    half.merge(fed(rocketc.decode(data, start=5000), ["key"], max_groups=20))
    assert len(half) == min(70, known + 20)
    assert half.total[1] == 100 == sum(group[1] for group in half) + half.more[1]
    with pytest.raises(ValueError, match="cannot merge the dimensions"):
        half.merge(GroupCounter(["topic"]))


def test_no_messages() -> None:
    tally = fed(rocketc.decode(b""), ["topic"])
    assert (list(tally), len(tally), tally.percentile(0.5)) == ([], 0, None)
    assert tally.total == ((), 0, 0, None, None, None, None)
    found = count(rocketc.decode(b""))
    assert (list(found), found.report.records) == ([], 0)


def test_missing_and_empty_texts_are_different_groups() -> None:
    data = oracle.encode("", b"", properties={"KEYS": "k"})
    data += oracle.encode("(none)", b"", properties={"TAGS": "(none)"}, phy_offset=len(data))
    groups = [group[0] for group in fed(rocketc.decode(data), ["topic", "tag", "key"])]
    assert groups == [("", None, "k"), ("(none)", "(none)", None)]


def test_parts_of_a_group_key_are_separated() -> None:
    data = b""
    for topic, tag in (("a", "bc"), ("ab", "c"), ("abc", None)):
        data += oracle.encode(topic, b"", properties={"TAGS": tag}, phy_offset=len(data))
    assert len(fed(rocketc.decode(data), ["topic", "tag"])) == 3


@pytest.mark.parametrize(
    ("by", "told"),
    [
        (["topc"], "by: unknown dimension 'topc'; the dimensions are topic, queue, broker, tag"),
        (["topic", "topic"], "by: a name is given twice"),
    ],
)
def test_wrong_names(by: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        GroupCounter(by)


@pytest.mark.parametrize("groups", [0, 1 << 31])
def test_wrong_bounds(groups: int) -> None:
    with pytest.raises(ValueError, match="max_groups"):
        GroupCounter([], groups)


def test_a_batch_without_the_columns() -> None:
    [batch] = rocketc.decode(oracle.encode("t", b"")).run(["topic"]).batches()
    with pytest.raises(ValueError, match="the columns topic, physicalOffset, storeTimestamp, sysFlag, storeSize"):
        GroupCounter(["topic"]).add(batch)


# ---------------------------------------------------------------- several files


@pytest.mark.parametrize("threads", [1, 2, 3, 50, None])
def test_threads_count_the_same(golden: Golden, threads: int | None) -> None:
    store = golden("v533-broker")
    scan = rocketc.scan(store.path)
    found = count(scan, ["topic", "hour"], threads=threads)
    alone = count(scan, ["topic", "hour"], threads=1)
    assert told(found) == told(alone) == expected_counts.count(records_of(store), ["topic", "hour"])
    assert found.report == alone.report
    assert found.percentile(0.9) == alone.percentile(0.9)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_ends_all_threads(golden: Golden, threads: int) -> None:
    before = set(threading.enumerate())
    with pytest.raises(rocketc.CorruptRecordError):
        count(rocketc.scan(golden("v533-bitrot").path), threads=threads)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_filters_and_predicates_are_those_of_the_scan(golden: Golden) -> None:
    store = golden("v533-broker")
    records = [r for r in records_of(store) if r["tags"] is not None]
    [tag] = {r["tags"] for r in records[:1]}
    kept = [r for r in records if r["tags"] == tag]
    assert kept
    found = count(rocketc.scan(store.path, tags=tag), ["topic"])
    asked = count(rocketc.scan(store.path, where=lambda m: m.tags == tag), ["topic"])
    assert told(found) == told(asked) == expected_counts.count(kept, ["topic"])
