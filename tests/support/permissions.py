"""Make permissions of files apply in tests that run as root. Otherwise root may read everything."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_VERSION_3 = 0x20080522  # of the kernel's struct: two words for each set
_READS_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


@contextmanager
def applied() -> Iterator[None]:
    """Within the block, a file of mode 0 can't be opened, also by root: neither in this thread nor in threads that it
    starts. Only in this process: root has all rights again in a program that it starts."""
    if os.geteuid() != 0:
        yield
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("root may read every file here")
    before = _get()
    _set(before[0] & ~_READS_ALL, *before[1:])
    try:
        yield
    finally:
        _set(*before)


@contextmanager
def unreadable(*paths: Path) -> Iterator[None]:
    """Within the block, these files and folders can't be read, and permissions are applied()."""
    modes = {path: path.stat().st_mode & 0o7777 for path in paths}
    for path in paths:
        path.chmod(0)
    try:
        with applied():
            yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def _call(name: str, words: "ctypes.Array[ctypes.c_uint32]") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    if getattr(libc, name)(header, words) != 0:
        pytest.skip(f"{name}: {os.strerror(ctypes.get_errno())}")


def _get() -> tuple[int, ...]:
    """Return the sets of capabilities of this thread: effective, permitted and inheritable, each in two words."""
    words = (ctypes.c_uint32 * 6)()
    _call("capget", words)
    return tuple(words)


def _set(*words: int) -> None:
    _call("capset", (ctypes.c_uint32 * 6)(*words))
