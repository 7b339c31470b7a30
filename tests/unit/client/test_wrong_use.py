"""What each client says when it is used in a wrong way, or finds something else than a cluster: soon, and in words."""

import asyncio
import logging
import re
import socket
import threading
import time
from typing import NamedTuple

import pytest
from support.secured import Secured

import rocketc
from rocketc.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncTransactionProducer,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    Tls,
    TransactionProducer,
)
from rocketc.errors import (
    AnswerError,
    AssignmentError,
    ClosedError,
    ConnectionLostError,
    IllegalMessageError,
    NoAnswerError,
    NotSentError,
    SubscriptionError,
    TopicNotFoundError,
)

GROUP = "wrong-use"
SOON = 10.0  # seconds; on a machine with nothing else to do, it is a fraction of one


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker(auto_create_topic_enable=False) as one:
        one.topics.create("orders")
        yield one


# the same use with each kind of client: open it, then send or receive once


def of_producer(name_server, topic="orders", **options):
    with Producer(GROUP, name_server, **options) as one:
        one.send(topic, b"one")


def of_async_producer(name_server, topic="orders", **options):
    async def main():
        async with AsyncProducer(GROUP, name_server, **options) as one:
            await one.send(topic, b"one")

    asyncio.run(main())


def of_push_consumer(name_server, topic="orders", **options):
    one = PushConsumer(GROUP, name_server, **options)
    one.subscribe(topic, listener=print)
    with one:
        pass


def of_async_consumer(name_server, topic="orders", **options):
    async def main():
        async with AsyncConsumer(GROUP, name_server, topics=[topic], **options) as one:
            await one.getmany(timeout=1)

    asyncio.run(main())


def of_pull_consumer(name_server, topic="orders", **options):
    with PullConsumer(GROUP, name_server, topics=[topic], **options) as one:
        one.poll(timeout=1)


def of_async_pull_consumer(name_server, topic="orders", **options):
    async def main():
        async with AsyncPullConsumer(GROUP, name_server, topics=[topic], **options) as one:
            await one.poll(timeout=1)

    asyncio.run(main())


def of_transaction_producer(name_server, topic="orders", **options):
    with TransactionProducer(GROUP, name_server, check=print, **options) as one, one.transaction(topic, b"one"):
        pass


def of_async_transaction_producer(name_server, topic="orders", **options):
    async def main():
        one = AsyncTransactionProducer(GROUP, name_server, check=print, **options)
        async with one, one.transaction(topic, b"one"):
            pass

    asyncio.run(main())


def of_admin(name_server, mq_client_api_timeout=3000, **options):
    async def main():
        async with Admin(name_server, timeout=mq_client_api_timeout / 1000, **options) as one:
            await one.topics()
            await one.brokers()

    asyncio.run(main())


MEMBERS = [
    of_producer, of_async_producer, of_push_consumer, of_async_consumer, of_pull_consumer, of_async_pull_consumer,
    of_transaction_producer, of_async_transaction_producer,
]  # fmt: skip
USES = [*MEMBERS, of_admin]
each_kind = pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)


def raises_soon(kind, text, call):
    began = time.monotonic()
    with pytest.raises(kind, match=text):
        call()
    assert time.monotonic() - began < SOON


# something else at the address


class Answers(NamedTuple):
    """A server that accepts connections and answers the first bytes; b"": it closes them; None: it is silent."""

    answer: bytes | None

    def serve(self, listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 16)
                if self.answer is None:
                    while connection.recv(1 << 16):
                        pass
                connection.sendall(self.answer or b"")


HTTP = Answers(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
PORTS = {
    "HTTP": (HTTP, {}, ConnectionLostError, "the server on this port speaks HTTP, and not RocketMQ's protocol"),
    "TLS alert": (Answers(b"\x15\x03\x01\x00\x02\x02\x46"), {}, ConnectionLostError, "accepts only TLS"),
    "SSH": (Answers(b"SSH-2.0-x\r\n"), {}, ConnectionLostError, "sends is not RocketMQ's protocol"),
    "closes": (Answers(b""), {}, ConnectionLostError, "the server closed it without any answer"),
    "silent": (Answers(None), {"mq_client_api_timeout": 100}, NoAnswerError, "no answer in time"),
    "HTTP, by TLS": (HTTP, {"tls": True}, NotSentError, "the server does not speak TLS on this port"),
}


@each_kind
@pytest.mark.parametrize("port", PORTS)
def test_a_port_of_something_else(use, port):
    server, options, kind, text = PORTS[port]
    if port == "silent" and "producer" in use.__name__:
        options = {"send_msg_timeout": 100}
    if "producer" in use.__name__:
        kind = NotSentError  # only the question may have been carried out
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.serve, args=(listening,))
        thread.start()
        address = "127.0.0.1:%d" % listening.getsockname()[1]
        try:
            raises_soon(kind, f"{address}: .*{text}", lambda: use(address, **options))
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@each_kind
def test_an_address_without_a_name_server(use, broker):
    text = "^127.0.0.1:1: no connection: Connection refused; no name server is reached: check that it runs"
    raises_soon(NotSentError, text, lambda: use("127.0.0.1:1"))
    text = "no name server is reached: check that one of 127.0.0.1:1, 127.0.0.1:2 runs$"
    raises_soon(NotSentError, text, lambda: use("127.0.0.1:1;127.0.0.1:2"))
    text = f"{broker.address}: .*REQUEST_CODE_NOT_SUPPORTED.*it may be a broker: give the address of a name server"
    raises_soon(AnswerError, text, lambda: use(broker.address))


@each_kind
def test_an_address_that_does_not_answer(use):
    """As a firewall makes it: the first packet is dropped."""
    options = {"send_msg_timeout": 200} if "producer" in use.__name__ else {"mq_client_api_timeout": 200}
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        name = listening.getsockname()
        waiting = [socket.socket() for _ in range(4)]  # more than the system keeps for accept()
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(name)
            address = "127.0.0.1:%d" % name[1]
            if use is of_admin:
                raises_soon(NotSentError, f"{address}: no connection", lambda: use(address, **options))
            else:
                text = f"{address}: no answer in time to the question where .* is"
                kind = NotSentError if "producer" in use.__name__ else NoAnswerError
                raises_soon(kind, text, lambda: use(address, **options))
        finally:
            for one in waiting:
                one.close()


@each_kind
def test_a_host_that_is_not_known(use, monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    text = "shop.example:9876: no connection: .*Name or service not known"
    raises_soon(NotSentError, text, lambda: use("shop.example:9876"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    servers = Secured(tmp_path_factory.mktemp)
    yield servers
    servers.close()


@each_kind
def test_plain_text_where_only_tls_is_accepted(use, secured):
    address = secured["tls"].name_server
    kind = NotSentError if "producer" in use.__name__ else ConnectionLostError
    raises_soon(kind, f"{address}: .*it may accept only TLS", lambda: use(address))
    text = f"{address}: no connection: the certificate of the server is from an authority that is not trusted here"
    raises_soon(NotSentError, text, lambda: use(address, tls=True))


# wrong arguments

OF_ALL = [
    ((5,), {}, TypeError, "group: expected str, got int"),
    ((None,), {}, TypeError, "group: expected str, got NoneType"),
    (("",), {}, ValueError, "group '': a group name must not be empty"),
    (("my group",), {}, ValueError, "group 'my group': a group name may only have letters"),
    (("g", 9876), {}, TypeError, "name_server: expected str, got int"),
    (("g", "localhost"), {}, ValueError, "'localhost' is not an address such as 10.0.0.1:9876"),
    (("g", ""), {}, ValueError, "give the address of a name server"),
    (("g",), {"credentials": "secret"}, TypeError, "credentials: expected Credentials, got str"),
    (("g",), {"tls": "ca.pem"}, TypeError, "tls: expected bool, Tls or ssl.SSLContext, got str"),
    (("g",), {"tls": Tls("/missing.pem")}, ValueError, "/missing.pem: No such file or directory"),
    (("g",), {"instance_name": 7}, ValueError, "instance_name is 7; it must be text"),
    (("g",), {"mq_client_api_timeout": "3"}, ValueError, "mq_client_api_timeout is '3'; allowed are 1 to"),
    (("g",), {"instance_nam": "a"}, TypeError, "unknown keyword instance_nam; did you mean instance_name"),
]
KINDS = {
    "Producer": Producer,
    "AsyncProducer": AsyncProducer,
    "PushConsumer": PushConsumer,
    "PullConsumer": PullConsumer,
    "AsyncPullConsumer": AsyncPullConsumer,
    "TransactionProducer": lambda *arguments, **options: TransactionProducer(*arguments, check=print, **options),
    "AsyncConsumer": lambda *arguments, **options: AsyncConsumer(*arguments, topics=["orders"], **options),
}


@pytest.mark.parametrize(("arguments", "options", "kind", "text"), OF_ALL)
@pytest.mark.parametrize("client", KINDS)
def test_arguments_of_a_client(client, arguments, options, kind, text):
    with pytest.raises(kind, match=f"^{re.escape(text)}"):
        KINDS[client](*arguments, **options)


@pytest.mark.parametrize(
    ("topics", "kind", "text"),
    [
        (None, TypeError, "topics: expected names, got NoneType"),
        ("orders", TypeError, "topics: expected names, got the text 'orders'"),
        ([7], TypeError, "topic: expected str, got int"),
        ({"orders": 7}, TypeError, "tags: expected str, got int"),
        ({"orders": None}, TypeError, "tags: expected str, got NoneType"),
        ([], ValueError, "topics: at least one topic is needed"),
        (["my orders"], IllegalMessageError, "topic 'my orders': a topic name may only have letters"),
    ],
)
def test_topics_of_an_async_consumer(topics, kind, text):
    with pytest.raises(kind, match=f"^{re.escape(text)}"):
        AsyncConsumer("g", topics=topics)


@pytest.mark.parametrize("client", KINDS)
def test_a_reserved_group(client):
    """Java's DefaultMQProducer, DefaultMQPushConsumer and DefaultLitePullConsumer refuse it, too."""
    group = "DEFAULT_PRODUCER" if "Producer" in client else "DEFAULT_CONSUMER"
    with pytest.raises(ValueError, match=f"group '{group}': RocketMQ does not allow this name"):
        KINDS[client](group)


@pytest.mark.parametrize("client", KINDS)
def test_a_group_with_a_long_name(client):
    """Only consumers have dead letters."""
    most = 255 if "Producer" in client else 122
    assert KINDS[client]("g" * most) is not None
    text = f"has {most} characters at most" if "Producer" in client else "the name has 123 characters; use at most 122"
    with pytest.raises(ValueError, match=text):
        KINDS[client]("g" * (most + 1))


QUEUE = MessageQueue("orders", "broker-a", 0)
OF_SEND = [
    ({"topic": 7}, TypeError, "topic: expected str, got int"),
    ({"topic": "my orders"}, IllegalMessageError, "topic 'my orders': a topic name may only have letters"),
    ({"topic": "unknown"}, TopicNotFoundError, "topic 'unknown': no broker has it, and none creates topics"),
    ({"body": "text"}, TypeError, "body: expected bytes, got str; encode text with .encode()"),
    ({"body": 7}, TypeError, "body: expected bytes, got int"),
    ({"body": b""}, IllegalMessageError, ""),
    ({"tags": 7}, TypeError, "tags: expected str, got int"),
    ({"keys": 7}, TypeError, "keys: expected str, or several of them, got int"),
    ({"keys": ["a", 7]}, TypeError, "keys: expected str, got int"),
    ({"keys": ["a", "order 7"]}, IllegalMessageError, "keys: 'order 7' contains a blank, which separates keys"),
    ({"keys": ["a", ""]}, IllegalMessageError, "keys: one of them is empty; leave it out"),
    ({"keys": b"a"}, TypeError, "keys: expected str, or several of them, got bytes"),
    ({"shard": 7}, TypeError, "shard: expected str, got int"),
    ({"properties": [1]}, TypeError, "properties: expected a mapping, got list"),
    ({"properties": {"a": 1}}, TypeError, "property 'a': expected str, got int"),
    ({"flag": "1"}, TypeError, "flag: expected int, got str"),
    ({"delay_level": "1 year"}, IllegalMessageError, "delay_level: '1 year' is not one of 1s, 5s"),
    ({"timeout": "1"}, TypeError, "timeout: expected int, got str"),
    ({"timeout": 0}, ValueError, "timeout is 0; allowed are 1 to"),
    ({"queue": 0}, TypeError, "queue: expected a MessageQueue, got int"),
    ({"queue": QUEUE, "shard": "c-7"}, IllegalMessageError, "give queue or shard, not both: each chooses the queue"),
    ({"selector": min, "shard": "c-7"}, IllegalMessageError, "give selector or shard, not both: each chooses"),
    ({"queue": QUEUE, "selector": min}, IllegalMessageError, "give queue or selector, not both: each chooses"),
    ({"selector": 7}, TypeError, "selector: expected a function, got int"),
    ({"selector": lambda queues: 7}, ValueError, "the selector returned 7, which is not a queue of topic 'orders'"),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), OF_SEND)
def test_arguments_of_a_send(broker, wrong, kind, text):
    arguments = {"topic": "orders", "body": b"one", **wrong}
    topic, body = arguments.pop("topic"), arguments.pop("body")

    async def main():
        async with AsyncProducer(GROUP, broker.name_server) as one:
            await one.send(topic, body, **arguments)

    with Producer(GROUP, broker.name_server) as producer:
        for call in (
            lambda: producer.send(topic, body, **arguments),
            lambda: producer.send_async(topic, body, **arguments).result(),
            lambda: producer.send_oneway(topic, body, **arguments),
            lambda: producer.request(topic, body, **arguments),
            lambda: asyncio.run(main()),
        ):
            raises_soon(kind, f"^{re.escape(text)}", call)


@pytest.mark.parametrize("name", ["send", "send_async", "send_oneway", "request"])
def test_an_unknown_keyword_of_a_send(broker, name):
    def call():
        found = getattr(producer, name)("orders", b"one", tag="web")
        return found.result() if name == "send_async" else found

    with Producer(GROUP, broker.name_server) as producer:
        raises_soon(TypeError, r"^send\(\): unknown keyword tag; did you mean tags\?", call)


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("tag", "; give it with each message: NewMessage(body, tags=...)"),
        ("keys", "; give it with each message: NewMessage(body, keys=...)"),
        ("timout", "; did you mean timeout?"),
        ("delay", "; batches do not have it: use send()"),
        ("xyz", ""),
    ],
)
def test_an_unknown_keyword_of_send_many(broker, keyword, hint):
    async def main():
        async with AsyncProducer(GROUP, broker.name_server) as producer:
            await producer.send_many("orders", [b"one"], **{keyword: 1})

    text = f"^{re.escape(f'send_many(): unknown keyword {keyword}{hint}')}$"
    with Producer(GROUP, broker.name_server) as producer:
        raises_soon(TypeError, text, lambda: producer.send_many("orders", [b"one"], **{keyword: 1}))
    raises_soon(TypeError, text, lambda: asyncio.run(main()))


def test_an_unknown_keyword_of_a_reply(broker):
    message = rocketc.decode(rocketc.encode("orders", b"one"))
    with Producer(GROUP, broker.name_server) as producer:
        text = r"^reply\(\): unknown keyword tag; did you mean tags\?$"
        raises_soon(TypeError, text, lambda: producer.reply(message, b"two", tag="web"))


@pytest.mark.parametrize("messages", [7, "text", b"bytes"])
def test_send_many_without_several_messages(broker, messages):
    text = f"messages: expected several messages, got {type(messages).__name__}"
    with Producer(GROUP, broker.name_server) as producer:
        raises_soon(TypeError, text, lambda: producer.send_many("orders", messages))


def test_arguments_of_a_read(broker):
    async def main():
        async with AsyncConsumer(GROUP, broker.name_server, topics=["orders"]) as one:
            with pytest.raises(TypeError, match="max_records: expected int, got str"):
                await one.getmany("1")
            with pytest.raises(ValueError, match="max_records is 0; allowed are 1 to"):
                await one.getmany(0)
            with pytest.raises(TypeError, match="timeout: expected int, got str"):
                await one.getmany(timeout="1")

    asyncio.run(main())


# the state of a client


def test_a_topic_that_does_not_exist(broker, caplog):
    """A consumer waits for it: programs may start before the first send."""
    caplog.set_level(logging.WARNING, "rocketc.client")
    for use in (of_push_consumer, of_async_consumer, of_pull_consumer, of_async_pull_consumer):
        caplog.clear()
        use(broker.name_server, topic="unknown")
        assert f"{GROUP}: no broker has the topic unknown; messages come when it exists" in caplog.messages
        assert "%RETRY%" not in caplog.text


def test_a_second_listener_of_a_topic(broker):
    """It would replace the first one, which then gets nothing."""
    one = PushConsumer("second-listener", broker.name_server)
    text = r"^topic 'orders' has a listener already: give all tags in one call, or call unsubscribe"
    one.subscribe("orders", tags="a", listener=print)
    with pytest.raises(SubscriptionError, match=text):
        one.subscribe("orders", tags="b", listener=print)
    with one:
        with pytest.raises(SubscriptionError, match=text):

            @one.subscribe("orders", tags="b")
            def on_message(message):
                raise AssertionError

        one.unsubscribe("orders")
        one.subscribe("orders", tags="b", listener=print)


def test_a_subscription_without_a_listener(broker):
    one, text = (
        PushConsumer("without", broker.name_server),
        r"^subscribe\('orders'\) lacks a listener: decorate a function",
    )
    with pytest.warns(RuntimeWarning, match=text):
        one.subscribe("orders")
    with pytest.raises(SubscriptionError, match=text):
        one.start()
    one.subscribe("orders")(print)
    with one:
        one.unsubscribe("orders")
        with pytest.warns(RuntimeWarning, match=text):
            one.subscribe("orders")
        with pytest.raises(SubscriptionError, match=text):
            one.wait(0)
        one.unsubscribe("orders")
        assert not one.wait(0)


def test_a_poll_without_topics(broker):
    async def read():
        async with AsyncPullConsumer("no-topics", broker.name_server) as one:
            async for _ in one:
                raise AssertionError

    with PullConsumer("no-topics", broker.name_server) as consumer:
        for call in (consumer.poll, lambda: asyncio.run(read())):
            raises_soon(AssignmentError, "this consumer lacks topics or queues: call subscribe()", call)


def test_another_expression_of_a_topic(broker, caplog):
    """A pull consumer takes the new one; the program may have meant both."""
    text = "other: the subscription of topic orders was a, and is b from now on: a topic has one expression"
    one = PullConsumer("other", broker.name_server, topics={"orders": "a"})
    with one:
        one.subscribe("orders", "a")
        assert not caplog.messages
        one.subscribe("orders", "b")
        assert caplog.messages == [text]
    caplog.clear()
    one = PullConsumer("other", broker.name_server, topics={"orders": "a"})
    one.subscribe("orders", "b")
    assert caplog.messages == [text]


def test_closed_clients(broker):
    producer, consumer = Producer(GROUP, broker.name_server), PushConsumer(GROUP, broker.name_server)
    calls = [
        lambda: producer.send("orders", b"one"),
        lambda: producer.send_async("orders", b"one"),
        lambda: producer.send_oneway("orders", b"one"),
        lambda: producer.send_many("orders", [b"one"]),
        lambda: producer.client_id,
        consumer.suspend,
        consumer.resume,
        lambda: consumer.client_id,
    ]
    for text in ("is not started", "is closed"):
        for call in calls:
            raises_soon(ClosedError, text, call)
        if text == "is not started":
            with producer, consumer:
                pass
    raises_soon(ClosedError, "the consumer is closed", lambda: consumer.subscribe("orders"))
    raises_soon(ClosedError, "cannot be started twice", consumer.start)


def test_closed_async_clients(broker):
    async def main():
        producer = AsyncProducer(GROUP, broker.name_server)
        consumer = AsyncConsumer(GROUP, broker.name_server, topics=["orders"])
        for text in ("is not started", "is closed"):
            for call in (
                lambda: producer.send("orders", b"one"),
                lambda: producer.send_oneway("orders", b"one"),
                lambda: producer.send_many("orders", [b"one"]),
                consumer.getone,
                consumer.getmany,
                consumer.commit,
            ):
                with pytest.raises(ClosedError, match=text):
                    await asyncio.wait_for(call(), SOON)
            if text == "is not started":
                async with producer, consumer:
                    pass

    asyncio.run(main())


@pytest.mark.parametrize("use", MEMBERS)
def test_a_group_twice_in_a_process(broker, use):
    """Several members of one group are allowed, if brokers can tell them apart."""
    kind = Producer if "producer" in use.__name__ else PushConsumer
    with kind(GROUP, broker.name_server, instance_name="a"):
        use(broker.name_server)
        text = f"the group '{GROUP}' has the client .*@a already: give each another instance_name"
        raises_soon(ValueError, text, lambda: use(broker.name_server, instance_name="a"))
    use(broker.name_server, instance_name="a")


def test_an_unknown_keyword_of_a_half_message(broker):
    def call():
        producer.send_in_transaction("orders", b"one", print, tag="web")

    with TransactionProducer(GROUP, broker.name_server, check=print) as producer:
        raises_soon(TypeError, r"^send\(\): unknown keyword tag; did you mean tags\?", call)
