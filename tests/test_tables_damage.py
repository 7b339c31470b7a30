"""Damage to the tables of a store, config/*.json: the store opens and reports it, and all messages are intact.

A consumer gets all messages that it has not acked.
"""

import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from support.store_checks import assert_answers, opened, records_of
from test_derived_damage import damaged

import rocketc
from rocketc.tables.fastjson import parse
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.topics import Topics

pytestmark = pytest.mark.promise(6)

FIELDS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
TABLES = {table.NAME: table for table in (Topics, ConsumerOffsets, DelayOffsets, SubscriptionGroups)}
HOWS = ["zeros", "noise", "bit", "all noise", "longer", "empty"]
COUNT, ACKED = 40, 25


@pytest.fixture(scope="module")
def files() -> remains.Files:
    """A store with all tables, and with a .bak of each."""
    with remains.memory() as folder:
        with rocketc.Queue(folder, delete_acked=False, **FIELDS) as queue:
            queue.store.create_topic("orders", queues=2)
            queue.store.create_topic("batches", queue_type="BatchCQ")
            for n in range(COUNT):
                queue.put(b"%d" % n, keys=f"k{n % 7}")
                queue.store.put("orders", b"%d." % n, queue_id=n % 2, tags="Aa")
                queue.store.put("batches", b"%d." % n)
            for n in range(ACKED):
                queue.ack(queue.get())
                if n == 10:
                    queue._positions.write()
            assert queue.store.wait_dispatched(30)
        for n in range(2):
            delays, groups = DelayOffsets(folder), SubscriptionGroups(folder)
            delays.commit(3, 51 + n)
            delays.persist()
            groups.create(SubscriptionGroupConfig("audit", retry_max_times=3 + n))
        found = remains.take(Path(folder))
    assert {f"config/{name}{end}" for name in TABLES for end in ("", ".bak")} <= set(found)
    return found


@pytest.fixture
def root() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder, "store")


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The warnings about tables."""
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("rocketc.tables").addHandler(handler)
    yield texts
    logging.getLogger("rocketc.tables").removeHandler(handler)


def entries(name: str, root: Path) -> dict[Any, Any]:
    return {entry[:-1]: entry[-1] for entry in TABLES[name](root).items()}


def known(files: remains.Files, name: str, root: Path) -> list[dict[Any, Any]]:
    """The entries of the table, of its .bak, and of an empty table."""
    found: list[dict[Any, Any]] = []
    for path in (f"config/{name}", f"config/{name}.bak"):
        remains.lay({f"config/{name}": files[path]}, root)
        found.append(entries(name, root))
    assert found[0] != found[1] and all(found)
    return [*found, {}]


def lay(files: remains.Files, root: Path, name: str, data: bytes | None, *, bak: bool = True) -> None:
    """Write the store with a changed or missing table."""
    laid = {**files, f"config/{name}": data or b""}
    if data is None:
        del laid[f"config/{name}"]
    if not bak:
        del laid[f"config/{name}.bak"]
    remains.lay(laid, root)


def assert_opens(root: Path, says: object) -> None:
    """Assert that all messages are there, and that queues and tables accept more."""
    with opened(root, **FIELDS) as one:
        assert one.told == [], says
        assert_answers(one.store, records_of(root), says)
        assert one.store.put("orders", b"next", queue_id=1).queue_offset == COUNT // 2
        assert one.store.put("batches", b"next").queue_offset == COUNT
        one.store.create_topic("new")
        assert "new" in one.store.topics()
    assert Topics(root).load_error is None, says
    with rocketc.open(root, **FIELDS) as store:
        assert "new" in store.topics(), says
        assert_answers(store, records_of(root), says)


def assert_delivers(root: Path, says: object) -> None:
    """Assert that all unacked messages are delivered, in order; acked ones may be delivered again."""
    with rocketc.Queue(root, delete_acked=False, **FIELDS) as queue:
        found = []
        while len(found) < COUNT and (not found or found[-1] < COUNT - 1):
            found.append(int(queue.get(timeout=10)))
    assert found == list(range(found[0], COUNT)) and found[0] <= ACKED, says


@pytest.mark.some(5)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("bak", [True, False], ids=["bak", "no bak"])
def test_a_table_is_cut(files, root, told, name, bak):
    now, before, nothing = known(files, name, root)
    data = files[f"config/{name}"]
    alone = {path: table for path, table in files.items() if path.startswith(f"config/{name}")}
    for size in [None, *range(len(data))]:
        whole = size is None or size % 25 == 1
        lay(files if whole else alone, root, name, None if size is None else data[:size], bak=bak)
        told.clear()
        found = entries(name, root)
        assert found == (before if bak else nothing), size
        assert bool(told) == (size is not None), (size, told)
        assert size is None or f"config/{name}" in told[0]
        if name == Topics.NAME and whole:
            assert_opens(root, size)
        if name == ConsumerOffsets.NAME and whole:
            assert_delivers(root, size)
    assert now not in (before, nothing)


@pytest.mark.some(10)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("how", HOWS)
def test_a_table_is_overwritten(files, root, told, name, how):
    """JSON does not have a checksum: a changed table that is valid JSON is used. Any other is not used at all."""
    some = known(files, name, root)
    chance = random.Random(how)
    for n in range(40):
        data = damaged(files[f"config/{name}"], how, chance)
        lay(files, root, name, data)
        told.clear()
        found = entries(name, root)
        if not is_json(data):
            assert found == some[1], data
            assert told, data
        if n % 8 == 0 and (name != ConsumerOffsets.NAME or found in some):
            assert_opens(root, data)
            assert_delivers(root, data)


def is_json(data: bytes) -> bool:
    try:
        return isinstance(parse(data), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_replaced_by_another(files, root, told, name):
    for other in [*TABLES, "topics.json.bak", "checkpoint"]:
        if other == name:
            continue
        data = files[other if other == "checkpoint" else f"config/{other}"]
        lay(files, root, name, data)
        told.clear()
        found = entries(name, root)
        assert found in known(files, name, root / "aside") or set(found) <= {(3,)}, "delay levels, and queue ids"
        lay(files, root, name, data)
        assert_opens(root, other)
        assert_delivers(root, other)


@pytest.mark.parametrize("damage", [bytes, lambda data: b"\xff" * len(data), lambda data: data[:1]])
def test_all_tables_at_once(files, root, damage: Callable[[bytes], bytes]):
    laid = {path: damage(data) if path.startswith("config/") else data for path, data in files.items()}
    remains.lay(laid, root)
    assert_opens(root, "all")
    assert_delivers(root, "all")


def test_the_queues_of_a_topic_keep_their_type(files, root):
    """The table has another type of queue than the files: the existing queue continues."""
    data = files["config/topics.json"].replace(b"BatchCQ", b"SimpleCQ")
    assert data != files["config/topics.json"]
    lay(files, root, "topics.json", data)
    assert_opens(root, "simple")
    for path in (root / "batchconsumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    with rocketc.open(root, **FIELDS) as store:
        assert store.max_offset("batches") == COUNT + 1
        assert len(store.get("batches", 0, 0, 100)) == COUNT + 1
