"""Libraries that are loaded before libc, so that tests see the calls of the disk or let them fail."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_built: dict[Path, Path] = {}


def built(source: Path) -> Path:
    """The library made from a C file, once a session; skips where there can be none."""
    if sys.platform != "linux" or not shutil.which("cc"):
        pytest.skip("needs Linux and a C compiler")
    if source not in _built:
        path = Path(tempfile.mkdtemp(), source.with_suffix(".so").name)
        command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", str(source), "-o", str(path), "-ldl"]
        subprocess.run(command, check=True)
        _built[source] = path
    return _built[source]


def loading(library: Path) -> str:
    """LD_PRELOAD for a process that is to have it; a sanitizer's library stays the first."""
    return f"{os.environ['LD_PRELOAD']} {library}" if os.environ.get("LD_PRELOAD") else str(library)
