"""Code without the GIL does not use Python's API, as the annotated C of each module shows.

Cython itself refuses most uses. It accepts calls that may raise, which take the GIL for each call's check or for a
traceback. Lines in a `with gil:` block are not checked: they handle errors.
"""

import html
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from support.sources import PYX, module_of

ROOT = Path(__file__).parents[1]
MODULES = [module_of(path) for path in PYX]
_LINE = re.compile(
    r'<pre class="cython line score-(\d+)"[^>]*>(?:\+|&#xA0;)<span class="">(\d+)</span>: (.*?)</pre>', re.S
)
_BEGINS = re.compile(r"\bnogil\s*:\s*(#.*)?$")
_TAKES_IT = re.compile(r"^\s*with gil\s*:")


class Line(NamedTuple):
    number: int
    score: int  # the amount of Python's API in its C code; 0: none
    code: str


def source_of(module: str) -> Path:
    return ROOT / "pyx" / (module.replace(".", "/") + ".pyx")


def annotated(module: str, folder: Path) -> list[Line]:
    """The lines of a module, compiled as setup.py does."""
    from Cython.Compiler.Main import CompilationOptions, compile_single

    directives = {"boundscheck": False, "initializedcheck": False, "cdivision": True, "embedsignature": True}
    options = CompilationOptions(
        include_path=[str(ROOT / "pyx")],
        output_file=str(folder / f"{module}.c"),
        annotate="default",
        language_level=3,
        compiler_directives=directives,
    )
    compile_single(str(source_of(module)), options, full_module_name=module)
    text = (folder / f"{module}.html").read_text()
    found = [Line(int(n), int(score), re.sub(r"<[^>]+>", "", code)) for score, n, code in _LINE.findall(text)]
    return [line._replace(code=html.unescape(line.code).rstrip("\n")) for line in found]


def indent(code: str) -> int:
    return len(code) - len(code.lstrip())


def without_gil(lines: list[Line]) -> list[Line]:
    """The lines in nogil functions and blocks, except those in `with gil:` blocks."""
    found: list[Line] = []
    statement = block = taken = None  # indents of the current statement, the nogil block, the gil block
    depth = 0  # of open brackets: a signature may span lines
    for line in lines:
        code = line.code
        if not code.strip():
            continue
        if depth == 0:
            statement = indent(code)
            block = None if block is not None and statement <= block else block
            taken = None if taken is not None and statement <= taken else taken
            if block is not None and taken is None and _TAKES_IT.match(code):
                taken = statement
            elif block is not None and taken is None:
                found.append(line)
        elif block is not None and taken is None:
            found.append(line)
        bare = re.sub(r"#.*|\"[^\"]*\"|'[^']*'", "", code)
        depth = max(0, depth + sum(bare.count(c) for c in "([{") - sum(bare.count(c) for c in ")]}"))
        if depth == 0 and block is None and _BEGINS.search(code):
            block = statement
    return found


def test_blocks_are_found():
    """The reader of blocks distinguishes all kinds of blocks."""
    text = """\
cdef int one(int a,
             int b) noexcept nogil:
    return a + b
cdef int two(int a) nogil:
    with gil:
        raise ValueError
    return 1
def three():
    x = (1,
         2)
    with nogil:
        y = call(1,
                 2)
    return y
cdef int four() noexcept nogil: # it is
    pass
"""
    lines = [Line(n, 0, code) for n, code in enumerate(text.splitlines(), 1)]
    assert [line.number for line in without_gil(lines)] == [3, 7, 12, 13, 16]


@pytest.mark.long
@pytest.mark.skipif("ROCKETC_TEST_PACKAGE" in os.environ, reason="it looks at the sources of this tree")
@pytest.mark.parametrize("module", MODULES)
def test_nothing_of_python_without_the_gil(module, tmp_path):
    lines = annotated(module, tmp_path)
    assert len(lines) == len(source_of(module).read_text().splitlines())
    calls = [f"{line.number}: {line.code.strip()}" for line in without_gil(lines) if line.score > 0]
    assert calls == []


@pytest.mark.long
def test_the_score_finds_a_call_that_may_raise(tmp_path, monkeypatch):
    """A call that may raise takes the GIL for the check: it is found."""
    folder = tmp_path / "pyx/rocketc"
    folder.mkdir(parents=True)
    (folder / "_bad.pyx").write_text(
        "cdef int may_raise(int n) except? -1 nogil:\n    return n\n\n"
        "cdef int calls(int n) except? -1 nogil:\n    return may_raise(n) + 1\n"
    )
    monkeypatch.setattr("test_nogil.ROOT" if __name__ == "test_nogil" else f"{__name__}.ROOT", tmp_path)
    assert [line.number for line in without_gil(annotated("rocketc._bad", tmp_path)) if line.score > 0] == [5]
