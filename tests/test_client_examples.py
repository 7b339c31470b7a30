"""examples/clients: a service that sends, and a worker that consumes, at a broker of this project."""

import asyncio
import importlib.util
import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rocketc
from rocketc.client import Producer

EXAMPLES = Path(__file__).parents[1] / "examples/clients"


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        yield one


async def request(app, method, path, body=b""):
    """What an ASGI server does for one request; returns status and body."""
    answer = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event):
        answer.append(event)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [], "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await app(scope, receive, send)
    return answer[0]["status"], b"".join(event.get("body", b"") for event in answer[1:]).decode()


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def test_a_service_that_sends(broker, monkeypatch):
    pytest.importorskip("fastapi")
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    service = load("service")

    async def main():
        async with service.lifespan(service.app):
            status, text = await request(service.app, "POST", "/orders/o-1", b"one bicycle")
            assert status == 202 and '"id":"' in text
            assert (await request(service.app, "POST", "/orders/o-2"))[0] == 400
            status, text = await request(service.app, "GET", "/metrics")
            assert status == 200 and 'rocketmq_send_cost_time_count{topic="orders"' in text
        status, text = await request(service.app, "POST", "/orders/o-3", b"one bell")
        assert status == 503 and "the client is closed" in text

    asyncio.run(main())
    found = [one for queue in range(4) for one in broker.store.get("orders", queue, 0).messages]
    assert [(one.body, one.keys) for one in found] == [(b"one bicycle", "o-1")]


def test_a_service_for_wsgi(broker, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    web = load("web")
    statuses = []

    def post(order, body):
        environ = {"PATH_INFO": f"/orders/{order}", "wsgi.input": io.BytesIO(body)}
        return web.app(environ, lambda status, _: statuses.append(status))

    with web.producer:
        post("o-1", b"one bicycle")
        post("o-2", b"")
    [text] = post("o-3", b"one bell")
    assert statuses == ["202 Accepted", "400 Bad Request", "503 Service Unavailable"]
    assert b"the producer is not started, or it is closed" in text


def test_a_worker(broker):
    with Producer("shop", broker.name_server) as producer:
        for key, body in [("w-1", b"one book"), ("w-2", b"what?")]:
            producer.send("orders", body, keys=key)
    env = {**os.environ, "NAMESRV_ADDR": broker.name_server}
    worker = subprocess.Popen([sys.executable, EXAMPLES / "worker.py"], env=env, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(30, worker.kill)
    timer.start()
    with worker:
        try:
            lines = []
            while not all(any(end in line for line in lines) for end in ("w-1: billed", "ValueError: what")):
                lines.append(worker.stderr.readline())
                assert lines[-1], lines
            worker.send_signal(signal.SIGTERM)
            lines += worker.stderr.readlines()
        finally:
            timer.cancel()
            worker.kill()
    text = "".join(lines)
    assert worker.returncode == 0 and "INFO w-1: billed one book\n" in text and "INFO ended\n" in text
    assert "ValueError: what is 'what?'?" in text and "w-2: billed" not in text
