"""mqadmin of both releases prints the same columns at our broker as at RocketMQ's; what is not supported is refused.

Each command takes up to 3 s, because mqadmin ends its client.
"""

import difflib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from interop.mqadmin import COMMANDS, REFUSED, Mqadmin, columns, play
from interop.our_broker import OurBroker
from interop.peer import RELEASES, Unavailable
from interop.scenarios import JavaCluster

# Keys of our name server without a value, which RocketMQ's has set here; numbers that RocketMQ shows only later; the
# queue of retries, which a consumer finds some time after its start.
_VARYING = (
    "%RETRY%",
    "configStorePath",
    "kvConfigPath",
    "rocketmqHome",
    "putMessageDistributeTime",
    "Tps",
    "bindAddress",
)


def comparable(printed: str) -> list[str]:
    return [line for line in columns(printed) if not any(word in line for word in _VARYING)]


def at_java(release: str, folder: Path) -> dict[str, str]:
    tool = Mqadmin(release, folder / "mqadmin")
    try:
        cluster = JavaCluster("5.3.3", folder / "cluster")
        try:
            return dict(play(tool, cluster.name_server, cluster.broker, folder / "files", COMMANDS))
        finally:
            cluster.close()
    finally:
        tool.close()


def at_ours(release: str, folder: Path) -> dict[str, str]:
    tool = Mqadmin(release, folder / "mqadmin")
    try:
        broker = OurBroker(folder / "store", "--port", 0)
        try:
            return dict(play(tool, broker.name_server, broker.address, folder / "files", [*COMMANDS, *REFUSED]))
        finally:
            broker.kill()
    finally:
        tool.close()


@pytest.fixture(params=RELEASES)
def printed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """What the commands of one release print at RocketMQ's broker, and at ours."""
    with ThreadPoolExecutor(2) as pool:
        theirs = pool.submit(at_java, request.param, tmp_path / "theirs")
        ours = pool.submit(at_ours, request.param, tmp_path / "ours")
        try:
            yield theirs.result(), ours.result()
        except Unavailable as reason:
            pytest.skip(str(reason))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_commands_print_the_same_columns(printed: tuple[dict[str, str], dict[str, str]]) -> None:
    expected, found = printed
    wrong = []
    for command in COMMANDS:
        lines = difflib.unified_diff(comparable(expected[command]), comparable(found[command]), lineterm="", n=0)
        if text := "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@"))):
            wrong.append(f"## {command}\n{text}")
    assert not wrong, "\n".join(wrong)
    for command in REFUSED:
        if "not exist" not in found[command]:  # the release lacks the command
            assert re.search(r"CODE: 3  DESC: .*(not|controller|ACL)", found[command]), (command, found[command])
            assert not re.search(r"request type \d+ not supported(?!:)", found[command]), (command, found[command])
