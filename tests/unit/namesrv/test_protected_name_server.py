"""A name server with TLS."""

import asyncio
import random

import pytest

from rocketc.namesrv.config import NamesrvConfig
from rocketc.namesrv.name_server import NameServer
from rocketc.remoting.addresses import split_address
from rocketc.remoting.channel import Channel
from rocketc.remoting.tls_contexts import client_context, tls_connector
from rocketc.remoting.tls_settings import TlsSettings


@pytest.fixture
def conf(tmp_path, certificates):
    path = tmp_path / "namesrv.conf"
    path.write_text("tls.server.mode=enforcing\nenableTopicList=false\n" + certificates.properties())
    return path


def test_settings_of_tls_in_its_file(conf):
    config, without_effect = NamesrvConfig.read(conf)
    assert without_effect == []
    assert (config.tls_server_mode, config.tls_config_file) == ("enforcing", str(conf))


def test_no_request_reads_or_changes_them(conf):
    config, _ = NamesrvConfig.read(conf)
    assert "tls" not in config.text() and "server.key" not in config.text()
    changes = {"tls.server.mode": "disabled", "tlsServerMode": "disabled", "tls_server_mode": "disabled", "ofTls": "x"}
    assert config.update({**changes, "tlsConfigFile": "/x"}) == []
    assert config.tls_server_mode == "enforcing"


def test_a_file_that_a_request_writes_keeps_them(conf):
    """Otherwise a change by mqadmin would switch TLS off at the next start."""
    config, _ = NamesrvConfig.read(conf)
    config.update({"enableTopicList": "true"})
    conf.write_text(config.file_text())
    again, without_effect = NamesrvConfig.read(conf)
    assert (again.tls_server_mode, again.of_tls) == ("enforcing", config.of_tls) and again.enable_topic_list
    assert len(again.of_tls) == 3 and not [name for name in without_effect if name.startswith("tls")]


def test_plain_clients_are_closed_and_tls_clients_answered(conf):
    async def main():
        config, _ = NamesrvConfig.read(conf)
        config.bind_address, config.listen_port = "127.0.0.1", 0
        async with NameServer(config, clock=lambda: 0) as server:
            loop, address = asyncio.get_running_loop(), split_address(server.address)
            secret = Channel(tls_connector(client_context(TlsSettings()))(*address), random.Random(1))
            plain = Channel(lambda protocol: loop.create_connection(protocol, *address), random.Random(1))
            assert (await secret.call(106, {}, loop.time() + 5)).code == 0
            with pytest.raises(ConnectionError):
                await plain.call(106, {}, loop.time() + 5)
            secret.close()
            plain.close()

    asyncio.run(main())


def test_wrong_settings_are_refused():
    async def main():
        async with NameServer(NamesrvConfig(tls_server_mode="enforced"), clock=lambda: 0, listens=False):
            pass

    with pytest.raises(ValueError, match=r"tls\.server\.mode is 'enforced'; use one of disabled"):
        asyncio.run(main())
