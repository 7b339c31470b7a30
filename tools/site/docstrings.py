"""Docstrings for mkdocstrings, as Markdown; also those of compiled modules, whose stubs do not have docstrings."""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import re
import textwrap
from typing import Any

# Constants do not have a docstring.
CONSTANTS = {
    "COLUMN_NAMES": "The names of all columns, in the order in which a scan returns them by default.",
    "DIMENSIONS": "What jobs.count() can group by.",
    "SCHEMA": "The schema of all columns: what decode_batches() makes, for mapInArrow.",
}
TERM = r"[*\w%]+(?:, [*\w%]+)*(?: = .*?)?"


@functools.cache
def places() -> dict[str, list[str]]:
    """Return the last part of a name -> the public names and methods that it may mean."""
    import reference  # it imports this module

    found: dict[str, list[str]] = {}
    for name in [name for _, _, names in reference.PAGES.values() for name in names]:
        found.setdefault(name.rpartition(".")[2], []).append(f"rocketc.{name}")
        thing = reference.resolve(name)
        for base in thing.__mro__ if inspect.isclass(thing) else []:
            for member in vars(base) if base.__module__.startswith("rocketc") else []:
                path = f"rocketc.{name}.{member}"
                if not member.startswith("_") and path not in found.get(member, []):
                    found.setdefault(member, []).append(path)
    return found


def place_of(word: str, owner: str) -> str | None:
    """Return what `Scan.batches()`, `batches()` or `ScanReport` means in a docstring of a class, or None."""
    may = [path for path in places().get(word.rpartition(".")[2], []) if path.endswith(f".{word}")]
    own = [path for path in may if owner and path == f"{owner}.{word}"]
    return (own or may)[0] if len(own or may) == 1 else None


def fetched(path: str) -> str:
    """Return the docstring of a class, function or attribute, without the signature that Cython puts first."""
    module, thing = "rocketc", importlib.import_module("rocketc")
    for part in path.split(".")[1:]:
        try:
            thing = importlib.import_module(f"{module}.{part}")
            module += f".{part}"
        except ImportError:
            thing = getattr(thing, part, None)
    if not (inspect.isclass(thing) or callable(thing) or inspect.isdatadescriptor(thing)):
        return ""
    return re.sub(r"\A[\w.]+\(.*\)(?: -> .*)?(?:\n\n|\Z)", "", inspect.getdoc(thing) or "")


def prose(text: str, owner: str = "") -> str:
    """Return a line or paragraph of a docstring as Markdown: names as code, those of the reference as links."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        fixed(piece[1:-1]) if n % 2 and not piece.startswith("`docs/") else named(escaped(piece.strip("`")), owner)
        for n, piece in enumerate(pieces)
    )


def escaped(text: str) -> str:
    return re.sub(r"[*\[\]|\\#`{}]", lambda found: f"&#{ord(found[0])};", html.escape(text, quote=False))


def named(text: str, owner: str) -> str:
    def linked(found: re.Match[str]) -> str:
        word = found[0]
        if word.startswith('"') or "=" in word:
            return fixed(html.unescape(word))
        if word.startswith("docs/"):
            return f"[{word.removeprefix('docs/')}](../{word.removeprefix('docs/')})"
        bare = word.removesuffix("()")
        text = f"<code>{word.replace('_', '&#95;')}</code>"
        plain = word.endswith("()") or re.search("[a-z][A-Z]", bare)  # "Damage" may begin a sentence
        if plain and (place := place_of(bare.removeprefix("rocketc."), owner)):
            return f"[{text}][{place}]"
        return text if word.endswith("()") or "_" in word.strip("_") else word.replace("_", "&#95;")

    literal, setting, file = r"\"[\w.-]+\"", r"(?<![\w.])[a-z]\w+=(?:\"[\w.-]*\"|\w+)", r"\bdocs/[\w/]+\.md\b"
    name = r"(?<![\w&%-])_*[A-Za-z][\w.]*\w(?:\(\))?(?!\w)"
    return re.sub(f"{literal}|{setting}|{file}|{name}|_", linked, text)


def rendered(text: str, owner: str = "") -> str:
    """Return a docstring as Markdown: paragraphs, tables of names and meanings, examples."""
    out: list[str] = []
    lines = text.splitlines()
    while lines:
        if not lines[0].strip():
            lines.pop(0)
        elif lines[0].startswith(">>>"):
            block = taken(lines, lambda line: line.strip())
            out.append("```pycon\n" + "\n".join(block) + "\n```")
        elif lines[0].startswith("    "):
            block = taken(lines, lambda line: not line.strip() or line.startswith("    "))
            out.append("```python\n" + textwrap.dedent("\n".join(block)).strip("\n") + "\n```")
        elif re.match(rf"{TERM} {{2,}}\S", lines[0]):
            out.append(table(lines, owner))
        else:
            block = [lines.pop(0)]
            while lines and lines[0].strip() and not re.match(rf" {{4}}|>>>|{TERM} {{2,}}\S", lines[0]):
                block.append(lines.pop(0))
            out.append(prose("\n".join(block), owner))
    return "\n\n".join(out)


def taken(lines: list[str], wanted: Any) -> list[str]:
    found = []
    while lines and wanted(lines[0]):
        found.append(lines.pop(0))
    return found


def table(lines: list[str], owner: str) -> str:
    """Read lines such as `name, other   what they are`, and their continuation lines."""
    first = re.match(rf"{TERM} {{2,}}(?=\S)", lines[0])
    assert first is not None
    column = first.end()
    rows: list[tuple[str, list[str]]] = []
    while lines and lines[0].strip():
        if rows and lines[0].startswith("  "):
            rows[-1][1].append(lines.pop(0).strip())
            continue
        row = re.match(rf"({TERM}) {{2,}}(\S.*)", lines[0]) or re.match(rf"({TERM}) (.*)", lines[0])
        if row is None or (row.end(1) < column - 1 and row.start(2) != column and row.start(2) < column):
            break
        if row.end(1) >= column and row.start(2) - row.end(1) == 1:
            break  # a sentence
        rows.append((row[1], [row[2]]))
        lines.pop(0)
    return grid(["", ""], [[fixed(term), prose(" ".join(meaning), owner)] for term, meaning in rows])


def fixed(text: str) -> str:
    """Return text as code that also works in a table."""
    return f"<code>{escaped(text).replace('_', '&#95;')}</code>" if text else ""


def grid(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
