"""How much does a put lock cost, and do all threads get the same share?"""

from collections.abc import Callable
from functools import partial
from statistics import median

from common import Bench, in_threads, same

from rocketc.log._put_locks import LOCKS, Contest, PthreadLock

THREADS = (1, 2, 4, 8)
TAKINGS = 8_000_000  # per round and thread: enough for a few time slices of the scheduler
PUTS = 800_000  # per round and thread, with work inside and outside of the lock
QUICK = 5  # with --quick, divide the numbers by this
WORK = {  # about this many ns of arithmetic, with the lock held and between two takings
    "nothing else": {"inside": 0, "outside": 0},
    "100 ns outside, 50 ns inside": {"inside": 50, "outside": 100},  # roughly a put of a small message
}
PEERS = {  # lock -> the lock of the system with the same abilities
    "spin": ("pthread_mutex", PthreadLock),
    "reentrant": ("recursive pthread_mutex", partial(PthreadLock, recursive=True)),
    "adaptive": ("pthread_mutex", PthreadLock),
}

bench = Bench("locks", __doc__)


class Side:
    """A round is a contest: threads take one lock until it was taken `total` times. The object keeps the shares."""

    def __init__(self, make: Callable, threads: int, total: int, work: dict):
        self.lock, self.threads, self.total, self.work = make(), threads, total, work
        self.shares: list[float] = []  # least share over greatest share, per round

    def __call__(self) -> float:
        contest = Contest(self.lock, self.threads, self.total, **self.work)
        in_threads(self.threads, contest.run)
        same((contest.wrong, sum(contest.taken)), (0, self.total), type(self.lock).__name__)
        self.shares.append(min(contest.taken) / max(contest.taken))
        return contest.ns / 1e9  # from the start of all threads until the last one has ended


def row(name: str, threads: int, work: str):
    against, peer = PEERS[name]
    total = threads * (PUTS if WORK[work]["inside"] else TAKINGS) // (QUICK if bench.quick else 1)
    ours, theirs = (Side(make, threads, total, WORK[work]) for make in (LOCKS[name], peer))
    case = f"{name}, {threads} thread{'s' * (threads > 1)}, {work}"
    goal = 1.0 if threads == 1 and name != "adaptive" and not WORK[work]["inside"] else None
    bench.row(case, against=against, goal=goal, work=total, unit="ns/pair", ours=ours, theirs=theirs)
    if ours.shares and threads > 1:
        ratio = median(ours.shares) / max(median(theirs.shares), 0.001)
        bench.show(f"{case}: shares", against, ratio, None, ours.shares, theirs.shares, "least/greatest")


def main():
    for work in WORK:
        for threads in THREADS:
            for name in LOCKS:
                row(name, threads, work)


if __name__ == "__main__":
    main()
