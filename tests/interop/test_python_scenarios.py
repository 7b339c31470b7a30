"""rocketc.client plays scenarios of Java's client at RocketMQ's brokers and ours: the outcomes are those of Java."""

import secrets

import pytest
from interop import scenarios
from interop.our_broker import OurBroker
from interop.peer import RELEASES, Unavailable
from interop.python_scenarios import SCENARIOS, Stage

pytestmark = pytest.mark.long

# A broker 4.9.7 answers 0 for a new group, also if the topic is empty. RocketMQ's 5.3.3 and ours do not know an offset.
IN_4 = {name: {"before": [0]} for name in ["push_last_empty", "push_timestamp_empty"]}


@pytest.fixture(scope="module", params=["ours", *RELEASES])
def cluster(request, tmp_path_factory):
    """The release of a broker, and the addresses of its name server and of itself."""
    folder = tmp_path_factory.mktemp("python-scenarios")
    if request.param == "ours":
        one = OurBroker(folder / "store", "--port", 0, message_delay_level=scenarios.DELAY_LEVELS)
    else:
        try:
            one = scenarios.JavaCluster(request.param, folder)
        except Unavailable as reason:
            pytest.skip(str(reason))
    yield request.param, one.name_server, one.address if request.param == "ours" else one.broker
    one.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_outcomes_are_those_of_java(cluster, name):
    release, *addresses = cluster
    stage = Stage(*addresses, f"p{secrets.token_hex(4)}")
    try:
        found = SCENARIOS[name](stage)
    finally:
        stage.close()
    expected = scenarios.recorded()["5.3.3"][name]
    if release == "4.9.7" and name in IN_4:
        expected = {**expected, **IN_4[name]}
    lines = scenarios.difference(expected, found)
    assert not lines, f"{name}:\n{lines}"
