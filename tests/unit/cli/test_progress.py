"""The bar on stderr: for terminals, for long work, and gone afterwards."""

import io
import sys

import pytest
from support.command import Terminal

from rocketc.cli import output


def on_terminal(monkeypatch):
    """Make stderr a terminal from here on (a fixture could not: pytest sets stderr anew behind it)."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_short_work_shows_nothing(monkeypatch):
    stderr = on_terminal(monkeypatch)
    with output.progress("reading", 100) as tell:
        for done in range(100):
            tell(done)
    assert stderr.getvalue() == ""


def test_long_work_shows_how_far_it_is_and_cleans_up(monkeypatch):
    stderr = on_terminal(monkeypatch)
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    with output.progress("reading", 4 << 20) as tell:
        tell(1 << 20)
    assert "reading" in stderr.getvalue() and "1.0/4.0 MiB" in stderr.getvalue()
    assert stderr.getvalue().endswith("\x1b[2K"), "the line is erased"


def test_the_bar_goes_when_the_work_fails(monkeypatch):
    stderr = on_terminal(monkeypatch)
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    with pytest.raises(KeyboardInterrupt), output.progress("reading", 100) as tell:
        tell(10)
        raise KeyboardInterrupt
    assert stderr.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_no_terminal_no_bar(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    with output.progress("reading", 100) as tell:
        tell(10)
    assert stream is None or stream.getvalue() == ""
