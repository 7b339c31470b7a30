"""rocketc clean: delete what is too old in a store, or say what would be deleted and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rocketc.cleaning import Cleaner, CleanReport, LogOnDisk, settle_by_system
from rocketc.cli.arguments import refuse_a_log
from rocketc.cli.conf import read_conf
from rocketc.cli.output import Out, ends_quietly, note, visible
from rocketc.cli.tables import columns, facts, many, render, show_size, some
from rocketc.cli.times import show_time
from rocketc.config import StoreConfig
from rocketc.derived_files import IndexOnDisk, QueuesOnDisk
from rocketc.running import StoreLock

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NO_LIMIT = (1 << 31) - 1


class Age(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """Milliseconds of a length of time: 90m, 72h, 7d."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,9})([smhdw])", value.strip(), re.ASCII | re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is no age; such as 90m, 72h, 7d", param, ctx)
        return int(found[1]) * _MS[found[2].lower()]


@click.command(
    epilog="""\b
Examples:
  rocketc clean /data/store --older-than 7d
  rocketc clean /data/store --as-broker --conf broker.conf --dry-run""",
)
@click.argument("store", type=click.Path())
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be deleted, and why; write nothing.")
@click.option(
    "--older-than", type=Age(), metavar="AGE",
    help="Delete log files that were not changed for so long: 90m, 72h, 7d. Usual: fileReservedTime, 72h.",
)  # fmt: skip
@click.option(
    "--as-broker", is_flag=True, help="What one run of a broker would do now: its hours, disk use, ten files at most."
)
@click.option("--conf", type=click.Path(), metavar="FILE", help="A broker.conf: paths, times, levels of disk use.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object with all that was found; times in ms.")
@click.option("--all", "every", is_flag=True, help="Every file in the table, however many.")
@ends_quietly
def clean(
    store: str, dry_run: bool, older_than: int | None, as_broker: bool, conf: str | None, as_json: bool, every: bool
) -> int:
    """Delete the oldest files of a store's commit log, then what its consume queues and index say of them.

    Files go from the first one on; the first that is younger ends it, and the last one stays. No broker may run on the
    store meanwhile; --dry-run may look at a live one. A store that was not closed needs no recovery first, and a full
    disk no room.
    """
    if as_broker and older_than is not None:
        raise click.UsageError("--older-than and --as-broker exclude each other")
    refuse_a_log(store)
    config = _config(conf, as_broker)
    root = os.path.abspath(store)
    log = LogOnDisk(config.commit_log_paths(root), config.read_only_paths)
    if not log.files:
        note(f"nothing to clean: {store} holds no commit log")
        return 1
    start, before = int(os.path.basename(log.files[0])), len(log.files)
    how: dict[str, Any] = {} if as_broker else {"asked": True, "expired_ms": older_than}
    settle = settle_by_system if os.path.exists(os.path.join(root, "abort")) else None
    cleaner = Cleaner(log, config, root=root, queues=QueuesOnDisk(root), index=IndexOnDisk(root), settle=settle)
    if dry_run:
        report = cleaner.plan(**how)
    else:
        lock = StoreLock(root)
        try:
            report = cleaner.run(detailed=True, **how)
        finally:
            lock.release()
    with Out() as out:
        if as_json:
            out.json({"path": store, **report.to_dict()})
        else:
            out.write_text(draw(store, report, before, start, out.has_colour, every, as_broker))
    return 0


def _config(conf: str | None, as_broker: bool) -> StoreConfig:
    config = StoreConfig() if conf is None else read_conf(conf)
    if as_broker:
        return config
    # All that is old enough, and nothing else, however full the disk is.
    return config.replace(
        clean_file_forcibly_enable=False, delete_file_batch_max=_NO_LIMIT, delete_commit_log_files_interval=0,
        delete_consume_queue_files_interval=0,
    )  # fmt: skip


def draw(store: str, report: CleanReport, files: int, start: int, colour: bool, every: bool, as_broker: bool) -> str:
    """The table, fit for the terminal's width, or for 80 columns where there is none."""
    parts: list[RenderableType] = [facts(lines(store, report, files, start, as_broker))]
    if report.deleted:
        parts += ["", table(store, report, every)]
    return render(parts, colour)


def lines(
    store: str | None, report: CleanReport, files: int, start: int, as_broker: bool
) -> Iterator[tuple[str, str, str]]:
    """Name, text and style of each line above the files.

    store         None if it is not known; else
    files, start  the log had so many, from this physical offset on
    as_broker     it was not asked for: tell why it was done
    """
    if store is not None:
        yield "log", f"{store}: {many(files, 'file')}, from offset {start} on", ""
    disks = ", ".join(f"{_name(store, path)} {_tell_share(share)}" for path, share in report.disks.items())
    yield "disk", disks, "red" if report.disk_full else ""
    if as_broker:
        because = "; ".join(report.because)
        if store is not None:
            because = because.replace(os.path.join(os.path.abspath(store), ""), "")
        yield "why now", because or "there is no reason", ""
    verb = "would go" if report.dry else "deleted"
    others = len(report.deleted) - report.log_files
    if report.deleted:
        tail = f", and {others} of queues and index" if others else ""
        text = f"{many(report.log_files, 'file')} of the log{tail}: {show_size(report.size)}"
        yield verb, text, "yellow" if report.dry else "green"
    else:
        yield verb, "nothing", ""
    if report.kept is not None:
        name, changed = os.path.basename(report.kept.path), _minute(report, report.kept.age)
        rest = f", from {name} on" if report.kept.files > 1 else f", {name}"
        yield "stays", f"{many(report.kept.files, 'file')}{rest}, changed {changed}: {report.kept.why}", ""


def _tell_share(share: float) -> str:
    return "is not there" if share < 0 else f"{100 * share:.0f} %"


def table(store: str | None, report: CleanReport, every: bool) -> Table:
    """The files of the log, and a line for each queue that lost files, and one for the index."""
    from rich.text import Text

    rows = [(one.size, _minute(report, one.age), one.why, one.path, "") for one in report.deleted if one.age >= 0]
    others: dict[str, list[int]] = {}
    for one in report.deleted:
        if one.age < 0:
            others.setdefault(os.path.dirname(one.path), []).append(one.size)
    found = columns(">size", "changed", "why", "file")
    for folder, sizes in others.items():
        files = f" ({len(sizes)} files)" if len(sizes) > 1 else ""
        rows.append((sum(sizes), "", "follows", folder, files))
    for row in some(rows, every):
        if isinstance(row, str):
            found.add_row("", "", "", Text(row, "dim"))
        else:
            size, changed, why, path, files = row
            found.add_row(show_size(size), changed, why, Text(visible(_name(store, path)) + files))
    return found


def _minute(report: CleanReport, age: int) -> str:
    return show_time(report.now - age)[:16] + "Z"


def _name(store: str | None, path: str) -> str:
    if store is None:
        return path
    below = os.path.relpath(path, store)
    return store if below == "." else path if below.startswith("..") else below
