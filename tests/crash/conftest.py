"""For crash tests: a folder in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash import remains


@pytest.fixture
def memory_path() -> Iterator[Path]:
    with remains.memory() as folder:
        yield Path(folder)
