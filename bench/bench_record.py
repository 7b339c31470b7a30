"""How long does it take to encode, decode and check one record?"""

import ctypes
import struct
import sys
import zlib
from collections.abc import Callable
from ctypes.util import find_library
from functools import partial
from operator import attrgetter
from pathlib import Path

import java_peer
import native
from common import BORN_HOST, HEAD, MIB, STORE_HOST, V1, Bench, make_sum, mapped, same, sum_messages, timed

import rocketc

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from support import oracle

RECORDS = 20_000  # records per round, encoded or decoded one by one
CRC_SIZES = (16, 64, 256, 1024, 4096, 65536, MIB)
CRC_SIZES_QUICK = (64, 1024, 65536)
CRC_SECONDS = 0.02  # approximate time of a round
JAVA_FROM = 64  # bytes; from this size on, the goal is to be as fast as Java
TOPIC = "BenchTopic"
ATTRIBUTES = """topic queue_id queue_offset phy_offset store_timestamp born_timestamp keys tags body properties msg_id
    flag sys_flag reconsume_times body_crc born_host store_host prepared_transaction_offset store_size"""

bench = Bench("record", __doc__)


# ---------------------------------------------------------------- one record in plain Python
def properties_of(n: int) -> dict[str, str]:
    return {"KEYS": f"order-{n}", "UNIQ_KEY": f"7F000001AB12CD34EF56{n:012X}", "WAIT": "true", "TAGS": "TagA"}


def python_encode(topic: str, body: bytes, *, queue_id, queue_offset, phy_offset, born, stored, properties) -> bytes:
    """Encode with struct and zlib; supports only V1, IPv4 and the hosts of the benchmark."""
    name = topic.encode()
    pairs = "".join([f"{key}\1{value}\2" for key, value in properties.items()]).encode()
    size, crc = 91 + len(body) + len(name) + len(pairs), zlib.crc32(body) & 0x7FFFFFFF
    # fmt: off
    return b"%b%b%c%b%b%b" % (
        HEAD.pack(size, V1, crc, queue_id, 0, queue_offset, phy_offset, 0, born, BORN_HOST, stored, STORE_HOST, 0, 0,
                  len(body)),
        body, len(name), name, len(pairs).to_bytes(2, "big"), pairs)
    # fmt: on


def python_decode(m: bytes) -> tuple:
    """Return every attribute, in the order of ATTRIBUTES."""
    # fmt: off
    (size, _, crc, queue_id, flag, queue_offset, phy_offset, sys_flag, born, born_host, stored, store_host,
     reconsume_times, prepared, length) = HEAD.unpack_from(m, 0)
    # fmt: on
    end = 88 + length
    behind = end + 1 + m[end]
    text = m[behind + 2 : behind + 2 + int.from_bytes(m[behind : behind + 2], "big")].decode()
    pairs = dict([pair.split("\1", 1) for pair in text.split("\2") if pair])
    hosts = ["%d.%d.%d.%d:%d" % (*raw[:4], int.from_bytes(raw[4:], "big")) for raw in (born_host, store_host)]
    # fmt: off
    return (
        m[end + 1:behind].decode(), queue_id, queue_offset, phy_offset, stored, born, pairs.get("KEYS"),
        pairs.get("TAGS"), m[88:end], pairs, "%s%016X" % (store_host.hex().upper(), phy_offset), flag, sys_flag,
        reconsume_times, crc, *hosts, prepared, size)
    # fmt: on


def python_decode_three(m: bytes) -> tuple:
    """Return topic, queue offset and body."""
    queue_offset, length = struct.unpack_from(">q", m, 20)[0], struct.unpack_from(">i", m, 84)[0]
    end = 88 + length
    return m[end + 1 : end + 1 + m[end]].decode(), queue_offset, m[88:end]


# ---------------------------------------------------------------- encode
def encoded(encode: Callable[..., bytes], body: bytes, count: int) -> list[bytes]:
    """Encode by rocketc.encode(), or by the oracle."""
    hosts = {"born_host": ("127.0.0.1", 45678), "store_host": ("127.0.0.1", 10911)}
    # fmt: off
    return [
        encode(TOPIC, body, queue_id=n & 3, queue_offset=n, phy_offset=400 * n, born_timestamp=1700000000000 + n,
               store_timestamp=1700000000002 + n, properties=properties_of(n), **hosts)
        for n in range(count)]
    # fmt: on


def python_encoded(body: bytes, count: int) -> list[bytes]:
    # fmt: off
    return [
        python_encode(TOPIC, body, queue_id=n & 3, queue_offset=n, phy_offset=400 * n, born=1700000000000 + n,
                      stored=1700000000002 + n, properties=properties_of(n))
        for n in range(count)]
    # fmt: on


def encoding(size: int):
    body = (b"order paid shipped " * (size // 19 + 1))[:size]
    made = sum(map(len, python_encoded(body, RECORDS)))

    def check():
        want = encoded(oracle.encode, body, 500)
        same(encoded(rocketc.encode, body, 500) == want, True, "rocketc: the oracle's bytes")
        same(python_encoded(body, 500) == want, True, "Python: the oracle's bytes")

    bench.row(
        f"encode() of {made // RECORDS} B records with keys and tags",
        against="struct and zlib in Python",
        work=RECORDS,
        unit="ns/record",
        also=(made / 1e6, "MB/s"),
        check=check,
        ours=timed(partial(encoded, rocketc.encode, body, RECORDS)),
        theirs=timed(partial(python_encoded, body, RECORDS)),
    )


# ---------------------------------------------------------------- decode
def decoding(size: int):
    body = (b"order paid shipped " * (size // 19 + 1))[:size]
    records = python_encoded(body, RECORDS)
    about = {"work": RECORDS, "unit": "ns/record", "also": (sum(map(len, records)) / 1e6, "MB/s")}
    everything, three = attrgetter(*ATTRIBUTES.split()), attrgetter("topic", "queue_offset", "body")
    of, decode = rocketc.Message.of, rocketc.decode

    def each(work: Callable) -> Callable[[], float]:
        def all_of_them():
            for record in records:
                work(record)

        return timed(all_of_them)

    def check(ours: Callable, theirs: Callable):
        for record in records[:500]:
            same(ours(record), theirs(record), "rocketc")

    def checked(record: bytes) -> tuple:
        [message] = decode(record, base_offset=None)
        return three(message)

    def python_checked(record: bytes) -> tuple:
        found = python_decode_three(record)
        if zlib.crc32(found[2]) & 0x7FFFFFFF != struct.unpack_from(">I", record, 8)[0]:
            raise ValueError("bad body CRC")
        return found

    for case, ours, theirs in (
        ("Message.of(), every attribute", lambda record: everything(of(record)), python_decode),
        ("Message.of(); topic, queue_offset, body", lambda record: three(of(record)), python_decode_three),
        ("decode() of one record, CRC; the same three", checked, python_checked),
    ):
        bench.row(
            f"{case}; {len(records[0])} B records",
            against="struct and zlib in Python",
            check=partial(check, ours, theirs),
            ours=each(ours),
            theirs=each(theirs),
            **about,
        )


def iterating():
    """Iterate over messages of 1 KiB; bench_scan.py has the same with 256 B."""
    log = bench.log(body=1024)
    java = java_peer.start(bench, "scan", "crc", *log.files)
    if not java:
        return

    map_ = mapped(log.files[0])  # Java also maps it before the clock starts

    def ours():
        for _ in rocketc.decode(map_):
            pass

    def check():
        same(make_sum(*java.round()[1:3]), log.sum, "Java")
        same(sum_messages(rocketc.decode(map_)), log.sum, "rocketc")

    with java:
        bench.row(
            "iterating Message, 1 KiB bodies; CRC",
            against="Java MessageDecoder",
            goal=2,
            work=log.sum.records,
            unit="ns/record",
            also=(log.bytes / 1e6, "MB/s"),
            check=check,
            ours=timed(ours),
            theirs=java.seconds,
        )


# ---------------------------------------------------------------- CRC-32
def crc():
    """All sides run in a C loop, Java in its own, repeatedly over the same bytes, which stay in the cache."""
    library, out = native.load(), ctypes.c_uint32()
    zlib_crc32 = ctypes.cast(ctypes.CDLL(find_library("z") or "libz.so.1").crc32, ctypes.c_void_p)
    for size in CRC_SIZES_QUICK if bench.quick else CRC_SIZES:
        data = bytes((i * 131 + (i >> 7)) & 0xFF for i in range(size))  # as in java/src/main/java/bench/Crc.java
        room = ctypes.create_string_buffer(size)
        times = max(8, int(CRC_SECONDS * 30e9 / (size + 300)))

        def ours(data=data, size=size, times=times):
            return library.bench_crc32(-1, data, size, times, out)

        def theirs_zlib(data=data, size=size, times=times // 8):
            return library.bench_zlib(zlib_crc32, data, size, times, out)

        def theirs_memcpy(data=data, size=size, times=times, room=room):
            return library.bench_memcpy(room, data, size, times)

        def check(data=data, size=size):
            for side in (partial(library.bench_crc32, -1), partial(library.bench_zlib, zlib_crc32)):
                side(data, size, 1, out)
                same(out.value, zlib.crc32(data), "CRC-32")

        case = f"CRC-32 of {size if size < 1024 else size // 1024} {'B' if size < 1024 else 'KiB'}"
        about = {"work": size * times / 1e9, "unit": "GB/s", "ours": ours}
        bench.row(case, against="memcpy", check=check, theirs=theirs_memcpy, **about)
        bench.row(case, against="zlib", theirs=theirs_zlib, their_work=size * (times // 8) / 1e9, **about)
        against_java(case, size, zlib.crc32(data), about)


def against_java(case: str, size: int, want: int, about: dict):
    java = java_peer.start(bench, "crc", "heap", size, warm=1.0, heap="64m")
    if not java:
        return
    with java:
        bench.row(
            case,
            against="java.util.zip.CRC32",
            goal=1.0 if size >= JAVA_FROM else None,
            check=lambda: same(java.round().checksum, want, "Java"),
            theirs=java.seconds,
            their_work=size * max(200, 5_000_000_000 // (size + 100)) / 1e9,  # the number of repeats in Crc.java
            **about,
        )


def main():
    for size in (128, 1024):
        encoding(size)
    decoding(256)
    iterating()
    crc()


if __name__ == "__main__":
    main()
