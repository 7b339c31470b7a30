"""docs/promises.md names the tests that hold each promise, and the tests are marked with the same promises."""

import re
from pathlib import Path

import pytest
from support.promise_table import PAGE, ROOT, titles

MARK = re.compile(r"mark\.promise\(([\d, ]+)\)")


def marked() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for path in ROOT.glob("tests/**/test_*.py"):
        for numbers in MARK.findall(path.read_text(encoding="utf-8")):
            for number in numbers.split(","):
                found.setdefault(int(number), set()).add(str(path.relative_to(ROOT / "tests")))
    return found


@pytest.mark.parametrize("number", titles())
def test_the_page_names_the_tests_of_a_promise(number):
    chapter = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[number]
    assert chapter.startswith(f"{number}. ")
    named = {*re.findall(r"\]\(\.\./tests/([\w/]+)(?:\.py)?\)", chapter)}
    holders = {name.removesuffix(".py") for name in marked()[number]}
    folders = {name for name in named if (ROOT / "tests" / name).is_dir()}
    assert named - folders <= holders
    assert {name for name in holders if str(Path(name).parent) not in folders} <= named


def test_marked_promises_are_on_the_page():
    assert marked().keys() == titles().keys()
