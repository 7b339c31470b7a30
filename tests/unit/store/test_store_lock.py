"""A store that is open for writing loses its lock: it notices within a second, refuses puts, and says why."""

import contextlib
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.small import SMALL
from support.command import python

import rocketc

pytestmark = pytest.mark.promise(7)

FIELDS = {**SMALL, "mapped_file_size_commit_log": 1 << 16}
SECOND = 1.0


def replace_file(root: Path) -> None:
    (root / "lock").unlink()
    (root / "lock").write_bytes(b"lock")


def replace_folder(root: Path) -> None:
    (root / "commitlog").rename(root / "away")
    (root / "commitlog").mkdir()


def link_file(root: Path) -> None:
    (root / "lock").rename(root / "away")
    (root / "lock").symlink_to("away")


LOSSES: dict[str, tuple[Callable[[Path], object], str]] = {
    "file": (lambda root: (root / "lock").unlink(), "lock"),
    "another file": (replace_file, "lock"),
    "link": (link_file, "lock"),
    "folder": (lambda root: (root / "commitlog").rename(root / "away"), "commitlog"),
    "another folder": (replace_folder, "commitlog"),
    "root": (lambda root: root.rename(root.parent / "away"), "lock"),
}


@pytest.mark.some(6)
@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_store_that_loses_its_lock(tmp_path: Path, loss: str, flush: str, caplog: pytest.LogCaptureFixture) -> None:
    lose, name = LOSSES[loss]
    root = tmp_path / "store"
    store = rocketc.open(root, flush=flush, **FIELDS)
    store.put("t", b"body")
    assert store.failed is None
    lose(root)
    start = time.monotonic()
    while store.failed is None and time.monotonic() - start < 10 * SECOND:
        time.sleep(0.01)
    assert time.monotonic() - start < 2 * SECOND  # the machine may be busy
    text = (
        f"^{root / name} is gone or was replaced, so another process may write this store: the store refuses all puts"
    )
    for put in (store.put, lambda topic, body: store.put_many(topic, [body])):
        with pytest.raises(rocketc.StoreFailedError, match=text) as refused:
            put("t", b"body")
        assert isinstance(refused.value.__cause__, rocketc.StoreLockedError)
        assert refused.value.status.name == "SERVICE_NOT_AVAILABLE"
    with caplog.at_level(logging.ERROR, "rocketc.store"), pytest.raises(rocketc.StoreFailedError, match=text):
        store.flush()
    with contextlib.suppress(rocketc.RocketcError):
        store.close()
    assert "is gone or was replaced" in caplog.text
    if loss in ("file", "another file"):
        assert (root / "abort").exists(), "another process may have the store: the next open() recovers it"
        with rocketc.open(root, **FIELDS) as store:
            assert store.put("t", b"body").queue_offset == 1


def test_a_store_without_threads(tmp_path: Path) -> None:
    now = 1_700_000_000_000
    store = rocketc.open(tmp_path, background=False, clock=lambda: now, **FIELDS)
    store.put("t", b"body")
    store.step()
    (tmp_path / "lock").unlink()
    with pytest.raises(rocketc.StoreFailedError, match="is gone or was replaced"):
        store.step()
    with pytest.raises(rocketc.StoreFailedError):
        store.put("t", b"body")
    with pytest.raises(rocketc.StoreFailedError):
        store.close()


def test_a_second_writer_is_refused_without_the_lock_file(tmp_path: Path) -> None:
    """Also before the first one has noticed; in this process and in another."""
    with contextlib.suppress(rocketc.StoreFailedError), rocketc.open(tmp_path, **FIELDS) as store:
        last = store.put("t", b"body")
        (tmp_path / "lock").unlink()
        with pytest.raises(rocketc.StoreLockedError, match="is in use by another writer, in this process"):
            rocketc.open(tmp_path, **FIELDS)
        code = f"import rocketc\ntry: rocketc.open({str(tmp_path)!r})\nexcept rocketc.StoreLockedError as e: print(e)"
        assert "commitlog is in use by another writer, by process" in python(code)
        with pytest.raises(rocketc.StoreLockedError):
            rocketc.rebuild(tmp_path)
    assert rocketc.scan(tmp_path).count() == 1
    with rocketc.open(tmp_path, **FIELDS) as store:
        assert store.put("t", b"body").phy_offset == last.end


@pytest.mark.parametrize("there", [False, True])
def test_two_roots_whose_settings_name_one_log(tmp_path: Path, there: bool) -> None:
    log = tmp_path / "log"
    if there:
        log.mkdir()
    one, two = ({**FIELDS, "store_path_commit_log": path} for path in (str(log), f"{tmp_path}/other,{log}"))
    with rocketc.open(tmp_path / "a", **one) as store:
        store.put("t", b"body")
        with pytest.raises(rocketc.StoreLockedError, match=f"the log in {log} is in use by another writer$"):
            rocketc.open(tmp_path / "b", **two)
    with rocketc.open(tmp_path / "b", **one) as store:
        assert store.put("t", b"body").phy_offset > 0
        with pytest.raises(rocketc.StoreLockedError):
            rocketc.open(tmp_path / "a", **one)
    assert rocketc.scan(log).count() == 2


def test_a_copy_of_a_store_is_another_store(tmp_path: Path) -> None:
    with rocketc.open(tmp_path / "a", **FIELDS) as store:
        store.put("t", b"body")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        with rocketc.open(tmp_path / "b", **FIELDS) as other:
            assert other.put("t", b"body").queue_offset == 1
        assert store.put("t", b"body").queue_offset == 1
