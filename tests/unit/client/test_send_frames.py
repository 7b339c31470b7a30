"""The frames of sends are those that the table of requests gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.client.outgoing import Outgoing
from rocketc.client.routes import MessageQueue
from rocketc.client.send_frames import SEND, SEND_BATCH, SendFrames
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, INT32)


@given(TEXT, TEXT, TEXT, TEXT, INT32, INT32, QUEUES, st.integers(0, 1 << 62), st.integers(0, 0x7FFFFFFF), st.binary())
def test_equal_to_the_table(group, default, topic, properties, flag, sys_flag, queue, born, opaque, body):
    frames = SendFrames(group, default, 4)
    for code in (SEND, SEND_BATCH, SEND):  # the third one uses what the first one kept
        message = Outgoing(topic, body, properties, "K", flag, sys_flag)
        fields = REQUESTS[code].encode(frames.values(code, message, queue, born))
        assert frames.encode(code, message, queue, born, opaque) == Command(code, fields, body, opaque).encode()


@pytest.mark.parametrize("text", ['0","f":"0","g":"0","h":"0","i":"",', '"flag":0,"language"', "\ud800"])
def test_texts_that_look_like_the_frame(text):
    frames = SendFrames(text, text, 4)
    message, queue = Outgoing(text, b"x", text, "K"), MessageQueue(text, text, 0)
    fields = REQUESTS[SEND].encode(frames.values(SEND, message, queue, 1))
    assert frames.encode(SEND, message, queue, 1, 7) == Command(SEND, fields, b"x", 7).encode()


def test_the_texts_that_are_kept_are_limited():
    frames = SendFrames("shop", "TBW102", 4)
    for i in range(1100):
        frames.encode(SEND, Outgoing(f"t{i}", b"x", "", "K"), MessageQueue(f"t{i}", "a", 0), 1, 7)
    assert len(frames._texts) == 1000
