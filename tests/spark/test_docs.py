"""The pages that need Spark: see ../support/pages.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.pages import PAGES, ROOT, Page
from support.stores import GoldenStore

from rocketc.spark.stream import HAS_LIMITS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not HAS_LIMITS, reason="the pages show Spark 4.2 and newer"),
]

BY_NAME = {str(path.relative_to(ROOT)): path for path in PAGES if Page(path).needs_spark}


@pytest.mark.parametrize("name", BY_NAME)
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
