"""SQL92 filters: RocketMQ's own filter module and rocketc answer random questions alike."""

import random

import pytest
from interop.filters import answers
from interop.peer import RELEASES, Unavailable
from support.sql_corpus import Question, chosen, encoded, question, recorded

from rocketc.errors import SqlError
from rocketc.read.sql import compile_sql

pytestmark = pytest.mark.long


def asked(release: str, questions: list[Question]) -> list[tuple[str, str]]:
    try:
        return answers(release, questions)
    except Unavailable as reason:
        pytest.skip(str(reason))


def ours(text: str, properties: dict[str, str]) -> str:
    try:
        return compile_sql(text).verdict(encoded(properties))
    except SqlError:
        return "refused"


@pytest.mark.parametrize("seed", range(5))
def test_random_questions(seed):
    chance = random.Random(seed)
    questions = [question(chance) for _ in range(20_000)]
    found = asked("5.3.3", questions)
    assert len(found) == len(questions)
    wrong = [(one, theirs, ours(*one)) for one, theirs in zip(questions, found, strict=True) if theirs[0] != ours(*one)]
    assert not wrong, f"seed {seed}"
    assert {answer for answer, _ in found} == {"true", "false", "null", "error", "refused"}


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_answers_are_those_of_the_release(release):
    assert [one[0] for one in asked(release, chosen())] == [one[release] for one in recorded()]


def test_java_ends_at_deep_texts_too():
    """rocketc refuses 100 levels; RocketMQ refuses them at some thousand, when its stack is full."""
    texts = ["(" * count + "a = 1" + ")" * count for count in (100, 100_000)]
    assert [answer for answer, _ in asked("5.3.3", [(text, {"a": "1"}) for text in texts])] == ["true", "refused"]
