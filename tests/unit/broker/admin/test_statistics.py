"""Sums and rates of counters over spans, and the shape of RocketMQ's answers."""

import json

import pytest
from simulation.tools import recorded, shape

from rocketc.broker.admin.statistics import Counter, Statistics, Sums

KEY = ("TOPIC_PUT_NUMS", "orders")


def test_the_answer_has_rocketmqs_shape():
    statistics = Statistics()
    statistics.sample(0, {KEY: Counter(1, 1)})
    assert statistics.tables(*KEY) == {
        span: {"avgpt": 0.0, "sum": 0, "tps": 0.0} for span in ("statsDay", "statsHour", "statsMinute")
    }
    assert shape(statistics.tables(*KEY)) == shape(json.loads(recorded(315)["answerBody"]))
    assert statistics.tables("TOPIC_PUT_NUMS", "other") is None and statistics.sums("TOPIC_PUT_NUMS", "o") == Sums()


def test_each_span_forgets_what_is_older():
    statistics, total = Statistics(), 0
    for n in range(25 * 360 + 1):  # 25 hours, of which the first is forgotten
        total += 7 if n < 400 else 1
        statistics.sample(10_000 * n, {KEY: Counter(total, total)})
    found = statistics.tables(*KEY)
    assert [found[span]["sum"] for span in ("statsMinute", "statsHour", "statsDay")] == [6, 360, 39 * 7 + 8601]
    assert [found[span]["tps"] for span in ("statsMinute", "statsHour")] == [0.1, 0.1]
    assert {found[span]["avgpt"] for span in found} == {1.0}


def test_an_idle_counter_decays_to_zero():
    statistics = Statistics()
    for n in range(20):
        statistics.sample(10_000 * n, {KEY: Counter(min(n, 5) * 10, min(n, 5) * 2)})
        if n == 5:
            assert statistics.sums(*KEY) == Sums(50, 1.0, 5.0)
    assert statistics.sums(*KEY) == Sums() and statistics.tables(*KEY)["statsMinute"]["sum"] == 0


def test_a_counter_that_begins_again_counts_from_zero():
    statistics = Statistics()
    for n, total in enumerate((0, 100, 30)):  # the topic was deleted, and created again
        statistics.sample(10_000 * n, {KEY: Counter(total, total)})
    assert statistics.sums(*KEY).total == 130


def test_a_counter_that_is_gone_is_forgotten():
    statistics = Statistics()
    for n in range(3):
        statistics.sample(10_000 * n, {KEY: Counter(n, n)})
    statistics.sample(30_000, {})
    assert statistics.tables(*KEY) is None and statistics.sums(*KEY) == Sums()


@pytest.mark.parametrize("pause", [10_000, 37_000])
def test_rates_are_those_of_the_time_that_passed(pause):
    statistics = Statistics()
    for n in range(9):
        statistics.sample(pause * n, {KEY: Counter(20 * n, 2 * n)})
    assert statistics.sums(*KEY) == Sums(120, pytest.approx(20_000 / pause), 10.0)
