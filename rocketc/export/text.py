"""Messages as text: JSON Lines and CSV, compressed or not. Needs nothing beyond the core."""

from __future__ import annotations

import csv
import datetime
import io
import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol

from rocketc._arrow import COLUMN_NAMES
from rocketc._message import Message
from rocketc.errors import MissingCodecError
from rocketc.export.formats import Format
from rocketc.export.sinks import Sink

Encode = Callable[[Iterable[Message]], bytes]

_EPOCH = datetime.datetime(1970, 1, 1)
_GZIP = zlib.MAX_WBITS | 16  # of zlib: with gzip's head, which then has neither a name nor a time


class TextFile:
    """One file of text that grows by blocks."""

    def __init__(self, sink: Sink, format: Format, header: bytes) -> None:
        self._sink = sink
        self._compressor = compressor(format.compression)
        self.weight = 1 if self._compressor is None else 16  # memory while it is open: see folder.OPEN_WEIGHT
        self.write(header)

    def write(self, text: bytes) -> None:
        if text:
            self._sink.write(text if self._compressor is None else self._compressor.compress(text))

    def close(self) -> None:
        if self._compressor is not None:
            self._sink.write(self._compressor.flush())


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def compressor(name: str) -> _Compressor | None:
    """For "gzip", "zstd", or None for "none". Raises MissingCodecError if zstd is not installed."""
    if name == "gzip":
        return zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    if name == "zstd":
        made: _Compressor = _zstd_compressor()
        return made
    return None


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
    return _csv_lines([names]), _csv(names)


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


def _body_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _body_base64(body: bytes) -> str | None:
    return b64encode(body).decode("ascii") if _body_text(body) is None else None


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    try:
        return (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return ""


def _instant(ms: int) -> str | None:
    """ISO-8601 in UTC; nothing for what no year of four digits can say."""
    start = _second(ms // 1000)
    return f"{start}.{ms % 1000:03}Z" if start else None


_dump_properties = json.JSONEncoder(ensure_ascii=False).encode

_ATTRIBUTES = {"physicalOffset": "phy_offset", "bodyCRC": "body_crc", "bodyBase64": "body"}  # the others follow a rule
_CELLS: dict[str, Callable[[Any], str | None]] = {
    "body": _body_text,
    "bodyBase64": _body_base64,
    "storeTimestamp": _instant,
    "bornTimestamp": _instant,
    "properties": _dump_properties,
}


def _attribute(column: str) -> str:
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in column)
    return _ATTRIBUTES.get(column, snake)


def _csv(names: Sequence[str]) -> Encode:
    get = attrgetter(*map(_attribute, names))
    cells = [(i, _CELLS[name]) for i, name in enumerate(names) if name in _CELLS]
    alone = len(names) == 1  # attrgetter gives no tuple then

    def encode(messages: Iterable[Message]) -> bytes:
        rows = []
        for message in messages:
            row = [get(message)] if alone else list(get(message))
            for i, cell in cells:
                row[i] = cell(row[i])
            rows.append(row)
        return _csv_lines(rows)

    return encode


def _csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue().encode("utf-8", "backslashreplace")
