"""The progress bar on stderr: only on terminals, only for long work, and erased at the end."""

import io
import sys

import pytest
from support.command import Terminal

from rocketc.cli import output


def on_terminal(monkeypatch):
    """Make stderr a terminal from now on. A fixture cannot do this: pytest sets stderr again later."""
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


def test_long_work_shows_its_progress_and_cleans_up(monkeypatch):
    stderr = on_terminal(monkeypatch)
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    with output.progress("reading", 4 << 20) as tell:
        tell(1 << 20)
    assert "reading" in stderr.getvalue() and "1.0/4.0 MiB" in stderr.getvalue()
    assert stderr.getvalue().endswith("\x1b[2K"), "the line is erased"


def test_the_bar_is_erased_when_the_work_fails(monkeypatch):
    stderr = on_terminal(monkeypatch)
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    with pytest.raises(KeyboardInterrupt), output.progress("reading", 100) as tell:
        tell(10)
        raise KeyboardInterrupt
    assert stderr.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_no_bar_without_a_terminal(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    with output.progress("reading", 100) as tell:
        tell(10)
    assert stream is None or stream.getvalue() == ""
