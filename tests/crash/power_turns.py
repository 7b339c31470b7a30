"""Power cuts under writers that take turns: `python -m crash.power_turns FOLDER SEED`.

Most writers are killed. The next one then continues with what is in the page cache, not on the disk, and the power is
cut under any of them. The clock jumps when a writer opens or closes the store, and queries by time are checked
afterwards.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from crash.power_cut import Known, Life, main, records_of
from support import oracle
from support.store_checks import by_queue, opened

JUMPS = [-100_000_000, -100_000, -5_000, -1, 1, 5_000, 100_000_000]  # ms


class TurnsLife(Life):
    LIVES = 6
    KILLED = 0.7

    def run(self, chance: random.Random, steps: int) -> None:
        self.chance = chance
        self.jump()
        super().run(chance, min(steps, 12))

    def jump(self) -> None:
        if self.chance.random() < 0.5:
            self.clock = max(self.clock + self.chance.choice(JUMPS), 1)

    def close(self, store: Any) -> None:
        self.jump()
        store._set_clock(self.clock)
        super().close(store)

    def survives(self, root: Path, known: Known) -> None:
        super().survives(root, known)
        with opened(root, **self.fields) as one:
            assert_times(one.store, records_of(root))


def assert_times(store: Any, records: list[oracle.Record]) -> None:
    """Assert that queries by time agree with the records; where the clock went back, several answers are valid."""
    for (topic, queue_id), queue in by_queue(records).items():
        stamps = [record["storeTimestamp"] for record in queue]
        low, count = queue[0]["queueOffset"], len(queue)
        for when in {min(stamps) - 1, stamps[0], stamps[count // 2], stamps[-1], stamps[-1] + 1, max(stamps) + 1}:
            what = topic, queue_id, when, stamps
            at = store.offset_by_time(topic, queue_id, when) - low
            before = at == 0 or stamps[at - 1] < when or (at < count and stamps[at - 1] != stamps[at] == when)
            assert before and (at == count or stamps[at] >= when), (*what, at)
            at = store.offset_by_time(topic, queue_id, when, "upper") - low
            behind = at == count - 1 or stamps[at + 1] > when or stamps[at + 1] != stamps[at] == when
            assert (behind and stamps[at] <= when) or (at == 0 and stamps[0] > when), (*what, at, "upper")
    keys = [(record["topic"], key) for record in records for key in record["properties"].get("KEYS", "").split()]
    for topic, key in set(keys):
        found = [r for r in records if r["topic"] == topic and key in r["properties"].get("KEYS", "").split()]
        stamps = sorted(record["storeTimestamp"] for record in found)
        for begin, end in {(stamps[0], stamps[-1]), (stamps[0], stamps[0]), (stamps[len(stamps) // 2], stamps[-1])}:
            wanted = [r["physicalOffset"] for r in found if begin <= r["storeTimestamp"] <= end]
            got = store.query(topic, key, max_count=1 << 20, begin=begin, end=end).phy_offsets
            assert got == wanted, (topic, key, begin, end, got, wanted)


if __name__ == "__main__":
    main(TurnsLife)
