"""A module imports only from lower floors. A new module gets its place in FLOORS, as low as it can stand."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A package (cli, spark) is one module here: its files may import one another. Floor 2 also holds, by itself, each
# extern .pxd that has a header of its name.
FLOORS = """
    0   status shown machine holes
    1   errors ids config copying
    2   disk_use blocks codecs durable patterns
    3   running derived_files _shape _status config_tables remote
    4   kept_table _guard _locks _queue_folders _queue_offsets _record
    5   topics groups offset_tables _append_file _draft _filter _index_part _mapped_file _message _move
    6   cleaning _gone_topics _rows _file_queue _checkpoint _ledger _log_bytes
    7   deleted_topics _allocator _mapped_file_queue _arrow _columns _consume_queue_ext _index_file _queue_units _walk
    8   _answers _consume_queue_read _java_walk _flusher _index_row _reader _tally _audit _recover
    9   _consume_queue_write
    10  _commit_log _consume_queue _key_index paths arrow
    11  cut _queue_table _row_writer _times scan _bodies _put_result
    12  _loaded_queues _puts export tally
    13  _consume_queues
    14  _known_records caretaker recovery _dispatch _reads
    15  catch_up _derived_audit _lookups _reput
    16  _gets verify_derived alarms
    17  _store verify
    18  futures positions
    19  following consumer
    20  store
    21  queue rebuild metrics
    22  spark salvage_files
    23  salvage
    24  __init__
    25  cli
    26  notebook
    27  __main__
"""
HEADERS = sorted((ROOT / "include/rocketc").glob("*.h"))
FLOOR = {f"_{header.stem}": 2 for header in HEADERS}
FLOOR |= {name: int(floor) for floor, *names in map(str.split, FLOORS.strip().splitlines()) for name in names}

CYTHON = sorted((ROOT / "pyx/rocketc").glob("_[!_]*.p[xy]*"))
PYTHON = sorted((ROOT / "rocketc").rglob("*.py"))


def python_module(path: Path) -> str:
    """The module of ours that a Python file belongs to: rocketc/cli/main.py is `cli`."""
    return path.relative_to(ROOT / "rocketc").with_suffix("").parts[0]


def is_module(name: str) -> bool:
    return name in {*FLOOR, *(path.stem for path in CYTHON), *map(python_module, PYTHON)}


def module_of(dotted: str, name: str = "") -> str | None:
    """Whose name is it in `import dotted` or `from dotted import name`? None: not ours."""
    package, *rest = dotted.split(".")
    if package != "rocketc":
        return None
    if rest:
        return rest[0]
    return name if is_module(name) else "__init__"


def cython_imports(text: str) -> Iterator[str | None]:
    for dotted, names in re.findall(r"^\s*from\s+(rocketc[\w.]*)\s+c?import\s+(\([^)]*\)|.*)", text, re.M):
        for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|$|\))", re.sub(r"#.*", "", names)):
            yield module_of(dotted, name)
    for dotted in re.findall(r"^\s*c?import\s+(rocketc[\w.]*)", text, re.M):
        yield module_of(dotted)


def python_imports(text: str, path: Path) -> Iterator[str | None]:
    folder = ("rocketc", *path.relative_to(ROOT / "rocketc").parts[:-1])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield module_of(alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = list(folder[: len(folder) - node.level + 1]) if node.level else []
            dotted = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield module_of(dotted, alias.name)


def not_lower(module: str, imports: Iterator[str | None]) -> list[str]:
    """Those of the imports that are on the module's own floor or above it."""
    used = {name for name in imports if name is not None and name != module}
    return sorted(name for name in used if FLOOR[name] >= FLOOR[module])


@pytest.mark.parametrize("path", [*CYTHON, *PYTHON], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_a_higher_floor(path):
    text = path.read_text(encoding="utf-8")
    if path in CYTHON:
        module, imports = path.stem, cython_imports(text)
    else:
        module, imports = python_module(path), python_imports(text, path)
    assert module in FLOOR, "give it a floor in FLOORS"
    assert not_lower(module, imports) == []


def test_no_floor_has_a_module_that_is_gone():
    there = {*(path.stem for path in CYTHON), *map(python_module, PYTHON), *(f"_{h.stem}" for h in HEADERS)}
    assert FLOOR.keys() <= there


def test_imports_are_seen():
    text = "from rocketc._record cimport encode, RC_OK\n    from rocketc import scan, make\ncimport rocketc._status\n"
    assert list(cython_imports(text)) == ["_record", "_record", "scan", "__init__", "_status"]
    text = "from rocketc cimport (\n    _record,  # why\n    _status as s,\n)\n"
    assert list(cython_imports(text)) == ["_record", "_status"]
    text = "import rocketc.scan\nfrom . import x\nfrom .. import paths\nfrom ..scan import Scan\nimport re\n"
    seen = list(python_imports(text, ROOT / "rocketc/cli/cat.py"))
    assert seen == ["scan", "cli", "paths", "scan", None]


def test_a_higher_floor_is_refused():
    assert not_lower("_record", iter(["_status", "_columns", "_locks", "_record", None])) == ["_columns", "_locks"]
