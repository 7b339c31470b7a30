"""docs/glossary.md: the names in its tables exist, and they agree with each other."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import rocketc
from rocketc.cli.main import COMMANDS, cli

PAGE = (Path(__file__).parent.parent / "docs" / "glossary.md").read_text(encoding="utf-8")
OTHER_COLUMNS = {"phy_offset": "physicalOffset", "body_crc": "bodyCRC"}  # RocketMQ's own words


def table(first_cell: str) -> list[list[str]]:
    """The rows of the table whose first heading is `first_cell`."""
    lines = PAGE[PAGE.index(f"| {first_cell} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def commands() -> dict[str, click.Command]:
    modules = {name: name.replace("-", "_") for name in COMMANDS}
    return {name: getattr(importlib.import_module(f"rocketc.cli.{of}"), of) for name, of in modules.items()}


FIELDS = table("thing")
CHOICES = table("choice")


def test_every_column_is_in_the_table():
    assert sorted(name for row in FIELDS for name in names(row[2])) == sorted(rocketc.COLUMN_NAMES)


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: row[0])
def test_a_column_is_named_as_the_attribute(row):
    (attribute,), (column,) = names(row[1]), names(row[2])
    assert hasattr(rocketc.Message, attribute)
    assert column == OTHER_COLUMNS.get(attribute, camel(attribute))


@pytest.mark.parametrize("row", [row for row in FIELDS if row[3]], ids=lambda row: row[0])
def test_a_place_of_the_format_gives_the_attribute(row, tmp_path):
    with rocketc.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as store:
        store.put("orders", b"body", keys=["key"], tags="tag", queue_id=3)
    (message,) = rocketc.scan(tmp_path / "store")
    value = getattr(message, names(row[1])[0])
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, dict):
        value = ",".join(f"{name}={text}" for name, text in value.items())
    result = CliRunner().invoke(cli, ["cat", str(tmp_path / "store"), "-f", names(row[3])[0]])
    assert result.stdout == (value if isinstance(value, str) else " ".join(value) if row[0] == "keys" else str(value))


@pytest.mark.parametrize("row", CHOICES, ids=lambda row: row[0])
def test_a_choice_exists_in_each_interface(row):
    from rocketc.spark import options

    for name in names(row[1]):
        assert name in inspect.signature(rocketc.scan).parameters
    known = {text for command in commands().values() for option in command.params for text in option.opts}
    assert set(names(row[2])) <= known
    assert set(names(row[3])) <= set(options._NAMES.values())


def test_an_option_has_one_meaning_in_all_commands():
    """A short option belongs to one long option, or the test names the two."""
    short: dict[str, set[str]] = {}
    for command in commands().values():
        for option in command.params:
            if isinstance(option, click.Option) and len(option.opts) == 2:
                few, many = sorted(option.opts, key=len)
                short.setdefault(few, set()).add(many)
    several = {few: sorted(many) for few, many in short.items() if len(many) > 1}
    assert several == {
        "-o": ["--offset", "--output"],
        "-n": ["--dry-run", "--interval", "--name-server"],  # --name-server and --conf: as in RocketMQ's mqbroker
        "-c": ["--conf", "--count"],
    }


def test_arguments_of_open_are_the_options_of_the_broker():
    for each in dataclasses.fields(rocketc.StoreConfig):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", each.name)


def test_metrics_have_the_prefix_of_their_owner(tmp_path):
    from rocketc.metrics.measures import measures

    with rocketc.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16) as store:
        store.put("orders", b"body")
        found = list(measures(store))
    assert found
    assert {measure.name.split("_")[0] for measure in found} == {"rocketmq", "rocketc"}
