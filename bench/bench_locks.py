"""What does a put lock cost, and does every thread get its share?"""

from collections.abc import Callable
from functools import partial
from statistics import median

from common import Bench, in_threads, same

from rocketc.log._put_locks import LOCKS, Contest, PthreadLock

THREADS = (1, 2, 4, 8)
TAKINGS = 8_000_000  # a round, by each thread: long enough for a few slices of the scheduler's
PUTS = 800_000  # the same where there is work to do
QUICK = 5  # that part of them
WORK = {  # ns of arithmetic, about: with the lock held, and between two takings
    "nothing else": {"inside": 0, "outside": 0},
    "100 ns outside, 50 ns inside": {"inside": 50, "outside": 100},  # a put of a small message, roughly
}
PEERS = {  # each against the system's lock that can do the same
    "spin": ("pthread_mutex", PthreadLock),
    "reentrant": ("recursive pthread_mutex", partial(PthreadLock, recursive=True)),
    "adaptive": ("pthread_mutex", PthreadLock),
}

bench = Bench("locks", __doc__)


class Side:
    """A round is a contest: threads take one lock until it was taken `total` times. Keeps the shares."""

    def __init__(self, make: Callable, threads: int, total: int, work: dict):
        self.lock, self.threads, self.total, self.work = make(), threads, total, work
        self.shares: list[float] = []  # the least over the greatest, of each round

    def __call__(self) -> float:
        contest = Contest(self.lock, self.threads, self.total, **self.work)
        in_threads(self.threads, contest.run)
        same((contest.wrong, sum(contest.taken)), (0, self.total), type(self.lock).__name__)
        self.shares.append(min(contest.taken) / max(contest.taken))
        return contest.ns / 1e9  # from when all are ready until the last has left


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
