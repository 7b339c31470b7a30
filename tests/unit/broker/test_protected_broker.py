"""A broker with TLS: its settings, its ports, and its name servers."""

import asyncio
import os
import random
import socket

import pytest
from simulation import virtual
from simulation.brokers import HOST, SMALL, scene
from unit.remoting.test_tls import Client

import rocketc
from rocketc.broker.config import BrokerConfig, read_broker_conf
from rocketc.broker.controller import BrokerController
from rocketc.broker.running import running_broker
from rocketc.broker.settings import temporary_config
from rocketc.config import StoreConfig
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.command import Command
from rocketc.remoting.tls_contexts import client_context, tls_connector
from rocketc.remoting.tls_settings import tls_settings


def write(path, text):
    path.write_text(text)
    return str(path)


def test_names_of_broker_conf(tmp_path):
    path = write(
        tmp_path / "broker.conf",
        "aclEnable=true\nrocketmqHome=/opt/rocketmq\nrocketmq.acl.plain.file=/conf/mine.yml\n"
        "tls.server.mode=enforcing\ntls.enable=false\ntls.config.file=/etc/tls.properties\ntls.server.keyPath=/k\n",
    )
    fields, _, unused = read_broker_conf(path)
    assert fields == {
        "acl_enable": True,
        "rocketmq_home": "/opt/rocketmq",
        "rocketmq_acl_plain_file": "/conf/mine.yml",
        "tls_server_mode": "enforcing",
        "tls_enable": "false",
        "tls_config_file": "/etc/tls.properties",
    }
    assert unused == ["tls.server.keyPath"]  # it is in the other file


def test_the_settings_of_tls_properties_may_be_in_broker_conf(tmp_path, certificates):
    path = write(tmp_path / "broker.conf", certificates.mutual() + "tls.server.mode=enforcing\n")
    fields, _, unused = read_broker_conf(path)
    assert unused == [] and fields["tls_config_file"] == path
    config = BrokerConfig(**fields)
    assert tls_settings(config.tls_server_mode, config.tls_enable, config.tls_config_file).is_mutual


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls.server.keyPath=/missing\ntls.server.certPath=/missing\n", "/missing or /missing: No such file"),
        ("tls.server.need.client.auth=x\n", "use one of none, optional, require"),
    ],
)
def test_a_broker_with_wrong_settings_does_not_start(tmp_path, text, says):
    config = BrokerConfig(tls_config_file=write(tmp_path / "tls.properties", text))
    with rocketc.open(tmp_path / "store", background=False, store_host=HOST, **SMALL) as store:

        async def main():
            BrokerController(store, config, HOST)

        with pytest.raises(ValueError, match=says):
            virtual.run(main())


@pytest.mark.parametrize("vip", [False, True])
def test_sends_over_tls_take_the_compiled_path(tmp_path, certificates, vip):
    async def main():
        conf = write(tmp_path / "tls.properties", certificates.properties())
        async with scene(tmp_path / "store", tls_config_file=conf) as stage:
            server = stage.broker.vip_server if vip else stage.broker.server
            client = Client(certificates.client_context())
            virtual.link(client, server.connection(), stage.chance)
            await asyncio.sleep(1)
            fields = dict(
                zip("abcdefghi", ["g", "orders", "TBW102", "4", "0", "0", "7", "0", "UNIQ_KEY\1K\2"], strict=True)
            )
            for n in range(3):
                client.tls.write(Command(310, fields, b"x" * 100_000, n).encode())
                client.transport.write(client._out.read())
                await asyncio.sleep(1)
            assert [answer.code for answer in client.answers] == [0, 0, 0] and stage.broker.path.sent == 2
            plain = stage.client(vip=vip)
            assert (await plain.send()).code == 0

    virtual.run(main())


async def ask(connect, code, **values):
    channel = Channel(connect, random.Random(1))
    try:
        return await channel.call(code, values, asyncio.get_running_loop().time() + 5)
    finally:
        channel.close()


def plain(host, port):
    return lambda protocol: asyncio.get_running_loop().create_connection(protocol, host, port)


def test_a_broker_that_enforces_mutual_tls_registers_at_its_name_server_with_tls(tmp_path, certificates):
    mine = certificates.mutual() + (
        f"tls.client.keyPath={certificates.key('client')}\ntls.client.certPath={certificates.cert('client')}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={certificates.cert('ca')}\n"
    )
    path = write(tmp_path / "tls.properties", mine)
    connector = lambda: tls_connector(client_context(tls_settings("enforcing", None, path)))  # noqa: E731

    async def main():
        config = BrokerConfig(listen_port=0, tls_server_mode="enforcing", tls_config_file=path)
        store = temporary_config(StoreConfig())
        async with running_broker(tmp_path / "store", config, store, namesrv_port=0) as running:
            for address in (running.name_server, running.address):
                answer = await ask(connector()(*split_address(address)), 105, topic="TBW102")
                assert answer.code == (0 if address == running.name_server else 3)
                with pytest.raises(ConnectionError):
                    await ask(plain(*split_address(address)), 105, topic="TBW102")
            assert running.controller.tls.is_mutual

    asyncio.run(main())


def test_an_embedded_broker_takes_the_settings(tmp_path, certificates):
    path = write(tmp_path / "tls.properties", certificates.properties())
    with rocketc.Broker(tls_config_file=path, tls_server_mode="enforcing") as broker:
        host, port = split_address(broker.address)
        with socket.create_connection((host, port)) as plain:
            plain.sendall(Command(28).encode())
            assert plain.recv(100) == b""
        with (
            socket.create_connection((host, port)) as plain,
            certificates.client_context().wrap_socket(plain) as secret,
        ):
            secret.sendall(Command(28).encode())
            assert len(secret.recv(1000)) > 100


def test_a_broker_keeps_a_certificate_whose_file_is_lost(tmp_path, certificates):
    """A file that cannot be read any more must not end the broker."""
    for name in ("key", "pem"):
        (tmp_path / f"server.{name}").write_bytes((certificates.folder / f"server.{name}").read_bytes())
    text = f"tls.server.keyPath={tmp_path}/server.key\ntls.server.certPath={tmp_path}/server.pem\n"

    async def main():
        conf = write(tmp_path / "tls.properties", text)
        async with scene(tmp_path / "store", tls_config_file=conf) as stage:
            os.unlink(tmp_path / "server.key")
            await asyncio.sleep(5)
            assert (await stage.client().send()).code == 0

    virtual.run(main())
