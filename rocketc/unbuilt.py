"""Why the extension modules of a rocketc package cannot be imported, and what to do.

Knows folders and archives of Python's path. Uses the standard library only: nothing else of rocketc can be imported.
"""

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path


def why(error: ImportError, spec: ModuleSpec) -> str:
    """Return the text of an ImportError.

    error  what the import of an extension module raised
    spec   of the package rocketc that Python found first

    >>> from types import SimpleNamespace
    >>> why(ImportError(), ModuleSpec("rocketc", SimpleNamespace(archive="rocketc.whl"))).partition(",")[0]
    'rocketc is imported from the archive rocketc.whl'
    """
    if archive := getattr(spec.loader, "archive", None):  # of a zipimporter
        return (
            f"rocketc is imported from the archive {archive}, but Python can't load extension modules from an archive; "
            "install the wheel, or in Spark send it with --archives instead of --py-files"
        )
    package = Path(next(iter(spec.submodule_search_locations or ()), ""))
    if other := _installed_elsewhere(package):
        return (
            f"Python imports rocketc from the folder {package}, where its extension modules are not built, instead of "
            f"the rocketc that is installed in {other}; run Python in another folder, or build this one: make setup"
        )
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}, {sys.executable}"
    if any(package.glob("read/_message.*.so")):
        what = f"rocketc's extension modules in {package} do not fit this Python ({error})"
    else:
        what = f"rocketc's extension modules in {package} are not built"
    return f"{what}: run `make setup` or `pip install .` with {python}"


def _installed_elsewhere(package: Path) -> Path | None:
    """The first other rocketc in Python's path whose extension modules fit this Python."""
    for folder in sys.path:
        other = Path(folder).absolute() / "rocketc"
        fits = any((other / f"read/_message{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
        if fits and not other.samefile(package):
            return other
    return None
