"""The proxy passes bytes unchanged, records them, and breaks connections where its rules say so."""

import asyncio

import pytest
from net.proxy import Piece, Proxy, Rule


async def echo(reader, writer):
    try:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.write(b"end")
    except ConnectionError:
        pass
    writer.close()


def talk(rules, *texts, finish=True):
    """Send texts through a proxy to an echo server; return (what came back or the error, pieces)."""

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server, Proxy(server.sockets[0].getsockname(), rules=rules) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address)
            back = b""
            try:
                for text in texts:
                    writer.write(text)
                    back += await reader.readexactly(len(text))
                if finish:
                    writer.write_eof()
                back += await asyncio.wait_for(reader.read(), 5)
            except asyncio.IncompleteReadError as error:
                back += error.partial
            except ConnectionResetError:
                back += b"reset"
            writer.close()
            return back, proxy.pieces

    return asyncio.run(main())


def test_bytes_pass_and_are_recorded():
    back, pieces = talk([], b"one", b"two")
    assert back == b"onetwoend"
    assert pieces[:3] == [Piece(0, True, b"one"), Piece(0, False, b"one"), Piece(0, True, b"two")]
    assert b"".join(data for _, to_server, data in pieces if not to_server) == back


@pytest.mark.parametrize("after", range(7))
def test_a_cut_answer_ends_after_its_bytes(after):
    back, _ = talk([Rule("cut", to_server=False, after=after)], b"abcdef", finish=False)
    assert back == b"abcdef"[:after]


def test_a_reset_is_an_error_at_the_client():
    assert talk([Rule("reset", to_server=False, after=2)], b"abcdef", finish=False)[0] in (b"reset", b"abreset")


def test_a_half_closed_connection_still_brings_answers():
    assert talk([Rule("half", to_server=True, after=3)], b"abc", finish=False)[0] == b"abcend"


def test_a_delay_comes_before_the_bytes_after_it():
    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        rule = Rule("delay", to_server=True, after=0, seconds=0.05, connection=1)
        async with server, Proxy(server.sockets[0].getsockname(), rules=[rule]) as proxy:
            times = []
            for _ in range(2):
                start = asyncio.get_running_loop().time()
                reader, writer = await asyncio.open_connection(*proxy.address)
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
                times.append(asyncio.get_running_loop().time() - start)
                writer.close()
            assert times[1] >= 0.05 and proxy.pieces[-1].connection == 1

    asyncio.run(main())


def test_a_target_that_is_not_there_ends_the_connection():
    async def main():
        async with Proxy(("127.0.0.1", 1)) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    asyncio.run(main())
