"""config/*.json: RocketMQ's own classes read what rocketc wrote, and write the same."""

import subprocess
from pathlib import Path

import pytest
from interop import peer as rocketmq

from rocketc.tables.fastjson import parse, to_bytes
from rocketc.tables.groups import SubscriptionGroupConfig, SubscriptionGroups
from rocketc.tables.offsets import ConsumerOffsets, DelayOffsets
from rocketc.tables.table_file import read_table
from rocketc.tables.topics import Topics

pytestmark = pytest.mark.promise(9)

NAMES = ["consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json"]
OF_5 = {
    "stateVersion",
    "attributes",
    "consumeMessageOrderly",
    "consumeTimeoutMinute",
    "groupRetryPolicy",
    "groupSysFlag",
}


def run_java(release: str, *folders: Path) -> None:
    """Let RocketMQ read the tables in each folder, and write them to the next one."""
    try:
        jars, java = rocketmq.jars(release), rocketmq.tool("java")
    except rocketmq.Unavailable as reason:
        pytest.skip(str(reason))
    program = rocketmq.SOURCES / "Tables.java"
    command = [java, *rocketmq.OPTIONS[:4], "-cp", f"{jars}/*", str(program), *map(str, folders)]
    subprocess.run(command, env=rocketmq.ENVIRONMENT, check=True, timeout=120)


def through_java(release: str, config: Path, out: Path) -> dict[str, bytes]:
    """Each table as RocketMQ writes it after reading it."""
    out.mkdir()
    run_java(release, config, out)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def plain(value, without=frozenset()):
    """The value without the fields that a release does not have; the order of keys is ignored."""
    if isinstance(value, dict):
        return {str(name): plain(inner, without) for name, inner in value.items() if name not in without}
    return value


@pytest.fixture
def written(tmp_path):
    topics = Topics(tmp_path)
    topics.create("orders", queues=8, queue_type="BatchCQ", attributes={"cleanup.policy": "DELETE"}, order=True)
    topics.create("%RETRY%audit|a_b-c", read_queue_nums=1, write_queue_nums=0, perm=2, message_type="FIFO")
    for number in range(2000):  # more than the initial capacity of a broker's map
        topics.auto_create(f"t{number}")
    topics.persist()
    groups = SubscriptionGroups(tmp_path)
    groups.create(SubscriptionGroupConfig("audit", retry_max_times=3, consume_message_orderly=True, broker_id=2))
    offsets = ConsumerOffsets(tmp_path)
    for queue_id in (0, 1, 12, 2):
        offsets.commit("orders", "audit", queue_id, 10**15 + queue_id)
    offsets.commit("a", "b", 7, -1)
    offsets.persist()
    delays = DelayOffsets(tmp_path)
    delays.commit(1, 17)
    delays.commit(18, 0)
    delays.persist()
    return tmp_path / "config"


@pytest.mark.some(1)
@pytest.mark.parametrize("release", rocketmq.RELEASES)
def test_rocketmq_reads_tables_of_rocketc(written, tmp_path, release):
    unknown = OF_5 if release.startswith("4") else frozenset()
    found = through_java(release, written, tmp_path / "java")
    assert list(found) == [name for name in NAMES if name != "delayOffset.json" or release.startswith("4")]
    for name, raw in found.items():
        ours, theirs = read_table(written / name).data, parse(raw)
        # Brokers rebuild groupTopicMap; forbiddenTable is not in this class of RocketMQ; 4.x has neither.
        assert theirs.keys() >= ours.keys() - {"groupTopicMap", "forbiddenTable", "dataVersion"}
        ours = {key: value for key, value in ours.items() if key in theirs}
        assert plain(theirs, unknown) == plain(ours, unknown), name
        assert to_bytes(theirs) == raw, name  # and in its form


@pytest.mark.long
@pytest.mark.promise(6)
@pytest.mark.parametrize("release", rocketmq.RELEASES)
def test_rocketmq_reads_tables_that_grew_whatever_a_kill_left(tmp_path, release):
    """A kill ends a write at any byte. What was written before is there, in the file or in its .bak."""
    root = tmp_path / "store"
    topics, groups = Topics(root), SubscriptionGroups(root)
    for table in (topics, groups):
        table.grow()
    for number in range(30):
        topics.create(f"t{number}", queues=number + 1)
        groups.create(SubscriptionGroupConfig(f"g{number}", retry_max_times=number))
    names = ("topics.json", "subscriptionGroup.json")
    before = {name: (root / "config" / name).read_bytes() for name in names}
    topics.create("last")
    groups.create(SubscriptionGroupConfig("last"))
    folders = []
    after = {name: (root / "config" / name).read_bytes() for name in names}
    for place in ("", ".bak"):
        for cut in range(0, 400, 9):  # bytes of the new end
            folder, out = tmp_path / f"cut{place}-{cut}", tmp_path / f"out{place}-{cut}"
            folder.mkdir()
            out.mkdir()
            for name in names:
                begin = next(n for n, (a, b) in enumerate(zip(before[name], after[name], strict=False)) if a != b)
                torn = after[name][: begin + cut] + before[name][begin + cut :]
                (folder / f"{name}{place}").write_bytes(torn)
                other = f"{name}.bak" if not place else name  # the .bak is written first
                (folder / other).write_bytes(after[name] if not place else before[name])
            folders += [folder, out]
    run_java(release, *folders)
    for out in folders[1::2]:
        found = parse((out / "topics.json").read_bytes())["topicConfigTable"]
        assert {f"t{n}": n + 1 for n in range(30)}.items() <= {k: v["readQueueNums"] for k, v in found.items()}.items()
        found = parse((out / "subscriptionGroup.json").read_bytes())["subscriptionGroupTable"]
        assert {f"g{n}": n for n in range(30)}.items() <= {k: v["retryMaxTimes"] for k, v in found.items()}.items()
