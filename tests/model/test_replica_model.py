"""A store and a replica that copies it in blocks, while messages are put and the log is rolled, cleaned, cut and
damaged.

The stores are also reopened, and the replica is killed. The replica is a part of its master's log, byte for byte, and
its queues and index follow from that part.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from crash.small import SMALL
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support import oracle, replicas
from support.store_checks import assert_files

import rocketc

pytestmark = pytest.mark.promise(9)

FILE_SIZE = 2048
FIELDS = {**SMALL, "mapped_file_size_commit_log": FILE_SIZE}
MIXES = st.fixed_dictionaries(
    {
        "flush": st.sampled_from(["sync", "async"]),
        "lock": st.sampled_from(["spin", "reentrant", "adaptive"]),
        "transient_store_pool_enable": st.booleans(),
        "transient_store_pool_size": st.integers(1, 4),
    }
)
topics = st.sampled_from(["orders", "a", "%RETRY%" + "g" * 150])
many = st.lists(st.integers(0, 900), min_size=1, max_size=8)
block_bytes = st.sampled_from([1, 300, 3000, 30_000])


class ReplicaModel(RuleBasedStateMachine):
    """The replica must be a part of its master's log.

    `lost`: the replica has messages of its own, or ends before the cleaned part, so it copies nothing. `cleaned`: the
    stores with deleted files: their queues have units before the log's first record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory: tempfile.TemporaryDirectory[str] = remains.memory()
        self.roots = {name: Path(self.memory.name, name) for name in ("master", "replica")}
        self.numbers = 0
        self.lost = False
        self.cleaned: set[str] = set()
        self.master: Any = None
        self.replica: Any = None

    @initialize(master=MIXES, replica=MIXES, crc=st.booleans())
    def start(self, master: dict[str, Any], replica: dict[str, Any], crc: bool) -> None:
        self.fields = {
            "master": {**FIELDS, **master, "enabled_append_prop_crc": crc},
            "replica": {**FIELDS, **replica},
        }
        self.master = rocketc.open(self.roots["master"], **self.fields["master"])
        self.replica = rocketc.open(self.roots["replica"], **self.fields["replica"])

    def teardown(self) -> None:
        try:
            if self.master is not None:
                self.compare()
        finally:
            for store in (self.master, self.replica):
                if store is not None:
                    store.close()
            self.memory.cleanup()

    def compare(self) -> None:
        """Compare the whole files of both stores after closing them."""
        if not self.lost:
            self.copy(1000)
            assert self.next() == self.master.max_phy_offset
        whole = self.replica.min_phy_offset == 0 == self.master.min_phy_offset and self.master.max_phy_offset > 0
        self.master.close()
        self.replica.close()
        for name in {*self.roots} - self.cleaned:
            assert_files(self.roots[name], FIELDS)
        if whole and not self.lost:
            replicas.assert_equal(*self.roots.values())

    def copy(self, max_bytes: int, count: int = 1 << 30) -> None:
        self.master.flush()  # before that, bytes in the pool cannot be read
        while count and (block := self.master.read_raw(self.next(), max_bytes)):
            at = self.next()
            assert self.replica.append_raw(at, block) == at + len(block)
            count -= 1

    def next(self) -> int:
        """Where the replica continues; if it is empty, where the master's log begins."""
        return self.replica.max_phy_offset or self.master.min_phy_offset

    def body(self, size: int) -> bytes:
        self.numbers += 1
        return (b"%d " % self.numbers * size)[:size]

    # the master

    @rule(topic=topics, queue_id=st.integers(0, 1), sizes=many)
    def put(self, topic: str, queue_id: int, sizes: list[int]) -> None:
        for size in sizes:
            self.master.put(topic, self.body(size), queue_id=queue_id, keys=f"k{size % 7}")

    @rule(count=st.integers(1, 3))
    def put_transactions(self, count: int) -> None:
        for kind in (0x4, 0x8, 0xC)[:count]:
            self.master.put("orders", self.body(20), sys_flag=kind)

    @rule()
    def roll(self) -> None:
        self.master._roll()

    @rule(files=st.integers(1, 3))
    def clean(self, files: int) -> None:
        self.master.flush()
        self.master.wait_dispatched(timeout=10)
        if self.master.delete_before(self.master.min_phy_offset + files * FILE_SIZE).log_files:
            self.cleaned.add("master")
        self.lost = self.lost or 0 < self.replica.max_phy_offset < self.master.min_phy_offset

    @rule()
    def reopen_master(self) -> None:
        self.master.close()
        self.master = rocketc.open(self.roots["master"], **self.fields["master"])

    # the replica

    @precondition(lambda self: not self.lost)
    @rule(max_bytes=block_bytes, count=st.integers(1, 10))
    def copy_some(self, max_bytes: int, count: int) -> None:
        self.copy(max_bytes, count)

    @precondition(lambda self: not self.lost)
    @rule(max_bytes=block_bytes, cut=st.integers(1, 3000))
    def copy_a_block_that_is_cut_off(self, max_bytes: int, cut: int) -> None:
        at = self.next()
        self.master.flush()
        block = self.master.read_raw(at, max_bytes)
        end = self.replica.append_raw(at, block[:cut])
        assert at <= end <= at + min(cut, len(block))
        assert len(block) <= cut or self.replica.append_raw(end, block[end - at :]) == at + len(block)

    @precondition(lambda self: not self.lost)
    @rule(max_bytes=block_bytes, byte=st.integers(0, 11), bit=st.integers(0, 7))
    def copy_damage(self, max_bytes: int, byte: int, bit: int) -> None:
        """Damage the first record. Only a blank record's CRC and an empty body's CRC are not checked."""
        at = self.next()
        self.master.flush()
        block = bytearray(self.master.read_raw(at, max_bytes))
        blank = block[4:8] == oracle.encode_blank(8)[4:]
        if block and (byte < 8 or (not blank and self.master.message(at).body)):
            block[byte] ^= 1 << bit
            before = self.replica.max_phy_offset
            try:
                assert self.replica.append_raw(at, block) == at
            except rocketc.CorruptRecordError as error:
                assert error.offset == at
            assert self.replica.max_phy_offset == before

    @rule(distance=st.integers(-3000, 3000).filter(bool))
    def copy_what_does_not_follow(self, distance: int) -> None:
        end = self.replica.max_phy_offset
        if end > 0:
            with pytest.raises(rocketc.PhyOffsetError):
                self.replica.append_raw(end + distance, b"")

    @rule()
    def put_to_replica(self) -> None:
        """From then on its log differs from the master's, and stays different."""
        if self.numbers % 5 == 0:
            end = self.replica.put("own", self.body(30)).end
            self.lost = True
            self.master.put("a", self.body(30))
            if self.master.max_phy_offset > end:
                with pytest.raises((rocketc.PhyOffsetError, rocketc.CorruptRecordError)):
                    block = self.master.read_raw(end)
                    self.replica.append_raw(end, block)
                    self.replica.append_raw(end - 1, block)

    @precondition(lambda self: not self.lost)
    @rule(files=st.integers(1, 3))
    def clean_replica(self, files: int) -> None:
        self.replica.flush()
        self.replica.wait_dispatched(timeout=10)
        if self.replica.delete_before(self.replica.min_phy_offset + files * FILE_SIZE).log_files:
            self.cleaned.add("replica")

    @rule()
    def reopen_replica(self) -> None:
        self.replica.close()
        end = self.replica.max_phy_offset
        self.replica = rocketc.open(self.roots["replica"], **self.fields["replica"])
        assert self.replica.max_phy_offset == end

    @rule()
    def kill_replica(self) -> None:
        files = remains.take(self.roots["replica"])
        end, flushed = self.replica.max_phy_offset, self.replica.flushed_phy_offset
        self.replica.close()
        remains.lay(files, self.roots["replica"])
        self.replica = rocketc.open(self.roots["replica"], **self.fields["replica"])
        pool = self.fields["replica"]["transient_store_pool_enable"]
        assert flushed <= self.replica.max_phy_offset <= end
        assert pool or self.replica.max_phy_offset == end
        shutil.rmtree(self.roots["replica"] / "cut", ignore_errors=True)

    # invariants

    @invariant()
    def the_replica_is_a_part_of_its_masters_log(self) -> None:
        if self.master is None or self.lost:
            return
        end = self.replica.max_phy_offset
        logs = [dict(remains.log(remains.take(root))) for root in self.roots.values()]
        pooled = any(fields["transient_store_pool_enable"] for fields in self.fields.values())
        for start in set(logs[0]) & set(logs[1]) if not pooled else ():
            stop = max(min(end - start, FILE_SIZE), 0)
            assert logs[0][start][:stop] == logs[1][start][:stop]

    @invariant()
    def each_queue_goes_on_where_its_master_does(self) -> None:
        if self.master is None or self.lost or self.replica.max_phy_offset != self.master.max_phy_offset:
            return
        assert self.replica.stats()["records"] >= 0
        if self.replica.min_phy_offset == self.master.min_phy_offset and self.replica.max_phy_offset > 0:
            for store in (self.master, self.replica):
                store.flush()
                assert store.wait_dispatched(timeout=10)
            queues = self.replica.queues()  # the master may have more: queues whose records were all deleted
            assert {q: self.master.max_offset(*q) for q in queues} == {q: self.replica.max_offset(*q) for q in queues}


TestReplicaModel = ReplicaModel.TestCase
TestReplicaModel.settings = settings(max_examples=25, stateful_step_count=25)


@pytest.mark.long
@pytest.mark.timeout(1200)
class TestReplicaModelForLong(ReplicaModel.TestCase):
    settings = settings(max_examples=1000, stateful_step_count=50)
