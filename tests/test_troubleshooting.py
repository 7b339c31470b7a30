"""docs/troubleshooting.md: every exception, reason and status is on the page, and each message it quotes exists."""

import errno
import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.sources import PYTHON, PYX

import rocketc
from rocketc import _status, errors
from rocketc.jobs.unit_files import FAULTS
from rocketc.report import summaries
from rocketc.report.text import REASONS
from rocketc.status import GetStatus, PutStatus

PAGE = (Path(__file__).parents[1] / "docs/troubleshooting.md").read_text(encoding="utf-8")
ELSEWHERE = {"DataLossError"}  # exceptions that are not in rocketc/errors.py

VALUE = "\0"  # a value in a message of the sources
_TOKEN = re.compile(
    r"#[^\n]*|(?<!\w)(?P<prefix>[a-zA-Z]{0,2})"
    r"(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?P<double>(?:\\.|[^\"\\\n])*)\"|'(?P<single>(?:\\.|[^'\\\n])*)')",
    re.S,
)
_FIELD = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")
_RAISERS = ["closed", "illegal_message", "disk_full"]  # functions that make an exception of a text
_LOGGERS = [r"_log\.warning", r"_log\.error", r"self\._warn"]


# ------------------------------------------------------------------------------------------ what the sources say


@dataclass(frozen=True)
class Source:
    """The messages in a file of the sources. Comments and docstrings are not messages.

    code   the text of the file; strings and comments are blanked out, and keep their length
    texts  (position, text) of each string; adjacent strings are one text; a value is VALUE
    """

    code: str
    texts: list[tuple[int, str]]


def literal(found: re.Match[str]) -> str:
    """The text of a string of the sources: values in f-strings and in formats of `logging` become VALUE."""
    text = found["double"] if found["double"] is not None else found["single"]
    text = re.sub(r"\\(.)", r"\1", text)
    if "f" in found["prefix"].lower():
        text = _FIELD.sub(VALUE, text.replace("{{", "").replace("}}", ""))
    return re.sub(r"%[sd]", VALUE, text)


def source_of(text: str) -> Source:
    """
    >>> source_of('raise StoreIOError(f"it has {n} "  # why' + chr(10) + '"bytes")').texts
    [(19, 'it has \\x00 bytes')]
    """
    code, texts, end = [], [], 0
    joined = False  # only white space and comments came after the last string
    for found in _TOKEN.finditer(text):
        between = text[end : found.start()]
        code += [between, re.sub(r"[^\n]", " ", found[0])]
        joined = joined and not between.strip()
        if found["double"] is not None or found["single"] is not None:
            if joined:
                texts[-1] = texts[-1][0], texts[-1][1] + literal(found)
            else:
                texts.append((found.start(), literal(found)))
            joined = True
        elif not found[0].startswith("#"):
            joined = False
        end = found.end()
    return Source("".join([*code, text[end:]]), texts)


SOURCES = {path: source_of(path.read_text(encoding="utf-8")) for path in (*PYTHON, *PYX)}
MESSAGES = {text for source in SOURCES.values() for _, text in source.texts}
MESSAGES |= {os.strerror(number) for number in errno.errorcode}  # the system's own words


def arguments(source: Source, calls: str) -> list[str]:
    """The texts in the calls of functions and classes whose names match a pattern."""
    found = []
    for call in re.finditer(rf"\b{calls}\(", source.code):
        end, depth = call.end(), 1
        while depth and end < len(source.code):
            depth += {"(": 1, ")": -1}.get(source.code[end], 0)
            end += 1
        found += [text for at, text in source.texts if call.end() <= at < end]
    return found


@functools.cache
def exceptions() -> set[str]:
    """The names of all exceptions and warnings that the package exports."""
    exported = {name: getattr(rocketc, name) for name in rocketc.__all__} | vars(errors)
    found = {name for name, one in exported.items() if isinstance(one, type) and issubclass(one, BaseException)}
    derived = re.compile(rf"^class (\w+)\((?:{'|'.join(found)})[,)]", re.M)
    return found | {name for source in SOURCES.values() for name in derived.findall(source.code)}


@functools.cache
def reported() -> set[str]:
    """The messages of the package's own exceptions and its warnings in the log, except those of command line and Spark.

    Only what the calls contain; a message that a variable brings is not found.
    """
    found: set[str] = set()
    calls = "(?:" + "|".join([*sorted(exceptions()), *_RAISERS, *_LOGGERS]) + ")"
    for path, source in SOURCES.items():
        if not {"cli", "spark"} & set(path.parts):
            found |= set(arguments(source, calls))
    return {text for text in found if len([word for word in text.split() if re.search("[a-z]{2}", word)]) >= 3}


# ------------------------------------------------------------------------------------------ what the page says


def tables(page: str, first_cell: str) -> list[list[str]]:
    """The rows of all tables of a page whose first heading is `first_cell`."""
    found = re.findall(rf"^\| {first_cell} \|.*\n\|[-|: ]+\|\n((?:\|.*\n)*)", page, re.M)
    return [[cell.strip() for cell in row.strip("|").split("|")] for table in found for row in table.splitlines()]


def names(page: str, first_cell: str) -> list[str]:
    """The names in the first cells of these tables."""
    return [name for row in tables(page, first_cell) for name in quotes(row[0])]


def quotes(cell: str) -> list[str]:
    """The texts between backticks.

    >>> quotes("`one ... two`, or `a`")
    ['one ... two', 'a']
    """
    return re.findall(r"`([^`]+)`", cell)


def is_in(quote: str, message: str) -> bool:
    """Whether a quote has the words of a message. `...` is a text with at least one value.

    >>> is_in("it has ... bytes", "file: it has \\0 bytes"), is_in("it has ... bytes", "it has 5 bytes")
    (True, False)
    """
    parts, pattern = parts_of(quote)
    return all(part in message for part in parts) and pattern.search(message) is not None


@functools.cache
def parts_of(quote: str) -> tuple[list[str], re.Pattern[str]]:
    """The texts between the values of a quote, and a pattern with all of them."""
    parts = quote.strip(". ").split("...")
    return parts, re.compile(f".*{VALUE}.*".join(map(re.escape, parts)), re.S)


def unknown(page: str) -> list[str]:
    """The quoted messages that no source has."""
    return [quote for quote in names(page, "message") if not any(is_in(quote, text) for text in MESSAGES)]


def unexplained(page: str) -> list[str]:
    """The messages of exceptions and warnings that the page does not quote."""
    known = names(page, "message")
    return sorted(text for text in reported() if not any(is_in(quote, text) for quote in known))


def sections(page: str) -> set[str]:
    """The names in the headings."""
    return {name for heading in re.findall(r"^#+ (.*)", page, re.M) for name in quotes(heading)}


# ------------------------------------------------------------------------------------------ the page


def test_every_exception_has_a_section():
    assert exceptions() >= ELSEWHERE | {"StoreIOError", "ConfigTableError", "DamageWarning"}
    assert sections(PAGE) == exceptions()


def test_every_reason_of_damage_is_in_a_table():
    assert set(REASONS) >= set(_status._REASONS.values())
    assert names(PAGE, "reason") == list(REASONS)


def test_every_fault_of_a_file_of_units_is_in_a_table():
    assert names(PAGE, "fault") == list(FAULTS)


def test_every_finding_of_verify_is_in_a_table():
    assert set(names(PAGE, "finding")) == {*summaries._FINDINGS, "no_queue", "key_lacks"}


@pytest.mark.parametrize(("heading", "statuses"), [("put status", PutStatus), ("get status", GetStatus)])
def test_every_status_is_in_a_table(heading, statuses):
    assert names(PAGE, heading) == list(statuses.__members__)


def test_quoted_messages_exist():
    assert len(names(PAGE, "message")) > 100
    assert unknown(PAGE) == []


def test_every_message_of_an_exception_or_warning_is_quoted():
    assert len(reported()) > 85
    assert unexplained(PAGE) == []


def test_rows_have_a_cause_and_a_remedy():
    rows = tables(PAGE, "message")
    assert [row for row in rows if len(row) != 3 or not all(row)] == []


def test_a_message_is_quoted_once():
    found = names(PAGE, "message")
    assert [quote for quote in sorted(set(found)) if found.count(quote) > 1] == []


# ------------------------------------------------------------------------------------------ the checks themselves


def test_a_changed_quote_is_found():
    assert unknown(PAGE.replace("is open for writing already", "is open for reading already")) == [
        "is open for reading already"
    ]


def test_a_missing_row_is_found():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `is open for writing already`")]
    assert len(rows) == 1
    assert any("open for writing already" in text for text in unexplained(PAGE.replace(rows[0] + "\n", "")))


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a = 'one' 'two'", ["onetwo"]),
        ('f"a {b!r} c"\n  "d"', [f"a {VALUE} cd"]),
        ('f"{a[{1}]}{{}}"', [VALUE]),
        ('"a {b}"', ["a {b}"]),
        ('_log.info("%s: %d")', [f"{VALUE}: {VALUE}"]),
        ('"""a docstring"""\n"text"', ["text"]),
        ('# "no"\n"yes"', ["yes"]),
        ('"a" # why\n"b"', ["ab"]),
        ('"a", "b"', ["a", "b"]),
        (r'"say \"so\""', ['say "so"']),
        ('don = "it\'s"', ["it's"]),
    ],
)
def test_texts_of_a_source(text, texts):
    assert [found for _, found in source_of(text).texts] == texts


@pytest.mark.parametrize(
    ("quote", "message", "same"),
    [
        ("it has", "it has it", True),
        ("it had", "it has it", False),
        ("... bytes at ...", f"{VALUE} bytes at {VALUE}", True),
        ("at ... of ...", f"at {VALUE} in {VALUE}", False),
        ("at ... of", "at some place of", False),
        ("a.c", "abc", False),
    ],
)
def test_is_in(quote, message, same):
    assert is_in(quote, message) is same
