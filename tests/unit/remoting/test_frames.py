"""Frames in a stream: complete, cut anywhere, and with impossible sizes."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.remoting._frames import FrameDecoder

FRAMES = [(0, b"{}", b""), (1, b"\0" * 21, b"body"), (0, b"", b""), (0, b'{"code":1}', b"x" * 1000), (1, b"h", b"\0")]


def frame(form, header, body):
    return struct.pack(">II", 4 + len(header) + len(body), form << 24 | len(header)) + header + body


STREAM = b"".join(frame(*each) for each in FRAMES)


def received(pieces):
    decoder = FrameDecoder()
    found = []
    for piece in pieces:
        found += decoder.receive(piece)
    return found, decoder


def test_frames_that_arrive_together():
    assert received([STREAM])[0] == FRAMES


def test_frames_that_arrive_byte_by_byte():
    assert received([STREAM[i : i + 1] for i in range(len(STREAM))])[0] == FRAMES


def test_each_cut_gives_the_same_frames():
    for cut in range(len(STREAM) + 1):
        assert received([STREAM[:cut], STREAM[cut:]])[0] == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_cuts_give_the_same_frames(cuts):
    places = [0, *sorted(cuts), len(STREAM)]
    found, decoder = received([STREAM[a:b] for a, b in itertools.pairwise(places)])
    assert found == FRAMES
    assert decoder.waiting == 0 and not decoder.is_corrupt


def test_bytes_of_an_incomplete_frame_wait():
    found, decoder = received([STREAM[:-1]])
    assert found == FRAMES[:-1]
    assert decoder.waiting == len(frame(*FRAMES[-1])) - 1


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">I", 0),
        struct.pack(">I", 3),
        struct.pack(">I", (16 << 20) + 1),
        struct.pack(">I", 1 << 31),
        b"\xff\xff\xff\xff",
        b"GET / HT",
        struct.pack(">II", 10, 7),
        struct.pack(">II", 4, 1),
        struct.pack(">II", 1 << 20, (256 << 10) + 1),
        struct.pack(">II", 10, 2 << 24 | 2),
        struct.pack(">II", 10, 0xFF << 24),
    ],
)
def test_impossible_sizes_end_the_stream(head):
    """Frames before them are decoded, and nothing after them."""
    found, decoder = received([STREAM, head])
    assert found == FRAMES and decoder.is_corrupt
    assert decoder.receive(STREAM) == []
    assert decoder.waiting == len(head)


def test_the_largest_frame():
    body = bytes((16 << 20) - 6)
    found, decoder = received([frame(0, b"{}", body)])
    assert found == [(0, b"{}", body)]
    found, decoder = received([frame(0, b"{}", body + b"x")])
    assert found == [] and decoder.is_corrupt


def test_a_buffer_that_was_large_is_freed():
    decoder = FrameDecoder()
    for _ in range(3):
        assert len(decoder.receive(frame(0, b"{}", bytes(1 << 20)))) == 1
        assert decoder.receive(frame(0, b"{}", b"small")) == [(0, b"{}", b"small")]


@given(st.binary(max_size=200))
def test_any_bytes(data):
    """Whatever arrives, each returned frame is in the bytes, and nothing else happens."""
    found, decoder = received([data[i : i + 7] for i in range(0, len(data), 7)])
    joined = b"".join(frame(*each) for each in found)
    assert data.startswith(joined)
    assert decoder.is_corrupt or decoder.waiting == len(data) - len(joined)
