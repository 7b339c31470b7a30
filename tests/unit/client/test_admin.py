"""What Admin makes of the answers of RocketMQ 5.3.3, which were recorded, and what it asks."""

import pytest
from simulation import virtual
from unit.client.recorded import BROKER, GROUP, NAME_SERVER, TOPIC, Cluster, Recorded, ask

from rocketc.client.admin import LATEST
from rocketc.client.cluster_state import ConsumersState, QueueLag, QueueState
from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, NotSentError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer
from rocketc.tables.topics import TopicConfig

QUEUES = [MessageQueue(TOPIC, "broker-a", i) for i in range(3)]


def test_cluster_and_brokers():
    cluster, _ = ask(lambda admin: admin.cluster())
    assert cluster.clusters == {"DefaultCluster": ("broker-a",)} and cluster.masters() == {"broker-a": BROKER}
    assert cluster.masters("other") == {}
    [broker], _ = ask(lambda admin: admin.brokers())
    assert (broker.name, broker.cluster, broker.broker_id, broker.fault) == ("broker-a", "DefaultCluster", 0, None)
    assert (broker.version, broker.rate("putTps"), broker.today("Put"), broker.disk_ratio) == ("V5_3_3", 0.0, 16, 0.3)
    assert (broker.rate("nothing"), broker.today("Nothing")) == (None, None)


def test_a_broker_that_does_not_answer_has_a_fault():
    async def main():
        async with Cluster(**{NAME_SERVER: Recorded()}).admin() as admin:
            return await admin.brokers()

    [broker] = virtual.run(main())
    assert (broker.fault, broker.version, broker.disk_ratio) == ("no connection: Connection refused", "", None)


def test_topics_and_their_queues():
    names, _ = ask(lambda admin: admin.topics())
    assert TOPIC in names and names == sorted(names)
    state, _ = ask(lambda admin: admin.topic_state(TOPIC))
    assert state == {QUEUES[0]: QueueState(0, 5, 1795516026747), QUEUES[1]: QueueState(0, 5, 1795516026750)}
    config, _ = ask(lambda admin: admin.topic_config(TOPIC))
    assert config == {"broker-a": TopicConfig(TOPIC, 2, 2)}


def test_settings_of_a_topic_from_its_route():
    """Brokers before 4.9.4 do not know GET_TOPIC_CONFIG."""
    config, _ = ask(lambda admin: admin.topic_config(TOPIC), {351: lambda request: Answer(3)})
    assert config == {"broker-a": TopicConfig(TOPIC, 3, 3, 6)}
    with pytest.raises(AnswerError, match=r"GET_TOPIC_CONFIG was answered with 1 .SYSTEM_ERROR.: broken"):
        ask(lambda admin: admin.topic_config(TOPIC), {351: lambda request: Answer(1, remark="broken")})


def test_a_topic_that_does_not_exist():
    for work in (lambda admin: admin.topic_state("none"), lambda admin: admin.delete_topic("none")):
        with pytest.raises(AnswerError, match="no broker has the topic 'none'") as caught:
            ask(work, {105: lambda request: Answer(17, remark="none")})
        assert (caught.value.code, caught.value.address) == (Code.TOPIC_NOT_EXIST, NAME_SERVER)


def test_groups_and_their_consumers():
    names, _ = ask(lambda admin: admin.groups())
    assert "AG_38ee9271a8b" in names and names == sorted(names)
    state, _ = ask(lambda admin: admin.consumers(GROUP))
    assert [client.client_id for client in state.clients] == ["192.0.2.2@fixture_c_8044"]
    assert (state.consume_type, state.message_model, state.is_broadcasting) == (
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        False,
    )
    assert state.subscriptions == {f"%RETRY%{GROUP}": "*", TOPIC: "*"}
    assert ask(lambda admin: admin.consumers(f"{GROUP}_cm"))[0] == ConsumersState(())
    clients, _ = ask(lambda admin: admin.producers(f"P_{GROUP}"))
    assert [client.address for client in clients] == ["127.0.0.1:33282"]
    nothing = {204: lambda request: Answer(1, remark="the producer group[x] not exist")}
    assert ask(lambda admin: admin.producers("x"), nothing)[0] == []


def test_lag_of_a_group():
    state, _ = ask(lambda admin: admin.consume_state(GROUP))
    assert state.tps == 1.0 and state.queues[QUEUES[0]] == QueueLag(5, 5, 1795516026747) and state.lag == 0
    assert QueueLag(7, 5, 0).lag == 2 and QueueLag(7, -1, 0).lag == 7 and QueueLag(7, 9, 0).lag == 0


@pytest.mark.parametrize("body", [b"", b"[]", b'{"offsetTable":{"a":{}}}', b'{"offsetTable":{{"topic":"x"}:{}}}'])
def test_an_answer_that_cannot_be_read(body):
    with pytest.raises(AnswerError, match="the answer to GET_CONSUME_STATS cannot be read") as caught:
        ask(lambda admin: admin.consume_state(GROUP), {208: lambda request: Answer(body=body)})
    assert caught.value.code is None


def done(request):
    return Answer()


def test_create_and_delete_a_topic():
    config = TopicConfig("new", 3, 3, 4, True, attributes={"message.type": "FIFO"})
    names, asked = ask(lambda admin: admin.create_topic(config), {17: done})
    fields = {
        "topic": "new", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "4",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "true", "attributes": "+message.type=FIFO",
        "force": "false",
    }  # fmt: skip
    assert (names, asked[-1]) == (["broker-a"], (17, fields))
    with pytest.raises(AnswerError, match="there is no master 'b'; there are: broker-a"):
        ask(lambda admin: admin.create_topic(config, ["b"]), {17: done})
    names, asked = ask(lambda admin: admin.delete_topic(TOPIC), {215: done, 216: done})
    ends = [(215, {"topic": TOPIC}), (216, {"topic": TOPIC, "clusterName": "DefaultCluster"})]
    assert (names, asked[-2:]) == (["broker-a"], ends)


def test_permissions():
    names, asked = ask(lambda admin: admin.set_topic_permission(TOPIC, 4), {17: done})
    assert names == ["broker-a"] and asked[-1][1]["perm"] == "4" and asked[-1][1]["readQueueNums"] == "2"
    with pytest.raises(AnswerError, match="the broker 'b' does not have 'A_38ee962af21'; broker-a do"):
        ask(lambda admin: admin.set_topic_permission(TOPIC, 4, ["b"]), {17: done})
    assert ask(lambda admin: admin.set_broker_writable("broker-a", False))[0] == 27
    assert ask(lambda admin: admin.set_broker_writable("broker-a", True))[0] == 27


def test_reset_offsets():
    found, _ = ask(lambda admin: admin.reset_offset(GROUP, TOPIC, 1577836800000))
    assert found == dict.fromkeys(QUEUES[:2], 0)


@pytest.mark.parametrize(("timestamp", "code"), [(LATEST, 30), (1577836800000, 29)])
def test_reset_offsets_of_a_group_that_is_not_online_at_a_broker_of_4_x(timestamp, code):
    others = {
        222: lambda request: Answer(Code.CONSUMER_NOT_ONLINE, remark="Consumer not online"),
        code: lambda request: Answer(values={"offset": 5 + int(request.fields["queueId"])}),
        15: done,
    }
    found, asked = ask(lambda admin: admin.reset_offset(f"{GROUP}_cm", TOPIC, timestamp), others)
    assert found == dict(zip(QUEUES, (5, 6, 7), strict=True))
    commits = [fields["commitOffset"] for code, fields in asked if code == 15]
    assert commits == ["5", "6", "7"]
    unused = {**others, 222: lambda request: Answer(1, remark="THe consumer group <x> not exist")}
    assert ask(lambda admin: admin.reset_offset(f"{GROUP}_cm", TOPIC, timestamp), unused)[0] == found
    refused = {**others, 222: lambda request: Answer(1, remark="no")}  # and consumers are online
    with pytest.raises(AnswerError, match="INVOKE_BROKER_TO_RESET_OFFSET was answered with 1"):
        ask(lambda admin: admin.reset_offset(GROUP, TOPIC, timestamp), refused)


def test_the_next_name_server_is_asked():
    async def main():
        processor = Recorded()
        cluster = Cluster(**{NAME_SERVER: processor, BROKER: processor})
        async with cluster.admin(f"10.0.0.6:9876;{NAME_SERVER}") as admin:
            names = await admin.topics()
            assert names == await admin.topics()
        async with cluster.admin("10.0.0.6:9876;10.0.0.7:9876") as admin:
            with pytest.raises(NotSentError, match=r"10\.0\.0\.7:9876: no connection: Connection refused"):
                await admin.topics()
        with pytest.raises(NotSentError, match="the client is closed"):
            await admin.topics()
        assert all(one.is_closing() for one in cluster.transports)

    virtual.run(main())


def test_a_change_in_the_name_servers_needs_all_of_them():
    async def main():
        async with Cluster(**{NAME_SERVER: Recorded()}).admin(f"{NAME_SERVER};10.0.0.6:9876") as admin:
            with pytest.raises(NotSentError, match=r"10\.0\.0\.6"):
                await admin.set_broker_writable("broker-a", False)

    virtual.run(main())


@pytest.mark.parametrize("offset", ["--5", "x", ""])
def test_an_offset_that_is_not_a_number(offset):
    others = {30: lambda request: Answer(fields={"offset": offset})}
    with pytest.raises(AnswerError, match="the answer has the offset"):
        ask(lambda admin: admin.offsets_at(TOPIC, LATEST), others)


def test_a_remark_of_blanks():
    with pytest.raises(AnswerError, match=r"was answered with 1 \(SYSTEM_ERROR\): without a remark"):
        ask(lambda admin: admin.topics(), {206: lambda request: Answer(1, remark=" ")})
