"""RocketMQ's own brokers and clients at our name server, and its own name server beside ours."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from interop import scenarios
from interop.asking import VERSION, Asking
from interop.peer import RELEASES, Unavailable

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.tables.config_manager import now_ms
from rocketc.tables.fastjson import parse


class Served:
    """Our name server on a thread of its own."""

    def __init__(self, **settings):
        self._config = NamesrvConfig(bind_address="127.0.0.1", listen_port=0, **settings)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        assert self._ready.wait(10)

    async def _main(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with NameServer(self._config, clock=now_ms) as self.server:
            self.address = self.server.address
            self._ready.set()
            await self._stop.wait()

    def look(self, read):
        """Call a function on the name server's thread; return its value."""

        async def call():
            return read(self.server.routes)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def brokers(self):
        return self.look(lambda routes: {name: data.addresses for name, data in routes.brokers().items()})

    def wait_for(self, condition, seconds=15.0):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.02)
        return condition()

    def close(self):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """java(kind, release, **settings): a process of scenarios.py; skips where RocketMQ is not available."""
    started = []

    def start(kind, release, **settings):
        try:
            started.append(kind(release, tmp_path_factory.mktemp(kind.__name__), **settings))
        except Unavailable as reason:
            pytest.skip(str(reason))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def served():
    made = []

    def make(**settings):
        made.append(Served(**settings))
        return made[-1]

    yield make
    for server in made:
        server.close()


def start_broker(java, release, server, **settings):
    chosen = {"namePort": "none", "nameServer": server.address, "broker.brokerName": "broker-a", **settings}
    return java(scenarios.JavaCluster, release, **chosen)


@pytest.mark.long
def test_brokers_and_clients_of_both_releases(java, served):
    """A broker of each release at a name server of its own; clients of each release send to it and read from it."""
    servers = {release: served() for release in RELEASES}
    with ThreadPoolExecutor(4) as pool:
        brokers = {r: pool.submit(start_broker, java, r, servers[r]) for r in RELEASES}
        clients = {r: pool.submit(java, scenarios.Clients, r) for r in RELEASES}
    for release, server in servers.items():
        address = brokers[release].result().broker
        assert server.wait_for(lambda server=server: server.look(lambda routes: routes.route("TBW102")))
        assert server.brokers() == {"broker-a": {0: address}}

    def play(client, server):
        [(_, _, outcome)] = clients[client].result().run(["send_sync"], servers[server].address)
        return scenarios.difference(scenarios.recorded()[client]["send_sync"], outcome)

    for server in RELEASES:
        for client in RELEASES:
            outcome = play(client, server)
            assert outcome == "" or (server != "5.3.3" and "failed" not in outcome), (client, server, outcome)
    for release, server in servers.items():
        brokers[release].result().tell()  # to end; 5.3.3 takes 15 s, but unregisters soon
        assert server.wait_for(lambda server=server: server.brokers() == {})
        assert server.look(lambda routes: routes.topics()) == []


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("compressed", [True, False])
def test_a_broker_that_is_killed_and_its_topics(java, served, release, compressed):
    server = served()
    setting = {"broker.compressedRegister": str(compressed).lower()}
    broker = start_broker(java, release, server, **setting)
    assert server.wait_for(lambda: server.look(lambda routes: routes.route("BenchmarkTest")))
    [queue] = server.look(lambda routes: routes.route("BenchmarkTest")).queues
    assert queue == ("broker-a", 1024, 1024, 6, 0)
    broker.close()
    assert server.wait_for(lambda: server.brokers() == {})


# ---------------------------------------------------------------- RocketMQ's name server beside ours


def play(address):
    """Yield what a name server answers to a long series of requests."""
    main = Asking(address)
    topics = ["x", "y", "new", "unit", "t", "v", "w1", "w2", "rmq_sys_SYNC_BROKER_MEMBER_n", "single"]

    def state():
        for topic in topics:
            for version in (479, 232):
                yield topic, main.ask("GET_ROUTEINFO_BY_TOPIC", topic=topic, version=version)
        for name in (
            "ALL_TOPIC_LIST_FROM_NAMESERVER",
            "BROKER_CLUSTER_INFO",
            "SYSTEM_TOPIC_LIST_FROM_NS",
            "UNIT_TOPIC_LIST",
        ):
            code, fields, body = main.ask(f"GET_{name}")
            found = parse(body)
            found.pop("brokerAddr", None)  # of any broker
            if "topicList" in found:
                found["topicList"] = sorted(found["topicList"])
            yield name, code, fields, found

    def gone(*addresses):
        """Wait until brokers are removed: RocketMQ does it on another thread."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            _, _, body = main.ask("GET_BROKER_CLUSTER_INFO")
            if not any(f'"{address}"'.encode() in body for address in addresses):
                break
            time.sleep(0.01)

    def version_of(address, **other):
        same = {"brokerName": "a", "brokerAddr": address, "clusterName": "C", "brokerId": 0}
        return main.ask("QUERY_DATA_VERSION", {**VERSION, **other}, **same)

    a = Asking(address)
    yield a.register("a", "a:0", topics={"x": {}, "unit": {"topicSysFlag": 1}}, filters=["f:1"])
    yield from state()
    yield from (version_of("a:0"), version_of("a:0", counter=2), version_of("a:0", stateVersion=1), version_of("a:9"))
    yield a.register("a", "a:0", topics={"x": {"perm": 4}, "new": {}}, filters=[])  # the same version: x stays
    yield from state()
    yield a.register("a", "a:0", topics={"x": {"perm": 4}, "new": {}}, counter=2)
    slave = Asking(address)
    yield slave.register("a", "a:1", 1, ("y", "z"))
    yield slave.register("a", "a:2", 2, ("y",))
    yield from state()
    yield main.ask("WIPE_WRITE_PERM_OF_BROKER", brokerName="a")
    yield from state()
    yield main.ask("ADD_WRITE_PERM_OF_BROKER", brokerName="a")
    yield a.register("a", "a:9", topics=("x", "y"), counter=3)  # another address takes the id
    yield from state()
    yield a.register("a", "a:9", 3, ("x", "y"), counter=3)  # and another id
    yield from state()
    yield a.register("a", "a:9", 0, ("x", "y"), counter=4, state=5)
    yield a.register("a", "a:8", 0, ("x", "t"), counter=9, state=4)  # an earlier state
    yield from state()
    b = Asking(address)
    yield b.register("b", "b:0", topics=("x", "v"))
    yield main.ask("DELETE_TOPIC_IN_NAMESRV", topic="x", clusterName="other")
    yield from state()
    for names in (["b", "no"], ["b"], ["no"], []):
        queues = [{"brokerName": name, "perm": 6, "readQueueNums": 2, "writeQueueNums": 3} for name in names]
        yield main.ask("REGISTER_TOPIC_IN_NAMESRV", {"queueDatas": queues}, topic="single")
        yield main.ask("GET_ROUTEINFO_BY_TOPIC", topic="single")
    yield main.ask("DELETE_TOPIC_IN_NAMESRV", topic="x", clusterName="C")
    yield from state()
    b.close()
    gone("b:0")
    yield from state()
    yield main.ask("UPDATE_NAMESRV_CONFIG", b"supportActingMaster=true\ndeleteTopicWithBrokerRegistration=true\n")
    n = Asking(address)
    yield n.register("n", "n:0", topics=("t", "v", "rmq_sys_SYNC_BROKER_MEMBER_n"), enableActingMaster=True)
    first, second = Asking(address), Asking(address)
    yield first.register("n", "n:1", 1, ("t", "v"), enableActingMaster=True)
    yield second.register("n", "n:2", 2, ("t", "v"), enableActingMaster=True)
    yield from state()
    n.close()
    gone("n:0")
    yield from state()
    yield second.register("n", "n:2", 2, ("w2", "v"), counter=2, enableActingMaster=True)
    yield first.register("n", "n:1", 1, ("w1", "v"), counter=2, enableActingMaster=True)
    yield from state()
    yield main.ask("ADD_WRITE_PERM_OF_BROKER", brokerName="n")
    yield from state()
    n = Asking(address)
    yield n.register("n", "n:0", topics=("t", "v"), counter=3, enableActingMaster=True)
    yield from state()
    of_master = {"clusterName": "C", "brokerId": 0}
    yield main.ask("UNREGISTER_BROKER", brokerName="n", brokerAddr="n:0", **of_master)
    gone("n:0")
    yield from state()
    yield main.ask("UNREGISTER_BROKER", brokerName="a", brokerAddr="a:9", **of_master)
    for each in (a, n, slave, first, second):
        each.close()
    gone("a:9", "a:1", "n:1", "n:2")
    yield from state()
    for acting in (False, True, None):  # the master is down since before the name server began; 4.x sends no such field
        field = {} if acting is None else {"enableActingMaster": acting}
        first, second = Asking(address), Asking(address)
        yield second.register("s", "s:2", 2, ("x", "y"), **field)
        yield from state()
        yield first.register("s", "s:1", 1, {"t": {"perm": 7}, "v": {"perm": 1}, "x": {"perm": 4}}, **field)
        yield second.register("s", "s:2", 2, ("w1", "w2"), counter=2, **field)  # no longer the lowest id
        yield from state()
        yield first.register("s", "s:1", 1, ("t", "new"), counter=2, **field)  # "v" is gone
        yield from state()
        for change in ("WIPE", "ADD"):
            yield main.ask(f"{change}_WRITE_PERM_OF_BROKER", brokerName="s")
            yield from state()
        master = Asking(address)
        yield master.register("s", "s:0", 0, ("x", "v"), counter=2, **field)
        yield first.register("s", "s:1", 1, ("w1", "w2"), counter=3, **field)
        yield from state()
        master.close()
        gone("s:0")
        yield first.register("s", "s:1", 1, ("w1", "w2"), counter=3, **field)  # the same version
        yield from state()
        for each in (first, second):
            each.close()
        gone("s:1", "s:2")
        yield from state()
    main.close()


def test_our_answers_are_those_of_rocketmqs_name_server(java, served):
    theirs = java(scenarios.JavaCluster, "5.3.3", brokerPort="none").name_server
    pairs = zip(play(theirs), play(served().address), strict=True)
    for number, (expected, answer) in enumerate(pairs):
        assert answer == expected, number  # left: ours
