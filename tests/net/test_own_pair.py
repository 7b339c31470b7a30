"""Our master and our slave as processes: a sync send is on the slave, which serves consumers and becomes the master."""

import pytest
from interop.asking import Asking
from interop.our_broker import OurBroker, wait_for
from support.command import start

import rocketc.client
from rocketc.tables.fastjson import parse


@pytest.fixture
def begin():
    started = []

    def one(*args, **fields):
        started.append(OurBroker(*args, **fields))
        return started[-1]

    yield one
    for process in started:
        process.kill()


@pytest.fixture
def names():
    """The address of a name server."""
    process = start("namesrv", "--port", 0)
    yield process.stdout.readline().decode().split()[-1]
    process.kill()
    process.communicate()


def ask(address, code, **fields):
    asking = Asking(address)
    found, values, body = asking.ask(code, **fields)
    asking.close()
    assert found == 0, (code, found)
    return values, body


def log_end(address):
    return int(parse(ask(address, 28)[1])["table"]["commitLogMaxOffset"])


def test_a_pair(begin, names, tmp_path):
    server = ("--name-server", names, "--port", 0)
    master = begin(tmp_path / "master", *server, broker_role="SYNC_MASTER", slave_timeout=20_000)
    slave = begin(tmp_path / "slave", *server, "--role", "slave", slave_read_enable=True)
    bodies = [f"m{n:03}".encode() for n in range(200)]

    def is_in_sync():
        return parse(ask(master.address, 907)[1])["inSyncSlaveNums"] == 1

    assert wait_for(is_in_sync)
    with rocketc.client.Producer("shop", names) as producer:
        sent = [producer.send("orders", body, shard="one") for body in bodies]
    assert {one.status.name for one in sent} == {"SEND_OK"}
    [queue] = {one.queue.queue_id for one in sent}

    def is_there():
        return b"orders" in ask(slave.address, 21)[1]

    assert wait_for(is_there, 20)
    master.kill()  # the machine is gone
    assert log_end(slave.address) > 200 * 100
    got = []
    with rocketc.client.PushConsumer("billing", names, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as consumer:

        @consumer.subscribe("orders")
        def on_message(message):
            got.append(message.body)

        assert wait_for(lambda: len(got) >= 200, 40), len(got)
    assert sorted(got) == bodies
    offset = ask(slave.address, 14, consumerGroup="billing", topic="orders", queueId=queue)[0]["offset"]
    assert offset == "200"
    slave.kill()
    again = begin(tmp_path / "slave", *server, "--role", "master")
    assert ask(again.address, 14, consumerGroup="billing", topic="orders", queueId=queue)[0]["offset"] in ("200", "0")
    with rocketc.client.Producer("shop", names) as producer:
        result = producer.send("orders", b"new", shard="one")
    assert result.status.name == "SEND_OK" and result.queue_offset == 200 and result.queue.queue_id == queue
