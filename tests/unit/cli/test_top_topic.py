"""rocketc top of a topic: the brokers of its route, as tables and JSON, and brokers that do not answer."""

import asyncio
import json

import pytest
from unit.cli.scripted_server import table

import rocketc
from rocketc.cli.exit_codes import COULD_NOT, DAMAGED, NOT_FOUND, USAGE
from rocketc.cli.top_broker import TopicBrokersReader
from rocketc.cli.top_screen import Top
from rocketc.client import Producer
from rocketc.errors import StoreIOError, TopicNotFoundError
from rocketc.remoting.command import Command
from rocketc.report.broker_rates import BrokerRates, BrokerSnapshot, BrokersRates, BrokersSnapshot, draw_brokers
from rocketc.report.tables import render


@pytest.fixture
def topic(serve):
    """topic(a=answer, b=answer): the URL of a topic at a name server, whose brokers give these answers to all."""

    def start(**answers):
        addresses = {name: serve(answer).removeprefix("rocketmq://") for name, answer in answers.items()}
        brokers = [
            {"brokerName": name, "cluster": "c", "brokerAddrs": {"1" if name == "slave" else "0": address}}
            for name, address in addresses.items()
        ]
        body = json.dumps({"brokerDatas": brokers, "queueDatas": []}).encode()
        names = {105: Command(0, body=body), 206: Command(0, body=b'{"topicList":["orders","bills"]}')}
        return f"{serve(names.__getitem__)}/orders", addresses

    return start


def test_a_topic_of_a_broker(run):
    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        producer.send("orders", b"one")
        url = f"rocketmq://{broker.name_server}/orders"
        code, out, err = run("top", url, "--json", "-n", "0.1")
        assert (code, err) == (0, "")
        found = json.loads(out)
        [one] = found["brokers"]
        assert found["path"] == url and (one["brokerName"], one["address"]) == ("broker-a", broker.address)
        assert one["endOffset"] == broker.store.max_phy_offset > 0 and "errors" not in found
        code, out, err = run("top", url, "--once", "-n", "0.1")
        assert (code, err) == (0, "") and f"broker-a, {broker.address}, V5_3_3" in " ".join(out.split())
        code, out, err = run("top", url.replace("orders", "order"), "--once")
        assert (code, out) == (NOT_FOUND, "") and "no topic order in this cluster; did you mean orders?" in err
        code, _, err = run("top", f"rocketmq://{broker.address}/orders", "--once")
        assert code == COULD_NOT and "it is not a name server; give the address of a name server" in err


def test_all_brokers_of_a_topic(topic, run):
    def answer(code):
        return table()

    url, addresses = topic(a=answer, b=answer, slave=answer)
    code, out, err = run("top", url, "--json", "-n", "0.1")
    assert (code, err) == (0, "")
    found = json.loads(out)["brokers"]
    assert {one["brokerName"]: one["address"] for one in found} == addresses and len(found) == 3
    code, out, err = run("top", url, "--once", "-n", "0.1")
    assert (code, err) == (0, "") and out.count("messages out") == 3
    assert all(f"{name}, {address}" in out for name, address in addresses.items())


def test_a_broker_that_does_not_answer(topic, run):
    url, addresses = topic(
        a=lambda code: table(), b=lambda code: Command(1, remark="no permission"), c=lambda code: None
    )
    code, out, err = run("top", url, "--json", "-n", "0.1")
    assert (code, err) == (DAMAGED, "")
    found = json.loads(out)
    assert [one["brokerName"] for one in found["brokers"]] == ["a"]
    assert found["errors"]["b"].endswith("was answered with 1 (SYSTEM_ERROR): no permission")
    assert found["errors"]["c"].startswith(addresses["c"])
    code, out, err = run("top", url, "--once", "-n", "0.1")
    assert (code, err) == (DAMAGED, "") and out.count("messages out") == 1
    assert "broker  b does not answer: " in out and "broker  c does not answer: " in out


def test_no_broker_answers(topic, run):
    url, addresses = topic(a=lambda code: None, b=lambda code: table(bootTimestamp=7) if code == 1 else Command(0))
    code, out, err = run("top", url, "--once", "-n", "0.1")
    assert (code, out) == (COULD_NOT, "") and err.startswith(f"rocketc: {url}: {addresses['a']}")


def test_it_connects_again_and_knows_a_topic_that_is_gone(topic, serve):
    answers = [table(), None, table()]
    url, addresses = topic(a=lambda code: answers.pop(0))
    reader = TopicBrokersReader(url)
    assert reader.read().addresses == addresses
    with pytest.raises(StoreIOError):
        reader.read()
    assert list(reader.read().brokers) == ["a"]
    reader.close()
    gone = serve(lambda code: Command(17 if code == 105 else 0, body=b'{"topicList":["bills"]}'))
    reader = TopicBrokersReader(f"{gone}/bill")
    with pytest.raises(TopicNotFoundError, match="no topic bill in this cluster; did you mean bills"):
        reader.read()
    reader.close()


def test_rates_of_brokers_that_come_and_go():
    def snapshot(time, **ends):
        brokers = {name: BrokerSnapshot(time, {"commitLogMaxOffset": str(end)}) for name, end in ends.items()}
        return BrokersSnapshot({name: f"{name}:1" for name in "abc"}, brokers, {})

    rates = BrokersRates.between(snapshot(0, a=0, b=100), snapshot(1000, b=300, a=50, c=7))
    assert {name: one.bytes_per_second for name, one in rates.brokers.items()} == {"b": 200.0, "a": 50.0}
    assert rates.bytes_per_second == 250.0
    text = render(draw_brokers("x", rates, "", "", None, [1.0, 2.0]), color=False)
    assert "b, b:1" in text and "a, a:1" in text and "c:1" not in text
    nothing = BrokersRates.between(snapshot(0), snapshot(1000, a=1))
    assert draw_brokers("x", nothing, "", "") == [] and nothing.to_dict() == {"brokers": []}
    assert isinstance(rates.brokers["a"], BrokerRates)


@pytest.mark.parametrize("url", ["rocketmq://a/orders", "rocketmq://a:1/bad,topic", "rocketmq:///orders"])
def test_wrong_addresses(url, run_here):
    code, out, err = run_here("top", url, "--once")
    assert (code, out) == (USAGE, "") and err.startswith(f"rocketc top: {url}: ")


def test_groups_are_refused(run_here):
    code, _, err = run_here("top", "rocketmq://a:1/orders", "--once", "--groups")
    assert code == USAGE and "a broker does not tell the lag of groups" in err


def test_the_screen(topic):
    url, _ = topic(a=lambda code: table(), b=lambda code: table())

    async def look():
        reader = TopicBrokersReader(url)
        app = Top(url, reader, 0.1, "messages", "topics", between=BrokersRates.between, draw=draw_brokers)
        async with app.run_test(size=(100, 40)) as pilot:
            while app.export_screenshot().count("V5_3_3") < 2:
                await pilot.pause(0.05)
            await pilot.press("q")
        reader.close()
        assert app.return_code == 0

    asyncio.run(asyncio.wait_for(look(), 20))
