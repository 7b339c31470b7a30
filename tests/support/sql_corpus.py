"""Questions about SQL92 filters, (expression, properties) each: the ones that matter, and random ones by a seed."""

import json
import random
from pathlib import Path
from typing import Any

Question = tuple[str, dict[str, str]]

RECORDED = Path(__file__).parents[1] / "golden" / "sql92.jsonl"
PROPERTIES = {
    "a": "1",
    "b": "abc",
    "c": "true",
    "d": "1.5",
    "f": "fAlSe",
    "t": "tRuE",
    "neg": "-5",
    "time": "1700000000000",
    "huge": "99999999999999999999",
    "quote": "it's",
    "lines": "x\ny",
    "wide": "é☃😀",
    "like": "x",
    "escape": "x",
}
NUMBERS = (
    *("0", "-0", "+0", "+4", "-5", "007", "++1", "+-1", "1_0", "1L", "", " 7", "7 ", "\t1.5\n", "\u00a01.5", "1 f"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "-9223372036854775809", "0.0", "-0.0", "1.0", "1.", ".5", ".", "1e", "1e5", "e5", "1e+5"),
    *("1.5e5D", "1f", "2d", "2.5F", "NaN", "-NaN", "nan", "NaNd", "Infinity", "-Infinity", "infinity", "Infinityf"),
    *("0x1p3", "0X1.8P-1F", "0x.8p1", "0x8.", "0x8.p0", "0x.p0", "0x1", "-0x1p0d", "0x1.fffffffffffff8p1023"),
    *("1e400", "1e-400", "-1e-400", "4.9e-324", "1.7976931348623157e308", "1.7976931348623159e308"),
    *(
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "0e99999999999999999999",
        "9007199254740993",
        "0.1" + "0" * 99,
    ),
    *("٣", "\uff11", "1\x00", "\x001", "true", "12abc"),
)
OPERANDS = (
    *("a", "b", "c", "d", "nope", "1", "2.5", "1.0", "4000000000", "'1'", "'abc'", "TRUE", "FALSE", "NULL"),
    *("(a = 1)", "(nope = 1)", "(b > 0)", "-1", "-a", "-TRUE", "-'1'", "NOT a", "+a", "(1)", "(b CONTAINS 'b')"),
)
PATTERNS = (
    *("{}", "NOT {}", "- {} IS NULL", "{} IS NULL", "{} IS NOT NULL", "{} CONTAINS '1'", "{} NOT CONTAINS '1'"),
    *("{} STARTSWITH 'a'", "{} NOT STARTSWITH 'a'", "{} ENDSWITH 'c'", "{} NOT ENDSWITH 'c'", "{} CONTAINS ''"),
    *("{} IN ('1', 'abc')", "{} NOT IN ('1')", "{} BETWEEN 0 AND 3", "{} NOT BETWEEN 0 AND 3", "1 BETWEEN {} AND 3"),
    *("1 BETWEEN 0 AND {}", "{} = 1", "{} = 1.5", "{} = 'abc'", "{} = TRUE", "{} = a", "{} = nope", "{} = -1"),
    *("1 = {}", "1.5 = {}", "'abc' = {}", "TRUE = {}", "a = {}", "nope = {}", "NULL = {}", "{} <> a", "nope <> {}"),
    *("{} > 1", "{} > d", "nope > {}", "{} <= 1", "{} AND TRUE", "{} AND nope", "nope AND {}", "{} OR FALSE"),
    *("nope OR {}", "TRUE OR {}", "FALSE AND {}"),
)
TEXTS = """
# one expression, and what follows it
a = 1 rubbish
a = 1 b ;
a = 1 ;
b LIKE 'a%'
c LIKE
a = 1 )
a = 1 , 2
a = 1 1
a - 1 = 0
a = 1 + 1
a = 'x' 'y'
a ISNULL
a = 1 -- rest
a = 1 /* rest
a = 1 'rest
a = 1 "
(a = 1) ) ;
007 = 7
0L = 0
1d = 1
0x1 = 1
1_000 = 1
5a = 5
1.5L = 1.5
1.5.5 = 1
1..5 = 1
a * 1
# ends too early, or another word was due
(
)
()
NOT
a NOT
a NOT 5
a IS
a IS 5
a IS NOT
a IS NOT 5
a BETWEEN
a BETWEEN 5
a BETWEEN 5 OR
a IN
a IN (
a IN ('1'
a IN ('1',
a IN ()
a IN ('2','1',)
a IN (('1'))
a IN (1)
a IN 1
a IN (b)
a IN (NULL)
a NOT IN
a CONTAINS
a CONTAINS 5
a CONTAINS b
a =
a >
a AND
TRUE OR
(a = 1
a = -
a = +
a IS NOTNULL
IN = 1
a = = 1
a == 1
a != 1
a < > 1
a > = 1
a => 1
a ^= 1
b = "abc"
`a` = 1
[a] = 1
@a = 1
a:b = 1
a.b = 1
é = 1
TRUE 'open
TRUE /* open
# words, blanks, comments
a in ('1')
a between 0 and 1
true
nUlL Is null
nOt a = 2
b ContainS 'b'
contains = 1
like = 'x'
escape = 'x'
$a IS NULL
_a IS NULL
a$ IS NULL
a1 IS NULL
A = 1
a=1and b='abc'
a=1.AND b='abc'
a=1L AND TRUE
a = 'x'AND TRUE
NOT(a=2)
TRUE -- x
/**/TRUE
/***/TRUE
/* ** */ TRUE
TRUE/*a*//*b*/AND FALSE
--1 = 1
- - 1 = 1
quote = 'it''s'
quote = 'it's'
'''' = ''''
'' = ''
wide = 'é☃😀'
wide CONTAINS '☃'
wide STARTSWITH 'é'
b CONTAINS 'ABC'
quote ENDSWITH '''s'
# numbers of the expression
2147483647 < 2147483648
9223372036854775807 > 9223372036854775806
9223372036854775808 > 1
1. = 1
.5 = 0.5
-9223372036854775808 < 1
99999999999999999999 > 1
1e2 = 100
1E+2 = 100
1e-2 = 0.01
1e = 1
0.0 = 0
00.5 = 0.5
1e999 > 1
1e-999 > 0
4.9e-324 > 0
2e-324 > 0
3e-324 > 0
1.7976931348623157e308 > 1
1.7976931348623159e308 > 1
9007199254740993 = 9007199254740992.0
1 = 4294967297
- -2147483648 > 0
0 = -0
# the type of a number decides how a property is read
time > 0
time > 2147483647
time > 2147483648
time > 0.5
time BETWEEN 0 AND 9000000000000
d > 1
time BETWEEN 3000000000 AND 9000000000000
huge > 1
huge > 1.0
huge > a
d > 1.0
neg = -5
-neg = 5
# precedence and chains
NOT a = 1
NOT c = TRUE
NOT (a = 1)
NOT NOT c
a = 1 = TRUE
a = 1 = 1
1 = 1 = TRUE
1 < 2 < 3
a < 2 = TRUE
TRUE = a > 0
a <> 2 <> 3
a IS NULL IS NULL
a IS NOT NULL = TRUE
NOT a IS NULL
a IN ('1') = TRUE
a IN ('1') IN ('1')
NOT a IN ('1')
NOT a CONTAINS '1'
NOT (a CONTAINS '1')
a BETWEEN 0 AND 2 AND TRUE
a BETWEEN 0 AND 2 = TRUE
NOT a BETWEEN 0 AND 2
a CONTAINS '1' CONTAINS '1'
a BETWEEN 0 AND 2 BETWEEN 0 AND 1
a = 2 OR a = 1 AND b = 'x'
(a = 1 OR a = 2) AND b = 'abc'
# BETWEEN
a BETWEEN 2 AND 0
a NOT BETWEEN 2 AND 0
a BETWEEN 1 AND 1
a BETWEEN 1 AND 0.5
a BETWEEN (2) AND (1)
a BETWEEN +2 AND 1
a BETWEEN 0 AND -1
a BETWEEN '0' AND '2'
a BETWEEN NULL AND 2
a BETWEEN 5 AND b
a NOT BETWEEN 5 AND b
a BETWEEN b AND 0
d BETWEEN a AND 2.0
nope BETWEEN 0 AND 1
TRUE BETWEEN 0 AND 1
# null, and errors: the first condition that decides ends the evaluation
nope = 1 AND b > 0
nope = 1 OR b > 0
a = 2 AND b > 0
a = 1 OR b > 0
b > 0 OR a = 1
b > 0 AND a = 2
nope = 1 AND a = 2
a = 2 AND nope = 1
nope = 1 OR a = 1
a = 2 OR nope = 1
NOT (nope = 1)
nope = nope
nope <> nope
nope <> a
a <> nope
a <> NULL
(b > 0) IS NULL
(b > 0) CONTAINS ''
1 <> TRUE
TRUE <> 1
"""
ODD_TEXTS = (
    "",
    " ",
    "a\xa0= 1",
    "a\x0b= 1",
    "a\x00= 1",
    "TRUE\x00",
    "a = 1\x1a",
    "a\t=\n1\r\x0c",
    "TRUE -- x\n AND FALSE",
    "--\nTRUE",
    "TRUE --x\rAND FALSE",
    "a = --1\n1",
    "lines = 'x\ny'",
    "b = 'a\x00'",
)


def chosen() -> list[Question]:
    """The questions of tests/golden/sql92.jsonl."""
    texts = [text for text in TEXTS.splitlines() if text and not text.startswith("#")]
    found = [(text, PROPERTIES) for text in [*texts, *ODD_TEXTS]]
    found += [(pattern.format(operand), PROPERTIES) for pattern in PATTERNS for operand in OPERANDS]
    comparisons = ("= 7", "> 7", "< 7", "= 4000000000", "> 4000000000", "= 7.5", "> 7.5", "> a", "< a", "= TRUE")
    found += [(f"x {comparison}", {"x": number, "a": "1"}) for number in NUMBERS for comparison in comparisons]
    chance = random.Random(33)
    return list({json.dumps(one): one for one in [*found, *(question(chance) for _ in range(300))]}.values())


def recorded() -> list[dict[str, Any]]:
    """What RocketMQ answered: sql, properties, and the answers of 5.3.3 and 4.9.7."""
    lines = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return [{"properties": PROPERTIES, "4.9.7": line["5.3.3"], **line} for line in lines]


def encoded(properties: dict[str, str]) -> bytes:
    """The property string of a record."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


_NAMES = ("a", "b", "c", "d", "f", "nope", "big", "neg", "x1", "$y", "_z", "Name", "e3")
_VALUES = (
    *(
        "1",
        "2",
        "-3",
        "0",
        "1.5",
        "abc",
        "true",
        "TRUE",
        "false",
        "x",
        "é☃",
        "12345678901",
        "2147483648",
        "it's",
        "a b",
    ),
    *(
        "9223372036854775807",
        " 7 ",
        "1e3",
        "NaN",
        "Infinity",
        "0x1p3",
        "10",
        "",
        "ABC",
        "-0.0",
        "0.0",
        ".5",
        "007",
        "+4",
    ),
)
_TEXTS = ("'1'", "'2'", "'abc'", "'true'", "'x'", "''", "'b'", "'é'", "'it''s'", "'ABC'", "'c'", "'-3'", "'1.5'")
_NUMBERS = (
    *("0", "1", "2", "3", "10", "1L", "2147483647", "2147483648", "9223372036854775807", "1.5", "0.5", "1.0", "1e3"),
    *("12345678901", ".5", "2.", "7"),
)
_WORDS = ("AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE")
_TOKENS = (
    *(*_NAMES, *_TEXTS, *_NUMBERS, *_WORDS, "(", ")", ",", "=", "<>", ">", ">=", "<", "<=", "+", "-", "!", "'", "--"),
    *("/*", "*/", ";", "a.b", "\n", "."),
)


def question(chance: random.Random) -> Question:
    """A random question: an expression, one with errors, or random tokens."""
    kind = chance.random()
    if kind < 0.15:
        text = chance.choice(" \n").join(chance.choice(_TOKENS) for _ in range(chance.randint(1, 9)))
    else:
        text = _condition(chance, chance.randint(1, 4))
        if kind < 0.4:
            text = _damaged(chance, text)
    return text, {chance.choice(_NAMES): chance.choice(_VALUES) for _ in range(chance.randint(0, 8))}


def _blank(chance: random.Random) -> str:
    return chance.choice((" ", " ", " ", "  ", "\t", "\n", " /* c */ ", " --c\n"))


def _word(chance: random.Random, word: str) -> str:
    return word if chance.random() < 0.7 else "".join(chance.choice((c.lower(), c.upper())) for c in word)


def _value(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if kind < 0.45 or (kind >= 0.86 and depth <= 0):
        return chance.choice(_NAMES)
    if kind < 0.65:
        return chance.choice(_NUMBERS)
    if kind < 0.75:
        return chance.choice(_TEXTS)
    if kind < 0.80:
        return _word(chance, chance.choice(("TRUE", "FALSE", "NULL")))
    if kind < 0.86:
        return chance.choice(("+", "-", "+ ", "- ")) + _value(chance, depth - 1)
    if kind < 0.9:
        return _word(chance, "NOT") + " " + _value(chance, depth - 1)
    return f"({_condition(chance, depth - 1)})"


def _condition(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if depth <= 0 or kind < 0.1:
        return _value(chance, depth)
    if kind < 0.45:
        sides = _condition(chance, depth - 1), _condition(chance, depth - 1)
        return f"{sides[0]}{_blank(chance)}{_word(chance, 'AND' if kind < 0.3 else 'OR')}{_blank(chance)}{sides[1]}"
    left = _value(chance, depth - 1)
    if kind < 0.75:
        op = chance.choice(("=", "<>", ">", ">=", "<", "<="))
        return f"{left}{chance.choice(('', ' '))}{op}{chance.choice(('', ' '))}{_value(chance, depth - 1)}"
    left += _blank(chance)
    negation = chance.choice(("", "NOT "))
    if kind < 0.8:
        return f"{left}{_word(chance, 'IS')} {negation}{_word(chance, 'NULL')}"
    if kind < 0.86:
        op = chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        return f"{left}{negation}{_word(chance, op)} {chance.choice(_TEXTS)}"
    if kind < 0.92:
        low, high = _value(chance, depth - 1), _value(chance, depth - 1)
        return f"{left}{negation}{_word(chance, 'BETWEEN')} {low} {_word(chance, 'AND')} {high}"
    if kind < 0.98:
        texts = ", ".join(chance.choice(_TEXTS) for _ in range(chance.randint(1, 3)))
        return f"{left}{negation}{_word(chance, 'IN')} ({texts})"
    return f"{left}LIKE {chance.choice(_TEXTS)}"


def _damaged(chance: random.Random, text: str) -> str:
    characters = list(text)
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(characters) + 1)
        kind = chance.random()
        if kind < 0.4:
            del characters[at : at + 1]
        elif kind < 0.8:
            characters.insert(at, chance.choice("()'=<>+-,. 0a1NOTé;\n*/\x00"))
        else:
            characters[at:at] = f" {chance.choice(_TOKENS)} "
    return "".join(characters)
