"""Addresses of name servers that an HTTP server knows: its answers, its faults, and when it is asked again."""

import asyncio

import pytest
from unit.client.scripted import play

import rocketc
from rocketc.client import Admin, Producer, address_lookup
from rocketc.client.address_lookup import AddressLookup, check_url, fetch, parse_answer
from rocketc.client.name_servers import name_server_addresses
from rocketc.errors import NotSentError

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n10.0.0.1:9876;10.0.0.2:9876"


@pytest.mark.parametrize("url", ["http://10.0.0.9:8080/nsaddr", " http://a/b?c=d ", "http://[::1]:80"])
def test_urls(url):
    assert name_server_addresses(url) == [url.strip()]


@pytest.mark.parametrize(
    "url",
    ["https://a/b", "http://", "http:///b", "http://a b/", "http://a/\r\nX: y", "http://u:p@a/b", "ftp://a", "http://a:x/",
     "10.0.0.1:9876;http://a/b", "http://a/\u00e9", "http://a:99999/"],
)  # fmt: skip
def test_wrong_urls(url):
    with pytest.raises(ValueError):
        name_server_addresses(url)


def test_parts_of_a_url():
    assert check_url("http://[::1]:81/a/b?c=d") == ("::1", 81, "/a/b?c=d") and check_url("http://a") == ("a", 80, "/")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"10.0.0.1:9876", ["10.0.0.1:9876"]),
        (b" 10.0.0.1:9876 ;\n10.0.0.2:9876;\n", ["10.0.0.1:9876", "10.0.0.2:9876"]),
    ],
)
def test_answers(body, found):
    assert parse_answer(b"HTTP/1.0 200 OK\r\n\r\n" + body) == found
    assert parse_answer(GOOD) == ["10.0.0.1:9876", "10.0.0.2:9876"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "not an answer of an HTTP server"),
        (b"\x00" * 50, "not an answer"),
        (b"HTTP/1.1 200 OK\r\n", "not an answer"),
        (b"HTTP/1.1\r\n\r\n", "not an answer"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://b/\r\n\r\n", "the HTTP server answers '302 Found'"),
        (b"HTTP/1.1 404\r\n\r\n10.0.0.1:9876", "answers '404'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "in chunks"),
        (GOOD[:-1], "cut off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "invalid literal"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "give the address of a name server"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "is not an address"),
        (b"HTTP/1.1 200 OK\r\n\r\nhttp://b/", "is not an address"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff:1\xff", "is not an address"),
    ],
)
def test_answers_that_are_wrong(answer, text):
    with pytest.raises(ValueError, match=text):
        parse_answer(answer)


class Server:
    """Answers as a test says, on virtual time."""

    def __init__(self, answer=GOOD):
        self.answer, self.asked = answer, 0

    async def fetch(self, url):
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.answer is None:
            await asyncio.sleep(3600)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def look_up(work, answer=GOOD):
    async def main():
        server = Server(answer)
        lookup = AddressLookup("http://a/b", server.fetch)
        try:
            return await work(lookup, server)
        finally:
            lookup.close()
            await asyncio.sleep(0.01)
            assert len(asyncio.all_tasks()) == 1

    return play(main())


def test_it_is_asked_once_and_again_after_two_minutes():
    async def work(lookup, server):
        found = await asyncio.gather(*[lookup.addresses() for _ in range(3)])
        assert found == [["10.0.0.1:9876", "10.0.0.2:9876"]] * 3 and server.asked == 1
        await asyncio.sleep(119)
        await lookup.addresses()
        assert server.asked == 1
        server.answer = GOOD.replace(b"10.0.0.1", b"10.0.0.7")
        await asyncio.sleep(2)
        assert (await lookup.addresses())[0] == "10.0.0.1:9876"  # the answer is not waited for
        await asyncio.sleep(1)
        assert (await lookup.addresses())[0] == "10.0.0.7:9876" and server.asked == 2

    look_up(work)


@pytest.mark.parametrize("answer", [None, OSError("refused"), b"HTTP/1.1 500 no\r\n\r\n"])
def test_the_known_addresses_stay(answer, caplog):
    async def work(lookup, server):
        await lookup.addresses()
        server.answer = answer
        for _ in range(3):
            await asyncio.sleep(130)
            assert await lookup.addresses() == ["10.0.0.1:9876", "10.0.0.2:9876"]
        await asyncio.sleep(10)
        assert server.asked == 4

    look_up(work)
    assert caplog.text.count("the known ones are used") == 3


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "http://a/b: no answer in 3 s with the addresses of name servers"),
        (ConnectionRefusedError(111, "refused"), r"http://a/b: no addresses of name servers: .*refused"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "no addresses of name servers: the HTTP server answers '404 Not Found'"),
    ],
)
def test_without_an_answer(answer, text):
    async def work(lookup, server):
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotSentError, match=text):
            await lookup.addresses()
        assert asyncio.get_running_loop().time() - began <= 3.1
        server.answer = GOOD
        assert len(await lookup.addresses()) == 2  # the next call asks again

    look_up(work, answer)


def test_the_end():
    async def work(lookup, server):
        waiting = asyncio.ensure_future(lookup.addresses())
        await asyncio.sleep(0.5)
        lookup.close()
        with pytest.raises(NotSentError, match="the client is closed"):
            await waiting
        waiting = asyncio.ensure_future(lookup.addresses())
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.wait({waiting})

    look_up(work, None)


# over TCP


async def serving(answer, work):
    """Run work(url) beside a server whose answer is this."""
    heard = []

    async def serve(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        return await work(f"http://127.0.0.1:{port}/nsaddr?a=b"), heard
    finally:
        server.close()
        await server.wait_closed()


def test_what_is_asked():
    answer, [heard] = asyncio.run(serving(GOOD, fetch))
    assert answer == GOOD and heard.startswith(b"GET /nsaddr?a=b HTTP/1.0\r\nHost: 127.0.0.1:")
    with pytest.raises(ValueError, match="the answer has more than 65536 bytes"):
        asyncio.run(serving(b"x" * 100_000, fetch))


def test_a_client_that_looks_up(broker):
    answer = b"HTTP/1.1 200 OK\r\n\r\n" + broker.name_server.encode()

    def send(url):
        with Producer("shop", url) as producer:
            return producer.send("looked-up", b"one").status.name

    async def work(url):
        async with Admin(url) as admin:
            assert "TBW102" in await admin.topics()
        return await asyncio.to_thread(send, url)

    assert asyncio.run(serving(answer, work))[0] == "SEND_OK"


def test_nothing_is_asked_without_an_address(monkeypatch):
    """Java asks a public host if nothing is configured."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setattr(address_lookup, "fetch", None)
    assert name_server_addresses() == ["127.0.0.1:9876"]


def test_a_port_where_nothing_listens():
    with (
        Producer("shop", "http://127.0.0.1:1/nsaddr") as producer,
        pytest.raises(rocketc.RocketcError, match="no addresses of name servers"),
    ):
        producer.send("orders", b"one")
