"""docs/protocol.md has the table of requests, and its frame is one that the decoder accepts."""

from pathlib import Path

import pytest
from test_layers import tool

ROOT = Path(__file__).parents[1]
protocol = tool("protocol")


def test_the_table_is_in_the_page():
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert page.count(protocol.MARK) == 2
    assert protocol.with_table(page) == page, "run: python tools/protocol.py --write"


def test_an_old_page_is_found(monkeypatch, tmp_path, capsys):
    page = tmp_path / "protocol.md"
    page.write_text(f"a\n{protocol.MARK}\nold\n{protocol.MARK}\nb\n")
    monkeypatch.setattr(protocol, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["protocol.py", "--check"])
    assert protocol.main() == 1 and "--write" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["protocol.py", "--write"])
    assert protocol.main() == 0
    monkeypatch.setattr("sys.argv", ["protocol.py", "--check"])
    assert protocol.main() == 0
    assert page.read_text().startswith("a\n") and page.read_text().endswith("b\n")


@pytest.mark.parametrize(
    "text", ["| 310 | SEND_MESSAGE_V2 | `a` producerGroup text; ", "| 15 | UPDATE_CONSUMER_OFFSET | "]
)
def test_rows(text):
    assert text in protocol.table()
