"""The output of each command for each golden store is in tests/snapshots, as a terminal of 80 columns shows it.

`ROCKETC_SNAPSHOTS=update pytest tests/test_snapshots.py` writes the files again; check the difference before you commit
it.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import stores

FOLDER = Path(__file__).parent / "snapshots"
UPDATE = os.environ.get("ROCKETC_SNAPSHOTS") == "update"

FOR_EACH = """
    info NAME
    verify NAME
    stats NAME
    stats NAME --by hour,topic --top 4 --json
    stats NAME --by size
    cat NAME -c 4
    cat NAME -o -1 -f '%T %t/%q@%o %k %g %S bytes\\n'
    cat NAME --json --body none --stop 2000
    get NAME --phy-offset 0
    export NAME -o - --format csv --columns topic,queueOffset,tags,storeTimestamp --stop 3000
    info NAME/checkpoint
    cat NAME/checkpoint
    info NAME/index
    cat NAME/index -c 3
"""
FOR_ONE = {
    "v533-broker": """
    cat NAME/consumequeue/Orders/0
    cat NAME/consumequeue/SCHEDULE_TOPIC_XXXX/2 -c 3 --json
    cat NAME/batchconsumequeue/Inner/0 -c 3
    info NAME/consumequeue/Orders
    cat NAME/config/consumerOffset.json
    info NAME/config/topics.json
    clean NAME --dry-run --older-than 0s
    get NAME --key no-such-key
    """,
    "v533-store": """
    cat NAME/consumequeue/%LMQ%456/0
    """,
    "flights-2013-01": """
    get NAME --key UA1545-2013-01-01
    clean NAME --dry-run --older-than 0s
    stats NAME --by tag --top 8 --plot
    cat NAME/config/consumerOffset.json --json
    """,
}
ADMIN = (
    *("brokers", "topics", "groups", "lag", "connections"),
    *("reset-offset", "create-topic", "delete-topic", "permissions"),
)
HELP = [
    "",
    "cat",
    "info",
    "stats",
    "export",
    "put",
    "clean",
    "bench",
    "get",
    "decode-id",
    "verify",
    "rebuild",
    "salvage",
    "replicate",
    "completion",
    "admin",
    *(f"admin {name}" for name in ADMIN),
]
IDS = "decode-id --month 2026-11 AC110002000078BF00000000000D1C5F 7F0000010B8F18B4AAC27D1C43620001 nonsense"


@pytest.fixture
def show(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """show(command): the command, its stdout, its stderr after `! `, and its exit code if it is not 0."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def shown(command: str) -> str:
        code, out, err = run(*shlex.split(command))
        lines = [f"$ rocketc {command}".rstrip(), *out.splitlines(), *(f"! {line}" for line in err.splitlines())]
        if code:
            lines.append(f"[exit {code}]")
        return "\n".join(map(str.rstrip, lines)) + "\n"

    return shown


def as_anywhere(text: str) -> str:
    """Replace what depends on the file system: the disk space of a file, and how full the disk is."""
    text = re.sub(r"^(disk +commitlog) \d+ %, consumequeue \d+ %", r"\1 SOME %, consumequeue SOME %", text, flags=re.M)
    size = r"\d+(?:\.\d)? (?:B|[KMG]iB)"
    return re.sub(rf"^(\d{{20}} +{size}) +{size} ", r"\1  ON DISK ", text, flags=re.M)


def compare(name: str, parts: Iterator[str]) -> None:
    text, path = as_anywhere("\n".join(parts)), FOLDER / f"{name}.txt"
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text.splitlines() == path.read_text().splitlines()


@pytest.mark.parametrize("name", stores.NAMES)
def test_store(name, golden, show, monkeypatch):
    monkeypatch.chdir(golden(name).path.parent)
    commands = f"{FOR_EACH}{FOR_ONE.get(name, '')}".split("\n")
    compare(name, (show(line.strip().replace("NAME", name)) for line in commands if line.strip()))


def test_help(show):
    compare("help", (show(f"{name} --help".strip()) for name in HELP))


def test_ids(show):
    compare("decode-id", map(show, [IDS]))
