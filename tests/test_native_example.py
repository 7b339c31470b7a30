"""The module on the page about Cython compiles outside of the package, and does what the page says."""

from pathlib import Path

from support import extension

import rocketc

ROOT = Path(__file__).parents[1]


def test_the_page_shows_the_module():
    source = (ROOT / "tests" / "native" / "relay.pyx").read_text()
    assert f"```cython\n{source}```" in (ROOT / "docs" / "howto" / "cython.md").read_text()


def test_the_module_puts_waits_and_reads(tmp_path):
    relay = extension.load("relay")
    with rocketc.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        assert relay.relay(store, store.feed, b"orders", b"hello") == (102, 0)
        assert relay.relay(store, store.feed, b"orders", b"again") == (102, 1)
