"""RocketMQ's own clients against rocketc's broker: each scenario ends as it does at RocketMQ's own broker.

`make test` plays the scenarios of clients 5.3.3 in one Java process. The long tests also play those of clients 4.9.7
and of the Go client. They play all of them against RocketMQ's own cluster too: the recorded outcomes are repeatable.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interop import scenarios
from interop.peer import RELEASES, Unavailable

import rocketc

Outcomes = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def broker_under_test() -> Iterator[str]:
    """The address of a name server that knows one broker of rocketc, started for these tests."""
    with rocketc.Broker(process=True, message_delay_level=scenarios.DELAY_LEVELS) as broker:
        yield broker.name_server


@pytest.fixture(scope="module")
def outcomes(broker_under_test: str, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """outcomes(release): the outcomes of all scenarios at the broker under test, by name; played once."""
    played: dict[str, dict[str, Any]] = {}

    def of(release: str) -> dict[str, Any]:
        if release not in played:
            played[release] = play(release, broker_under_test, tmp_path_factory.mktemp("clients"))
        return played[release]

    return of


def play(release: str, name_server: str, folder: Path) -> dict[str, Any]:
    try:
        clients = scenarios.Clients(release, folder)
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        return {name: outcome for name, _, outcome in clients.run(scenarios.recorded()[release], name_server)}
    finally:
        clients.close()


def marked(names: Iterable[str]) -> list[Any]:
    """The names as parameters; a test that is not expected to pass yet has the mark for that."""
    return [
        pytest.param(name, marks=[pytest.mark.xfail(reason=reason)] if (reason := scenarios.NOT_YET.get(name)) else [])
        for name in names
    ]


@pytest.mark.parametrize("name", marked(scenarios.recorded()["5.3.3"]))
def test_clients_see_what_rocketmqs_broker_shows(outcomes, name):
    compare("5.3.3", name, outcomes("5.3.3"))


@pytest.mark.long
@pytest.mark.parametrize("name", marked(scenarios.recorded()["4.9.7"]))
def test_older_clients_see_what_rocketmqs_broker_shows(outcomes, name):
    compare("4.9.7", name, outcomes("4.9.7"))


def compare(release: str, name: str, found: dict[str, Any]) -> None:
    lines = scenarios.difference(scenarios.recorded()[release][name], found[name])
    assert not lines, f"{name}, clients {release}:\n{lines}"


def go(name_server: str) -> dict[str, Any]:
    try:
        return {"all": scenarios.play_go(name_server)}
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.long
def test_go_clients_see_what_rocketmqs_broker_shows(broker_under_test):
    compare(scenarios.GO, "all", go(broker_under_test))


@pytest.mark.long
@pytest.mark.parametrize("release", [*RELEASES, scenarios.GO])
def test_rocketmqs_broker_gives_the_recorded_outcomes_again(tmp_path, release):
    try:
        cluster = scenarios.JavaCluster("5.3.3", tmp_path / "cluster")
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        of_go = release == scenarios.GO
        found = go(cluster.name_server) if of_go else play(release, cluster.name_server, tmp_path / "clients")
    finally:
        cluster.close()
    assert found.keys() == scenarios.recorded()[release].keys()
    for name in found:
        compare(release, name, found)


def test_a_difference_shows_the_lines_around_it():
    assert scenarios.difference({"code": 0, "fields": {"offset": "7"}}, {"fields": {"offset": "7"}, "code": 0}) == ""
    lines = scenarios.difference({"code": 0, "fields": {"offset": "7"}}, {"code": 0, "fields": {"offset": "8"}})
    assert '-  "offset": "7"\n+  "offset": "8"' in lines and ' "code": 0,' in lines
