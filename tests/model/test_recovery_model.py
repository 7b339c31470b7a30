"""Recovery on several threads compared with recovery on one: logs with any damage, read in parts of any size."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from crash import remains
from support import oracle

from rocketc.derived._consume_queues import ConsumeQueues
from rocketc.files._checkpoint import Checkpoint
from rocketc.files._mapped_file_queue import MappedFileQueue
from rocketc.log import recovery, recovery_parts
from rocketc.tables._deleted_topics import DeletedTopicOffsets

pytestmark = pytest.mark.promise(5)

SEED = int(os.environ.get("ROCKETC_SEED", "1"))
SIZE = 12_000  # of a file of the log
BODY_AT = 88  # in a record
T0 = 1_700_000_000_000
TOPICS = ["t", "orders", "%RETRY%g", "gone"]


def random_log(chance: random.Random) -> list[tuple[int, bytes]]:
    taken: dict[tuple[str, int], int] = {}
    found: list[dict[str, Any]] = []
    for n in range(chance.randrange(1, 160)):
        queue = chance.choice(TOPICS), chance.randrange(3)
        flag, properties, count = 0, {"a": "b" * chance.choice([1, 1, 700])}, 1
        kind = chance.random()
        if kind < 0.1:
            flag, count = chance.choice([(0x4, 0), (0x8, 1), (0xC, 0)])
        elif kind < 0.2:
            count = chance.randrange(1, 9)
            flag, properties = oracle.INNER_BATCH, {"INNER_NUM": str(count)}
        body = chance.randbytes(chance.choice([0, 1, 30, 200, 900, 4000]))
        found.append(
            {
                "topic": queue[0],
                "queue_id": queue[1],
                "queue_offset": taken.get(queue, 0) if chance.random() < 0.98 else chance.choice([-5, 7, 1 << 40]),
                "body": body,
                "sys_flag": flag,
                "born_timestamp": T0,
                "store_timestamp": T0 + 100 * n + chance.choice([0, 0, -5000]),
                "properties": properties,
            }
        )
        taken[queue] = taken.get(queue, 0) + count
    base = SIZE * chance.choice([0, 0, 7])
    starts = [
        one["start"] for one in oracle.records(oracle.walk_log(with_paths(oracle.lay_out(found, SIZE, base=base))))
    ]
    for start, one in zip(starts, found, strict=True):
        if len(one["body"]) >= 900 and chance.random() < 0.5:  # a valid record is inside, with the same end
            at = chance.randrange(200)
            body = one["body"][at + BODY_AT :]
            inner = oracle.encode(**{**one, "body": body, "queue_offset": 3}, phy_offset=start + BODY_AT + at)
            one["body"] = one["body"][:at] + inner[: BODY_AT + len(body)]
    return oracle.lay_out(found, SIZE, base=base)


def with_paths(laid: list[tuple[int, Any]]) -> list[Any]:
    return [(start, bytes(data), None) for start, data in laid]


def harm(chance: random.Random, files: list[bytearray]) -> None:
    """Do some damage: any byte, a range of zeros or garbage, a torn end, a stale end."""
    for _ in range(chance.choice([0, 1, 1, 2, 5, 9])):
        file = chance.choice(files)
        end = len(file.rstrip(b"\0"))
        at = chance.randrange(max(end, 1))
        kind = chance.randrange(5)
        if kind == 0:
            file[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            size = min(chance.choice([1, 8, 512, 3000]), len(file) - at)
            file[at : at + size] = bytes(size)
        elif kind == 2:
            size = min(chance.choice([4, 100, 2000]), len(file) - at)
            file[at : at + size] = chance.randbytes(size)
        elif kind == 3:
            last = files[-1]
            at = chance.randrange(max(len(last.rstrip(b"\0")), 1))
            last[at:] = bytes(len(last) - at)
        else:
            at = chance.randrange(len(files[-1]))
            files[-1][at:] = chance.randbytes(20).ljust(len(files[-1]) - at, b"\0")


def recovered(root: Path, threads: int, **options: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Recover a store; return what was found, and all files afterwards."""
    queue = MappedFileQueue([str(root / "commitlog")], SIZE)
    queue.load()
    queues = ConsumeQueues(str(root))
    queues.load()
    files_done: list[Any] = []
    found, offsets = recovery.recover(
        str(root), queue, queues, threads=threads, on_file=lambda *one: files_done.append(one[1]), **options
    )
    told = vars(found) | {"offsets": dict(offsets.items()), "wrote": queue.wrote, "files done": files_done}
    told["saved"] = [str(Path(path).relative_to(root)) for path in found.saved]
    return told, {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def compare(root: Path, seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    laid = random_log(chance)
    files = [bytearray(data) for _, data in laid]
    ends = [one["stop"] for one in oracle.records(oracle.walk_log(with_paths(laid)))]
    harm(chance, files)
    one = root / "one"
    (one / "commitlog").mkdir(parents=True)
    for (start, _), data in zip(laid, files, strict=True):
        (one / "commitlog" / f"{start:020d}").write_bytes(data)
    if len(laid) > 2 and chance.random() < 0.1:
        (one / "commitlog" / f"{laid[1][0]:020d}").unlink()
    shutil.copytree(one, root / "many")
    time = chance.choice([0, T0, T0 + 100 * chance.randrange(200)])
    flushed = chance.choice([-1, 0, chance.choice(ends)])
    options = {
        "clean": chance.random() < 0.4,
        "checkpoint": Checkpoint(time, chance.choice([0, time]), 0, 0, 0),
        "flushed": flushed,
        "queued": chance.choice([-1, 0, flushed]),
        "crc": chance.random() < 0.9,
        "stripes": chance.choice([1, 32]),
        "deleted_topics": chance.choice([None, DeletedTopicOffsets({"gone": chance.choice(ends), "t": 500})]),
        "policy": chance.choice(["keep", "keep", "java"]),
    }
    monkeypatch.setattr(recovery, "SMALL_BYTES", chance.choice([128 << 20, 0, 9000]))
    monkeypatch.setattr(recovery, "APART", chance.choice([16 << 20, 3000, 0]))
    monkeypatch.setattr(recovery_parts, "PART_BYTES", chance.choice([64, 500, 1500, 4001, 6001]))
    says = f"seed {seed}: {options}"
    expected, left = recovered(one, 1, **options)
    found, left_too = recovered(root / "many", chance.choice([2, 3]), **options)
    boundaries = set(found.pop("boundaries")), set(expected.pop("boundaries"))
    assert found == expected, says
    assert left_too == left, says
    whole = oracle.walk_log(with_paths([(s, d) for (s, _), d in zip(laid, files, strict=True)]), crc="none")
    known = {r["start"] for r in oracle.records(whole)} | {r["stop"] for r in oracle.records(whole)}
    assert all(each <= known for each in boundaries), says


def run(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    in_parts, really = [], recovery_parts._merge

    def merge(run: Any, begin: int, *rest: Any) -> int:
        end = really(run, begin, *rest)
        in_parts.append(end > begin)
        return end

    monkeypatch.setattr(recovery_parts, "_merge", merge)
    monkeypatch.setattr("time.sleep", lambda _: None)  # a torn end is read again, later
    with remains.memory() as folder:
        for number in range(count):
            compare(Path(folder, str(number)), f"{SEED}/{number}", monkeypatch)
            shutil.rmtree(Path(folder, str(number)))
    assert sum(in_parts) > len(in_parts) / 3 > 0


def test_threads_find_what_one_thread_finds(monkeypatch):
    run(monkeypatch, 80)


@pytest.mark.long
def test_threads_find_what_one_thread_finds_in_many_logs(monkeypatch):
    run(monkeypatch, 20_000)
