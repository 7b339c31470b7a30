"""The generated pages of the site, and changes to the pages of docs/.

The pages of docs/ are also for readers on GitHub, and they link to tests, benchmarks and sources. These files become
pages below `project/`, so that every link of the site works without a network.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import drawings
import notebooks
import reference
from docstrings import escaped

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^][]*)\]\(([^)\s]+)\)")
LANGUAGES = {".py": "python", ".pyx": "cython", ".pyi": "python", ".pxd": "cython", ".h": "c", ".c": "c", ".sh": "sh",
             ".java": "java", ".json": "json", ".toml": "toml"}  # fmt: skip
HIDDEN = "---\nsearch:\n  exclude: true\n---\n"  # not in the search: readers do not search for sources


FENCED = re.compile(r"(^(`{3,}).*?^\2 *$)", re.M | re.S)


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Apply a function to the text outside of fenced blocks."""
    pieces = FENCED.split(markdown)  # text, block, its fence, text, ...
    return "".join(change(piece) if n % 3 == 0 else piece for n, piece in enumerate(pieces) if n % 3 != 2)


def links(markdown: str) -> Iterator[str]:
    """Return the relative links of a page, without their anchors."""
    for _, target in LINK.findall(FENCED.sub("", markdown)):
        if not re.match(r"\w+:|#", target):
            yield target.partition("#")[0]


def joined(folder: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(folder, target))


@functools.cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def title_of(path: str) -> str:
    """Return the first heading of a page or a notebook."""
    markdown = notebooks.page(ROOT / path) if path.endswith(".ipynb") else text_of(path)
    heading = re.search(r"^# (.*)", markdown, re.M)
    return heading[1] if heading else path


class Site:
    def __init__(self) -> None:
        self.origins: dict[str, str] = {}  # a page below project/ -> the file or folder in the repository
        for page in sorted((ROOT / "docs").glob("**/*.md")):
            self._follow(str(page.relative_to(ROOT)))
        for name in ("CHANGES.md", "README.md", "bench/README.md", "tests/README.md"):
            self._add(name)
        for path in sorted(ROOT.glob("examples/notebooks/*.ipynb")):
            self._add(str(path.relative_to(ROOT)))

    def _follow(self, source: str) -> None:
        """Add the files and folders to which this page of the repository links."""
        for target in links(text_of(source)):
            found = joined(posixpath.dirname(source), target)
            if not found.startswith(("docs/", "..")) and (ROOT / found).exists():
                self._add(found)

    def _add(self, found: str) -> None:
        page = self.page_of(found)
        if page in self.origins:
            return
        self.origins[page] = found
        if (ROOT / found).is_dir():
            if (ROOT / found / "README.md").exists():
                self._add(f"{found}/README.md")
        elif found.endswith(".md"):
            self._follow(found)

    def page_of(self, found: str) -> str:
        """Return the page that shows a file or folder of the repository."""
        if found.startswith("docs/"):
            return found.removeprefix("docs/")
        if found.endswith(".ipynb"):
            return f"notebooks/{PurePosixPath(found).stem}.md"
        if (ROOT / found).is_dir():
            return f"project/{found}/folder.md"
        return f"project/{found}" if found.endswith(".md") else f"project/{found}.md"

    def made(self) -> dict[str, str]:
        """Return name -> Markdown of each page that is not in docs/."""
        return reference.pages() | {page: self._shown(origin) for page, origin in self.origins.items()}

    def _shown(self, origin: str) -> str:
        path = ROOT / origin
        if origin.endswith(".md"):
            return text_of(origin)
        if origin.endswith(".ipynb"):
            return notebooks.page(path)
        if path.is_dir():
            rows = [self._row(origin, name) for name in sorted(os.listdir(path)) if not name.startswith(("_", "."))]
            return f"{HIDDEN}# {origin}/\n\n| | |\n|---|---|\n" + "\n".join(rows) + "\n"
        language = LANGUAGES.get(path.suffix, "text")
        fence = "`" * 5
        return f"{HIDDEN}# {origin}\n\n{fence}{language}\n{text_of(origin).rstrip()}\n{fence}\n"

    def _row(self, folder: str, name: str) -> str:
        """Return the line of a file in the list of a folder: its name, and the first sentence of its docstring."""
        path = ROOT / folder / name
        said = re.match(r'"""(.+?)(?:"""|\n|$)', path.read_text(encoding="utf-8")) if name.endswith(".py") else None
        page = self.page_of(f"{folder}/{name}")
        shown = f"[{name}]({name})" if page in self.origins else f"`{name}`"
        return f"| {shown} | {escaped(said[1]) if said else ''} |"

    def for_the_site(self, page: str, markdown: str) -> str:
        """Return the Markdown of a page for the site."""
        if page.startswith("reference/"):
            return markdown
        origin = self.origins.get(page, f"docs/{page}")
        base = origin if (ROOT / origin).is_dir() else posixpath.dirname(origin)

        def relinked(found: re.Match[str]) -> str:
            file, mark, anchor = found[2].partition("#")
            target = joined(base, file)
            if re.match(r"\w+:", found[2]) or not file or not (ROOT / target).exists():
                return found[0]
            there = posixpath.relpath(self.page_of(target), posixpath.dirname(page) or ".")
            in_list = page == "README.md" and found[1] in (file, posixpath.basename(file))
            shown = title_of(target) if in_list else found[1]
            return f"[{shown}]({there}{mark}{anchor})"

        markdown = re.sub(r"^<!--.*?-->\n?", "", markdown, flags=re.M | re.S)  # marks for the tests
        markdown = outside_code(markdown, lambda text: re.sub(r"<!--.*?-->", "", text, flags=re.S))  # rows of figures
        markdown = re.sub(r"^```python\n(?=>>>)", "```pycon\n", markdown, flags=re.M)
        markdown = outside_code(markdown, lambda text: LINK.sub(relinked, text))
        return drawings.drawn(markdown)
