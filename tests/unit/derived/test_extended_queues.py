"""Consume queues with extensions: format, recovery, reading, expiry, deletion."""

import os
import random
import shutil

import pytest
from support import oracle
from support.derived import ext_files, files_of

import rocketc
from rocketc.derived._consume_queues import ConsumeQueues

CQ, EXT = 400, 256
FIELDS = {
    "mapped_file_size_commit_log": 1 << 16,
    "mapped_file_size_consume_queue": CQ,
    "mapped_file_size_consume_queue_ext": EXT,
    "enable_consume_queue_ext": True,
}


def put(root, count, start=0, **fields):
    with rocketc.open(root, **{**FIELDS, **fields}) as store:
        for n in range(start, start + count):
            store.put(f"T{n % 3}", b"%d" % n, queue_id=n % 2, tags=f"tag{n % 5}" if n % 7 else None)
    return store


def wanted(root):
    records = [
        r.fields if hasattr(r, "fields") else r
        for r in oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    ]
    records = oracle.records(oracle.walk_log(oracle.read_log(root / "commitlog")))
    queues, extensions = ext_files(records, CQ, EXT)
    return {**queues, **extensions}


def found(root):
    return files_of(root, "consumequeue", "consumequeue_ext")


@pytest.mark.parametrize("count", [1, 7, 100, 400])
def test_files_are_those_of_the_specification(tmp_path, count):
    put(tmp_path, count)
    assert found(tmp_path) == wanted(tmp_path)


def test_reopened_queues_continue_and_nothing_else_changes(tmp_path):
    put(tmp_path, 150)
    for folder in ("consumequeue", "consumequeue_ext"):
        for above, _, names in os.walk(tmp_path / folder):
            for name in names:
                os.utime(os.path.join(above, name), (1, 1))
    before = found(tmp_path)
    rocketc.open(tmp_path, **FIELDS).close()
    assert found(tmp_path) == before
    for above, _, names in os.walk(tmp_path / "consumequeue_ext"):
        assert {os.stat(os.path.join(above, name)).st_mtime for name in names} <= {1}
    put(tmp_path, 150, start=150)
    assert found(tmp_path) == wanted(tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_extensions_are_rebuilt(tmp_path, seed):
    put(tmp_path, 200)
    before = found(tmp_path)
    rng = random.Random(seed)
    paths = sorted((tmp_path / "consumequeue_ext").rglob("0*"))
    path = rng.choice([p for p in paths if p.is_file()])
    data = bytearray(path.read_bytes())
    way = seed % 6
    if way == 0:
        shutil.rmtree(tmp_path / "consumequeue_ext")
    elif way == 1:
        path.unlink()
    elif way == 2:
        path.write_bytes(data[: rng.randrange(EXT)])
    elif way == 3:
        path.write_bytes(rng.randbytes(EXT))
    elif way == 4:
        other = rng.choice([p for p in paths if p.is_file() and p != path])
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(bytes(EXT))
    rocketc.open(tmp_path, **FIELDS).close()
    assert found(tmp_path) == before


def test_extensions_that_are_enabled_later_and_disabled_again(tmp_path):
    put(tmp_path, 60, enable_consume_queue_ext=False)
    assert not (tmp_path / "consumequeue_ext").exists()
    put(tmp_path, 60, start=60)
    assert found(tmp_path) == wanted(tmp_path)
    put(tmp_path, 60, start=120, enable_consume_queue_ext=False)
    with rocketc.open(tmp_path, **{**FIELDS, "enable_consume_queue_ext": False}):
        pass
    queues = ConsumeQueues(str(tmp_path), CQ)
    queues.load()
    assert all(unit[3] > -(1 << 32) for topic, q in queues.items() for unit in queues.units(topic, q))


def test_another_size_than_before(tmp_path):
    put(tmp_path, 60, mapped_file_size_consume_queue_ext=512)
    put(tmp_path, 60, start=60)
    assert found(tmp_path) == wanted(tmp_path)


def test_tags_codes_are_read_from_extensions(tmp_path):
    put(tmp_path, 50)
    queues = ConsumeQueues(str(tmp_path), CQ, read_only=True)
    queues.load()
    for topic, queue_id in queues.items():
        for number, *_ in queues.units(topic, queue_id):
            n = next(n for n in range(50) if (f"T{n % 3}", n % 2) == (topic, queue_id)) + 6 * number
            assert queues.tags_code(topic, queue_id, number) == oracle.tags_code(f"tag{n % 5}" if n % 7 else None)
    queues.close()
