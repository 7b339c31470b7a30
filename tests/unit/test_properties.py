"""properties.h against the oracle's index scan."""

import ctypes

import oracle
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from native import Fence, Pair, in_child, native

SEEN = ctypes.c_uint16 * native.RC_PAIRS_SEEN


def split(raw, behind=0):
    """The pairs of a string, duplicates included; `behind` more bytes are readable. Room is as promised, not more."""
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
    """With latin-1 each byte is one character, so positions in bytes and in characters are the same."""
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
    assert found == list(expected.items()), "the place of the first, the value of the last"


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), min_size=1, max_size=300))
def test_many_duplicates(pairs):
    """Past 32 pairs another way is taken."""
    raw = b"".join(b"n%d\x01v%d\x02" % pair for pair in pairs)
    room, count = split(raw)
    assert count == len(pairs)
    kept = native.rc_drop_duplicates(raw, room, count, SEEN())
    assert shown(raw, room[:kept]) == list({b"n%d" % name: b"v%d" % value for name, value in pairs}.items())


@pytest.mark.parametrize("kind", ["distinct", "one name", "two names in turn"])
def test_as_many_pairs_as_a_record_can_hold(kind):
    if kind == "distinct":  # one byte is too little for so many names
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
    size = native.rc_find_property(raw, len(raw), name, len(name), ctypes.byref(at))
    expected = by_the_oracle(raw).get(name.decode("latin-1"))
    if expected is None:
        assert (size, at.value) == (-1, -7)
    else:
        assert raw[at.value : at.value + size].decode("latin-1") == expected


def test_nothing_outside_is_touched():
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
                    native.rc_find_property(address, len(raw), name, len(name), ctypes.byref(at))

    in_child(check)
