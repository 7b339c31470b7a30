"""`rocketc admin` at RocketMQ's own name server and broker."""

import pytest
from interop import scenarios
from interop.peer import RELEASES, Unavailable
from support.admin_story import Operator, play


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_a_story_at_rocketmqs_broker(release, tmp_path, run):
    try:
        cluster = scenarios.JavaCluster(release, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        play(Operator(run, cluster.name_server), cluster.broker, is_reset_at_once=release == "5.3.3")
    finally:
        cluster.close()
