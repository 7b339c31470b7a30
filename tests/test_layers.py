"""The packages and the contracts between them: what docs/architecture.md promises, checked against the source text.

Each check takes the root of a source tree and returns what it finds wrong, as text. Each rule has two tests: the
project keeps it, and made-up trees that break it are refused. There are no exceptions to a rule.
"""

import ast
import collections
import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tool(name):
    """Import a module of tools/, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses searches for its module there
    spec.loader.exec_module(module)
    return module


structure = tool("structure")
package_of, LEVEL = structure.package_of, structure.LEVEL
read = cache(structure.read)


@pytest.fixture
def tree(tmp_path):
    """Make a source tree of {path: text} and return its root."""

    def make(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
        return tmp_path

    return make


# Imports


def upward(root: Path) -> list[str]:
    """Imports from a higher package, or from one that the package must never import."""
    wrong = []
    for each in read(root).imports:
        above, below = package_of(each.importer), package_of(each.imported)
        if LEVEL.get(below, -1) > LEVEL.get(above, -1) or below in structure.NEVER.get(above, ()):
            wrong.append(f"{each.file}:{each.line}: {above} imports {each.imported} {each.name}, {each.kind}")
    return wrong


def unknown(root: Path) -> list[str]:
    """Imports of modules that are not in the tree."""
    files = read(root).files
    return [f"{each.file}:{each.line}: {each.imported}" for each in read(root).imports if each.imported not in files]


def by_name(root: Path) -> list[str]:
    """Uses of import_module outside of the doors: rocketc/__init__.py, __main__.py and the start of the CLI."""
    return [
        f"{each.file}:{each.line}: {each.imported}"
        for each in read(root).imports
        if each.kind == "import_module" and package_of(each.importer) != "doors" and each.importer != "rocketc.cli.main"
    ]


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of a graph that have more than one node (Tarjan)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        numbers[node] = lowest[node] = len(numbers)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == numbers[node]:
            at = stack.index(node)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in numbers:
            visit(node)
    return found


def module_cycles(root: Path) -> list[list[str]]:
    graph = defaultdict(set)
    for each in read(root).imports:
        graph[each.importer].add(each.imported)
    return cycles(graph)


def package_cycles(root: Path) -> list[list[str]]:
    graph = defaultdict(set)
    for above, below in structure.edges(read(root)):
        graph[above].add(below)
    return cycles(graph)


@pytest.mark.parametrize("module", sorted(read(ROOT).files))
def test_no_import_goes_upward(module):
    files = {str(path.relative_to(ROOT)) for path in read(ROOT).files[module]}
    assert [text for text in upward(ROOT) if text.partition(":")[0] in files] == []


@pytest.mark.parametrize("check", [upward, unknown, by_name, module_cycles, package_cycles])
def test_imports(check):
    wrong = check(ROOT)
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("rocketc/log/a.py", "from rocketc.store.b import Thing\n", "import"),
        ("rocketc/log/a.py", "from rocketc.store import b\n", "import"),
        ("rocketc/log/a.py", "from ..store import b\n", "import"),
        ("rocketc/log/__init__.py", "from ..store import b\n", "import"),
        ("rocketc/log/a.py", "import rocketc.store.b as b\n", "import"),
        ("rocketc/config.py", "try:\n    from rocketc.store.b import Thing\nfinally:\n    pass\n", "import"),
        ("rocketc/log/a.py", "def f():\n    from rocketc.store.b import Thing\n", "lazy"),
        ("rocketc/log/a.py", "async def f():\n    import rocketc.store.b\n", "lazy"),
        ("rocketc/log/a.py", "if TYPE_CHECKING:\n    from rocketc.store.b import Thing\n", "typing"),
        ("rocketc/log/_a.pyi", "from rocketc.store.b import Thing\n", "typing"),
        ("rocketc/log/a.py", "importlib.import_module('rocketc.store.b')\n", "import_module"),
        ("rocketc/log/a.py", "import_module(f'rocketc.store.{name}')\n", "import_module"),
        ("rocketc/log/a.py", "import_module('.b', 'rocketc.store')\n", "import_module"),
        ("rocketc/log/a.py", "__import__(name)\n", "import_module"),
        ("pyx/rocketc/log/_a.pyx", "x = import_module(f'rocketc.store.{name}')\n", "import_module"),
        ("pyx/rocketc/log/_a.pyx", "from rocketc.store.b cimport Thing\n", "cimport"),
        ("pyx/rocketc/log/_a.pxd", "from rocketc.store cimport (\n    b,  # why\n)\n", "cimport"),
        ("pyx/rocketc/log/_a.pxd", "cimport rocketc.files.x, rocketc.store.b\n", "cimport"),
        ("pyx/rocketc/log/_a.pyx", "from ..store cimport b\n", "cimport"),
        ("pyx/rocketc/log/_a.pyx", "def f():\n    from rocketc.store.b import Thing\n", "lazy"),
        ("rocketc/client/a.py", "from rocketc.store.b import Thing\n", "import"),
    ],
)
def test_an_upward_import_is_refused(tree, path, text, kind):
    root = tree({"rocketc/store/b.py": "", path: text})
    [wrong] = upward(root)
    assert re.fullmatch(rf"{re.escape(path)}:[12]: \w+ imports rocketc\.store\.b \w*, {kind}", wrong)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rocketc/derived/a.py", "from rocketc.log.b import Thing\nimport re\n"),
        ("rocketc/log/a.py", '"""\n>>> from rocketc.store.c import Thing\n"""\n# from rocketc.store.c import Thing\n'),
        ("pyx/rocketc/log/_a.pyx", 'def f():\n    """\n    from rocketc.store.c import Thing\n    """\n'),
        ("pyx/rocketc/log/_a.pyx", "x = '\"'\n# from rocketc.store.c import Thing\ny = '\"'\n"),
        ("rocketc/__init__.py", "from rocketc.store.c import Thing\n"),
    ],
)
def test_other_imports_are_allowed(tree, path, text):
    assert upward(tree({"rocketc/log/b.py": "", "rocketc/store/c.py": "", path: text})) == []


def test_an_unknown_module_is_refused(tree):
    root = tree({"rocketc/log/a.py": "from rocketc.log.b import x\nimport_module('rocketc.log.c')\n"})
    assert unknown(root) == ["rocketc/log/a.py:1: rocketc.log.b", "rocketc/log/a.py:2: rocketc.log.c"]


def test_an_import_by_name_is_refused(tree):
    files = dict.fromkeys(("rocketc/cli/main.py", "rocketc/__init__.py", "rocketc/cli/a.py", "rocketc/log/a.py"))
    root = tree({**dict.fromkeys(files, "import_module(f'rocketc.cli.{name}')\n"), "rocketc/cli/b.py": ""})
    assert {line.partition(":")[0] for line in by_name(root)} == {"rocketc/cli/a.py", "rocketc/log/a.py"}


@pytest.mark.parametrize(
    ("back", "path"),
    [
        ("from rocketc.log._a import A\n", "rocketc/log/c.py"),
        ("def f():\n    from rocketc.log import _a\n", "rocketc/log/c.py"),
        ("if TYPE_CHECKING:\n    from ._a import A\n", "rocketc/log/c.py"),
        ("cimport rocketc.log._a\n", "pyx/rocketc/log/c.pxd"),
    ],
)
def test_a_cycle_is_refused(tree, back, path):
    files = {"pyx/rocketc/log/_a.pyx": "", "rocketc/log/_a.pyi": "from rocketc.log.b import B\n"}
    root = tree({**files, "rocketc/log/b.py": "from rocketc.log.c import C\n", path: back})
    assert module_cycles(root) == [["rocketc.log._a", "rocketc.log.b", "rocketc.log.c"]]


def test_a_package_and_its_modules_are_not_one_module(tree):
    files = {"rocketc/exports/__init__.py": "from rocketc.exports.a import A\n"}
    assert module_cycles(tree({**files, "rocketc/exports/a.py": "from rocketc.exports.b import B\n"})) == []


def test_a_cycle_of_packages_is_refused(tree):
    files = {"rocketc/log/a.py": "import rocketc.read.b\n", "rocketc/log/c.py": ""}
    root = tree({**files, "rocketc/read/d.py": "import rocketc.log.c\n", "rocketc/read/b.py": ""})
    assert module_cycles(root) == []
    assert package_cycles(root) == [["log", "read"]]


# Private members: _x, but neither __x nor the _x_ of protocols such as _repr_html_

PRIVATE = re.compile(r"_[^\W_](\w*[^\W_])?")
NAMED_TUPLE = set(dir(collections.namedtuple("Any", "")))  # _replace and others, which are public there


def is_private(name: str) -> bool:
    return PRIVATE.fullmatch(name) is not None and name not in NAMED_TUPLE


@dataclass
class Class:
    """A class, or a struct of Cython, as its own text describes it."""

    bases: list[str] = field(default_factory=list)  # as written
    defined: set[str] = field(default_factory=set)  # private fields and methods
    used: list[tuple[str, str, int]] = field(default_factory=list)  # (private name, file, line), on self or cls


@dataclass
class Module:
    classes: dict[str, Class] = field(default_factory=lambda: defaultdict(Class))
    used: list[tuple[str, str, str, int]] = field(default_factory=list)  # (object, private name, file, line)
    types: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # classes that a variable may have

    def add(self, owner: str, name: str, file: str, line: int, within: str | None) -> None:
        """Record the use of a private name; within is the class that contains it."""
        if within is not None and owner in ("self", "cls"):
            self.classes[within].used.append((name, file, line))
        else:
            self.used.append((owner, name, file, line))


def read_python(module: Module, node: ast.AST, file: str, within: str | None = None) -> None:
    if isinstance(node, ast.ClassDef):
        within = node.name
        module.classes[within].bases += [ast.unparse(base).partition("[")[0] for base in node.bases]
        members = [name for each in node.body for name in names_of(each)]
        module.classes[within].defined |= {name for name in members if is_private(name)}
    elif isinstance(node, ast.Attribute) and is_private(node.attr):
        owner = ast.unparse(node.value)
        if within is not None and owner in ("self", "cls") and isinstance(node.ctx, ast.Store):
            module.classes[within].defined.add(node.attr)
        module.add(owner, node.attr, file, node.lineno, within)
    for child in ast.iter_child_nodes(node):
        read_python(module, child, file, within)


def names_of(node: ast.AST) -> list[str]:
    """The names that a statement in the body of a class defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


# Cython, line by line: the start of a class, the start of a member that is not a field, and uses of private names.
CLASS = re.compile(r"(?:(?:cdef|ctypedef)\s+)?(?:packed\s+)?(class|struct|union)\s+(\w+)\s*(?:\(([^)]*)\))?")
MEMBER = re.compile(r"(?:c?p?def|async def)\b|_\w+\s*(?::[^=]*)?=(?!=)")
STORED = re.compile(r"\bself\s*\.\s*(_\w+)\s*(?::[^=\n]+)?[-+*/|&^%<>]{0,2}=(?!=)")
USED = re.compile(r"((?:\w+\s*\.\s*)*\w+|<\s*\w+\s*\??\s*>[^()<>]*\)|[)\]])\s*\.\s*(_\w+)")
# The possible types of a variable, in Python and in Cython.
TYPED = re.compile(r"(?P<variable>\w+)\s*(?::|=(?=[\w\s.]*\())\s*(?P<type>(?:\w+\.)?[A-Z]\w*)")  # a: A, a = A()
DECLARED = re.compile(r"\b(?P<type>[A-Z]\w*)(?: |\s?\*+\s?)(?P<variable>\w+)")  # cdef A a, A* a


def read_cython(module: Module, text: str, file: str) -> None:
    code = structure.code_of(text)
    code = re.sub(r"^[ \t]*(from[ \t.]+[\w.]*[ \t]+)?c?import\b[ \t]*(\([^)]*\)|[^\n]*)", blank_lines, code, flags=re.M)
    open_classes: list[tuple[int, str]] = []  # (indent, name), outer ones first
    block = None  # indent of an open `cdef:`
    for number, line in enumerate(code.splitlines(), 1):
        content = line.strip()
        if not content:
            continue
        indent = len(line) - len(line.lstrip())
        while open_classes and indent <= open_classes[-1][0]:
            open_classes.pop()
        block = None if block is not None and indent <= block else block
        opened = CLASS.match(content)
        if opened:
            open_classes.append((indent, opened[2]))
            module.classes[opened[2]].bases += (opened[3] or "").split(",")
            block = indent if opened[1] != "class" else None
            continue
        within = open_classes[-1][1] if open_classes else None
        if within is not None:
            members = set(STORED.findall(line))
            if block is not None or (indent == open_classes[-1][0] + 4 and MEMBER.match(content)):
                declared = re.split(r"\(\s*(?:self|cls)\b|=", content)[0]
                members |= set(re.findall(r"(?<![.\w])_\w+", declared))
            module.classes[within].defined |= set(filter(is_private, members))
            if re.fullmatch(r"cdef\s*(?:public|readonly)?\s*:", content):
                block = indent
        for owner, name in USED.findall(line):
            if is_private(name):
                module.add(re.sub(r"\s", "", owner), name, file, number, within)


def blank_lines(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


@cache
def members(root: Path) -> dict[str, Module]:
    """The classes of each module and the private names that it uses."""
    found = {}
    for name, paths in read(root).files.items():
        found[name] = Module()
        for path in paths:
            text, file = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
            for match in (TYPED if path.suffix in (".py", ".pyi") else DECLARED).finditer(structure.code_of(text)):
                found[name].types[match["variable"]].add(match["type"])
            if path.suffix in (".py", ".pyi"):
                read_python(found[name], ast.parse(text), file)
            else:
                read_cython(found[name], text, file)
    return found


def private_imports(root: Path) -> list[str]:
    """Private names imported from another package, or taken from a module of another package."""
    wrong, names = [], {}
    for each in read(root).imports:
        if package_of(each.importer) != package_of(each.imported):
            if is_private(each.name):
                wrong.append(f"{each.file}:{each.line}: {each.name} of {each.imported}")
            if each.name == "":
                names[each.importer, each.alias] = each.imported
    for module, found in members(root).items():
        for owner, name, file, line in found.used:
            if (module, owner) in names and f"{names[module, owner]}.{name}" not in read(root).files:
                wrong.append(f"{file}:{line}: {owner}.{name} of {names[module, owner]}")
    return wrong


def private_uses(root: Path) -> list[str]:
    """Uses of obj._x where only other packages define _x: by the classes of obj if known, otherwise by any class."""
    wrong = []
    anywhere = defaultdict(set)
    for module, found in members(root).items():
        for each in found.classes.values():
            for name in each.defined:
                anywhere[name].add(package_of(module))
    for module, found in members(root).items():
        for owner, name, file, line in found.used:
            cast = re.match(r"<\s*(\w+)", owner)
            types = {(module, cast[1])} if cast else types_of(root, module, owner.rpartition(".")[2])
            families = [each for home, title in types for each in ancestors(root, home, title)]
            homes = {package_of(home) for home, each in families if name in each.defined} or anywhere[name]
            if homes and package_of(module) not in homes:
                wrong.append(f"{file}:{line}: {owner}.{name} of {' '.join(sorted(homes))}")
    return wrong


def types_of(root: Path, module: str, variable: str) -> set[tuple[str, str]]:
    """The classes that a variable or attribute of this name may have, each as (module, its name in this module).

    If the module itself does not give a type, the other modules of its package are searched, because base classes may
    be there.
    """
    near = members(root)[module].types.get(variable)
    modules = [module] if near else [each for each in members(root) if package_of(each) == package_of(module)]
    return {(each, title) for each in modules for title in members(root)[each].types.get(variable, ())}


def private_inheritance(root: Path) -> list[str]:
    """self._x in a class where only a base class of another package defines _x."""
    wrong = []
    for module, found in members(root).items():
        for title, each in found.classes.items():
            family = list(ancestors(root, module, title))
            own = {name for home, base in family if package_of(home) == package_of(module) for name in base.defined}
            for name, file, line in each.used:
                homes = {home for home, base in family if name in base.defined}
                if homes and name not in own:
                    wrong.append(f"{file}:{line}: {title} uses {name} of {' '.join(sorted(homes))}")
    return wrong


def ancestors(root: Path, module: str, title: str) -> Iterator[tuple[str, Class]]:
    """(module, class) of a class and all its base classes of the project; title is its name in the module."""
    if title in members(root)[module].classes:
        this = members(root)[module].classes[title]
        yield module, this
        for base in this.bases:
            if base.strip() != title:
                yield from ancestors(root, module, base.strip())
        return
    owner, _, name = title.rpartition(".")
    for source, at in imported_names(root).get((module, owner or name), ()):
        if source in members(root) and (at or owner):
            yield from ancestors(root, source, name if owner else at)
            return


@cache
def imported_names(root: Path) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """{(importer, its name for it): [(module, name in the module)]}"""
    names = defaultdict(list)
    for each in read(root).imports:
        names[each.importer, each.alias].append((each.imported, each.name))
    return dict(names)


@pytest.mark.parametrize("check", [private_imports, private_uses, private_inheritance])
def test_private_members(check):
    wrong = check(ROOT)
    assert not wrong, "\n".join(map(str, wrong))


LOG = {
    "rocketc/log/a.py": (
        "def _helper(): pass\n"
        "class A:\n"
        "    _limit: int = 3\n"
        "    def __init__(self): self._path, self._size = '', 0\n"
        "    def _grow(self): self._size += 1\n"
    ),
    "pyx/rocketc/log/_b.pxd": (
        "cdef struct Slot:\n"
        "    int _next\n"
        "cdef class B:\n"
        "    cdef:\n"
        "        uint8_t* _base      # why\n"
        "        int _count, _wrote[2]\n"
        "    cdef readonly str _name\n"
        "    cdef int _seal(self) noexcept nogil\n"
    ),
}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rocketc/store/c.py", "from rocketc.log.a import _helper\n"),
        ("rocketc/store/c.py", "def f():\n    from rocketc.log.a import _helper as helper\n"),
        ("rocketc/store/c.py", "from rocketc.log import a\na._helper()\n"),
        ("rocketc/store/c.py", "import rocketc.log.a\nrocketc.log.a._helper()\n"),
        ("pyx/rocketc/store/_c.pyx", "from rocketc.log.a import (\n    A,\n    _helper,\n)\n"),
        ("pyx/rocketc/store/_c.pyx", "cimport rocketc.log._b as b\nb._helper()\n"),
    ],
)
def test_a_private_import_is_refused(tree, path, text):
    [wrong] = private_imports(tree({**LOG, path: text}))
    assert wrong.startswith(f"{path}:")


@pytest.mark.parametrize("name", ["_limit", "_path", "_size", "_grow", "_next", "_base", "_count", "_wrote", "_seal"])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rocketc/store/c.py", "def f(a):\n    return a.{}\n"),
        ("rocketc/store/c.py", "class C:\n    def f(self):\n        self.a.{} = 3\n"),
        ("rocketc/store/c.py", "class C(A):\n    def f(self):\n        super().{}\n"),
        ("rocketc/store/c.py", "x = f'{{a.{}}}'\n"),
        ("pyx/rocketc/store/_c.pyx", "cdef int f(B b):\n    b.{} = 3\n"),
        ("pyx/rocketc/store/_c.pyx", "cdef int f(B self):\n    self.{} = 3\n"),
        ("pyx/rocketc/store/_c.pyx", "cdef class C:\n    def f(self):\n        x = self.bs[0].{}\n"),
        ("pyx/rocketc/store/_c.pxd", "cdef inline int f(b):\n    return (<B>b).{}\n"),
        ("pyx/rocketc/store/_c.pyx", "x = f'{{a.{}}}'\n"),
    ],
)
def test_a_use_of_a_private_member_is_refused(tree, path, text, name):
    [wrong] = private_uses(tree({**LOG, path: text.format(name)}))
    assert re.fullmatch(rf"{path}:[123]: .*\.{name} of log", wrong)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rocketc/store/c.py", "from rocketc.log.a import A\ndef f(a: A | None): a._grow()\n"),
        ("rocketc/store/c.py", "from rocketc.log import a\nb = a.A()\nb._grow()\n"),
        ("pyx/rocketc/store/_c.pyx", "from rocketc.log.a import A\ndef f(A a):\n    a._grow()\n"),
        ("pyx/rocketc/store/_c.pyx", "from rocketc.log.a import A\ndef f(a):\n    (<A?>a[0])._grow()\n"),
        ("pyx/rocketc/store/_c.pyx", "cdef class C:\n    def f(self):\n        self.base._grow()\n"),
    ],
)
def test_a_use_is_refused_by_type_if_both_packages_define_the_name(tree, path, text):
    own = {"rocketc/store/d.py": "class D:\n    def _grow(self): self._grow()\n"}
    field = {"pyx/rocketc/store/_e.pxd": "from rocketc.log.a cimport A\ncdef class E:\n    cdef A base\n"}
    root = tree({**LOG, **own, **field, path: text})
    assert [re.sub(r":\d: .*\._", ": _", line) for line in private_uses(root)] == [f"{path}: _grow of log"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rocketc/store/c.py", "from rocketc.log.a import A\nclass C(A):\n    def f(self): return self._path\n"),
        ("rocketc/store/c.py", "from rocketc.log import a\nclass C(a.A[int]):\n    def f(self): return self._path\n"),
        ("rocketc/store/c.py", "from rocketc.store.d import D\nclass C(D):\n    def f(self): self._grow()\n"),
        (
            "pyx/rocketc/store/_c.pyx",
            "from rocketc.log._b cimport B\ncdef class C(B):\n    def f(self): self._seal()\n",
        ),
    ],
)
def test_a_private_member_of_a_base_class_is_refused(tree, path, text):
    between = {"rocketc/store/d.py": "from rocketc.log.a import A\nclass D(A): pass\n"}
    [wrong] = private_inheritance(tree({**LOG, **between, path: text}))
    assert re.fullmatch(rf"{path}:3: C uses _\w+ of rocketc\.log\.\w+", wrong)


def test_other_private_members_are_allowed(tree):
    root = tree(
        {
            **LOG,
            "rocketc/log/c.py": (
                "from rocketc.log.a import _helper, A\nclass C(A):\n    def f(self): return self._path\n"
            ),
            "rocketc/store/c.py": (
                "import os\nfrom rocketc.log import _b\nfrom rocketc.log.a import A\n"
                "class C(A):\n    def __init__(self): self._path = os._exit, x._replace(), y._repr_html_()\n"
                "    def f(self, other): return other._path\n"
            ),
            "pyx/rocketc/store/_c.pyx": "# b._base\ncdef f(b):\n    'b._base'\n    return b.base, _b._base_\n",
        }
    )
    assert private_imports(root) == private_uses(root) == private_inheritance(root) == []


# Packages

SAYS = ("Knows:", "Does not know:", "Others use:")


def unexplained(root: Path) -> list[str]:
    """Packages whose docstring does not say what they know, what they do not know and what others use."""
    wrong = []
    for path in sorted(root.glob("rocketc/*/**/__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        missing = [words for words in SAYS if not re.search(rf"^{words}[ \t]+\S", text, re.M)]
        if missing:
            wrong.append(f"{path.relative_to(root).as_posix()}: no line {', '.join(missing)}")
    return wrong


def misplaced(root: Path) -> list[str]:
    """Folders that are not a package of ORDER or lack an __init__, extensions without a stub, and stubs without one."""
    wrong = []
    for folder, marker in (("rocketc", "__init__.py"), ("pyx/rocketc", "__init__.pxd")):
        for path in sorted((root / folder).rglob("*.p*")):
            parts = path.relative_to(root / folder).parts
            if "__pycache__" in parts:
                continue
            if not (path.parent / marker).is_file():
                wrong.append(f"{path.relative_to(root).as_posix()}: no {marker} beside it")
            if len(parts) > 1 and parts[0] not in LEVEL:
                wrong.append(f"{path.relative_to(root).as_posix()}: {parts[0]} is not in ORDER of tools/structure.py")
    for module, paths in read(root).files.items():
        suffixes = {path.suffix for path in paths}
        if (".pyx" in suffixes) != (".pyi" in suffixes):
            wrong.append(f"{module}: a .pyx needs a .pyi, and a .pyi a .pyx")
        if ".py" in suffixes and len(suffixes) > 1:
            wrong.append(f"{module}: Python and Cython of one name")
        if ".pyx" in suffixes and not (root / "/".join(module.split(".")[:-1]) / "__init__.py").is_file():
            wrong.append(f"{module}: its folder is not a Python package")
    for path in sorted((root / "pyx").rglob("__init__.pxd")):
        if path.read_text(encoding="utf-8").strip():
            wrong.append(f"{path.relative_to(root).as_posix()}: must be empty")
    return wrong


@pytest.mark.parametrize("check", [unexplained, misplaced])
def test_packages(check):
    wrong = check(ROOT)
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("missing", SAYS)
def test_a_package_that_does_not_explain_itself_is_refused(tree, missing):
    lines = [f"{words} {'' if words == missing else 'bytes.'}" for words in SAYS]
    root = tree({"rocketc/__init__.py": "", "rocketc/log/__init__.py": f'"""The log.\n\n{chr(10).join(lines)}\n"""\n'})
    assert unexplained(root) == [f"rocketc/log/__init__.py: no line {missing}"]


GOOD = dict.fromkeys(
    ("rocketc/__init__.py", "rocketc/log/__init__.py", "rocketc/log/_a.pyi", "pyx/rocketc/log/_a.pyx")
    + ("pyx/rocketc/__init__.pxd", "pyx/rocketc/log/__init__.pxd", "pyx/rocketc/c/__init__.pxd", "pyx/rocketc/c/b.pxd"),
    "",
)


def test_a_well_placed_tree_is_allowed(tree):
    assert misplaced(tree(GOOD)) == []


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({"rocketc/spam/__init__.py": ""}, "rocketc/spam/__init__.py: spam is not in ORDER"),
        ({"pyx/rocketc/spam/__init__.pxd": ""}, "pyx/rocketc/spam/__init__.pxd: spam is not in ORDER"),
        ({"rocketc/store/a.py": ""}, "rocketc/store/a.py: no __init__.py beside it"),
        ({"pyx/rocketc/store/a.pxd": ""}, "pyx/rocketc/store/a.pxd: no __init__.pxd beside it"),
        ({"pyx/rocketc/log/_b.pyx": ""}, "rocketc.log._b: a .pyx needs a .pyi"),
        ({"rocketc/log/_b.pyi": ""}, "rocketc.log._b: a .pyx needs a .pyi"),
        ({"rocketc/log/_a.py": ""}, "rocketc.log._a: Python and Cython of one name"),
        ({"pyx/rocketc/c/_b.pyx": "", "rocketc/c/_b.pyi": ""}, "rocketc.c._b: its folder is not a Python package"),
        ({"pyx/rocketc/log/__init__.pxd": "cimport x"}, "pyx/rocketc/log/__init__.pxd: must be empty"),
    ],
)
def test_a_misplaced_file_is_refused(tree, files, wrong):
    assert any(line.startswith(wrong) for line in misplaced(tree({**GOOD, **files})))


# The tool itself


def test_the_whole_project_is_read():
    """Without this, a reader that finds nothing would pass every check."""
    found = read(ROOT)
    assert len(found.files) >= 150
    assert len(found.imports) >= 1000
    assert {each.kind for each in found.imports} >= {"import", "cimport", "lazy", "typing", "import_module"}
    assert {path.suffix for paths in found.files.values() for path in paths} == {".py", ".pyi", ".pyx", ".pxd"}
    assert sum(len(each.defined) for module in members(ROOT).values() for each in module.classes.values()) >= 500


def test_the_drawing_is_in_the_page():
    page = (ROOT / structure.PAGE).read_text(encoding="utf-8")
    assert structure.block(read(ROOT)) in page, "run python tools/structure.py --write"


def test_the_lines_of_the_drawing_have_equal_lengths():
    """All lines of the frame have the same length, and each package has a row, higher ones above."""
    lines = structure.draw(read(ROOT)).splitlines()
    assert {len(line) for line in lines} == {len(lines[0])}
    assert len(lines[0]) <= structure.WIDTH
    rows = [line.split()[1] for line in lines if line[0] == "│" and line[2] != " "]
    assert rows[1:] == read(ROOT).packages[::-1]


def test_the_drawing_is_written_and_replaced(tree):
    root = tree({"rocketc/log/a.py": "import rocketc.read.b\n", "rocketc/read/b.py": ""})
    page = root / structure.PAGE
    tree({structure.PAGE: f"before\n{structure.MARK}\nafter\n"})
    for _ in range(2):
        structure.write(structure.read(root))
        assert page.read_text() == f"before\n{structure.block(structure.read(root))}after\n"
    assert re.search(r"^│ log     │       1 │ read         │$", page.read_text(), re.M)
    tree({"rocketc/format/c.py": ""})
    structure.write(structure.read(root))
    assert page.read_text() == f"before\n{structure.block(structure.read(root))}after\n"
    tree({structure.PAGE: "no mark\n"})
    with pytest.raises(SystemExit, match="does not contain the line"):
        structure.write(structure.read(root))
