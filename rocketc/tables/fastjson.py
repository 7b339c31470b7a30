"""JSON as fastjson, RocketMQ's JSON library, reads and writes it: integer names, and the order of a HashMap."""

from __future__ import annotations

import json
import json.encoder
import math
import re
import struct
from typing import Any, TypeVar

_quoted = json.encoder.encode_basestring  # as json.dumps(text, ensure_ascii=False)
K = TypeVar("K", str, int)
V = TypeVar("V")
DEEPEST = 100  # nested objects and lists
LARGEST = 64 << 20  # bytes of a file
_BLANK = re.compile(r"[ \t\r\n]*")
_END_OR_ESCAPE = re.compile(r'["\\]')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,399})(?!\d)(\.\d{1,400})?([eE][+-]?\d{1,4})?", re.ASCII)
_INTEGER_NAME = re.compile(r"-?\d{1,19}(?!\d)", re.ASCII)
_MARK = "\\u0001"  # marks a name that had no quotes
_UNQUOTED = re.compile(r"([{,][ \t\r\n]*)(-?\d{1,19})(?=[ \t\r\n]*:)", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')  # of text that is valid JSON
_OTHERS = re.compile(r"[^][}{]+")
_WORDS = {"true": True, "false": False, "null": None}


def parse(
    text: str | bytes, *, object_names: bool = False, slow_most: int | None = None, integers_most: int | None = None
) -> Any:
    """Parse a JSON text. Names may be integers without quotes; these become int. A comma may follow the last entry.

    text          bytes are UTF-8
    object_names  names may also be objects, as in a Java map whose keys are objects. Such a name becomes a tuple of its
                  (name, value) pairs, which must not be objects or lists
    slow_most     characters of a text that is parsed again, a hundred times slower, to say what is wrong and where;
                  None: all. The texts of peers need a limit
    integers_most  with slow_most: names that are integers, which take ten times as long as others; None: any number
    Raises ValueError with the line and column; columns are characters, counted from 1. Time and memory are proportional
    to the length of any text.

    >>> parse('{"a":{0:12,"1":[true,null]}}')
    {'a': {0: 12, '1': [True, None]}}
    >>> parse('{{"queueId":1}:7}', object_names=True)
    {(('queueId', 1),): 7}
    """
    if isinstance(text, bytes):
        text = _decoded(text)
    if object_names and "{{" in text:
        return _Parser(text, object_names=True).parse()
    try:
        return _parse_fast(text, integers_most)
    except (ValueError, RecursionError):
        if slow_most is not None and len(text) > slow_most:
            raise ValueError(f"wrong somewhere; only a text of {slow_most} characters is searched for errors") from None
        return _Parser(text, object_names=object_names).parse()  # its errors say what is wrong and where


def _parse_fast(text: str, integers_most: int | None = None) -> Any:
    """Parse with Python's parser, which is ten times faster. Raises ValueError or RecursionError for other texts."""
    numbers = 0
    if _MARK not in text:
        # Inside a string, this makes the JSON invalid: the quote ends the string, and no value begins with a backslash.
        count = 0 if integers_most is None else integers_most + 1
        text, numbers = _UNQUOTED.subn(rf'\1"\{_MARK}\2"', text, count)
        if integers_most is not None and numbers > integers_most:
            raise ValueError(f"more than {integers_most} names are integers")
    pairs_hook = _with_numbers if numbers else None
    value = json.loads(text, object_pairs_hook=pairs_hook, parse_constant=_refuse, parse_float=_finite)
    levels = _OTHERS.sub("", _STRING.sub("", text))
    for _ in range(DEEPEST):
        if not levels:
            return value
        levels = levels.replace("{}", "").replace("[]", "")
    if levels:
        raise ValueError("too deep")
    return value


def _with_numbers(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    return {int(name[1:]) if name[:1] == "\1" else name: value for name, value in pairs}


def _refuse(word: str) -> None:
    raise ValueError(word)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):  # JSON can't express infinity, so it could not be written again
        raise ValueError(number)
    return value


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        raise _error(before, len(before), "not UTF-8") from None


def _error(text: str, pos: int, what: str) -> ValueError:
    line_start = text.rfind("\n", 0, pos) + 1
    return ValueError(f"line {text.count(chr(10), 0, pos) + 1}, column {pos - line_start + 1}: {what}")


class _Parser:
    """Parses a text in one pass. Open objects and lists are in a list, so depth does not use the stack."""

    def __init__(self, text: str, *, object_names: bool = False) -> None:
        self._text = text
        self._object_names = object_names
        self._pos = 0
        self._open: list[dict[Any, Any] | list[Any]] = []

    def parse(self) -> Any:
        """Parse the text, which must be one value."""
        self._skip_blanks()
        if self._pos == len(self._text):
            raise self._wrong("empty" if self._pos == 0 else "only whitespace")
        whole: list[Any] = []
        self._value(whole, None)
        while self._open:
            self._next_entry(self._open[-1])
        self._skip_blanks()
        if self._pos < len(self._text):
            raise self._wrong("more data after the end")
        return whole[0]

    def _next_entry(self, inner: dict[Any, Any] | list[Any]) -> None:
        """Read one entry or the end of the innermost open object or list."""
        closing = "}" if isinstance(inner, dict) else "]"
        self._skip_blanks()
        if self._take(closing):
            self._open.pop()
            return
        if inner:
            if not self._take(","):
                raise self._wrong(f"expected , or {closing}")
            self._skip_blanks()
            if self._take(closing):  # fastjson ignores a comma before it
                self._open.pop()
                return
        name = None
        if isinstance(inner, dict):
            name = self._name()
            self._skip_blanks()
            if not self._take(":"):
                raise self._wrong("expected :")
            self._skip_blanks()
        self._value(inner, name)

    def _value(self, into: dict[Any, Any] | list[Any], name: Any) -> None:
        """Read a value, or the start of an object or list, and add it to the enclosing object or list."""
        char = self._text[self._pos : self._pos + 1]
        value: Any
        if char in ("{", "["):
            if len(self._open) == DEEPEST:
                raise self._wrong(f"more than {DEEPEST} objects and lists nested in each other")
            self._pos += 1
            value = {} if char == "{" else []
            self._open.append(value)
        elif char == '"':
            value = self._string()
        else:
            value = self._number_or_word()
        if isinstance(into, dict):
            into[name] = value
        else:
            into.append(value)

    def _name(self) -> str | int | tuple[tuple[Any, Any], ...]:
        if self._text.startswith('"', self._pos):
            return self._string()
        if self._object_names and self._text.startswith("{", self._pos):
            return self._object_name()
        if match := _INTEGER_NAME.match(self._text, self._pos):
            self._pos = match.end()
            return int(match[0])
        raise self._wrong("expected a name in quotes, or a whole number")

    def _object_name(self) -> tuple[tuple[Any, Any], ...]:
        """Read an object without inner objects and lists."""
        self._pos += 1
        found: dict[Any, Any] = {}
        self._object_names = False
        self._skip_blanks()
        while not self._take("}"):
            if found and not self._take(","):
                raise self._wrong("expected , or }")
            self._skip_blanks()
            name = self._name()
            self._skip_blanks()
            if not self._take(":"):
                raise self._wrong("expected :")
            self._skip_blanks()
            if self._text[self._pos : self._pos + 1] in ("{", "["):
                raise self._wrong("an object or list in a name")
            self._value(found, name)
            self._skip_blanks()
        self._object_names = True
        return tuple(found.items())

    def _string(self) -> str:
        start, pos = self._pos, self._pos + 1
        while (match := _END_OR_ESCAPE.search(self._text, pos)) is not None:
            pos = match.end()
            if match[0] == '"':
                break
            pos += 1
        else:
            raise self._wrong("unterminated string")
        try:
            value = json.loads(self._text[start:pos])
        except json.JSONDecodeError as error:
            self._pos += error.pos
            raise self._wrong("a control character or an invalid escape") from None
        self._pos = pos
        assert isinstance(value, str)
        return value

    def _number_or_word(self) -> Any:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._pos):
                self._pos += len(word)
                return value
        match = _NUMBER.match(self._text, self._pos)
        if match is None:
            raise self._wrong("expected a value")
        try:
            number = int(match[0]) if match.lastindex is None else _finite(match[0])
        except ValueError:
            raise self._wrong("a number that is too large") from None
        self._pos = match.end()
        return number

    def _skip_blanks(self) -> None:
        match = _BLANK.match(self._text, self._pos)
        assert match is not None
        self._pos = match.end()

    def _take(self, char: str) -> bool:
        if self._text.startswith(char, self._pos):
            self._pos += 1
            return True
        return False

    def _wrong(self, what: str) -> ValueError:
        return _error(self._text, self._pos, what)


def to_bytes(data: Any, *, compact: bool = False) -> bytes:
    """Write JSON in UTF-8 as RocketMQ does, which is as fastjson 1 does.

    One tab per level, no space after the colon. A string name begins a line. An integer name is written without quotes
    and does not begin a line. A name may also be a tuple of (name, value) pairs, as parse() returns an object that is a
    name. Lists stay on one line. An entry with the value None is written as null; RocketMQ omits
    such entries.

    compact  without line breaks and tabs
    Raises ValueError for more than DEEPEST levels, TypeError for a value that JSON can't express.

    >>> to_bytes({"table": {}, "lists": {"a": ["b", "c"]}}, compact=True)
    b'{"table":{},"lists":{"a":["b","c"]}}'
    """
    pieces: list[str] = []
    _put(pieces, data, 0, "" if compact else "\n")
    return "".join(pieces).encode("utf-8", "backslashreplace")  # an unpaired surrogate becomes an escape


def in_java_order(table: dict[K, V], buckets: int) -> dict[K, V]:
    """Return the entries in the order of a Java ConcurrentHashMap, in which brokers write their tables.

    table    its names are str or int
    buckets  number of buckets of the empty map, a power of two: 2048 for topics and groups, 1024 for consumer offsets
    Entries of one bucket keep their order of insertion.

    >>> list(in_java_order(dict.fromkeys(["BenchmarkTest", "SELF_TEST_TOPIC", "TBW102"]), 2048))
    ['SELF_TEST_TOPIC', 'TBW102', 'BenchmarkTest']
    """
    while len(table) >= buckets * 3 // 4:
        buckets *= 2
    return dict(sorted(table.items(), key=lambda entry: _bucket(entry[0], buckets)))


def _bucket(name: str | int, buckets: int) -> int:
    code = name if isinstance(name, int) else 0
    if isinstance(name, str):
        for (unit,) in struct.iter_unpack(">H", name.encode("utf-16-be", "surrogatepass")):
            code = (31 * code + unit) & 0xFFFFFFFF
    code &= 0xFFFFFFFF
    return (code ^ code >> 16) & (buckets - 1)


def _put(pieces: list[str], value: Any, depth: int, line: str) -> None:
    if depth > DEEPEST:
        raise ValueError(f"more than {DEEPEST} objects and lists nested in each other")
    tabs = line and line + "\t" * depth
    if isinstance(value, dict) and value:
        before, inner_tabs = "{", tabs and tabs + "\t"
        for name, inner in value.items():
            if isinstance(name, str):
                before = f"{before}{inner_tabs}{_quoted(name)}:"
            elif type(name) is int:
                before = f"{before}{name}:"
            elif type(name) is tuple:
                pieces.append(before)
                _put(pieces, dict(name), depth + 1, line)
                before = ":"
            else:
                raise TypeError(f"{name!r} can't be a name in a table: names are str or int, or tuples of pairs")
            if type(inner) is int:
                pieces.append(f"{before}{inner}")
            else:
                pieces.append(before)
                _put(pieces, inner, depth + 1, line)
            before = ","
        pieces.append(f"{tabs}}}")
    elif isinstance(value, list | tuple) and value:
        before = "["
        for inner in value:
            pieces.append(before)
            _put(pieces, inner, depth + 1, line)
            before = ","
        pieces.append("]")
    elif isinstance(value, str):
        pieces.append(_quoted(value))
    else:
        pieces.append(json.dumps(value, allow_nan=False))
