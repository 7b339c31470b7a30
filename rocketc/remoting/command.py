"""Commands: the requests and answers of the remoting protocol, as values and as bytes.

Source: RocketMQ RemotingCommand, RocketMQSerializable.
"""

from __future__ import annotations

import enum
import json
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from rocketc.errors import FrameError
from rocketc.remoting._headers import decode_json, decode_rocketmq, is_cheap

VERSION = 479  # V5_3_3
LANGUAGE = "PYTHON"
LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS"),
    *("RUST", "NODE_JS"),
)  # their numbers in the ROCKETMQ form are their places

_BINARY = struct.Struct(">hbhii")  # code, language, version, opaque, flag
LARGEST = 16 << 20  # bytes of a frame after its length
_HEADER_LARGEST = 256 << 10  # of a request; the answer to a batch has the ids of all its messages
_FIELDS_MOST = 128
_TOO_MUCH = f"a length in the header is impossible, or it has more than {_FIELDS_MOST} fields"
_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs: json has joined whole pairs
_INT = range(-(1 << 31), 1 << 31)
_quoted = json.encoder.encode_basestring  # dumps() takes three times as long for a header


class Form(enum.IntEnum):
    """How a header is written."""

    JSON = 0
    ROCKETMQ = 1


class Flag(enum.IntEnum):  # with IntFlag, `&` takes a us
    """The bits of a command's flag."""

    ANSWER = 1
    ONEWAY = 2


@dataclass
class Command:
    """One request or answer.

    code      a request code, or the code of an answer
    fields    extFields: texts by name
    body      empty if there is none
    opaque    number of the request; its answer has the same
    flag      bits of Flag
    remark    text for people, mostly of an error
    language  of the sender, a name in LANGUAGES
    version   of the sender: the ordinal of RocketMQ's MQVersion
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str = LANGUAGE
    version: int = VERSION

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & Flag.ANSWER)

    @property
    def is_oneway(self) -> bool:
        """Whether no answer may be sent, not even for an error."""
        return bool(self.flag & Flag.ONEWAY)

    def encode(self, form: Form = Form.JSON) -> bytes:
        """Return the command as one frame.

        form  of the header; a code that the ROCKETMQ form cannot hold is written in JSON
        Raises ValueError if the frame would be larger than a peer accepts.

        >>> Command(34, {"a": "1"}, opaque=7).encode()[8:]
        b'{"code":34,"extFields":{"a":"1"},"flag":0,"language":"PYTHON","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}'
        """
        return self.encode_head(len(self.body), form) + self.body

    def encode_head(self, body_size: int, form: Form = Form.JSON) -> bytes:
        """Return the frame up to a body of this many bytes. Raises ValueError as encode()."""
        if form is Form.ROCKETMQ and not -(1 << 15) <= self.code < 1 << 15:
            form = Form.JSON
        header = _json_header(self) if form is Form.JSON else _rocketmq_header(self)
        size = 4 + len(header) + body_size
        if size > LARGEST:
            raise ValueError(f"a frame of {size} bytes; at most {LARGEST} are allowed")
        if len(header) > _HEADER_LARGEST and not self.is_answer:
            raise ValueError(f"a header of {len(header)} bytes; at most {_HEADER_LARGEST} are allowed")
        return struct.pack(">II", size, form << 24 | len(header)) + header

    @staticmethod
    def decode(form: int, header: bytes, body: bytes = b"") -> Command:
        """Return the command of a frame, as FrameDecoder.receive() returns it. Raises FrameError.

        >>> Command.decode(0, b'{"code":105,"extFields":{"topic":"orders"},"opaque":3}').fields
        {'topic': 'orders'}
        """
        if form == Form.ROCKETMQ:
            binary = decode_rocketmq(header)
            if binary is None:
                raise FrameError(_TOO_MUCH)
            code, number, version, opaque, flag, remark, fields = binary
            language = LANGUAGES[number] if number < len(LANGUAGES) else "OTHER"
            return Command(code, fields, body, opaque, flag, remark, language, version)
        found = decode_json(header)
        if found is None and not is_cheap(header):
            raise FrameError(_TOO_MUCH)
        code, name, version, opaque, flag, remark, fields = _from_json(header) if found is None else found
        return Command(code, fields, body, opaque, flag, remark, "JAVA" if name is None else name, version)


def _json_header(command: Command) -> bytes:
    """Members in the order of their names, as fastjson writes them; missing ones are left out."""
    fields = ",".join([f"{_quoted(name)}:{_quoted(value)}" for name, value in command.fields.items()])
    extended = f'"extFields":{{{fields}}},' if fields else ""
    remark = "" if command.remark is None else f'"remark":{_quoted(command.remark)},'
    language = _quoted(command.language)
    text = '{"code":%d,%s"flag":%d,"language":%s,"opaque":%d,%s"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code, extended, command.flag, language, command.opaque, remark, command.version,
    )  # fmt: skip
    return text.encode("utf-8", "replace")


def _rocketmq_header(command: Command) -> bytes:
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else LANGUAGES.index("OTHER")
    fields = []
    for name, value in command.fields.items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        fields.append(struct.pack(">H", len(key)) + key + struct.pack(">I", len(text)) + text)
    remark = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    entries = b"".join(fields)
    head = _BINARY.pack(command.code, language, command.version, command.opaque, command.flag)
    return b"".join((head, struct.pack(">I", len(remark)), remark, struct.pack(">I", len(entries)), entries))


def _from_json(header: bytes) -> tuple[int, str | None, int, int, int, str | None, dict[str, str]]:
    """Decode a header in JSON that the fast decoder does not accept. Raises FrameError."""
    try:
        data = json.loads(header.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        raise FrameError("the header is not JSON") from None
    if not isinstance(data, dict):
        raise FrameError("the header is not a JSON object")
    numbers = [_int(data, name) for name in ("code", "version", "opaque", "flag")]
    entries = data.get("extFields")
    if entries is not None and not isinstance(entries, dict):
        raise FrameError("extFields is not a JSON object")
    if entries is not None and len(entries) > _FIELDS_MOST:
        raise FrameError(_TOO_MUCH)
    fields = {_valid(name): _text(value) for name, value in (entries or {}).items() if value is not None}
    language, remark = (data.get(name) for name in ("language", "remark"))
    code, version, opaque, flag = numbers
    return (
        code,
        None if language is None else _text(language),
        version,
        opaque,
        flag,
        None if remark is None else _text(remark),
        fields,
    )


def _int(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if value is None:
        return 0
    if type(value) is not int or value not in _INT:
        raise FrameError(f"{name} is not an int")
    return value


def _text(value: Any) -> str:
    """A value as fastjson puts it into a map of texts."""
    return _valid(value) if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _valid(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which UTF-8 cannot hold."""
    return _HALVES.sub("\ufffd", text)
