"""Write messages as text: JSON Lines and CSV, compressed or not. Needs only the core package."""

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
_GZIP = zlib.MAX_WBITS | 16  # zlib's flag for a gzip header; the header is without a name and a time


class TextFile:
    """A text file that is written in compressed blocks."""

    weight = 1

    def __init__(self, sink: Sink, header: bytes, pack: Callable[[bytes], bytes]) -> None:
        self._sink = sink
        self._pack = pack
        if header:
            self.write(pack(header))

    def write(self, packed: bytes) -> None:
        self._sink.write(packed)

    def close(self) -> None:
        if not self._sink.bytes:  # gzip and zstd do not accept an empty file
            self.write(self._pack(b""))


def packer(compression: str) -> Callable[[bytes], bytes]:
    """Return a function that compresses a block of text to a gzip member or a zstd frame; for "none" unchanged.

    Readers decompress a file of several blocks as one text. Raises MissingCodecError if zstd is not installed.
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
    """Combine texts to pieces of at least `size` bytes; the last piece may be smaller."""
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
    """Return the header of a file, and the function that encodes messages.

    columns  names of the selected Arrow columns, in order
    """
    if format.name == "jsonl":
        return b"", _jsonl(columns)
    names = csv_columns(columns)
    return (",".join(names) + "\r\n").encode(), _csv(names)


# ---------------------------------------------------------------- JSON Lines
def _jsonl(columns: Sequence[str]) -> Encode:
    """Return an encoder to Message.to_json(), or to the selected columns of it."""
    to_json: Callable[[Message], str] = Message.to_json
    if set(columns) != set(COLUMN_NAMES):
        keys = [key for name in columns for key in ((name, "bodyBase64") if name == "body" else (name,))]
        dump = json.JSONEncoder(ensure_ascii=False).encode

        def some_of(message: Message) -> str:
            values = message.to_dict()
            return dump({key: values[key] for key in keys if key in values})

        to_json = some_of

    def encode(messages: Iterable[Message]) -> bytes:
        # A file name that is not UTF-8 contains lone surrogates; "backslashreplace" turns them into JSON escapes.
        text = "\n".join(map(to_json, messages))
        return (text + "\n").encode("utf-8", "backslashreplace") if text else b""

    return encode


# ---------------------------------------------------------------- CSV
def csv_columns(columns: Sequence[str]) -> list[str]:
    """Return the header: a body that is not UTF-8 goes to its own column, after the column of text bodies.

    >>> csv_columns(["topic", "body", "flag"])
    ['topic', 'body', 'bodyBase64', 'flag']
    """
    return [name for column in columns for name in ((column, "bodyBase64") if column == "body" else (column,))]


def _quoted(text: str | None) -> str:
    """Quote a cell as in RFC 4180 and csv.writer, in a third of the time."""
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
    """Format a time as ISO-8601 in UTC; empty if the year does not have four digits."""
    start = _second(ms // 1000)
    return f"{start}.{ms % 1000:03}Z" if start else ""


_ATTRIBUTES = {"physicalOffset": "phy_offset", "bodyCRC": "body_crc", "bodyBase64": "body"}  # others follow a rule
_CELLS: dict[str, Callable[[Any], str]] = {  # numbers, hosts and ids are not converted
    "topic": _quoted,
    "brokerName": _quoted,
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
    """Return the attribute of Message for a column.

    >>> attribute_of("physicalOffset"), attribute_of("storeSize")
    ('phy_offset', 'store_size')
    """
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in column)
    return _ATTRIBUTES.get(column, snake)


def _csv(names: Sequence[str]) -> Encode:
    get = attrgetter(*map(attribute_of, names))
    cells = [(i, _CELLS[name]) for i, name in enumerate(names) if name in _CELLS]
    line = ",".join(["%s"] * len(names)) + "\r\n"
    alone = len(names) == 1  # attrgetter then returns a plain value, and an empty line would not count as a row

    def encode(messages: Iterable[Message]) -> bytes:
        lines = []
        for message in messages:
            row = [get(message)] if alone else list(get(message))
            for i, cell in cells:
                row[i] = cell(row[i])
            lines.append('""\r\n' if alone and row[0] == "" else line % tuple(row))
        return "".join(lines).encode("utf-8", "backslashreplace")

    return encode
