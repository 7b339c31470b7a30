"""rocketc bench: compare the speed of the store with that of this machine's memory and disk."""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import click

from rocketc.cli.exit_codes import DONE
from rocketc.cli.output import Out, command, note
from rocketc.cli.signals import Ended, signals_raise
from rocketc.errors import StoreFullError
from rocketc.files.durable import errors_named
from rocketc.files.remote import local_target
from rocketc.report.tables import columns, render
from rocketc.report.text import show_size


@command("rocketc bench --quick", "rocketc bench --path /data --json | jq -c '[.work, .ratio]'")
@click.option("--quick", is_flag=True, help="Run for seconds instead of minutes. The numbers are less exact.")
@click.option(
    "--path",
    default=".",
    type=click.Path(),
    metavar="DIR",
    help="A folder on the disk to measure. Default: the current folder.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object per line of the table.")
def bench(quick: bool, path: str, as_json: bool) -> int:
    """Measure how fast a store is, and how fast this machine's memory and disk are with the same bytes.

    The stores are created in a new folder in DIR, which is removed at the end, also after Ctrl-C. Bodies have 128 bytes
    unless the table says otherwise. The ratio compares speeds: 0.8 means that the store is 0.8 times as fast as the
    machine. One thread runs the store and the machine alternately; the result is the median of the rounds. Results vary
    from run to run: run it twice.
    """
    from rocketc.cli.bench_cases import FULL, QUICK, Bench

    size = QUICK if quick else FULL
    local_target(path, "bench")
    _check_room(path, size.room)
    note(f"measuring in {os.path.abspath(path)}; this takes {'seconds' if quick else 'minutes'}")
    rows = []
    try:
        with signals_raise(), Out(live=True) as out, _folder(path) as folder, closing(Bench(folder, size)) as sides:
            for work in sides.works():
                rows.append(_measure(work, size.rounds))
                if as_json:
                    out.json(rows[-1].as_dict())
            if not as_json:
                out.write(draw(rows, out.has_color).encode())
    except Ended as error:
        return error.code
    return DONE


@dataclass(frozen=True)
class Row:
    """One result: the rates of store and machine per second, and their ratio."""

    work: str
    against: str
    unit: str
    store: float
    machine: float

    @property
    def ratio(self) -> float:
        return self.store / self.machine

    def as_dict(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "against": self.against,
            "unit": f"{self.unit}/s",
            "store": round(self.store),
            "machine": round(self.machine),
            "ratio": round(self.ratio, 3),
        }


def _measure(work: Any, rounds: int) -> Row:
    """Run both sides alternately and return the medians; the first round does not count."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for side, seconds in zip((work.store, work.machine), taken, strict=True):
            seconds.append(side())
    store, machine = (work.amount / statistics.median(seconds[1:]) for seconds in taken)
    return Row(work.name, work.against, work.unit, store, machine)


def draw(rows: Sequence[Row], color: bool) -> str:
    """Return the results as a table."""
    table = columns("store", ">rate", "machine", ">rate", ">ratio")
    for row in rows:
        table.add_row(row.work, _rate(row, row.store), row.against, _rate(row, row.machine), f"{row.ratio:.2f}")
    return render([table], color)


def _rate(row: Row, rate: float) -> str:
    return f"{rate:,.0f}/s" if row.unit == "message" else f"{show_size(round(rate))}/s"


def _check_room(path: str, needed: int) -> None:
    """Raise StoreIOError if the folder does not exist, StoreFullError if the disk has fewer free bytes."""
    with errors_named(path):
        free = shutil.disk_usage(path).free
    if free < needed:
        text = f"the measurement needs {show_size(needed)}, and {show_size(free)} are free"
        raise StoreFullError(errno.ENOSPC, text, path)


@contextmanager
def _folder(path: str) -> Iterator[str]:
    """A temporary folder in `path`, which exists while entered."""
    with errors_named(path):
        folder = tempfile.mkdtemp(prefix=".rocketc-bench-", dir=path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
