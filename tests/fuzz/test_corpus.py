"""The fuzzer's seeds, and all inputs that have failed, run through the targets with the current build."""

from pathlib import Path

import pytest
from fuzz import mutate, whole
from fuzz.targets import TARGETS
from support import oracle
from support.promise_counts import count

pytestmark = pytest.mark.promise(8)

HERE = Path(__file__).parent


def inputs_of(name: str) -> list[Path]:
    return sorted(path for kind in ("corpus", "findings") for path in (HERE / kind / name).glob("*"))


@pytest.mark.parametrize("name", TARGETS)
def test_corpus(name, memory_path):
    assert inputs_of(name)
    for path in inputs_of(name):
        try:
            TARGETS[name](path.read_bytes(), memory_path / "input")
        except Exception as error:
            raise AssertionError(f"{name} fails on {path}") from error
        count("inputs")


def test_a_mutated_record_is_still_a_record():
    """A body changes, and the result is mostly a record with the right CRC."""
    log = b"".join(oracle.encode("t", b"body", phy_offset=96 * n) for n in range(3))
    found = set()
    for seed in range(200):
        made = mutate.in_a_log(0, lambda data: 0)(log, 4096, seed, lambda some, size: some[::-1])
        found |= {record["storedBody"] for record in oracle.records(oracle.walk(made))}
    assert {b"body", b"ydob"} <= found


def test_an_input_of_a_store_is_split_into_its_files():
    files = {whole.NAMES[0]: b"log", whole.NAMES[9]: b"", whole.NAMES[2]: bytes(300)}
    assert whole.split(whole.join(files)) == files
    for seed in range(200):
        made = mutate.in_a_store(0)(whole.join(files), 4096, seed, lambda some, size: some + b"x")
        assert set(whole.split(made)) <= set(whole.NAMES) and len(made) <= 4096
