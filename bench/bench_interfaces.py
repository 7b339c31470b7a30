"""How fast are the low-level interfaces, against the calls that they replace?

They are: prepared records, records of a queue as views, the log's bytes by physical offset, the change feed, and single
messages. Another row is the time to get a message right after its put.
"""

from collections.abc import Callable

import java_peer
import rows_feed
import rows_positions
import rows_put
import rows_raw
from common import same, timed
from reading import Pair, numbers, stores
from writing import TOPIC, Bench, JavaSide, Side, less_is_better, scratch

import rocketc

bench = Bench("interfaces", __doc__)
bench.rounds = 3 if bench.quick else 9
SIZES = {"128 B": 128} if bench.quick else {"128 B": 128, "1 KiB": 1024}
RELEASES = java_peer.RELEASES[:1] if bench.quick else java_peer.RELEASES
CALLS = 20_000  # calls with one message per round
ONE_MESSAGE_US = 1.5  # allowed time per message


# ---------------------------------------------------------------- records of a queue as views
def raw(store, to: int) -> tuple[int, int]:
    """Get views of the records, as a broker passes them to a socket: (records, bytes)."""
    count = total = 0
    get_raw, offset = store.get_raw, store.min_offset(TOPIC, 0)
    while offset < to:
        with get_raw(TOPIC, 0, offset, min(32, to - offset)) as found:
            for view in found.views:
                total += len(view)
            del view
            count += len(found)
            offset = found.next_offset
    return count, total


def copied(store, to: int) -> tuple[int, int]:
    """Get the same records in one buffer per call; get() checks them."""
    count = total = 0
    get, offset = store.get, store.min_offset(TOPIC, 0)
    while offset < to:
        found = get(TOPIC, 0, offset, min(32, to - offset))
        total += len(found.buffer)
        count += len(found)
        offset = found.next_offset
    return count, total


def views(name: str, pair: Pair, store):
    to = store.max_offset(TOPIC, 0)
    case = f"get_raw 32, {name}"
    ours = Side(lambda: raw(store, to), to, pair.ours)
    bench.row(
        case,
        against="get, one buffer",
        work=to / 1e6,
        unit="M/s",
        check=lambda: same(raw(store, to), copied(store, to), "get"),
        ours=ours,
        theirs=Side(lambda: copied(store, to), to, pair.ours),
    )
    for release in RELEASES:
        against = f"Java {release} getMessage, nothing copied"
        if not bench.wanted(case, against, 1):
            continue
        options = {"mode": "slices", "to": to, "filemib": pair.file_size >> 20, "release": release}
        java = java_peer.start(bench, "get", dir=pair.java, **options)
        if not java:
            return

        def check(java=java, release=release):
            theirs = java.round()
            same((theirs.records, theirs.checksum), raw(store, to), f"Java {release}")

        with java:
            theirs = JavaSide(java, pair.java)
            bench.row(case, against=against, goal=1, work=to / 1e6, unit="M/s", check=check, ours=ours, theirs=theirs)


# ---------------------------------------------------------------- one message
def within(case: str, work: Callable[[], object], calls: int):
    """A row of the time per call, against the allowed time."""
    against = f"{ONE_MESSAGE_US:g} us"
    if not bench.wanted(case, against, 1):
        return
    side = timed(work)
    side()
    took = [side() / calls * 1e6 for _ in range(bench.rounds)]
    less_is_better(bench, bench.rounds, case, against, took, [ONE_MESSAGE_US] * bench.rounds, "us", goal=1)


def one_message(name: str, store):
    """Call a function for messages all over the log, and read their bodies."""
    total = store.max_offset(TOPIC, 0)
    found = store.get(TOPIC, 0, 0, total, max_bytes=1 << 40).phy_offsets
    offsets = [found[n] for n in numbers(0, CALLS, total)]
    records = [store.message(at).record for at in offsets[:2000]]
    same([m.body for m in map(store.message, offsets[:100])], [decoded(r).body for r in records[:100]], "decode()")

    def looked_up():
        message = store.message
        for at in offsets:
            message(at).body  # noqa: B018

    def decoding():
        for record in records:
            decoded(record).body  # noqa: B018

    within(f"store.message(phy_offset), {name}", looked_up, len(offsets))
    within(f"decode() of one record, {name}", decoding, len(records))


def decoded(record: bytes) -> rocketc.Message:
    [message] = rocketc.decode(record, None)
    return message


def main():
    for name, body in SIZES.items():
        with stores(bench, body=body, queues=1) as pair, pair.open() as store:
            store.wait_dispatched()
            views(name, pair, store)
            one_message(name, store)
    rows_raw.rows(bench)
    with scratch(bench) as folder:
        rows_put.rows(bench, str(folder))
        rows_feed.add_feed_rows(bench, str(folder))
        rows_positions.add_position_rows(bench, str(folder))


if __name__ == "__main__":
    main()
