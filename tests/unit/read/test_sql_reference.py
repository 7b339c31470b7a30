"""Compiled SQL92 filters against a slow interpreter and against Python's numbers."""

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import sql_reference as reference
from support.sql_corpus import encoded

from rocketc.errors import SqlError
from rocketc.read import _java_numbers as numbers
from rocketc.read.sql import compile_sql


def answer(text, properties):
    try:
        compiled = compile_sql(text)
    except SqlError:
        return "refused"
    assert compiled.ignored == ""
    found = compiled.verdict(encoded(properties))
    assert compiled.matches(encoded(properties)) == (found == "true")
    return found


@given(reference.expressions, reference.properties)
@example(("between", ("name", "a"), ("name", "b"), ("minus", ("number", 1))), {"a": "1", "b": "x"})
@example(("contains", ("text", "x"), ""), {})
def test_answers_are_those_of_the_reference(expression, properties):
    assert answer(reference.shown(expression), properties) == reference.answer(expression, properties)


@given(reference.expressions.filter(lambda one: reference.answer(one, {}) != "refused"), reference.properties)
def test_answers_of_accepted_expressions(expression, properties):
    assert answer(reference.shown(expression), properties) == reference.answer(expression, properties)


pieces = st.sampled_from(
    [*"0123456789", *"+-.eExXpPfFdD _", "0x", "000000000000000000000", "99999999999", "NaN", "Infinity"]
)
number_texts = st.one_of(
    st.lists(pieces, max_size=8).map("".join),
    st.integers().map(str),
    st.floats().map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(float.hex),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.text(st.characters(categories=["Nd"], max_codepoint=0xFFFF), max_size=4),
    st.text(max_size=4),
)


def or_none(convert, text, *more):
    try:
        return convert(text, *more)
    except reference.Failed:
        return None


def bits(value):
    return None if value is None else "NaN" if math.isnan(value) else struct.pack(">d", value)


@given(number_texts)
@example("2147483647")
@example("-2147483648")
@example("-2147483649")
@example("9223372036854775808")
@example("-9223372036854775808")
@example("+")
@example("\u0663")
@example("\U0001d7d9")  # a digit beyond the basic plane: none to Java's parseInt
def test_whole_numbers(text):
    if not text.isascii() and max(text) > "\uffff":
        assert numbers.to_int(text.encode()) is None and numbers.to_long(text.encode()) is None
        return
    assert numbers.to_int(text.encode()) == or_none(reference.java_long, text, (1 << 31) - 1)
    assert numbers.to_long(text.encode()) == or_none(reference.java_long, text)


@given(number_texts)
@example("0." + "0" * 400 + "1" * 900)
@example("1" * 900 + "e-600")
@example("9007199254740993")
@example("9007199254740992.99999999999999999999999999999999999")
@example("0." + "5" * 799 + "0" * 50 + "1")
@example("2.2250738585072012e-308")
@example("0x1.fffffffffffff8p1023")
@example("0x" + "f" * 900 + "p-3000")
@example("0x0.000" + "1" * 900 + "p9999999999999999999999")
@example("1e99999999999999999999")
@example("-0")
@example("1e-22")
@example("123456789012345e22")
@example("\x00 12 \x1f")
def test_doubles(text):
    assert bits(numbers.to_double(text.encode())) == bits(or_none(reference.java_double, text))


@given(st.binary(max_size=12))
def test_numbers_of_any_bytes(data):
    for convert in (numbers.to_int, numbers.to_long, numbers.to_double):
        convert(data)


@pytest.mark.parametrize("count", [799, 800, 801])
@pytest.mark.parametrize("last", ["0", "1"])
def test_digits_beyond_the_limit_decide_a_tie(count, last):
    half = "9007199254740993" + "." + "0" * (count - 17) + last  # between two doubles, or a bit more
    assert numbers.to_double(half.encode()) == float(half)


@given(st.floats(), st.floats())
def test_order_of_doubles(a, b):
    assert numbers.compare(a, b) == (reference.sign(a, b) > 0) - (reference.sign(a, b) < 0)
