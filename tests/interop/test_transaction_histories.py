"""Orders in SQLite and their messages agree, while producers and brokers are killed at any time."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from interop import scenarios
from interop.our_broker import OurBroker, wait_for
from interop.peer import RELEASES, Unavailable
from interop.test_client_histories import Names
from interop.test_python_transactions import snake
from support.ports import free_port

import rocketc

pytestmark = [pytest.mark.promise(11), pytest.mark.long, pytest.mark.timeout(400)]

OUTBOX = Path(__file__).parents[2] / "examples/clients/outbox.py"
SETTINGS = {
    "transactionCheckInterval": 300,
    "transactionTimeOut": 1000,
    "transactionOpBatchInterval": 100,
    "transactionCheckMax": 10_000,  # producers may be dead for long
}
SECONDS = 40  # of trouble


class Home:
    """A broker that comes again on its port with its store."""

    def __init__(self, kind, folder, name_server):
        self._kind, self._folder, self._name_server, self._port = kind, folder, name_server, free_port()
        self.again()

    def again(self):
        if self._kind == "ours":
            options = ["--port", self._port, "--name-server", self._name_server]
            settings = {snake(name): value for name, value in SETTINGS.items()}
            self._broker = OurBroker(self.store, *options, broker_ip1="127.0.0.1", **settings)
        else:
            settings = {f"broker.{name}": value for name, value in SETTINGS.items()}
            where = {"namePort": "none", "nameServer": self._name_server, "brokerPort": self._port}
            self._broker = scenarios.JavaCluster(self._kind, self._folder, **where, **settings)

    @property
    def store(self):
        return self._folder / "store"

    def kill(self):
        self._broker.close()

    def delivered(self):
        """How often each message id is in the topic, and the orders of these ids."""
        found, orders = Counter(), {}
        for message in rocketc.scan(self.store, topics=["orders"], errors="report"):
            key = message.properties["UNIQ_KEY"]
            found[key] += 1
            orders[key] = message.keys
        return found, orders


class Shop:
    """examples/clients/outbox.py, which is killed and started again. Each life places orders with new numbers."""

    def __init__(self, path, name_server):
        self._path, self._env = path, {**os.environ, "NAMESRV_ADDR": name_server}
        self.lives = 0

    def live(self, seconds, orders):
        """Give a new process the orders, and kill it after some time; return its exit code."""
        self.lives += 1
        text = "".join(f"{order} one bicycle\n" for order in orders)
        with self._begin() as process:
            try:
                process.communicate(text.encode(), timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.returncode

    def _begin(self):
        return subprocess.Popen(
            [sys.executable, OUTBOX, self._path], env=self._env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def answer(self):
        """A process that places nothing, and answers the broker until its input ends."""
        return self._begin()

    def rows(self, query):
        database = sqlite3.connect(self._path, timeout=30)
        try:
            return [row[0] for row in database.execute(query)]
        finally:
            database.close()


@pytest.mark.parametrize("kind", ["ours", *RELEASES])
def test_orders_and_messages_agree(tmp_path, kind):
    chance = random.Random()
    chance.seed(seed := int(os.environ.get("ROCKETC_SEED", chance.randrange(1 << 32))))
    print("ROCKETC_SEED is", seed)
    names, broker, answering = Names(), None, None
    try:
        broker = Home(kind, tmp_path / "broker", names.address)
        shop = Shop(tmp_path / "shop.db", names.address)
        end, number, codes, kills = time.monotonic() + SECONDS, 0, Counter(), 0
        while time.monotonic() < end:
            orders = [f"o-{number + i}" for i in range(2000)]
            code = shop.live(chance.uniform(0.6, 2.5), orders)
            codes[code] += 1
            placed = shop.rows("SELECT count(*) FROM orders")[0]
            number = max(number, placed - chance.randrange(3))  # some orders are given twice
            if chance.random() < 0.3:
                broker.kill()
                kills += 1
                broker.again()
        answering = shop.answer()
        committed = set(shop.rows("SELECT message FROM outbox WHERE is_committed"))
        wait_for(lambda: committed <= broker.delivered()[0].keys(), 60)
        time.sleep(3)  # what must not come would come now
        delivered, about = broker.delivered()
        orders = shop.rows("SELECT id FROM orders")
        assert delivered.keys() == set(shop.rows("SELECT message FROM outbox WHERE is_committed"))
        assert Counter(about.values()) == Counter(orders), "one message for each order, whatever was killed"
        assert len(orders) > 100 and codes[-signal.SIGKILL] > 3, (len(orders), codes)
        print(kind, len(orders), "orders", delivered.total(), "messages", shop.lives, "lives", kills, "kills", codes)
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        if answering is not None:
            answering.kill()
            answering.communicate()
        if broker is not None:
            broker.kill()
        names.kill()
