"""Tables of rocketc admin: whole in a pipe, fitted to a terminal."""

import json

import pytest
from rich.cells import cell_len
from support.command import on_terminal, rocketc

import rocketc as library
from rocketc.cli.admin_tables import draw_table

LONG = "a-topic-of-the-department-for-payments-and-refunds-in-europe-v2"
NAMES = ("~topic", "~broker", ">queues", "last message")
ROWS = [
    (LONG, "broker-a", 16, "2026-11-26T05:09:53.463Z"),
    ("短信通知-短信通知-短信通知", "broker-with-a-long-name", 4, "-"),
]


def test_a_table_is_as_wide_as_needed():
    drawn = draw_table(NAMES, ROWS)
    assert (drawn.cut, drawn.left_out) == ([], []) and LONG in drawn.text
    assert draw_table(NAMES, []).text == ""
    assert draw_table(NAMES, ROWS, width=500) == drawn
    assert draw_table(NAMES, ROWS, color=True).text.startswith("\x1b[1mtopic ")


@pytest.mark.parametrize("width", range(1, 120))
def test_a_table_in_any_width(width):
    """It is never wider than the terminal, but for a first column of 12."""
    drawn = draw_table(NAMES, ROWS, width=width)
    lines = drawn.text.splitlines()
    assert len(lines) == 3 and max(map(cell_len, lines)) <= max(width, 12)
    assert lines[0].split()[0] == "topic" and (lines[1].startswith("a-top"))
    assert [name for name in ("topic", "broker", "queues", "last message") if name not in lines[0]] == drawn.left_out


def test_names_are_cut_in_the_middle_before_columns_are_left_out():
    text, cut, left_out = draw_table(NAMES, ROWS, width=80)
    assert (cut, left_out) == (["topic", "broker"], [])
    assert text.splitlines()[1] == "a-topic-of..-europe-v2  broker-a                    16  2026-11-26T05:09:53.463Z"
    text, cut, left_out = draw_table(NAMES, ROWS, width=45)
    assert (cut, left_out) == (["topic", "broker"], ["last message"])


def test_a_name_with_control_characters():
    assert "\x1b[31m" not in draw_table(("~client",), [("\x1b[31mred",)]).text


def test_terminals_and_pipes():
    with library.Broker() as broker:
        broker.topics.create(LONG, 4)
        args = ("admin", "topics", "-n", broker.name_server)
        code, out = on_terminal(*args, columns=60)
        lines = [line.rstrip() for line in out.splitlines()]
        assert code == 0 and lines[0] == "\x1b[1mtopic                  brokers  queues  permission  messages\x1b[0m"
        assert lines[1] == "a-topic-of..europe-v2        1       4  rw                 0"
        assert lines[2].startswith(
            "rocketc: the terminal is narrow, names are cut: topic; --json or a pipe shows everyt"
        )
        assert lines[3].startswith("rocketc: the terminal is narrow, columns are left out: last message; --json or a ")
        done = rocketc(*args, env={"COLUMNS": "60"})
        assert (
            (done.returncode, done.stderr) == (0, b"") and LONG in done.stdout.decode() and b"\x1b" not in done.stdout
        )
        code, out = on_terminal(*args, "--json", columns=60)
        assert json.loads(out)["topics"][0]["topic"] == LONG
