"""The project's source files, for tests that read them, in folders of any depth.

With a pattern that matches nothing such a test would pass without checking anything, so each list has a minimum.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def found(folder: str, pattern: str, at_least: int) -> list[Path]:
    """The files below a folder of the project whose name matches, sorted; fails if there are fewer than at_least."""
    paths = sorted((ROOT / folder).rglob(pattern))
    assert len(paths) >= at_least, f"{len(paths)} files {pattern} below {folder}, not {at_least}"
    return paths


HEADERS = found("include/rocketc", "*.h", 18)
PYX = found("pyx/rocketc", "_*.pyx", 50)
CYTHON = sorted([*PYX, *(path for path in found("pyx/rocketc", "*.pxd", 60) if path.stem != "__init__")])
PYTHON = found("rocketc", "*.py", 100)


def module_of(path: Path) -> str:
    """The dotted name of the module that a Python or Cython file is, or belongs to: rocketc.format._record."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "pyx" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
