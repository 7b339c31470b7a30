"""rocketc bench: what the store does on this machine, beside what its memory and disk can do."""

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

from rocketc.cli.output import Out, command, note
from rocketc.cli.signals import Ended, signals_raise
from rocketc.errors import StoreFullError
from rocketc.files.durable import errors_named
from rocketc.report.tables import columns, render
from rocketc.report.text import show_size


@command("rocketc bench --quick", "rocketc bench --path /data --json | jq -c '[.work, .ratio]'")
@click.option("--quick", is_flag=True, help="Some seconds instead of some minutes, and rougher numbers.")
@click.option(
    "--path",
    default=".",
    type=click.Path(),
    metavar="DIR",
    help="On the disk to be measured. Usual: the current folder.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object for each line of the table.")
def bench(quick: bool, path: str, as_json: bool) -> int:
    """Measure a store on this machine, beside what its memory and disk do with the same bytes.

    The stores are made in a folder of their own in DIR, which is removed afterwards, also after Ctrl-C. Bodies have 128
    bytes where nothing else is said. A ratio is of speeds: 0.8 means that the store is 0.8 times as fast. One thread,
    both sides by turns, the middle round counts. Machines are noisy: run it twice before you believe it.
    """
    from rocketc.cli.bench_cases import FULL, QUICK, Bench

    size = QUICK if quick else FULL
    _check_room(path, size.room)
    note(f"measuring in {os.path.abspath(path)}, for some {'seconds' if quick else 'minutes'}")
    rows = []
    try:
        with signals_raise(), Out(live=True) as out, _folder(path) as folder, closing(Bench(folder, size)) as sides:
            for work in sides.works():
                rows.append(_measure(work, size.rounds))
                if as_json:
                    out.json(rows[-1].as_dict())
            if not as_json:
                out.write(draw(rows, out.has_colour).encode())
    except Ended as error:
        return error.code
    return 0


@dataclass(frozen=True)
class Row:
    """What came out: rates per second, and how they compare."""

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
    """Both sides by turns; the first round does not count."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for side, seconds in zip((work.store, work.machine), taken, strict=True):
            seconds.append(side())
    store, machine = (work.amount / statistics.median(seconds[1:]) for seconds in taken)
    return Row(work.name, work.against, work.unit, store, machine)


def draw(rows: Sequence[Row], colour: bool) -> str:
    """The table."""
    table = columns("store", ">rate", "machine", ">rate", ">ratio")
    for row in rows:
        table.add_row(row.work, _rate(row, row.store), row.against, _rate(row, row.machine), f"{row.ratio:.2f}")
    return render([table], colour)


def _rate(row: Row, rate: float) -> str:
    return f"{rate:,.0f}/s" if row.unit == "message" else f"{show_size(round(rate))}/s"


def _check_room(path: str, needed: int) -> None:
    """Raise StoreIOError if there is no such folder, StoreFullError if it has too little room."""
    with errors_named(path):
        free = shutil.disk_usage(path).free
    if free < needed:
        text = f"{show_size(needed)} are needed for a while, and {show_size(free)} are free"
        raise StoreFullError(errno.ENOSPC, text, path)


@contextmanager
def _folder(path: str) -> Iterator[str]:
    """A folder for the time of a bench."""
    with errors_named(path):
        folder = tempfile.mkdtemp(prefix=".rocketc-bench-", dir=path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
