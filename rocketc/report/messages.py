"""Printers of messages for `cat`: a readable line, JSON, or a format of the user. Each printer returns bytes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from rocketc.format.traces import TRACE_TOPIC, decode_traces, trace_lines
from rocketc.read._message import Message
from rocketc.report.text import show_time, visible, visible_json

Printer = Callable[[Message], bytes]

# The forms of a body: the function for -f, and the JSON key. Each printer implements "text" itself.
BODY_FORMS: dict[str, tuple[Callable[[bytes], bytes], str | None]] = {
    "hex": (lambda body: body.hex().encode(), "bodyHex"),
    "base64": (b64encode, "bodyBase64"),
    "none": (lambda body: b"", None),
    "trace": (lambda body: "\n".join(trace_lines(body)).encode("utf-8", "backslashreplace"), "trace"),
}

# Each token of -f: its description, and the function that returns its value, or None.
TOKENS: dict[str, tuple[str, Callable[[Message], Any]]] = {
    "t": ("topic", lambda m: m.topic),
    "p": ("queue id", lambda m: m.queue_id),
    "q": ("queue id", lambda m: m.queue_id),
    "o": ("queue offset", lambda m: m.queue_offset),
    "O": ("physical offset", lambda m: m.phy_offset),
    "s": ("body", lambda m: m.body),
    "S": ("body length in bytes", lambda m: len(m.body)),
    "k": ("keys", lambda m: m.keys),
    "g": ("tags", lambda m: m.tags),
    "T": ("store time, ms", lambda m: m.store_timestamp),
    "h": ("properties a=b,c=d", lambda m: ",".join(f"{name}={value}" for name, value in m.properties.items())),
    "i": ("message id", lambda m: m.msg_id),
}
LITERALS = {"%n": b"\n", "%%": b"%", "\\n": b"\n", "\\t": b"\t", "\\r": b"\r", "\\0": b"\0", "\\\\": b"\\"}
_PIECE = re.compile(r"(%.?|\\x[0-9a-fA-F]{2}|\\.?)", re.DOTALL)


def compile_format(spec: str, body: str, terminal: bool) -> Printer:
    """Compile a format of -f to a printer.

    spec      as in kcat: see TOKENS and LITERALS
    body      "text" (unchanged), "hex", "base64", "none"
    terminal  escape the values, because a body may contain escape sequences

    Raises ValueError with the wrong token.

    >>> import rocketc
    >>> [m] = rocketc.decode(rocketc.encode("orders", b"hi", queue_offset=7))
    >>> compile_format(r"%t@%o: %s\\n", "text", False)(m)
    b'orders@7: hi\\n'
    """
    makers: list[Printer] = []
    for piece in _PIECE.split(spec):
        if piece:
            makers.append(_maker(piece, body, terminal))
    return lambda m: b"".join([make(m) for make in makers])


def uses_body(spec: str | None, body: str) -> bool:
    """Return whether a printer of messages needs their bodies; spec: the format of -f, or None.

    >>> uses_body(None, "text"), uses_body(None, "none"), uses_body("%t %s", "none"), uses_body("%S", "none")
    (True, False, False, True)
    """
    if spec is None:
        return body != "none"
    pieces = _PIECE.split(spec)
    return "%S" in pieces or ("%s" in pieces and body != "none")


def _maker(piece: str, body: str, terminal: bool) -> Printer:
    if piece in LITERALS:
        literal = LITERALS[piece]
    elif piece.startswith("\\x") and len(piece) == 4:
        literal = bytes.fromhex(piece[2:])
    elif piece[0] not in "%\\":
        literal = piece.encode("utf-8", "surrogateescape")
    elif piece[0] == "%" and piece[1:] in TOKENS and len(piece) == 2:
        value = TOKENS[piece[1]][1]
        if piece == "%s" and body in BODY_FORMS:
            form = BODY_FORMS[body][0]
            return lambda m: form(m.body)
        return (lambda m: visible(_text(value(m))).encode()) if terminal else (lambda m: _raw(value(m)))
    else:
        known = " ".join([f"%{char}" for char in TOKENS] + list(LITERALS) + ["\\xHH"])
        raise ValueError(f"unknown token {piece}; the tokens are {known}")
    return lambda m: literal


def _raw(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode("utf-8", "surrogateescape")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


def json_printer(body: str, terminal: bool) -> Printer:
    """Print one JSON object per line: Message.to_json(); with `bodyHex`, `bodyBase64`, `trace` or no body if requested.

    trace  the records of a trace message, as in decode_traces()
    """
    encode = json.JSONEncoder(ensure_ascii=False).encode

    def with_body(m: Message) -> str:
        form, name = BODY_FORMS[body]
        out: dict[str, Any] = {}
        for key, value in m.to_dict().items():
            if key not in ("body", "bodyBase64"):
                out[key] = value
            elif name is not None:
                out[name] = decode_traces(m.body) if body == "trace" else form(m.body).decode("ascii")
        return encode(out)

    text = Message.to_json if body == "text" else with_body
    if terminal:
        return lambda m: (visible_json(text(m)) + "\n").encode("utf-8", "backslashreplace")
    # A file name that is not UTF-8 contains lone surrogates; "backslashreplace" turns them into JSON escapes.
    return lambda m: (text(m) + "\n").encode("utf-8", "backslashreplace")


def line_printer(body: str, color: bool) -> Printer:
    """Print one readable line: time, topic/queue@offset, tags, keys, body; `-` for missing values.

    A message of RMQ_SYS_TRACE_TOPIC gets a line for each of its trace records. Its keys are those of all its records
    together, so the lines do not repeat them.
    """
    form = "{} {}/{}@{} {} {}"
    if color:
        form = "\x1b[2m{}\x1b[0m \x1b[36m{}/{}@{}\x1b[0m \x1b[33m{}\x1b[0m \x1b[32m{}\x1b[0m"
    show = form.format

    def line(m: Message) -> bytes:
        is_trace = body == "trace" or (body == "text" and m.topic == TRACE_TOPIC)
        head = show(
            show_time(m.store_timestamp),
            visible(m.topic),
            m.queue_id,
            m.queue_offset,
            visible((m.tags or "-").replace(" ", "\\x20")),
            visible(",".join((m.keys or "").split(" ")) or "-") if not is_trace else "-",
        )
        if body == "none":
            return f"{head}\n".encode()
        if is_trace:
            lines = trace_lines(m.body) or [""]
            return "".join(f"{head} {visible(line)}".rstrip() + "\n" for line in lines).encode(
                "utf-8", "backslashreplace"
            )
        if body == "text":
            return f"{head} {visible(m.body.decode('utf-8', 'backslashreplace'))}\n".encode()
        return f"{head} ".encode() + BODY_FORMS[body][0](m.body) + b"\n"

    return line
