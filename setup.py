"""Build one extension module for each pyx/rocketc/**/_*.pyx. All else about the package stands in pyproject.toml.

Switches, by environment; each is on unless empty or 0:
  ROCKETC_DEBUG      bounds checks, asserts, -O0 -g
  ROCKETC_SANITIZE   address and undefined-behaviour sanitizers; run with libasan preloaded (tools/sanitize.sh);
                     "thread": the thread sanitizer instead, with libtsan
                     "fuzz": they, and what guides the fuzzer, by clang; see tools/fuzz.sh
  ROCKETC_POINTS     the process can be ended inside a write into a map; see tests/crash/test_points.py
  ROCKETC_WERROR     a C compiler warning is an error
  ROCKETC_MODULES    full names of the modules to build, with blanks between; not set: all; "none": none
Each mix of switches has a build folder of its own, so that going back and forth compiles nothing twice.
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
    """The dotted name of the module that a Cython file is compiled to: its path below pyx/."""
    return os.path.splitext(os.path.relpath(path, "pyx"))[0].replace(os.sep, ".")


# The order of the names does not depend on the file system. A glob that matches nothing would build an empty package.
SOURCES = sorted(glob("pyx/rocketc/**/_*.pyx", recursive=True))
HEADERS = sorted(glob("include/rocketc/*.h"))
if len(SOURCES) < 50 or len(HEADERS) < 15:
    sys.exit(f"rocketc: {len(SOURCES)} Cython modules and {len(HEADERS)} headers found: is this a whole source tree?")


DEBUG = switch("ROCKETC_DEBUG")
POINTS = switch("ROCKETC_POINTS")
SANITIZE = switch("ROCKETC_SANITIZE")
THREAD = os.environ.get("ROCKETC_SANITIZE") == "thread"
FUZZ = os.environ.get("ROCKETC_SANITIZE") == "fuzz"
ONLY = os.environ.get("ROCKETC_MODULES", "").split()
SANITIZED = "fuzz" if FUZZ else "sanitize" + "-thread" * THREAD
BUILD = "/".join(["build"] + ["debug"] * DEBUG + ["points"] * POINTS + [SANITIZED] * SANITIZE)

# Python's own headers as system headers: their conversions (3.13) are not ours to mend.
compile_args = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wconversion", "-isystem", sysconfig.get_path("include")]
link_args = []
macros = [("CYTHON_WITHOUT_ASSERTIONS", None)]
if DEBUG:
    compile_args += ["-O0", "-g", "-UNDEBUG"]
    macros = []
elif not SANITIZE and "-g" not in os.environ.get("CFLAGS", "").split():
    compile_args.append("-g0")  # Python's flags say -g: nine tenths of each file would be for debuggers
if POINTS:
    macros.append(("ROCKETC_POINTS", None))
if SANITIZE:
    sanitizers = "-fsanitize=thread" if THREAD else "-fsanitize=address,undefined"
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined", sanitizers]
    link_args += [sanitizers]
if FUZZ:
    # The sanitizers come with the fuzzer, which is preloaded. clang warns of more than gcc, in what Cython writes.
    compile_args += ["-fsanitize=fuzzer-no-link", "-w", "-gline-tables-only"]
    link_args = []
if switch("ROCKETC_WERROR"):
    compile_args += ["-Werror"]

extensions = [
    Extension(
        module_name(path),
        [path],
        include_dirs=["include"],
        depends=["setup.py", *HEADERS],  # Cython itself follows the .pxd files
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
