"""The HTTP endpoint of the metrics: what it answers, and what hostile clients cost."""

import asyncio
import logging
import random

import pytest
from simulation import virtual
from simulation.brokers import scene

from rocketc.errors import ClosedError
from rocketc.metrics import http_endpoint
from rocketc.metrics.http_endpoint import HttpEndpoint, serving_metrics


class Client(asyncio.Protocol):
    def __init__(self):
        self.got, self.lost = b"", False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data

    def connection_lost(self, error):
        self.lost = True

    @property
    def status(self):
        return int(self.got.split(b" ", 2)[1]) if self.got else None

    @property
    def body(self):
        return self.got.partition(b"\r\n\r\n")[2]


def play(main, text=None):
    """Run main(endpoint, connect) on virtual time."""

    async def made():
        return "held 3\n"

    async def whole():
        endpoint, chance = HttpEndpoint(made if text is None else text), random.Random(1)

        def connect(data=b""):
            client = Client()
            virtual.link(client, endpoint.connection(), chance, (0.0, 0.0))
            if data:
                client.transport.write(data)
            return client

        await main(endpoint, connect)
        await endpoint.close()

    virtual.run(whole())


GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("request_", [GET, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", GET + GET, GET + b"a body"])
def test_get(request_):
    async def main(endpoint, connect):
        client = connect(request_)
        await asyncio.sleep(1)
        assert client.got == (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            b"Content-Length: 7\r\nConnection: close\r\n\r\nheld 3\n"
        )
        assert client.lost and not endpoint.open

    play(main)


def test_head_has_the_length_and_no_body():
    async def main(endpoint, connect):
        client = connect(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        assert client.status == 200 and b"Content-Length: 7\r\n" in client.got and client.body == b""

    play(main)


@pytest.mark.parametrize("size", range(1, 9))
def test_a_request_in_pieces(size):
    async def main(endpoint, connect):
        client = connect()
        for at in range(0, len(GET), size):
            client.transport.write(GET[at : at + size])
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert client.status == 200

    play(main)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET / HTTP/1.1", 404),
        (b"GET /metrics/ HTTP/1.1", 404),
        (b"GET /metrics/../etc/passwd HTTP/1.1", 404),
        (b"GET http://a/metrics HTTP/1.1", 404),
        (b"POST / HTTP/1.1", 404),
        (b"POST /metrics HTTP/1.1", 405),
        (b"OPTIONS /metrics HTTP/1.1", 405),
        (b"get /metrics HTTP/1.1", 405),
        (b"GET /metrics HTTP/2.0", 505),
        (b"GET /metrics", 400),
        (b"", 400),
        (b"\x00\x00\x00\x10\x00\x00 a HTTP/1.1", 400),
        (b"GET  /metrics HTTP/1.1", 400),
        (b"GET /metrics RTSP/1.0", 400),
        (b"GET /\xff\xfe HTTP/1.1", 404),
    ],
)
def test_other_requests(line, status):
    async def main(endpoint, connect):
        client = connect(line + b"\r\n\r\n")
        await asyncio.sleep(1)
        assert client.status == status and client.lost
        assert (b"Allow: GET, HEAD\r\n" in client.got) == (status == 405)

    play(main)


@pytest.mark.parametrize("data", [b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, b"x" * 100_000])
def test_a_request_that_is_too_large(data):
    async def main(endpoint, connect):
        client = connect(data)
        await asyncio.sleep(1)
        assert client.status == 431 and client.lost and not endpoint.open

    play(main)


def test_a_request_of_a_frame_of_rocketmq():
    async def main(endpoint, connect):
        client = connect(b"\x00\x00\x00\x10" + bytes(16) + b"\r\n\r\n")
        await asyncio.sleep(1)
        assert client.status == 400

    play(main)


def test_slow_requests_end():
    async def main(endpoint, connect):
        silent, slow = connect(), connect()
        for at in range(20):
            if not slow.lost:
                slow.transport.write(GET[at : at + 1])
            await asyncio.sleep(1)
        assert silent.status == slow.status == 408 and silent.lost and slow.lost and not endpoint.open

    play(main)


def test_a_client_that_does_not_read_is_cut_off(monkeypatch):
    """On real sockets: those of the virtual network take all bytes."""
    monkeypatch.setattr(http_endpoint, "ANSWER_SECONDS", 0.1)

    async def large():
        return "x" * 30_000_000

    async def main():
        endpoint = HttpEndpoint(large)
        host, port = await endpoint.listen("127.0.0.1", 0)
        _, writer = await asyncio.open_connection(host, port)
        writer.write(GET)
        while not endpoint.open:
            await asyncio.sleep(0.01)
        while endpoint.open:
            await asyncio.sleep(0.01)
        writer.close()
        await endpoint.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_connections_are_limited():
    async def main(endpoint, connect):
        clients = [connect() for _ in range(http_endpoint.CONNECTIONS_MOST + 5)]
        await asyncio.sleep(1)
        assert [client.lost for client in clients] == [False] * 32 + [True] * 5
        clients[0].transport.close()
        await asyncio.sleep(1)
        late = connect(GET)
        await asyncio.sleep(1)
        assert late.status == 200

    play(main)


@pytest.mark.parametrize(
    ("error", "text"),
    [(ClosedError("the store is closed"), b"the store is closed"), (OSError(5, "no"), b"no"), (KeyError("x"), b"log")],
)
def test_metrics_that_cannot_be_made(error, text, caplog):
    async def fails():
        raise error

    async def main(endpoint, connect):
        client = connect(GET)
        await asyncio.sleep(1)
        assert client.status == 500 and text in client.body

    play(main, fails)
    assert "the metrics cannot be" in caplog.text


def test_a_client_that_leaves_meanwhile():
    async def slow():
        await asyncio.sleep(5)
        return "x"

    async def main(endpoint, connect):
        client = connect(GET)
        await asyncio.sleep(1)
        client.transport.cut()
        await asyncio.sleep(10)
        assert not endpoint.open and not endpoint._tasks

    play(main, slow)


def test_the_end_does_not_wait_for_a_client():
    async def never():
        await asyncio.sleep(1e9)

    async def main(endpoint, connect):
        client = connect(GET)
        await asyncio.sleep(1)
        await endpoint.close()
        await asyncio.sleep(1)
        assert client.lost and not endpoint.open

    play(main, never)


async def fetch(url):
    host, port = url.removeprefix("http://").removesuffix("/metrics").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(GET)
    answer = await reader.read()
    writer.close()
    return answer


def real(tmp_path, main, run=asyncio.run, **config):
    """Run main(broker) on a real loop: virtual time does not wait for sockets."""

    async def whole():
        async with scene(tmp_path, **config) as stage:
            await main(stage.broker)

    async def limited():
        await asyncio.wait_for(whole(), 30)

    run(limited())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_broker_serves_its_metrics(tmp_path, loop):
    run = pytest.importorskip(loop).run

    async def main(broker):
        async with serving_metrics(broker) as url:
            answer = await fetch(url)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"rocketmq_broker_permission{" in answer
            taken = int(url.rsplit(":", 1)[1].split("/")[0])
            other = HttpEndpoint(None)
            with pytest.raises(OSError):
                await other.listen("127.0.0.1", taken)
        with pytest.raises(OSError):
            await fetch(url)

    real(tmp_path, main, run, metrics_exporter_type="prom", metrics_prom_exporter_port=0)


def test_a_port_in_use_is_named(tmp_path):
    async def main(broker):
        first = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = first.sockets[0].getsockname()[1]
        object.__setattr__(broker.config, "metrics_prom_exporter_port", port)
        with pytest.raises(OSError) as caught:
            async with serving_metrics(broker):
                pass
        assert caught.value.filename == f"127.0.0.1:{port}"
        first.close()

    real(tmp_path, main, metrics_exporter_type="PROM")


@pytest.mark.parametrize(("kind", "logged"), [("DISABLE", False), ("OTLP_GRPC", True), ("LOG", True)])
def test_other_exporters(tmp_path, kind, logged, caplog):
    async def main(broker):
        async with serving_metrics(broker) as url:
            assert url is None

    with caplog.at_level(logging.WARNING):
        real(tmp_path, main, metrics_exporter_type=kind)
    assert (f"metricsExporterType {kind} is not supported" in caplog.text) == logged
