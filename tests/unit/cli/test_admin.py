"""rocketc admin at our broker: a story from a new topic to its end, and wrong use."""

import json

import pytest
from interop.asking import Asking
from support.admin_story import GROUP, Operator, heartbeat, play

import rocketc
from rocketc.cli import admin_changes
from rocketc.client import name_servers


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker(process=True) as broker:
        yield broker


def test_a_story_at_our_broker(broker, run):
    play(Operator(run, broker.name_server), broker.address, is_reset_at_once=True)


def test_nothing_to_show(broker, run):
    for word, says in (
        ("topics", "rocketc: there are no topics; --all shows those of the system\n"),
        ("lag", "rocketc: no consumer group has consumed anything\n"),
    ):
        assert run("admin", word, "-n", broker.name_server) == (0, "", says)
    code, out, err = run("admin", "topics", "--all", "--json", "-n", broker.name_server)
    assert (code, err) == (0, "") and "TBW102" in [one["topic"] for one in json.loads(out)["topics"]]


def test_a_topic_that_only_the_name_server_lists(broker, run):
    broker.topics.create("there", 1)
    names = Asking(broker.name_server)
    stale = {"queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}]}
    assert names.ask("REGISTER_TOPIC_IN_NAMESRV", stale, topic="stale")[0] == 0
    names.close()
    says = "rocketc: the name server lists the topic 'stale', but no broker has it; delete-topic removes it there\n"
    code, out, err = run("admin", "topics", "--json", "-n", broker.name_server)
    assert (code, err) == (0, says) and [one["topic"] for one in json.loads(out)["topics"]] == ["there"]
    code, out, err = run("admin", "topics", "there", "stale", "--json", "-n", broker.name_server)
    assert (code, err) == (1, says) and [one["topic"] for one in json.loads(out)["queues"]] == ["there"]
    assert run("admin", "delete-topic", "stale", "--yes", "-n", broker.name_server)[0] == 0
    code, _, err = run("admin", "topics", "stale", "-n", broker.name_server)
    assert (code, err) == (1, "rocketc: there is no topic 'stale'\n")
    assert run("admin", "delete-topic", "there", "--yes", "-n", broker.name_server)[0] == 0


def test_a_topic_that_may_not_be_read(broker, run, caplog):
    broker.topics.create("hidden", 1)
    with rocketc.client.Producer("shop", broker.name_server) as producer:
        producer.send("hidden", b"here")
    assert run("admin", "permissions", "hidden", "--set", "w", "-n", broker.name_server)[0] == 0
    says = "topic 'hidden' may not be read on broker-a; allow it: rocketc admin permissions hidden --set rw"
    url = f"rocketmq://{broker.name_server}/hidden"
    assert run("cat", url) == (0, "", f"rocketc: {says}\nrocketc: no message is selected\n")
    code, out, err = run("admin", "topics", "hidden", "-n", broker.name_server)
    assert (code, err) == (0, f"rocketc: {says}\n") and out.splitlines()[1].split()[2:5] == ["0", "0", "1"]
    caplog.clear()
    with rocketc.client.PullConsumer("billing", broker.name_server, topics=["hidden"]) as consumer:
        assert consumer.poll(100) == [] and consumer.poll(100) == []
        assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [says]
        assert run("admin", "permissions", "hidden", "--set", "rw", "-n", broker.name_server)[0] == 0
    assert len(run("cat", url)[1].splitlines()) == 1


def test_a_malformed_order_of_a_topic(broker, run, request):
    broker.topics.create("bills", 2)
    names = Asking(broker.name_server)
    request.addfinalizer(names.close)
    values = {"namespace": "ORDER_TOPIC_CONFIG", "key": "bills"}
    assert names.ask("UPDATE_NAMESRV_CONFIG", b"orderMessageEnable=true")[0] == 0
    assert names.ask("PUT_KV_CONFIG", **values, value="broker-a")[0] == 0
    says = (
        "rocketc: topic 'bills': orderTopicConf is 'broker-a', expected broker:queues;broker:queues; "
        "producers use all queues of the topic; correct it: mqadmin updateOrderConf\n"
    )
    for topic in ((), ("bills",)):
        code, out, err = run("admin", "topics", *topic, "-n", broker.name_server)
        assert (code, err) == (0, says) and "bills" in out
    with rocketc.client.Producer("shop", broker.name_server) as producer:
        producer.send("bills", b"here")
    with rocketc.client.PullConsumer("billing", broker.name_server, topics=["bills"]) as consumer:
        assert [one.body for one in consumer.poll(10_000)] == [b"here"]
    assert names.ask("DELETE_KV_CONFIG", **values)[0] == 0
    assert run("admin", "delete-topic", "bills", "--yes", "-n", broker.name_server)[0] == 0


def test_the_address_of_the_environment(broker, run, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    assert run("admin", "brokers")[0] == 0
    assert run("admin", "brokers", "-n", "127.0.0.1:1")[0] == 3


def test_an_address_without_a_server(run, monkeypatch):
    monkeypatch.setattr(name_servers, "LOCAL", "127.0.0.1:1")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    advice = "no name server is reached: check that it runs, and its address"
    refused = f"rocketc: 127.0.0.1:1: no connection: Connection refused; {advice}"
    default = "127.0.0.1:1 is the default without name_server (-n) and NAMESRV_ADDR"
    code, out, err = run("admin", "brokers")
    assert (code, out, err) == (3, "", f"{refused}; {default}\n")
    assert run("admin", "brokers", "-n", "127.0.0.1:2")[2] == f"{refused.replace(':1:', ':2:')}\n"
    code, out, err = run("admin", "brokers", "-n", "host.invalid:9876")
    assert (code, out) == (3, "") and err.startswith("rocketc: host.invalid:9876: no connection: the host name is not ")


def test_the_address_of_a_broker_instead_of_a_name_server(broker, run):
    code, out, err = run("admin", "brokers", "-n", broker.address)
    assert (code, out) == (3, "")
    assert err.startswith(
        f"rocketc: {broker.address}: GET_BROKER_CLUSTER_INFO was answered with 3 (REQUEST_CODE_NOT_SUPP"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["create-topic", "new orders"], "a topic name may only have letters, digits and %|_-"),
        (["create-topic", "orders", "--queues", "0"], "0 is less than 1"),
        (["create-topic", "orders", "--perm", "x"], "'x' is not one of"),
        (["reset-offset", "g", "orders"], "Missing option '--to'"),
        (["reset-offset", "g", "orders", "--to", "1764000000"], "this looks like seconds"),
        (["permissions"], "give TOPIC; or -b NAME and --set r or rw for a whole broker"),
        (["permissions", "-b", "broker-a", "--set", "w"], "give TOPIC"),
        (["lag", "--timeout", "nan"], "not a time in seconds"),
    ],
)
def test_wrong_use(run, args, says):
    code, out, err = run("admin", *args)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1


def test_the_questions(broker, run, monkeypatch):
    asked = []
    monkeypatch.setattr(admin_changes, "can_ask", lambda: True)
    broker.topics.create("asked")
    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr(admin_changes, "confirm", lambda question, answer=answer: asked.append(question) or answer)
        ended, out, err = run("admin", "delete-topic", "asked", "-n", broker.name_server)
        assert (ended, err) == (code, "") and out == ("asked: deleted on broker-a\n" if answer else "")
    assert asked == ["delete asked, 0 messages on broker-a?"] * 2


def test_the_question_of_a_reset(broker, run, monkeypatch):
    monkeypatch.setattr(admin_changes, "can_ask", lambda: True)
    broker.topics.create("reset", 1)
    client = Asking(broker.address)
    assert client.ask("HEART_BEAT", heartbeat("reset"))[0] == 0
    client.close()
    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr(admin_changes, "confirm", lambda question, answer=answer: answer)
        ended, out, err = run("admin", "reset-offset", GROUP, "reset", "--to", "latest", "-n", broker.name_server)
        plan = "broker    queue  old offset  new offset  messages\nbroker-a      0           0           0  -\n"
        assert (ended, err, out) == (code, "", plan)
