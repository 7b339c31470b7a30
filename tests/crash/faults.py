"""Calls that fail: each call that a store makes fails at the n-th time, for each n, once or from then on for good.

`python -m crash.faults FOLDER JOB PART PARTS`, with tests/failing.c before libc: every PARTS-th case of a job, from
PART on. It writes a line of JSON: what was tried. A failure says which case it was, and leaves the store in FOLDER.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import json
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import oracle
from crash import remains
from crash.power_cut import Known, Put, as_put, assert_survives
from crash.small import SMALL

import rocketc

SHORT = 0  # in the place of an errno: half of it is read or written
FOR_GOOD = 1 << 30
CALLS: dict[str, list[int]] = {
    "open": [errno.EMFILE, errno.EIO, errno.ENOSPC],
    "read": [errno.EIO, SHORT],
    "pread": [errno.EIO, SHORT],
    "write": [errno.ENOSPC, errno.EIO, errno.EINTR, SHORT],
    "pwrite": [errno.ENOSPC, errno.EIO, errno.EINTR, SHORT],
    "fallocate": [errno.ENOSPC, errno.EIO, errno.EINTR],
    "ftruncate": [errno.EIO, errno.ENOSPC],
    "lseek": [errno.EIO],
    "mmap": [errno.ENOMEM],
    "madvise": [errno.ENOMEM, errno.EIO],
    "msync": [errno.EIO, errno.ENOMEM],
    "fsync": [errno.EIO, errno.ENOSPC],
    "fdatasync": [errno.EIO, errno.ENOSPC],
    "fcntl": [errno.ENOLCK, errno.EINTR],
    "linkat": [errno.EIO, errno.ENOSPC],
    "rename": [errno.EIO, errno.ENOSPC],
    "unlink": [errno.EIO, errno.EACCES],
    "mkdir": [errno.ENOSPC, errno.EIO],
    "rmdir": [errno.EIO],
    "malloc": [errno.ENOMEM],
}
FIELDS: dict[str, Any] = {
    **SMALL,
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 60,
    "max_hash_slot_num": 4,
    "max_index_num": 8,
    "flush_interval_consume_queue": 1 << 30,
    "flush_interval_commit_log": 1 << 30,
}
MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush": "sync"},
    "async": {"flush": "async"},
    "pool": {"flush": "async", "transient_store_pool_enable": True, "commit_interval_commit_log": 1 << 20},
}


class Case(NamedTuple):
    """The at-th call of a name fails with an errno, and count - 1 behind it."""

    call: str
    at: int
    count: int
    error: int

    def __str__(self) -> str:
        how = "once" if self.count == 1 else "for good"
        return f"{self.call} fails at {self.at}, {how}: {errno.errorcode.get(self.error, 'a part only')}"


class Shim:
    def __init__(self, root: Path) -> None:
        self._c = ctypes.CDLL(None)
        self._root = os.fsencode(root)

    def arm(self, case: Case) -> None:
        self._c.failing_arm(case.call.encode(), case.at, case.count, case.error, self._root)

    def disarm(self) -> tuple[int, int]:
        """(calls counted, calls that failed)"""
        failed = ctypes.c_int()
        return self._c.failing_disarm(ctypes.byref(failed)), failed.value


class Story:
    """What a job did: messages begun, messages acknowledged, and the errors that it met."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.known = Known(closed=False)
        self.errors: list[BaseException] = []
        self.failed: BaseException | None = None

    def do(self, call: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
        """The result of a call, or None: an exception of ours that says what is wrong with which file."""
        try:
            result = call(*arguments, **how)
        except Exception as error:
            self.errors.append(error)
            assert_ours(error)
            return None
        return result

    def put(self, store: Any, number: int) -> None:
        body = b"%d." % number + bytes([65 + number % 26]) * (900 + 10 * number)
        self.known.put[number] = Put("orders", 0, body)
        was_failed = store.failed is not None
        result = self.do(store.put, "orders", body, tags="A", keys=f"k{number % 3} l{number}")
        if result is None:
            return
        assert not was_failed, "a failed store has taken a message"
        assert result.status.name == "PUT_OK", result
        self.known.put[number] = Put("orders", 0, body, result.phy_offset, result.queue_offset)
        if self.fields["flush"] == "sync":
            self.known.must.add(number)

    def flush(self, store: Any) -> None:
        before = {number for number, put in self.known.put.items() if put.phy_offset >= 0}
        was_failed = store.failed is not None
        if self.do(store.flush) is not None:
            assert not was_failed, "a failed store says that all is durable"
            self.known.must |= before

    def close(self, store: Any) -> None:
        put = {number for number, put in self.known.put.items() if put.phy_offset >= 0}
        count = len(self.errors)
        self.do(store.close)
        assert store.closed
        if len(self.errors) == count:
            self.known.must |= put


def assert_ours(error: BaseException) -> None:
    """It names the file and what is wrong with it, and says more than that something failed."""
    if isinstance(error, MemoryError):
        return
    assert isinstance(error, rocketc.RocketcError), repr(error)
    text = str(error)
    assert len(text) > 10, text
    if isinstance(error, OSError):
        assert error.errno and error.strerror and error.filename, repr(error)


# ---------------------------------------------------------------- jobs
def write(root: Path, story: Story) -> None:
    """Open a store that may be new, put over two rolls, flush, read, close."""
    store = story.do(rocketc.open, root, **story.fields)
    if store is None:
        return
    for number in range(9):
        story.put(store, number)
        if number == 5:
            story.flush(store)
    story.flush(store)
    story.do(store.wait_dispatched, timeout=20)
    story.close(store)


def recover(root: Path, story: Story) -> None:
    """Open a store that crashed, and close it."""
    store = story.do(rocketc.open, root, **story.fields)
    if store is not None:
        story.close(store)


JOBS: dict[str, Callable[[Path, Story], None]] = {"write": write, "recover": recover}


def prepare(job: str, root: Path, fields: dict[str, Any]) -> Known:
    """What a job begins with, and what is known of it."""
    known = Known(closed=False)
    if job == "write":
        return known
    with rocketc.open(root, **fields) as store:
        ends = []
        for number in range(9):
            body = b"%d." % number + bytes([65 + number]) * (900 + 10 * number)
            ends.append(store.put("orders", body, tags="A", keys=f"k{number % 3} l{number}").end)
        store.flush()
        store.wait_dispatched()
        files = remains.take(root)
    # A record that never reached the disk, and some behind it that did: they are cut off and kept
    files = {**remains.zeroed(files, ends[4] - 100, ends[4] - 50), "abort": b"1"}
    files.pop("checkpoint")
    remains.lay(files, root)
    found = [as_put(record) for record in records_before_damage(root)]
    known.put = {one.number: one for one in found}
    known.must = set(known.put)
    return known


def records_before_damage(root: Path) -> list[Any]:
    items = oracle.walk_log(oracle.read_log(root / "commitlog"))
    damage = oracle.damage(items)
    return [r for r in oracle.records(items) if not damage or r["physicalOffset"] < damage[0].start]


# ---------------------------------------------------------------- all cases of a job
def cases(job: str, mode: str, folder: Path) -> Iterator[Case]:
    """Each call of the job, once and for good, with what such a call may meet."""
    for call, errors in CALLS.items():
        made = play(job, mode, folder, Case(call, 0, 0, 0))
        for at in range(1, made + 1):
            for error in errors:
                yield Case(call, at, 1, error)
                if error not in (SHORT, errno.EINTR):
                    yield Case(call, at, FOR_GOOD, error)


def play(job: str, mode: str, folder: Path, case: Case) -> int:
    """Run a job while calls fail, and look at what it has left; how many calls of that name it made."""
    fields = {**FIELDS, **MODES[mode]}
    root = folder / "store"
    shutil.rmtree(root, ignore_errors=True)
    story = Story(fields)
    story.known = prepare(job, root, fields)
    shim = Shim(root)
    faulthandler.dump_traceback_later(60, exit=True)
    shim.arm(case)
    try:
        JOBS[job](root, story)
    finally:
        made, failed = shim.disarm()
    if failed == 0:
        assert story.errors == [], story.errors
    if root.exists():
        assert_survives(root, fields, story.known, 1_700_000_000_000)
    faulthandler.cancel_dump_traceback_later()
    return made


def main() -> None:
    folder, job, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    part, parts = int(sys.argv[4]), int(sys.argv[5])
    logging.getLogger("rocketc").addHandler(logging.NullHandler())
    tried = 0
    for n, case in enumerate(list(cases(job, mode, folder))):
        if n % parts != part:
            continue
        print(f"{job}, {mode}: {case}", file=sys.stderr, flush=True)
        try:
            play(job, mode, folder, case)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        tried += 1
    print(json.dumps({"faults": tried}))


if __name__ == "__main__":
    main()
