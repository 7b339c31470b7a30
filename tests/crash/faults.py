"""Calls that fail: each call of a job fails at its n-th time, for each n, once or permanently.

The jobs are in crash.fault_jobs. `python -m crash.fault_jobs FOLDER JOB MODE PART PARTS`, with tests/support/failing.c
loaded before libc, runs every PARTS-th case of a job, starting with PART. It writes a line of JSON that says what was
tried. A failure names its case and leaves the store in FOLDER.
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

from crash.power_cut import Put
from crash.small import SMALL

import rocketc

SHORT = 0  # in the place of an errno: half of the bytes are read or written
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
    "delete_commit_log_files_interval": 0,
    "delete_consume_queue_files_interval": 0,
}
MODES: dict[str, dict[str, Any]] = {
    "sync": {"flush": "sync"},
    "async": {"flush": "async"},
    "pool": {"flush": "async", "transient_store_pool_enable": True, "commit_interval_commit_log": 1 << 20},
}


class Case(NamedTuple):
    """The at-th call of a name fails with an errno, and so do the next count - 1."""

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
    """What a job did: messages begun, messages acknowledged, and the errors raised.

    known  a Known, of the kind that the job's survives() checks
    """

    def __init__(self, fields: dict[str, Any], case: Case, known: Any) -> None:
        self.fields = fields
        self.case = case
        self.known = known
        self.errors: list[BaseException] = []
        self.failed: BaseException | None = None

    def do(self, call: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
        """Return the result of a call, or None if it raised a clear exception of the library: see assert_ours()."""
        try:
            result = call(*arguments, **how)
        except Exception as error:
            self.errors.append(error)
            assert_ours(error)
            return None
        return result

    def put(self, store: Any, number: int, topic: str = "orders") -> None:
        body = body_of(number)
        self.known.begun([Put(topic, 0, body)])
        was_failed = store.failed is not None
        result = self.do(store.put, topic, body, tags="A", keys=f"k{number % 3} l{number}")
        if result is None:
            return
        assert not was_failed, "a failed store has accepted a message"
        assert result.status.name == "PUT_OK", result
        put = Put(topic, 0, body, result.phy_offset, result.queue_offset)
        self.known.acknowledged([put], durable=self.fields["flush"] == "sync", kept=True)

    def flush(self, store: Any) -> None:
        before = {number for number, put in self.known.put.items() if put.phy_offset >= 0}
        was_failed = store.failed is not None
        if self.do(store.flush) is not None:
            assert not was_failed, "a failed store reports everything as durable"
            self.known.durable(before)

    def close(self, store: Any) -> None:
        put = {number for number, put in self.known.put.items() if put.phy_offset >= 0}
        count = len(self.errors)
        self.do(store.close)
        assert store.closed
        if len(self.errors) == count:
            self.known.durable(put)


def body_of(number: int) -> bytes:
    return b"%d." % number + bytes([65 + number % 26]) * (900 + 10 * number)


def assert_ours(error: BaseException) -> None:
    """Assert that an error names the file and the cause, and says more than that something failed."""
    if isinstance(error, MemoryError):
        return
    assert isinstance(error, rocketc.RocketcError), repr(error)
    text = str(error)
    assert len(text) > 10, text
    if isinstance(error, OSError):
        assert error.errno and error.strerror and error.filename, repr(error)


class Job(NamedTuple):
    """What is done to a store while calls fail.

    prepare   makes the store to start with, in a folder that does not exist; returns what is known of it
    run       does the work, through a Story
    survives  checks the store that is left
    """

    prepare: Callable[[Path, dict[str, Any]], Any]
    run: Callable[[Path, Story], None]
    survives: Callable[[Path, Story], None]


# ---------------------------------------------------------------- all cases of a job
def cases(job: Job, mode: str, folder: Path) -> Iterator[Case]:
    """Each call of the job, failing once and permanently, with each error that such a call may return."""
    for call, errors in CALLS.items():
        made = play(job, mode, folder, Case(call, 0, 0, 0))
        for at in range(1, made + 1):
            for error in errors:
                yield Case(call, at, 1, error)
                if error not in (SHORT, errno.EINTR):
                    yield Case(call, at, FOR_GOOD, error)


def play(job: Job, mode: str, folder: Path, case: Case) -> int:
    """Run a job while calls fail, and check the store that is left; return the number of calls of that name."""
    fields = {**FIELDS, **MODES[mode]}
    root = folder / "store"
    shutil.rmtree(root, ignore_errors=True)
    story = Story(fields, case, job.prepare(root, fields))
    shim = Shim(root)
    faulthandler.dump_traceback_later(60, exit=True)
    shim.arm(case)
    try:
        job.run(root, story)
    finally:
        made, failed = shim.disarm()
    if failed == 0:
        assert story.errors == [], story.errors
    if root.exists():
        job.survives(root, story)
    faulthandler.cancel_dump_traceback_later()
    return made


def main(jobs: dict[str, Job]) -> None:
    folder, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    part, parts = int(sys.argv[4]), int(sys.argv[5])
    logging.getLogger("rocketc").addHandler(logging.NullHandler())
    tried = 0
    for n, case in enumerate(list(cases(jobs[name], mode, folder))):
        if n % parts != part:
            continue
        print(f"{name}, {mode}: {case}", file=sys.stderr, flush=True)
        try:
            play(jobs[name], mode, folder, case)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        tried += 1
    print(json.dumps({"faults": tried}))
