"""Sums and rates of counters over spans, and the shape of RocketMQ's answers."""

import json
import threading

import pytest
from simulation.tools import recorded, shape

from rocketc.broker import counts
from rocketc.broker.admin.broker_statistics import Chosen, get_counters, put_counters
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


def test_queues_with_statistics_of_their_own():
    chosen = Chosen(most=2)
    chosen.update(["a", "b", "c"])
    assert [name in chosen for name in "abc"] == [True, True, False]
    chosen.update(["c", "b", "a"])  # the order does not matter: a counter must not begin again
    assert [name in chosen for name in "abc"] == [True, True, False]
    chosen.update(["c", "a"])  # b was deleted
    assert [name in chosen for name in "abc"] == [True, False, True]


def test_queues_beyond_the_limit_count_for_their_topic():
    chosen = Chosen(most=1)
    rows = [("orders", n, 0, 5, 500, 5, 500, 0, 0, 0) for n in range(3)]
    chosen.update((row[0], row[1]) for row in rows)
    found = put_counters(rows, chosen, "C")
    assert found["TOPIC_PUT_NUMS", "orders"] == (15, 15)
    assert [key for name, key in found if name == "QUEUE_PUT_NUMS"] == ["orders@0"]
    given = [("orders", "audit", n, 7, 700, 2, 0.01) for n in range(3)]
    chosen = Chosen(most=1)
    chosen.update(row[:3] for row in given)
    found = get_counters(given, chosen, "C")
    assert found["GROUP_GET_NUMS", "orders@audit"] == (21, 6)
    assert [key for name, key in found if name == "QUEUE_GET_NUMS"] == ["orders@0@audit"]


def test_messages_that_come_back_have_a_limit(monkeypatch):
    monkeypatch.setattr(counts, "PAIRS_MOST", 2)
    found = counts.BrokerCounts()
    for topic in ("a", "b", "c", "a"):
        found.send_back(topic, "audit")
    assert found.sent_back == {("a", "audit"): 2, ("b", "audit"): 1}


class Racing(tuple):
    """A key: while it is looked up, `meanwhile` does what another thread does."""

    meanwhile = staticmethod(lambda: None)

    def __hash__(self):
        self.meanwhile()
        return super().__hash__()


def filled(samples=4):
    statistics = Statistics()
    for n in range(samples):
        statistics.sample(10_000 * n, {KEY: Counter(10 * n, n)})
    return statistics


@pytest.mark.parametrize("samples", [2, 4, 20])
def test_a_sample_may_come_while_another_thread_asks(samples):
    """The threads of metrics and of tools failed now and then: a deque changed while they read it."""
    statistics = filled(samples)
    count, expected = samples, statistics.sums(*KEY)

    def sample():
        nonlocal count
        statistics.sample(10_000 * count, {KEY: Counter(10 * count, count)})
        count += 1

    racing = Racing(KEY)
    racing.meanwhile = sample
    assert statistics._spans["statsMinute"].sums(racing) == expected  # of the moment at which it began
    assert count > samples and statistics.sums(*KEY).tps == 1.0


def test_a_counter_may_be_forgotten_while_another_thread_asks():
    statistics = filled()
    racing = Racing(KEY)
    racing.meanwhile = lambda: statistics.sample(40_000, {})
    assert statistics._spans["statsMinute"].sums(racing) == Sums()


def test_threads_that_ask_while_samples_come():
    statistics, errors, is_done = filled(), [], threading.Event()

    def ask():
        while not is_done.is_set():
            try:
                found = statistics.tables(*KEY)
                assert found is None or found["statsMinute"]["tps"] in (0.0, 1.0)
            except Exception as error:
                errors.append(error)
                return

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for n in range(4, 3000):
        statistics.sample(10_000 * n, {KEY: Counter(10 * n, n)})
    is_done.set()
    for thread in asking:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("pause", [10_000, 37_000])
def test_rates_are_those_of_the_time_that_passed(pause):
    statistics = Statistics()
    for n in range(9):
        statistics.sample(pause * n, {KEY: Counter(20 * n, 2 * n)})
    assert statistics.sums(*KEY) == Sums(120, pytest.approx(20_000 / pause), 10.0)
