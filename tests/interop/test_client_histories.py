"""Python producers and consumers while brokers and name servers are killed, stopped, cut off, slowed and restarted."""

import asyncio
import json
import os
import random
import signal
import time

import pytest
from interop import scenarios
from interop.groups import Group, Sending
from interop.our_broker import OurBroker
from interop.peer import RELEASES, Unavailable
from interop.test_groups import check_committed, make_topic
from interop.valve import Valve
from support.command import start
from support.ports import free_port

pytestmark = [pytest.mark.promise(10), pytest.mark.long, pytest.mark.timeout(400)]

SECONDS = 45  # of trouble


class Names:
    """Our name server in a process of its own."""

    def __init__(self):
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._start()

    def _start(self):
        self._process = start("namesrv", "--port", self._port)
        assert self._process.stdout.readline()

    def restart(self):
        self.kill()
        self._start()

    def kill(self):
        self._process.kill()
        self._process.communicate()


class Ours:
    """A broker of ours that comes again on its port with its store."""

    def __init__(self, folder, name_server):
        self._folder, self._name_server, self._port = folder, name_server, free_port()
        self._start()

    def _start(self):
        self._broker = OurBroker(
            self._folder / "store", "--port", self._port, "--name-server", self._name_server, broker_ip1="127.0.0.1"
        )
        self.address = self._broker.address

    def kill(self):
        self._broker.kill()

    def again(self):
        self._start()

    def signal(self, number):
        self._broker._process.send_signal(number)


class Java:
    """RocketMQ's broker that comes again on its port with its store."""

    def __init__(self, release, folder, name_server):
        self._release, self._folder, self._name_server, self._port = release, folder, name_server, free_port()
        self._start()

    def _start(self):
        self._cluster = scenarios.JavaCluster(
            self._release, self._folder, namePort="none", nameServer=self._name_server, brokerPort=self._port
        )
        self.address = self._cluster.broker

    def kill(self):
        self._cluster.close()

    def again(self):
        self._start()

    def signal(self, number):
        os.kill(self._cluster._process.pid, number)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("kind", ["ours", *RELEASES])
def test_histories_under_faults(tmp_path, kind, orderly):
    chance = random.Random()
    chance.seed(seed := int(os.environ.get("ROCKETC_SEED", chance.randrange(1 << 32))))
    print("ROCKETC_SEED is", seed)
    names, valves, group, sending, broker = Names(), [], None, None, None
    try:
        broker = Ours(tmp_path, names.address) if kind == "ours" else Java(kind, tmp_path / "java", names.address)
        host, _, port = broker.address.rpartition(":")
        others = tmp_path / "others.json"
        valves = [Valve((host, int(port))) for _ in range(2)]
        asyncio.run(make_topic(names.address, "orders"))
        group = Group(names.address, "billing", "orders", tmp_path / "members", orderly=orderly, millis=2)
        sending = Sending(names.address, "orders")
        for valve in valves:  # each of these members has a connection of its own to the broker
            others.write_text(json.dumps({broker.address: valve.address}))
            group.join("python", others)
        group.join("python")
        end, done = time.monotonic() + SECONDS, []
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 4))
            done.append(what := chance.choice(["kill", "stop", "shut", "slow", "cut", "names", "hang", "die"]))
            trouble(what, chance, broker, names, valves, group)
        bodies = sending.end()
        group.wait(bodies, 150)
        check_committed(names.address, "billing", "orders", 60)
        for member in [one for one in group.members.values() if one.is_alive]:
            member.leave()
        group.check()
        check_committed(names.address, "billing", "orders")
        assert len(bodies) > 300, (len(bodies), sending.failures)
        print(kind, orderly, len(bodies), "acknowledged", sending.failures, "failed sends", done)
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        if sending is not None:
            sending.end()
        if group is not None:
            group.close()
        for valve in valves:
            valve.close()
        if broker is not None:
            broker.kill()
        names.kill()


def trouble(what, chance, broker, names, valves, group):
    """Do one thing, and undo it."""
    seconds, valve = chance.uniform(0.2, 6), chance.choice(valves)
    living = [one for one in group.members.values() if one.is_alive]
    if what == "kill":
        broker.kill()
        time.sleep(seconds / 4)
        broker.again()
        group.troubles["broker"].append(time.time() * 1000)
    elif what == "stop":
        group.troubles["broker"].append(time.time() * 1000)
        broker.signal(signal.SIGSTOP)
        time.sleep(seconds)
        broker.signal(signal.SIGCONT)
        group.troubles["broker"].append(time.time() * 1000)
    elif what in ("shut", "slow"):
        valve.state = what
        time.sleep(seconds)
        valve.state = "open"
    elif what == "cut":
        valve.cut()
    elif what == "names":
        names.restart()
    elif what == "hang":
        member = chance.choice(living)
        member.hang()
        time.sleep(seconds)
        member.go_on()
    elif what == "die" and len(living) > 1:
        chance.choice(living).kill()
        group.join("python")
