"""The pytest plugin of rocketc. It is not in the package, so that loading it does not import rocketc.

pytest finds it by the entry point `pytest11`. docs/howto/testing.md shows how to use it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketc import Broker

_LONGEST = 100  # characters of a topic's name; RocketMQ allows 127


@pytest.fixture(scope="session")
def rocketmq_broker() -> Iterator[Broker]:
    """A broker and a name server in a process of their own, with a temporary store.

    `rocketmq_broker.name_server` is the address for clients. Each process of pytest-xdist has its own broker.
    """
    from rocketc.broker.embedded import Broker

    with Broker(process=True) as broker:
        yield broker


@pytest.fixture
def rocketmq_topic(rocketmq_broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with 4 queues on rocketmq_broker. Clients find it at once."""
    name = re.sub(r"[^a-zA-Z0-9]+", "_", request.node.name).strip("_")
    topic = f"{name[:_LONGEST]}-{uuid.uuid4().hex[:12]}"
    rocketmq_broker.topics.create(topic)
    return topic
