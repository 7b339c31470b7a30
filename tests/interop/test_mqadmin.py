"""mqadmin of both releases prints the same columns at our broker as at RocketMQ's; what is not supported is refused.

Each command takes up to 3 s, because mqadmin ends its client.
"""

import difflib
from pathlib import Path

import pytest
from interop.mqadmin import COMMANDS, REFUSED, Mqadmin, columns, play
from interop.our_broker import OurBroker
from interop.peer import RELEASES, Unavailable
from interop.scenarios import JavaCluster

# Keys of our name server without a value, which RocketMQ's has set here; a number that RocketMQ shows only later.
_VARYING = (
    "configStorePath",
    "kvConfigPath",
    "rocketmqHome",
    "putMessageDistributeTime",
    "PutTps",
    "Tps :",
    "bindAddress",
)


def comparable(printed: str) -> list[str]:
    return [line for line in columns(printed) if not any(word in line for word in _VARYING)]


@pytest.fixture(params=RELEASES)
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Mqadmin:
    try:
        made = Mqadmin(request.param, tmp_path / "mqadmin")
    except Unavailable as reason:
        pytest.skip(str(reason))
    request.addfinalizer(made.close)
    return made


@pytest.mark.long
def test_commands_print_the_same_columns(tool: Mqadmin, tmp_path: Path) -> None:
    theirs = JavaCluster("5.3.3", tmp_path / "java")
    try:
        expected = dict(play(tool, theirs.name_server, theirs.broker, tmp_path / "files" / "theirs", COMMANDS))
    finally:
        theirs.close()
    ours = OurBroker(tmp_path / "ours", "--port", 0)
    try:
        found = dict(play(tool, ours.name_server, ours.address, tmp_path / "files" / "ours", [*COMMANDS, *REFUSED]))
    finally:
        ours.kill()
    wrong = []
    for command in COMMANDS:
        lines = difflib.unified_diff(comparable(expected[command]), comparable(found[command]), lineterm="", n=0)
        if text := "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@"))):
            wrong.append(f"## {command}\n{text}")
    assert not wrong, "\n".join(wrong)
    for command in REFUSED:
        missing = "not exist" in found[command]  # the release lacks the command
        assert missing or "CODE: 3" in found[command], (command, found[command])
