"""Libraries that are loaded before libc, so that tests see a store's system calls or make them fail."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_built: dict[Path, Path] = {}


def built(source: Path) -> Path:
    """Compile a C file to a library, once a session; skip the test where that is not possible."""
    if sys.platform != "linux" or not shutil.which("cc"):
        pytest.skip("needs Linux and a C compiler")
    if source not in _built:
        path = Path(tempfile.mkdtemp(), source.with_suffix(".so").name)
        command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", str(source), "-o", str(path), "-ldl"]
        subprocess.run(command, check=True)
        _built[source] = path
    return _built[source]


def loading(library: Path) -> str:
    """LD_PRELOAD for a process that loads the library; a sanitizer's library stays first."""
    return f"{os.environ['LD_PRELOAD']} {library}" if os.environ.get("LD_PRELOAD") else str(library)
