"""A slow interpreter of SQL92 filters, from the spec and from RocketMQ's answers; it shares no code with rocketc.

An expression is a tuple: its kind, then its parts. `shown` writes it as text, `answer` evaluates it.
"""

import math
import re
from typing import Any

from hypothesis import strategies as st

Expression = tuple[Any, ...]

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_BLANKS = "".join(map(chr, range(33)))


class Refused(Exception):
    """RocketMQ does not accept the expression."""


class Failed(Exception):
    """The evaluation ends with an error."""


def java_long(text: str, most: int = (1 << 63) - 1) -> int:
    if not _WHOLE.fullmatch(text) or not -most - 1 <= int(text) <= most:
        raise Failed
    return int(text)


def java_double(text: str) -> float:
    text = text.strip(_BLANKS)
    if re.fullmatch("[+-]?(NaN|Infinity)", text):
        return float(text)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise Failed


def number_like(text: str, other: Any) -> Any:
    """The number in a text, of the type that the other side has."""
    if isinstance(other, float):
        return java_double(text)
    return java_long(text, (1 << 31) - 1 if isinstance(other, Int) else (1 << 63) - 1)


class Int(int):
    """A number of the type int; a plain int is of the type long."""


def typed(value: Any) -> Any:
    return Int(value) if type(value) is int and -(1 << 31) <= value < 1 << 31 else value


def sign(a: Any, b: Any) -> int:
    if not isinstance(a, float) and not isinstance(b, float):
        return (a > b) - (a < b)
    a, b = float(a), float(b)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) - math.isnan(b)
    if a == b == 0:
        return int(math.copysign(1, a) - math.copysign(1, b))
    return (a > b) - (a < b)


def equal(a: Any, b: Any) -> bool | None:
    if a is None:
        return True if b is None else None
    if b is None:
        return False
    if isinstance(a, str) and isinstance(b, bool):
        return (a.lower() == "true" and a.isascii()) == b
    if isinstance(a, bool) and isinstance(b, str):
        raise Failed
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, str) and isinstance(b, str):
        return a == b
    a = number_like(a, b) if isinstance(a, str) else a
    b = number_like(b, a) if isinstance(b, str) else b
    return sign(a, b) == 0


def ordered(op: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    if isinstance(a, str) and isinstance(b, str):
        a, b = java_double(a), java_double(b)
    a = number_like(a, b) if isinstance(a, str) else a
    b = number_like(b, a) if isinstance(b, str) else b
    return {">": sign(a, b) > 0, ">=": sign(a, b) >= 0, "<": sign(a, b) < 0, "<=": sign(a, b) <= 0}[op]


def check(expression: Expression) -> None:
    """Raise Refused for an expression with parts that do not fit together."""
    kind, *parts = expression
    for part in parts:
        if isinstance(part, tuple) and part and part[0] in KINDS:
            check(part)
    if kind in ("and", "or", "not") and any(part[0] in ("text", "number", "minus") for part in parts):
        raise Refused
    if kind in ("=", "<>"):
        left, right = parts
        if ("truth", None) in parts or (left[0] == "truth" and right[0] in ("text", "number")):
            raise Refused
    if kind in (">", ">=", "<", "<=") and not all(part[0] in ("name", "number", "minus") for part in parts):
        raise Refused
    if kind in ("between", "not between"):
        low, high = parts[1:]
        if not all(part[0] in ("name", "number", "minus") for part in parts):
            raise Refused
        if kind == "between" and low[0] == high[0] == "number" and low[1] > high[1]:
            raise Refused
    if kind in ("in", "not in") and parts[0][0] != "name":
        raise Refused


def value_of(expression: Expression, properties: dict[str, str]) -> Any:
    """The value: str, int, float, bool or None. Raises Failed."""
    kind, *parts = expression
    if kind == "name":
        return properties.get(parts[0])
    if kind in ("text", "truth"):
        return parts[0]
    if kind == "number":
        return typed(parts[0])
    if kind in ("and", "or"):
        found: list[bool | None] = []
        for part in parts:
            found.append(condition(part, properties))
            if found[-1] is (kind == "or"):
                return found[-1]
        return None if None in found else kind == "and"
    if kind in ("between", "not between"):
        value, low, high = parts
        first, second, join = ("<", ">", "or") if kind == "not between" else (">=", "<=", "and")
        return value_of((join, (first, value, low), (second, value, high)), properties)
    if kind.endswith(("contains", "startswith", "endswith")) and not parts[1]:
        return False
    if kind == "not":
        one = condition(parts[0], properties)
        return None if one is None else not one
    left = value_of(parts[0], properties)
    if kind == "minus":
        return -left if isinstance(left, (int, float)) and not isinstance(left, bool) else None
    if kind in ("is null", "is not null"):
        return (left is None) == (kind == "is null")
    if kind in ("in", "not in"):
        return None if left is None else (left in parts[1]) == (kind == "in")
    if kind.endswith(("contains", "startswith", "endswith")):
        if not isinstance(left, str):
            return False
        tests = {"contains": left.__contains__, "startswith": left.startswith, "endswith": left.endswith}
        return tests[kind.removeprefix("not ")](parts[1]) == ("not " not in kind)
    right = value_of(parts[1], properties)
    if kind in ("=", "<>"):
        same = equal(left, right)
        return same if same is None else same == (kind == "=")
    return ordered(kind, left, right)


def condition(expression: Expression, properties: dict[str, str]) -> bool | None:
    value = value_of(expression, properties)
    return value if value is None or isinstance(value, bool) else False


def answer(expression: Expression, properties: dict[str, str]) -> str:
    """What RocketMQ answers: "true", "false", "null", "error" or "refused"."""
    try:
        check(("not", expression))
        return str(condition(expression, properties)).lower().replace("none", "null")
    except Refused:
        return "refused"
    except Failed:
        return "error"


def shown(expression: Expression) -> str:
    """The expression as text, each part of it in parentheses."""
    kind, *parts = expression
    if kind == "name":
        return str(parts[0])
    if kind == "text":
        return quoted(parts[0])
    if kind == "number":
        return repr(parts[0])
    if kind == "truth":
        return {True: "TRUE", False: "FALSE", None: "NULL"}[parts[0]]
    inner = [f"({shown(part)})" for part in parts if isinstance(part, tuple) and part and part[0] in KINDS]
    word = kind.upper()
    if kind in ("minus", "not"):
        return f"{'-' if kind == 'minus' else 'NOT '}{inner[0]}"
    if kind in ("is null", "is not null"):
        return f"{inner[0]} {word}"
    if kind in ("between", "not between"):
        return f"{inner[0]} {word} {inner[1]} AND {inner[2]}"
    if kind in ("in", "not in"):
        return f"{inner[0]} {word} ({', '.join(map(quoted, parts[1]))})"
    if len(inner) == 1:
        return f"{inner[0]} {word} {quoted(parts[1])}"
    return f" {word} ".join(inner)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_PARTS = ("contains", "not contains", "startswith", "not startswith", "endswith", "not endswith")
_TWO = ("=", "<>", ">", ">=", "<", "<=")
KINDS = {
    *("name", "text", "number", "truth", "minus", "not", "is null", "is not null", "and", "or"),
    *("between", "not between", "in", "not in", *_PARTS, *_TWO),
}

texts = st.sampled_from(
    ["", "1", "-2", "1.5", "true", "TRUE", "abc", "b", "c", "it's", "é☃", "NaN", "12345678901", " 7"]
)
texts |= st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=6)
names = st.sampled_from(["a", "b", "c", "$d", "_e", "Price", "nope"])
numbers = st.sampled_from([0, 1, 2, 7, 2147483647, 2147483648, (1 << 63) - 1]) | st.integers(0, (1 << 63) - 1)
numbers_of_both = numbers | st.floats(5e-324, 1.7976931348623157e308, allow_nan=False)

leaves = st.one_of(
    st.tuples(st.just("name"), names),
    st.tuples(st.just("number"), numbers_of_both),
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("truth"), st.sampled_from([True, False, None])),
)


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    value = st.tuples(st.just("name"), names) | inner
    return st.one_of(
        st.tuples(st.sampled_from(["minus", "not", "is null", "is not null"]), value),
        st.tuples(st.sampled_from(_TWO), value, value),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.sampled_from(["between", "not between"]), value, value, value),
        st.tuples(st.sampled_from(_PARTS), value, texts),
        st.tuples(st.sampled_from(["in", "not in"]), value, st.lists(texts, min_size=1, max_size=4).map(tuple)),
    )


expressions = st.recursive(leaves, _larger, max_leaves=8)
properties = st.dictionaries(names, texts.filter(bool), max_size=6)
