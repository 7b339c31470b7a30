"""What Admin makes of the answers of RocketMQ 5.3.3, which were recorded, and what it asks."""

import json
import pickle

import pytest
from simulation import virtual
from unit.client.recorded import BROKER, GROUP, NAME_SERVER, TOPIC, Cluster, Recorded, answers, ask

from rocketc.client.admin import LATEST, Admin
from rocketc.client.changes import change_all
from rocketc.client.cluster_state import ConsumersState, QueueLag, QueueState
from rocketc.client.routes import MessageQueue
from rocketc.errors import AnswerError, ChangeError, NotSentError
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command, Flag
from rocketc.remoting.server import Answer
from rocketc.tables.topics import TopicConfig

LAGS = next(
    one["answerBody"].encode() for one in answers() if one["request"] == {"consumerGroup": GROUP} and one["code"] == 208
)
QUEUES = [MessageQueue(TOPIC, "broker-a", i) for i in range(3)]
# The route has three queues, GET_TOPIC_STATS_INFO only two: as a broker of 4.x answers if there are two to write.
QUEUE_2 = {30: lambda request: Answer(values={"offset": 7}), 31: lambda request: Answer(values={"offset": 2})}


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
    state, _ = ask(lambda admin: admin.topic_state(TOPIC), QUEUE_2)
    assert state == {
        QUEUES[0]: QueueState(0, 5, 1795516026747), QUEUES[1]: QueueState(0, 5, 1795516026750),
        QUEUES[2]: QueueState(2, 7, 0),
    }  # fmt: skip
    config, _ = ask(lambda admin: admin.topic_config(TOPIC))
    assert config == {"broker-a": TopicConfig(TOPIC, 2, 2)}


def test_settings_of_a_topic_of_an_old_broker():
    """Brokers of 4.3 to 4.7 do not answer what they do not know: GET_TOPIC_CONFIG and GET_BROKER_HA_STATUS."""

    def of_471(request):
        return Answer(frame=Command(0, opaque=request.opaque, flag=Flag.ANSWER, version=355).encode())

    def at_old(work):
        found, asked = ask(work, {30: of_471})
        assert {351, 907}.isdisjoint(code for code, _ in asked)
        return found

    assert at_old(lambda admin: admin.topic_config(TOPIC)) == {"broker-a": TopicConfig(TOPIC, 2, 2)}
    assert at_old(lambda admin: admin.topic_config("none")) == {"broker-a": TopicConfig("none", 3, 3, 6)}
    assert at_old(lambda admin: admin.replicas()) == {}


def test_settings_of_a_topic_from_its_route():
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
    assert (names, asked[-1]) == ({"broker-a": config}, (17, fields))
    with pytest.raises(AnswerError, match="there is no master 'b'; there are: broker-a"):
        ask(lambda admin: admin.create_topic(config, ["b"]), {17: done})
    names, asked = ask(lambda admin: admin.delete_topic(TOPIC), {215: done, 216: done})
    ends = [(215, {"topic": TOPIC}), (216, {"topic": TOPIC, "clusterName": "DefaultCluster"})]
    assert (names, asked[-2:]) == (["broker-a"], ends)


def test_permissions():
    names, asked = ask(lambda admin: admin.set_topic_permission(TOPIC, 4), {17: done})
    assert names == {"broker-a": TopicConfig(TOPIC, 2, 2, 4)}
    assert asked[-1][1]["perm"] == "4" and asked[-1][1]["readQueueNums"] == "2"
    with pytest.raises(AnswerError, match="the broker 'b' does not have 'A_38ee962af21'; broker-a do"):
        ask(lambda admin: admin.set_topic_permission(TOPIC, 4, ["b"]), {17: done})
    assert ask(lambda admin: admin.set_broker_writable("broker-a", False))[0] == {NAME_SERVER: 27}
    assert ask(lambda admin: admin.set_broker_writable("broker-a", True))[0] == {NAME_SERVER: 27}


def test_reset_offsets():
    found, _ = ask(lambda admin: admin.reset_offset(GROUP, TOPIC, 1577836800000))
    assert found == {"broker-a": dict.fromkeys(QUEUES[:2], 0)}
    others = {30: lambda request: Answer(values={"offset": 7}), 208: lambda request: Answer(body=LAGS)}
    plan, asked = ask(lambda admin: admin.reset_plan(GROUP, TOPIC, LATEST), others)
    assert plan == {"broker-a": {QUEUES[0]: (5, 7), QUEUES[1]: (5, 7), QUEUES[2]: (None, 7)}}
    assert 222 not in [code for code, _ in asked]


def test_reset_offsets_of_a_group_that_does_not_exist():
    """Brokers of 4.x would store offsets of any name."""
    for work in (
        lambda admin: admin.reset_offset("none", TOPIC, LATEST),
        lambda admin: admin.reset_plan("none", TOPIC, LATEST),
    ):
        processor = Recorded()
        with pytest.raises(AnswerError, match=f"{NAME_SERVER}: group 'none' not found on broker-a$") as caught:
            ask(work, processor=processor)
        assert caught.value.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST
        assert not {15, 222} & {code for code, _ in processor.asked}


@pytest.mark.parametrize(("timestamp", "code"), [(LATEST, 30), (1577836800000, 29)])
def test_reset_offsets_of_a_group_that_is_not_online_at_a_broker_of_4_x(timestamp, code):
    others = {
        222: lambda request: Answer(Code.CONSUMER_NOT_ONLINE, remark="Consumer not online"),
        code: lambda request: Answer(values={"offset": 5 + int(request.fields["queueId"])}),
        15: done,
    }
    found, asked = ask(lambda admin: admin.reset_offset(f"{GROUP}_cm", TOPIC, timestamp), others)
    assert found == {"broker-a": dict(zip(QUEUES, (5, 6, 7), strict=True))}
    commits = [fields["commitOffset"] for code, fields in asked if code == 15]
    assert commits == ["5", "6", "7"]
    unused = {**others, 222: lambda request: Answer(1, remark="THe consumer group <x> not exist")}
    assert ask(lambda admin: admin.reset_offset(f"{GROUP}_cm", TOPIC, timestamp), unused)[0] == found
    refused = {**others, 222: lambda request: Answer(1, remark="no")}  # and consumers are online
    with pytest.raises(ChangeError, match="INVOKE_BROKER_TO_RESET_OFFSET was answered with 1"):
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
            refused = "not changed on 10.0.0.6:9876: no connection: Connection refused; changed on: 10.0.0.5:9876"
            with pytest.raises(ChangeError, match=f"^{refused}$") as caught:
                await admin.set_broker_writable("broker-a", False)
            assert caught.value.changed == {NAME_SERVER: 27}

    virtual.run(main())


@pytest.mark.parametrize("offset", ["--5", "x", ""])
def test_an_offset_that_is_not_a_number(offset):
    others = {30: lambda request: Answer(fields={"offset": offset})}
    with pytest.raises(AnswerError, match="the answer has the offset"):
        ask(lambda admin: admin.offsets_at(TOPIC, LATEST), others)


def test_a_remark_of_blanks():
    with pytest.raises(AnswerError, match=r"was answered with 1 \(SYSTEM_ERROR\): without a remark"):
        ask(lambda admin: admin.topics(), {206: lambda request: Answer(1, remark=" ")})


BROKER_B, BROKER_C = "127.0.0.1:30921", "127.0.0.1:30931"
DATA = {name: {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": address}} for name, address in
        (("broker-a", BROKER), ("broker-b", BROKER_B), ("broker-c", BROKER_C))}  # fmt: skip
ROUTE = {
    "brokerDatas": list(DATA.values()),
    "queueDatas": [{"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1} for name in DATA],
}
THREE = {
    106: lambda request: Answer(
        body=json.dumps({"brokerAddrTable": DATA, "clusterAddrTable": {"C": [*DATA]}}).encode()
    ),
    105: lambda request: Answer(body=json.dumps(ROUTE).encode()),
}
CHANGES = {
    "create": (17, lambda admin: admin.create_topic(TopicConfig("new", 1, 1))),
    "delete": (215, lambda admin: admin.delete_topic(TOPIC)),
    "permission": (17, lambda admin: admin.set_topic_permission(TOPIC, 4)),
    "reset": (222, lambda admin: admin.reset_offset(GROUP, TOPIC, 0)),
    "plan": (30, lambda admin: admin.reset_plan(GROUP, TOPIC, LATEST)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_names_the_brokers_that_made_it(change):
    """The first broker refuses, the second one makes it, the third one is dead."""
    code, work = CHANGES[change]
    made = {17: done, 215: done, 222: lambda request: Answer(body=b'{"offsetTable":{}}'),
            30: lambda request: Answer(values={"offset": 7}), 208: lambda request: Answer(body=LAGS)}  # fmt: skip
    refusing = Recorded({**THREE, **made, code: lambda request: Answer(1, remark="no")})
    making = Recorded({**THREE, **made})

    async def main():
        servers = {NAME_SERVER: making, BROKER: refusing, BROKER_B: making}
        async with Cluster(**servers).admin() as admin:
            await work(admin)

    with pytest.raises(ChangeError) as caught:
        virtual.run(main())
    error = caught.value
    assert (list(error.changed), list(error.failed)) == (["broker-b"], ["broker-a", "broker-c"])
    assert error.fault("broker-a").endswith("was answered with 1 (SYSTEM_ERROR): no")
    assert error.fault("broker-c") == f"{BROKER_C}: no connection: Connection refused"
    assert str(error).endswith("; changed on: broker-b") and pickle.loads(pickle.dumps(error)).changed == error.changed
    assert 216 not in [code for code, _ in making.asked]  # the name servers keep a topic that a broker still has


def test_reading_leaves_out_brokers_that_are_not_reached():
    """The first broker answers, the others are dead."""
    others = {**THREE, 351: lambda request: Answer(17)}

    async def main(partial, answering=(NAME_SERVER, BROKER)):
        processor = Recorded(others)
        cluster = Cluster(**dict.fromkeys(answering, processor))
        async with Admin(NAME_SERVER, connector=cluster.connector, partial=partial) as admin:
            found = await admin.groups(), await admin.topic_state(TOPIC), await admin.topic_config(TOPIC)
            assert (
                GROUP in found[0] and QUEUES[0] in found[1] and list(found[2]) == ["broker-a", "broker-b", "broker-c"]
            )
            assert list(admin.faults) == [BROKER_B, BROKER_C]

    virtual.run(main(True))
    with pytest.raises(NotSentError, match=BROKER_B):
        virtual.run(main(False))
    with pytest.raises(NotSentError, match=BROKER):
        virtual.run(main(True, (NAME_SERVER,)))


def test_a_broker_that_refuses_is_not_left_out():
    async def main():
        making = Recorded({**THREE, 201: lambda request: Answer(16, remark="no permission")})
        cluster = Cluster(**{NAME_SERVER: making, BROKER: making})
        async with Admin(NAME_SERVER, connector=cluster.connector, partial=True) as admin:
            await admin.groups()

    with pytest.raises(AnswerError, match="NO_PERMISSION"):
        virtual.run(main())


def test_a_broker_whose_master_is_away():
    data = {**DATA["broker-a"], "brokerAddrs": {"1": BROKER}}
    away = {**ROUTE, "brokerDatas": [data, DATA["broker-b"]], "queueDatas": ROUTE["queueDatas"][:1]}
    others = {**THREE, 105: lambda request: Answer(body=json.dumps(away).encode())}
    with pytest.raises(ChangeError, match="the broker 'broker-a' is without a master now"):
        ask(lambda admin: admin.set_topic_permission(TOPIC, 4), others)
    with pytest.raises(ChangeError, match="the broker 'broker-a' is without a master now"):
        ask(lambda admin: admin.delete_topic(TOPIC), {**others, 215: done, 216: done})
    assert ask(lambda admin: admin.topic_config(TOPIC), others)[0] == {"broker-a": TopicConfig(TOPIC, 1, 1)}


def test_a_topic_without_queues_is_deleted_on_all_masters():
    empty = {**ROUTE, "queueDatas": []}
    others = {**THREE, 105: lambda request: Answer(body=json.dumps(empty).encode()), 215: done, 216: done}

    async def main():
        processor = Recorded(others)
        cluster = Cluster(**dict.fromkeys((NAME_SERVER, BROKER, BROKER_B, BROKER_C), processor))
        async with cluster.admin() as admin:
            return await admin.delete_topic(TOPIC)

    assert virtual.run(main()) == list(DATA)


def test_a_group_that_only_some_brokers_have():
    groups = {**THREE, 30: lambda request: Answer(values={"offset": 7}), 208: lambda request: Answer(body=LAGS)}
    without = {**groups, 201: lambda request: Answer(body=b'{"subscriptionGroupTable":{}}')}

    async def main():
        cluster = Cluster(**{NAME_SERVER: Recorded(groups), BROKER: Recorded(groups), BROKER_B: Recorded(without)})
        async with cluster.admin() as admin:
            await admin.reset_plan(GROUP, TOPIC, LATEST)

    with pytest.raises(ChangeError) as caught:
        virtual.run(main())
    assert list(caught.value.changed) == ["broker-a"]
    assert caught.value.fault("broker-b") == f"{BROKER_B}: group {GROUP!r} not found on broker-b"


def test_a_change_that_raises_another_error():
    async def broken():
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        virtual.run(change_all({"a": broken()}))


def test_a_topic_that_a_name_server_keeps():
    async def main():
        making = Recorded({215: done, 216: done})
        cluster = Cluster(**{NAME_SERVER: making, BROKER: making})
        async with cluster.admin(f"{NAME_SERVER};10.0.0.6:9876") as admin:
            await admin.delete_topic(TOPIC)

    with pytest.raises(ChangeError) as caught:
        virtual.run(main())
    assert (list(caught.value.changed), list(caught.value.failed)) == (["broker-a", NAME_SERVER], ["10.0.0.6:9876"])
