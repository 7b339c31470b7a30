"""Check the language of the texts that people read: docs, docstrings, comments, messages, help texts and test names.

    python tools/prose.py                   check the whole project
    python tools/prose.py docs rocketc/cli  check some files or folders
    python tools/prose.py --count           count the findings per folder
    python tools/prose.py --rules           list the rules

Each finding is a line `file:line: text: use this instead`. The exit status is 1 if there is a finding. A rule has no
exceptions: rewrite the sentence, or change the rule for everybody.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 30  # of a sentence in the docs


@dataclass(frozen=True)
class Rule:
    """A word or form that the project does not use.

    pattern  matches the word or form
    instead  what to write
    why      the reason
    example  a text that it finds
    """

    pattern: re.Pattern[str]
    instead: str
    why: str
    example: str


def rules() -> list[Rule]:
    """Read prose.tsv: one rule a line, its fields separated by tabs."""
    lines = Path(__file__).with_suffix(".tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [Rule(re.compile(pattern, re.I | re.M), instead, why, example) for pattern, instead, why, example in rows]


RULES = rules()


TEXT_FILES = {".md"}
CODE_FILES = {".py", ".pyi", ".pyx", ".pxd", ".ipynb"}
C_FILES = {".h", ".c"}
HASH_FILES = {".sh", ".yml", ".yaml", ".toml", ".cfg", "Makefile"}

_STRINGS = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<prefix>(?<![\w])[rRbBuUfFc]{0,2})(?:(?P<long>\"\"\"|''')(?P<text>.*?)(?<!\\)(?:\\\\)*(?P=long)"""
    r"""|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)')""",
    re.S,
)
_C_COMMENTS = re.compile(r"/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|\"(?:\\.|[^\"\\\n])*\"", re.S)
_TESTS = re.compile(r"^\s*def (test_\w+)", re.M)
_CODE = re.compile(r"``[^`]*``|`[^`\n]*`|\bhttps?://\S+|:(?:func|class|meth):`[^`]*`|\]\([^)]*\)|<!--.*?-->", re.S)
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)
_ITEM = re.compile(r"([-*+] |\d+\. |\||#|>|=+$|:::|!!!)")
_ARGUMENT = re.compile(r"\S+(,? \S+){0,3} {2,}\S")  # a line of an argument list: names, blanks, text
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


@dataclass(frozen=True)
class Text:
    """A piece of prose: one paragraph, comment block, message or test name.

    path, line  where it starts
    words       the text; code and links are blanked out, line breaks are kept
    limit       the most words that a sentence may have; 0: no limit
    """

    path: Path
    line: int
    words: str
    limit: int = 0


def blank(match: re.Match[str]) -> str:
    """Return code as one word with its line breaks, and the target of a link as its bracket."""
    return ("]" if match.group()[0] == "]" else "X") + "\n" * match.group().count("\n")


def paragraphs(path: Path, line: int, text: str, limit: int) -> Iterator[Text]:
    """The paragraphs of a docstring or page: separated by blank lines, list items, table rows and argument lists."""
    lines: list[str] = []
    start = line
    doctest = False
    argument = -1  # column of the argument list that the line belongs to
    for number, raw in enumerate([*text.split("\n"), ""], line):
        row = raw.strip()
        column = len(raw) - len(raw.lstrip())
        if row.startswith(">>>"):
            doctest = True
        if doctest:
            if not row:
                doctest = False
            row = ""
        begins = not row or _ITEM.match(row) or _ARGUMENT.match(row) or 0 <= argument >= column
        if begins:
            argument = column if _ARGUMENT.match(row) and not _ITEM.match(row) else -1
        if begins and lines:
            yield Text(path, start, "\n".join(lines), limit)
            lines = []
        if row:
            if not lines:
                start = number
            if row.startswith("|"):
                for cell in row.strip("|").split("|"):
                    yield Text(path, number, cell.strip(), limit)
                continue
            lines.append(re.sub(r"^([-*+] |\d+\. |#+ |> )", "", row))


def texts_of_page(path: Path) -> Iterator[Text]:
    yield from paragraphs(path, 1, _CODE.sub(blank, _FENCE.sub(blank, path.read_text())), MOST_WORDS)


def comment_blocks(path: Path, found: list[tuple[int, int, str]]) -> Iterator[Text]:
    """(line, column, text) of comments, those of following lines and the same column joined."""
    block: list[str] = []
    start = before = at = 0
    for line, column, text in [*found, (-1, -1, "")]:
        if block and (line != before + 1 or column != at):
            yield Text(path, start, _CODE.sub(blank, "\n".join(block)))
            block = []
        if not block:
            start, at = line, column
        block.append(text.strip())
        before = line


def place(source: str, at: int) -> tuple[int, int]:
    """Return the line, from 1, and the column, from 0, of a position."""
    return source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at) - 1


def is_prose(text: str) -> bool:
    """Whether a string is a sentence or a phrase: not a format, a key or a piece of code."""
    words = _WORD.findall(text)
    return text.count(" ") >= 2 and len(words) >= 3 and sum(map(len, words)) > 0.6 * len(text.replace(" ", ""))


def texts_of_code(path: Path) -> Iterator[Text]:
    source = path.read_text()
    comments: list[tuple[int, int, str]] = []
    for match in _STRINGS.finditer(source):
        line, column = place(source, match.start())
        if match.group("comment") is not None:
            text = match.group("comment").lstrip("#")
            if not re.match(r"( ?(noqa|type:|fmt:|cython:|pragma|!|distutils)|\w+: *$)", text):
                comments.append((line, column, text))
        elif match.group("text") is not None:
            before = source[: match.start()].rstrip()
            if source[match.start() - column : match.start()].strip() or before.endswith(("from *:", "(", ",")):
                continue  # a program or a table in a string
            yield from paragraphs(path, line, _CODE.sub(blank, match.group("text")), MOST_WORDS)
        else:
            text = match.group("double") or match.group("single") or ""
            while (without := re.sub(r"\{[^{}]*\}", "X", text)) != text:  # the innermost braces first
                text = without
            if is_prose(text):
                yield Text(path, line, _CODE.sub(blank, text))
    yield from comment_blocks(path, comments)
    for match in _TESTS.finditer(source):
        yield Text(path, place(source, match.start(1))[0], match.group(1).replace("_", " "))


def texts_of_c(path: Path) -> Iterator[Text]:
    source = path.read_text()
    lines: list[tuple[int, int, str]] = []
    for match in _C_COMMENTS.finditer(source):
        line, column = place(source, match.start())
        if match.group("block") is not None:
            text = re.sub(r"^\s*\*+ ?", "", match.group("block"), flags=re.M)
            yield from paragraphs(path, line, _CODE.sub(blank, text), 0)
        elif match.group("line") is not None:
            lines.append((line, column, match.group("line")))
    yield from comment_blocks(path, lines)


def texts_of_config(path: Path) -> Iterator[Text]:
    found = []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        match = re.search(r"(?:^|\s)##? (.*)", line)
        if match:
            found.append((number, match.start(), match.group(1)))
    yield from comment_blocks(path, found)


def texts(path: Path) -> Iterator[Text]:
    """The texts of one file; nothing for a file of another kind."""
    kind = path.name if path.name in HASH_FILES else path.suffix
    if kind in TEXT_FILES:
        yield from texts_of_page(path)
    elif kind in CODE_FILES - {".ipynb"}:
        yield from texts_of_code(path)
    elif kind in C_FILES:
        yield from texts_of_c(path)
    elif kind in HASH_FILES:
        yield from texts_of_config(path)


def findings(text: Text) -> Iterator[tuple[int, str, str]]:
    """(line, words found, what to write instead) for each rule that a text breaks."""
    flat = text.words.replace("\n", " ")
    for rule in RULES:
        for match in rule.pattern.finditer(flat):
            yield text.line + text.words.count("\n", 0, match.start()), match.group().strip(" .:;,("), rule.instead
    if text.limit:
        at = 0
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`X(\"'])", flat):
            count = len(_WORD.findall(sentence))
            if count > text.limit:
                line = text.line + text.words.count("\n", 0, at)
                begin = " ".join(sentence.split()[:5])
                yield line, f"{begin} ...", f"at most {text.limit} words a sentence, not {count}"
            at += len(sentence) + 1


def files(arguments: list[str]) -> list[Path]:
    """Return the files of the project that git does not ignore, or those below the arguments."""
    out = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    skipped = {ROOT / "tools" / "prose.py", ROOT / "tests" / "test_prose.py"}  # they quote what they search for
    return [path for path in (ROOT / name for name in out.splitlines()) if path.is_file() and path not in skipped]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the language of docs, docstrings, comments and messages.")
    parser.add_argument("paths", nargs="*", help="files or folders of the project; all of it if none is given")
    parser.add_argument("--count", action="store_true", help="print the number of findings per folder, and per rule")
    parser.add_argument("--rules", action="store_true", help="print the rules")
    options = parser.parse_args(arguments)
    if options.rules:
        for rule in RULES:
            print(f"{rule.pattern.pattern}\n    {rule.instead} ({rule.why})")
        return 0
    folders: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    for path in files([str(Path(name).resolve()) for name in options.paths]):
        for text in texts(path):
            for line, words, instead in findings(text):
                name = path.relative_to(ROOT)
                folders["/".join(name.parts[:-1][:2]) or name.parts[0]] += 1
                forms[instead if instead[:7] != "at most" else "long sentence"] += 1
                if not options.count:
                    print(f"{name}:{line}: {words}: {instead}")
    if options.count:
        for counter in (folders, forms):
            print("".join(f"{count:6d}  {what}\n" for what, count in counter.most_common()))
    total = sum(folders.values())
    print(f"prose: {total} findings" if total else "prose: all texts pass", file=sys.stderr)
    return 1 if total else 0


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
