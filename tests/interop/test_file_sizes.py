"""RocketMQ opens a small store with the lines that `rocketc info` prints, and rocketc keeps the sizes of a broker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from interop import ours
from interop.ledger import plan
from interop.turns import Turns

import rocketc
from rocketc.config import ROCKETMQ_SIZES, StoreConfig

pytestmark = pytest.mark.promise(1, 9)


def printed(root: Path) -> dict[str, object]:
    """The lines of broker.conf that `rocketc info` prints."""
    command = [sys.executable, "-m", "rocketc", "info", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(re.findall(r"(\w+)=(\w+)\s*$", done.stdout, re.MULTILINE))


def test_rocketmq_opens_a_small_store(peer, tmp_path):
    """Both sides put alternately. The log file that rocketc closed has a hole, and RocketMQ writes there."""
    turns = Turns(tmp_path / "store")
    planned = plan(0, 150, v2=peer.knows_v2)
    with rocketc.open(turns.root) as store:
        turns.ledger.add(planned, ours.put(store, planned))
    turns.settings = printed(turns.root)
    assert turns.settings == {
        "mappedFileSizeCommitLog": "67108864",
        "mappedFileSizeConsumeQueue": "400000",
        "maxHashSlotNum": "100000",
        "maxIndexNum": "400000",
    }
    turns.rocketmq_puts(peer, plan(1, 150, v2=peer.knows_v2))
    planned = plan(2, 150, v2=peer.knows_v2)
    with rocketc.open(turns.root) as store:  # without settings: the store keeps its sizes
        turns.ledger.check(ours.scan(turns.root))
        turns.ledger.add(planned, ours.put(store, planned))
    turns.both_answer(peer)
    assert printed(turns.root) == turns.settings


def test_rocketc_keeps_the_sizes_of_a_broker(peer, tmp_path):
    """A store of RocketMQ without settings of its own is opened by both sides without settings."""
    turns = Turns(tmp_path / "store")
    turns.settings = {}
    turns.rocketmq_puts(peer, plan(0, 100, v2=peer.knows_v2))
    planned = plan(1, 100, v2=peer.knows_v2)
    with rocketc.open(turns.root) as store:
        assert store.config.replace(**{name: getattr(StoreConfig(), name) for name in ROCKETMQ_SIZES}) == StoreConfig()
        assert store.config.mapped_file_size_commit_log == 1 << 30
        turns.ledger.add(planned, ours.put(store, planned))
    turns.rocketmq_puts(peer, plan(2, 100, v2=peer.knows_v2))
    turns.both_answer(peer)
