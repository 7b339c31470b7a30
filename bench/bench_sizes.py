"""How does the size of a body change the speed of puts, of batches, and of reading into columns and messages?"""

from functools import partial

import java_peer
from common import MIB, Bench, Point, copying, same, sum_messages, timed
from writing import BATCH, JavaSide, OurStore, QueuesStore, recycle_pages, scratch, text

import rocketc

bench = Bench("sizes", __doc__)
bench.rounds = 3 if bench.quick else 5
SIZES = {"128 B": 128, "1 KiB": 1024, "16 KiB": 16_384}
if not bench.quick:
    SIZES = {"16 B": 16, **SIZES, "128 KiB": 131_072, "1 MiB": 1 << 20}
RELEASE = java_peer.RELEASES[0]
ROUND = (32 if bench.quick else 256) * MIB  # most bytes of bodies that a round puts
MOST = 50_000 if bench.quick else 300_000  # most messages that a round puts
LOG = (32 if bench.quick else 256) * MIB  # size of the logs that are read
BLOCK = 16 * MIB


def puts(name: str, body: int):
    """One message per call with tags and keys; both stores also build queues and index."""
    case, against = f"put, {name}", f"Java {RELEASE} putMessage"
    count = min(MOST, ROUND // body)
    if not bench.wanted(case, against, None):
        return
    with scratch(bench) as folder:
        java = java_peer.start(bench, "put", dir=folder / "java", body=body, count=count, release=RELEASE)
        if not java:
            return
        with java, QueuesStore(folder, body) as mine:

            def check():
                mine.put(200)
                mine.check()
                same(java.round().records, count, f"Java {RELEASE}")

            bench.row(
                case,
                against=against,
                work=count / 1e6,
                unit="M/s",
                check=check,
                ours=mine.side(partial(mine.put, count), count),
                theirs=JavaSide(java, folder),
                point=Point("sizes, messages", "put", body),
            )


def batches(name: str, body: int):
    """Batches of at most 4 MiB, in bytes of bodies per second; memcpy copies into memory that stays."""
    each = min(BATCH, 3 * MIB // body)
    case, against = f"put_many, {name}, {each:,} a call", "memcpy of the bodies"
    if not bench.wanted(case, against, None):
        return
    calls = max(1, min(2 * MOST, ROUND // body) // each)
    block = text(body) * each
    room = memoryview(bytearray(64 * MIB + len(block)))

    def copy():
        at = 0
        for _ in range(calls):
            room[at : at + len(block)] = block
            at = (at + len(block)) % (64 * MIB)

    with scratch(bench) as folder, OurStore(folder, body, flush="async") as mine:
        bodies = [mine.body] * each

        def put():
            for _ in range(calls):
                mine.store.put_many("BenchTopic", bodies, tags="TagA", queue_id=0)
            mine.put_so_far += calls * each

        def check():
            put()
            mine.check()

        bench.row(
            case,
            against=against,
            work=calls * len(block) / 1e9,
            unit="GB/s",
            check=check,
            ours=mine.side(put, calls * each),
            theirs=timed(copy),
            point=Point("sizes, bytes", "put_many", body),
        )


def reading(name: str, body: int):
    """All columns with CRC, and messages with bodies, against memcpy of the bytes, which each round maps again."""
    log = bench.log(body=body, size=LOG)

    def columns():
        for _ in rocketc.scan(log.path, batch_bytes=BLOCK).batches():
            pass

    def messages():
        for m in rocketc.scan(log.path):
            m.body  # noqa: B018

    for case, ours in (("scan, all columns; CRC", columns), ("scan, as Message, body read; CRC", messages)):
        bench.row(
            f"{case}, {name}",
            against="memcpy (by 16 MiB, remap)",
            work=log.bytes / 1e9,
            unit="GB/s",
            check=lambda: same(sum_messages(rocketc.scan(log.path)), log.sum, "rocketc"),
            ours=timed(ours),
            theirs=timed(copying(log.files, BLOCK, remap=True)),
            point=Point("sizes, bytes", case, body),
        )


def main():
    recycle_pages(bench)
    for name, body in SIZES.items():
        puts(name, body)
    for name, body in SIZES.items():
        batches(name, body)
    for name, body in SIZES.items():
        reading(name, body)


if __name__ == "__main__":
    main()
