"""Build one extension module per pyx/rocketc/**/_*.pyx. Everything else about the package is in pyproject.toml.

Switches are environment variables; each is on unless it is empty or 0:
  ROCKETC_DEBUG      bounds checks, asserts, -O0 -g
  ROCKETC_SANITIZE   address and undefined-behavior sanitizers; run with libasan preloaded (tools/sanitize.sh);
                     "thread": the thread sanitizer instead, with libtsan
                     "fuzz": the sanitizers and coverage for the fuzzer, with clang; see tools/fuzz.sh
  ROCKETC_POINTS     tests can end the process inside a write to a map; see tests/crash/test_points.py
  ROCKETC_WERROR     a C compiler warning is an error
  ROCKETC_MODULES    full names of the modules to build, separated by blanks; default: all; "none": no module
Each combination of switches has its own build folder, so that changing switches does not compile everything again.
"""

import os
import sys
import sysconfig
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.byteorder != "little":
    sys.exit("rocketc: this host is big-endian; the headers swap bytes for little-endian hosts only")


def switch(name):
    return os.environ.get(name, "0") not in ("", "0")


def module_name(path):
    """Return the dotted module name of a Cython file, from its path below pyx/."""
    return os.path.splitext(os.path.relpath(path, "pyx"))[0].replace(os.sep, ".")


# Sorted: the file system must not decide the order. Without the check, a wrong folder would build an empty package.
SOURCES = sorted(glob("pyx/rocketc/**/_*.pyx", recursive=True))
HEADERS = sorted(glob("include/rocketc/*.h"))
if len(SOURCES) < 50 or len(HEADERS) < 15:
    sys.exit(f"rocketc: {len(SOURCES)} Cython modules and {len(HEADERS)} headers found: is the source tree complete?")


DEBUG = switch("ROCKETC_DEBUG")
POINTS = switch("ROCKETC_POINTS")
SANITIZE = switch("ROCKETC_SANITIZE")
THREAD = os.environ.get("ROCKETC_SANITIZE") == "thread"
FUZZ = os.environ.get("ROCKETC_SANITIZE") == "fuzz"
ONLY = os.environ.get("ROCKETC_MODULES", "").split()
SANITIZED = "fuzz" if FUZZ else "sanitize" + "-thread" * THREAD
BUILD = "/".join(["build"] + ["debug"] * DEBUG + ["points"] * POINTS + [SANITIZED] * SANITIZE)

# Python's headers are system headers: their conversions (3.13) must not cause warnings.
compile_args = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wconversion", "-isystem", sysconfig.get_path("include")]
link_args = []
macros = [("CYTHON_WITHOUT_ASSERTIONS", None)]
if DEBUG:
    compile_args += ["-O0", "-g", "-UNDEBUG"]
    macros = []
elif not SANITIZE and "-g" not in os.environ.get("CFLAGS", "").split():
    compile_args.append("-g0")  # Python's flags have -g; debug information would be 90 % of each file
if POINTS:
    macros.append(("ROCKETC_POINTS", None))
if SANITIZE:
    sanitizers = "-fsanitize=thread" if THREAD else "-fsanitize=address,undefined"
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined", sanitizers]
    link_args += [sanitizers]
if FUZZ:
    # The preloaded fuzzer contains the sanitizers. -w: clang has more warnings than gcc for Cython's C code.
    compile_args += ["-fsanitize=fuzzer-no-link", "-w", "-gline-tables-only"]
    link_args = []
if switch("ROCKETC_WERROR"):
    compile_args += ["-Werror"]

extensions = [
    Extension(
        module_name(path),
        [path],
        include_dirs=["include"],
        depends=["setup.py", *HEADERS],  # Cython tracks the .pxd files itself
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for path in SOURCES
    if not ONLY or module_name(path) in ONLY
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["pyx"],
        build_dir=BUILD,
        quiet=True,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "initializedcheck": DEBUG,
            "cdivision": True,
            "embedsignature": True,
        },
    ),
    options={"build": {"build_base": BUILD}},
)
