"""bench/native.c as a library, kept in build/bench-native; compiled again when it or a header changes."""

import ctypes
import os
import shlex
import subprocess
from ctypes import POINTER, c_char_p, c_double, c_int, c_long, c_size_t, c_uint32, c_void_p
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCE = HERE / "native.c"
LIBRARY = ROOT / "build" / "bench-native" / "native.so"
FLAGS = ["-std=gnu11", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared"]


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def build() -> Path:
    sources = [SOURCE, *(ROOT / "include" / "rocketc").glob("*.h")]
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        LIBRARY.parent.mkdir(parents=True, exist_ok=True)
        fresh = LIBRARY.with_suffix(f".{os.getpid()}")
        subprocess.run([*compiler(), *FLAGS, f"-I{ROOT / 'include'}", "-o", fresh, SOURCE], check=True)
        fresh.rename(LIBRARY)
    return LIBRARY


def load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build()))
    for name, result, *arguments in (
        ("bench_crc32", c_double, c_int, c_void_p, c_size_t, c_long, POINTER(c_uint32)),
        ("bench_zlib", c_double, c_void_p, c_void_p, c_size_t, c_long, POINTER(c_uint32)),
        ("bench_memcpy", c_double, c_void_p, c_void_p, c_size_t, c_long),
        ("bench_count", c_int),
        ("bench_counted", c_int, c_char_p),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
