"""Which Python Spark's workers run. The driver checks it before the first task, where the error is one line."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import warnings
from typing import Any

_PROBE = "import sys, rocketc; print(*sys.version_info[:2], sep='.')"
_TIMEOUT_S = 30
_SETTING = "spark.sql.execution.pyspark.python"


def check_worker_python() -> None:
    """Raise ImportError if a local Spark session of this process starts workers that do not have rocketc.

    Does nothing in a process without a session, such as a worker, and with Spark Connect. Workers of a cluster may run
    on other machines, so they are not checked.
    """
    error = worker_python_error()
    if error:
        raise ImportError(error)


def warn_about_worker_python() -> None:
    """Warn instead. format("rocketmq") runs no code of rocketc in the driver that could raise the error."""
    error = worker_python_error()
    if error:
        warnings.warn(error, RuntimeWarning, stacklevel=4)  # the import of rocketc


def worker_python_error() -> str | None:
    """Return what is wrong with the Python of the workers, and what to do; None if nothing is."""
    context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if context is None or not re.fullmatch(r"local(\[.*\])?", context.master):
        return None
    python = _of_session() or str(context.pythonExec)
    path = shutil.which(python)
    if path is not None and os.path.abspath(path) == os.path.abspath(sys.executable):
        return None
    wrong = _cannot_run(path) if path is not None else "which is not in the PATH"
    if wrong is None:
        return None
    shown = python if path in (None, python) else f"{python} ({path})"
    advice = "" if "PYSPARK_PYTHON" in os.environ else ", or import rocketc before it"
    return (
        f"Spark's workers run {shown}, {wrong}; set PYSPARK_PYTHON={sys.executable} before the session starts{advice}"
    )


def _of_session() -> Any:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return session.conf.get(_SETTING, None) if session is not None else None


@functools.cache
def _cannot_run(path: str) -> str | None:
    """Return why workers that run this Python would fail; None if they would not, or if it takes too long to tell."""
    try:
        done = subprocess.run(
            [path, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return f"which cannot be started ({error.strerror})"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return f"which cannot import rocketc ({lines[-1] if lines else f'exit code {done.returncode}'})"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    theirs = done.stdout.strip()
    return None if theirs == ours else f"which is Python {theirs}, but the driver's is {ours}"
