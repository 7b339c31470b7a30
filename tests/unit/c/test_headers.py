"""Each header compiles alone and when it is included twice, without a warning."""

import os
import subprocess
from pathlib import Path

import pytest
from support import sources

ROOT = Path(__file__).parents[3]
HEADERS = [path.name for path in sources.HEADERS]
# _GNU_SOURCE: defined by Python.h, which each module includes first.
FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Wundef",
    "-Wstrict-prototypes",
    "-Werror",
]


@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize("name", HEADERS)
def test_header_compiles_alone(tmp_path, name, level):
    source = tmp_path / "alone.c"
    source.write_text(f'#include "rocketc/{name}"\n#include "rocketc/{name}"\n')
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, *FLAGS, level, "-I", ROOT / "include", "-c", source, "-o", tmp_path / "alone.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_uses_only_bytes_and_numbers(name):
    text = (ROOT / "include/rocketc" / name).read_text()
    assert "Python.h" not in text
