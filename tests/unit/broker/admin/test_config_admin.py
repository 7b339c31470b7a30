"""Settings of a broker, read and changed by tools while it runs."""

import asyncio
import json

import pytest
from simulation.tools import create, play, recorded

from rocketc.broker.config import BrokerConfig, broker_properties
from rocketc.config import properties
from rocketc.remoting.codes import Code


async def settings(client):
    answer = await client.call(26)
    assert answer.code == 0
    return dict(properties(bytes(answer.body).decode())), json.loads(answer.fields["version"])


async def update(client, text):
    answer = await client.call(25, text.encode())
    return answer.code, answer.remark


def test_the_settings_have_rocketmqs_names(memory_path):
    async def main(stage, client):
        found, version = await settings(client)
        exchange = recorded(26)
        assert version.keys() == json.loads(exchange["answer"]["version"]).keys()
        theirs = dict(properties(exchange["answerBody"]))
        others = {"maxOpenConsumeQueues", "linkedFolders"}  # of rocketc alone
        assert found.keys() - theirs.keys() == others
        same = {"brokerName", "brokerPermission", "fileReservedTime", "deleteWhen", "autoCreateTopicEnable", "traceOn"}
        assert {name: found[name] for name in same} == {name: theirs[name] for name in same}
        assert list(found) == sorted(found)
        assert found["storePathRootDir"] == str(memory_path)

    play(memory_path, main)


def test_changes_apply_at_once(memory_path):
    async def main(stage, client):
        await create(client)
        assert await update(client, "brokerPermission=2\nfileReservedTime=48\ndeleteWhen=05") == (0, None)
        found, version = await settings(client)
        assert (found["brokerPermission"], found["fileReservedTime"], found["deleteWhen"]) == ("2", "48", "05")
        assert version["counter"] == 1 and stage.store.config.file_reserved_time == 48
        assert (await client.pull()).code == Code.NO_PERMISSION
        assert await update(client, "brokerPermission=6") == (0, None)
        assert (await client.pull()).code == Code.PULL_NOT_FOUND
        assert await update(client, "startAcceptSendRequestTimeStamp=9999999999999") == (0, None)
        assert (await client.send()).code == Code.SYSTEM_ERROR
        assert await update(client, "startAcceptSendRequestTimeStamp=0") == (0, None)
        assert (await client.send()).code == 0
        assert await update(client, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false") == (0, None)
        assert (await client.send(topic="new")).code == Code.TOPIC_NOT_EXIST
        assert (await client.call(352, group="new")).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST

    play(memory_path, main)


def test_the_settings_of_the_caller_are_not_changed(memory_path):
    async def main(stage, client):
        before = broker_properties(stage._config)
        assert await update(client, "brokerPermission=4") == (0, None)
        assert broker_properties(stage._config) == before == broker_properties(BrokerConfig())

    play(memory_path, main)


REFUSED = [
    ("brokerName=other", 16, "Can not update brokerName: only a restart does."),
    ("listenPort=1\nflushDiskType=SYNC_FLUSH", 1, "string2Properties error: listenPort is 1; the VIP port is two less"),
    ("flushDiskType=SYNC_FLUSH\nbrokerId=1", 16, "Can not update brokerId, flushDiskType: only a restart does."),
    ("tls.server.mode=disabled", 16, "Can not update tls.server.mode: only a restart does."),
    ("storePathRootDir=/x", 16, "Can not update storePathRootDir: only a restart does."),
    ("configBlackList=x", 16, "Can not update config in black list."),
    ("brokerConfigPath=x", 16, "Can not update config in black list."),
    ("brokerPermission=x", 1, "string2Properties error: brokerPermission is 'x', which is not a whole number"),
    ("slaveReadEnable=maybe", 1, "string2Properties error: slaveReadEnable is 'maybe'; allowed are true and false"),
    ("fileReservedTime=-5", 1, "string2Properties error: "),
    ("flushConsumerOffsetInterval=0", 1, "string2Properties error: flushConsumerOffsetInterval is 0; allowed are"),
    ("a=\\u12", 1, "string2Properties error: "),
    ("a=" + "x" * 70_000, 1, "the settings have 70002 bytes; 65536 at most"),
]


def test_settings_that_are_refused(memory_path):
    async def main(stage, client):
        before = await settings(client)
        for text, code, remark in REFUSED:
            found = await update(client, text + "\nbrokerPermission=4" if code == 16 else text)
            assert found[0] == code and found[1].startswith(remark), (text, found)
        answer = await client.call(25, b"\xff\xfe")
        assert answer.code == Code.SYSTEM_ERROR
        assert await settings(client) == before

    play(memory_path, main)


def test_settings_without_effect_here_are_named(memory_path):
    async def main(stage, client):
        assert (await update(client, recorded(25)["requestBody"]))[0] == recorded(25)["answerCode"]
        assert await update(client, "aclEnable2=1\nbrokerName=broker-a") == (0, "not used here: aclEnable2")
        assert await update(client, "") == (0, None)

    play(memory_path, main)


def test_a_change_that_the_store_refuses(memory_path, monkeypatch):
    async def main(stage, client):
        def fail(**fields):
            raise OSError(5, "Input/output error")

        config = next(one for one in stage.broker.admin.processors if 25 in one.codes)
        config._store = type(
            "Broken", (), {"path": "/store", "config": stage.store.config, "configure": staticmethod(fail)}
        )  # fmt: skip
        assert (await update(client, "fileReservedTime=48\nbrokerPermission=4"))[0] == Code.SYSTEM_ERROR
        assert stage.broker.config.broker_permission == 6

    play(memory_path, main)


def test_an_interval_that_changed_is_used(memory_path):
    async def main(stage, client):
        assert await update(client, "flushConsumerOffsetInterval=60000") == (0, None)
        await asyncio.sleep(6)
        await create(client)
        await client.call(352, group="g")
        await client.call(15, consumerGroup="g", topic="orders", queueId=0, commitOffset=1)
        await asyncio.sleep(50)
        assert stage.broker.offsets.table.changed
        await asyncio.sleep(15)
        assert not stage.broker.offsets.table.changed

    play(memory_path, main)


def test_the_store_takes_only_settings_that_it_can_change(memory_path):
    async def main(stage, client):
        with pytest.raises(TypeError, match="flush_disk_type cannot be changed while the store is open"):
            stage.store.configure(flush_disk_type="SYNC_FLUSH")
        with pytest.raises(ValueError):
            stage.store.configure(file_reserved_time="x")
        assert stage.store.config.flush_disk_type == "ASYNC_FLUSH"

    play(memory_path, main)
