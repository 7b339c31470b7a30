"""Torn tails: the last record is written in part. Recovery cuts off this record only and keeps its bytes."""

from pathlib import Path

import pytest
from crash import remains
from crash.remains import Files

import rocketc

pytestmark = pytest.mark.promise(1, 5)

FILE_SIZE = 4096
SECTOR = 512
CLOCK = 1_700_000_000_000

V6 = {"born_host": ("1050::5:600:300c:326b", 123), "store_host": ("fe80::1", 10911)}
PAIRS = {"TAGS": "TagA", "KEYS": "k1 k2"}

# (fields of the store, arguments of put) of the record that is torn
KINDS = {
    "v1": ({}, {"topic": "orders", "properties": PAIRS}),
    "v1-bare": ({}, {"topic": "orders"}),
    "v1-empty": ({}, {"topic": "orders", "properties": PAIRS}),
    "v2": ({}, {"topic": "%RETRY%" + "g" * 130, "properties": PAIRS}),
    "property-crc": ({"enabled_append_prop_crc": True}, {"topic": "orders", "properties": PAIRS}),
    "ipv6": ({}, {"topic": "orders", "properties": PAIRS, **V6}),
    "v2-ipv6-property-crc": ({"enabled_append_prop_crc": True}, {"topic": "%RETRY%" + "g" * 130, **V6}),
}
CITY = {"city": "Zürich, " * 600}
KINDS_OF_SECTORS = {
    **KINDS,
    "long-properties": ({}, {"topic": "orders", "properties": CITY}),
    "long-properties-property-crc": ({"enabled_append_prop_crc": True}, {"topic": "orders", "properties": CITY}),
}
del KINDS_OF_SECTORS["v1-empty"]

# killed   the process died, and no checkpoint was ever written
# flushed  ... but the checkpoint says that the log was durable up to the record before the last
# late     ... and the checkpoint includes the last record, which the disk lost nevertheless
# closed   the store was closed: there is no abort file
ENDINGS = ["killed", "flushed", "late", "closed"]


def write(root: Path, kind: str, ending: str, last: int = 9, size: int = FILE_SIZE) -> tuple[Files, int, int]:
    """A store with three records of a kind, the last one with a body of `last` bytes.

    Returns its files, and where the last record begins and ends.
    """
    config, fields = {**KINDS, **KINDS_OF_SECTORS}[kind]
    settings = {"mapped_file_size_commit_log": size, "prepare": "allocate", **config}
    with rocketc.open(root, **settings) as store:
        store._set_clock(CLOCK)
        store.put(body=b"first", **fields)
        store._set_clock(CLOCK + 1)
        store.put(body=b"second", **fields)
        if ending == "flushed":
            store.close()
            store = rocketc.open(root, **settings)
        store._set_clock(CLOCK + 2)
        body = b"" if kind == "v1-empty" else bytes(range(1, 252)) * (last // 251) + b"b" * (last % 251)
        result = store.put(body=body, **fields)
        start, stop = result.phy_offset, result.end
        assert result.queue_offset == 2
        files = remains.take(root)
        store.close()
    closed = remains.take(root)
    if ending == "closed":
        files = closed
    elif ending == "late":
        files["checkpoint"] = closed["checkpoint"]
    assert ("abort" in files) == (ending != "closed")
    return files, start, stop


def assert_goes_on(root: Path, files: Files, kind: str, start: int, says: object) -> None:
    """Assert that recovery of `files`, whose record at `start` is torn, cuts it off and keeps it, and a put follows."""
    config, fields = {**KINDS, **KINDS_OF_SECTORS}[kind]
    tail = b"".join(data[max(start - base, 0) :] for base, data in remains.log(files)).rstrip(b"\0")
    before = remains.messages(remains.zeroed(files, start))
    with rocketc.open(remains.lay(files, root), **config) as store:
        assert store.max_phy_offset == start, says
        recovered = remains.take(root)
        assert [piece.rstrip(b"\0") for piece in remains.kept(recovered).values()] == ([tail] if tail else []), says
        assert remains.log(recovered) == remains.log(remains.zeroed(files, start)), says
        result = store.put(body=b"next", **fields)
        assert (result.phy_offset, result.queue_offset) == (start, 2), says
    closed = remains.take(root)
    found = remains.messages(closed)
    assert [{**m, "file": None} for m in found[:2]] == before, says
    assert [m["storedBody"] for m in found[2:]] == [b"next"], says

    with rocketc.open(root, **config) as store:  # nothing is left to repair
        assert store.max_phy_offset == result.end
    again = remains.take(root)
    assert remains.log(again) == remains.log(closed)
    assert remains.kept(again) == remains.kept(closed)


def kinds_and_endings(kinds):
    """Each kind killed and closed; one of them with the other endings too."""
    return [(kind, ending) for kind in kinds for ending in ENDINGS if kind == "v1" or ending in ("killed", "closed")]


@pytest.mark.some(2)
@pytest.mark.parametrize(("kind", "ending"), kinds_and_endings(KINDS))
def test_cut_at_every_byte(memory_path, kind, ending):
    files, start, stop = write(memory_path / "whole", kind, ending)
    for cut in range(start, stop):
        torn = remains.zeroed(files, cut)
        if torn != files:  # equal if the missing bytes are zero anyway
            assert_goes_on(memory_path / "torn", torn, kind, start, cut - start)


@pytest.mark.some(4)
@pytest.mark.parametrize(("kind", "ending"), kinds_and_endings(KINDS_OF_SECTORS))
def test_zeroed_from_every_sector(memory_path, kind, ending):
    """The last record is at least nine sectors long; the disk has written only the first ones."""
    files, start, stop = write(memory_path / "whole", kind, ending, last=9 * SECTOR, size=8 * FILE_SIZE)
    for mark in range(start // SECTOR * SECTOR + SECTOR, stop, SECTOR):
        assert_goes_on(memory_path / "torn", remains.zeroed(files, mark), kind, start, mark)


@pytest.mark.some(4)
@pytest.mark.parametrize(("kind", "ending"), kinds_and_endings(KINDS_OF_SECTORS))
def test_one_sector_is_missing(memory_path, kind, ending):
    """Disks write sectors in any order: each sector of the last record is zero in turn."""
    files, start, stop = write(memory_path / "whole", kind, ending, last=9 * SECTOR, size=8 * FILE_SIZE)
    for mark in range(start // SECTOR * SECTOR, stop, SECTOR):
        lost = remains.zeroed(files, max(mark, start), min(mark + SECTOR, stop))
        if lost != files:
            assert_goes_on(memory_path / "torn", lost, kind, start, mark)


# ---------------------------------------------------------------- cut records never come back
def bodies(root: Path) -> list[bytes]:
    return [m["storedBody"] for m in remains.messages(remains.take(root))]


def six(root: Path, size: int) -> tuple[Files, list[int]]:
    """A store with six records of one size whose writer died: its files, and where the records begin."""
    with rocketc.open(root, mapped_file_size_commit_log=size) as store:
        store._set_clock(CLOCK)
        starts = [store.put("orders", b"record %d" % n * 20).phy_offset for n in range(6)]
        files = remains.take(root)
    return files, starts


@pytest.mark.parametrize("size", [4096, 600], ids=["in one file", "in files of two records"])
@pytest.mark.parametrize("torn", range(6))
@pytest.mark.parametrize("length", [0, 40, 159, 160], ids="body of {}".format)
def test_records_after_the_cut_stay_away(memory_path, size, torn, length):
    """One record is damaged, the later ones are valid: recovery cuts all of them off and keeps them.

    The next put is shorter or as long, so that the log can end right before an old record; the writer dies repeatedly.
    """
    files, starts = six(memory_path / "whole", size)
    start = starts[torn]
    root = remains.lay(remains.zeroed(files, start + 100, start + 150), memory_path / "torn")
    kept = [b"record %d" % n * 20 for n in range(torn)]
    for life in range(4):
        with rocketc.open(root) as store:
            assert bodies(root) == kept
            if life == 0:
                assert store.max_phy_offset == start
                saved = b"".join(remains.kept(remains.take(root)).values())
                for n in range(torn + 1, 6):
                    assert b"record %d" % n * 20 in saved
            new = b"%d" % life * length
            result = store.put("orders", new)
            assert result.queue_offset == len(kept)
            kept.append(new)
            died = remains.take(root)
        remains.lay(died, root)
    with rocketc.open(root):
        assert bodies(root) == kept


@pytest.mark.parametrize("missing", range(9), ids="{} bytes".format)
@pytest.mark.parametrize("rolled", [False, True], ids=["before the roll", "after the roll"])
def test_a_torn_blank_record(memory_path, missing, rolled):
    """The record that fills a file is torn, and the next file is empty or has a record already."""
    with rocketc.open(memory_path / "whole", mapped_file_size_commit_log=600) as store:
        end = [store.put("orders", b"one" * 30).end, store.put("orders", b"two" * 30).end][-1]
        store._roll()
        if rolled:
            store.put("orders", b"three" * 30)
        files = remains.take(memory_path / "whole")
    root = remains.lay(remains.zeroed(files, end + 8 - missing, 600), memory_path / "torn")
    with rocketc.open(root) as store:
        whole = missing == 0
        kept = [b"one" * 30, b"two" * 30] + ([b"three" * 30] if rolled and whole else [])
        assert bodies(root) == kept
        assert store.put("orders", b"next" * 30).queue_offset == len(kept)
        died = remains.take(root)
    with rocketc.open(remains.lay(died, root)):
        assert bodies(root) == [*kept, b"next" * 30]


# ---------------------------------------------------------------- files that were being created
@pytest.mark.parametrize("size", [0, 1, 511, 512, 599, 600])
@pytest.mark.parametrize("full", [False, True], ids=["ahead", "for the next record"])
@pytest.mark.parametrize("told", [False, True], ids=["size found", "size told"])
def test_a_file_that_was_being_created(memory_path, size, full, told):
    """A crash leaves the next file without its full length: it is created again."""
    fields = {"mapped_file_size_commit_log": 600} if told else {}
    with rocketc.open(memory_path / "whole", mapped_file_size_commit_log=600) as store:
        store.put("orders", b"one" * 30)
        if full:
            store.put("orders", b"x" * (600 - store.max_phy_offset - 8 - 97))
            assert store.max_phy_offset == 592
        files = remains.take(memory_path / "whole")
    files["commitlog/%020d" % 600] = bytes(size)
    root = remains.lay(files, memory_path / "torn")
    with rocketc.open(root, **fields) as store:
        before = bodies(root)
        assert len(before) == 1 + full
        assert store.put("orders", b"two" * 40).queue_offset == len(before)
        assert store.put("orders", b"two" * 60).queue_offset == len(before) + 1
    assert [len(data) for _, data in remains.log(remains.take(root))] == [600, 600]
    assert bodies(root) == [*before, b"two" * 40, b"two" * 60]


def test_a_short_file_with_content_is_refused_and_kept(memory_path):
    with rocketc.open(memory_path / "store", mapped_file_size_commit_log=600) as store:
        store.put("orders", b"one")
    path = memory_path / "store/commitlog" / ("%020d" % 600)
    path.write_bytes(bytes(100) + b"something" + bytes(100))
    with pytest.raises(rocketc.StoreIOError, match="have 600"):
        rocketc.open(memory_path / "store")
    assert path.exists()
