"""A build whose process can end at named points inside writes into maps (rc_point), and the names of these points."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.sources import PYX, module_of

import rocketc

ROOT = Path(__file__).parents[2]
SOURCES = {module_of(path): path.read_text(encoding="utf-8") for path in PYX}
NAMES = {name for text in SOURCES.values() for name in re.findall(r'rc_point\(b"([^"]+)"\)', text)}


def build(folder: Path) -> Path:
    """Build the package with its points in a folder for PYTHONPATH; only modules with points are compiled again."""
    modules = " ".join(name for name, text in SOURCES.items() if "rc_point(" in text)
    env = {**os.environ, "ROCKETC_POINTS": "1", "ROCKETC_MODULES": modules}
    command = [sys.executable, "setup.py", "--quiet", "build", "--parallel", "2", "--build-lib", str(folder)]
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build/points.lock", "w") as lock:  # two builds at once would write the same objects
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here = Path(rocketc.__file__).parents[1]
    for path in here.glob("rocketc/**/_*.so"):
        target = folder / path.relative_to(here)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return folder
