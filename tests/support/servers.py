"""Servers and notebooks of others, in which tests run rocketc: tools/setup.sh workers installs them."""

import os
import sys

import pytest

from support.pages import ROOT

SERVERS = ROOT / "build/workers"


def environment(module, *folders, **others):
    """The environment of a process that has a module of theirs. Skips where it is not installed.

    folders  for imports, before all others
    others   more variables
    """
    if not (SERVERS / module).exists():
        pytest.skip(f"{module} is not installed: tools/setup.sh workers")
    paths = [*map(str, folders), str(SERVERS), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **others}
