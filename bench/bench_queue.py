"""How fast is a queue read: as messages, as bytes, with a tag filter, from the page cache and from the disk?"""

import gc
from collections.abc import Callable
from functools import partial

import java_peer
from common import MIB, same
from reading import MIXED_TAGS, Pair, make_cold, stores, walk
from writing import TOPIC, Bench, JavaSide, Side, details

bench = Bench("queue", __doc__)
bench.rounds = 3 if bench.quick else 9
SIZES = {"128 B": 128} if bench.quick else {"128 B": 128, "1 KiB": 1024}
COLD_BYTES, COLD_FILES = (128 if bench.quick else 1024) * MIB, 16  # opening reads the last files, so they are not cold
RELEASES = java_peer.RELEASES[:1] if bench.quick else java_peer.RELEASES


# ---------------------------------------------------------------- our side: reads queue 0, returns (messages, sum)
def as_messages(store, to: int, tags: str | None = None) -> tuple[int, int]:
    """Message objects; reads the same fields as Get.java: offsets and body."""
    count = total = 0
    for got in walk(store, to, tags=tags):
        for m in got:
            total += m.queue_offset + m.phy_offset + len(m.body)
            count += 1
    return count, total


def bodies(store, to: int) -> tuple[int, int]:
    """Message objects; reads the body."""
    count = 0
    for got in walk(store, to):
        for m in got:
            m.body  # noqa: B018
        count += len(got)
    return count, 0


def untouched(store, to: int) -> tuple[int, int]:
    """Message objects; reads no field."""
    count = 0
    for got in walk(store, to):
        for _ in got:
            count += 1
    return count, 0


def every_field(store, to: int) -> tuple[int, int]:
    """Message objects; reads all fields that Java's decoder sets, properties included."""
    count = total = 0
    for got in walk(store, to):
        for m in got:
            m.topic, m.queue_id, m.flag, m.born_timestamp, m.store_timestamp, m.tags, m.keys, m.msg_id  # noqa: B018
            total += m.queue_offset + m.phy_offset + len(m.body) + 0 * len(m.properties)
            count += 1
    return count, total


def as_bytes(store, to: int) -> tuple[int, int]:
    """One buffer of records per call."""
    count = total = 0
    for got in walk(store, to):
        total += len(got.buffer)
        count += len(got)
    return count, total


# ---------------------------------------------------------------- rows
def hot(name: str, pair: Pair, store):
    to = store.max_offset(TOPIC, 0)
    for case, work, mode, goal in (
        (f"get 32, {name}, as Message, body read", bodies, "decode", 2),
        (f"get 32, {name}, as Message, offsets and body added up", as_messages, "decode", None),
        (f"get 32, {name}, as Message, nothing read", untouched, "decode", None),
        (f"get 32, {name}, as Message, every field read", every_field, "decode", None),
        (f"get 32, {name}, as one buffer", as_bytes, "copy", 1),
        (f"get 32, {name}, as one buffer", as_bytes, "slices", None),
    ):
        if goal or not bench.quick:
            against_java(case, pair, partial(work, store, to), mode, goal, to, compare=work not in (bodies, untouched))
    for tag, share in (("Tenth", "1 of 10"), ("Rare", "1 of 1,000")):
        case = f"get 32, {name}, tag of {share}, as Message"
        against_java(case, pair, partial(as_messages, store, to, tag), "decode", 1, to, tag=tag)


def against_java(
    case: str,
    pair: Pair,
    work: Callable[[], tuple[int, int]],
    mode: str,
    goal: float | None,
    to: int,
    compare: bool = True,
    **options,
):
    """Measure a row; to: number of messages of the queue that both sides scan, with those that the filter skips."""
    what = {"decode": "getMessage + decode", "copy": "getMessage + copy", "slices": "getMessage, nothing copied"}[mode]
    for release in RELEASES:
        against = f"Java {release} {what}"
        if not bench.wanted(case, against, goal):
            continue
        java = java_peer.start(
            bench, "get", dir=pair.java, mode=mode, to=to, filemib=pair.file_size >> 20, release=release, **options
        )
        if not java:
            return

        def check(java=java, release=release):
            theirs, ours = java.round(), work()
            same(
                (theirs.records, theirs.checksum) if compare else theirs.records,
                ours if compare else ours[0],
                f"Java {release}",
            )

        with java:
            ours, theirs = Side(work, to, pair.ours), JavaSide(java, pair.java)
            rounds = bench.row(
                case, against=against, goal=goal, work=to / 1e6, unit="M/s", check=check, ours=ours, theirs=theirs
            )
            if "tag" not in options:
                details(bench, rounds, case, against, ours, theirs, "cpu_us")


class Cold:
    """Our side of a cold round. The store is opened again outside the clock, as in Get.java with cold=true."""

    def __init__(self, pair: Pair, work: Callable, to: int):
        self._pair, self._work, self._to = pair, work, to
        self._side: Side | None = None
        self.figures: list[dict[str, float]] = []

    def __call__(self) -> float:
        with self._pair.open() as store:
            side = Side(lambda: self._work(store, self._to), self._to, self._pair.ours)
            seconds = side()
        self.figures += side.figures
        gc.collect()
        make_cold(bench, self._pair.ours)
        return seconds


def cold():
    """Read the first half of a queue whose log has 16 files; opening a store reads only the last files."""
    cases = {
        "get 32, 128 B, cold, as Message": (as_messages, "decode"),
        "get 32, 128 B, cold, as one buffer": (as_bytes, "copy"),
    }
    if bench.quick:
        del cases["get 32, 128 B, cold, as one buffer"]  # Java opens its store again in each round, which takes seconds
    against = f"Java {RELEASES[0]} getMessage"
    if not any(bench.wanted(case, against) for case in cases):
        return
    with stores(bench, body=128, queues=1, tags=MIXED_TAGS, files=COLD_FILES, size=COLD_BYTES) as pair:
        with pair.open() as store:
            store.wait_dispatched()
            to = store.max_offset(TOPIC, 0) // 2
        make_cold(bench, pair.ours)
        for case, (work, mode) in cases.items():
            options = {"mode": mode, "to": to, "cold": True, "filemib": pair.file_size >> 20}
            java = java_peer.start(bench, "get", dir=pair.java, release=RELEASES[0], **options)
            if not java or not bench.wanted(case, against):
                continue
            with java:

                def check(java=java, work=work):
                    theirs = java.round()
                    with pair.open() as store:
                        same((theirs.records, theirs.checksum), work(store, to), "Java")
                    make_cold(bench, pair.java)
                    make_cold(bench, pair.ours)

                ours = Cold(pair, work, to)
                theirs = JavaSide(java, pair.java, settle=partial(make_cold, bench, pair.java))
                bench.row(
                    case,
                    against=f"{against} + {mode}",
                    goal=1,
                    work=to / 1e6,
                    unit="M/s",
                    check=check,
                    ours=ours,
                    theirs=theirs,
                )


def main():
    for name, body in SIZES.items():
        with stores(bench, body=body, queues=1, tags=MIXED_TAGS) as pair, pair.open() as store:
            store.wait_dispatched()
            hot(name, pair, store)
    cold()


if __name__ == "__main__":
    main()
