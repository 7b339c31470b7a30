"""The input of `rocketc put`: lines of stdin or of files, whole files, or JSON Lines of `cat` and `export`."""

from __future__ import annotations

import json
import os
import stat
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from rocketc.errors import IllegalMessageError, StoreIOError
from rocketc.files.durable import errors_named
from rocketc.log.message_copy import ASSIGNED_ON_PUT, PLAIN, put_arguments

BLOCK_BYTES = 1 << 20

_TEXTS = ("topic", "keys", "tags", "bornHost")
_TYPES: dict[str, type] = {name: int for name in PLAIN if name != "body"} | dict.fromkeys(_TEXTS, str)
_BODIES: dict[str, Callable[[str], bytes]] = {
    "body": str.encode,
    "bodyBase64": lambda text: b64decode(text, validate=True),
    "bodyHex": bytes.fromhex,
}
_KNOWN = {*_TYPES, *_BODIES, *ASSIGNED_ON_PUT, "properties", "bodyCRC"}

Waiting = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Block:
    """The lines of one read, or one whole file.

    file   name of the input
    first  number of the first line, from 1; 0: the block is a whole file
    lines  the lines without their newlines
    read   bytes of all inputs up to the end of this block
    """

    file: str
    first: int
    lines: list[bytes]
    read: int

    @property
    def bytes(self) -> int:
        """Bytes of all lines."""
        return sum(map(len, self.lines))

    def place(self, i: int) -> str:
        """The position of a line, for an error message."""
        return f"{self.file}, line {self.first + i}" if self.first else self.file


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """While entered, the descriptor of an input; `-` is stdin."""
    if path == "-":
        if sys.stdin is None:
            raise StoreIOError(9, "stdin is closed", "stdin")
        yield sys.stdin.fileno()
        return
    with errors_named(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def total_bytes(paths: Sequence[str]) -> int | None:
    """Bytes of all inputs; None if one is not a regular file. Raises StoreIOError for one that can't be read."""
    total = 0
    for path in paths:
        if path != "-" and _is_no_file(path):  # opening and closing a pipe would lose its data
            return None
        with _opened(path) as fd:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                return None
            total += info.st_size
    return total


def _is_no_file(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False  # opening the file reports the error


def _name(path: str) -> str:
    return "stdin" if path == "-" else path


def _read(fd: int, path: str, waiting: Waiting) -> bytes:
    with errors_named(_name(path)), waiting():
        return os.read(fd, BLOCK_BYTES)


def lines(paths: Sequence[str], longest: int, waiting: Waiting) -> Iterator[Block]:
    """Yield the lines of the inputs as they arrive, without waiting for a block to fill.

    longest  most bytes of a line; a longer one raises IllegalMessageError soon after that number of bytes was read
    waiting  a context that is entered while an input is read
    A newline ends a line and is not part of it. A last line without a newline is also a line.
    """
    read = 0
    for path in paths:
        rest: list[bytes] = []  # parts of a line whose end was not read yet
        waits = 0
        first = 1
        with _opened(path) as fd:
            while data := _read(fd, path, waiting):
                read += len(data)
                head, *more = data.split(b"\n")
                rest.append(head)
                waits += len(head)
                if more:
                    found = [b"".join(rest), *more[:-1]]
                    rest, waits = [more[-1]], len(more[-1])
                    yield _short(Block(_name(path), first, found, read), longest)
                    first += len(found)
                if waits > longest:
                    _short(Block(_name(path), first, [b"".join(rest)], read), longest)
            if waits:
                yield _short(Block(_name(path), first, [b"".join(rest)], read), longest)


def _short(block: Block, longest: int) -> Block:
    """Return the block. Raises IllegalMessageError if a line is longer than `longest` bytes."""
    for i, line in enumerate(block.lines):
        if len(line) > longest:
            raise IllegalMessageError(f"{block.place(i)}: longer than {longest} bytes")
    return block


def whole(paths: Sequence[str], longest: int, waiting: Waiting) -> Iterator[Block]:
    """Yield each input as one message, with its newlines. Raises the same errors as lines()."""
    read = 0
    for path in paths:
        parts: list[bytes] = []
        size = 0
        with _opened(path) as fd:
            while data := _read(fd, path, waiting):
                parts.append(data)
                size += len(data)
                if size > longest:
                    raise IllegalMessageError(f"{_name(path)}: longer than {longest} bytes")
        read += size
        yield Block(_name(path), 0, [b"".join(parts)], read)


def message_of(line: bytes) -> dict[str, Any]:
    """Return the arguments of store.put() for a line of JSON.

    The store assigns the offsets, the store time, the store host and the id of a message, so these fields of the line
    are ignored. Raises ValueError for a line that `cat --json` can't have written.

    >>> message_of(b'{"topic":"orders","queueId":3,"keys":"k1","body":"hello","physicalOffset":4096}')
    {'topic': 'orders', 'body': b'hello', 'queue_id': 3, 'properties': {'KEYS': 'k1'}}
    """
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError("not a JSON object")
    if unknown := [key for key in given if key not in _KNOWN]:
        raise ValueError(f"unknown field {unknown[0]!r}; a message can have {', '.join(sorted(_KNOWN))}")
    given = {key: value for key, value in given.items() if value is not None}
    for key, kind in _TYPES.items():
        if key in given:
            _typed(key, given[key], kind)
    properties = given.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError("properties is not an object with text values")
    return put_arguments(given | {"body": _body(given)})


def _typed(key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}, not a {'text' if kind is str else 'whole number'}")
    return value


def _body(given: dict[str, Any]) -> bytes:
    said = [key for key in _BODIES if key in given]
    if len(said) != 1:
        raise ValueError(f"give exactly one of {', '.join(_BODIES)}; given: {', '.join(said) or 'nothing'}")
    [key] = said
    try:
        return _BODIES[key](_typed(key, given[key], str))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
