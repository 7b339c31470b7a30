"""Runs the examples in the pages of docs/ and in README.md, so that the pages show only what is true.

How to write a page:

- Each page has its own folder as current directory, with the golden store flights-2013-01 in it as `store`.
  `<!-- store: v533-broker -->` in the page uses another store; `<!-- store: damaged=v533-bitrot -->` adds a store of
  that name. The stores are copies: the page may write to them.
- Every ```console block in which a command calls rocketc is run, from the top of the page to its end. A command begins
  with `$ `. After a `\\` or `|` at the end of a line it continues in the next line, which may begin with `> `. Each
  command runs in its own bash; stdout and stderr go to one pipe, 100 columns wide. The page must show what the command
  prints. A line `...` matches any number of lines, `...` within a line any text; blanks at the end of a line are
  ignored.
- Every ```python block is run too; the blocks of a page share their names. A block with `>>>` is a doctest (with
  ELLIPSIS), where a warning is printed as `Category: text`.
- `<!-- not run: why -->` right above a block excludes it. A page in which nothing runs is listed in tests/test_docs.py.
- `<!-- serves -->` right above a console block: its last command runs until the end of the page, which sends it SIGINT.
- `<!-- network: 10.0.0.5 -->` in a page runs it in a process and a network of its own (own_network.py), with these
  addresses beside 127.0.0.1: the page shows the default ports. `<!-- scene: name -->` above a block starts what
  page_scenes.py has under this name, until the end of the page. Times, rates and free ports stand for any others there.
- `<!-- spark -->` right above a block says that it needs `spark`, a SparkSession; anywhere else, that the whole page
  needs it. These pages run under the marker `spark`, including their other blocks.
"""

import contextlib
import doctest
import importlib
import io
import itertools
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from support.command import environment
from support.stores import GoldenStore

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

COMMENT = re.compile(r"<!--\s*(not run|store|spark|serves|network|scene)\b:?\s*(.*?)\s*-->")
RANDOM = (  # what differs between two runs of a page that has a network of its own
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}Z?"), "TIME"),
    (re.compile(r"(?<= )(\?|[\d,]+\.\d)(?= )"), "RATE"),
    (re.compile(r"(?<= )\d+%(?= )"), "PERCENT"),
    (re.compile(r"(?<=\d:)[345]\d{4}\b"), "PORT"),
    (re.compile(r" +"), " "),
)
CALLS_ROCKETC = re.compile(r"(^|[|;&(]|\bdo|\bthen|\btime|\btimeout \S+)\s*rocketc\b")
NOT_FOUND = 127  # the shell's exit code
PROLOGUE = 'dd() { LD_PRELOAD= command dd "$@"; }; '  # the address sanitizer rejects how dd aligns its buffer


class Wrong(Exception):
    """A page is wrong: the place, and what differs."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of its first line in the page, from 1
    language: str
    lines: list[str]
    spark: bool
    not_run: str | None
    serves: bool = False
    scene: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @cached_property
    def commands(self) -> list[tuple[int, str, list[str]]]:
        """Line in the page, command, and the output shown, of each command of a console block."""
        found: list[tuple[int, str, list[str]]] = []
        goes_on = False
        for number, line in enumerate(self.lines, self.line):
            if goes_on:
                at, text, shown = found.pop()
                found.append((at, text + "\n" + line.removeprefix("> "), shown))
            elif line.startswith("$ "):
                found.append((number, line[2:], []))
            elif found:
                found[-1][2].append(line)
            else:
                raise Wrong(f"{self.place}: a console block begins with `$ `")
            goes_on = (goes_on or line.startswith("$ ")) and line.endswith(("\\", "|"))
        return found

    @property
    def runs(self) -> bool:
        if self.not_run is not None:
            return False
        if self.language == "console":
            return any(CALLS_ROCKETC.search(command) for _, command, _ in self.commands)
        return self.language == "python"


class Page:
    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(ROOT)) if ROOT in path.parents else path.name
        self.stores = {"store": "flights-2013-01"}  # name in the page's folder -> golden store
        self.path = path
        self.blocks: list[Block] = []
        self.spark = False
        self.network: list[str] | None = None  # of its own, with these addresses
        self._read(path.read_text(encoding="utf-8").splitlines())

    def _read(self, lines: list[str]) -> None:
        above: dict[str, str] = {}  # the comments right above
        fence: tuple[str, int, str] | None = None  # its backticks, the number of its first line, the language
        inside: list[str] = []
        for number, line in enumerate(lines, 1):
            if fence:
                if line.strip() == fence[0]:
                    why = above.get("not run")
                    marks = "spark" in above, why, "serves" in above, above.get("scene")
                    self.blocks.append(Block(self.name, fence[1], fence[2], inside, *marks))
                    fence, above, inside = None, {}, []
                else:
                    inside.append(line)
            elif opening := re.match(r"(```+)\s*(\w*)", line):
                fence = opening[1], number + 1, opening[2]
            elif comments := COMMENT.findall(line):
                for kind, text in comments:
                    above[kind] = text
                    if kind == "store":
                        pairs = [word.rpartition("=") for word in text.split()]
                        self.stores |= {name or "store": golden for name, _, golden in pairs}
                    elif kind == "network":
                        self.network = text.split()
            elif line.strip():
                self._left_alone(above, number)
                above = {}
        if fence:
            raise Wrong(f"{self.name}:{fence[1] - 1}: this block does not end")
        self._left_alone(above, len(lines))
        for block in self.blocks:
            if block.not_run == "":
                raise Wrong(f"{block.place}: <!-- not run: --> says no reason")

    def _left_alone(self, comments: dict[str, str], number: int) -> None:
        """Handle comments that no block follows."""
        self.spark |= "spark" in comments
        if "not run" in comments:
            raise Wrong(f"{self.name}:{number}: no block follows <!-- not run -->")

    @property
    def needs_spark(self) -> bool:
        return self.spark or any(block.spark for block in self.blocks)

    @property
    def runs(self) -> bool:
        """Whether a block runs without Spark."""
        return not self.spark and any(block.runs and not block.spark for block in self.blocks)

    def run(self, folder: Path, golden: Callable[[str], GoldenStore], **names: Any) -> list[str]:
        """Run the blocks in this empty folder; without `spark` among the names, only those that do not need it.

        Returns the commands that could not be tried because they call a program that is not installed.
        """
        for name, store in self.stores.items():
            subprocess.run(["cp", "-Rp", golden(store).path, folder / name], check=True)  # keeps holes
        bin_folder = folder.with_name(folder.name + ".bin")
        bin_folder.mkdir()
        script = bin_folder / "rocketc"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocketc "$@"\n')
        script.chmod(0o755)
        if self.network is not None:
            return self._run_in_network(folder, bin_folder)
        return self.run_blocks(folder, bin_folder, names)

    def _run_in_network(self, folder: Path, bin_folder: Path) -> list[str]:
        command = [sys.executable, "-m", "support.pages", self.path, folder, bin_folder]
        env = environment(PYTHONPATH=os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
        done = subprocess.run(
            [str(part) for part in command], cwd=folder, env=env, capture_output=True, text=True, timeout=200
        )
        if done.returncode:
            raise Wrong(done.stderr.removeprefix("support.pages.Wrong: "))
        return done.stdout.splitlines()

    def run_blocks(self, folder: Path, bin_folder: Path, names: dict[str, Any]) -> list[str]:
        """The same, when the folder is ready."""
        not_tried: list[str] = []
        wrong: list[str] = []
        space: dict[str, Any] = {"__name__": "__main__", **names}
        with contextlib.ExitStack() as stack:
            for block in self.blocks:
                if block.runs and ("spark" in names or not block.spark):
                    if block.scene:
                        stack.enter_context(
                            getattr(importlib.import_module("support.page_scenes"), block.scene)(folder)
                        )
                    try:
                        if block.language == "python":
                            run_python(block, space)
                        else:
                            not_tried += run_console(block, folder, bin_folder, stack, self.network is not None)
                    except Wrong as e:
                        wrong.append(str(e))
        if wrong:
            raise Wrong("\n\n".join(wrong))
        return not_tried


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether the page shows this output. A line `...` matches any number of lines, `...` within a line any text."""
    chunks: list[list[str]] = [[]]  # the lines between the lines `...`
    for line in shown:
        if line.strip() == "...":
            chunks.append([])
        else:
            chunks[-1].append(line)

    def stands_at(at: int, chunk: list[str]) -> bool:
        lines = printed[at : at + len(chunk)]
        return len(lines) == len(chunk) and all(map(line_matches, chunk, lines))

    first, *others = chunks
    if not stands_at(0, first):
        return False
    if not others:
        return len(printed) == len(first)
    at = len(first)
    for chunk in others[:-1]:
        while not stands_at(at, chunk):
            at += 1
            if at > len(printed):
                return False
        at += len(chunk)
    end = len(printed) - len(others[-1])
    return end >= at and stands_at(end, others[-1])


def line_matches(shown: str, printed: str) -> bool:
    """Whether a line of a page shows this line."""
    pattern = ".*".join(map(re.escape, shown.rstrip().split("...")))
    return re.fullmatch(pattern, printed.rstrip()) is not None


def without_random(line: str) -> str:
    for pattern, word in RANDOM:
        line = pattern.sub(word, line)
    return line


def run_console(
    block: Block, folder: Path, bin_folder: Path, stack: contextlib.ExitStack, any_time: bool = False
) -> list[str]:
    """Run the commands of a block; returns those that call a program that is not installed.

    stack     ends what serves
    any_time  all times, rates and so on are equal: see RANDOM
    """
    env = environment(COLUMNS="100", PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    not_tried = []
    for at, (number, command, shown) in enumerate(block.commands, 1):
        shell = ["bash", "-o", "pipefail", "-c", PROLOGUE + command]
        if block.serves and at == len(block.commands):
            printed, code = stack.enter_context(serving(shell, folder, env, len(shown))), 0
        else:
            done = subprocess.run(
                shell,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=120,
            )
            printed, code = done.stdout.decode("utf-8", "replace").splitlines(), done.returncode
        if any_time:
            shown, printed = list(map(without_random, shown)), list(map(without_random, printed))
        if code == NOT_FOUND:
            said = [line for line in printed if "not found" in line]
            not_tried.append(f"{block.page}:{number}: {said[0] if said else command}")
        elif not matches(shown, printed):
            some = [*printed[:60], f"({len(printed)} lines)"] if len(printed) > 60 else printed
            text = "\n    ".join([*shown, "but it prints:", *some, f"and ends with {code}"])
            raise Wrong(f"{block.page}:{number}: `{command}` shows:\n    {text}")
    return not_tried


@contextlib.contextmanager
def serving(shell: list[str], folder: Path, env: dict[str, str], lines: int) -> Iterator[list[str]]:
    """A command that serves until the end of the page: its first lines, which it must print within 20 s."""
    terminal, inner = pty.openpty()
    with open(terminal, encoding="utf-8") as screen, open(inner, "w") as output:
        server = subprocess.Popen(
            shell, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        limit = threading.Timer(20, os.killpg, (server.pid, signal.SIGKILL))
        limit.start()
        try:
            output.close()
            printed = []
            with contextlib.suppress(OSError):  # its end, which Linux reports as EIO
                printed += [line.rstrip() for line in itertools.islice(screen, lines)]
            limit.cancel()
            yield printed
        finally:
            limit.cancel()
            os.killpg(server.pid, signal.SIGINT)
            server.wait(20)


@contextlib.contextmanager
def warnings_printed() -> Iterator[None]:
    """Print warnings to stdout, as `Category: text`."""

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        print(f"{category.__name__}: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # examples use open(...).read(), harmless here
        warnings.simplefilter("ignore", DeprecationWarning)  # those of the libraries
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def run_python(block: Block, space: dict[str, Any]) -> None:
    source = "\n".join(block.lines) + "\n"
    told = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), warnings_printed():
        if ">>>" in source:
            test = doctest.DocTestParser().get_doctest(source, space, block.page, block.page, block.line - 1)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
            runner.run(test, out=told.write, clear_globs=False)
            space.update(test.globs)
        else:
            try:
                exec(compile("\n" * (block.line - 1) + source, str(ROOT / block.page), "exec"), space)
            except Exception:
                told.write(traceback.format_exc())
    if told.getvalue():
        raise Wrong(f"{block.place}:\n{told.getvalue()}")


def main() -> None:
    """Run the page of the command line in a network of its own, in the current folder; see Page._run_in_network()."""
    from support import own_network

    path, folder, bin_folder = map(Path, sys.argv[1:])
    page = Page(path)
    try:
        own_network.enter(page.network or [])
    except own_network.NoNetworkError as error:
        print(f"{page.name}: {error}")
        return
    try:
        print(*page.run_blocks(folder, bin_folder, {}), sep="\n", end="")
    except Wrong as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
