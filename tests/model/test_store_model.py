"""The store compared with a list, for messages put, flushed, killed or cut off from power in any order."""

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from crash.small import SMALL
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support import oracle
from support.replaced import MAKERS, is_named, no_hang, replace

import rocketc

pytestmark = pytest.mark.promise(1, 5)

FILE_SIZE = 8192
BUFFERS = 16  # of the pool
MIXES = st.fixed_dictionaries(
    {
        "flush": st.sampled_from(["sync", "async"]),
        "lock": st.sampled_from(["spin", "reentrant", "adaptive"]),
        "transient_store_pool_enable": st.booleans(),
        "enabled_append_prop_crc": st.booleans(),
        "prepare": st.sampled_from(["allocate", "populate", "auto"]),
    }
)
topics = st.sampled_from(["orders", "a", "%RETRY%" + "g" * 150])
queues = st.integers(0, 1)
bodies = st.builds(
    lambda piece, size: (piece * size)[:size],
    st.binary(min_size=1, max_size=4),
    st.one_of(st.integers(0, 40), st.integers(0, 3000)),
)
properties = st.sampled_from([None, {"TAGS": "A"}, {"KEYS": "k1 k2", "TAGS": "ключ"}, {"long": "ж" * 700}])


def fits(messages: list[tuple[bytes, dict[str, str] | None]]) -> bool:
    """Whether a log file has room for all messages together, as a batch needs."""
    texts = [text for _, pairs in messages for pair in (pairs or {}).items() for text in pair]
    return sum(len(body) + 200 for body, _ in messages) + sum(len(text.encode()) + 1 for text in texts) < FILE_SIZE


@dataclass(frozen=True)
class Put:
    """A message that was acknowledged."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: dict[str, str]


def as_put(message: oracle.Record) -> Put:
    pairs = {name: text for name, text in message["properties"].items() if name != oracle.CRC_NAME}
    return Put(message["topic"], message["queueId"], message["queueOffset"], message["storedBody"], pairs)


class StoreModel(RuleBasedStateMachine):
    """`puts` is what the store must hold, and a power cut may only lose messages after the first `durable`.

    The first `gone` messages were cleaned. `begins`: the number of messages when a topic was last deleted, where its
    queue offsets start again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory: tempfile.TemporaryDirectory[str] = remains.memory()
        self.root = Path(self.memory.name, "store")
        self.puts: list[Put] = []
        self.durable = 0
        self.gone = 0
        self.begins: dict[str, int] = {}
        self.clock = 1_700_000_000_000
        self.store: Any = None
        self.disk: remains.Files = {}

    @initialize(mix=MIXES)
    def start(self, mix: dict[str, Any]) -> None:
        # No flush or commit that the model does not control.
        never = {"flush_interval_commit_log": 1 << 30, "commit_interval_commit_log": 1 << 30}
        self.fields = {**SMALL, **mix, **never, "mapped_file_size_commit_log": FILE_SIZE}
        self.fields["wake_commit_when_put_message"] = False
        self.fields["transient_store_pool_size"] = BUFFERS
        self.sync = mix["flush"] == "sync"
        self.pool = mix["transient_store_pool_enable"]
        self.open()

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
            if not self.puts:
                assert oracle.records(oracle.walk_log(oracle.read_log(self.root / "commitlog"))) == []
        self.memory.cleanup()

    def open(self) -> None:
        self.store = rocketc.open(self.root, **self.fields)
        self.store._set_clock(self.clock)

    def flushed(self) -> None:
        """All messages that were put are durable now."""
        self.durable = len(self.puts)
        self.disk = remains.take(self.root)

    def next_offset(self, topic: str, queue_id: int) -> int:
        return sum((p.topic, p.queue_id) == (topic, queue_id) for p in self.puts[self.begins.get(topic, 0) :])

    def note(self, result: Any, topic: str, queue_id: int, messages: list[tuple[bytes, dict[str, str] | None]]) -> None:
        first = self.next_offset(topic, queue_id)
        assert (result.status.name, result.queue_offset, result.count) == ("PUT_OK", first, len(messages))
        for n, (body, pairs) in enumerate(messages):
            self.puts.append(Put(topic, queue_id, first + n, body, pairs or {}))
        if self.sync:
            self.flushed()
        self.spare_buffers()

    def spare_buffers(self) -> None:
        """Flush before the pool runs out of buffers: a file without a buffer is written and readable at once."""
        behind = self.store.max_phy_offset - self.store.flushed_phy_offset
        if self.pool and behind > BUFFERS // 2 * FILE_SIZE:
            self.flush()

    def recover(self, files: remains.Files) -> None:
        """Continue with the files that are left: only messages that the promise excludes may be missing."""
        least, most = self.durable, len(self.puts)
        self.store.close()
        remains.lay(files, self.root)
        self.open()
        found = [as_put(m) for m in remains.messages(remains.take(self.root))]
        assert found == self.puts[self.gone :][: len(found)]
        assert least <= self.gone + len(found) <= most
        self.puts = [*self.puts[: self.gone], *found]
        self.flushed()  # recovery has made it durable

    # operations of a user

    @rule(topic=topics, queue_id=queues, body=bodies, pairs=properties)
    def put(self, topic: str, queue_id: int, body: bytes, pairs: dict[str, str] | None) -> None:
        result = self.store.put(topic, body, properties=pairs, queue_id=queue_id)
        self.note(result, topic, queue_id, [(body, pairs)])

    @rule(queue_id=queues, messages=st.lists(st.tuples(bodies, properties), min_size=1, max_size=2).filter(fits))
    def put_batch(self, queue_id: int, messages: list[tuple[bytes, dict[str, str] | None]]) -> None:
        result = self.store.put_batch("orders", [(0, body, pairs) for body, pairs in messages], queue_id=queue_id)
        self.note(result, "orders", queue_id, messages)

    @rule(topic=topics, queue_id=queues, many=st.lists(bodies, min_size=1, max_size=12), pairs=properties)
    def put_many(self, topic: str, queue_id: int, many: list[bytes], pairs: dict[str, str] | None) -> None:
        result = self.store.put_many(topic, many, properties=pairs, queue_id=queue_id)
        self.note(result, topic, queue_id, [(body, pairs) for body in many])

    @rule()
    def flush(self) -> None:
        assert self.store.flush() == self.store.max_phy_offset
        self.flushed()

    @rule(ms=st.sampled_from([1, 10, 5000]))
    def time_passes(self, ms: int) -> None:
        self.clock += ms
        self.store._set_clock(self.clock)

    @rule()
    def roll(self) -> None:
        self.store._roll()
        self.spare_buffers()

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        end = self.store.max_phy_offset
        self.open()
        assert self.store.max_phy_offset == end
        self.flushed()

    # crashes

    @rule()
    def kill(self) -> None:
        files = remains.take(self.root)
        if not self.pool:
            self.durable = len(self.puts)
        self.recover(files)

    @rule(lost=st.integers(0, (1 << 64) - 1), block=st.sampled_from([512, 4096]))
    def lose_power(self, lost: int, block: int) -> None:
        """Lose blocks that changed since the last flush: the bits of `lost` say which ones."""
        files = remains.take(self.root)
        changed = 0
        for name in sorted(name for name in files if name.startswith("commitlog/")):
            new, old = files[name], self.disk.get(name, bytes(len(files[name])))
            for at in range(0, len(new), block):
                if new[at : at + block] != old[at : at + block]:
                    if lost >> changed % 64 & 1:
                        files[name] = files[name][:at] + old[at : at + block] + files[name][at + block :]
                    changed += 1
        self.recover(files)

    @precondition(lambda self: not self.pool)
    @rule(size=st.integers(0, FILE_SIZE))
    def die_while_a_file_is_made(self, size: int) -> None:
        files = remains.take(self.root)
        end = max((base + len(data) for base, data in remains.log(files)), default=self.store.min_phy_offset)
        for name in [name for name in files if name.startswith("commitlog/") and int(name[-20:]) >= end]:
            del files[name]
        files[f"commitlog/{end:020d}"] = bytes(size)
        self.durable = len(self.puts)
        self.recover(files)

    # other programs

    @rule(which=st.integers(0, 1 << 30), kind=st.sampled_from(sorted(MAKERS)))
    def replace_a_file(self, which: int, kind: str) -> None:
        """Something else is in the place of a file of the closed store. Nothing outside of the store is changed."""
        self.store.close()
        files = remains.take(self.root)
        path = self.root / sorted(files)[which % len(files)]
        outside = Path(self.memory.name, "outside")
        before = replace(path, kind, outside)
        with no_hang():
            for read_only in (True, False):
                try:
                    rocketc.open(self.root, read_only=read_only, **self.fields).close()
                except rocketc.RocketcError as error:
                    assert is_named(path, error)
        assert outside.read_bytes() == before and not (path.parent / "nowhere").exists()
        remains.lay(files, self.root)
        self.open()
        self.flushed()

    @rule()
    def delete_the_lock_file(self) -> None:
        """The store notices, and its puts are refused."""
        if self.pool:
            self.flush()  # a buffer that the store can't write any more is lost
        (self.root / "lock").unlink()
        with pytest.raises(rocketc.StoreLockedError):
            rocketc.open(self.root, **self.fields)
        until = time.monotonic() + 20
        while self.store.failed is None and time.monotonic() < until:
            time.sleep(0.01)
        with pytest.raises(rocketc.StoreFailedError, match="is gone or was replaced"):
            self.store.put("orders", b"refused")
        with pytest.raises(rocketc.StoreFailedError):
            self.store.close()
        self.open()
        self.flushed()

    # invariants

    @invariant()
    def readers_see_what_was_put(self) -> None:
        if self.store is None:
            return
        found = [as_put(_record(m)) for m in rocketc.scan(self.root)]
        assert found == self.puts[self.gone :][: len(found)]
        assert self.gone + len(found) == len(self.puts) or self.pool
        assert self.gone + len(found) >= self.durable

    @invariant()
    def queues_have_no_gaps(self) -> None:
        lengths: Counter[tuple[str, int]] = Counter()
        for p in (p for n, p in enumerate(self.puts) if n >= self.begins.get(p.topic, 0)):
            assert p.queue_offset == lengths[p.topic, p.queue_id]
            lengths[p.topic, p.queue_id] += 1


def _record(m: rocketc.Message) -> oracle.Record:
    return {
        "topic": m.topic,
        "queueId": m.queue_id,
        "queueOffset": m.queue_offset,
        "storedBody": m.stored_body,
        "properties": m.properties,
    }


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=18, stateful_step_count=25)


@pytest.mark.long
@pytest.mark.timeout(1200)
class TestStoreModelForLong(StoreModel.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=50)
