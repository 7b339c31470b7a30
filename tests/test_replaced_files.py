"""Another program has put something else in the place of a store's file: a FIFO, a device, a symbolic link.

No call waits for it, none writes outside of the store, and each error names it."""

import contextlib
import shutil
from pathlib import Path

import pytest
from crash.small import SMALL
from support.replaced import MAKERS, is_named, no_hang, replace

import rocketc
from rocketc.jobs.inventory import take_inventory

pytestmark = pytest.mark.promise(8)

FIELDS = {**SMALL, "mapped_file_size_commit_log": 1 << 14, "enable_consume_queue_ext": True,
          "mapped_file_size_consume_queue_ext": 4096}  # fmt: skip
FIRST = "0" * 20
LAST = f"{1 << 14:020d}"

# Each file of a store, and whether a writer refuses the store. Other files are made again from the log.
FILES = {
    "lock": True,
    "abort": True,
    "checkpoint": True,
    f"commitlog/{FIRST}": True,  # except for a link: an older file of the log, which is only read, may be one
    f"commitlog/{LAST}": True,
    "config/topics.json": False,
    "config/topics.json.tmp": False,
    f"consumequeue/orders/0/{FIRST}": False,
    f"consumequeue_ext/orders/0/{FIRST}": False,
    "index/*": False,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "store"
    with rocketc.open(root, **FIELDS) as store:
        store.create_topic("orders")
        for n in range(40):
            store.put("orders", b"body" * 100, keys=f"k{n}", tags="t")
    return root


def write(root: Path) -> None:
    with rocketc.open(root, **FIELDS) as store:
        for n in range(40):
            store.put("orders", b"more" * 100, keys=f"m{n}", tags="t")
        store.create_topic("new")
        assert store.flush() == store.max_phy_offset


def read(root: Path) -> None:
    with contextlib.closing(rocketc.open(root, read_only=True, **FIELDS)) as store:
        store.get("orders", 0, 0)
        list(store.query("orders", "k1"))


READS = {
    "scan": lambda root: rocketc.scan(root).count(),
    "info": lambda root: take_inventory(str(root)),
    "verify": rocketc.verify,
    "read": read,
    "salvage": lambda root: rocketc.salvage(root, root.parent / "salvaged"),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_replaced(whole: Path, memory_path: Path, name: str, kind: str) -> None:
    root = memory_path / "store"
    shutil.copytree(whole, root)
    path = next(root.glob(name)) if "*" in name else root / name
    outside = memory_path / "outside"
    before = replace(path, kind, outside)
    with no_hang():
        for read in READS.values():
            try:
                read(root)
            except rocketc.RocketcError as error:
                assert is_named(path, error)
        if (FILES[name] and (name, kind) != (f"commitlog/{FIRST}", "link")) or (
            name.endswith(".tmp") and kind != "folder"
        ):
            with pytest.raises(rocketc.StoreIOError) as refused:
                write(root)
            assert is_named(path, refused.value)
        else:
            try:
                write(root)
            except rocketc.RocketcError as error:
                assert is_named(path, error)
    assert outside.read_bytes() == before
    assert not (path.parent / "nowhere").exists()
