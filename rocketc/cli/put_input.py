"""What `rocketc put` reads: lines of stdin or of files, whole files, or JSON lines as `cat` and `export` write them."""

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
    """Lines that were read at once, or one whole file.

    file   name of the input
    first  number of its first line, from 1; 0: it is a whole file
    lines  without their newlines
    read   bytes of all inputs up to here
    """

    file: str
    first: int
    lines: list[bytes]
    read: int

    @property
    def bytes(self) -> int:
        """Of all its lines."""
        return sum(map(len, self.lines))

    def place(self, i: int) -> str:
        """Where a line is, for a message about it."""
        return f"{self.file}, line {self.first + i}" if self.first else self.file


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """The descriptor of an input; `-` is stdin."""
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
    """Bytes of all inputs; None if one is no regular file. Raises StoreIOError for one that can't be read."""
    total = 0
    for path in paths:
        if path != "-" and _is_no_file(path):  # to open and close a pipe loses what is in it
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
        return False  # to open it says what is wrong


def _name(path: str) -> str:
    return "stdin" if path == "-" else path


def _read(fd: int, path: str, waiting: Waiting) -> bytes:
    with errors_named(_name(path)), waiting():
        return os.read(fd, BLOCK_BYTES)


def lines(paths: Sequence[str], longest: int, waiting: Waiting) -> Iterator[Block]:
    """The lines of the inputs, as they come: nothing waits for a block to fill.

    longest  bytes of a line; raises IllegalMessageError for a longer one, and has not read much more by then
    waiting  a context that is entered while an input is read
    The newline ends a line and is no part of it; a last line without one is one too.
    """
    read = 0
    for path in paths:
        rest: list[bytes] = []  # of a line whose end was not read yet
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
    """The block, if none of its lines is too long."""
    for i, line in enumerate(block.lines):
        if len(line) > longest:
            raise IllegalMessageError(f"{block.place(i)}: longer than {longest} bytes")
    return block


def whole(paths: Sequence[str], longest: int, waiting: Waiting) -> Iterator[Block]:
    """Each input as one line, whatever is in it. Raises as lines() does."""
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
    """The arguments of store.put() that a JSON line says.

    The store gives a message its offsets, its store time, its host and its id; what the line says of those is passed
    over. Raises ValueError for a line that says something else than `cat --json` does.

    >>> message_of(b'{"topic":"orders","queueId":3,"keys":"k1","body":"hello","physicalOffset":4096}')
    {'topic': 'orders', 'body': b'hello', 'queue_id': 3, 'properties': {'KEYS': 'k1'}}
    """
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError("no JSON object")
    if unknown := [key for key in given if key not in _KNOWN]:
        raise ValueError(f"a message has no {unknown[0]!r}; there are {', '.join(sorted(_KNOWN))}")
    given = {key: value for key, value in given.items() if value is not None}
    for key, kind in _TYPES.items():
        if key in given:
            _typed(key, given[key], kind)
    properties = given.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError("properties is no object with texts in it")
    return put_arguments(given | {"body": _body(given)})


def _typed(key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}, which is no {'text' if kind is str else 'whole number'}")
    return value


def _body(given: dict[str, Any]) -> bytes:
    said = [key for key in _BODIES if key in given]
    if len(said) != 1:
        raise ValueError(f"one of {', '.join(_BODIES)} says the body; there is {' and '.join(said) or 'none'}")
    [key] = said
    try:
        return _BODIES[key](_typed(key, given[key], str))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
