"""Messages as text: JSON Lines and CSV, compressed or not. Needs nothing beyond the core."""

from __future__ import annotations

import datetime
import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from rocketc.errors import MissingCodecError
from rocketc.exports.formats import Format
from rocketc.exports.sinks import Sink
from rocketc.read._arrow import COLUMN_NAMES
from rocketc.read._message import Message

Encode = Callable[[Iterable[Message]], bytes]

_EPOCH = datetime.datetime(1970, 1, 1)
_GZIP = zlib.MAX_WBITS | 16  # of zlib: with gzip's head, which then has neither a name nor a time


class TextFile:
    """One file of text that grows by blocks, which are packed before."""

    weight = 1

    def __init__(self, sink: Sink, header: bytes, pack: Callable[[bytes], bytes]) -> None:
        self._sink = sink
        self._pack = pack
        if header:
            self.write(pack(header))

    def write(self, packed: bytes) -> None:
        self._sink.write(packed)

    def close(self) -> None:
        if not self._sink.bytes:  # gzip and zstd refuse a file of 0 bytes
            self.write(self._pack(b""))


def packer(compression: str) -> Callable[[bytes], bytes]:
    """What compresses a block of text: to a gzip member, a zstd frame; for "none" to itself.

    A file of several of them is one text to whoever reads it. Raises MissingCodecError if zstd is not installed.
    """
    if compression == "zstd":
        _zstd_compressor()
    make = {"gzip": lambda: zlib.compressobj(6, zlib.DEFLATED, _GZIP), "zstd": _zstd_compressor}.get(compression)
    if make is None:
        return lambda text: text

    def pack(text: bytes) -> bytes:
        compressor = make()
        packed: bytes = compressor.compress(text) + compressor.flush()
        return packed

    return pack


def in_blocks(texts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same text in pieces of at least this size, but for the last."""
    waiting: list[bytes] = []
    total = 0
    for text in texts:
        waiting.append(text)
        total += len(text)
        if total >= size:
            yield b"".join(waiting)
            waiting, total = [], 0
    if total:
        yield b"".join(waiting)


def _zstd_compressor() -> Any:
    try:
        from compression.zstd import ZstdCompressor  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from backports.zstd import ZstdCompressor
        except ImportError:
            raise MissingCodecError(
                "zstd needs a package: pip install 'rocketc[compression]' (package backports.zstd)"
            ) from None
    return ZstdCompressor()


def encoder(format: Format, columns: Sequence[str]) -> tuple[bytes, Encode]:
    """The header of a file, and what makes text of messages.

    columns  names of the Arrow columns that are asked for, in their order
    """
    if format.name == "jsonl":
        return b"", _jsonl(columns)
    names = csv_columns(columns)
    return (",".join(names) + "\r\n").encode(), _csv(names)


# ---------------------------------------------------------------- JSON Lines
def _jsonl(columns: Sequence[str]) -> Encode:
    """What Message.to_json() gives, or of that what the columns ask for."""
    to_json: Callable[[Message], str] = Message.to_json
    if set(columns) != set(COLUMN_NAMES):
        keys = [key for name in columns for key in ((name, "bodyBase64") if name == "body" else (name,))]
        dump = json.JSONEncoder(ensure_ascii=False).encode

        def some_of(message: Message) -> str:
            values = message.to_dict()
            return dump({key: values[key] for key in keys if key in values})

        to_json = some_of

    def encode(messages: Iterable[Message]) -> bytes:
        # A file name that is no UTF-8 has lone surrogates; "backslashreplace" makes JSON's own escapes of them.
        text = "\n".join(map(to_json, messages))
        return (text + "\n").encode("utf-8", "backslashreplace") if text else b""

    return encode


# ---------------------------------------------------------------- CSV
def csv_columns(columns: Sequence[str]) -> list[str]:
    """The header: a body that is no UTF-8 stands in a column of its own, behind that of the text.

    >>> csv_columns(["topic", "body", "flag"])
    ['topic', 'body', 'bodyBase64', 'flag']
    """
    return [name for column in columns for name in ((column, "bodyBase64") if column == "body" else (column,))]


def _quoted(text: str | None) -> str:
    """A cell as RFC 4180 has it, and as csv.writer would write it, at a third of the time."""
    if text is None:
        return ""
    if '"' in text or "," in text or "\n" in text or "\r" in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _body_text(body: bytes) -> str:
    try:
        return _quoted(body.decode())
    except UnicodeDecodeError:
        return ""


def _body_base64(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError:
        return b64encode(body).decode("ascii")
    return ""


def _properties(properties: dict[str, str]) -> str:
    return _quoted(
        "{" + ", ".join([f"{_in_json(name)}: {_in_json(value)}" for name, value in properties.items()]) + "}"
    )


_in_json = json.encoder.encode_basestring  # type: ignore[attr-defined, unused-ignore]


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    try:
        return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return ""


def _instant(ms: int) -> str:
    """ISO-8601 in UTC; nothing for what no year of four digits can say."""
    start = _second(ms // 1000)
    return f"{start}.{ms % 1000:03}Z" if start else ""


_ATTRIBUTES = {"physicalOffset": "phy_offset", "bodyCRC": "body_crc", "bodyBase64": "body"}  # the others follow a rule
_CELLS: dict[str, Callable[[Any], str]] = {  # numbers, hosts and ids are what they are
    "topic": _quoted,
    "keys": _quoted,
    "tags": _quoted,
    "body": _body_text,
    "bodyBase64": _body_base64,
    "properties": _properties,
    "storeTimestamp": _instant,
    "bornTimestamp": _instant,
    "file": _quoted,
}


def attribute_of(column: str) -> str:
    """What a column is called as an attribute of Message.

    >>> attribute_of("physicalOffset"), attribute_of("storeSize")
    ('phy_offset', 'store_size')
    """
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in column)
    return _ATTRIBUTES.get(column, snake)


def _csv(names: Sequence[str]) -> Encode:
    get = attrgetter(*map(attribute_of, names))
    cells = [(i, _CELLS[name]) for i, name in enumerate(names) if name in _CELLS]
    line = ",".join(["%s"] * len(names)) + "\r\n"
    alone = len(names) == 1  # attrgetter gives no tuple then, and an empty line would be no row

    def encode(messages: Iterable[Message]) -> bytes:
        lines = []
        for message in messages:
            row = [get(message)] if alone else list(get(message))
            for i, cell in cells:
                row[i] = cell(row[i])
            lines.append('""\r\n' if alone and row[0] == "" else line % tuple(row))
        return "".join(lines).encode("utf-8", "backslashreplace")

    return encode
