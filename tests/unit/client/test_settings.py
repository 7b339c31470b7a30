"""The settings of clients, and their keywords for type checkers."""

import dataclasses
from typing import get_args, get_type_hints

import pytest

from rocketc.client import AsyncConsumer
from rocketc.client.settings import (
    AsyncConsumerOptions,
    ClientOptions,
    ClientSettings,
    ConsumeFromWhereName,
    ConsumerOptions,
    ConsumerSettings,
    ProducerOptions,
    ProducerSettings,
    PullOptions,
    PullSettings,
    TransactionOptions,
    TransactionSettings,
)
from rocketc.remoting.subscribing import ConsumeFromWhere


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (ClientSettings, ClientOptions),
        (ProducerSettings, ProducerOptions),
        (ConsumerSettings, ConsumerOptions),
        (PullSettings, PullOptions),
        (TransactionSettings, TransactionOptions),
    ],
)
def test_the_keywords_are_the_fields(settings, options):
    fields = {one.name for one in dataclasses.fields(settings)}
    assert {name: kind for name, kind in get_type_hints(settings).items() if name in fields} == get_type_hints(options)


OF_LISTENERS = {
    "consume_thread_max": 4, "consume_message_batch_max_size": 32, "max_reconsume_times": 3,
    "suspend_current_queue_time_millis": 10, "consume_timeout": 1, "await_termination_millis_when_shutdown": 0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), OF_LISTENERS.items())
def test_settings_of_listeners_are_refused_by_an_iterator(name, value):
    text = f"^{name}: an AsyncConsumer does not have this setting, because it does not call listeners$"
    with pytest.raises(TypeError, match=text):
        AsyncConsumer("g", topics=["orders"], **{name: value})


def test_the_keywords_of_an_iterator():
    assert get_type_hints(ConsumerOptions).keys() - get_type_hints(AsyncConsumerOptions).keys() == OF_LISTENERS.keys()
    with pytest.raises(TypeError, match="unknown keyword consume_thread; did you mean consume_thread_max"):
        AsyncConsumer("g", topics=["orders"], consume_thread=5)
    with pytest.raises(ValueError, match="pull_batch_size is 0; allowed are 1 to 1024"):
        AsyncConsumer("g", topics=["orders"], pull_batch_size=0)


def test_the_names_of_the_starting_points():
    assert set(get_args(ConsumeFromWhereName)) == set(ConsumeFromWhere.__members__)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("auto_commit_interval_millis", 999, "auto_commit_interval_millis is 999; allowed are 1000 to"),
        ("poll_timeout_millis", -1, "poll_timeout_millis is -1; allowed are 0 to"),
        ("pull_batch_size", 1025, "pull_batch_size is 1025; allowed are 1 to 1024"),
        ("pull_threshold_for_all", 0, "pull_threshold_for_all is 0; allowed are 1 to 6553500"),
        ("pull_threshold_for_queue", 65536, "pull_threshold_for_queue is 65536; allowed are 1 to 65535"),
        ("pull_threshold_size_for_queue", 1025, "pull_threshold_size_for_queue is 1025; allowed are 1 to 1024"),
        ("consume_max_span", 65536, "consume_max_span is 65536; allowed are 1 to 65535"),
        ("consume_from_where", "EVERYWHERE", "consume_from_where is 'EVERYWHERE'; allowed are"),
        ("consume_timestamp", "noon", "consume_timestamp is 'noon'"),
        ("allocate_message_queue_strategy", "ALL", "'ALL' is not a strategy"),
        ("auto_commit", 1, "auto_commit is 1; allowed are True and False"),
    ],
)
def test_wrong_settings_of_a_pull_consumer(name, value, text):
    with pytest.raises(ValueError, match=text):
        PullSettings(**{name: value})
