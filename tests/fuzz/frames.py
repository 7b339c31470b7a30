"""Frames of the remoting protocol: any bytes as a stream, and any bytes as a header."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from rocketc.errors import BadRequestError, FrameError
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting._headers import decode_json, decode_rocketmq
from rocketc.remoting.command import LANGUAGES, Command, Form, _from_json
from rocketc.remoting.requests import REQUESTS

INT32 = range(-(1 << 31), 1 << 31)


def stream(data: bytes, folder: Path) -> None:
    """Bytes of a connection, after a byte that says how they are cut: the cuts change nothing.

    Each command that is decoded is the same after it was encoded, in both forms.
    """
    if not data:
        return
    step, data = data[0] + 1, data[1:]
    whole, cut = FrameDecoder(), FrameDecoder()
    frames = whole.receive(data)
    assert frames == [one for at in range(0, len(data), step) for one in cut.receive(data[at : at + step])]
    assert (whole.is_corrupt, whole.waiting) == (cut.is_corrupt, cut.waiting) or whole.is_corrupt
    for form, header, body in frames:
        try:
            command = Command.decode(form, header, body)
        except FrameError:
            continue
        _check_request(command)
        for again in Form:
            if again is Form.ROCKETMQ and not _fits(command):
                continue
            [frame] = FrameDecoder().receive(command.encode(again))
            assert Command.decode(*frame) == command


def header(data: bytes, folder: Path) -> None:
    """A header in JSON by both decoders, and in the ROCKETMQ form by both."""
    fast = decode_json(data)
    if fast is not None:
        assert fast == _from_json(data)
        assert all(number in INT32 for number in (fast[0], *fast[2:5]))
    else:
        try:
            json.dumps(_from_json(data))
        except FrameError:
            pass
    assert decode_rocketmq(data) == rocketmq(data)


def rocketmq(data: bytes) -> tuple[object, ...] | None:
    """What decode_rocketmq() returns, decoded by struct."""

    def take(length: int) -> bytes:
        nonlocal at, end
        if length > end - at:
            raise EOFError
        at += length
        return data[at - length : at]

    at, end, fields = 0, len(data), []
    try:
        code, language, version, opaque, flag = struct.unpack(">hBhii", take(13))
        remark = take(*struct.unpack(">I", take(4)))
        length = struct.unpack(">I", take(4))[0]
        if length > end - at:
            return None
        end = at + length
        while at < end:
            if len(fields) == 128:
                return None
            name = take(*struct.unpack(">H", take(2)))
            value = take(*struct.unpack(">I", take(4)))
            if name and value:
                fields.append((name.decode("utf-8", "replace"), value.decode("utf-8", "replace")))
    except EOFError:
        return None
    return code, language, version, opaque, flag, remark.decode("utf-8", "replace") if remark else None, dict(fields)


def _check_request(command: Command) -> None:
    """The table decodes the fields, or names the one that is wrong."""
    request = REQUESTS.get(command.code)
    if request is None:
        return
    try:
        values = request.decode(command.fields)
    except BadRequestError as error:
        assert request.name in str(error) and len(str(error)) < 300
    else:
        assert request.decode(request.encode(values)) == values


def _fits(command: Command) -> bool:
    """Whether the ROCKETMQ form can hold a command without a change."""
    texts = [*command.fields, *command.fields.values()]
    small = -(1 << 15) <= command.version < 1 << 15 and all(len(name.encode()) < 1 << 16 for name in command.fields)
    known = command.language in LANGUAGES
    return small and known and all(texts) and len(command.fields) <= 64 and command.remark != ""
