"""The golden stores in tests/golden: unpacked with holes and modification times, and what RocketMQ read in them."""

import io
import json
import lzma
import tarfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "golden"

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))
WHOLE = [name for name in NAMES if (FOLDER / f"{name}.expected.jsonl.xz").exists()]  # RocketMQ read every record
DAMAGED = [name for name in NAMES if name not in WHOLE]  # killed, torn, or with bytes changed on the disk


def some(names: Iterable[str]) -> list[Any]:
    """Parameters for slow tests: a large store, one with all kinds of records, two damaged ones; others are `long`."""
    few = {"flights-2013-01", "v533-store", "v533-bitrot", "v497-torn"}
    return [name if name in few else pytest.param(name, marks=pytest.mark.long) for name in names]


@dataclass(frozen=True)
class GoldenStore:
    """One store on disk. Tests share it: damage only your own copy, `unpack(name, tmp_path)`."""

    name: str
    path: Path  # the store's root: commitlog, consumequeue, index, ...

    @cached_property
    def about(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.about.json").read_text())

    @cached_property
    def expected(self) -> list[dict[str, Any]]:
        """Every record of the commit log in log order, including blanks; only for WHOLE stores."""
        with lzma.open(FOLDER / f"{self.name}.expected.jsonl.xz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The expected records without the blanks."""
        return [record for record in self.expected if record["magic"] != "blank"]

    @cached_property
    def queries(self) -> dict[str, Any]:
        """RocketMQ's answers to queries by queue, key, time and offset; only for WHOLE stores."""
        with lzma.open(FOLDER / f"{self.name}.queries.json.xz", "rt", encoding="utf-8") as answers:
            told: dict[str, Any] = json.load(answers)
            return told

    @cached_property
    def recovered(self) -> dict[str, Any]:
        """What RocketMQ's recovery left of a copy; only for DAMAGED stores."""
        return json.loads((FOLDER / f"{self.name}.recovered.json").read_text())

    @cached_property
    def config(self) -> Any:
        """The StoreConfig of the settings that RocketMQ used, as far as rocketc has them."""
        from rocketc.config import StoreConfig  # here, so that conftest.py can report that nothing is built

        lines = [f"{key}={value}" for key, value in self.about["config"].items()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return StoreConfig.from_properties(io.StringIO("\n".join(lines)))

    @property
    def batch_topics(self) -> set[str]:
        """Topics with batch queues."""
        folder = self.path / "batchconsumequeue"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    @property
    def log_files(self) -> list[Path]:
        return sorted((self.path / "commitlog").iterdir())


def unpack(name: str, folder: Path) -> GoldenStore:
    """Unpack a golden store to folder/name. tarfile restores the archive's holes, and sets times last."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # early releases of 3.10 and 3.11
            archive.extractall(folder)
    return GoldenStore(name, folder / name)


def lose_end(root: Path, how: str) -> None:
    """Remove the last file of a log that has content: "deleted", or "zeroed"."""
    last = [path for path in sorted((root / "commitlog").iterdir()) if path.read_bytes().strip(b"\0")][-1]
    if how == "deleted":
        last.unlink()
    else:
        last.write_bytes(bytes(last.stat().st_size))
