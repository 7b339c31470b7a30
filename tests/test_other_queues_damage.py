"""Damage to batch queues and consume queue extensions: the store opens, reports its repairs, and answers correctly.

Queue offsets continue, and the repaired files follow from the log.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from support import oracle
from support.derived import batch_units, ext_files, files_of, queue_files
from support.store_checks import assert_answers, by_queue, opened, records_of
from test_derived_damage import ENDS, QUEUES, damaged, fill

import rocketc

pytestmark = pytest.mark.promise(6)

INNER = 0xC0  # an inner batch, which a client has to unwrap
LOG = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 50, "max_index_num": 1000}
BATCHES = {**LOG, "mapped_file_size_consume_queue": 200, "mapper_file_size_batch_consume_queue": 230}
EXTENDED = {
    **LOG,
    "mapped_file_size_consume_queue": 200,
    "mapped_file_size_consume_queue_ext": 128,
    "enable_consume_queue_ext": True,
}
HOWS = ["zeros", "noise", "bit", "all noise", "longer", "empty", "ones", "most"]
BATCH_TOPICS = ("Inner", "Plain")

Made = dict[str, remains.Files]


def batch_of(chance: random.Random, base: int, n: int) -> tuple[int, dict[str, Any]]:
    """The number of messages of an inner batch, and the arguments of its put."""
    count = chance.randrange(1, 5)
    body = oracle.encode_batch([(0, b"%d.%d" % (n, i), {"KEYS": "k"}) for i in range(count)])
    properties = {"INNER_NUM": str(count), "INNER_BASE": str(base)}
    return count, {"body": body, "sys_flag": INNER, "properties": properties, "keys": f"k{n % 7}"}


def fill_batches(store: Any, seed: int) -> None:
    """Put inner batches, single messages in batch queues, and messages in normal queues."""
    chance = random.Random(seed)
    bases = [0, 0]
    store.create_topic("Inner", queue_type="BatchCQ")
    store.create_topic("Plain", queue_type="BatchCQ")
    for n in range(70):
        store._set_clock(1_700_000_000_000 + 350 * n)
        topic, queue_id = chance.choice(["Inner", "Inner", "Plain", "orders"]), chance.randrange(2)
        if topic == "Inner":
            count, batch = batch_of(chance, bases[queue_id], n)
            assert store.put(topic, queue_id=queue_id, **batch).queue_offset == bases[queue_id]
            bases[queue_id] += count
        else:
            tags = chance.choice(["Aa", "BB", None])
            store.put(topic, b"%d." % n * 9, queue_id=queue_id, tags=tags, keys=f"k{n % 7}")


def made_with(fields: dict[str, Any], put: Callable[[Any, int], None]) -> Made:
    """Stores: `closed` and `killed` hold the same messages, `other` has different ones."""
    found = {}
    with remains.memory() as folder:
        for name, seed in (("closed", 1), ("other", 2)):
            root = Path(folder, name)
            with rocketc.open(root, **fields) as store:
                put(store, seed)
                assert store.wait_dispatched(30)
                if name == "closed":
                    found["killed"] = remains.take(root)
            found[name] = remains.take(root)
    return found


def joined(files: dict[str, bytes]) -> dict[str, bytes]:
    """The same files, but each batch queue as one: its first file may have any number."""
    out: dict[str, bytes] = {}
    for path, data in sorted(files.items()):
        name = path.rpartition("/")[0] if path.startswith("batchconsumequeue/") else path
        out[name] = out.get(name, b"") + data
    return {name: data.rstrip(b"\0") for name, data in out.items()}


class Kind:
    """Stores with one kind of queue: how they are made, and the files that follow from their log.

    folders  of the files that are damaged
    """

    def __init__(self, name: str) -> None:
        self.batches = name == "batches"
        self.fields = BATCHES if self.batches else EXTENDED
        self.folders = ["batchconsumequeue"] if self.batches else ["consumequeue_ext", "consumequeue"]
        self.made = made_with(self.fields, fill_batches if self.batches else lambda store, seed: fill(store, seed, 60))

    def names(self, end: str) -> list[str]:
        return sorted(name for name in self.made[end] if name.split("/")[0] in self.folders)

    def wanted(self, root: Path) -> dict[str, bytes]:
        if self.batches:
            return queue_files(records_of(root), 200, batch=BATCH_TOPICS, batch_size=230)
        queues, extensions = ext_files(records_of(root), 200, 128)
        return {**queues, **extensions}

    def assert_files(self, root: Path, says: object) -> None:
        found = files_of(root, "consumequeue", "consumequeue_ext", "batchconsumequeue")
        found = joined({path: data for path, data in found.items() if any(data)})
        wanted = joined(self.wanted(root))
        assert sorted(found) == sorted(wanted), says
        assert [path for path in wanted if found[path] != wanted[path]] == [], says

    def assert_answers(self, store: Any, root: Path, says: object) -> None:
        records = records_of(root)
        assert_answers(store, [record for record in records if record["topic"] not in BATCH_TOPICS], says)
        if self.batches:
            assert_batches(store, records, says)

    def put_more(self, store: Any, root: Path, says: object) -> None:
        """Put to each queue; the message must follow its last one."""
        ends = {queue: end_of(records[-1]) for queue, records in by_queue(records_of(root)).items()}
        for topic, queue_id in [(t, q) for t in (*BATCH_TOPICS, "orders") for q in (0, 1)] if self.batches else QUEUES:
            number = ends.get((topic, queue_id), 0)
            more: dict[str, Any] = {"body": b"next"}
            if topic == "Inner":
                _, more = batch_of(random.Random(number), number, number)
            assert store.put(topic, queue_id=queue_id, **more).queue_offset == number, (says, topic, queue_id)


@pytest.fixture(scope="module", params=["batches", "extensions"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


@pytest.fixture
def root() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder, "store")


def end_of(record: oracle.Record) -> int:
    """The queue offset after a record's messages."""
    return record["queueOffset"] + int(record["properties"].get("INNER_NUM", 1))


def assert_batches(store: Any, records: list[oracle.Record], says: object) -> None:
    """Assert that batch queues agree with the log, and that a read can begin at any of their messages."""
    for (topic, queue_id), queue in by_queue([r for r in records if r["topic"] in BATCH_TOPICS]).items():
        places = [(n, r["physicalOffset"]) for r in queue for n in range(r["queueOffset"], end_of(r))]
        low, high = places[0][0], places[-1][0] + 1
        assert (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)) == (low, high), (says, topic)
        for start in {low, (low + high) // 2, high - 1}:
            found, offset = [], start
            while got := store.get(topic, queue_id, offset, 32):
                found += [(message.queue_offset, message.phy_offset) for message in got]
                offset = got.next_offset
            assert found == places[start - low :], (says, topic, queue_id, start)
        assert len(batch_units(queue)[topic, queue_id]) == len(queue)


def assert_mended(kind: Kind, root: Path, says: object, *, told: bool | None) -> None:
    """Open the files in root, and check answers, puts and the files afterwards.

    `told`  whether the opening must log something; None: it may
    """
    with opened(root, **kind.fields) as one:
        assert told is None or bool(one.told) == told, (says, one.told)
        kind.assert_answers(one.store, root, says)
        kind.put_more(one.store, root, says)
        assert one.store.wait_dispatched(30)
        kind.assert_answers(one.store, root, says)
    kind.assert_files(root, says)
    with opened(root, **kind.fields) as one:
        assert one.told == [], says


@pytest.mark.parametrize("end", ENDS)
def test_undamaged_files(kind, root, end):
    remains.lay(kind.made[end], root)
    kind.assert_files(root, end)
    assert_mended(kind, root, end, told=False)


@pytest.mark.parametrize("end", ENDS)
def test_files_are_deleted(kind, root, end):
    names = kind.names(end)
    queues = sorted({name.rpartition("/")[0] for name in names})
    for gone in [*names, *queues, *kind.folders]:
        files = kind.made[end]
        remains.lay({n: data for n, data in files.items() if n != gone and not n.startswith(f"{gone}/")}, root)
        assert_mended(kind, root, gone, told=True if end == "closed" else None)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("end", ENDS)
def test_a_file_is_cut(kind, root, end, step):
    names = [name for name in kind.names(end) if name.startswith(kind.folders[0])]
    for name in (names[0], names[1], names[-1]):
        for size in range(0, len(kind.made[end][name]), step):
            remains.lay({**kind.made[end], name: kind.made[end][name][:size]}, root)
            if size % 20 == 1:
                assert_mended(kind, root, (name, size), told=True if end == "closed" else None)
                continue
            with opened(root, **kind.fields) as one:
                assert one.told or end == "killed", (name, size)
            kind.assert_files(root, (name, size))


def overwritten(data: bytes, how: str, chance: random.Random) -> bytes:
    if how == "ones":
        return b"\xff" * len(data)
    if how == "most":  # numbers that overflow in an addition
        return b"\x7f" + b"\xff" * 7 + b"\x7f\xff\xff\xff" * ((len(data) - 8) // 4)
    return damaged(data, how, chance)


@pytest.mark.some(5)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("how", HOWS)
def test_a_file_is_overwritten(kind, root, end, how):
    chance = random.Random(how)
    for name in kind.names(end) * 2:
        data = overwritten(kind.made[end][name], how, chance)
        remains.lay({**kind.made[end], name: data}, root)
        changed = end == "closed" and data != kind.made[end][name]
        assert_mended(kind, root, (name, data), told=True if changed else None)


@pytest.mark.parametrize("end", ENDS)
def test_files_are_swapped(kind, root, end):
    names = kind.names(end)
    chance = random.Random(7)
    for _ in range(40):
        one, other = chance.sample(names, 2)
        files = dict(kind.made[end])
        files[one], files[other] = files[other], files[one]
        remains.lay(files, root)
        assert_mended(kind, root, (one, other), told=True if end == "closed" and files != kind.made[end] else None)


@pytest.mark.parametrize("end", ENDS)
def test_the_files_of_another_store(kind, root, end):
    for folders in ([kind.folders[0]], kind.folders):
        files = {name: data for name, data in kind.made[end].items() if name.split("/")[0] not in folders}
        files.update({name: data for name, data in kind.made["other"].items() if name.split("/")[0] in folders})
        remains.lay(files, root)
        assert_mended(kind, root, folders, told=True if end == "closed" else None)


@pytest.mark.some(18)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("how", ["gone", *HOWS])
def test_the_log_begins_later(kind, root, end, how):
    """Units of cleaned records cannot be checked, except that they are before the others."""
    chance = random.Random(how)
    files = {name: data for name, data in kind.made[end].items() if name != f"commitlog/{0:020d}"}
    names = [name for name in kind.names(end) if name.endswith("/" + "0" * 20)]
    for name in names:
        laid = dict(files)
        if how == "gone":
            del laid[name]
        else:
            laid[name] = overwritten(laid[name], how, chance)
        remains.lay(laid, root)
        with opened(root, **kind.fields) as one:
            kind.assert_answers(one.store, root, (name, how))
            kind.put_more(one.store, root, (name, how))
            assert one.store.wait_dispatched(30)
            kind.assert_answers(one.store, root, (name, how))
        with opened(root, **kind.fields) as one:
            kind.assert_answers(one.store, root, (name, how))
