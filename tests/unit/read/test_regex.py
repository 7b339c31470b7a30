"""Regular expressions of users on texts of others: a time limit."""

import re
import threading

import pytest
from support import command, oracle

import rocketc
from rocketc.read.regex import limited

pytestmark = pytest.mark.promise(8)

SLOW = "(a+)+$"
VICTIM = "a" * 60 + "b"


@pytest.fixture
def short_patience(monkeypatch):
    monkeypatch.setattr("rocketc.read.regex.LIMIT_SECONDS", 0.2)


def test_a_pattern_that_never_ends(short_patience):
    """A hostile topic in a file does not block the scan: the error names the pattern, and the next scan works."""
    data = oracle.encode(VICTIM, b"body") + oracle.encode("orders", b"body", phy_offset=96 + 60)
    assert rocketc.decode(data, topics=re.compile("a+b")).count() == 1
    for take in (list, lambda scan: scan.count(), lambda scan: scan.to_arrow()):
        with pytest.raises(rocketc.PatternTimeoutError, match=re.escape(f"{SLOW!r} did not finish with a text of 61")):
            take(rocketc.decode(data, topics=re.compile(SLOW)))
    assert rocketc.decode(data, topics=re.compile("a+b")).count() == 1


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "words",
    [
        ("cat", "--grep", SLOW),
        ("stats", "--grep", SLOW),
        ("cat", "-t", f"/{SLOW}/"),
        ("stats", "-t", f"/{SLOW}/"),
        ("get", "--key", "k", "-t", f"/{SLOW}/"),
        ("export", "-o", "-", "--format", "jsonl", "--grep", SLOW),
    ],
    ids=" ".join,
)
def test_a_pattern_of_the_command_line_that_never_ends(tmp_path, words):
    root = tmp_path / "store"
    with rocketc.open(root, mapped_file_size_commit_log=1 << 16) as store:
        store.put(VICTIM, VICTIM.encode(), keys="k")
    code = f"""
import rocketc.read.regex, sys
rocketc.read.regex.LIMIT_SECONDS = 0.2
from rocketc.cli.main import main
sys.argv[1:] = {[words[0], str(root), *words[1:]]!r}
main()
"""
    with pytest.raises(AssertionError, match=re.escape(SLOW)) as failed:
        command.python(code, timeout=60)
    assert "Traceback" not in str(failed.value)


def test_the_limit_does_not_affect_other_threads(short_patience):
    """Other threads cannot be interrupted: they search without a limit. A nested limit does not end the outer one."""
    found = []
    find = re.compile("b").search
    thread = threading.Thread(target=lambda: found.append(limited(find, "abc")))
    thread.start()
    thread.join()
    assert found[0].start() == 1
    assert limited(lambda text: limited(find, text), "abc").start() == 1
