"""One Java process per release for all tests here. They run in one pytest process, which starts few Java processes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from interop import peer as rocketmq

pytest.register_assert_rewrite("interop.ledger", "interop.our_broker", "interop.scenarios")


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], rocketmq.Peer]]:
    """start(release): a separate Java process, for a test that kills it; skips where RocketMQ is not available."""
    started: list[rocketmq.Peer] = []
    reasons: list[str] = []  # why RocketMQ is not available: kept, because Maven may try for minutes

    def one(release: str) -> rocketmq.Peer:
        if not reasons:
            try:
                started.append(rocketmq.Peer(release, tmp_path_factory.mktemp("java")))
            except rocketmq.Unavailable as reason:
                reasons.append(str(reason))
        if reasons:
            pytest.skip(reasons[0])
        return started[-1]

    yield one
    for peer in started:
        peer.kill()


@pytest.fixture(scope="session")
def peers(start: Callable[[str], rocketmq.Peer]) -> Callable[[str], rocketmq.Peer]:
    """peers(release): the Java process that all tests share."""
    shared: dict[str, rocketmq.Peer] = {}

    def get(release: str) -> rocketmq.Peer:
        if release not in shared:
            shared[release] = start(release)
        return shared[release]

    return get


@pytest.fixture(params=rocketmq.RELEASES)
def peer(request: pytest.FixtureRequest, peers: Callable[[str], rocketmq.Peer]) -> rocketmq.Peer:
    return peers(request.param)


@pytest.fixture
def begin() -> Iterator[Callable[..., Any]]:
    """begin(kind, *arguments, **settings): a process that ends with the test; skips where RocketMQ is not available."""
    started: list[Any] = []

    def one(kind: Callable[..., Any], *arguments: object, **settings: object) -> Any:
        try:
            started.append(kind(*arguments, **settings))
        except rocketmq.Unavailable as reason:
            pytest.skip(str(reason))
        return started[-1]

    yield one
    for process in reversed(started):
        process.close()
