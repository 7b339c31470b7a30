"""Long runs: RocketMQ of either release and rocketc take turns at random, and are closed or killed."""

import random

import pytest
from interop.ledger import plan
from interop.peer import RELEASES
from interop.turns import CHECKSUMS, SYNC, Turns

pytestmark = pytest.mark.promise(1, 9)


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, CHECKSUMS, SYNC], ids=["plain", "checksums", "sync"])
@pytest.mark.parametrize("seed", range(4))
def test_random_turns(peers, start, tmp_path, seed, settings):
    chance, turns = random.Random(seed), Turns(tmp_path / "store", settings)
    releases = [release for release in RELEASES if settings != CHECKSUMS or release >= "5"]  # 4.x writes no checksums
    for n in range(25):
        planned = plan(1000 * seed + n, chance.choice([0, 5, 200, 600]))
        count = len(planned) // 2
        release = chance.choice(releases)
        match chance.choice(["put", "puts", "killed", "kills"]):
            case "put":
                turns.rocketc_puts(planned)
            case "puts":
                turns.rocketmq_puts(peers(release), planned)
            case "killed":
                turns.rocketc_is_killed(planned, count)
            case "kills":
                turns.rocketmq_is_killed(start(release), planned, count)
