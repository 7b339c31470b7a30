"""The table of URL schemes: which URLs scan() gives away, and with which arguments."""

from pathlib import Path

import pytest

import rocketc
from rocketc.read import schemes


@pytest.fixture
def given(monkeypatch):
    """The URLs and arguments that the function of the scheme `memory-log` gets."""
    monkeypatch.setattr(schemes, "_factories", dict(schemes._factories))
    calls = []

    def factory(url, **arguments):
        calls.append((url, arguments))
        return rocketc.decode(b"")

    schemes.register("memory-log", factory)
    return calls


def test_a_url_of_the_scheme(given):
    assert rocketc.scan("memory-log://a/b", topics="t", batch_bytes="1KiB").count() == 0
    rocketc.scan(["memory-log://c"], partial=True)
    (url, arguments), (other, more) = given
    assert (url, other) == ("memory-log://a/b", "memory-log://c")
    assert (arguments["topics"], arguments["batch_bytes"], arguments["partial"]) == ("t", 1024, False)
    assert more["partial"] is True
    known = set(rocketc.scan.__annotations__) - {"path", "unknown", "return"}
    assert set(arguments) == known


@pytest.mark.parametrize("path", ["memory-log:/a", "other/memory-log://a", Path("memory-log://a"), "memory-logs://a"])
def test_other_paths_are_files(given, path):
    with pytest.raises(OSError):
        rocketc.scan(path)
    assert given == []


def test_urls_of_the_scheme_beside_other_paths(given, tmp_path):
    for paths in (["memory-log://a", "memory-log://b"], [tmp_path, "memory-log://me:secret@b"]):
        with pytest.raises(ValueError, match="can't be read together with other paths") as caught:
            rocketc.scan(paths)
        assert "secret" not in str(caught.value)
    assert given == []
