"""One store that RocketMQ and rocketc open alternately."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from interop import ours
from interop.ledger import Ledger, Told, read
from interop.peer import Peer, to_json
from support.queries import Known

# Small files, so that a few hundred messages fill several; both sides need the same sizes.
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 300,
}
CHECKSUMS = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}  # 4.x reads it as one more property
SYNC = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 60000}  # a slow flush on a busy disk is not a failure


class Turns:
    """A store and its ledger. In each turn the side that opens the store first checks everything in the ledger."""

    def __init__(self, root: Path, settings: Mapping[str, object] | None = None) -> None:
        self.root = root
        self.settings = {**SETTINGS, **(settings or {})}
        self.ledger = Ledger()

    def rocketc_puts(self, planned: list[Told], clock: int | None = None) -> None:
        """clock: the store timestamp of all messages, instead of the current time."""
        with ours.open_store(self.root, self.settings) as store:
            self.ledger.check(ours.scan(self.root))
            if clock is not None:
                store._set_clock(clock)
            self.ledger.add(planned, ours.put(store, planned))
        self.ledger.check(ours.scan(self.root))

    def rocketc_is_killed(self, planned: list[Told], count: int) -> None:
        """A process puts messages, and is killed after about `count` of them."""
        messages = self.root.with_suffix(".json")
        messages.write_text(json.dumps([to_json(item) for item in planned]))
        command = [sys.executable, "-m", "interop.ours", str(self.root), json.dumps(self.settings), str(messages)]
        paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1])]  # to import `interop`
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(count)]
            writer.kill()
            lines += writer.stdout.readlines()
        answers = [json.loads(line) for line in lines if line.endswith("\n")]
        assert len(answers) >= count, "the process ended before it was killed"
        self._take_over(planned, answers)

    def rocketmq_puts(self, peer: Peer, planned: list[Told]) -> None:
        peer.open(self.root, self.settings)
        self.ledger.check(read(peer, self.root))
        self.ledger.add(planned, peer.put(self.root, planned))
        self.ledger.check(read(peer, self.root))
        peer.close(self.root)
        self.ledger.check(ours.scan(self.root))

    def rocketmq_is_killed(self, peer: Peer, planned: list[Told], count: int) -> None:
        """The Java process puts messages, and is killed after about `count` of them."""
        peer.open(self.root, self.settings)
        self.ledger.check(read(peer, self.root))
        self._take_over(planned, peer.pour(self.root, planned, count))
        for path in (self.root / "commitlog").iterdir():
            if path.stat().st_size == 0:  # killed while it created the file: 4.9.7 does not open such a store
                path.unlink()

    def both_answer(self, peer: Peer, seed: int = 0) -> None:
        both_answer(peer, self.root, self.settings, seed)

    def _take_over(self, planned: list[Told], answers: list[Told]) -> None:
        """Add the messages that a killed process put and did not acknowledge: they are in the log and have to stay."""
        known = len(answers)
        self.ledger.add(planned[:known], answers)
        self.ledger.adopt(planned[known:], ours.scan(self.root))


def both_answer(peer: Peer, root: Path, settings: Mapping[str, object], seed: int = 0) -> None:
    """RocketMQ and rocketc, writing and read-only, answer queries for every queue and key alike."""
    known = Known(ours.scan(root, unwrap=False), peer.release)
    peer.open(root, settings)
    told = peer.read(root)["queues"]
    bounds = {(topic, queue): (low, high) for topic, queue, low, high in told if high}
    questions = known.questions(lambda *where: bounds.get(where, (0, 0)), seed)
    for (topic, queue), (low, high) in sorted(bounds.items()):
        for offset in range(low - 1, high + 2, 3):
            where = {"topic": topic, "queueId": queue, "offset": offset}
            questions.append({"kind": "getMessage", **where, "maxMsgNums": 3, "tags": None})
    theirs = peer.answers(root, questions)
    peer.close(root)
    for read_only in (True, False):
        with ours.open_store(root, settings, read_only=read_only) as store:
            found = {where: (store.min_offset(*where), store.max_offset(*where)) for where in store.queues()}
            differing = {where: ends for where, ends in found.items() if ends != bounds.get(where, (0, 0))}
            assert not differing and {*bounds} <= {*found}, f"{differing}, where RocketMQ says {bounds}"
            wrong = known.differences(store, questions, theirs)
            assert wrong == [], wrong[:3]
