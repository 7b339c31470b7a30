#!/usr/bin/env python3
"""The packages of rocketc and the imports between them, read from the source text; rocketc itself is not imported.

python tools/structure.py               print the drawing of docs/architecture.md
python tools/structure.py --check       exit with 1 if docs/architecture.md does not contain this drawing
python tools/structure.py --write       put the drawing into docs/architecture.md
python tools/structure.py edges         for each package: the packages that it imports from, and how many names
python tools/structure.py sizes         for each package: modules, files and lines
python tools/structure.py uses MODULE   where a module is imported, and which of its names

A package imports only from packages before it in ORDER. tests/test_layers.py checks it.
"""

import argparse
import ast
import re
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Lower before higher. "root" is the modules directly in rocketc/; "doors" is rocketc/__init__.py and __main__.py.
ORDER = (
    *("c", "root", "format", "files", "tables", "read", "log", "derived", "store"),
    *("remoting", "acl", "ha", "namesrv", "client", "broker"),
    *("workqueue", "jobs", "exports", "metrics", "report", "spark", "cli", "doors"),
)
LEVEL = {package: level for level, package in enumerate(ORDER)}
NEVER = {"client": ("log", "derived", "store")}  # lower packages that a package must not import either

PAGE = "docs/architecture.md"
MARK = "<!-- made by tools/structure.py -->"
WIDTH = 100  # columns of the drawing, at most

# Comments and strings of Python and Cython.
_TEXT = re.compile(
    r"""\#[^\n]*
    | (?P<prefix>\b[a-zA-Z]{1,2})? (?: \"\"\"(?:\\.|.)*?\"\"\" | '''(?:\\.|.)*?'''
                                     | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )""",
    re.X | re.S,
)
_FROM_IMPORT = re.compile(
    r"^([ \t]*)from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+(c?import)\b[ \t]*(\([^)]*\)|(?:[^\n\\]|\\\n)*)", re.M
)
_IMPORT = re.compile(r"^([ \t]*)(c?import)\b[ \t]+((?:[^\n\\]|\\\n)*)", re.M)
_NAME = re.compile(r"([\w.]+|\*)(?:\s+as\s+(\w+))?")
_BY_NAME = re.compile(r"\b(?:import_module|__import__)\s*\(")
_LITERAL = re.compile(r"\s*([a-zA-Z]{0,2})([\"'])(.*?)\2")


@dataclass(frozen=True, order=True)
class Import:
    """One name that one module imports from another module of the project."""

    importer: str  # dotted name of the module
    imported: str  # dotted name of the module; no module has it if the import is wrong
    name: str  # the name in the imported module, or "" for the module itself
    alias: str  # what the importer calls it; dotted after `import a.b`, "" if the import binds no name
    file: str  # the importer's file, relative to the project
    line: int
    kind: str  # import, cimport, lazy (indented: in a function), typing (never executed) or import_module


@dataclass(frozen=True)
class Tree:
    """The modules of a source tree and the imports between them."""

    root: Path
    files: dict[str, list[Path]]  # by dotted name of the module; a .pyx, its .pxd and its .pyi are one module
    imports: list[Import]  # sorted; a module's imports of itself are left out

    @property
    def packages(self) -> list[str]:
        """The packages that have modules, lower before higher."""
        return sorted({package_of(module) for module in self.files}, key=lambda package: LEVEL.get(package, -1))


def read(root: Path = ROOT) -> Tree:
    """Read the modules below root/rocketc and root/pyx/rocketc, and what they import."""
    files = modules(root)
    found = {
        Import(importer, *row[:3], path.relative_to(root).as_posix(), *row[3:])
        for importer, paths in files.items()
        for path in paths
        for row in _imports_of(path, importer, files)
    }
    return Tree(root, files, sorted(each for each in found if each.imported != each.importer))


def modules(root: Path) -> dict[str, list[Path]]:
    """The files of each module, by its dotted name. __init__.pxd only marks a folder for Cython, and is left out."""
    files = defaultdict(list)
    for folder, patterns in ((root / "rocketc", ("*.py", "*.pyi")), (root / "pyx/rocketc", ("*.pyx", "*.pxd"))):
        for path in sorted(path for pattern in patterns for path in folder.rglob(pattern)):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            if path.name != "__init__.pxd":
                files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)].append(path)
    return dict(sorted(files.items()))


def package_of(module: str) -> str:
    """The package of a dotted module name: "store" for rocketc.store.opening, "root" for rocketc.config."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "doors"
    return parts[1] if len(parts) > 2 or parts[1] in LEVEL else "root"


def edges(tree: Tree) -> Counter[tuple[str, str]]:
    """How many names a package imports from another one: {(importer, imported): names}."""
    pairs = ((package_of(each.importer), package_of(each.imported)) for each in tree.imports)
    return Counter(pair for pair in pairs if pair[0] != pair[1])


def code_of(text: str) -> str:
    """The text with spaces for comments and for what strings contain, expressions in f-strings aside.

    Each remaining character keeps its position, so line numbers and offsets stay the same.
    """

    def blank(match: re.Match[str]) -> str:
        keep = r"\{[^{}]*\}" if "f" in (match["prefix"] or "").lower() else "(?!)"
        parts = re.split(f"({keep})", match[0])  # every second part is an expression
        return "".join(part if at % 2 else re.sub(r"[^\n]", " ", part) for at, part in enumerate(parts))

    return _TEXT.sub(blank, text)


_Row = tuple[str, str, str, int, str]  # imported, name, alias, line, kind


def _imports_of(path: Path, importer: str, files: dict[str, list[Path]]) -> Iterator[_Row]:
    text = path.read_text(encoding="utf-8")
    folder = importer if path.stem == "__init__" else importer.rpartition(".")[0]
    if path.suffix in (".pyx", ".pxd"):
        yield from _cython_imports(text, folder, files)
    else:
        kind = "typing" if path.suffix == ".pyi" else "import"
        yield from _python_imports(ast.parse(text, str(path)), kind, folder, files)


def _python_imports(node: ast.AST, kind: str, folder: str, files: dict[str, list[Path]]) -> Iterator[_Row]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and kind == "import":
        kind = "lazy"
    if isinstance(node, ast.Import):
        for alias in node.names:
            if _is_ours(alias.name):
                yield alias.name, "", alias.asname or alias.name, node.lineno, kind
    elif isinstance(node, ast.ImportFrom):
        source = _absolute(folder, node.level, node.module or "")
        for alias in node.names:
            if _is_ours(source):
                yield *_resolve(source, alias.name, files), alias.asname or alias.name, node.lineno, kind
    elif isinstance(node, ast.Call) and _BY_NAME.fullmatch(ast.unparse(node.func).rpartition(".")[2] + "("):
        argument = node.args[0] if node.args else node.keywords[0].value
        for imported in _matching(_literal_parts(argument), files):
            yield imported, "", "", node.lineno, "import_module"
    for child in ast.iter_child_nodes(node):
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and child in node.body
        yield from _python_imports(child, "typing" if is_typing else kind, folder, files)


def _cython_imports(text: str, folder: str, files: dict[str, list[Path]]) -> Iterator[_Row]:
    code = code_of(text)

    def line(match: re.Match[str]) -> int:
        return code.count("\n", 0, match.start()) + 1

    for match in _FROM_IMPORT.finditer(code):
        indent, dots, module, word, names = match.groups()
        source = _absolute(folder, len(dots), module)
        for name, alias in _NAME.findall(names):
            if _is_ours(source):
                kind = "lazy" if indent and word == "import" else word
                yield *_resolve(source, name, files), alias or name, line(match), kind
    for match in _IMPORT.finditer(code):
        indent, word, names = match.groups()
        for name, alias in _NAME.findall(names):
            if _is_ours(name):
                yield name, "", alias or name, line(match), "lazy" if indent and word == "import" else word
    for match in _BY_NAME.finditer(code):
        literal = _LITERAL.match(text, match.end())
        parts = re.split(r"\{[^}]*\}", literal[3]) if literal and "f" in literal[1].lower() else None
        for imported in _matching(parts or ([literal[3]] if literal else ["", ""]), files):
            yield imported, "", "", line(match), "import_module"


def _is_ours(dotted: str) -> bool:
    return dotted.split(".")[0] == "rocketc"


def _absolute(folder: str, level: int, module: str) -> str:
    """The dotted name after `from` as an absolute one; folder is the package of the importing file."""
    above = folder.split(".")[: 1 - level or None] if level else []
    return ".".join([*above, *([module] if module else [])])


def _resolve(source: str, name: str, files: dict[str, list[Path]]) -> tuple[str, str]:
    """(module, name in it) of `from source import name`; the name is "" if it is a module itself."""
    return (f"{source}.{name}", "") if f"{source}.{name}" in files else (source, name)


def _literal_parts(argument: ast.expr) -> list[str]:
    """The fixed texts of a string or f-string, with something unknown between each two of them."""
    if isinstance(argument, ast.Constant):
        return [str(argument.value)]
    parts = [""]
    for value in argument.values if isinstance(argument, ast.JoinedStr) else [argument]:
        if isinstance(value, ast.Constant):
            parts[-1] += str(value.value)
        else:
            parts.append("")
    return parts


def _matching(parts: list[str], files: dict[str, list[Path]]) -> list[str]:
    """The modules that import_module may mean: each one that fits, so all modules if the argument is a variable."""
    pattern = (".+" if parts[0].startswith(".") else "") + ".+".join(map(re.escape, parts))
    named = "{}".join(parts)
    return [module for module in files if re.fullmatch(pattern, module)] or ([named] if _is_ours(named) else [])


def draw(tree: Tree) -> str:
    """The drawing: a row for each package, higher ones above, with its number of modules and what it imports from."""
    used = edges(tree)
    packages = tree.packages[::-1]
    first = max(map(len, ["package", *packages]))
    room = WIDTH - len(f"│ {'':{first}} │ modules │  │")
    rows = [(f"{'package':{first}} │ modules", "imports from")]
    for package in packages:
        left = f"{package:{first}} │ {sum(package_of(module) == package for module in tree.files):>7}"
        below = " ".join(other for other in packages if (package, other) in used)
        for line in textwrap.wrap(below, room) or [""]:
            rows.append((left, line))
            left = f"{'':{first}} │ {'':7}"  # of a second line
    last = max(len(line) for _, line in rows)
    lines = [f"│ {left} │ {line:{last}} │" for left, line in rows]
    bars = ["─" * (width + 2) for width in (first, len("modules"), last)]
    return "\n".join([f"┌{'┬'.join(bars)}┐", lines[0], f"├{'┼'.join(bars)}┤", *lines[1:], f"└{'┴'.join(bars)}┘"])


def block(tree: Tree) -> str:
    """Return the lines of docs/architecture.md with the drawing."""
    return f"{MARK}\n```text\n{draw(tree)}\n```\n"


def write(tree: Tree) -> None:
    """Replace the drawing after the mark in docs/architecture.md."""
    page = tree.root / PAGE
    text = page.read_text(encoding="utf-8")
    if f"{MARK}\n" not in text:
        sys.exit(f"{PAGE} does not contain the line {MARK}: add it where the drawing belongs")
    old = re.compile(re.escape(MARK) + r"\n(?:```text\n.*?^```\n)?", re.M | re.S)
    page.write_text(old.sub(lambda _: block(tree), text, count=1), encoding="utf-8")


def print_edges(tree: Tree) -> None:
    used = edges(tree)
    for package in tree.packages:
        below = [f"{other}({used[package, other]})" for other in tree.packages if (package, other) in used]
        print(f"{package:10} ->", *below)


def print_sizes(tree: Tree) -> None:
    for package in tree.packages:
        of_package = [paths for module, paths in tree.files.items() if package_of(module) == package]
        paths = [path for paths in of_package for path in paths]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        print(f"{package:10} {len(of_package):4} modules {len(paths):4} files {lines:7} lines")


def print_uses(tree: Tree, module: str) -> None:
    module = module if _is_ours(module) else f"rocketc.{module}"
    if module not in tree.files:
        sys.exit(f"{module} is not a module of this tree")
    uses = defaultdict(list)
    for each in tree.imports:
        if each.imported == module:
            uses[each.file, each.line, each.kind].append(each.name or "(module)")
    for (file, line, kind), names in uses.items():
        print(f"{file}:{line}: {kind} {' '.join(names)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="The packages of rocketc and the imports between them.")
    parser.add_argument("--check", action="store_true", help=f"exit with 1 if {PAGE} does not contain the drawing")
    parser.add_argument("--write", action="store_true", help=f"put the drawing into {PAGE}")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("edges", help="which package imports from which, and how many names")
    commands.add_parser("sizes", help="modules, files and lines of each package")
    commands.add_parser("uses", help="where a module is imported").add_argument("module")
    arguments = parser.parse_args()
    tree = read()
    if arguments.command == "edges":
        print_edges(tree)
    elif arguments.command == "sizes":
        print_sizes(tree)
    elif arguments.command == "uses":
        print_uses(tree, arguments.module)
    elif arguments.write:
        write(tree)
    elif arguments.check:
        if block(tree) not in (tree.root / PAGE).read_text(encoding="utf-8"):
            sys.exit(f"{PAGE} does not contain the current drawing: run python tools/structure.py --write")
    else:
        print(draw(tree))


if __name__ == "__main__":
    main()
