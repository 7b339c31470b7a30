"""Commands as bytes: both forms of headers, and headers in JSON that only the module json accepts."""

import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketc.errors import FrameError
from rocketc.remoting import command as module
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting._headers import decode_json, is_cheap, parse_number
from rocketc.remoting.command import LANGUAGES, LARGEST, Command, Flag, Form, _from_json

INT = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), min_size=1, max_size=20)
COMMANDS = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    fields=st.dictionaries(NAME, TEXT.filter(bool), max_size=6),
    body=st.binary(max_size=50),
    opaque=INT,
    flag=INT,
    remark=st.none() | TEXT.filter(bool),
    language=st.sampled_from(LANGUAGES),
    version=st.integers(-(1 << 15), (1 << 15) - 1),
)


@given(COMMANDS, st.sampled_from(Form))
def test_a_command_is_the_same_after_encoding_and_decoding(command, form):
    frames = FrameDecoder().receive(command.encode(form))
    assert [Command.decode(*frame) for frame in frames] == [command]
    assert frames[0][0] == form


@given(COMMANDS)
def test_the_fast_decoder_accepts_what_we_write(command):
    [(_, header, _)] = FrameDecoder().receive(command.encode())
    assert decode_json(header) == _from_json(header)


def test_a_header_as_java_writes_it():
    header = (
        b'{"code":310,"extFields":{"a":"please_rename","b":"orders","e":"2","g":"1700000000000",'
        b'"i":"KEYS\\u0001k\\u0002WAIT\\u0001true"},"flag":0,"language":"JAVA","opaque":12,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    found = Command.decode(0, header, b"body")
    assert (found.code, found.opaque, found.language, found.version) == (310, 12, "JAVA", 479)
    assert found.fields["i"] == "KEYS\x01k\x02WAIT\x01true" and found.body == b"body"
    assert decode_json(header) == _from_json(header)


# ---------------------------------------------------------------- the fast decoder and json

MEMBERS = ["code", "flag", "opaque", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC", "x"]
SCALARS = st.none() | st.booleans() | INT | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS | st.dictionaries(TEXT, TEXT, max_size=4),
    lambda inner: st.dictionaries(TEXT, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)
HEADERS = st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=9)


def outcome(decode, header):
    try:
        return decode(header)
    except FrameError as error:
        return str(error)


@given(HEADERS, st.booleans(), st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (" ,\t", " :\n")]))
def test_both_decoders_agree_on_json(header, ascii_only, indent, separators):
    data = json.dumps(header, ensure_ascii=ascii_only, indent=indent, separators=separators).encode()
    fast = decode_json(data)
    assert fast is None or fast == _from_json(data)


@given(COMMANDS, st.data())
def test_both_decoders_agree_on_damaged_json(command, data):
    [(_, header, _)] = FrameDecoder().receive(command.encode())
    damaged = bytearray(header)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"{", b"}", b",", b":", b"0", b"-", b"\\u", b"\xff", b"\0", b" "])
        )
        if not damaged:
            damaged += b"{"
    fast = decode_json(bytes(damaged))
    assert fast is None or fast == outcome(_from_json, bytes(damaged))


@given(st.binary(max_size=60))
@example(b"{}")
@example(b'{"code":01}')
@example(b'{"code":-0}')
@example(b'{"code":1,}')
@example(b'{"code":1}x')
@example(b'{"extFields":{"a":"b",}}')
@example(b'{"remark":"\\ud800"}')
@example(b'{"remark":"\\ud83d\\ude00"}')
@example(b'{"remark":"\\x"}')
@example(b'{"extFields":{"a":"1"},"extFields":{"b":"2","b":"3"}}')
@example(b'{"code":2147483648}')
@example(b'{"code":1.0}')
@example(b'{"co\\u0064e":7}')
@example(b'{"serializeTypeCurrentRPC":"JSO\\N"}')
def test_both_decoders_agree_on_any_bytes(data):
    fast = decode_json(data)
    assert fast is None or fast == outcome(_from_json, data)


@pytest.mark.parametrize(
    "header, what",
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 1000, "not JSON"),
        (b"[" * 100_000, "128 fields"),
        (b"[]", "not a JSON object"),
        (b"7", "not a JSON object"),
        (b'{"code":"1"}', "code is not an int"),
        (b'{"code":true}', "code is not an int"),
        (b'{"opaque":1.5}', "opaque is not an int"),
        (b'{"flag":99999999999}', "flag is not an int"),
        (b'{"version":[]}', "version is not an int"),
        (b'{"extFields":[]}', "extFields is not a JSON object"),
    ],
)
def test_headers_that_are_refused(header, what):
    with pytest.raises(FrameError, match=what):
        Command.decode(0, header)


def test_values_that_are_not_texts_become_texts():
    found = Command.decode(0, b'{"extFields":{"a":1,"b":true,"c":null,"d":{"e":1.5}},"remark":7,"language":3}')
    assert found.fields == {"a": "1", "b": "true", "d": '{"e":1.5}'}
    assert (found.remark, found.language) == ("7", "3")


def test_more_fields_than_the_fast_decoder_has():
    fields = {f"f{n}": str(n) for n in range(128)}
    data = json.dumps({"extFields": fields}).encode()
    assert Command.decode(0, data).fields == fields
    twice = data[:-2] + b',"f127":"127"}}'
    assert decode_json(twice) is None and Command.decode(0, twice).fields == fields


HOSTILE = {
    "fields": json.dumps({"extFields": {f"f{n}": "" for n in range(129)}}).encode(),
    "a million fields": json.dumps({"extFields": {f"f{n}": "" for n in range(1_000_000)}}).encode(),
    "equal fields": b'{"extFields":{' + b",".join([b'"a":"1"'] * 600) + b"}}",
    "lists": b'{"extFields":{"a":[' + b",".join([b"[]"] * 600) + b"]}}",
    "nested lists": b'{"extFields":{"a":' + b"[" * 1025 + b"]" * 1025 + b"}}",
    "digits": b'{"extFields":{"a":' + b"1" * 65 + b"}}",
    "a long header with a member that RocketMQ does not write": b'{"x":1,"remark":"' + b"x" * (64 << 10) + b'"}',
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_header_that_would_take_long_is_refused_without_json(case, monkeypatch):
    """A million fields took more than a second of the loop."""
    if case != "fields":  # their number is only known after json
        monkeypatch.setattr(module, "json", None)
    with pytest.raises(FrameError, match="128 fields"):
        Command.decode(0, HOSTILE[case])


@pytest.mark.parametrize(
    "header", [b"", b"{", b'{"a', b'{"a\\', b'{"x":1,"remark":"' + b",:[{" * 9999 + b'"}', b"1 " * 999]
)
def test_headers_that_json_may_look_at(header):
    assert is_cheap(header)


def test_halves_of_pairs_that_only_the_fast_decoder_sees():
    """json needed a tenth of a second for a header of them."""
    data = b'{"remark":"' + b"\\ud800\\ud83d\\ude00\\udc00\\ud800" + b'"}'
    assert decode_json(data) == _from_json(data)
    assert decode_json(data)[5] == "\ufffd\U0001f600\ufffd\ufffd"


# ---------------------------------------------------------------- the ROCKETMQ form


def test_a_code_that_the_rocketmq_form_can_not_hold():
    [(form, header, _)] = FrameDecoder().receive(Command(200050).encode(Form.ROCKETMQ))
    assert form == Form.JSON and Command.decode(form, header).code == 200050


def test_damage_of_a_rocketmq_header():
    [(_, header, _)] = FrameDecoder().receive(Command(10, {"a": "1", "topic": "x"}, remark="r").encode(Form.ROCKETMQ))
    for size in range(len(header)):
        with pytest.raises(FrameError, match="impossible"):
            Command.decode(1, header[:size])
    for at in range(13, len(header)):
        for value in (0, 1, 0x7F, 0xFF):
            changed = header[:at] + bytes([value]) + header[at + 1 :]
            try:
                Command.decode(1, changed)
            except FrameError:
                pass


def test_an_unknown_language_and_too_many_fields():
    head = struct.pack(">hbhii", 1, 99, 479, 5, 0)
    assert Command.decode(1, head + bytes(8)).language == "OTHER"
    many = b"".join(struct.pack(">H", 1) + b"a" + struct.pack(">I", 1) + b"b" for _ in range(129))
    with pytest.raises(FrameError, match="128 fields"):
        Command.decode(1, head + bytes(4) + struct.pack(">I", len(many)) + many)


# ---------------------------------------------------------------- the rest


def test_a_frame_that_no_peer_accepts():
    with pytest.raises(ValueError, match="at most 16777216"):
        Command(10, body=bytes(16 << 20)).encode()


@pytest.mark.parametrize("form", Form)
def test_the_largest_header(form):
    command = Command(10, {"a": ""})
    command.fields["a"] = "x" * ((256 << 10) - len(command.encode(form)) + 8)
    [frame] = FrameDecoder().receive(command.encode(form))
    assert Command.decode(*frame) == command and len(frame[1]) == 256 << 10
    command.fields["a"] += "x"
    with pytest.raises(ValueError, match="at most 262144"):
        command.encode(form)
    command.flag = Flag.ANSWER
    command.fields["a"] += 9 * command.fields["a"]
    [frame] = FrameDecoder(LARGEST).receive(command.encode(form))
    assert Command.decode(*frame) == command
    decoder = FrameDecoder()
    assert decoder.receive(command.encode(form)) == [] and decoder.is_corrupt


def test_flags():
    assert Command(1, flag=Flag.ANSWER).is_answer and not Command(1).is_answer
    assert Command(1, flag=Flag.ONEWAY).is_oneway and not Command(1, flag=Flag.ANSWER).is_oneway


def test_halves_of_surrogate_pairs_are_replaced():
    assert Command.decode(0, b'{"remark":"a\\ud800b"}').remark == "a�b"
    [(_, header, _)] = FrameDecoder().receive(Command(1, {"a": "\ud800"}).encode())
    assert Command.decode(0, header).fields == {"a": "?"}


@given(st.integers(-(1 << 65), 1 << 65).map(str) | st.text("+-0123456789 ", max_size=22))
@example(str(-(1 << 63)))
@example(str((1 << 63) - 1))
@example(str(1 << 63))
def test_numbers_are_parsed_as_java_does(text):
    expected = None
    if text.lstrip("+-").isdigit() and len(text) - len(text.lstrip("+-")) <= 1:
        expected = int(text) if -(1 << 63) <= int(text) < 1 << 63 else None
    assert parse_number(text.encode()) == expected


def test_the_constants():
    assert LANGUAGES.index("NODE_JS") == 13 and module.VERSION == 479
