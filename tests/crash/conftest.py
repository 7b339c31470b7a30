"""For crash tests: stores with small files."""

import functools

import pytest
from crash.small import SMALL

import rocketc


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketc, "open", functools.partial(rocketc.open, **SMALL))
