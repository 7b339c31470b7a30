"""Power cuts while the tables of config/ are written: `python -m crash.power_tables FOLDER SEED`.

A table has the state after the last write that returned, or a later one. It is never truncated and never empty. Its
`.bak` is never read in its place, and holds an earlier state. In some lives the tables of topics and groups grow: then
either of the two files may be cut, and the other one has the state.
"""

from __future__ import annotations

import copy
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash.power_cut import Known, Life, main

from rocketc.tables.deleted_topics import DeletedTopics
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.topics import Topics

NAMES = ["orders", "audit", "n" * 100, "t-1", "t-2"]
KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any]]] = {  # how to open a table, and how to read it
    "topics": (Topics, dict),
    "groups": (SubscriptionGroups, dict),
    "offsets": (ConsumerOffsets, lambda table: sorted(table.items())),
    "delays": (DelayOffsets, lambda table: sorted(table.items())),
    "deleted": (DeletedTopics, lambda table: dict(table.ends)),
}
GROWING = ("topics", "groups")


def shown(kind: str, table: Any) -> Any:
    return copy.deepcopy(KINDS[kind][1](table))


def opened(root: Path) -> dict[str, Any]:
    return {kind: make(root) for kind, (make, _) in KINDS.items()}


@dataclass
class Tables(Known):
    """What is known of each table.

    may     by kind: the state that was written last, and those whose write began since
    before  all earlier states
    """

    may: dict[str, list[Any]] = field(default_factory=lambda: {k: [shown(k, t)] for k, t in empty().items()})
    before: dict[str, list[Any]] = field(default_factory=lambda: {k: [shown(k, t)] for k, t in empty().items()})

    def writing(self, kind: str, state: Any) -> None:
        self.may[kind].append(state)
        self.before[kind].append(state)

    def written(self, kind: str, state: Any) -> None:
        self.may[kind] = [state]


def empty() -> dict[str, Any]:
    return opened(Path("/no/such/folder"))


class TablesLife(Life):
    KNOWN = Tables

    @staticmethod
    def settings(chance: random.Random) -> dict[str, Any]:
        return {"flush": "sync"}

    def run(self, chance: random.Random, steps: int) -> None:
        self.recorder.watch(self.root)
        self.note("state", closed=True)
        self.tables = opened(self.root)
        for kind, table in self.tables.items():
            assert table.load_error is None or kind in GROWING, table.load_error
            assert shown(kind, table) in self.known.may[kind], (kind, shown(kind, table))
        for kind in GROWING if chance.random() < 0.5 else ():
            self.tables[kind].grow()
            self.tables[kind].persist()
        for _ in range(steps):
            self.step(None, chance)
        self.events = self.recorder.take()

    def step(self, store: Any, chance: random.Random) -> Any:
        kind, name = chance.choice(list(KINDS)), chance.choice(NAMES)
        table = self.tables[kind]
        gone = chance.sample(NAMES, 2) if chance.random() < 0.2 else []
        if kind == "deleted":
            self.note_deleted(table, name, chance)
        elif kind in ("topics", "groups") and gone:
            self.write(kind, lambda: table.delete(gone), {k: v for k, v in table.items() if k not in gone})
        elif kind == "topics":
            table.create(name, queues=chance.randrange(1, 9), persist=False)
            self.write(kind, table.persist, dict(table))
        elif kind == "groups":
            config = SubscriptionGroupConfig(name, retry_max_times=chance.randrange(99))
            self.write(kind, lambda: table.create(config), {**table, name: config})
        else:
            for _ in range(chance.choice([1, 1, 40])):
                if kind == "offsets":
                    table.commit(name, chance.choice(NAMES), chance.randrange(4), chance.randrange(1 << 40))
                else:
                    table.commit(chance.randrange(1, 19), chance.randrange(1 << 40))
            if gone and kind == "offsets":
                table.forget(topic=gone[0])
            if chance.random() < 0.7:
                self.write(kind, table.persist, shown(kind, table))
        return None

    def note_deleted(self, table: DeletedTopics, name: str, chance: random.Random) -> None:
        first, end = chance.choice([0, 0, 500]), chance.randrange(1, 1000)
        if chance.random() < 0.7:
            kept = {topic: old for topic, old in table.ends.items() if old > first}
            self.write("deleted", lambda: table.add([name], end, first), {**kept, name: end})
        else:
            ends = {topic: min(old, end) for topic, old in table.ends.items()}
            self.write("deleted", lambda: table.end_with(end), ends)

    def write(self, kind: str, call: Callable[[], Any], state: Any) -> None:
        """Call a method that puts the table into this state, durably when it returns."""
        state = copy.deepcopy(state)
        self.note("writing", kind, state)
        call()
        assert shown(kind, self.tables[kind]) == state, (kind, state)
        self.note("written", kind, state)

    def survives(self, root: Path, known: Tables) -> None:
        for kind, table in opened(root).items():
            is_cut = table.load_error is not None
            assert not is_cut or (kind in GROWING and "was read instead" in table.load_error), table.load_error
            state = shown(kind, table)
            assert state in known.may[kind], ("unexpected state", kind, state, known.may[kind])
            path = Path(table.path)
            if (bak := path.with_name(f"{path.name}.bak")).exists():
                with tempfile.TemporaryDirectory(dir=root.parent) as other:
                    (Path(other) / "config").mkdir()
                    shutil.copy(bak, Path(other) / "config" / path.name)
                    copied = KINDS[kind][0](Path(other))
                    if copied.load_error is not None and kind in GROWING and not is_cut:
                        continue
                    assert copied.load_error is None, copied.load_error
                    assert shown(kind, copied) in known.before[kind], ("the .bak has an unexpected state", kind)
        one = opened(root)["topics"]
        one.create("next", queues=3)
        assert shown("topics", opened(root)["topics"]) == shown("topics", one)


if __name__ == "__main__":
    main(TablesLife)
