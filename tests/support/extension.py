"""Extension modules for tests: they call the package's C interfaces from outside of it.

`extension.load("puts")` compiles tests/native/puts.pyx against the `.pxd` files and the headers, as another project
would, and imports it.
"""

import functools
import importlib.util
import shlex
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

import Cython

from support.compiled import ROOT, compiled

WARNINGS = ("-Wall", "-Wextra", "-Werror")


@functools.cache
def load(name: str) -> ModuleType:
    """The module of tests/native/<name>.pyx."""
    source = ROOT / "tests" / "native" / f"{name}.pyx"
    command = shlex.split(sysconfig.get_config_var("CC")) + ["-shared", "-fPIC", "-std=c11", "-O1", *WARNINGS]
    command += [f"-I{ROOT / 'include'}", "-isystem", sysconfig.get_path("include")]

    def make(folder: Path, library: Path) -> None:
        from Cython.Compiler.Main import CompilationOptions, compile_single

        options = CompilationOptions(
            include_path=[str(ROOT / "pyx")], output_file=str(folder / f"{name}.c"), language_level=3
        )
        result = compile_single(str(source), options, full_module_name=name)
        assert result.num_errors == 0, f"{source} does not compile"
        subprocess.run([*command, "-o", library, folder / f"{name}.c"], check=True, cwd=folder)

    file = name + sysconfig.get_config_var("EXT_SUFFIX")
    library = compiled(file, [source.read_bytes()], [*command, Cython.__version__], make)
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
