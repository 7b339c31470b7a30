"""The pages of the reference: public names, by mkdocstrings, and the command line.

mkdocstrings reads signatures from the Python files and the stubs; docstrings.py gives it the docstrings. A public name
without a page makes the site fail: see missing().
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from docstrings import fixed, grid, prose

ROOT = Path(__file__).parents[2]

# Page -> title, subject, and the names on it. A name is written as for an import: module, dot, name.
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
        "Write to a store, and read it by queue, key, id and time.",
        [
            *["open", "MessageStore", "PutResult", "PutStatus", "GetResult", "GetStatus", "RawGetResult"],
            *["QueryResult", "Subscription", "QueueChange"],
            *["tables.TopicConfig", "CleanReport", "Cleaned", "OldestKept"],
        ],
    ),
    "settings": ("Settings", "The settings of open() and of `broker.conf`.", ["StoreConfig"]),
    "queue": ("A work queue", "A queue that outlives the process.", ["Queue", "Consumer", "Item"]),
    "testing": ("A broker in a test", "A broker and a name server inside a test.", ["Broker"]),
    "repair": (
        "Verify, salvage, rebuild",
        "Find errors in a store, and repair them.",
        [
            *["verify", "VerifyReport", "FileReport", "QueueRange", "jobs.DerivedReport"],
            *["jobs.Finding", "salvage", "SalvageReport", "rebuild", "RebuildReport"],
        ],
    ),
    "replicate": (
        "A hot copy",
        "Copy the log of a running master.",
        ["replicate", "Replication", "ReplicaProgress"],
    ),
    "records": (
        "Records and ids",
        "Single records as RocketMQ stores them, batches as clients send them, and the fields of both kinds of ids.",
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
        "Metrics of stores and clients for monitoring; their meaning is in [howto/observe.md](../howto/observe.md).",
        [
            *["metrics.measures", "metrics.Measure", "metrics.Sample", "metrics.Histogram", "metrics.SnapshotReader"],
            *["metrics.StoreSnapshot", "metrics.TopicSnapshot", "metrics.Lag"],
            *["metrics.prometheus.StoreCollector", "metrics.opentelemetry.observe"],
            *["metrics.client_measures", "metrics.exposition"],
        ],
    ),
    "client": (
        "Client",
        "Producers, consumers and the administration of a cluster: [howto/client.md](../howto/client.md). Settings are "
        "keyword arguments.",
        [
            *["client.Producer", "client.AsyncProducer", "client.NewMessage", "client.SendResult", "client.SendStatus"],
            *["client.TransactionProducer", "client.AsyncTransactionProducer", "client.LocalTransactionState"],
            *["client.TransactionResult", "client.open_transaction.OpenTransaction", "client.EndTransactionContext"],
            *[
                "client.PushConsumer",
                "client.AsyncConsumer",
                "client.PullConsumer",
                "client.AsyncPullConsumer",
                "client.RetryLater",
                "client.OrderlyContext",
                "client.MessageQueue",
                "client.Admin",
            ],
            *["client.settings.ProducerSettings", "client.settings.ConsumerSettings", "client.settings.PullSettings"],
            *["client.settings.TransactionSettings"],
            *["client.strategies.ByConfig", "client.strategies.ByMachineRoom", "client.strategies.MachineRoomNearby"],
            *["client.SendContext", "client.ConsumeContext"],
            *["client.Credentials", "client.Tls", "client.telemetry.Telemetry"],
            *["client.counts.ProducerCounts", "client.counts.ConsumerCounts"],
        ],
    ),
    "ha": (
        "Replication",
        "The log of a store for slaves: [howto/write.md](../howto/write.md#send-the-log-to-slaves).",
        ["ha.Master", "ha.MasterSettings", "ha.SlaveState"],
    ),
    "errors": (
        "Errors",
        "Each message says what is wrong, where, and what to do. `except rocketc.RocketcError` catches all errors.",
        [
            *["RocketcError", "CorruptRecordError", "CorruptUnitError", "DamageWarning", "MissingCodecError"],
            "MissingTopicWarning",
            *["PatternTimeoutError", "StoreIOError", "StoreFullError", "StoreLockedError", "StoreFailedError"],
            *["PageCacheBusyError", "IllegalMessageError", "PhyOffsetError", "ReplicaError", "ClosedError", "SqlError"],
        ],
    ),
    "spark": (
        "Spark",
        '`spark.read.format("rocketmq")` and its options: [howto/spark.md](../howto/spark.md). The functions here are '
        "for your own jobs; they need the extra `spark`.",
        [
            *["spark.splits", "spark.Split", "spark.decode_partition", "spark.decode_batches", "spark.schema"],
            *["spark.SCHEMA", "spark.dropped_accumulator", "spark.Dropped", "spark.configured_options"],
            *["spark.read_parts", "spark.plan_parts", "spark.Parts", "spark.PartStream"],
            *["spark.write_parts", "spark.batch_writer"],
            *["spark.archive.archive", "spark.archive.read_archive", "spark.archive.ArchiveReport"],
        ],
    ),
}


def public() -> set[str]:
    """Return the public names of `rocketc`, and of each module below it that has `__all__`."""
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
    """Return the public names that are on no page."""
    return public() - {name for _, _, names in PAGES.values() for name in names}


def resolve(name: str) -> Any:
    module, _, attribute = f"rocketc.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def modules_of(page: str) -> Iterator[str]:
    """Return the modules that define the names of a page, and the base classes of its classes."""
    things = [resolve(name) for name in PAGES[page][2]]
    names = {getattr(each, "__module__", "") for thing in things for each in getattr(thing, "__mro__", [thing])}
    return (name for name in sorted(names) if name.startswith("rocketc"))


def types_in(page: str) -> Iterator[str]:
    """Return a table of the type aliases that the signatures of a page use: `When` is `int | datetime.datetime`."""
    rows = []
    for module in modules_of(page):
        path = ROOT / module.replace(".", "/")
        found = [p for p in (path.with_suffix(".pyi"), path.with_suffix(".py"), path / "__init__.py") if p.exists()]
        text = found[0].read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            name = getattr(node.targets[0], "id", "") if isinstance(node, ast.Assign) else ""
            if re.match("_?[A-Z][a-z]", name) and re.search(rf"(:|->|\[|\|) *{name}\b", text):
                rows.append([fixed(name), fixed(ast.unparse(node.value))])
    if rows:
        yield "## Types in signatures"
        yield grid(["", ""], sorted(rows))


def page_of(page: str) -> str:
    title, about, names = PAGES[page]
    return "\n\n".join([f"# {title}", about, *(f"::: rocketc.{name}" for name in names), *types_in(page)]) + "\n"


def command_page() -> str:
    """Return a page of all commands and options, with the texts of `rocketc COMMAND --help`."""
    from rocketc.cli.main import cli

    context = click.Context(cli, info_name="rocketc", **cli.context_settings)  # click uses -h of the first context
    parts = ["# The command line", said(cli.help or "")]
    epilog = (cli.epilog or "").split("\b\n")[-1].split("\n\n")
    parts += [shell(epilog[0]), " ".join(epilog[1].split())]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context)
        parts += [f"## rocketc {name} {{ #rocketc-{name} data-toc-label='rocketc {name}' }}"]
        parts += [f"```text\n{command.get_usage(own).removeprefix('Usage: ')}\n```", said(command.help or "")]
        rows = [row for each in command.get_params(own) if (row := each.get_help_record(own))]
        parts += [grid(["", ""], [[fixed(option), prose(text)] for option, text in rows if text])]
        parts += [shell(block) for block in (command.epilog or "").replace("\b\n", "").split("\n\n") if block.strip()]
    return "\n\n".join(parts) + "\n"


def said(text: str) -> str:
    """Return click's help text as Markdown; paragraphs that begin with a backspace keep their lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        f"```text\n{each.removeprefix(chr(8)).strip(chr(10))}\n```" if each.startswith("\b") else prose(each)
        for each in paragraphs
    )


def shell(block: str) -> str:
    """Return examples as Markdown; indented lines are commands."""
    lines = block.strip("\n").splitlines()
    language = "console" if any(line.strip().startswith("rocketc ") for line in lines) else "text"
    body = [line for line in lines if line.strip() != "Examples:"]
    body = textwrap.dedent("\n".join(body)).splitlines()
    if language == "console":
        body = [f"$ {line}" if line.startswith("rocketc ") else line for line in body]
    return f"```{language}\n" + "\n".join(body) + "\n```"


def pages() -> dict[str, str]:
    """Return path below the site's docs -> Markdown. Raises ValueError for a public name without a page."""
    if lost := missing():
        raise ValueError(f"tools/site/reference.py: names on no page of the reference: {', '.join(sorted(lost))}")
    made = {f"reference/{page}.md": page_of(page) for page in PAGES}
    return made | {"reference/cli.md": command_page()}
