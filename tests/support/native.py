"""The functions and constants of the C headers, as the extern .pxd files list them, for tests to call through ctypes.

`native.rc_get_i16(b"..")` calls the header's function: a library of wrappers, one for each name of a .pxd, is compiled
for all processes. `native.RC_OK` is a constant. Bytes after or before the memory that a function may use can be fenced:
see Fence.
"""

import ctypes
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from support.compiled import ROOT, compiled
from support.sources import CYTHON

NUMBERS = {
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "uint8_t": ctypes.c_uint8,
    "int16_t": ctypes.c_int16,
    "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "uintptr_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "void": None,
}


class Pair(ctypes.Structure):
    """rc_pair"""

    _fields_ = [(name, ctypes.c_int32) for name in ("name", "name_end", "value", "value_end")]


class Shape(ctypes.Structure):
    """rc_shape"""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("len", "count", "keys", "tags")),
        ("pairs", Pair * 16),
        ("names_len", ctypes.c_int32),
        ("name_ends", ctypes.c_int32 * 16),
        *((name, ctypes.c_uint8 * 256) for name in ("names", "bytes", "fixed", "value")),
    ]


class Listed:
    """The names of a header that its extern .pxd lists."""

    def __init__(self, path: Path) -> None:
        text = re.sub(r"#.*", "", path.read_text())
        [(self.header, body)] = re.findall(r'cdef extern from "rocketc/(\w+\.h)" nogil:\n(.*?)(?=\n\S|\Z)', text, re.S)
        self.constants = re.findall(r"^\s+(RC_\w+)$", body, re.M)
        self.texts = re.findall(r"^\s+const char\* (RC_\w+)$", body, re.M)
        # result, name, arguments
        self.functions = re.findall(r"^    (?!ctypedef)([\w *]+?) (rc_\w+)\((.*)\) noexcept", body, re.M)


def _has_header(path: Path) -> bool:
    return 'cdef extern from "rocketc/' in path.read_text()


LISTED = [Listed(path) for path in CYTHON if path.suffix == ".pxd" and _has_header(path)]
assert len(LISTED) >= 15


def _source() -> str:
    lines = [f'#include "rocketc/{listed.header}"' for listed in LISTED]
    for listed in LISTED:
        for name in listed.constants:
            lines.append(f"long long x_{name}(void) {{ return {name}; }}")
        for name in listed.texts:
            lines.append(f"const char *x_{name}(void) {{ return {name}; }}")
        for result, name, arguments in listed.functions:
            names = ", ".join(re.findall(r"(\w+)(?:,|$)", arguments))
            back = "" if result == "void" else "return "
            lines.append(f"{result} x_{name}({arguments or 'void'}) {{ {back}{name}({names}); }}")
    return "\n".join(lines) + "\n"


def sanitized() -> bool:
    """Whether the tests run under the sanitizers: then a wrapper library is built with them too."""
    return "libasan" in os.environ.get("LD_PRELOAD", "")


def compile_library(source: str) -> str:
    command = [*os.environ.get("CC", "cc").split(), "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-Werror"]
    if sanitized():
        command += ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    command += ["-I", str(ROOT / "include")]

    def make(folder: Path, library: Path) -> None:
        path = folder / "native.c"
        path.write_text(source)
        done = subprocess.run([*command, str(path), "-o", str(library)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return str(compiled("native.so", [source.encode()], command, make))


def _ctype(text: str) -> object:
    text = text.replace("const ", "").strip()
    return ctypes.c_void_p if text.endswith("*") or text in ("rc_crc32_fn", "rc_service_run") else NUMBERS[text]


class Native:
    """The compiled library. A pointer argument takes bytes, a ctypes array, an address, or None."""

    def __init__(self) -> None:
        library = ctypes.CDLL(compile_library(_source()), use_errno=True)
        for listed in LISTED:
            for name in listed.constants + listed.texts:
                function = library[f"x_{name}"]
                function.restype = ctypes.c_char_p if name in listed.texts else ctypes.c_longlong
                setattr(self, name, function())
            for result, name, arguments in listed.functions:
                function = library[f"x_{name}"]
                function.restype = _ctype(result)
                types = [re.sub(r"\w+$", "", argument) for argument in arguments.split(",")] if arguments else []
                function.argtypes = [_ctype(type) for type in types]
                setattr(self, name, function)


class Fence:
    """Memory between two protected pages: an access one byte before or after it ends the process.

    Use it within `in_child`.
    """

    PAGE = os.sysconf("SC_PAGESIZE")

    def __init__(self, pages: int = 2) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.size = pages * self.PAGE
        anonymous = 0x1002 if sys.platform == "darwin" else 0x22
        whole = libc.mmap(None, self.size + 2 * self.PAGE, 0, anonymous, -1, 0)  # without access
        assert whole not in (None, ctypes.c_void_p(-1).value)
        self.start = whole + self.PAGE
        self.end = self.start + self.size
        assert libc.mprotect(self.start, self.size, 3) == 0

    def at_end(self, data: bytes) -> int:
        """The address of a copy of data that ends at the protected page."""
        ctypes.memmove(self.end - len(data), data, len(data))
        return self.end - len(data)

    def at_start(self, data: bytes) -> int:
        """The address of a copy of data that begins right after the protected page."""
        ctypes.memmove(self.start, data, len(data))
        return self.start


def in_child(check: Callable[[], object]) -> None:
    """Run a check in a forked child, so that its crash is a failed test and does not end the run."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"the child died of signal {os.WTERMSIG(status)}"
    assert os.WEXITSTATUS(status) == 0, "see stderr"


native = Native()
