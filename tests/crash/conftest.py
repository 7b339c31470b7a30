"""For crash tests: a folder in memory, and stores with small files."""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash import remains
from crash.small import SMALL

import rocketc


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketc, "open", functools.partial(rocketc.open, **SMALL))


@pytest.fixture
def memory_path() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder)
