"""verify: each record, and the relations between records, compared with RocketMQ, the oracle and plain sets."""

import itertools
import os
import struct
import subprocess
import time
from collections import Counter, defaultdict
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import compare, oracle, stores, strategies
from support.command import GrowingLog

import rocketc
from rocketc.files._mapped_file import MappedFile
from rocketc.jobs.verify import QueueRange, _add, _Span, verify
from rocketc.read._filter import Filter
from rocketc.read._log_audit import Audit
from rocketc.read._walk import Walker

pytestmark = pytest.mark.promise(5)

T0 = 1_700_000_000_000


def queue_offsets(records):
    """(topic, queue id) -> how many times each queue offset occurs in records of the oracle, by the specification."""
    out = defaultdict(Counter)
    for r in records:
        if r["sysFlag"] & 0xC in (0x4, 0xC):  # half messages and roll-backs are not in a queue
            continue
        count = 1
        if r["sysFlag"] & oracle.INNER_BATCH:
            told = r["properties"].get("INNER_NUM", "1")
            count = int(told) if told.isascii() and told.isdigit() and 0 < int(told) < 1 << 15 else 1
        out[r["topic"], r["queueId"]].update(range(r["queueOffset"], r["queueOffset"] + count))
    return out


def gaps(offsets):
    """Return the gaps as ranges: a flipped bit can make them long."""
    order = sorted(offsets)
    return [(a + 1, b) for a, b in itertools.pairwise(order) if a + 1 < b]


def of_queue(ranges, topic, queue_id):
    return [(r.start, r.stop) for r in ranges if (r.topic, r.queue_id) == (topic, queue_id)]


def spread(ranges, topic, queue_id):
    """Return the queue offsets in the ranges of one queue."""
    return [n for start, stop in of_queue(ranges, topic, queue_id) for n in range(start, stop)]


def check_queues(report, records):
    expected = queue_offsets(records)
    assert report.queues == len(expected)
    told = {(r.topic, r.queue_id) for r in report.missing_offsets + report.duplicate_offsets}
    assert told <= set(expected)
    for (topic, queue_id), offsets in expected.items():
        assert of_queue(report.missing_offsets, topic, queue_id) == gaps(offsets)
        twice = Counter(spread(report.duplicate_offsets, topic, queue_id))
        assert twice == Counter({n: times - 1 for n, times in offsets.items() if times > 1})


def check_files(report, items, written):
    """Compare the numbers of each file with the oracle's items of the whole log."""
    before = None
    for file, (base, data, path) in zip(report.files, written, strict=False):
        own = [r for r in oracle.records(items) if r["file"] == path]
        assert (file.file, file.phy_offset, file.size, file.records) == (path, base, len(data), len(own))
        assert file.blanks == len([blank for blank in oracle.blanks(items) if blank.file == path])
        assert compare.lost(file.damage) == compare.lost(d for d in oracle.damage(items) if d.file == path)
        assert file.first_offset == (own[0]["physicalOffset"] if own else None)
        assert file.last_offset == (own[-1]["physicalOffset"] if own else None)
        times = [r["storeTimestamp"] for r in own]
        assert file.first_store_timestamp == (times[0] if own else None)
        assert file.last_store_timestamp == (times[-1] if own else None)
        steps = [(a - b, r) for a, b, r in zip([before or 0, *times], times, own, strict=False) if a > b]
        if before is None and own:
            steps = [step for step in steps if step[1] is not own[0]]
        assert file.backwards == len(steps)
        assert file.backwards_at == (steps[0][1]["physicalOffset"] if steps else None)
        assert file.backwards_ms == max((ms for ms, _ in steps), default=0)
        before = times[-1] if own else before


# ---------------------------------------------------------------- golden stores


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_stores_are_whole(golden, name):
    store = golden(name)
    report = rocketc.verify(store.path)
    assert report.is_whole and not report.is_empty
    assert report.records == len(store.messages)
    batches = (int(record["properties"].get("INNER_NUM", 1)) - 1 for record in store.messages)
    assert report.messages == len(store.messages) + sum(batches)
    assert sum(file.blanks for file in report.files) == len(store.expected) - len(store.messages)
    assert report.bytes == sum(record["size"] for record in store.expected)
    assert [file.file for file in report.files] == [str(path) for path in store.log_files]
    assert [file.end for file in report.files] == ["closed"] * (len(report.files) - 1) + ["open"]
    if name == "flights-2013-01":
        return  # the oracle would need seconds
    written = oracle.read_log(store.path / "commitlog")
    items = oracle.walk_log(written, crc="full")
    check_files(report, items, written)
    check_queues(report, oracle.records(items))


@pytest.mark.parametrize("name", ["v497-unclean", "v533-unclean"])
def test_killed_stores_are_valid_up_to_their_end(golden, name):
    store = golden(name)
    report = rocketc.verify(store.path)
    assert report.is_whole
    assert [file.end for file in report.files[-2:]] == ["open", "ahead"]
    blanks = sum(file.blanks for file in report.files)
    assert report.records + blanks == store.recovered["decodableRecordsBefore"]
    assert report.bytes == store.recovered["decodableEndBefore"]


@pytest.mark.parametrize("name", ["v497-torn", "v533-torn"])
def test_a_torn_tail_begins_where_rocketmq_cuts_it_off(golden, name):
    store = golden(name)
    report = rocketc.verify(store.path)
    assert not report.is_whole
    assert [file.end for file in report.files[-2:]] == ["torn", "ahead"]
    [damage] = report.damage
    assert damage.start == store.recovered["afterLoad"]["maxPhyOffset"]
    assert report.files[-2].damage == [damage]
    assert report.missing_offsets == []  # no later record shows a gap


def test_a_flipped_bit_is_found_with_the_missing_queue_offset(golden):
    store = golden("v533-bitrot")
    report = rocketc.verify(store.path)
    told = store.about["told"]["damage"]
    [damage] = report.damage
    assert (damage.start, damage.stop - damage.start) == (told["record"], told["size"])
    assert os.path.basename(damage.file) == told["file"]
    assert report.records == 1499
    raw = (store.path / "commitlog" / told["file"]).read_bytes()
    pos = told["record"] - int(told["file"])
    lost = oracle.record_at(raw, pos)
    [missing] = report.missing_offsets
    assert (missing.topic, missing.queue_id, missing.start) == (lost["topic"], lost["queueId"], lost["queueOffset"])
    assert missing.stop == missing.start + 1 and missing.file == damage.file
    assert missing.phy_offset > damage.start


# ---------------------------------------------------------------- against the oracle


@settings(max_examples=50)
@given(strategies.damaged_logs(most_damages=3, in_place=True), st.integers(1, 3))
def test_damaged_logs(tmp_path_factory, log, jobs):
    folder = tmp_path_factory.mktemp("log") / "commitlog"
    written = compare.write_log(folder, log.files)
    report = verify(folder, jobs=jobs)
    items = oracle.walk_log(written, crc="full")
    check_files(report, items, written)
    check_queues(report, oracle.records(items))
    lost = oracle.damage(items) or report.missing_offsets or report.duplicate_offsets
    assert report.is_whole == (not lost)


# Queue offsets are small here, so that they overlap. A kind is a sysFlag and the text of INNER_NUM.
kinds = st.sampled_from([(0, None)] * 8 + [(4, None), (8, None), (12, None)])
batches = st.sampled_from([(0xC0, "3"), (0xC0, "1"), (0xC0, "0"), (0xC0, "x"), (0xC0, ""), (0xC0, "32768"), (0, "3")])


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.one_of(kinds, batches)), max_size=60))
def test_queue_offsets_in_any_order(tmp_path_factory, chosen):
    messages = [
        {
            "topic": "t",
            "body": b"",
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "sys_flag": flag,
            "properties": None if count is None else b"INNER_NUM\x01%s\x02" % count.encode(),
        }
        for queue_id, queue_offset, (flag, count) in chosen
    ]
    folder = tmp_path_factory.mktemp("log") / "commitlog"
    written = compare.write_log(folder, oracle.lay_out(messages, 700) if messages else [(0, bytes(10))])
    report = verify(folder)
    check_queues(report, oracle.records(oracle.walk_log(written)))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=20))
def test_spans_are_sets(chosen):
    spans, seen = [], Counter()
    for first, size in chosen:
        twice = _add(spans, _Span(first, first + size, "", first))
        assert sorted(n for a, b in twice for n in range(a, b)) == sorted(set(range(first, first + size)) & set(seen))
        seen.update(range(first, first + size))
        assert all(a.behind < b.first for a, b in itertools.pairwise(spans))
        assert sorted(seen) == [n for span in spans for n in range(span.first, span.behind)]
        assert all(span.phy_offset == span.first for span in spans)


# ---------------------------------------------------------------- queue offsets


@pytest.fixture
def log(tmp_path):
    return GrowingLog(tmp_path / "store" / "commitlog", file_size=1024)


def append_at(log, queue_offset, topic="t", **fields):
    log._queues[topic, 0] = queue_offset
    return log.append(topic, b"x" * 100, **fields)


def test_a_gap_is_reported_with_the_next_record(log):
    append_at(log, 7)
    append_at(log, 8)
    at = append_at(log, 12)
    report = verify(log.folder)
    assert report.missing_offsets == [QueueRange("t", 0, 9, 12, str(log.file_at(at)), at)]
    assert report.duplicate_offsets == [] and not report.is_whole and report.damage == []


def test_a_gap_between_files(log):
    while log.end < 1024:
        log.append("t", b"x" * 100)
    first = log._queues["t", 0]
    at = append_at(log, first + 5)
    [missing] = verify(log.folder).missing_offsets
    assert (missing.start, missing.stop, missing.phy_offset) == (first, first + 5, at)
    assert missing.file == str(log.file_at(1024))


def test_a_broker_that_starts_again_at_0(log):
    """This is the case after a topic was deleted and created again."""
    for n in range(12):
        append_at(log, n)
    again = append_at(log, 0)
    for n in range(1, 15):
        append_at(log, n)
    report = verify(log.folder)
    assert [(r.start, r.stop) for r in report.duplicate_offsets if r.phy_offset == again]
    assert spread(report.duplicate_offsets, "t", 0) == list(range(12))
    assert report.missing_offsets == [] and not report.is_whole


def test_records_out_of_order_are_not_missing(log):
    for n in (0, 1, 4, 2, 3, 5):
        append_at(log, n)
    report = verify(log.folder)
    assert report.is_whole and report.missing_offsets == report.duplicate_offsets == []


def test_an_inner_batch_uses_inner_num_queue_offsets(log):
    batch = {"sys_flag": 0xC0, "properties": {"INNER_NUM": "3"}}
    append_at(log, 0, **batch)
    append_at(log, 3, **batch)
    append_at(log, 6)
    report = verify(log.folder)
    assert (report.records, report.messages, report.is_whole) == (3, 7, True)


def test_queue_offsets_at_the_limit_of_64_bits(log):
    most = (1 << 63) - 1
    for n in (-(1 << 63), most - 1, most, most):
        append_at(log, n)
    report = verify(log.folder)
    assert report.records == 4 and not report.is_whole
    [missing] = report.missing_offsets
    assert (missing.start, missing.stop) == (-(1 << 63) + 1, most - 1)


def test_two_stores_are_not_mixed(tmp_path):
    for name in "ab":
        log = GrowingLog(tmp_path / name / "commitlog")
        log.append("t", b"x")
    report = verify([tmp_path / "a", tmp_path / "b"])
    assert (report.is_whole, report.records, report.queues) == (True, 2, 2)


def test_a_part_of_a_log_may_begin_at_any_queue_offset(log):
    while log.end < 3 * 1024:
        log.append("t", b"x" * 100)
    assert verify(log.file_at(1024)).is_whole
    assert verify([log.file_at(1024), log.file_at(2048)]).is_whole
    report = verify([log.file_at(0), log.file_at(2048)])
    assert report.missing == [(1024, 2048)] and len(report.missing_offsets) == 1


def records_of(queues):
    """Records of the same size for (number of the topic, queue offset)."""
    record = bytearray(rocketc.encode("0123456", b""))
    for n, (topic, queue_offset) in enumerate(queues):
        record[20:36] = struct.pack(">qq", queue_offset, n * len(record))
        record[89:96] = b"%07d" % topic
        yield bytes(record)


def test_the_number_of_gaps_is_limited():
    """Each record starts a new run. All checks continue except that of queue offsets, and the report says so."""
    data = b"".join(records_of((0, 2 * n) for n in range(1000)))
    audit = Audit(Walker(data, 0, Filter()), gaps_max=998)
    while audit.step():
        pass
    assert (audit.records, len(audit.runs()), audit.overflowed) == (1000, 999, True)
    audit = Audit(Walker(data, 0, Filter()), gaps_max=999)
    while audit.step():
        pass
    assert (len(audit.runs()), audit.overflowed) == (1000, False)


@pytest.mark.parametrize("topics, is_incomplete", [(1000, False), (1001, True)])
def test_the_number_of_queues_is_limited(tmp_path, monkeypatch, topics, is_incomplete):
    monkeypatch.setitem(verify.__globals__, "_QUEUES_MAX", 1000)
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"".join(records_of((n, 0) for n in range(topics))))
    report = verify(path)
    assert (report.records, report.queues) == (topics, 1000)
    assert report.incomplete == is_incomplete and report.is_whole != is_incomplete


def test_the_number_of_queues_of_all_files_is_limited(tmp_path, monkeypatch):
    monkeypatch.setitem(verify.__globals__, "_QUEUES_MAX", 1000)
    records = list(records_of((n, 0) for n in range(1200)))
    for first in (0, 600):
        (tmp_path / f"{first * len(records[0]):020d}").write_bytes(b"".join(records[first : first + 600]))
    report = verify(tmp_path)
    assert (report.records, report.queues, report.incomplete) == (1200, 1000, True)


def test_many_queues_that_are_intact_are_not_too_many(tmp_path):
    """Each queue has one record: as many runs as queues, and no gap."""
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"".join(records_of((n, 0) for n in range((1 << 17) + 1))))
    report = verify(path)
    assert report.is_whole and report.queues == (1 << 17) + 1


def test_the_number_of_gaps_in_all_files_is_limited(log, monkeypatch):
    monkeypatch.setitem(verify.__globals__, "_GAPS_MAX", 1)
    for n in (0, 2, 4, 6):
        append_at(log, n)
    report = verify(log.folder)
    assert report.incomplete and len(report.missing_offsets) == 1


# ---------------------------------------------------------------- time


def test_a_clock_that_was_set_back_is_reported_and_is_not_damage(log):
    stamps = [5, 5, 4, 9, 1, 2]
    places = [log.append("t", b"x" * 10, store_timestamp=T0 + stamp) for stamp in stamps]
    report = verify(log.folder)
    [file] = report.files
    assert (file.backwards, file.backwards_at, file.backwards_ms) == (2, places[2], 8)
    assert (file.first_store_timestamp, file.last_store_timestamp) == (T0 + 5, T0 + 2)
    assert report.is_whole
    told = file.to_dict()["backwards"]
    assert told == {"records": 2, "physicalOffset": places[2], "largestMs": 8}


def test_a_clock_that_was_set_back_between_two_files(log):
    for n in range(4):
        log.append("t", b"x" * 100, store_timestamp=T0 + n)
    assert log.append("t", b"x" * 500, store_timestamp=T0 - 7) == 1024
    report = verify(log.folder)
    assert [(file.backwards, file.backwards_at) for file in report.files] == [(0, None), (1, 1024)]
    assert report.files[1].backwards_ms == 7 + 3


def test_a_file_without_a_record_has_neither_first_nor_last_time(tmp_path):
    records = [rocketc.encode("t", b"", phy_offset=at, store_timestamp=T0 - at) for at in (0, 2048)]
    first = records[0] + rocketc.encode_blank(1024 - len(records[0]))
    files = [(0, first), (1024, rocketc.encode_blank(1024)), (2048, records[1].ljust(1024, b"\0"))]
    compare.write_log(tmp_path / "commitlog", files)
    assert [file.backwards_ms for file in verify(tmp_path).files] == [0, 0, 2048]


# ---------------------------------------------------------------- files


def fill(log, files=3):
    while log.end < files * 1024 - 700:
        log.append("t", b"x" * 100)


def test_a_missing_file(log):
    for n in range(3):
        log.append(f"topic {n}", b"x" * 900)
    log.file_at(1024).unlink()
    report = verify(log.folder)
    assert report.missing == [(1024, 2048)] and not report.is_whole
    assert report.damage == report.missing_offsets == []


def test_an_unreadable_file(log, monkeypatch):
    fill(log)
    opened = os.open

    def refuse(path, *more, **options):
        if path == str(log.file_at(1024)):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    report = verify(log.folder)
    assert [file.end for file in report.files] == ["closed", "unreadable", "open"]
    assert report.files[1].error == "Permission denied"
    assert report.files[1].to_dict()["error"] == "Permission denied"
    assert not report.is_whole and not report.is_empty and report.records == 7


def test_a_log_file_that_is_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / f"{0:020d}")
    [file] = verify(tmp_path / f"{0:020d}").files
    assert (file.end, file.error) == ("unreadable", "not a regular file")


def test_a_file_whose_end_was_not_copied(log):
    fill(log)
    os.truncate(log.file_at(1024), 900)
    report = verify(log.folder)
    [damage] = report.damage
    assert (damage.stop, damage.reason) == (2048, "truncated")
    assert report.files[1].end == "closed"


def test_files_created_in_advance(log):
    fill(log)
    for base in (3072, 4096):
        (log.folder / f"{base:020d}").write_bytes(bytes(1024))
    (log.folder / "notes.txt").touch()
    for path in (log.folder, log.folder.parent, str(log.folder) + "/"):
        report = verify(path)
        assert [file.end for file in report.files] == ["closed", "closed", "open", "ahead", "ahead"], path
        assert report.is_whole and report.files[-1].size == 1024
    assert len(verify(log.file_at(2048)).files) == 1
    twice = verify([log.folder, log.file_at(2048)])
    assert [file.end for file in twice.files] == ["closed", "closed", "open", "ahead", "ahead", "open"]


def test_an_empty_folder(tmp_path):
    with pytest.raises(rocketc.StoreIOError):
        verify(tmp_path / "nope")
    (tmp_path / f"{0:020d}").write_bytes(bytes(4096))
    report = verify(tmp_path)
    assert report.is_empty and report.is_whole
    assert report.files[0].end == "open" and report.files[0].first_offset is None
    (tmp_path / "commitlog").mkdir()
    assert verify(tmp_path).files == []


def test_a_log_file_with_another_name(log):
    fill(log)
    path = log.file_at(1024).rename(log.folder / "copy.bin")
    [file] = verify(path).files
    assert (file.phy_offset, file.first_offset) == (1024, 1024)


def test_holes(tmp_path):
    log = GrowingLog(tmp_path / "commitlog", file_size=1 << 16)
    while log.end < 30_000:
        log.append("t", b"x" * 50)
    log.append("t", bytes(20_000))
    while log.end < 58_000:
        log.append("t", b"x" * 50)
    path = log.file_at(0)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    done = subprocess.run(["fallocate", "--dig-holes", path], capture_output=True)
    if done.returncode != 0:
        pytest.skip("no holes on this file system")
    report = verify(tmp_path)
    assert report.is_whole  # the hole is a part of a body of zeros
    assert report.files[0].holes == [(32768, 49152)]
    assert report.files[0].to_dict()["holes"] == [{"start": 32768, "stop": 49152}]


def test_a_property_crc_is_checked(tmp_path):
    record = bytearray(rocketc.encode("t", b"x", properties={"KEYS": "k"}, property_crc=True))
    record[-22] ^= 1
    (tmp_path / f"{0:020d}").write_bytes(record + bytes(100))
    [damage] = verify(tmp_path).damage
    assert damage.reason == "bad_property_crc"


def test_a_file_that_is_cut_while_it_is_read(tmp_path):
    """Bytes copied from a page that has been cut off do not count."""
    record = bytearray(rocketc.encode("t", b"x" * 400))
    data = bytearray()
    for n in range(40_000):
        record[20:36] = struct.pack(">qq", n, n * len(record))
        data += record
    path = tmp_path / f"{0:020d}"
    path.write_bytes(data)
    walker = Walker(MappedFile(path), 0, Filter(), crc=2, errors="skip", file=str(path))
    audit = Audit(walker)
    assert audit.step()
    assert 0 < audit.records < 20_000
    keep = 25_000 * len(record) + 17
    os.truncate(path, keep)
    while audit.step():
        pass
    assert (audit.records, audit.last_offset) == (25_000, 24_999 * len(record))
    assert audit.runs() == [("t", 0, 0, 25_000, 0)]
    assert [entry[0] for entry in walker.damage] == [25_000 * len(record)]
    assert walker.damage[0][1:] == (len(data), "file_cut")


# ---------------------------------------------------------------- arguments and progress


def test_the_number_of_jobs_does_not_change_the_report(golden):
    path = golden("v533-store").path
    reports = [verify(path, jobs=jobs) for jobs in (None, 1, 2, 50)]
    assert all(report == reports[0] for report in reports)
    for jobs in (0, -1):
        with pytest.raises(ValueError, match=f"jobs is {jobs}; allowed are 1 to"):
            verify(path, jobs=jobs)


def test_progress_is_reported(golden, monkeypatch):
    monkeypatch.setitem(verify.__globals__, "_UPDATE_EVERY", 0)
    told = []
    report = verify(golden("flights-2013-01").path, tell=told.append)
    assert told == sorted(told) and told[-1] == 2 * report.bytes  # a second time for queues and index
    told.clear()
    report = verify(golden("flights-2013-01").path / "commitlog", tell=told.append)
    assert told == sorted(told) and told[-1] == report.bytes


def test_an_exception_stops_verify(golden, monkeypatch):
    monkeypatch.setitem(verify.__globals__, "_UPDATE_EVERY", 0)
    told, checked = Event(), []
    take = verify.__globals__["_take"]

    def slowly(*found):
        checked.append(take(*found))
        assert told.wait(30)
        time.sleep(0.1)  # slow enough to be stopped long before the last of the 16 files

    def interrupt(done):
        told.set()
        raise KeyboardInterrupt

    monkeypatch.setitem(verify.__globals__, "_take", slowly)
    with pytest.raises(KeyboardInterrupt):
        verify(golden("v533-store").path, jobs=1, tell=interrupt)
    assert len(checked) < 16


def test_the_report_as_json(golden):
    import json

    report = verify(golden("v533-bitrot").path)
    told = json.loads(json.dumps(report.to_dict()))
    assert (told["isWhole"], told["records"], told["queues"], told["incomplete"]) == (False, 1499, 6, False)
    [file] = [file for file in told["files"] if "damage" in file]
    assert file["damage"] == [{"start": 361670, "stop": 361996, "reason": "bad_body_crc"}]
    assert (file["physicalOffset"], file["end"]) == (327680, "closed")
    [missing] = told["missingQueueOffsets"]
    assert missing["file"] == file["file"]
    assert {"topic", "queueId", "start", "stop", "physicalOffset", "file"} == set(missing)
    assert told["missing"] == told["duplicateQueueOffsets"] == []
