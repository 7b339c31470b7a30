"""A broker of this project with short delay levels, and a producer, for the tests of a module."""

import pytest

import rocketc
from rocketc.client import Producer


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker(message_delay_level="1s 1s 1s 1s 1s 1s") as one:
        yield one


@pytest.fixture(scope="module")
def producer(broker):
    with Producer("shop", broker.name_server) as one:
        yield one
