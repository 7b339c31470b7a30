"""_walk: the same records and the same damage as the oracle, in buffers and in files."""

import dataclasses
import itertools
import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import compare, oracle, strategies

import rocketc
from rocketc.files.paths import resolve

pytestmark = pytest.mark.promise(4, 8)

crcs = st.sampled_from(["none", "body", "full"])
reading = st.fixed_dictionaries({"crc": crcs, "decompress": st.booleans(), "unwrap": st.booleans()})


def as_java_marks_it(message):
    """An inner batch has both bits, NEED_UNWRAP and INNER_BATCH. The meaning of a single bit is not documented."""
    flags = message["sys_flag"]
    return {**message, "sys_flag": flags | oracle.NEED_UNWRAP if flags & oracle.INNER_BATCH else flags}


class Expected:
    """The expected result for files given as (base, bytes[, path])."""

    def __init__(self, files, crc="body", decompress=True, unwrap=True):
        self.base = files[0][0]
        self.walked = oracle.walk_log(files, crc=crc)
        self.items = compare.expected(self.walked, decompress=decompress, unwrap=unwrap)
        self.messages, self.damage = compare.outline(self.items)

    def check(self, scan, *, by_arrow=True):
        """Check a scan with errors="skip": iterated, counted, as columns."""
        assert [compare.of_message(m) for m in scan] == self.messages
        self.check_report(scan)
        # count() decompresses no body, so the numbers agree only if all bodies can be decompressed.
        if not {reason for _, _, _, reason in self.damage} & {"bad_compression", "too_large"}:
            assert scan.count() == len(self.messages)
            self.check_report(scan)
        if by_arrow:
            rows = compare.table_rows(scan.to_arrow())
            assert rows == [compare.row_of_record(r) for r in oracle.records(self.items)]
            self.check_report(scan)

    def check_report(self, scan):
        compare.check_report(scan.report, self.walked, self.items, self.base)

    def check_raise(self, scan):
        """errors="raise": messages before the first damage are returned, then the exception has its details."""
        before, damage = compare.first_damage(self.items)
        for take in (by_iterating, by_batches):
            found = []
            try:
                take(scan, found)
            except rocketc.CorruptRecordError as error:
                assert damage is not None
                assert (error.file, error.offset, error.reason) == (damage.file, damage.start, damage.reason)
            else:
                assert damage is None
            assert found == [(m["physicalOffset"], m["queueOffset"]) for m in before]
            assert scan.report.records == len(before)


def by_iterating(scan, found):
    for message in scan:
        found.append((message.phy_offset, message.queue_offset))


def by_batches(scan, found):
    for batch in scan.batches():
        columns = [batch.column(name).to_pylist() for name in ("physicalOffset", "queueOffset")]
        found += zip(*columns, strict=True)


@st.composite
def some_logs(draw, damaged=True, in_place=False):
    """Files of a log as written by the oracle, possibly damaged."""
    log = draw(strategies.logs(compression=(0, 1, 2, 3)))
    stale = draw(st.sampled_from([b"\0", b"\xda\xa3\x20\xa7", b"stale"]))
    messages = [as_java_marks_it(m) for m in log.messages]
    files = oracle.lay_out(messages, log.file_size, base=log.files[0][0], stale=stale)
    if draw(st.booleans()):
        files.append((files[-1][0] + log.file_size, bytes(log.file_size)))
    if damaged:
        for _ in range(draw(st.integers(1, 4))):
            n = draw(st.integers(0, len(files) - 1))
            base, data = files[n]
            data, _, _ = draw(strategies.damaged_bytes(data, in_place=in_place))
            files[n] = (base, data)
    return files


@given(some_logs(), reading)
def test_a_damaged_file_in_memory(files, options):
    base, data = files[0]
    expected = Expected([(base, data)], **options)
    expected.check(rocketc.decode(data, base, errors="skip", **options))
    expected.check_raise(rocketc.decode(data, base, **options))


@given(some_logs(in_place=True), reading)
@settings(max_examples=60)
def test_damaged_files(files, options):
    with tempfile.TemporaryDirectory() as folder:
        written = compare.write_log(Path(folder), files)
        expected = Expected(written, **options)
        scan = rocketc.scan(folder, errors="skip", **options)
        expected.check(scan)
        given = list(itertools.takewhile(lambda n: any(any(d) for _, d in files[n:]), range(len(files))))
        assert scan.report.files == max(len(given), 1)
        expected.check_raise(rocketc.scan(folder, **options))


@given(some_logs(damaged=False), reading)
@settings(max_examples=60)
def test_whole_files(files, options):
    with tempfile.TemporaryDirectory() as folder:
        written = compare.write_log(Path(folder), files)
        scan = rocketc.scan(folder, errors="skip", **options)
        Expected(written, **options).check(scan)
        assert scan.report.missing == []


@pytest.mark.parametrize("gone", range(1, 5))
@given(sizes=st.lists(st.integers(0, 400), min_size=30, max_size=30))
@settings(max_examples=10)
def test_a_missing_file_is_damage(gone, sizes):
    files = oracle.lay_out([{"topic": "t", "body": bytes(size)} for size in sizes], 512)
    rest = files[:gone] + files[gone + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        written = compare.write_log(Path(folder), rest)
        scan = rocketc.scan(folder, errors="skip")
        messages, _ = compare.outline(compare.expected(oracle.walk_log(written)))
        assert [compare.of_message(m) for m in scan] == messages
        lost = (files[gone][0], files[gone + 1][0])
        assert scan.report.missing == [lost]
        assert (*lost, "missing_file") in [(d.start, d.stop, d.reason) for d in scan.report.damage]


@given(st.binary(max_size=2000), crcs)
def test_random_bytes(data, crc):
    expected = Expected([(0, data)], crc)
    expected.check(rocketc.decode(data, errors="skip", crc=crc))
    expected.check_raise(rocketc.decode(data, crc=crc))


pieces = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 30).map(bytes),
    st.sampled_from([b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94", b"\xda", b"\xcb"]),
    st.integers(8, 300).map(lambda n: oracle.encode_blank(n)[:8]),
)


@given(st.lists(st.one_of(pieces, st.just(None)), max_size=12), crcs)
@settings(max_examples=300)
def test_fragments_of_a_log(parts, crc):
    """Records at their correct offset among magic numbers, zeros, blank records and random bytes."""
    data = b""
    for part in parts:
        data += oracle.encode("topic", b"body", phy_offset=len(data)) if part is None else part
    Expected([(0, data)], crc).check(rocketc.decode(data, errors="skip", crc=crc))


@given(some_logs(damaged=False))
def test_the_base_is_detected(files):
    base, data = files[0]
    learnt, known = rocketc.decode(data, None, errors="skip"), rocketc.decode(data, base, errors="skip")
    assert [m.phy_offset for m in learnt] == [m.phy_offset for m in known]
    for cut in (1, 50, len(data) // 2):
        rest = data[cut:]
        expected = Expected([(oracle.learn_base(rest), rest)])
        expected.check(rocketc.decode(rest, None, errors="skip"), by_arrow=False)


# ---------------------------------------------------------------------------------------------- physical ranges


def plain_log(count=9, base=0):
    data = b""
    for n in range(count):
        fields = {"queue_offset": n, "phy_offset": base + len(data), "properties": {"TAGS": "a"}}
        data += oracle.encode("topic", b"x" * n, **fields)
    return data


@pytest.mark.parametrize("base", [0, 1000])
def test_every_split_gives_each_record_once(base):
    """[.., split) and [split, ..) for each byte of the log: together they have all records."""
    data = plain_log(base=base) + oracle.encode_blank(40)
    whole = [m.phy_offset for m in rocketc.decode(data, base)]
    for split in range(base - 2, base + len(data) + 3):
        before = rocketc.decode(data, base, stop=split)
        behind = rocketc.decode(data, base, start=split)
        first, second = [m.phy_offset for m in before], [m.phy_offset for m in behind]
        assert first + second == whole
        assert all(offset < split for offset in first)
        assert before.report.blanks + behind.report.blanks == 1
        assert before.count() + behind.count() == len(whole)


@pytest.mark.parametrize("inner", [False, True])
def test_every_window_of_a_log(inner):
    data = plain_log(4)
    if inner:
        data += oracle.encode_inner_batch("t", [(0, b"a", None), (0, b"b", None)], phy_offset=len(data))
    starts = [m.phy_offset for m in rocketc.decode(data)]
    for start in range(0, len(data) + 1, 7):
        for stop in range(0, len(data) + 1, 11):
            expected = [n for n in starts if start <= n < stop]
            assert [m.phy_offset for m in rocketc.decode(data, start=start, stop=stop)] == expected


@given(some_logs(in_place=True), st.data())
@settings(max_examples=60)
def test_splits_of_a_damaged_log(files, data):
    """The log is split as by Spark: each record and each damage is in exactly one split, the one with its start."""
    base = files[0][0]
    end = files[-1][0] + len(files[-1][1])
    points = sorted(data.draw(st.sets(st.integers(base, end), max_size=4)))
    with tempfile.TemporaryDirectory() as folder:
        compare.write_log(Path(folder), files)
        whole = rocketc.scan(folder, errors="skip")
        expected = [m.phy_offset for m in whole]
        found, damage = [], []
        for start, stop in itertools.pairwise([None, *points, None]):
            part = rocketc.scan(folder, errors="skip", start=start, stop=stop)
            found += [m.phy_offset for m in part]
            damage += part.report.damage
        assert found == expected
        assert damage == whole.report.damage


def split_log(*records, base=1536):
    """The bytes of a log that begins at `base`: each record is (size of the body, what is wrong)."""
    data = b""
    for size, wrong in records:
        record = bytearray(oracle.encode("t", b"x" * size, phy_offset=base + len(data)))
        if wrong == "crc":
            record[88 + size - 1] ^= 1  # the last byte of the body
        elif wrong == "offset":
            record[28:36] = bytes(8)
        data += bytes(record)
    return data


@pytest.mark.parametrize("crc", ["none", "body", "full"])
@pytest.mark.parametrize(
    "records",
    [
        [(180, "crc"), (2, "offset")],
        [(180, "crc"), (2, "offset"), (5, "")],
        [(180, "crc"), (2, "crc"), (5, "")],
        [(3, ""), (180, "crc"), (40, "offset"), (5, ""), (9, "crc")],
        [(3, "offset"), (40, "crc"), (9, "offset"), (0, "crc"), (5, "")],
        [(30, "crc"), (30, "crc"), (30, "crc"), (5, "offset"), (5, "")],
    ],
)
def test_each_split_among_damage_finds_what_the_whole_scan_finds(records, crc):
    """A record before the split may have a wrong CRC: then the bytes after it are damage, not the next record."""
    data = split_log(*records)
    whole = rocketc.decode(data, 1536, errors="skip", crc=crc)
    expected = [m.phy_offset for m in whole]
    for split in range(1535, 1536 + len(data) + 2):
        before, behind = (
            rocketc.decode(data, 1536, errors="skip", crc=crc, **part) for part in ({"stop": split}, {"start": split})
        )
        assert [m.phy_offset for m in before] + [m.phy_offset for m in behind] == expected, split
        assert before.report.damage + behind.report.damage == whole.report.damage, split


@pytest.mark.parametrize("number", [-(1 << 70), -(1 << 63), -1, 1 << 31, 1 << 62, 1 << 63, 1 << 70])
def test_ranges_far_outside(number):
    data = plain_log(3)
    assert rocketc.decode(data, start=number).count() == (3 if number < 0 else 0)
    assert rocketc.decode(data, stop=number).count() == (0 if number < 0 else 3)


# ---------------------------------------------------------------------------------------------- each reason by name

PLAIN = oracle.encode("topic", b"body", properties={"a": "b"})


def patched(record, pos, code, *numbers):
    import struct

    data = bytearray(record)
    struct.pack_into(code, data, pos, *numbers)
    return bytes(data)


WITH_CRC = oracle.encode("topic", b"body", properties={"a": "b"}, property_crc=True)
REASONS = {
    "bad_size": patched(PLAIN, 0, ">i", 90),
    "truncated": PLAIN[:-1],
    "bad_magic": patched(PLAIN, 4, ">i", 1),
    "bad_body_length": patched(PLAIN, 84, ">i", -1),
    "bad_topic_length": patched(PLAIN, 92, ">b", -1),
    "bad_properties_length": patched(PLAIN, 98, ">h", 5),
    "bad_length": patched(PLAIN, 98, ">h", 3),
    "bad_body_crc": patched(PLAIN, 88, ">b", 0),
    "bad_property_crc": patched(WITH_CRC, 16, ">i", 1),
    "bad_physical_offset": patched(PLAIN, 28, ">q", 1),
    "bad_compression": oracle.encode("t", b"not zlib", sys_flag=oracle.COMPRESSED),
    "bad_inner_batch": oracle.encode("t", b"no batch", sys_flag=oracle.INNER_BATCH | oracle.NEED_UNWRAP),
    "zeroed": bytes(100) + oracle.encode("t", b"", phy_offset=100),
    "bad_blank": oracle.encode_blank(20) + b"\0",
    "too_large": oracle.encode("t", strategies.compress(b"x" * 101, 3), sys_flag=oracle.COMPRESSED | 3 << 8),
}


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_by_name(reason):
    """In the report, in the exception and in the warning."""
    data = REASONS[reason]
    options = {"crc": "full", "max_decompressed": 100}
    scan = rocketc.decode(data, errors="skip", **options)
    list(scan)
    [damage] = scan.report.damage
    assert (damage.reason, damage.start, damage.file) == (reason, 0, None)
    with pytest.raises(rocketc.CorruptRecordError, match=reason) as caught:
        list(rocketc.decode(data, file="name", **options))
    assert (caught.value.file, caught.value.offset, caught.value.reason) == ("name", 0, reason)
    assert str(caught.value).startswith("name: damage at physical offset 0: ")
    with pytest.warns(rocketc.DamageWarning, match=reason):
        list(rocketc.decode(data, errors="report", **options))


def test_file_cut_by_name(tmp_path):
    """The other reason for files: see stress/test_cut.py."""
    path = tmp_path / "00000000000000000000"
    path.write_bytes(plain_log(1000).ljust(1 << 20, b"\0"))
    messages = iter(rocketc.scan(path))
    next(messages)
    os.truncate(path, 4096)
    with pytest.raises(rocketc.CorruptRecordError, match=r"file_cut.*from 1048576 to 4096") as caught:
        list(messages)
    assert caught.value.reason == "file_cut"


def test_of_two_errors_the_first_is_reported():
    """The order of the checks is part of the contract: of two errors the first is reported."""
    order = ["bad_size", "bad_magic", "bad_body_length", "bad_topic_length", "bad_properties_length", "bad_body_crc"]
    patch = {
        "bad_size": (0, ">i", 90),
        "bad_magic": (4, ">i", 1),
        "bad_body_length": (84, ">i", -1),
        "bad_topic_length": (92, ">b", -1),
        "bad_properties_length": (98, ">h", -1),
        "bad_body_crc": (88, ">b", 0),
        "bad_physical_offset": (28, ">q", 1),
    }
    order.append("bad_physical_offset")
    for first, second in itertools.combinations(order, 2):
        data = patched(patched(PLAIN, *patch[first]), *patch[second])
        [expected] = oracle.damage(oracle.walk(data))
        scan = rocketc.decode(data, errors="skip")
        list(scan)
        assert [d.reason for d in scan.report.damage] == [expected.reason]


def test_each_damage_is_warned_about_once():
    data = bytearray(plain_log(600))
    starts = [m.phy_offset for m in rocketc.decode(bytes(data))]
    for n in (3, 300, 599):
        data[starts[n] + 4] ^= 1
    for take in (list, lambda scan: list(scan.batches()), lambda scan: scan.count()):
        with pytest.warns(rocketc.DamageWarning) as caught:
            take(rocketc.decode(bytes(data), errors="report"))
        told = [str(w.message) for w in caught if w.category is rocketc.DamageWarning]
        assert [f"offset {starts[n]}: bad_magic" in text for n, text in zip((3, 300, 599), told, strict=True)] == [
            True
        ] * 3


def test_bytes_after_the_stop_are_not_checked(tmp_path):
    """A torn or damaged record directly after the end of a split does not belong to the split."""
    path = tmp_path / f"{0:020d}"
    first = rocketc.encode("t", b"first")
    torn = rocketc.encode("t", b"second", phy_offset=len(first))[:50]
    path.write_bytes((first + torn).ljust(4096, b"\0"))
    [log] = resolve(tmp_path)
    part = dataclasses.replace(log.files[0], stop=len(first))
    with pytest.raises(rocketc.CorruptRecordError):
        list(rocketc.scan(part))
    known = dataclasses.replace(part, exact_stop=len(first))
    assert [m.body for m in rocketc.scan(known)] == [b"first"]
    for cut in range(1, len(first)):  # splits of a split have the same property
        before, behind = dataclasses.replace(known, stop=cut), dataclasses.replace(known, start=cut)
        assert [m.body for m in rocketc.scan(before)] == [b"first"]
        assert list(rocketc.scan(behind)) == []


def test_a_record_that_is_finished_while_the_next_one_is_searched(tmp_path):
    """Size and magic of a record become visible one after the other; a later record may be whole by then."""
    path = tmp_path / f"{0:020d}"
    body = b"\xda" * (40 << 20)  # the first byte of the magic number: the search takes long, and checks for signals
    long = rocketc.encode("t", body, queue_offset=0)
    data = bytearray(long + rocketc.encode("t", b"x", queue_offset=1, phy_offset=len(long)))
    magic = bytes(data[4:8])
    data[4:8] = bytes(4)
    path.write_bytes(data)

    def finish(*_):
        with open(path, "r+b") as file:
            file.seek(4)
            file.write(magic)

    before = signal.signal(signal.SIGALRM, finish)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        found = rocketc.scan(path, errors="skip")
        assert [message.queue_offset for message in found] == [0, 1] and found.report.damage == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
