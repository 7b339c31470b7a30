"""Hypothesis strategies: messages as arguments of `oracle.encode`, logs of them, and damaged copies of both.

A message is a dict of keyword arguments without queue_offset and phy_offset: `oracle.encode(**message)` and
`rocketc.format._encoding.encode(**message)` both take it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from support import oracle

Message = dict[str, Any]

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.integers(0, 100)

characters = st.characters(codec="utf-8")
plain_topics = st.sampled_from(["orders", "TopicTest", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "a"])
topics = st.one_of(
    plain_topics,
    st.text(characters, min_size=1, max_size=30),
    st.integers(100, 300).map(lambda n: "t" * n),  # below and above the limit of V1
    st.text(characters, min_size=60, max_size=90).map(lambda t: t + "é€𝄞"),
)

ipv4 = st.binary(min_size=4, max_size=4).map(lambda b: ".".join(map(str, b)))
ipv6_groups = st.lists(st.one_of(st.just(0), st.integers(0, 0xFFFF)), min_size=8, max_size=8)
ipv6 = ipv6_groups.map(lambda groups: ":".join(f"{g:x}" for g in groups))
hosts = st.tuples(st.one_of(ipv4, ipv6), st.integers(0, 0xFFFF))

# Without the bits that describe the body (compressed, inner batch) and those that follow from the hosts.
BODY_BITS = oracle.COMPRESSED | oracle.NEED_UNWRAP | oracle.INNER_BATCH | oracle.BORN_HOST_V6 | oracle.STORE_HOST_V6
sys_flags = st.one_of(
    st.sampled_from([0, 0x2, 0x4, 0x8, 0xC, 0x700]),
    INT32.map(lambda n: n & ~BODY_BITS),
)

small_bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=64),
    st.text(characters, max_size=64).map(str.encode),
)


def large_bodies(most: int = 20_000) -> st.SearchStrategy[bytes]:
    """Bodies up to `most` bytes, made of a repeated piece: hypothesis is slow at drawing long ones."""
    return st.builds(
        lambda piece, size: (piece * (size // len(piece) + 1))[:size],
        st.binary(min_size=1, max_size=16),
        st.integers(64, max(64, most)),
    )


def bodies(most: int = 20_000) -> st.SearchStrategy[bytes]:
    return st.one_of(small_bodies, large_bodies(most))


names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=24)
known = st.fixed_dictionaries(
    {},
    optional={
        "KEYS": st.lists(st.sampled_from(["k1", "k2", "Aa", "BB", "ключ"]), min_size=1, max_size=3).map(" ".join),
        "TAGS": st.sampled_from(["TagA", "TagB", "Aa", "BB", "鍵"]),
        "WAIT": st.sampled_from(["true", "false"]),
        "DELAY": st.integers(0, 18).map(str),
        "UNIQ_KEY": st.binary(min_size=16, max_size=16).map(lambda b: b.hex().upper()),
    },
)
properties = st.builds(lambda a, b: {**a, **b}, known, st.dictionaries(names, values, max_size=4))

# Property strings that no current writer makes: empty names and values, duplicates, no separator, bytes that are not
# UTF-8.
odd_pieces = st.one_of(
    st.sampled_from(
        [b"\x01", b"\x02", b"TAGS\x01a\x02", b"TAGS\x01b", b"KEYS\x01", b"=", b"\xff\xc3", b"WAIT\x01true\x02"]
    ),
    st.just(oracle.crc_property(123)),
    st.binary(max_size=6),
)
odd_properties = st.lists(odd_pieces, max_size=8).map(b"".join)


@st.composite
def batch_entries(draw: st.DrawFn, most: int = 5) -> list[tuple[int, bytes, bytes]]:
    """Messages of a client batch, with properties as one of the releases encodes them."""
    entries = draw(st.lists(st.tuples(INT32, small_bodies, properties), min_size=1, max_size=most))
    end = draw(st.booleans())
    return [(f, body, oracle.encode_properties(pairs, trailing_separator=end)) for f, body, pairs in entries]


def compress(body: bytes, kind: int) -> bytes:
    """Compress as a client does: 0 and 3 zlib, 1 LZ4 frame, 2 zstd."""
    if kind == 1:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body)
        return packed
    if kind == 2:
        try:
            from compression import zstd
        except ImportError:
            from backports import zstd
        packed = zstd.compress(body)
        return packed
    return zlib.compress(body, 5)


@st.composite
def messages(
    draw: st.DrawFn,
    /,
    *,
    largest_body: int = 20_000,
    batches: bool = True,
    compression: tuple[int, ...] = (0, 3),
    odd: bool = True,
) -> Message:
    """Any message that a store may hold.

    `compression`: the types to use, () for none; `odd`: also properties that no writer makes, and bodies that do not
    match sysFlag.
    """
    kinds = ["plain", "plain"] + ["compressed"] * bool(compression) + ["batch"] * batches + ["liar"] * odd
    kind = draw(st.sampled_from(kinds))
    flags = draw(sys_flags)
    pairs: Any = draw(st.one_of(properties, odd_properties) if odd else properties)
    body = draw(bodies(largest_body))
    if kind == "batch":
        entries = draw(batch_entries())
        base = draw(SMALL)
        pairs = {**draw(properties), "INNER_NUM": str(len(entries)), "INNER_BASE": str(base)}
        body = oracle.encode_batch(entries)
        flags |= oracle.NEED_UNWRAP | oracle.INNER_BATCH
    if kind == "compressed" or (kind == "batch" and compression and draw(st.booleans())):
        code = draw(st.sampled_from(compression))
        body = compress(body, code)
        flags = flags & ~0x700 | oracle.COMPRESSED | code << 8
    if kind == "liar":
        flags |= draw(st.sampled_from([oracle.COMPRESSED, oracle.NEED_UNWRAP, oracle.INNER_BATCH, 0xC0, 0xC1]))
        if not compression:
            flags &= ~oracle.COMPRESSED
        elif flags & oracle.COMPRESSED and flags >> 8 & 7 in (1, 2) and flags >> 8 & 7 not in compression:
            flags &= ~0x700
    topic = draw(topics)
    versions: list[int | None] = [1, None, 2] if len(topic.encode()) <= 127 else [2]
    if len(topic) > 127:
        versions.append(None)
    return {
        "topic": topic,
        "body": body,
        "queue_id": draw(st.one_of(st.integers(0, 7), INT32)),
        "flag": draw(st.one_of(SMALL, INT32)),
        "sys_flag": flags,
        "born_timestamp": draw(st.one_of(st.integers(1_600_000_000_000, 1_800_000_000_000), INT64)),
        "born_host": draw(hosts),
        "store_timestamp": draw(st.one_of(st.integers(1_600_000_000_000, 1_800_000_000_000), INT64)),
        "store_host": draw(hosts),
        "reconsume_times": draw(st.one_of(st.integers(0, 16), INT32)),
        "prepared_transaction_offset": draw(st.one_of(SMALL, INT64)),
        "properties": pairs,
        "version": draw(st.sampled_from(versions)),
        "property_crc": draw(st.booleans()),
        "trailing_separator": draw(st.booleans()),
    }


@dataclass
class Log:
    """A commit log in memory."""

    files: list[tuple[int, bytes]]  # first offset and bytes, in order
    messages: list[Message]  # arguments of oracle.encode except phy_offset
    file_size: int
    touched: list[tuple[int, int]] = field(default_factory=list)  # physical offsets that damage may have changed


@st.composite
def logs(
    draw: st.DrawFn,
    /,
    *,
    most: int = 12,
    file_sizes: st.SearchStrategy[int] = st.integers(512, 4096),  # noqa: B008 - a strategy is a constant
    **options: Any,
) -> Log:
    """Messages at successive offsets, in several small files.

    The log may start after 0, may have the next file prepared, and may have stale bytes after the blanks.
    """
    chosen = draw(st.lists(messages(**{"largest_body": 2000, **options}), min_size=1, max_size=most))
    chosen = [{**m, "queue_offset": n} for n, m in enumerate(chosen)]
    longest = max(len(oracle.encode(**m)) for m in chosen)
    file_size = max(draw(file_sizes), longest + oracle.BLANK_HEADER)
    base = file_size * draw(st.integers(0, 3))
    stale = draw(st.sampled_from([b"\0", b"\xda\xa3\x20\xa7", b"stale"]))
    files = oracle.lay_out(chosen, file_size, base=base, stale=stale)
    if draw(st.booleans()):
        files.append((files[-1][0] + file_size, b"\0" * file_size))
    return Log(files, chosen, file_size)


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes, *, in_place: bool = False) -> tuple[bytes, int, int]:
    """Damage data once; return the result and the first and last changed position, half open.

    in_place: bytes do not move, and the length stays the same.
    """
    if not data:
        return data, 0, 0
    kind = draw(st.sampled_from(["flip", "zero", "garbage"] + ([] if in_place else ["cut", "insert", "remove"])))
    at = draw(st.integers(0, len(data) - 1))
    size = min(draw(st.one_of(st.integers(1, 16), st.integers(1, 600))), len(data) - at)
    if kind == "flip":
        flipped = data[at] ^ 1 << draw(st.integers(0, 7))
        return data[:at] + bytes([flipped]) + data[at + 1 :], at, at + 1
    if kind == "zero":
        return data[:at] + b"\0" * size + data[at + size :], at, at + size
    if kind == "cut":
        return data[:at], at, len(data)
    if kind == "remove":
        return data[:at] + data[at + size :], at, len(data)
    junk = draw(st.one_of(st.binary(min_size=1, max_size=40), st.just(oracle.encode("junk", b"junk", phy_offset=at))))
    if kind == "insert":
        return data[:at] + junk + data[at:], at, len(data) + len(junk)
    junk = junk[: len(data) - at]
    return data[:at] + junk + data[at + len(junk) :], at, at + len(junk)


@st.composite
def damaged_logs(draw: st.DrawFn, /, *, most_damages: int = 4, in_place: bool = False, **options: Any) -> Log:
    """A log after one to `most_damages` damages; `touched` says where."""
    log: Log = draw(logs(**options))
    for _ in range(draw(st.integers(1, most_damages))):
        n = draw(st.integers(0, len(log.files) - 1))
        base, data = log.files[n]
        data, start, stop = draw(damaged_bytes(data, in_place=in_place))
        log.files[n] = (base, data)
        log.touched.append((base + start, base + stop))
    return log
