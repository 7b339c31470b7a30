"""Frames between RocketMQ's own clients, broker and name server: all are read, however the stream is cut."""

import base64
import json
import random

import pytest
from support.native import ROOT

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting._headers import decode_json
from rocketc.remoting.command import Command, Form
from rocketc.remoting.requests import REQUESTS

RECORDED = [json.loads(line) for line in (ROOT / "tests/golden/frames-5.3.3.jsonl").read_text().splitlines()]
FRAMES = [base64.b64decode(entry["frame"]) for entry in RECORDED]
# Fields that any request of 5.x may have, and one that marks a query by unique key without being part of its header.
COMMON = {"ns", "nsd", "bname", "oway", "lo", "ReqT", "_UNIQUE_KEY_QUERY"}


def decoded(frame):
    [(form, header, body)] = FrameDecoder().receive(frame)
    return form, header, Command.decode(form, header, body)


def test_both_forms_and_all_links_are_recorded():
    links = {"client to broker", "client to name server", "broker to name server"}
    assert {(entry["link"], entry["form"]) for entry in RECORDED} == {
        (link, form.name) for link in links for form in Form
    }


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: f"{entry['form']}-{entry['request']}-{entry['answer']}")
def test_a_recorded_frame_is_read(entry):
    form, header, command = decoded(base64.b64decode(entry["frame"]))
    assert form == Form[entry["form"]] and command.is_answer == (entry["answer"] is not None)
    assert command.code == (entry["answer"] if command.is_answer else entry["request"])
    assert (command.language, command.version) == ("JAVA", 479) and command.opaque >= 0
    if form == Form.JSON:
        assert decode_json(header) is not None  # by the fast decoder
    again = Command.decode(form, *FrameDecoder().receive(command.encode(Form(form)))[0][1:])
    command.language = again.language
    assert again == command


def test_each_cut_of_a_recorded_stream_gives_the_same_frames():
    for frame in FRAMES:
        [whole] = FrameDecoder().receive(frame)
        for cut in range(1, len(frame), 1 if len(frame) < 1000 else 13):
            decoder = FrameDecoder()
            assert decoder.receive(frame[:cut]) == [] and decoder.receive(frame[cut:] + FRAMES[0])[0] == whole


def test_recorded_frames_in_pieces_of_any_size():
    stream, chance = b"".join(FRAMES), random.Random(5)
    whole = FrameDecoder().receive(stream)
    assert len(whole) == len(FRAMES)
    for longest in (1, 7, 100, 5000):
        decoder, found, at = FrameDecoder(), [], 0
        while at < len(stream):
            size = chance.randint(1, longest)
            found += decoder.receive(stream[at : at + size])
            at += size
        assert found == whole


@pytest.mark.parametrize("code", sorted({entry["request"] for entry in RECORDED} & REQUESTS.keys()))
def test_the_table_has_the_fields_of_recorded_requests(code):
    request = REQUESTS[code]
    known = {field.short if request.short else field.name for field in request.fields}
    for entry, frame in zip(RECORDED, FRAMES, strict=True):
        if entry["request"] == code and entry["answer"] is None:
            sent = decoded(frame)[2].fields
            assert sent.keys() - COMMON <= known, f"{request.name}: {sorted(sent.keys() - COMMON - known)}"
