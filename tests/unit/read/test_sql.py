"""SQL92 filters: what RocketMQ answered, errors and their positions, limits, hostile input."""

import builtins
import pickle
import re
import subprocess
import sys
import threading
import time

import pytest
from support import sql_corpus
from support.sql_corpus import encoded

from rocketc.errors import RocketcError, SqlError
from rocketc.read import sql
from rocketc.read._sql_filter import OPS, SqlFilter
from rocketc.read.sql import compile_sql

VALUE = "expected a property, a number, a text in single quotes, '(', NULL or NOT"


def test_answers_are_rocketmqs():
    wrong = []
    recorded = sql_corpus.recorded()
    for question in recorded:
        try:
            found = compile_sql(question["sql"]).verdict(encoded(question["properties"]))
        except SqlError:
            found = "refused"
        if found != question["5.3.3"]:
            wrong.append((question["sql"], question["properties"], question["5.3.3"], found))
    assert not wrong
    assert {question["5.3.3"] for question in recorded} == {"true", "false", "null", "error", "refused"}


def test_the_recorded_questions_are_the_chosen_ones():
    assert [(one["sql"], one["properties"]) for one in sql_corpus.recorded()] == sql_corpus.chosen()


def test_4_9_7_differs_only_in_words_that_it_does_not_know():
    different = [one["sql"] for one in sql_corpus.recorded() if one["4.9.7"] != one["5.3.3"]]
    assert len(different) > 50
    assert all(any(word in text.upper() for word in ("CONTAINS", "STARTSWITH", "ENDSWITH")) for text in different)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("price > ", 8, f"column 9: {VALUE}; found the end"),
        ("", 0, f"column 1: {VALUE}; found the end"),
        ("a = = 1", 4, f"column 5: {VALUE}; found '= 1'"),
        ("(a = 1", 6, "column 7: expected ')', an operator, AND or OR; found the end"),
        ("a IS 5", 5, "column 6: expected NULL or NOT; found '5'"),
        ("a IN (1)", 6, "column 7: expected a text in single quotes; found '1)'"),
        ("a IN ('1' 2)", 10, "column 11: expected ')' or ','; found '2)'"),
        ("a IN '1'", 5, "column 6: expected '('; found \"'1'\""),
        ("a NOT 5", 6, "column 7: expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH; found '5'"),
        ("a BETWEEN 1 OR 2", 12, "column 13: expected AND; found 'OR 2'"),
        ("a CONTAINS b", 11, "column 12: expected a text in single quotes; found 'b'"),
        ("a = 1 AND\n b ! 2", 13, "line 2, column 4: '! 2' is not part of the language"),
        ("a\r\n\r= 'x", 6, 'line 3, column 3: "\'x" is not part of the language'),
        ("a = 1 AND 5", 10, "column 11: expected a condition, not a number"),
        ("'x'", 0, "column 1: expected a condition, not a text"),
        ("NOT -a", 4, "column 5: expected a condition, not a negated value"),
        ("a > 'x'", 4, "column 5: > compares numbers and properties, not a text"),
        ("(a = 1) <= 5", 1, "column 2: <= compares numbers and properties, not a condition"),
        ("a BETWEEN 'x' AND 2", 10, "column 11: BETWEEN compares numbers and properties, not a text"),
        ("a BETWEEN 2 AND 1", 10, "column 11: BETWEEN needs the smaller number first"),
        ("1 IN ('1')", 0, "column 1: IN needs a property on its left, not a number"),
        ("a = NULL", 4, "column 5: nothing equals NULL; write IS NULL or IS NOT NULL"),
        ("TRUE = 1", 7, "column 8: a number cannot be compared with TRUE or FALSE"),
        (
            "a = 9223372036854775808",
            4,
            "column 5: a whole number must be at most 9223372036854775807; write 1e20",
        ),
        ("a = 0.0", 4, "column 5: a number with a point or an exponent must be in [4.9e-324, 1.8e308]"),
        ("a = '\ud800'", 4, "column 5: the text is not Unicode: surrogates not allowed"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text, position, message):
    with pytest.raises(SqlError) as caught:
        compile_sql(text)
    assert str(caught.value) == f"SQL filter, {message}"
    assert caught.value.position == position
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, RocketcError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.position) == (str(caught.value), position)


def test_text_of_another_type():
    with pytest.raises(TypeError, match="sql: expected str, got bytes"):
        compile_sql(b"a = 1")


@pytest.mark.parametrize(("text", "ignored"), [("a = 1", ""), ("a = 1 \n", ""), ("b LIKE 'a%' ;", "LIKE 'a%' ;")])
def test_what_follows_the_expression_is_ignored_and_kept(text, ignored):
    assert compile_sql(text).ignored == ignored


def test_compiled_filters_are_cached():
    first = compile_sql("cached = 1")
    for i in range(200):
        compile_sql(f"cached = 1 AND other = {i}")
    assert compile_sql("cached = 1") is first


def test_the_cache_is_bounded():
    cache = sql._Results()
    for n in range(400):
        cache.keep(f"a = '{n}" + "x" * 32_000, SqlError("wrong", 0))
    assert 120 < len(cache._found) < 130 and cache.get("a = '0" + "x" * 32_000) is None
    assert cache._room == sql.KEPT - sum(sql.EACH + len(text) for text in cache._found) >= 0


def test_cached_errors_do_not_keep_the_parser_or_frames():
    for _ in range(3):
        with pytest.raises(SqlError, match="column 9") as caught:
            compile_sql("cached >")
    cached = sql.sql_result("cached >")
    assert cached is sql.sql_result("cached >") and cached is not caught.value
    assert cached.args == caught.value.args and cached.position == caught.value.position == 8
    assert cached.__traceback__ is None and cached.__context__ is None


def test_which_texts_have_a_result():
    assert not sql.has_result("not = 'compiled yet'")
    sql.sql_result("not = 'compiled yet'")
    assert sql.has_result("not = 'compiled yet'")
    long = "a" * (sql.TEXT_MAX + 1)
    assert sql.has_result(long) and "32769 characters" in str(sql.sql_result(long)) and long not in sql._results


def test_a_filter_can_be_pickled_and_shown():
    compiled = compile_sql("a = 1")
    assert pickle.loads(pickle.dumps(compiled)).matches(b"a\x011\x02")
    assert repr(compiled) == "SqlFilter('a = 1')" and compiled.text == "a = 1"
    assert compiled == pickle.loads(pickle.dumps(compiled)) and compiled != compile_sql("a = 2") and compiled != "a = 1"
    assert len({compiled, pickle.loads(pickle.dumps(compiled))}) == 1


def test_without_lark_the_error_names_the_extra(monkeypatch):
    original = builtins.__import__

    def missing(name, *arguments):
        if name == "lark":
            raise ImportError(name)
        return original(name, *arguments)

    sql._lark.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "lark", raising=False)
    with pytest.raises(RocketcError, match=r"need the package lark: pip install 'rocketc\[sql\]'"):
        compile_sql("without = 'lark'")
    monkeypatch.undo()
    sql._lark.cache_clear()
    compile_sql("without = 'lark'")


def test_a_pickled_filter_works_without_lark():
    pickled = pickle.dumps(compile_sql("a IN ('x', 'y') OR a BETWEEN 1 AND 3"))
    program = "import pickle, sys; found = pickle.load(sys.stdin.buffer).matches(b'a\\x01y')\n"
    program += "sys.exit('lark' in sys.modules or not found)"
    assert subprocess.run([sys.executable, "-c", program], input=pickled, timeout=60).returncode == 0


def test_filters_are_compiled_on_several_threads():
    results = []

    def compile_many(first):
        results.extend(compile_sql(f"a = {i}").matches(b"a\x017\x02") for i in range(first, first + 20))

    threads = [threading.Thread(target=compile_many, args=[first]) for first in range(0, 80, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(results) == 1 and len(results) == 80


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"a",
        b"\x01",
        b"\x02",
        b"\x01\x02",
        b"a\x01\x02",
        b"\x011\x02",
        b"aa\x011\x02",
        b"A\x011\x02",
        b"a\x02\x011",
    ],
)
def test_properties_without_the_name(properties):
    assert compile_sql("a IS NULL").matches(properties)


@pytest.mark.parametrize(
    "properties",
    [
        b"a\x011",
        b"a\x011\x02",
        b"a\x012\x02a\x011\x02",
        b"\x02\x02a\x011",
        b"b\x02a\x011\x02",
        b"b\x01a\x01\x02a\x011\x02",
    ],
)
def test_properties_with_the_name(properties):
    assert compile_sql("a = '1'").matches(properties)


def test_a_value_may_contain_the_separator_of_names():
    assert compile_sql("a = '1\x012'").matches(b"a\x011\x012\x02")


def test_the_last_value_of_a_name_counts():
    assert compile_sql("a = 'new'").matches(b"a\x01old\x02b\x01x\x02a\x01new\x02")
    assert compile_sql("a = 'old'").matches(b"a\x01old\x02a\x01\x02")  # an empty value is dropped


def test_names_with_the_same_mark_are_different():
    names = [chr(ord("a") + 8 * i % 26) + "x" * i for i in range(40)]
    compiled = compile_sql(" AND ".join(f"{name} = '{i}'" for i, name in enumerate(names)))
    values = {name: str(i) for i, name in enumerate(names)}
    assert compiled.matches(encoded(values))
    for name in names:
        assert not compiled.matches(encoded({**values, name: "x"}))


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\xc3", b"\x00", b"\x00\xff\x00", b"\xed\xa0\x80"])
def test_values_that_are_not_text(data):
    properties = b"a\x01" + data + b"\x02n\x011\x02"
    assert compile_sql("a IS NOT NULL AND n = 1").matches(properties)
    assert compile_sql("a = 1").verdict(properties) == "error"
    assert compile_sql("a > 1.0").verdict(properties) == "error"
    assert compile_sql("a = 'x'").verdict(properties) == "false"
    assert compile_sql("a CONTAINS 'x'").verdict(properties) == "false"


def test_members_are_found_among_many():
    texts = [f"{i * 7919 % 1000}" for i in range(1000)]
    compiled = compile_sql("a IN (" + ", ".join(f"'{text}'" for text in texts) + ")")
    assert all(compiled.matches(encoded({"a": text})) for text in texts)
    assert not any(compiled.matches(encoded({"a": text})) for text in ("1000", "00", "x", "-1", "99999"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1 OR " * 120_000 + "a = 1", "1080005 characters; at most 32768 are allowed"),
        ("(" * 10_000 + "a = 1" + ")" * 10_000, "column 101: more than 100 levels of parentheses"),
        ("NOT " * 8000 + "c", "column 401: more than 100 operators inside one another"),
        ("+" * 30_000 + "1 = 1", "column 101: more than 100 operators inside one another"),
        ("-" * 30_000 + "1 = 1", "column 101: more than 100 times -- without the end of a line"),
        ("a = --1 OR " * 2900 + "TRUE", "column 1105: more than 100 times -- without the end of a line"),
        ("- " * 10_000 + "1 = 1", "more than 100 operators inside one another"),
        ("a" + " = 1" * 1000, "more than 100 operators inside one another"),
        ("a" + " IS NULL" * 1000, "more than 100 operators inside one another"),
        ("a = " + "9" * 30_000, "a whole number must be at most"),
        ("a = 1e" + "9" * 30_000, "must be in"),
        ("a = '" + "x" * 30_000, "is not part of the language"),
        ("/*" * 15_000, "is not part of the language"),
        ("\x00" * 30_000, "is not part of the language"),
        (" OR ".join(f"a{i} = 1" for i in range(257)), "more than 256 properties"),
    ],
)
def test_hostile_texts_are_refused_quickly(text, message):
    started = time.process_time()
    with pytest.raises(SqlError, match=re.escape(message)):
        compile_sql(text)
    assert time.process_time() - started < 5


def test_the_largest_filters():
    many = " OR ".join(f"a{i % 256} = '{i}'" for i in range(2000))
    assert compile_sql(many).matches(encoded({"a3": "259"}))
    assert not compile_sql(many).matches(encoded({"a3": "260"}))
    deep = "(" * sql.NESTING_MAX + "a = 1" + ")" * sql.NESTING_MAX
    assert compile_sql(deep).matches(b"a\x011\x02")
    nots = "NOT " * (sql.NESTING_MAX - 2) + "(a = 1)"
    assert compile_sql(nots).matches(b"a\x011\x02")
    signs = "+" * sql.NESTING_MAX + "1 = 1"
    assert compile_sql(signs).matches(b"")


def test_nested_betweens_have_few_steps():
    text = "a"
    for _ in range(40):
        text = f"-({text} BETWEEN 0 AND 1)" if text != "a" else "-(a BETWEEN 0 AND 1)"
    assert compile_sql(f"{text} IS NULL").matches(b"a\x011\x02")


def test_a_long_property_string():
    properties = b"".join(b"name%d\x01value\x02" % i for i in range(5000)) + b"a\x01" + b"x" * 100_000 + b"y\x02"
    assert compile_sql("a CONTAINS 'xy' AND name4999 = 'value' AND b IS NULL").matches(properties)
    assert not compile_sql("a CONTAINS '" + "x" * 20_000 + "z'").matches(properties)


PROPERTY, CONSTANT, STACK = 0, 1, -1  # operands: the first property, the first constant, the top of the stack


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "the program leaves 0 values"),
        ([("push", CONSTANT, 0), ("push", CONSTANT, 0)], "the program leaves 2 values"),
        ([("push", 3, 0)], "step 0: operand 3"),
        ([("push", 2, 0)], "step 0: operand 2"),
        ([("push", -2, 0)], "step 0: operand -2"),
        ([("push", -3, 0)], "step 0: operand -3"),
        ([("=", PROPERTY, 5)], "step 0: operand 5"),
        ([("=", STACK, PROPERTY)], "step 0: the stack has 0 values"),
        ([("push", CONSTANT, 0), ("=", STACK, STACK)], "step 1: the stack has 1 values"),
        ([("in", PROPERTY, 0)], "step 0: set 0 of 0"),
        ([("in", PROPERTY, -1)], "step 0: set -1 of 0"),
        ([("not", STACK, 0)], "step 0: the stack has 0 values"),
        ([("push", CONSTANT, 0), ("and", 0, 2)], "step 1: the stack has 1 values"),
        ([("push", CONSTANT, 0), ("copy second", 0, 0)], "step 1: the stack has 1 values"),
        ([("push", CONSTANT, 0), ("drop second", 0, 0)], "step 1: the stack has 1 values"),
        ([("copy", 0, 0)], "step 0: the stack has 0 values"),
        ([("push", CONSTANT, 0), ("jump if false", 0, 1)], "step 1: jumps to 1"),
        ([("push", CONSTANT, 0), ("jump if true", 0, 3)], "step 1: jumps to 3"),
        (
            [("push", 1, 0), ("jump if true", 0, 3), ("copy", 0, 0), ("not", STACK, 0), ("or", 0, 5)],
            "step 3: the depth of the stack depends on the path",
        ),
        (
            [("push", 1, 0), ("jump if true", 0, 4), ("copy", 0, 0), ("jump if true", 0, 4), ("drop second", 0, 0)],
            "step 4: the depth of the stack depends on the path",
        ),
        ([("contains", PROPERTY, CONSTANT)], "step 0: the part is not a text"),
        ([("contains", PROPERTY, PROPERTY)], "step 0: the part is not a text"),
        ([("push", CONSTANT, 0), ("contains", PROPERTY, STACK)], "step 1: the part is not a text"),
        ([("push", CONSTANT, 0)] * 513, "step 512: the stack has 512 values"),
    ],
)
def test_a_program_that_would_leave_its_memory_is_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        SqlFilter("", steps, [True], [], ["a"])


def test_wrong_arguments_of_a_program():
    with pytest.raises(KeyError):
        SqlFilter("", [("jump", 0, 0)], [], [], [])
    with pytest.raises(TypeError, match="constant 0: a value of type list"):
        SqlFilter("", [("push", 1, 0)], [[]], [], [])
    with pytest.raises(OverflowError):
        SqlFilter("", [("push", 1, 0)], [1 << 63], [], [])
    with pytest.raises(ValueError, match="257 properties: more than 256"):
        SqlFilter("", [("push", 1, 0)], [True], [], [f"a{i}" for i in range(257)])
    with pytest.raises(ValueError, match="without a name"):
        SqlFilter("", [("push", 1, 0)], [True], [], [""])
    with pytest.raises(TypeError):
        compile_sql("a = 1").matches("a")
    assert len(set(OPS.values())) == len(OPS)


@pytest.mark.parametrize("digit", [b"\xd9\x21", b"\xd9", b"\xe0\x99\xa1", b"\xe0\xa5", b"\xe0\xa5\x27", b"\xff\xa1"])
def test_a_digit_must_be_valid_utf8(digit):
    compiled = compile_sql("a = 1")
    assert compiled.verdict(b"a\x01%b\x02" % "\u0661".encode()) == compiled.verdict(b"a\x011\x02") == "true"
    assert compiled.verdict("a\x01\u0967\x02".encode()) == "true"
    assert compiled.verdict(b"a\x01%b\x02" % digit) == "error"
