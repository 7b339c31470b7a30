"""The pages that need Spark: see ../support/pages.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.pages import PAGES, ROOT, Page
from support.spark_frames import long_with_sources
from support.stores import GoldenStore

from rocketc.spark.stream import HAS_LIMITS

pytestmark = pytest.mark.spark
NEWEST = pytest.mark.skipif(not HAS_LIMITS, reason="the page shows Spark 4.2 and newer")

BY_NAME = {str(path.relative_to(ROOT)): path for path in PAGES if Page(path).needs_spark}


ANY_VERSION = "docs/howto/spark35.md"
FEW = {"docs/howto/spark.md", "docs/howto/archive.md", "docs/design.md"}  # the others show parts of the same


def marks(name: str) -> list[pytest.MarkDecorator]:
    if name == ANY_VERSION:
        return [long_with_sources]
    return [NEWEST] if name in FEW else [NEWEST, pytest.mark.long]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in BY_NAME])
def test_page(
    name: str,
    spark: SparkSession,
    golden: Callable[[str], GoldenStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    if not_tried := Page(BY_NAME[name]).run(folder, golden, spark=spark):
        pytest.skip("; ".join(not_tried))
