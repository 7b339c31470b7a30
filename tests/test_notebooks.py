"""The notebooks of examples/ are run cell by cell, and their output is compared (tools/site/notebooks.py)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import ROOT

import rocketc

NOTEBOOKS = sorted(ROOT.glob("examples/notebooks/*.ipynb"))
WITH_SPARK = {"joins", "stream"}
SPARK = [pytest.mark.spark, pytest.mark.long]


def check(path, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(Path(rocketc.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(ROOT / "tools/site/notebooks.py"), "--check", str(path)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem, marks=SPARK * (p.stem in WITH_SPARK)) for p in NOTEBOOKS])
def test_notebook(path, tmp_path):
    done = check(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_was_run(path):
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) / 2
    assert "/tmp/" not in text


def test_differences_are_reported(tmp_path):
    def cell(source, *printed):
        outputs = [{"output_type": "stream", "name": "stdout", "text": [*printed]}] if printed else []
        return {"cell_type": "code", "source": [source], "outputs": outputs}

    path = tmp_path / "some.ipynb"
    path.write_text(json.dumps({"cells": [cell("a = 1"), cell("print(a)", "1\n"), cell("print(a + 1)", "3\n")]}))
    done = check(path, tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "the output of cell 3 is not the stored one" in done.stdout and "-3\n+2\n" in done.stdout
    assert "cell 2" not in done.stdout
