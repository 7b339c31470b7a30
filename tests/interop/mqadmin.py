"""RocketMQ's mqadmin on a broker of RocketMQ's and on ours: the same commands, and what they print without what varies.

`Mqadmin("5.3.3", folder)` runs commands in one Java process; `play(...)` runs COMMANDS on a cluster.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interop.scenarios import Process

TOPIC, ORDERED, GROUP, CLONE = "admin_topic", "admin_ordered", "admin_group", "admin_clone"

# {ns}, {broker}, {files} and the ids of the first message and its consumer are filled in.
BEFORE = [f"updateTopic -c DefaultCluster -t {TOPIC} -r 2 -w 2", f"updateSubGroup -c DefaultCluster -g {GROUP}"]
COMMANDS = [
    "clusterList", "clusterList -m", "brokerStatus -b {broker}", "brokerStatus -c DefaultCluster",
    "updateBrokerConfig -b {broker} -k fileReservedTime -v 49", "getNamesrvConfig",
    "updateNamesrvConfig -k orderMessageEnable -v true", "haStatus -b {broker}",
    f"updateTopic -c DefaultCluster -t {ORDERED} -r 3 -w 3 -o true", f"topicRoute -t {ORDERED}", "topicList",
    f"topicClusterList -t {TOPIC}", f"topicRoute -t {TOPIC}", f"topicRoute -t {TOPIC} -l",
    f"updateTopicPerm -c DefaultCluster -t {ORDERED} -p 4", f"topicStatus -t {TOPIC}",
    f"updateOrderConf -t {ORDERED} -m get", f"updateOrderConf -t {ORDERED} -m put -v broker-a:3",
    f"updateOrderConf -t {ORDERED} -m delete", f"queryMsgById -t {TOPIC} -i {{offset_msg_id}}",
    f"queryMsgByKey -t {TOPIC} -k key1", f"queryMsgByUniqueKey -t {TOPIC} -i {{msg_id}}",
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 0",
    f"queryMsgById -t {TOPIC} -i {{offset_msg_id}} -g {GROUP} -d {{consumer}}",
    f"printMsg -t {TOPIC} -d true", f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true",
    f"consumeMessage -t {TOPIC} -b broker-a -i 0 -o 0 -c 2", f"checkMsgSendRT -t {TOPIC} -a 3 -s 10",
    "sendMsgStatus -b broker-a -c 2 -s 10", f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {{broker}} -g {GROUP}",
    f"consumerProgress -g {GROUP}", f"consumerProgress -g {GROUP} -t {TOPIC}", f"consumerConnection -g {GROUP}",
    f"producerConnection -g P_{GROUP} -t {TOPIC}", f"consumerStatus -g {GROUP} -s",
    f"consumerStatus -g {GROUP} -i {{consumer}}", "brokerConsumeStats -b {broker}", "statsAll",
    f"allocateMQ -t {TOPIC} -i a,b", f"updateSubGroup -c DefaultCluster -g {CLONE}",
    f"cloneGroupOffset -s {GROUP} -d {CLONE} -t {TOPIC}", f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s now",
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0", f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}",
    f"getConsumerConfig -g {GROUP}", "exportMetadata -c DefaultCluster -f {files}",
    f"deleteSubGroup -b {{broker}} -g {CLONE} -r true", f"deleteSubGroup -c DefaultCluster -g {CLONE}",
    "wipeWritePerm -b broker-a", "addWritePerm -b broker-a", "updateKvConfig -s ns -k k -v v",
    "deleteKvConfig -s ns -k k", "cleanUnusedTopic -b {broker}", "deleteExpiredCommitLog -b {broker}",
    f"deleteTopic -c DefaultCluster -t {ORDERED}", f"topicRoute -t {ORDERED}",
    "updateTopicList -b {broker} -f {files}/topics.json", "updateSubGroupList -b {broker} -f {files}/groups.json",
    "producer -b {broker}", "cleanExpiredCQ -b {broker}", "cleanExpiredCQ -c DefaultCluster",
    f"sendMessage -t {TOPIC} -p hello -b broker-a -i 0", "exportConfigs -c DefaultCluster -f {files}",
    "exportMetrics -c DefaultCluster -f {files}", "getColdDataFlowCtrInfo -b {broker}",
    "setCommitLogReadAheadMode -b {broker} -m 0", "queryMsgTraceById -i {msg_id}",
]  # fmt: skip
REFUSED = [
    f"setConsumeMode -b {{broker}} -t {TOPIC} -g {GROUP} -m PULL", "getBrokerEpoch -b broker-a",
    "updateStaticTopic -t st -qn 2 -b broker-a", "listUser -b {broker}", "getAcl -b {broker} -s x",
    "setCommitLogReadAheadMode -b {broker} -m 1", "updateColdDataFlowCtrGroupConfig -b {broker} -g x -v 1",
    "removeColdDataFlowCtrGroupConfig -b {broker} -g x", "exportPopRecord -b {broker}",
    "rocksDBConfigToJson -c DefaultCluster -t topics", "checkRocksdbCqWriteProgress -c DefaultCluster",
    "getControllerMetaData -a {broker}", "getControllerConfig -a {broker}",
    "updateControllerConfig -a {broker} -k a -v b", "getSyncStateSet -a {broker} -b broker-a",
    "electMaster -a {broker} -b 1 -bn broker-a -c DefaultCluster",
    "cleanBrokerMetadata -a {broker} -bn broker-a -c DefaultCluster -l", "addBroker -c {broker} -b x",
    "removeBroker -c {broker} -b DefaultCluster:broker-a:0", "resetMasterFlushOffset -b {broker} -o 0",
    "createUser -b {broker} -u a -p b", "updateUser -b {broker} -u a -p b", "deleteUser -b {broker} -u a",
    "getUser -b {broker} -u a", "copyUser -f {broker} -t {broker}",
    "createAcl -b {broker} -s User:a -r Topic:* -a PUB -d ALLOW",
    "updateAcl -b {broker} -s User:a -r Topic:* -a PUB -d ALLOW", "deleteAcl -b {broker} -s User:a",
    "listAcl -b {broker}", "copyAcl -f {broker} -t {broker} -s User:a",
]  # fmt: skip

# What a broker of RocketMQ adds because its list of the groups of a topic contains the topic itself.
_TRACK = re.compile(rf"MessageTrack \[consumerGroup={TOPIC},.*?:\d+\)\]", re.S)
_PROPERTIES = re.compile(r"\{([A-Z_]+=[^{}]*)\}")  # a Java map, in no order
_ROW = re.compile(rf"{TOPIC} {TOPIC} ")


class Mqadmin(Process):
    """mqadmin of one release."""

    def __init__(self, release: str, folder: Path) -> None:
        conf = folder / "conf" / "logback_tools.xml"  # 4.9.7 reads it
        conf.parent.mkdir(parents=True)
        conf.write_text("<configuration/>")
        super().__init__(
            release, folder, "Admin", options=["-Djava.security.manager=allow", f"-Drocketmq.home.dir={folder}"]
        )

    def run(self, command: list[str]) -> str:
        self.tell(command=command)
        out: str = self.hear()["out"]
        return out

    def clients(self, name_server: str, group: str, topic: str) -> dict[str, Any]:
        """Start a producer and a consumer that send and consume 10 messages."""
        self.tell(clients=name_server, group=group, topic=topic)
        told: dict[str, Any] = self.hear()
        return told


def play(tool: Mqadmin, name_server: str, broker: str, files: Path, commands: list[str]) -> Iterator[tuple[str, str]]:
    """Run the commands on a cluster; yield each with what it printed."""
    files.mkdir(parents=True, exist_ok=True)
    topics = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6} for name in ("list_a", "list_b")]
    (files / "topics.json").write_text(json.dumps(topics))
    (files / "groups.json").write_text(json.dumps([{"groupName": "list_c"}, {"groupName": "list_d"}]))
    for command in BEFORE:
        printed = tool.run([*command.split(), "-n", name_server])
        assert "success" in printed, printed
    told = tool.clients(name_server, GROUP, TOPIC)
    assert told["consumed"] == 10
    filled = {
        "broker": broker, "files": str(files), "msg_id": told["msgId"], "offset_msg_id": told["offsetMsgId"],
        "consumer": told["consumer"],
    }  # fmt: skip
    for command in commands:
        yield command, tool.run([*command.format(**filled).split(), "-n", name_server])


def columns(printed: str) -> list[str]:
    """The lines without numbers, times, addresses and ids; each once, sorted."""
    lines = set()
    for line in _TRACK.sub("", printed).splitlines():
        if line.strip().startswith("at "):
            continue
        text = re.sub(r"(/[\w.-]+){3,}\S*", "PATH", line)
        text = re.sub(r"127\.0\.0\.1[:.]\d+", "ADDRESS", text)
        text = re.sub(r"\b[0-9A-F]{32,}\b", "ID", text)
        text = re.sub(r"@[0-9a-f]+$|\$\$Lambda\S+", "OBJECT", text)
        text = re.sub(r"\d+([.,:-]*\d+)*(E-?\d+)?", "N", text)
        text = re.sub(r"(\bN )+N\b", "N", re.sub(r"[ \t]+", " ", text)).strip()
        text = re.sub(r"\bN [KMG]iB", "N B", text)
        text = _PROPERTIES.sub(lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", text)
        if text and not _ROW.match(text):
            lines.add(text)
    return sorted(lines)
