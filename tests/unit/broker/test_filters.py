"""Filters of groups: what heartbeats register; expected states were seen on a 5.3.3 broker."""

import logging
from collections import Counter

import pytest

from rocketc.broker import filters as module
from rocketc.broker.filters import AT_ONCE, EACH, ConsumerFilterManager, compiled, filter_error, text_filter
from rocketc.broker.subscriptions import Subscription
from rocketc.errors import RocketcError, SqlError
from rocketc.read import sql
from rocketc.tables.filters import ConsumerFilterData, ConsumerFilters


class Filters(ConsumerFilterManager):
    """Filters with a clock that a test sets; `states` returns (expression, version, born, dead) by topic."""

    def __init__(self, root):
        self.now, self.changes = 1000, 0
        super().__init__(ConsumerFilters(root), lambda: self.now, self.note)

    def note(self):
        self.changes += 1

    def beat(self, expression, version, kind="SQL92", topic="orders", group="audit"):
        self.register(group, [Subscription(topic, expression, sub_version=version, expression_type=kind)])

    @property
    def state(self):
        data = self.find("orders", "audit")
        return data and (data.expression, data.client_version, data.born_time, data.dead_time)


@pytest.fixture
def filters(tmp_path):
    return Filters(tmp_path)


BAD = "a between 10,20"
DEAD = "the group has left"


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([("a > 4", 10)], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), ("a > 4", 11)], ("a > 4", 11, 1000, 0)),
        ([("a > 4", 10), ("a > 5", 11)], ("a > 5", 11, 1001, 0)),
        ([("a > 4", 10), ("a > 5", 10)], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), ("a > 5", 9)], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), (BAD, 9)], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), (BAD, 11)], None),
        ([(BAD, 10)], None),
        ([(BAD, 10), ("a > 4", 9)], ("a > 4", 9, 1001, 0)),
        ([("", 10)], None),
        ([("a > 4", -5)], ("a > 4", -5, 1000, 0)),
        ([("a > 4", 10), DEAD], ("a > 4", 10, 1000, 1001)),
        ([("a > 4", 10), DEAD, DEAD], ("a > 4", 10, 1000, 1001)),
        ([("a > 4", 10), DEAD, ("a > 4", 10)], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), DEAD, ("a > 5", 10)], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), DEAD, ("a > 4", 5)], ("a > 4", 10, 1000, 1001)),
        ([("a > 4", 10), DEAD, ("a > 4", 20)], ("a > 4", 20, 1000, 0)),
        ([("a > 4", 10), DEAD, ("a > 5", 20)], ("a > 5", 20, 1002, 0)),
        ([("a > 4", 10), DEAD, (BAD, 20)], None),
        ([("a > 4", 10), ("*", 20, "TAG")], ("a > 4", 10, 1000, 0)),
        ([("a > 4", 10), DEAD, ("*", 20, "TAG")], ("a > 4", 10, 1000, 1001)),
        ([("A", 20, "TAG")], None),
        ([("a > 4", 10, "OTHER")], None),
        ([("a > 4", 10, "sql92")], None),
        ([("a > 4", 10), ("a > 4", 11, "OTHER")], None),
        ([("a > 4", 10), ("a > 4", 11, "SQL92", "other")], ("a > 4", 10, 1000, 1001)),
        ([("a > 4", 10), ("a > 4", 11, "SQL92", "orders", "shop")], ("a > 4", 10, 1000, 0)),
    ],
)
def test_registrations(filters, steps, state):
    for step in steps:
        before, changes, generation = filters.state, filters.changes, filters.generation
        if step is DEAD:
            filters.unregister("audit")
        else:
            filters.beat(*step)
        assert before == filters.state or (filters.changes, filters.generation > generation) == (changes + 1, True)
        filters.now += 1
    assert filters.state == state


def test_two_subscriptions_to_one_topic(filters):
    wanted = [Subscription("orders", f"a > {n}", sub_version=n, expression_type="SQL92") for n in (5, 7, 6)]
    filters.register("audit", wanted)
    assert filters.state == ("a > 7", 7, 1000, 0)


def test_nothing_changes_without_a_change(filters):
    filters.beat("a > 4", 10)
    for _ in range(3):
        filters.beat("a > 4", 10)
    filters.unregister("shop")
    assert (filters.changes, filters.generation) == (1, 1)


def test_a_dead_filter_is_dropped_a_day_later(filters):
    filters.beat("a > 4", 10)
    filters.beat("a > 4", 10, group="shop")
    filters.unregister("audit")
    filters.now += module.CLEAN_MS
    assert filters.expire() == 0
    filters.now += 1
    assert filters.expire() == 1 and filters.state is None
    assert filters.find("orders", "shop") is not None
    filters.unregister("shop")
    filters.now += 3001
    assert filters.expire(3000) == 1 and len(filters.table) == 0


def test_an_invalid_filter_is_logged_once(filters, caplog):
    caplog.set_level(logging.DEBUG, "rocketc.broker")
    for _ in range(3):
        filters.beat("a >", 10)
    filters.beat("a > >", 11)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "DEBUG", "DEBUG", "WARNING"]
    assert "group audit, topic orders: the filter is not registered: SQL filter, column 4" in caplog.text


def test_refusals_are_forgotten(filters, monkeypatch):
    monkeypatch.setattr(module, "REFUSED_MOST", 10)
    for n in range(25):
        filters.beat("a >", 10, topic=f"t{n}")
    assert len(filters._refused) <= 10


def test_one_heartbeat_compiles_some_filters_only(filters, monkeypatch):
    texts = []
    monkeypatch.setattr(module, "filter_error", lambda kind, text: texts.append(text))
    wanted = [Subscription(f"t{n}", f"a > {n:05}", sub_version=1, expression_type="SQL92") for n in range(10_000)]
    left = filters.register("audit", wanted)
    assert len(texts) == AT_ONCE // (EACH + 9) and left < 0
    assert len(filters.table) == 10_000  # the others wait for their first pull
    assert filters.register("shop", wanted[:1], left) < left and len(texts) == AT_ONCE // (EACH + 9)


def test_a_filter_that_is_too_long(filters):
    filters.beat("a > " + "1" * 40_000, 1)
    assert filters.state is None


def test_a_full_table(filters, monkeypatch, caplog):
    monkeypatch.setattr("rocketc.tables.filters._BYTES_MOST", 1)
    filters.beat("a > 1", 1)
    assert filters.state is None and "the table of filters is full" in caplog.text


def test_without_lark(filters, monkeypatch, caplog):
    def missing(text):
        raise RocketcError("SQL filters need the package lark")

    monkeypatch.setattr(module, "compiled", missing)
    filters.beat("a > 1", 1)
    assert filters.state is None and "need the package lark" in caplog.text
    with pytest.raises(RocketcError, match="lark"):
        text_filter("SQL92", "a > 1")


def test_errors_are_cached(monkeypatch):
    assert isinstance(compiled("b >"), SqlError)
    assert compiled("b >") is compiled("b >")
    assert filter_error("SQL92", "b >") == str(compiled("b >"))
    assert filter_error("SQL92", "b > 1") is None
    assert compiled("b >").__traceback__ is None and compiled("b >").__context__ is None  # they keep the parser


@pytest.mark.parametrize(("kind", "text"), [("SQL92", "a >"), ("OTHER", "a > 1"), ("SQL92", "")])
def test_texts_without_a_filter(filters, kind, text):
    assert text_filter(kind, text) is None
    filters.table.put(ConsumerFilterData("orders", "audit", text, kind))  # as a file may have it
    assert filters.pull_filter("orders", "audit") is None


def test_no_filter(filters):
    assert filters.pull_filter("orders", "audit") is None


def test_the_filters_of_many_groups_are_compiled_once(monkeypatch):
    texts, count = [f"a > {n} AND region = 'eu'" for n in range(3000)], Counter()
    original = sql._compile
    monkeypatch.setattr(sql, "_compile", lambda text: count.update([text]) or original(text))
    for _ in range(3):
        for text in texts:
            assert compiled(text).text == text
    assert set(count.values()) == {1} and len(count) == 3000
