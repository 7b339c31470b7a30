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
        for name in ("__init__.py", "read/__init__.py"):
            wheel.write(package / name, f"rocketc/{name}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'rocketc.whl')!r}); import rocketc"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: rocketc is imported from the archive {tmp_path / 'rocketc.whl'}, "
        "but Python can't load extension modules from an archive; "
        "install the wheel, or in Spark send it with --archives instead of --py-files"
    )
    assert "_message" not in done.stderr
