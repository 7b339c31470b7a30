"""examples/clients in gunicorn and in Celery: processes that fork, send, consume, end and are replaced."""

import asyncio
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.pages import ROOT
from support.servers import environment

import rocketc
from rocketc.client import Admin, PullConsumer
from rocketc.tables.topics import TopicConfig

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "examples/clients"
SECONDS = 60


@pytest.fixture
def broker():
    with rocketc.Broker(process=True) as one:
        asyncio.run(make_topics(one.name_server, "orders", "bills"))
        yield one


async def make_topics(name_server, *topics):
    async with Admin(name_server) as admin:
        for topic in topics:
            await admin.create_topic(TopicConfig(topic, 4, 4))


class Command:
    """A server that runs until stop(); `wait_for_line` finds what it says."""

    def __init__(self, broker, module, *arguments, folder=EXAMPLES, **others):
        env = environment(module, EXAMPLES, NAMESRV_ADDR=broker.name_server, **others)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)], env=env, cwd=folder, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._lines = []
        self._said = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        for line in self._process.stderr:
            with self._said:
                self._lines.append(line)
                self._said.notify_all()

    @property
    def text(self):
        return "".join(self._lines)

    def wait_for_line(self, pattern):
        """Return the first match in what it has said."""
        with self._said:
            assert self._said.wait_for(lambda: re.search(pattern, self.text), SECONDS), self.text
        return re.search(pattern, self.text)

    def signal(self, number):
        self._process.send_signal(number)

    def stop(self):
        """End in order; return what it said."""
        self.signal(signal.SIGTERM)
        assert self._process.wait(SECONDS) == 0, self.text
        self.close()
        return self.text

    def close(self):
        self._process.kill()
        self._process.wait()
        self._reading.join()
        self._process.stderr.close()


def bills(broker, orders):
    """Wait until each order has its bill; return how often each process wrote one."""
    found, workers = set(), Counter()
    with PullConsumer("audit", broker.name_server) as consumer:
        queues = consumer.fetch_message_queues("bills")
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        end = time.monotonic() + SECONDS
        while not orders <= found:
            assert time.monotonic() < end, f"without a bill: {sorted(orders - found)[:5]}"
            for message in consumer.poll(timeout=200):
                assert message.body == b"bill of " + message.keys.encode()
                found.add(message.keys)
                workers[message.properties["worker"]] += 1
    return workers


def members(broker):
    """The ids of the clients that the broker has of the consumers and producers."""

    async def main():
        async with Admin(broker.name_server) as admin:
            consumers = (await admin.consumers("billing")).clients
            return [one.client_id for one in (*consumers, *await admin.producers("shop"))]

    return asyncio.run(main())


class Shop:
    """Some threads that send orders to the service."""

    def __init__(self, port, orders):
        self._port = port
        self.accepted, self.failed = set(), []
        self._pool = ThreadPoolExecutor(4)
        self._results = self._pool.map(self._order, orders)

    def _order(self, order):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            connection.request("POST", f"/orders/{order}", order)
            response = connection.getresponse()
            text = response.read()
        except OSError as error:
            self.failed.append(error)
        else:
            (self.accepted.add(order) if response.status == 202 else self.failed.append(text))
        finally:
            connection.close()

    def end(self):
        list(self._results)
        self._pool.shutdown()


@pytest.mark.parametrize(
    "options", [["--preload"], ["--worker-class", "gthread", "--threads", "4"]], ids=["preload", "threads"]
)
def test_gunicorn(broker, options):
    """Processes end after 40 requests, at a reload, and by SIGKILL; new ones take their places."""
    orders = [f"o-{n}" for n in range(400)]
    options = ["--bind", "127.0.0.1:0", "--max-requests", 40, "--max-requests-jitter", 9, *options]
    server = Command(broker, "gunicorn", "web:app", *options)
    try:
        port = int(server.wait_for_line(r"Listening at: http://127\.0\.0\.1:(\d+) ")[1])
        shop = Shop(port, orders)
        shop.end()
        assert (shop.failed, shop.accepted) == ([], set(orders))
        workers = bills(broker, shop.accepted)
        assert len(workers) > 3 and len(server.text.split("Booting worker")) > 8
        server.signal(signal.SIGHUP)
        server.wait_for_line("Hang up: Master(.|\n)*Booting worker(.|\n)*Booting worker")
        first = int(re.findall(r"Booting worker with pid: (\d+)", server.text)[-1])
        os.kill(first, signal.SIGKILL)
        more = Shop(port, [f"more-{n}" for n in range(100)])
        more.end()
        assert len(more.failed) < 10, more.failed
        bills(broker, shop.accepted | more.accepted)
        text = server.stop()
    finally:
        server.close()
    assert "Traceback" not in text and "WARNING" not in text
    assert members(broker) == []


CELERY = """
from tasks import app
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}
app.conf.task_ignore_result = True
"""


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_celery(broker, tmp_path, pool):
    """Messages become tasks, and tasks send messages. Processes of the pool end after 10 tasks."""
    (tmp_path / "shop.py").write_text(CELERY)
    (tmp_path / "queue").mkdir()
    orders = {f"o-{n}" for n in range(100)}
    with rocketc.client.Producer("web", broker.name_server) as producer:
        for order in orders:
            producer.send("orders", order.encode(), keys=order)
    options = ["--pool", pool, "--concurrency", 2, "--max-tasks-per-child", 10, "--loglevel", "INFO"]
    url = "filesystem://" if pool == "prefork" else "memory://"
    server = Command(broker, "celery", "--app", "shop", "worker", *options, folder=tmp_path, CELERY_BROKER_URL=url)
    try:
        workers = bills(broker, orders)
        assert len(members(broker)) >= 2
        text = server.stop()
    finally:
        server.close()
    assert len(workers) >= 8 if pool == "prefork" else len(workers) == 1
    assert "Traceback" not in text and " ERROR/" not in text
    assert members(broker) == []
