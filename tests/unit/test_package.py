"""The package: names are loaded when they are first used, and a type checker sees the same names."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rocketc


def typed_imports() -> dict[str, tuple[str, str]]:
    """The names that __init__.py imports for a type checker, each with its module and its name there."""
    tree = ast.parse(Path(rocketc.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {
        alias.asname or alias.name: (str(node.module).removeprefix("rocketc."), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_a_type_checker_sees_the_names_that_are_loaded():
    packages = {name: ("rocketc", name) for name in rocketc._PACKAGES}
    assert typed_imports() == rocketc._HOME_OF | packages


def test_every_public_name_has_a_home():
    assert sorted([*rocketc._HOME_OF, "Message"]) == sorted(rocketc.__all__)


@pytest.mark.parametrize("name", {module: name for name, (module, _) in rocketc._HOME_OF.items()}.values())
def test_each_module_can_be_loaded_first(name):
    done = subprocess.run([sys.executable, "-c", f"import rocketc; rocketc.{name}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["client", "ha", "metrics"])
def test_a_package_is_loaded_when_it_is_used(name):
    code = f"import rocketc, sys; assert 'rocketc.{name}' not in sys.modules; print(rocketc.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"rocketc.{name}\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'rocketc' does not have an attribute 'Massage'"):
        rocketc.Massage  # noqa: B018


def test_dir_lists_names_that_are_not_loaded_yet():
    code = (
        "import sys, rocketc; assert set(rocketc.__all__) <= set(dir(rocketc)); print('rocketc.store' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_an_archive_in_the_path_says_why_it_cannot_be_imported(tmp_path):
    """Spark's --py-files puts a wheel into the path in this way."""
    package = Path(rocketc.__file__).parent
    with zipfile.ZipFile(tmp_path / "rocketc.whl", "w") as wheel:
        for name in ("__init__.py", "unbuilt.py", "read/__init__.py"):
            wheel.write(package / name, f"rocketc/{name}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'rocketc.whl')!r}); import rocketc"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: rocketc is imported from the archive {tmp_path / 'rocketc.whl'}, "
        "but Python can't load extension modules from an archive; "
        "install the wheel, or in Spark send it with --archives instead of --py-files"
    )
    assert "_message" not in done.stderr


@pytest.fixture
def sources(tmp_path):
    """A folder with the sources of rocketc, as far as an import reads them; its modules are not built."""
    package = Path(rocketc.__file__).parent
    folder = tmp_path / "clone"
    for name in ("__init__.py", "unbuilt.py", "read/__init__.py"):
        (folder / "rocketc" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "rocketc" / name).write_bytes((package / name).read_bytes())
    return folder


def import_error(folder, *path):
    code = f"import sys; sys.path[:] = {['', *map(str, path)]} + sys.path; import rocketc"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.stderr.count("Traceback") == 1
    return done.stderr.splitlines()[-1]


PYTHON = f"Python {sys.version_info[0]}.{sys.version_info[1]}, {sys.executable}"


def test_sources_that_are_not_built_say_what_to_run(sources):
    assert import_error(sources) == (
        f"ImportError: rocketc's extension modules in {sources}/rocketc are not built: "
        f"run `make setup` or `pip install .` with {PYTHON}"
    )


def test_sources_in_front_of_an_installed_rocketc_name_it(sources):
    """`pip install .` in a clone, and then Python in the same folder."""
    installed = Path(rocketc.__file__).parents[1]
    assert import_error(sources, sources, installed) == (
        f"ImportError: Python imports rocketc from the folder {sources}/rocketc, where its extension modules are not "
        f"built, instead of the rocketc that is installed in {installed}/rocketc; run Python in another folder, "
        "or build this one: make setup"
    )


def test_modules_of_another_python_are_named(sources):
    (sources / "rocketc/read/_message.cpython-27-x86_64-linux-gnu.so").touch()
    line = import_error(sources)
    assert f"rocketc's extension modules in {sources}/rocketc do not fit this Python (No module named " in line
    assert line.endswith(f"): run `make setup` or `pip install .` with {PYTHON}")
