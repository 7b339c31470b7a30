"""Locks under eight threads and more: mutual exclusion, no starvation, and no race for the thread sanitizer.

Shares are measured by progress: how often each thread had the lock when all together had it `total` times.
"""

import os
import subprocess
import threading
from pathlib import Path

import pytest
from support.native import ROOT

from rocketc.log import _put_locks
from rocketc.log._put_locks import AdaptiveLock, Contest

SHARE = 1 / 8  # the least part of an even share; a quiet machine gives 1/2 and more


def run(contest, meanwhile=None):
    """Run a contest in its threads; call meanwhile() while it lasts."""
    threads = [threading.Thread(target=contest.run, args=(i,)) for i in range(contest.threads)]
    for thread in threads:
        thread.start()
    while meanwhile and any(thread.is_alive() for thread in threads):
        meanwhile()
    for thread in threads:
        thread.join()
    assert contest.wrong == 0, "two threads were inside at once"
    assert sum(contest.taken) == contest.total


def assert_nobody_starves(make, attempts=3):
    """Run contests until one is fair: on a busy machine a thread may lack a core for a while, but not each time."""
    for _ in range(attempts):
        contest = make()
        run(contest)
        even = contest.total / contest.threads
        if min(contest.taken) >= SHARE * even and max(contest.passed) <= contest.total / 2:
            return
    raise AssertionError(f"taken {contest.taken}, passed by {contest.passed}")


@pytest.fixture(params=_put_locks.LOCKS)
def lock(request):
    return _put_locks.LOCKS[request.param]()


# ---------------------------------------------------------------- mutual exclusion, and no starvation
def test_eight_threads(lock):
    assert_nobody_starves(lambda: Contest(lock, 8, 3_000_000, inside=50, outside=100, watch=True))


def test_eight_threads_that_try(lock):
    run(Contest(lock, 8, 200_000, inside=5, tries=True))


@pytest.mark.parametrize("again", [2, 5])
def test_eight_threads_that_take_the_reentrant_lock_again(again):
    run(Contest(_put_locks.ReentrantLock(), 8, 300_000, inside=10, again=again))


def test_the_adaptive_lock_changes_under_eight_threads():
    lock = AdaptiveLock()
    changes = 0

    def change():
        nonlocal changes
        _put_locks.swap_now(lock)
        changes += 1

    run(Contest(lock, 8, 1_000_000, inside=10, outside=20), change)
    assert changes > 10


def test_the_adaptive_lock_adapts_under_eight_threads():
    """The lock's seconds pass at once: it counts, forgets and adapts all the time."""
    lock = AdaptiveLock(1)
    second = 0

    def tick():
        nonlocal second
        second += 1
        _put_locks.set_second(lock, second)

    run(Contest(lock, 8, 500_000, inside=10), tick)
    state = _put_locks.adaptive_state(lock)
    assert state.degree <= 10000
    assert max(state.threads) <= 9


@pytest.mark.long
@pytest.mark.parametrize("threads", [2, 3, 8, 32])
@pytest.mark.parametrize(("inside", "outside"), [(0, 0), (50, 100), (50, 0), (2000, 100)])
def test_many_threads_for_long(lock, threads, inside, outside):
    total = 2_000_000_000 // (inside + 20)
    assert_nobody_starves(lambda: Contest(lock, threads, total, inside=inside, outside=outside, watch=True))


# ---------------------------------------------------------------- the headers under the thread sanitizer
@pytest.fixture(scope="module")
def hammer(tmp_path_factory):
    """hammer(what, threads, rounds) runs hammer.c and returns the finished process."""
    folder = tmp_path_factory.mktemp("hammer")
    command = [*os.environ.get("CC", "cc").split(), "-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fsanitize=thread"]
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # one sanitizer at a time

    def build(source: Path, program: str, *flags: str) -> str | None:
        line = [*command, *flags, "-I", str(ROOT / "include"), str(source), "-o", str(folder / program), "-pthread"]
        done = subprocess.run(line, capture_output=True, text=True, env=env)
        return None if done.returncode == 0 else done.stderr

    if why := build(empty, "empty"):
        pytest.skip(f"the compiler does not support the thread sanitizer: {why.strip().splitlines()[-1]}")
    if subprocess.run([folder / "empty"], env=env, capture_output=True).returncode != 0:
        pytest.skip("programs with the thread sanitizer do not run on this system")
    source = Path(__file__).with_name("hammer.c")
    assert build(source, "hammer") is None
    assert build(source, "portable", "-U__linux__") is None

    def run(*arguments, program: str = "hammer") -> subprocess.CompletedProcess:
        return subprocess.run([folder / program, *map(str, arguments)], capture_output=True, text=True, env=env)

    return run


HAMMERED = {"spin": 20_000, "spin-held": 640, "reentrant": 20_000, "reentrant-held": 640, "histogram": 20_000}


@pytest.mark.parametrize("what", HAMMERED)
def test_thread_sanitizer(hammer, what):
    done = hammer(what, 8, HAMMERED[what])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("threads", [2, 8, 32])
@pytest.mark.parametrize("what", HAMMERED)
def test_thread_sanitizer_for_long(hammer, what, threads):
    done = hammer(what, threads, 10 * HAMMERED[what])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("what", ["reentrant", "reentrant-held"])
def test_thread_sanitizer_of_the_lock_for_other_systems(hammer, what):
    done = hammer(what, 8, HAMMERED[what], program="portable")
    assert (done.returncode, done.stderr) == (0, "")


def test_thread_sanitizer_sees_a_race(hammer):
    done = hammer("nothing", 8, 20_000)
    assert done.returncode == 66
    assert "data race" in done.stderr
