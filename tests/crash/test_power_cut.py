"""Power cuts in a model of the disk: crash.power_cut and others open thousands of images. Here are also the cases
found.

ROCKETC_SEED=n tries the stores of seed n. ROCKETC_LONG_SECONDS sets the time of the long run. A failure names its seed
and leaves the image.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from crash import remains
from crash.power_cases import CASES
from crash.small import SMALL
from support import preload
from support.native import ROOT
from support.promise_counts import count
from support.store_checks import assert_answers, assert_files, opened, records_of

import rocketc

pytestmark = pytest.mark.promise(1, 5, 6)
SCENARIOS = {  # images of a run in `make test`
    "power_cut": 180,
    "power_cleaning": 120,
    "power_queue": 120,
    "power_tables": 120,
    "power_turns": 120,
    "power_timers": 60,
}
LONG_SECONDS = float(os.environ.get("ROCKETC_LONG_SECONDS", "900"))  # of all scenarios together


def run(module: str, *arguments: object, **environment: object) -> str:
    """Run a program below tests/ with disk.c before libc, and return its output."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)]),
        "LD_PRELOAD": preload.loading(preload.built(Path(__file__).with_name("disk.c"))),
        **{name: str(value) for name, value in environment.items()},
    }
    command = [sys.executable, "-X", "faulthandler", "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    print(done.stderr, end="")
    assert done.returncode == 0, done.stderr
    return done.stdout


def cut_power(scenario: str, seed: int, **how: object) -> None:
    """Try the stores of a seed. The files of a failure are kept."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="power-cut-", dir=shared))
    print(f"{scenario}, seed {seed}: run it again with ROCKETC_SEED={seed}")
    told = json.loads(run(f"crash.{scenario}", folder, seed, **how))
    print(told)
    shutil.rmtree(folder)
    assert told["images"] > 0
    assert told["acknowledged"] > 0 or scenario == "power_tables"  # power_tables has a store without messages
    count("images", told["images"])
    count("acknowledged", told["acknowledged"])


@pytest.mark.some(3)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_cuts(scenario):
    cut_power(scenario, int(os.environ.get("ROCKETC_SEED", "1")), ROCKETC_IMAGES=SCENARIOS[scenario])


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_cuts_for_long(scenario):
    seed = os.environ.get("ROCKETC_SEED")
    seconds = LONG_SECONDS / len(SCENARIOS)
    cut_power(scenario, int(seed) if seed else random.SystemRandom().randrange(1 << 32), ROCKETC_SECONDS=seconds)


# ---------------------------------------------------------------- cases found
FIELDS = {**SMALL, "mapped_file_size_commit_log": 4096}


@pytest.mark.some(6)
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_what_must_be_durable(memory_path, case):
    """See crash.power_cases: each case was not on the disk when it had to be."""
    run("crash.power_cases", case, memory_path / "store")


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("sizes", [(0, 4096), (0, 0), (0, 0, 4096), (100, 0, 4096, 0)])
def test_files_that_were_being_created(memory_path, sizes, closed):
    """The names of several log files were on the disk, but not all their lengths: open() refused the store."""
    root = memory_path / "store"
    rocketc.open(root, **FIELDS).close()
    for n, size in enumerate(sizes):
        (root / f"commitlog/{4096 * n:020d}").write_bytes(bytes(size))
    if not closed:
        (root / "abort").touch()
    with rocketc.open(root, **FIELDS) as store:
        assert [store.put("orders", bytes(3000)).queue_offset for _ in range(3)] == [0, 1, 2]
    assert len(records_of(root)) == 3


def test_a_file_that_was_being_created_before_others(memory_path):
    """Nothing of the file's log was durable: bytes in later files are cut off and kept, and the store opens."""
    root = memory_path / "store"
    with rocketc.open(root, **FIELDS) as store:
        for _ in range(3):
            store.put("orders", bytes(3000))
        files = remains.take(root)
    files["commitlog/%020d" % 0] = b""
    with rocketc.open(remains.lay(files, root), **FIELDS) as store:
        assert store.max_phy_offset == 0
        assert store.put("orders", b"next").phy_offset == 0
    assert len(remains.kept(remains.take(root))) == 2


def test_a_closed_log_that_lost_the_bytes_of_a_file_is_refused(memory_path):
    root = memory_path / "store"
    with rocketc.open(root, **FIELDS) as store:
        for _ in range(3):
            store.put("orders", bytes(3000))
    (root / "commitlog" / ("%020d" % 0)).write_bytes(b"")
    with pytest.raises(rocketc.StoreIOError, match="have 4096"):
        rocketc.open(root, **FIELDS)


def test_a_queue_created_after_the_clock_was_set_back(memory_path, monkeypatch):
    """The queue's messages have earlier times than the checkpoint's, so the catch-up did not search for them."""
    monkeypatch.setattr("rocketc.store.catch_up.SMALL_BYTES", 0)
    monkeypatch.setattr("rocketc.log.recovery.SMALL_BYTES", 0)
    root = memory_path / "store"
    with rocketc.open(root, **FIELDS) as store:
        store._set_clock(1_700_000_000_000)
        for _ in range(4):
            store.put("orders", bytes(2000))
    with rocketc.open(root, **FIELDS) as store:
        store._set_clock(1_699_999_000_000)
        for n in range(8):
            store.put("late" if n < 4 else "orders", bytes(2000))
        store.flush()
        store.wait_dispatched()
        files = remains.take(root)
    lost = {name: data for name, data in files.items() if "consumequeue/late" not in name}
    assert len(lost) < len(files)
    with opened(remains.lay(lost, root), **FIELDS) as one:
        assert_answers(one.store, records_of(root))
        assert [one.store.put(topic, b"").queue_offset for topic in ("late", "orders")] == [4, 8]
    assert_files(root, FIELDS)


@pytest.mark.parametrize("begin", [0, 1_600_000_000_000], ids=["lost", "of cut-off records"])
def test_the_header_of_an_index_file_without_keys(memory_path, begin):
    """The header was lost, or was an old one: then the time of the first key was counted from a wrong begin."""
    root = memory_path / "store"
    fields = {**FIELDS, "max_index_num": 3}
    with rocketc.open(root, **fields) as store:
        store._set_clock(1_700_000_000_000)
        for n in range(2):
            store.put("orders", b"", keys=f"k{n}")
    [full] = (root / "index").iterdir()
    empty = full.with_name(str(int(full.name) + 1))
    empty.write_bytes(struct.pack(">qqqqii", begin, begin, 0, 0, 0, int(begin > 0)) + bytes(full.stat().st_size - 40))
    with rocketc.open(root, **fields) as store:
        store._set_clock(1_700_000_005_000)
        store.put("orders", b"", keys="k2")
    assert_files(root, fields)
