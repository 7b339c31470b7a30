"""docs/comparison.md: what the table of Python clients says that rocketc.client has."""

import re

import pytest
from support.pages import ROOT

from rocketc import client
from rocketc.client.async_producer import SendOptions


def column(page):
    """The cells of rocketc.client in the table of clients, by the first cell of the row."""
    section = page.partition("## Send and receive from Python\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    return {row[1].strip(): row[2] for row in rows}


CELLS = column((ROOT / "docs/comparison.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", [row for row in CELLS if "`" in CELLS[row] and row not in ("", "types")])
def test_the_names_exist(row):
    known = {*dir(client), *dir(client.Producer), *dir(client.PullConsumer), *SendOptions.__annotations__}
    names = set(re.findall(r"`(\w+)`", CELLS[row]))
    assert names and names <= known


def test_all_clients_are_named():
    named = set(re.findall(r"`(\w+)`", "".join(CELLS.values())))
    kinds = {name for name in client.__all__ if name.endswith(("Producer", "Consumer", "Admin"))}
    assert kinds - named == {"Producer", "TransactionProducer"}  # by their calls, and by the page of transactions


def test_it_is_typed():
    assert "`py.typed`" in CELLS["types"] and (ROOT / "rocketc/py.typed").exists()
