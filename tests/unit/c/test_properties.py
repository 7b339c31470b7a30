"""properties.h and shape.h compared with the oracle's index scan."""

import ctypes
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle, strategies
from support.native import Fence, Pair, Shape, in_child, native

import rocketc

SEEN = ctypes.c_uint16 * native.RC_PAIRS_SEEN


def split(raw, behind=0):
    """Return the pairs of a string, with duplicates. `behind` more bytes are readable. The room is exact."""
    memory = ctypes.create_string_buffer(raw + b"\x01\x02" * behind, len(raw) + 2 * behind + 1)
    end = ctypes.addressof(memory) + len(raw) + behind
    promised = len(raw) // 4 + 2
    room = (Pair * (promised + 1))()
    room[promised].name = 0x0ABC
    count = native.rc_split_properties(memory, len(raw), end, room)
    assert room[promised].name == 0x0ABC
    return room, count


def shown(raw, pairs):
    return [(raw[p.name : p.name_end], raw[p.value : p.value_end]) for p in pairs]


def by_the_oracle(raw):
    """In latin-1 each byte is one character, so positions in bytes and in characters are equal."""
    return oracle.decode_properties(raw.decode("latin-1").encode())


def as_dict(raw):
    room, count = split(raw)
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in shown(raw, room[:count])}


pieces = st.sampled_from(
    [b"\x01", b"\x02", b"\x01\x02", b"\x02\x02\x02", b"a", b"bb", b"KEYS", b"\xff", b"sixteen bytes are"]
)
strings = st.one_of(
    st.lists(pieces, max_size=30).map(b"".join),
    strategies.odd_properties,
    strategies.properties.map(oracle.encode_properties),
)


@given(strings, st.sampled_from([0, 1, 40, 63, 64, 100]))
def test_split_and_last_duplicate(raw, behind):
    expected = by_the_oracle(raw)
    assert as_dict(raw) == expected
    room, count = split(raw, behind)
    seen = SEEN()
    kept = native.rc_drop_duplicates(raw, room, count, seen)
    found = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in shown(raw, room[:kept])]
    assert found == list(expected.items()), "the position of the first, the value of the last"


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=300))
def test_many_duplicates(pairs):
    """More than 32 pairs use a different algorithm."""
    raw = b"".join(b"n%d\x01v%d\x02" % pair for pair in pairs)
    room, count = split(raw)
    assert count == len(pairs)
    kept = native.rc_drop_duplicates(raw, room, count, SEEN())
    assert shown(raw, room[:kept]) == list({b"n%d" % name: b"v%d" % value for name, value in pairs}.items())


@pytest.mark.parametrize("kind", ["distinct", "one name", "two names in turn"])
def test_the_largest_number_of_pairs_in_a_record(kind):
    if kind == "distinct":  # one byte is too short for this many names
        pairs = [(b"%04x" % n, b"v") for n in range(32767 // 7)]
    else:
        names = [b"a"] if kind == "one name" else [b"a", b"b"]
        pairs = [(names[n % len(names)], b"%d" % (n % 10)) for n in range(8192)]
    raw = b"\x02".join(name + b"\x01" + value for name, value in pairs)
    assert len(raw) <= 32767
    room, count = split(raw)
    assert count == len(pairs) <= native.RC_PAIRS_MAX
    kept = native.rc_drop_duplicates(raw, room, count, SEEN())
    assert shown(raw, room[:kept]) == list(dict(pairs).items())


@pytest.mark.parametrize("byte", [b"\x01", b"\x02", b"\x01\x02", b"\x02\x01", b"a\x01\x01", b"\x01a\x02"])
def test_nothing_but_separators(byte):
    raw = (byte * 32767)[:32767]
    room, count = split(raw)
    found = [(name.decode(), value.decode()) for name, value in shown(raw, room[:count])]
    assert found == list(oracle.decode_properties(raw).items())


@given(strings, st.sampled_from([b"KEYS", b"TAGS", b"a", b"bb", b"INNER_BASE", b"\xff"]))
def test_one_property(raw, name):
    at = ctypes.c_int(-7)
    size = native.rc_find_property(raw, len(raw), name, ctypes.byref(at))
    expected = by_the_oracle(raw).get(name.decode("latin-1"))
    if expected is None:
        assert (size, at.value) == (-1, -7)
    else:
        assert raw[at.value : at.value + size].decode("latin-1") == expected


@pytest.mark.parametrize(
    ("piece", "at"),
    [
        (b"KEYS\x01k", 5),
        (b"KEYS\x01\x01", 5),
        (b"KEYS\x01", 0),
        (b"KEYS", 0),
        (b"KEYSk\x01", 0),
        (b"TAGS\x01k", 0),
        (b"", 0),
    ],
)
def test_value_of_one_piece(piece, at):
    fence = Fence(1)
    assert native.rc_value_at(fence.at_end(piece), len(piece), native.RC_PROPERTY_KEYS) == at


def ends_of_pairs(address, size):
    """Return the ends of the pairs, found by rc_separators."""
    masks = {base: native.rc_separators(address, size, base) for base in range(0, size, 64)}
    return [base + bit for base, mask in masks.items() for bit in range(64) if mask >> bit & 1]


@given(strings)
def test_the_ends_of_pairs(raw):
    memory = ctypes.create_string_buffer(b"\x02" * 64 + raw + b"\x02" * 64)
    assert ends_of_pairs(ctypes.addressof(memory) + 64, len(raw)) == [i for i, c in enumerate(raw) if c == 2]


def test_the_search_for_ends_reads_nothing_after_the_string():
    """It reads at most the 64 bytes before the end."""

    def check():
        fence = Fence(1)
        for size in (*range(1, 131), 1000):
            raw = b"\x02" * size
            before = b"\x02" * max(64 - size, 0)
            for address in (fence.at_end(before + raw), fence.at_start(before + raw)):
                assert ends_of_pairs(address + len(before), size) == list(range(size))

    in_child(check)


def test_no_byte_outside_is_read_or_written():
    def check():
        fence = Fence(9)
        texts = [b"KEYS\x01k\x02TAGS\x01t"[:size] for size in range(14)]
        texts += [(b"a\x01b\x02" * 8192)[:size] for size in (15, 16, 17, 31, 33, 100, 32767)]
        texts += [b"x" * size for size in range(40)]
        at = ctypes.c_int()
        for raw in texts:
            room = (Pair * (len(raw) // 4 + 2))()
            for address in (fence.at_end(raw), fence.at_start(raw)):
                count = native.rc_split_properties(address, len(raw), address + len(raw), room)
                native.rc_drop_duplicates(address, room, count, SEEN())
                for name in (b"KEYS", b"TAGS", b"x" * 50):
                    native.rc_find_property(address, len(raw), name, ctypes.byref(at))

    in_child(check)


# ---------------------------------------------------------------- shape.h


def kept(raw):
    """Return the shape stored for a string, and its pairs."""
    room, count = split(raw)
    count = native.rc_drop_duplicates(raw, room, count, SEEN())
    shape = Shape()
    native.rc_shape_keep(ctypes.byref(shape), raw, len(raw), room, count, raw.isascii())
    return shape, shown(raw, room[:count])


def fits(shape, raw, behind=16):
    memory = ctypes.create_string_buffer(raw + b"\x02" * behind, len(raw) + behind)
    return native.rc_shape_fits(ctypes.byref(shape), memory, len(raw), ctypes.addressof(memory) + len(raw) + behind)


def test_the_numbers_are_those_of_these_tests():
    assert (native.RC_SHAPE_PAIRS, native.RC_SHAPE_BYTES, native.RC_SHAPE_STEP) == (16, 256, 16)
    assert native.RC_SHAPES > 1


@given(strings, st.lists(st.tuples(st.integers(0, 300), st.sampled_from(b"\x00\x01\x02aKz\x7f\x80\xff")), max_size=3))
def test_strings_of_the_same_shape_are_split_correctly(raw, changes):
    shape, pairs = kept(raw)
    if len(raw) > 256 or len(pairs) > 16 or not raw.isascii():
        assert shape.len == -1 and not fits(shape, raw)
        return
    assert fits(shape, raw)
    assert [raw[p.value : p.value_end] for p in shape.pairs[: shape.count]] == [value for _, value in pairs]
    ends = [0, *shape.name_ends[: shape.count]]
    names = [bytes(shape.names[a:b]) for a, b in itertools.pairwise(ends)]
    assert names == [name for name, _ in pairs] and shape.names_len == ends[-1]
    assert [names.index(n) if n in names else -1 for n in (b"KEYS", b"TAGS")] == [shape.keys, shape.tags]
    other = bytearray(raw)
    for at, byte in changes:
        if other:
            other[at % len(other)] = byte
    other = bytes(other)
    room, count = split(other)
    count = native.rc_drop_duplicates(other, room, count, SEEN())
    alike = [(p.name, p.name_end, p.value, p.value_end) for p in room[:count]] == [
        (p.name, p.name_end, p.value, p.value_end) for p in shape.pairs[: shape.count]
    ] and [name for name, _ in shown(other, room[:count])] == names
    if fits(shape, other):
        assert alike and other.isascii()
    assert not fits(shape, raw + b"x") and (not raw or not fits(shape, raw[:-1]))


def test_other_values_of_the_same_length_fit():
    shape, _ = kept(b"KEYS\x01order-1\x02TAGS\x01A\x02WAIT\x01true")
    assert (shape.count, shape.keys, shape.tags) == (3, 0, 1)
    assert fits(shape, b"KEYS\x01other 7\x02TAGS\x01\x01\x02WAIT\x01fals")
    for wrong in (
        b"KEYS\x01order-1\x02TAGS\x01A\x02WAIS\x01true",
        b"KEYS\x01orde\x02-1\x02TAGS\x01A\x02WAIT\x01tru",
        b"KEYS\x01or\x02er-1\x02TAGS\x01A\x02WAIT\x01true",
        b"KEYS\x01order-1\x02TAGS\x01\xc1\x02WAIT\x01true",
        b"KEYS\x01order-1\x02TAGS\x02A\x02WAIT\x01true",
    ):
        assert not fits(shape, wrong)


def test_later_bytes_do_not_matter_but_must_be_readable():
    raw = b"a\x01b\x02c\x01d"
    shape, _ = kept(raw)
    assert fits(shape, raw, 16) and not fits(shape, raw, 8)


def test_no_shape_reads_outside():
    def check():
        fence, shape = Fence(), Shape()
        for size in range(257):
            raw = (b"n\x01value\x02" * 40)[:size]
            native.rc_shape_keep(ctypes.byref(shape), fence.at_end(raw), size, (Pair * 16)(), 0, 1)
            native.rc_shape_fits(ctypes.byref(shape), fence.at_end(raw), size, fence.end)

    in_child(check)


@pytest.mark.parametrize("seed", range(4))
def test_columns_of_similar_strings(seed):
    """All combinations of shapes, of equal and of different lengths, compared with Message for each record."""
    dice = random.Random(seed)
    alphabet = [b"\x01", b"\x02", b"KEYS", b"TAGS", b"n", b"value", "é".encode(), b"\xff", b"7F000001AB12CD34EF56"]
    stock = [b"".join(dice.choices(alphabet, k=dice.randrange(12))) for _ in range(12)]
    stock += [b"KEYS\x01%d\x02TAGS\x01t\x02", b"TAGS\x01%d\x02KEYS\x01t\x02", b"KEYS\x01%d\x02KEYS\x01t\x02", b""]
    data = b""
    for n in range(1500):
        chosen = dice.choice(stock)
        chosen = chosen % (n % 120) if b"%d" in chosen else chosen
        if chosen and dice.random() < 0.2:
            at = dice.randrange(len(chosen))
            chosen = chosen[:at] + dice.choice(alphabet)[:1] + chosen[at + 1 :]
        data += rocketc.encode("t", b"", properties=chosen, phy_offset=len(data))
    rows = rocketc.decode(data, columns=["keys", "tags", "properties"]).to_arrow().to_pylist()
    expected = [(m.keys, m.tags, list(m.properties.items())) for m in rocketc.decode(data)]
    assert [(row["keys"], row["tags"], row["properties"]) for row in rows] == expected
