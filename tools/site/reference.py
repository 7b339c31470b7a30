"""The reference: pages of Markdown made of docstrings, of the stubs beside the extensions, and of the command line.

A signature comes from the source that has types: NAME.pyi for an extension, the Python file else. A docstring comes
from the object itself. What is public and has no page makes the site fail: see missing().
"""

from __future__ import annotations

import ast
import enum
import functools
import html
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[2]

# Page -> title, what it is about, and the names on it. A name is what one imports: module, dot, name.
PAGES: dict[str, tuple[str, str, list[str]]] = {
    "reading": (
        "Reading",
        "A scan reads the log of a store, or a part of it: as messages, as Arrow columns, or into a file.",
        [
            *[
                "scan",
                "decode",
                "Scan",
                "ScanReport",
                "Damage",
                "Message",
                "Batch",
                "COLUMN_NAMES",
                "export",
                "ExportReport",
            ],
            *["exports.Export", "jobs.count", "jobs.Count", "jobs.Group", "jobs.DIMENSIONS"],
        ],
    ),
    "store": (
        "A store",
        "To write to a store, and to read it by queue, key, id and time.",
        [
            *["open", "MessageStore", "PutResult", "PutStatus", "GetResult", "GetStatus", "RawGetResult"],
            *["QueryResult", "Subscription", "QueueChange"],
            *["tables.TopicConfig", "CleanReport", "Cleaned", "OldestKept"],
        ],
    ),
    "settings": ("Settings", "All that open() takes, and `broker.conf` says.", ["StoreConfig"]),
    "queue": ("A work queue", "A queue that outlives the process.", ["Queue", "Consumer", "Item"]),
    "repair": (
        "Verify, salvage, rebuild",
        "What is wrong with a store, and what can be done about it.",
        [
            *["verify", "VerifyReport", "FileReport", "QueueRange", "jobs.DerivedReport"],
            *["jobs.Finding", "salvage", "SalvageReport", "rebuild", "RebuildReport"],
        ],
    ),
    "records": (
        "Records and ids",
        "Single records as RocketMQ stores them, batches as clients send them, and what the two kinds of ids say.",
        [
            *["encode", "encode_blank", "encode_batch", "decode_batch", "decode_offset_id", "OffsetId"],
            *["decode_unique_id", "UniqueId"],
        ],
    ),
    "tables": (
        "The broker's tables",
        "The JSON files in a store's folder `config`: topics, consumer groups, offsets.",
        [
            *["tables.read_table", "tables.write_table", "tables.Topics", "tables.SubscriptionGroups"],
            *[
                "tables.SubscriptionGroupConfig",
                "tables.ConsumerOffsets",
                "tables.DelayOffsets",
                "tables.DeletedTopics",
            ],
        ],
    ),
    "metrics": (
        "Metrics",
        "Numbers of a store for monitoring; what each metric means: [howto/observe.md](../howto/observe.md).",
        [
            *["metrics.measures", "metrics.Measure", "metrics.Sample", "metrics.Histogram", "metrics.SnapshotReader"],
            *["metrics.StoreSnapshot", "metrics.TopicSnapshot", "metrics.Lag"],
            *["metrics.prometheus.StoreCollector", "metrics.opentelemetry.observe"],
        ],
    ),
    "errors": (
        "Errors",
        "Each says what was wrong, where, and what to do. `except rocketc.RocketcError` catches all of them.",
        [
            *["RocketcError", "CorruptRecordError", "CorruptUnitError", "DamageWarning", "MissingCodecError"],
            *["PatternTimeoutError", "StoreIOError", "StoreFullError", "StoreLockedError", "StoreFailedError"],
            *["PageCacheBusyError", "IllegalMessageError", "PhyOffsetError", "ClosedError"],
        ],
    ),
    "spark": (
        "Spark",
        '`spark.read.format("rocketmq")` and its options: [howto/spark.md](../howto/spark.md). Here are the functions '
        "for jobs of your own; they need the extra `spark`.",
        [
            *["spark.splits", "spark.Split", "spark.decode_partition", "spark.decode_batches", "spark.schema"],
            *["spark.SCHEMA", "spark.dropped_accumulator", "spark.Dropped"],
            *["spark.archive.archive", "spark.archive.read_archive", "spark.archive.ArchiveReport"],
        ],
    ),
}

# Constants have no docstring.
CONSTANTS = {
    "COLUMN_NAMES": "The names of all columns, in the order in which a scan hands them out unless told otherwise.",
    "jobs.DIMENSIONS": "What jobs.count() can group by.",
    "spark.SCHEMA": "The schema of all columns: what decode_batches() makes, for mapInArrow.",
}
NOT_SHOWN = {"status", "with_traceback", "add_note", "args"}  # of exceptions


# ------------------------------------------------------------------------------------------ what is public


def public() -> set[str]:
    """What `import rocketc` gives, and each module below it that says in `__all__` what it gives."""
    import rocketc

    names = set(rocketc.__all__)
    for _, module, _ in pkgutil.iter_modules(rocketc.__path__):
        path = ROOT / "rocketc" / module
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not module.startswith("_") and source.exists() and "\n__all__ = " in source.read_text(encoding="utf-8"):
            own = importlib.import_module(f"rocketc.{module}").__all__
            things = {name: getattr(importlib.import_module(f"rocketc.{module}"), name) for name in own}
            names |= {f"{module}.{name}" for name, thing in things.items() if thing is not getattr(rocketc, name, None)}
    return names


def missing() -> set[str]:
    """Public names that no page has."""
    return public() - {name for _, _, names in PAGES.values() for name in names}


def resolve(name: str) -> Any:
    module, _, attribute = f"rocketc.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def shown(name: str) -> str:
    """The name as users say it: modules that begin with `_` are left out."""
    return ".".join(part for part in name.split(".") if not part.startswith("_"))


def anchor(name: str) -> str:
    return f"rocketc.{shown(name)}"


@functools.cache
def places() -> dict[str, list[tuple[str, str]]]:
    """Last part of a name -> pages and anchors that it may mean: names that are imported, then methods."""
    found: dict[str, list[tuple[str, str]]] = {}
    names = [(page, name) for page, (_, _, names) in PAGES.items() for name in names]
    for page, name in names:
        found.setdefault(name.rpartition(".")[2], []).append((page, anchor(name)))
    for page, name in names:
        thing = resolve(name)
        for method, _ in methods_of(thing) if inspect.isclass(thing) else []:
            found.setdefault(method, []).append((page, f"{anchor(name)}.{method}"))
    return found


def place_of(word: str, page: str) -> tuple[str, str] | None:
    """What `Scan.batches()`, `batches()` or `ScanReport` in a text of this page means, if that is plain."""
    may = [place for place in places().get(word.rpartition(".")[2], []) if place[1].endswith(f".{word}")]
    here = [place for place in may if place[0] == page]
    return here[0] if len(here) == 1 else may[0] if len(may) == 1 else None


def members_of(thing: type) -> dict[str, type]:
    """Public ones of a class, with the class of ours that has each."""
    ours = [base for base in reversed(thing.__mro__) if base.__module__.startswith("rocketc")]
    return {name: base for base in ours for name in vars(base) if not name.startswith("_") and name not in NOT_SHOWN}


def methods_of(thing: type) -> list[tuple[str, type]]:
    return sorted((name, base) for name, base in members_of(thing).items() if is_method(thing, name))


def is_method(thing: type, name: str) -> bool:
    return callable(getattr(thing, name)) and not isinstance(inspect.getattr_static(thing, name), property)


# ------------------------------------------------------------------------------------------ signatures


@functools.cache
def tree_of(module: str) -> ast.Module:
    path = ROOT / module.replace(".", "/")
    found = [p for p in (path.with_suffix(".pyi"), path.with_suffix(".py"), path / "__init__.py") if p.exists()]
    return ast.parse(found[0].read_text(encoding="utf-8"))


def definition(module: str, *path: str) -> Any:
    """The node of the syntax tree that defines this, or None; of overloads the first."""
    node: Any = tree_of(module)
    for name in path:
        node = next((child for child in node.body if getattr(child, "name", None) == name), None)
        if node is None:
            return None
    return node


def signature(name: str, node: Any, *, method: bool = False) -> str:
    """`name(...)` with types, over several lines if it is long."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [one(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    static = any(getattr(each, "id", None) == "staticmethod" for each in node.decorator_list)
    if method and not static:
        parts = parts[1:]
        if parts[:1] == ["/"]:
            parts = parts[1:]
    if arguments.vararg:
        parts.append("*" + one(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [one(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parts.append("**" + one(arguments.kwarg, None))
    back = (
        f" -> {ast.unparse(node.returns)}"
        if node.returns is not None and node.name not in ("__init__", "__new__")
        else ""
    )
    back = "" if back == " -> None" else back
    return laid_out(name, parts, back)


def one(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    if default is not None:
        text += (" = " if argument.annotation is not None else "=") + ast.unparse(default)
    return text


def laid_out(name: str, parts: list[str], back: str = "") -> str:
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) <= 90:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){back}"])


def types_in(page: str, text: str) -> Iterator[str]:
    """What names of types stand for that signatures of this page use: `When` is `int | datetime.datetime`."""
    signatures = " ".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    things = [resolve(name) for name in PAGES[page][2]]
    modules = {getattr(one, "__module__", "") for thing in things for one in getattr(thing, "__mro__", [thing])}
    rows = []
    for node in [
        node
        for module in sorted(modules)
        if module.startswith("rocketc")
        for node in tree_of(module).body
        if isinstance(node, ast.Assign)
    ]:
        [target] = node.targets if len(node.targets) == 1 else [None]
        name = getattr(target, "id", "")
        if re.match("_?[A-Z][a-z]", name) and re.search(rf"(?<!\w){name}\b", signatures):
            rows.append([fixed(name), fixed(ast.unparse(node.value))])
    if rows:
        yield "## Types in signatures"
        yield grid(["", ""], sorted(rows))


# ------------------------------------------------------------------------------------------ docstrings


def docstring(thing: Any) -> str:
    """Without the signature that Cython puts on top."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"\A[\w.]+\(.*\)(?: -> .*)?(?:\n\n|\Z)", "", text)


def prose(text: str, page: str) -> str:
    """A docstring's line or paragraph as Markdown: names in code, known ones as links."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        fixed(piece[1:-1]) if n % 2 and not piece.startswith("`docs/") else named(escaped(piece.strip("`")), page)
        for n, piece in enumerate(pieces)
    )


def escaped(text: str) -> str:
    return re.sub(r"[*\[\]|\\#`{}]", lambda found: f"&#{ord(found[0])};", html.escape(text, quote=False))


def named(text: str, page: str) -> str:
    def linked(found: re.Match[str]) -> str:
        word = found[0]
        if word.startswith('"') or "=" in word:
            return fixed(html.unescape(word))
        if word.startswith("docs/"):
            return f"[{word.removeprefix('docs/')}](../{word.removeprefix('docs/')})"
        bare = word.removesuffix("()")
        text = f"<code>{word.replace('_', '&#95;')}</code>"
        plain = word.endswith("()") or re.search("[a-z][A-Z]", bare)  # "Damage" may begin a sentence
        if plain and (place := place_of(bare.removeprefix("rocketc."), page)):
            where, at = place
            return f"[{text}]({'' if where == page else where + '.md'}#{at})"
        return text if word.endswith("()") or "_" in word.strip("_") else word.replace("_", "&#95;")

    literal, setting, file = r"\"[\w.-]+\"", r"(?<![\w.])[a-z]\w+=(?:\"[\w.-]*\"|\w+)", r"\bdocs/[\w/]+\.md\b"
    name = r"(?<![\w&%-])_*[A-Za-z][\w.]*\w(?:\(\))?(?!\w)"
    return re.sub(f"{literal}|{setting}|{file}|{name}|_", linked, text)


TERM = r"[*\w%]+(?:, [*\w%]+)*(?: = .*?)?"


def rendered(text: str, page: str) -> str:
    """A docstring as Markdown: paragraphs, tables of names and meanings, examples."""
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
            out.append(table(lines, page))
        else:
            block = [lines.pop(0)]
            while lines and lines[0].strip() and not re.match(rf" {{4}}|>>>|{TERM} {{2,}}\S", lines[0]):
                block.append(lines.pop(0))
            out.append(prose("\n".join(block), page))
    return "\n\n".join(out)


def taken(lines: list[str], wanted: Any) -> list[str]:
    found = []
    while lines and wanted(lines[0]):
        found.append(lines.pop(0))
    return found


def table(lines: list[str], page: str) -> str:
    """Lines such as `name, other   what they are`, and those below that go on."""
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
    return grid(["", ""], [[fixed(term), prose(" ".join(meaning), page)] for term, meaning in rows])


def fixed(text: str) -> str:
    """In code, also within a table."""
    return f"<code>{escaped(text).replace('_', '&#95;')}</code>" if text else ""


def grid(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# ------------------------------------------------------------------------------------------ pages


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def heading(level: int, text: str, at: str, kind: str = "") -> str:
    mark = f" <small>{kind}</small>" if kind else ""
    label = text.rpartition(".")[2]  # beside the page is little room
    return f"{'#' * level} {text.replace('_', '&#95;')}{mark} {{ #{at} data-toc-label='{label}' }}"


def function_page(name: str, thing: Any, page: str) -> Iterator[str]:
    """A function by the name that users say, whatever it is called where it is defined."""
    node = definition(thing.__module__, thing.__name__)
    yield heading(2, shown(name), anchor(name))
    yield code(signature(f"rocketc.{shown(name)}", node))
    yield rendered(docstring(thing), page)


def class_page(name: str, thing: type, page: str) -> Iterator[str]:
    parents = [base.__name__ for base in thing.__bases__ if base is not object and not base.__name__.startswith("_")]
    ours = [base for base in thing.__mro__ if base.__module__.startswith("rocketc")]
    yield heading(2, shown(name), anchor(name), "class")
    if issubclass(thing, enum.Enum):
        yield f"An `enum.{parents[0]}`: " + ", ".join(f"`{each.name}` = {each.value}" for each in thing) + "."
    elif issubclass(thing, BaseException):
        bases = [named(escaped(base), page) for base in parents]
        yield f"Is {' and '.join(('an ' if base[0] in 'AEIO' else 'a ') + base for base in bases)}."
    elif made := constructor(thing, ours):
        yield code(made)
    if doc := thing.__doc__ and docstring(thing):
        yield rendered(doc, page)
    if issubclass(thing, enum.Enum):
        return
    fields = getattr(thing, "_fields", ())  # of a named tuple: its arguments
    values = [
        (member, base)
        for member, base in sorted(members_of(thing).items())
        if not is_method(thing, member)
        and member not in fields
        and inspect.isdatadescriptor(inspect.getattr_static(thing, member))
    ]
    if values:
        yield grid(["attribute", "type", ""], [attribute(member, base, page) for member, base in values])
    for member, base in methods_of(thing):
        node = definition(base.__module__, base.__qualname__, member)
        yield heading(3, f"{shown(name)}.{member}", f"{anchor(name)}.{member}")
        yield code(signature(member, node, method=True))
        yield rendered(docstring(getattr(thing, member)), page)


def constructor(thing: type, ours: list[type]) -> str | None:
    """How one makes it, if a user does."""
    if thing.__name__ in ("MessageStore", "Consumer", "Scan"):
        return None  # others make it
    for base in ours:
        for special in ("__new__", "__init__"):
            node = definition(base.__module__, base.__qualname__, special)
            if node is not None:
                return None if "Never" in ast.unparse(node.args) else signature(thing.__name__, node, method=True)
    if thing.__name__ == "StoreConfig":
        return None  # the docstring lists its fields
    if hasattr(thing, "_fields") or hasattr(thing, "__dataclass_fields__"):
        body = definition(thing.__module__, thing.__qualname__).body
        return laid_out(thing.__name__, [field(each) for each in body if isinstance(each, ast.AnnAssign)])
    return None


def field(node: ast.AnnAssign) -> str:
    """One of a dataclass or a named tuple, as an argument."""
    text = f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    made = re.sub(r"field\(default_factory=(\w+)\)", r"\1()", ast.unparse(node.value)) if node.value is not None else ""
    return f"{text} = {made}" if made and not made.startswith("field(") else text


def attribute(member: str, base: type, page: str) -> list[str]:
    node = definition(base.__module__, base.__qualname__, member)
    kind = ast.unparse(node.returns) if node is not None and getattr(node, "returns", None) is not None else ""
    doc = docstring(vars(base)[member]).split("\n\n")[0] if vars(base)[member].__doc__ else ""
    return [fixed(member), fixed(kind), prose(doc, page)]


def constant_page(name: str, value: Any, page: str) -> Iterator[str]:
    yield heading(2, shown(name), anchor(name), "constant")
    yield prose(CONSTANTS[name], page)
    yield code(
        f"rocketc.{shown(name)} = {textwrap.fill(repr(value), 96, subsequent_indent='    ', break_long_words=False)}"
    )


def page_of(page: str) -> str:
    title, about, names = PAGES[page]
    parts = [f"# {title}", about]
    for name in names:
        thing = resolve(name)
        if name in CONSTANTS:
            parts += constant_page(name, thing, page)
        elif inspect.isclass(thing):
            parts += class_page(name, thing, page)
        else:
            parts += function_page(name, thing, page)
    text = "\n\n".join(parts)
    return "\n\n".join([text, *types_in(page, text)]) + "\n"


# ------------------------------------------------------------------------------------------ the command line


def command_page() -> str:
    """Every command, with its options, as `rocketc COMMAND --help` says it."""
    from rocketc.cli.main import cli

    context = click.Context(cli, info_name="rocketc", **cli.context_settings)  # click keeps -h of the first one it sees
    parts = ["# The command line", said(cli.help or "")]
    epilog = (cli.epilog or "").split("\b\n")[-1].split("\n\n")
    parts += [shell(epilog[0]), " ".join(epilog[1].split())]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context)
        parts += [heading(2, f"rocketc {name}", f"rocketc-{name}")]
        parts += [f"```text\n{command.get_usage(own).removeprefix('Usage: ')}\n```", said(command.help or "")]
        rows = [row for each in command.get_params(own) if (row := each.get_help_record(own))]
        parts += [grid(["", ""], [[fixed(option), prose(text, "cli")] for option, text in rows if text])]
        parts += [shell(block) for block in (command.epilog or "").replace("\b\n", "").split("\n\n") if block.strip()]
    return "\n\n".join(parts) + "\n"


def said(text: str) -> str:
    """click's help text: paragraphs; those that begin with a backspace keep their lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        f"```text\n{each.removeprefix(chr(8)).strip(chr(10))}\n```" if each.startswith("\b") else prose(each, "cli")
        for each in paragraphs
    )


def shell(block: str) -> str:
    """Examples: lines that are indented are commands."""
    lines = block.strip("\n").splitlines()
    language = "console" if any(line.strip().startswith("rocketc ") for line in lines) else "text"
    body = [line for line in lines if line.strip() != "Examples:"]
    body = textwrap.dedent("\n".join(body)).splitlines()
    if language == "console":
        body = [f"$ {line}" if line.startswith("rocketc ") else line for line in body]
    return f"```{language}\n" + "\n".join(body) + "\n```"


def pages() -> dict[str, str]:
    """Path below the site's docs -> Markdown. Raises ValueError for a public name without a page."""
    if lost := missing():
        raise ValueError(f"tools/site/reference.py: no page of the reference has {', '.join(sorted(lost))}")
    made = {f"reference/{page}.md": page_of(page) for page in PAGES}
    return made | {"reference/cli.md": command_page()}
