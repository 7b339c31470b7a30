"""The life of brokers on virtual time, and the name server on a real socket."""

import asyncio
import errno
import logging
import socket
import threading

import pytest
from simulation import virtual
from simulation.asking import Asking

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.kv_config import KvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.remoting.codes import Code

FOUND, UNKNOWN = Code.SUCCESS, Code.TOPIC_NOT_EXIST


@pytest.mark.parametrize("seed", range(10))
def test_a_silent_broker_is_removed_after_two_minutes_and_its_connection_closed(scene, seed):
    async def main(net):
        broker = await net.register()
        start = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < start + 119:
            await asyncio.sleep(1)
            assert await net.codes("orders") == [FOUND]
        await asyncio.sleep(7)
        assert await net.codes("orders") == [UNKNOWN] and broker.lost

    scene(main, seed, server_channel_max_idle_time_seconds=1000)


def test_the_time_that_a_broker_names(scene, caplog):
    async def main(net):
        await net.register(heartbeatTimeoutMillis=3000)
        beating = await net.register("b", "b:0", heartbeatTimeoutMillis=3000, topics=("beats", "more"))
        asking = await net.register("c", "c:0", heartbeatTimeoutMillis=3000, topics=("asks", "more"))
        for _ in range(10):
            await asyncio.sleep(1)
            values = {"clusterName": "DefaultCluster", "brokerName": "b", "brokerAddr": "b:0"}
            assert (await beating.ask("BROKER_HEARTBEAT", **values)).code == Code.SUCCESS
            same = {**values, "brokerName": "c", "brokerAddr": "c:0", "brokerId": 0}
            answer = await asking.ask("QUERY_DATA_VERSION", b'{"counter":1,"timestamp":5}', **same)
            assert answer.fields == {"changed": "false"}
        assert await net.codes("orders", "beats", "asks") == [UNKNOWN, FOUND, FOUND]

    scene(main)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "a:0: silent for too long; the broker is removed"
    ]


def test_another_data_version_is_not_a_sign_of_life(scene):
    async def main(net):
        broker = await net.register(heartbeatTimeoutMillis=3000)
        values = {"clusterName": "DefaultCluster", "brokerName": "a", "brokerAddr": "a:0", "brokerId": 0}
        with pytest.raises(ConnectionError):
            for _ in range(10):
                await asyncio.sleep(1)
                answer = await broker.ask("QUERY_DATA_VERSION", b'{"counter":2,"timestamp":5}', **values)
                assert answer.fields == {"changed": "true"}
        assert await net.codes("orders") == [UNKNOWN]

    scene(main)


def test_the_interval_of_the_looks(scene):
    async def main(net):
        await net.register(heartbeatTimeoutMillis=1000)
        await asyncio.sleep(50)
        assert await net.codes("orders") == [FOUND]
        await asyncio.sleep(11)
        assert await net.codes("orders") == [UNKNOWN]

    scene(main, scan_not_active_broker_interval=60_000)


@pytest.mark.parametrize("seed", range(10))
def test_the_end_of_a_connection_removes_its_broker(scene, seed, caplog):
    async def main(net):
        broker = await net.register()
        other = net.connect()
        assert (await other.ask("GET_ROUTEINFO_BY_TOPIC", topic="orders")).code == FOUND
        other.transport.close()
        await asyncio.sleep(1)
        assert await net.codes("orders") == [FOUND]
        (broker.transport.close, broker.transport.abort, broker.transport.cut)[seed % 3]()
        await asyncio.sleep(1)
        assert await net.codes("orders") == [UNKNOWN]

    scene(main, seed)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "a:0: the connection ended; the broker is removed"
    ]


def test_a_broker_that_connects_again_keeps_its_routes(scene):
    async def main(net):
        first = await net.register()
        await net.register()
        first.transport.close()
        await asyncio.sleep(1)
        assert await net.codes("orders") == [FOUND]

    scene(main)


def test_idle_clients_are_closed(scene):
    async def main(net):
        client = net.connect()
        await client.ask("GET_BROKER_CLUSTER_INFO")
        await asyncio.sleep(29)
        assert not client.lost
        await asyncio.sleep(12)
        assert client.lost

    scene(main, server_channel_max_idle_time_seconds=30)


def test_routes_are_refused_at_first_if_a_setting_says_so(scene):
    async def main(net):
        await net.register()
        client = net.connect()
        answer = await client.ask("GET_ROUTEINFO_BY_TOPIC", topic="orders")
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "name server not ready")
        await asyncio.sleep(6)
        assert await net.codes("orders", "unknown") == [FOUND, UNKNOWN]

    scene(main, need_wait_for_service=True, wait_seconds_for_service=6)


def test_a_hostile_peer_costs_its_own_connection(scene):
    async def main(net):
        await net.register()
        hostile = net.connect()
        hostile.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.sleep(1)
        assert hostile.lost and await net.codes("orders") == [FOUND]

    scene(main)


# ---------------------------------------------------------------- sockets


def serve(main, **settings):
    async def whole():
        async with NameServer(NamesrvConfig(listen_port=0, **settings), clock=lambda: 0) as server:
            await main(server)

    asyncio.run(whole())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_address(host):
    async def main(server):
        address, _, port = server.address.rpartition(":")
        assert address == (f"[{host}]" if ":" in host else host)
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()

    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError:
        pytest.skip(f"this machine lacks {host}")
    serve(main, bind_address=host)


@pytest.mark.parametrize("name", ["PUT_KV_CONFIG", "UPDATE_NAMESRV_CONFIG"])
def test_a_slow_disk_delays_no_other_request(name, tmp_path, monkeypatch):
    """The change is answered when it is on the disk; meanwhile the name server answers others."""
    may_write, paths = threading.Event(), []

    def write(path, data, **how):
        assert may_write.wait(10)
        paths.append(path)

    monkeypatch.setattr("rocketc.namesrv.kv_config.write_table", write)
    monkeypatch.setattr("rocketc.namesrv.name_server.replace_file", write)

    async def main(server):
        one, two = Asking(), Asking()
        host, _, port = server.address.rpartition(":")
        for client in (one, two):
            await asyncio.get_running_loop().create_connection(lambda client=client: client, host, int(port))
        wanted = {"namespace": "n", "key": "k"}
        if name == "PUT_KV_CONFIG":
            change = asyncio.ensure_future(one.ask(name, **wanted, value="v"))
        else:
            change = asyncio.ensure_future(one.ask(name, b"orderMessageEnable=true"))
        for _ in range(3):
            assert (await two.ask("GET_KV_CONFIG", **wanted)).code == 22
        assert not change.done() and paths == []
        may_write.set()
        assert (await change).code == 0 and len(paths) == 1
        if name == "PUT_KV_CONFIG":
            assert (await two.ask("GET_KV_CONFIG", **wanted)).fields == {"value": "v"}

    files = {"kv_config_path": str(tmp_path / "kv.json"), "config_store_path": str(tmp_path / "namesrv.conf")}
    serve(main, bind_address="127.0.0.1", **files)


def test_the_end_waits_for_what_is_written(tmp_path, monkeypatch):
    path, written, may_write = tmp_path / "kv.json", KvConfig._change, threading.Event()

    def slow(self, *values):
        assert may_write.wait(10)
        written(self, *values)

    monkeypatch.setattr(KvConfig, "_change", slow)

    async def main(server):
        client = Asking()
        host, _, port = server.address.rpartition(":")
        await asyncio.get_running_loop().create_connection(lambda: client, host, int(port))
        changes = [asyncio.ensure_future(client.ask("PUT_KV_CONFIG", namespace="n", key=k, value=k)) for k in "abc"]
        while len(server._disk._waiting) < 2:  # the third one runs
            await asyncio.sleep(0)
        client.transport.abort()  # the answers are lost
        await asyncio.wait(changes)
        may_write.set()

    serve(main, bind_address="127.0.0.1", kv_config_path=str(path))
    assert KvConfig(path).namespace("n") == {"a": "a", "b": "b", "c": "c"}


def test_a_port_that_is_in_use():
    async def main(server):
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(OSError) as caught:
            async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=port), clock=lambda: 0):
                pass
        assert caught.value.errno == errno.EADDRINUSE

    serve(main, bind_address="127.0.0.1")


def test_the_end_leaves_no_timer(scene):
    async def main(net):
        await net.register()

    scene(main)
    with pytest.raises(RuntimeError, match="deadlock"):  # nothing is left to happen

        async def idle():
            async with NameServer(clock=lambda: 0, listens=False):
                pass
            await asyncio.get_running_loop().create_future()

        virtual.run(idle())
