"""jhash.h compared with the numbers of the oracle and the specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import oracle
from support.native import Fence, in_child, native

import rocketc.format._encoding

SPEC = {"TagA": 2598919, "": 0, "TopicTest#k1": 2746024, "polygenelubricants": -(1 << 31)}


@pytest.mark.parametrize("text", SPEC)
def test_numbers_of_the_specification(text):
    assert rocketc.format._encoding.java_hash(text) == SPEC[text]
    assert native.rc_jhash(text.encode(), len(text.encode())) == SPEC[text]


def test_colliding_names():
    assert len({rocketc.format._encoding.java_hash(text) for text in ("AaAa", "BBBB", "AaBB")}) == 1


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_any_text(text):
    assert rocketc.format._encoding.java_hash(text) == oracle.java_hash(text)


@given(st.lists(st.one_of(st.binary(max_size=5), st.text(st.characters(codec="utf-8"), max_size=3).map(str.encode))))
def test_any_bytes_as_java_reads_them(pieces):
    raw = b"".join(pieces)
    assert native.rc_jhash(raw, len(raw)) == oracle.java_hash(raw.decode("utf-8", "replace"))


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_a_hash_can_be_continued(first, second):
    h = native.rc_jhash(first.encode(), len(first.encode()))
    assert native.rc_jhash_from(h, second.encode(), len(second.encode())) == oracle.java_hash(first + second)


@given(
    st.lists(st.sampled_from(["order-", "12345678", "0123456789ABCDEF", "a", "é", "€", "𝄞"]), max_size=9),
    st.binary(max_size=9),
)
def test_runs_of_ascii_between_others(pieces, end):
    raw = "".join(pieces).encode() + end
    assert native.rc_jhash(raw, len(raw)) == oracle.java_hash(raw.decode("utf-8", "replace"))


def test_every_code_point():
    for start in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, range(start, start + 0x1000)))
        raw = text.encode("utf-8", "surrogatepass")
        assert native.rc_jhash(raw, len(raw)) == oracle.java_hash(raw.decode("utf-8", "replace"))


def test_a_cut_sequence_is_not_read_past_its_end():
    def check():
        fence = Fence()
        raw = "aé€𝄞".encode()
        for cut in range(len(raw) + 1):
            text = raw[:cut].decode("utf-8", "replace")
            assert native.rc_jhash(fence.at_end(raw[:cut]), cut) == oracle.java_hash(text)

    in_child(check)
