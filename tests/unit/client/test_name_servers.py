"""The addresses of name servers, as users write them."""

import asyncio
import dataclasses

import pytest
from unit.client.scripted import NAME_SERVER, Cluster, play, stored

from rocketc.client.name_servers import name_server_addresses
from rocketc.errors import NoAnswerError, NotSentError
from rocketc.remoting.server import Server


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1:9876", ["10.0.0.1:9876"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        ("a:1, b:2;;a:1", ["a:1", "b:2"]),
        ("[::1]:9876", ["[::1]:9876"]),
    ],
)
def test_addresses(text, found):
    assert name_server_addresses(text) == found


def test_addresses_of_the_environment(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert name_server_addresses() == ["127.0.0.1:9876"]
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert name_server_addresses() == ["a:1", "b:2"]
    assert name_server_addresses("c:3") == ["c:3"]


@pytest.mark.parametrize("text", ["", ";", "a", "a:b", ":1", "a:99999"])
def test_wrong_addresses(text):
    with pytest.raises(ValueError, match="address"):
        name_server_addresses(text)


class Servers(Cluster):
    """A cluster with more name servers: "silent" ones take requests, "dropped" ones no connection, as without power."""

    def __init__(self, *kinds):
        super().__init__({"a": stored})
        self.kinds = {f"10.0.2.{i}:9876": kind for i, kind in enumerate(kinds)}
        if "good" in kinds:
            self.kinds[NAME_SERVER] = self.kinds.pop(next(one for one in self.kinds if self.kinds[one] == "good"))

    def connector(self, host, port):
        kind = self.kinds.get(f"{host}:{port}")
        if kind == "silent":
            self.servers[f"{host}:{port}"] = Server([Silent()])
        if kind == "dropped":
            return lambda factory: asyncio.sleep(127)
        return super().connector(host, port)

    def producer(self, **options):
        made = super().producer(**options)
        made._access = dataclasses.replace(made._access, addresses=tuple(self.kinds))
        return made


class Silent:
    codes = (105,)

    def process(self, call):
        return None


@pytest.mark.parametrize("kind", ["silent", "dropped", "refused"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_send_finds_the_name_server_that_answers(kind, count):
    async def main():
        async with Servers(*[kind] * count, "good").producer() as producer:
            began = asyncio.get_running_loop().time()
            await producer.send("orders", b"one")
            first = asyncio.get_running_loop().time() - began
            await producer.send("others", b"two")
            assert first < 3 and asyncio.get_running_loop().time() - began < first + 0.1

    play(main())


@pytest.mark.parametrize("kinds", [["silent"], ["dropped"], ["silent", "dropped", "refused"], ["refused", "refused"]])
def test_no_name_server_answers(kinds):
    async def main():
        async with Servers(*kinds).producer() as producer:
            began = asyncio.get_running_loop().time()
            with pytest.raises((NotSentError, NoAnswerError), match=r"^10\.0\.2\.\d:9876: no "):
                await producer.send("orders", b"one")
            assert asyncio.get_running_loop().time() - began < 3.2

    play(main())


@pytest.mark.parametrize("address", ["127.0.0.1:9876", "10.0.0.1:9876"])
def test_the_default_address_is_explained(address):
    async def main():
        stage = Cluster({"a": stored})
        stage.servers.clear()
        producer = stage.producer()
        producer._access = dataclasses.replace(producer._access, addresses=(address,))
        async with producer:
            with pytest.raises(NotSentError) as caught:
                await producer.send("orders", b"one")
        text = f"{address}: no connection: Connection refused; no name server is reached: check that it runs, and its"
        default = "; 127.0.0.1:9876 is the default without name_server (-n) and NAMESRV_ADDR"
        assert str(caught.value) == f"{text} address{default if address.startswith('127') else ''}"

    play(main())
