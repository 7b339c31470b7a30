"""Extension modules for tests: they call the package's C interfaces from outside of it.

`extension.load("puts")` compiles tests/native/puts.pyx against the `.pxd` files and the headers, as another project
would, and imports it. Each module is compiled once per session and process.
"""

import functools
import importlib.util
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
WARNINGS = ("-Wall", "-Wextra", "-Werror")


@functools.cache
def load(name: str) -> ModuleType:
    """The module of tests/native/<name>.pyx."""
    from Cython.Compiler.Main import CompilationOptions, compile_single

    source = ROOT / "tests" / "native" / f"{name}.pyx"
    with tempfile.TemporaryDirectory(prefix="rocketc-native-") as made:
        folder = Path(made)
        options = CompilationOptions(
            include_path=[str(ROOT / "pyx")], output_file=str(folder / f"{name}.c"), language_level=3
        )
        result = compile_single(str(source), options, full_module_name=name)
        assert result.num_errors == 0, f"{source} does not compile"
        library = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
        compiler = shlex.split(sysconfig.get_config_var("CC")) + ["-shared", "-fPIC", "-std=c11", "-O1", *WARNINGS]
        headers = [f"-I{ROOT / 'include'}", "-isystem", sysconfig.get_path("include")]
        subprocess.run([*compiler, *headers, "-o", library, folder / f"{name}.c"], check=True, cwd=folder)
        spec = importlib.util.spec_from_file_location(name, library)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
