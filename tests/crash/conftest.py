"""For crash tests: stores with small files, and a process that strace can kill."""

import functools
import shutil
from collections.abc import Iterator

import pytest
from crash.small import SMALL
from crash.tracing import Zygote

import rocketc


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketc, "open", functools.partial(rocketc.open, **SMALL))


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    if not shutil.which("strace"):
        pytest.skip("strace is missing; tools/setup.sh strace installs it")
    made = Zygote(tmp_path_factory.mktemp("zygote"))
    yield made
    made.close()
