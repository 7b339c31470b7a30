"""SQL92 filters as RocketMQ's brokers know them: from a text to a compiled SqlFilter.

The grammar, the refusals and the types are those of RocketMQ 5.3.3's filter module, observed from outside.
4.9.7 does not know CONTAINS, STARTSWITH and ENDSWITH: these are names of properties there.
Needs lark (extra `sql`), which the first call imports.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from rocketc.errors import RocketcError, SqlError
from rocketc.read._sql_filter import NAMES_MAX, SqlFilter

TEXT_MAX = 32_768  # characters
NESTING_MAX = 100  # levels of parentheses, and of operators inside one another
LONG_MAX = (1 << 63) - 1
KEPT = 1 << 22  # characters of the texts in the cache: 7,000 short ones; 200 MB if they are long
EACH = 512  # characters that a short text counts as

_KEYWORDS = ["and", "between", "contains", "endswith", "false", "in", "is", "not", "null", "or", "startswith", "true"]

_GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction | disjunction OR conjunction -> either
?conjunction: equality | conjunction AND equality -> both
?equality: comparison
    | equality (EQUAL | DIFFERENT) comparison -> compare
    | equality IS NULL -> is_null
    | equality IS NOT NULL -> is_not_null
?comparison: unary
    | comparison (GREATER | GREATER_EQUAL | LESS | LESS_EQUAL) unary -> order
    | comparison (CONTAINS | STARTSWITH | ENDSWITH) STRING -> part
    | comparison NOT (CONTAINS | STARTSWITH | ENDSWITH) STRING -> not_part
    | comparison BETWEEN unary AND unary -> between
    | comparison NOT BETWEEN unary AND unary -> not_between
    | comparison IN strings -> member
    | comparison NOT IN strings -> not_member
strings: "(" STRING ("," STRING)* ")"
?unary: PLUS unary -> plus | MINUS unary -> minus | NOT unary -> negation | primary
?primary: STRING -> string | DECIMAL -> decimal | FLOAT -> real | (TRUE | FALSE | NULL) -> truth | NAME -> property
    | "(" disjunction ")"
EQUAL: "="
DIFFERENT: "<>"
GREATER: ">"
GREATER_EQUAL: ">="
LESS: "<"
LESS_EQUAL: "<="
PLUS: "+"
MINUS: "-"
STRING: /'(?:''|[^'])*'/
FLOAT.3: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL.2: /[1-9][0-9]*[lL]?|0/
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.2: /--[^\n\r]*(?:\r\n|\n|\r)/
BLOCK_COMMENT.2: /\/\*(?:[^*]|\*+[^*\/])*\*+\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
""" + "".join(f"{word.upper()}.4: /{word}(?![a-z0-9_$])/i\n" for word in _KEYWORDS)

# Tokens in an error, in the order in which it lists them. Tokens that come with one of these are left out.
_SHOWN = {
    "NAME": "a property",
    "DECIMAL": "a number",
    "STRING": "a text in single quotes",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "EQUAL": "a comparison",
    "AND": "AND",
    "OR": "OR",
    "NULL": "NULL",
    "NOT": "NOT",
    "BETWEEN": "BETWEEN",
    "IN": "IN",
    "IS": "IS",
    "CONTAINS": "CONTAINS",
    "STARTSWITH": "STARTSWITH",
    "ENDSWITH": "ENDSWITH",
    "$END": "the end",
}
_OPERATORS = frozenset({"BETWEEN", "IN", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH", "NOT"})


class _Kind(Enum):
    PROPERTY = "a property"
    TEXT = "a text"
    NUMBER = "a number"
    TRUTH = "TRUE, FALSE or NULL"
    NEGATED = "a negated value"
    CONDITION = "a condition"


_CONDITIONS = (_Kind.PROPERTY, _Kind.TRUTH, _Kind.CONDITION)
_ORDERED = (_Kind.PROPERTY, _Kind.NUMBER, _Kind.NEGATED)


class _Form(Enum):
    LEAF = auto()  # value: of a property, text, number or truth
    UNARY = auto()  # value: an op
    BINARY = auto()  # value: an op
    CHAIN = auto()  # value: "and" or "or"; two or more conditions
    BETWEEN = auto()  # value: whether NOT; three parts
    PART = auto()  # value: an op and a text
    MEMBER = auto()  # value: an op and texts


@dataclass
class _Node:
    """A part of an expression; at: index of its first character."""

    kind: _Kind
    form: _Form
    value: Any
    at: int
    parts: list[_Node]
    depth: int = 1


class _Results:
    """What was compiled last, within KEPT characters, and what was wrong with other texts. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, SqlFilter | SqlError] = {}  # the last used one is at the end
        self._room = KEPT

    def __contains__(self, text: str) -> bool:
        return text in self._found

    def get(self, text: str) -> SqlFilter | SqlError | None:
        with self._lock:
            found = self._found.pop(text, None)
            if found is not None:
                self._found[text] = found
            return found

    def keep(self, text: str, found: SqlFilter | SqlError) -> None:
        with self._lock:
            if text not in self._found:
                self._found[text] = found
                self._room -= EACH + len(text)
            while self._room < 0:
                oldest = next(iter(self._found))
                del self._found[oldest]
                self._room += EACH + len(oldest)


_results = _Results()


def compile_sql(text: str) -> SqlFilter:
    """Compile an SQL92 filter. The last filters are cached, within 4 million characters of texts.

    text  such as `price > 10 AND region = 'eu'`; names are properties of messages

    As RocketMQ does, this reads one expression and ignores what follows; `ignored` of the result has it.
    Raises SqlError for what RocketMQ refuses, and for a text of more than 32768 characters, 256 properties or 100
    levels; RocketcError if lark is not installed.

    >>> compiled = compile_sql("price > 10 AND region = 'eu'")
    >>> compiled.matches(b"price\\x0112\\x02region\\x01eu\\x02"), compiled.matches(b"price\\x01ten\\x02")
    (True, False)
    >>> compile_sql("price BETWEEN 1 OR 2")
    Traceback (most recent call last):
    rocketc.errors.SqlError: SQL filter, column 17: expected AND; found 'OR 2'
    """
    if not isinstance(text, str):
        raise TypeError(f"sql: expected str, got {type(text).__name__}")
    found = sql_result(text)
    if isinstance(found, SqlError):
        raise SqlError(*found.args)
    return found


def sql_result(text: str) -> SqlFilter | SqlError:
    """Return what compile_sql() returns or raises; both are cached. Raises RocketcError if lark is not installed.

    >>> sql_result("price > 10").text, str(sql_result("price >"))[:24]
    ('price > 10', 'SQL filter, column 8: ex')
    """
    if len(text) > TEXT_MAX:
        return SqlError(f"SQL filter: {len(text)} characters; at most {TEXT_MAX} are allowed", TEXT_MAX)
    found = _results.get(text)
    if found is None:
        try:
            found = _compile(text)
        except SqlError as error:
            found = error.with_traceback(None)  # the frames have the whole parser, and so has the context
            found.__context__ = None
        _results.keep(text, found)
    return found


def has_result(text: str) -> bool:
    """Whether sql_result() returns at once, because it is cached or the text is too long.

    >>> has_result("never = 'compiled'"), has_result("a" * 40_000)
    (False, True)
    """
    return text in _results or len(text) > TEXT_MAX


def whole_sql(text: str) -> SqlFilter:
    """Compile a filter as compile_sql() does, but refuse a text that RocketMQ would not read to its end.

    >>> whole_sql("region LIKE 'e%'")
    Traceback (most recent call last):
    rocketc.errors.SqlError: SQL filter, column 8: RocketMQ ignores this and what follows: "LIKE 'e%'"
    """
    compiled = compile_sql(text)
    if compiled.ignored:
        at = text.rindex(compiled.ignored)
        raise _error(text, at, f"RocketMQ ignores this and what follows: {_found(text, at)}")
    return compiled


def _compile(text: str) -> SqlFilter:
    node, end = _parse(text)
    return _Program(text).filter(node, text[end:].strip(" \t\n\r\f"))


def _error(text: str, at: int, what: str) -> SqlError:
    """Return the error about the character with this index."""
    lines = text[:at].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    line = f"line {len(lines)}, " if len(lines) > 1 else ""
    return SqlError(f"SQL filter, {line}column {len(lines[-1]) + 1}: {what}", at)


def _found(text: str, at: int) -> str:
    """Return the text from an index on, for an error."""
    rest = text[at : at + 20].split("\n")[0]
    return repr(rest) if at < len(text) else "the end"


def _listed(names: set[str]) -> str:
    """Return what the parser accepts, as a text."""
    if "EQUAL" in names:  # after a value every operator fits
        names = names - _OPERATORS
    shown = [word for name, word in _SHOWN.items() if name in names]
    if "EQUAL" in names:
        shown[shown.index("a comparison")] = "an operator"
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


class _Refused(Exception):
    """What the text may not say: args are the index of the character and the message."""


class _Builder:
    """Makes the nodes, from the inside to the outside; lark calls the method of each alternative that has a name."""

    def string(self, children: list[Any]) -> _Node:
        return self._leaf(_Kind.TEXT, children[0], self._text(children[0]))

    def decimal(self, children: list[Any]) -> _Node:
        digits = children[0].rstrip("lL")
        if len(digits) > 19 or int(digits) > LONG_MAX:
            raise _Refused(children[0].start_pos, f"a whole number must be at most {LONG_MAX}; write 1e20")
        return self._leaf(_Kind.NUMBER, children[0], int(digits))

    def real(self, children: list[Any]) -> _Node:
        value = float(children[0])
        if not 0 < value < math.inf:
            raise _Refused(children[0].start_pos, "a number with a point or an exponent must be in [4.9e-324, 1.8e308]")
        return self._leaf(_Kind.NUMBER, children[0], value)

    def truth(self, children: list[Any]) -> _Node:
        value = {"TRUE": True, "FALSE": False, "NULL": None}[children[0].type]
        return self._leaf(_Kind.TRUTH, children[0], value)

    def property(self, children: list[Any]) -> _Node:
        return self._leaf(_Kind.PROPERTY, children[0], str(children[0]))

    def plus(self, children: list[Any]) -> _Node:
        node: _Node = children[1]
        return node

    def minus(self, children: list[Any]) -> _Node:
        return self._node(_Kind.NEGATED, _Form.UNARY, "negate", [children[1]], children[0].start_pos)

    def negation(self, children: list[Any]) -> _Node:
        part = self._condition(children[1])
        return self._node(_Kind.CONDITION, _Form.UNARY, "not", [part], children[0].start_pos)

    def is_null(self, children: list[Any]) -> _Node:
        return self._node(_Kind.CONDITION, _Form.UNARY, "is null", [children[0]])

    def is_not_null(self, children: list[Any]) -> _Node:
        return self._node(_Kind.CONDITION, _Form.UNARY, "is not null", [children[0]])

    def either(self, children: list[Any]) -> _Node:
        return self._chain("or", children)

    def both(self, children: list[Any]) -> _Node:
        return self._chain("and", children)

    def compare(self, children: list[Any]) -> _Node:
        left, op, right = children
        for side in (left, right):
            if side.kind is _Kind.TRUTH and side.value is None:
                raise _Refused(side.at, "nothing equals NULL; write IS NULL or IS NOT NULL")
        if left.kind is _Kind.TRUTH and right.kind in (_Kind.TEXT, _Kind.NUMBER):
            raise _Refused(right.at, f"{right.kind.value} cannot be compared with TRUE or FALSE")
        return self._node(_Kind.CONDITION, _Form.BINARY, str(op), [left, right])

    def order(self, children: list[Any]) -> _Node:
        left, op, right = children
        for side in (left, right):
            self._ordered(side, str(op))
        return self._node(_Kind.CONDITION, _Form.BINARY, str(op), [left, right])

    def between(self, children: list[Any]) -> _Node:
        value, _, low, _, high = children
        node = self._between([value, low, high], False)
        if low.kind is _Kind.NUMBER and high.kind is _Kind.NUMBER and low.value > high.value:
            raise _Refused(low.at, "BETWEEN needs the smaller number first")
        return node

    def not_between(self, children: list[Any]) -> _Node:
        value, _, _, low, _, high = children
        return self._between([value, low, high], True)

    def part(self, children: list[Any]) -> _Node:
        value, op, part = children
        return self._node(_Kind.CONDITION, _Form.PART, (op.type.lower(), self._text(part)), [value])

    def not_part(self, children: list[Any]) -> _Node:
        value, _, op, part = children
        return self._node(_Kind.CONDITION, _Form.PART, (f"not {op.type.lower()}", self._text(part)), [value])

    def strings(self, children: list[Any]) -> list[str]:
        return [self._text(token) for token in children]

    def member(self, children: list[Any]) -> _Node:
        value, _, texts = children
        return self._member(value, "in", texts)

    def not_member(self, children: list[Any]) -> _Node:
        value, _, _, texts = children
        return self._member(value, "not in", texts)

    def _leaf(self, kind: _Kind, token: Any, value: Any) -> _Node:
        return _Node(kind, _Form.LEAF, value, token.start_pos, [])

    def _node(self, kind: _Kind, form: _Form, value: Any, parts: list[_Node], at: int | None = None) -> _Node:
        at = parts[0].at if at is None else at
        return self._shallow(_Node(kind, form, value, at, parts, 1 + max(part.depth for part in parts)))

    def _shallow(self, node: _Node) -> _Node:
        if node.depth > NESTING_MAX:
            raise _Refused(node.at, f"more than {NESTING_MAX} operators inside one another")
        return node

    def _chain(self, op: str, children: list[Any]) -> _Node:
        left, _, right = children
        self._condition(right)
        if left.form is not _Form.CHAIN or left.value != op:
            return self._node(_Kind.CONDITION, _Form.CHAIN, op, [self._condition(left), right])
        left.parts.append(right)  # in place: no other node has it
        left.depth = max(left.depth, 1 + right.depth)
        return self._shallow(left)

    def _between(self, parts: list[_Node], negated: bool) -> _Node:
        for part in parts:
            self._ordered(part, "BETWEEN")
        return self._node(_Kind.CONDITION, _Form.BETWEEN, negated, parts)

    def _member(self, value: _Node, op: str, texts: list[str]) -> _Node:
        if value.kind is not _Kind.PROPERTY:
            raise _Refused(value.at, f"{op.upper()} needs a property on its left, not {value.kind.value}")
        return self._node(_Kind.CONDITION, _Form.MEMBER, (op, texts), [value])

    def _ordered(self, node: _Node, op: str) -> None:
        if node.kind not in _ORDERED:
            raise _Refused(node.at, f"{op} compares numbers and properties, not {node.kind.value}")

    def _condition(self, node: _Node) -> _Node:
        if node.kind not in _CONDITIONS:
            raise _Refused(node.at, f"expected a condition, not {node.kind.value}")
        return node

    def _text(self, token: Any) -> str:
        text = str(token[1:-1]).replace("''", "'")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _Refused(token.start_pos, f"the text is not Unicode: {error.reason}") from None
        return text


@functools.cache
def _lark() -> Any:
    """Return the module and the parser; both take some 70 ms."""
    try:
        import lark
    except ImportError:
        raise RocketcError("SQL filters need the package lark: pip install 'rocketc[sql]'") from None
    builder: Any = _Builder()
    return lark, lark.Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=builder)


class _Limits:
    """What the parser may read of a text: less than what costs much time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parentheses = 0  # open ones
        self._dashes = 0  # pairs that are not a comment; for each, the lexer has looked for the end of the line
        self._signs = 0  # of +, - and NOT in a row

    def check(self, token: Any) -> None:
        """Raise _Refused for a token that exceeds a limit."""
        at, kind = token.start_pos, token.type
        self._parentheses += {"LPAR": 1, "RPAR": -1}.get(kind, 0)
        self._dashes += kind == "MINUS" and self._text.startswith("--", at)
        self._signs = self._signs + 1 if kind in ("MINUS", "PLUS", "NOT") else 0
        if self._parentheses > NESTING_MAX:
            raise _Refused(at, f"more than {NESTING_MAX} levels of parentheses")
        if self._dashes > NESTING_MAX:
            raise _Refused(at, f"more than {NESTING_MAX} times -- without the end of a line")
        if self._signs > NESTING_MAX:
            raise _Refused(at, f"more than {NESTING_MAX} operators inside one another")


def _parse(text: str) -> tuple[_Node, int]:
    """Return the expression, and where what follows it begins."""
    lark, grammar = _lark()
    parser = grammar.parse_interactive(text)
    limits = _Limits(text)
    at = len(text)
    try:
        try:
            for token in parser.iter_parse():
                limits.check(token)
        except lark.UnexpectedToken as error:
            at = error.pos_in_stream  # the end of the expression, or an error
        state = parser.parser_state
        states, values = list(state.state_stack), list(state.value_stack)
        try:
            node = parser.feed_eof()
        except lark.UnexpectedToken:
            state.state_stack[:], state.value_stack[:] = states, values
            expected = _listed(parser.accepts())  # it tries each token, and takes 20 times as long
            raise _Refused(at, f"expected {expected}; found {_found(text, at)}") from None
        if node.kind not in _CONDITIONS:
            raise _Refused(node.at, f"expected a condition, not {node.kind.value}")
    except lark.UnexpectedCharacters as error:
        at = error.pos_in_stream
        raise _error(text, at, f"{_found(text, at)} is not part of the language") from None
    except _Refused as error:
        raise _error(text, *error.args) from None
    return node, at


_ON_STACK = -1  # an operand that an earlier step has pushed


class _Program:
    """The steps of an expression, for the stack machine of SqlFilter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps: list[tuple[str, int, int]] = []
        self._constants: list[str | float | bool | None] = []
        self._sets: list[list[str]] = []
        self._names: dict[str, int] = {}

    def filter(self, node: _Node, ignored: str) -> SqlFilter:
        self._add(node)
        return SqlFilter(self._text, self._steps, self._constants, self._sets, list(self._names), ignored)

    def _operand(self, node: _Node) -> int:
        """Return the operand for a node. Add the steps that push its value, unless it is a property or a constant."""
        if node.kind is _Kind.PROPERTY:
            return self._name_of(node)
        if node.form is _Form.LEAF:
            return self._constant_of(node.value)
        self._add(node)
        return _ON_STACK

    def _add(self, node: _Node) -> None:
        """Add the steps that push the value of a node."""
        if node.form is _Form.CHAIN:
            self._add_chain(node)
        elif node.form is _Form.BETWEEN:
            self._add_between(node)
        elif node.form is _Form.LEAF:
            self._step("push", self._operand(node))
        elif node.form is _Form.PART and not node.value[1]:  # false, and its left side is not read
            self._step("push", self._constant_of(False))
        elif node.form is _Form.PART:
            op, part = node.value
            self._step(op, self._operand(node.parts[0]), self._constant_of(part))
        elif node.form is _Form.MEMBER:
            op, texts = node.value
            self._sets.append(texts)
            self._step(op, self._operand(node.parts[0]), len(self._sets) - 1)
        else:
            self._step(node.value, *map(self._operand, node.parts))

    def _add_chain(self, node: _Node) -> None:
        """Add the steps for conditions with AND or OR between them: the first one that decides is the last one read."""
        jumps = []
        for i, part in enumerate(node.parts):
            operand = self._operand(part)
            if operand != _ON_STACK:
                self._step("test", operand)  # a property is never true: it is a text
            if i > 0:
                jumps.append(self._step(node.value))
            else:
                jumps.append(self._step("jump if false" if node.value == "and" else "jump if true"))
        self._end_jumps(jumps)

    def _add_between(self, node: _Node) -> None:
        """Add the steps for `low <= value AND value <= high`, or for `value < low OR value > high`."""
        value, low, high = node.parts
        negated = node.value
        first, last, join = ("<", ">", "or") if negated else (">=", "<=", "and")
        operand = self._operand(value)
        is_pushed = operand == _ON_STACK
        if is_pushed:
            self._step("copy")
        self._step(first, operand, self._operand(low))
        jumps = [self._step("jump if true" if negated else "jump if false")]
        if is_pushed:
            self._step("copy second")
        self._step(last, operand, self._operand(high))
        jumps.append(self._step(join))
        self._end_jumps(jumps)
        if is_pushed:
            self._step("drop second")

    def _step(self, op: str, left: int = 0, right: int = 0) -> int:
        self._steps.append((op, left, right))
        return len(self._steps) - 1

    def _end_jumps(self, jumps: Collection[int]) -> None:
        """Let these steps jump to the next one."""
        for at in jumps:
            self._steps[at] = (self._steps[at][0], 0, len(self._steps))

    def _constant_of(self, value: str | float | bool | None) -> int:
        """Return the operand for a new constant."""
        self._constants.append(value)
        return 2 * len(self._constants) - 1

    def _name_of(self, node: _Node) -> int:
        """Return the operand for a property."""
        if node.value not in self._names and len(self._names) == NAMES_MAX:
            raise _error(self._text, node.at, f"more than {NAMES_MAX} properties")
        return 2 * self._names.setdefault(node.value, len(self._names))
