"""docs/architecture.md: its drawing names each module once, and no module uses one of a layer above its own."""

import re

import pytest
from test_floors import CYTHON, PYTHON, ROOT, cython_imports, python_imports, python_module

PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
HEADERS = {path.name for path in (ROOT / "include/rocketc").glob("*.h")}
FRAME = ("│", "├", "┌", "└")


def layers() -> list[tuple[str, list[str]]]:
    """(layer, what stands in it), from below."""
    found: list[tuple[str, list[str]]] = []
    for line in PAGE.partition("```")[2].partition("```")[0].splitlines():
        if not line.startswith("│"):
            continue
        names = re.findall(r"[\w.]+", line)
        if line[2] != " ":
            found.append((names.pop(0), []))
        found[-1][1].extend(names)
    return found[::-1]


LAYER = {name: number for number, (_, names) in enumerate(layers()) for name in names}
LAYER |= {f"_{name[:-2]}": number for name, number in LAYER.items() if name in HEADERS and f"_{name[:-2]}" not in LAYER}


def test_the_drawing_names_each_module_once():
    named = [name for _, names in layers() for name in names]
    there = {*(path.stem for path in CYTHON if path.suffix == ".pyx"), *map(python_module, PYTHON), *HEADERS}
    assert sorted(named) == sorted(there)
    assert all(f"**{layer}**" in PAGE for layer, _ in layers())


@pytest.mark.parametrize("layer", [layer for layer, _ in layers()])
def test_a_layer_uses_none_above_it(layer):
    wrong = []
    for path in [*CYTHON, *PYTHON]:
        text = path.read_text(encoding="utf-8")
        module = path.stem if path in CYTHON else python_module(path)
        if module not in dict(layers())[layer]:
            continue
        for used in cython_imports(text) if path in CYTHON else python_imports(text, path):
            if used is not None and LAYER[used] > LAYER[module]:
                wrong.append((path.name, used))
    assert wrong == []


def test_the_drawing_is_straight():
    """Each line of the frame is as long as the others."""
    drawing = PAGE.partition("```")[2].partition("```")[0].splitlines()
    assert len({len(line) for line in drawing if line.startswith(FRAME)}) == 1
