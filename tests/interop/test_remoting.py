"""Frames and calls between rocketc.remoting and RocketMQ's own remoting classes."""

import asyncio
import base64
import random
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interop.our_broker import wait_for
from interop.peer import RELEASES

from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting._headers import decode_json
from rocketc.remoting.command import Command, Form
from rocketc.remoting.server import Answer, Server

NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), min_size=1, max_size=12)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
COMMANDS = st.builds(
    Command,
    code=st.integers(0, (1 << 15) - 1),
    fields=st.dictionaries(NAME, TEXT, max_size=6),
    body=st.binary(max_size=50),
    opaque=st.integers(0, (1 << 31) - 1),
    flag=st.integers(0, 3),
    remark=st.none() | TEXT,
)


def as_java(command: Command, form: Form) -> dict[str, Any]:
    return {
        "code": command.code, "opaque": command.opaque, "flag": command.flag, "remark": command.remark,
        "fields": command.fields, "body": base64.b64encode(command.body).decode(), "form": form.name,
    }  # fmt: skip


def of_java(told: dict[str, Any]) -> Command:
    body = base64.b64decode(told["body"])
    return Command(
        told["code"],
        told["fields"],
        body,
        told["opaque"],
        told["flag"],
        told.get("remark"),
        told["language"],
        told["version"],
    )


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("form", Form)
def test_rocketmq_reads_our_frames_and_we_read_its_frames(peers, release, form):
    java = peers(release)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(COMMANDS)
    def check(command):
        frame = base64.b64encode(command.encode(form)).decode()
        assert of_java(java.ask(do="decode", frame=frame)) == command
        [(kind, header, body)] = FrameDecoder().receive(
            base64.b64decode(java.ask(do="encode", **as_java(command, form)))
        )
        back = Command.decode(kind, header, body)
        assert kind == form and back.language == "JAVA"
        assert as_java(back, form) == as_java(command, form)
        assert form is Form.ROCKETMQ or decode_json(header) is not None  # by the fast decoder

    check()


class Echo:
    """Answers GET_MAX_OFFSET with the queue id and its own request, and GET_MIN_OFFSET never."""

    codes = (30, 31)

    def __init__(self):
        self.calls = []

    def process(self, call):
        self.calls.append(call.command)
        if call.command.code == 31:
            raise RuntimeError("no minimum")
        return Answer(values={"offset": call.values["queueId"]}, body=call.command.body, remark="fine")


@pytest.fixture
def served():
    """Run a server on a thread; return (address, processor)."""
    echo, ready, stop = Echo(), threading.Event(), None
    where: list[str] = []

    async def main():
        nonlocal stop
        stop = asyncio.Event()
        async with Server([echo]) as server:
            host, port = await server.listen("127.0.0.1", 0)
            where.append(f"{host}:{port}")
            loops.append(asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(10)
    yield where[0], echo
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("form", Form)
def test_rocketmqs_client_calls_our_server(peers, served, release, form):
    java, (address, echo) = peers(release), served
    body = random.Random(1).randbytes(300_000)

    def invoke(code, fields, **more):
        request = {"code": code, "fields": fields, "form": form.name, "address": address, "millis": 20_000, **more}
        return java.ask(do="invoke", **request)

    found = of_java(invoke(30, {"topic": "orders", "queueId": "7"}, body=base64.b64encode(body).decode()))
    assert (found.code, found.fields, found.remark, found.is_answer) == (0, {"offset": "7"}, "fine", True)
    assert found.body == body and (found.language, found.version) == ("PYTHON", 479)
    assert echo.calls[0].language == "JAVA" and echo.calls[0].fields["topic"] == "orders"
    assert of_java(invoke(31, {"topic": "t", "queueId": "0"})).remark == "RuntimeError: no minimum"
    assert of_java(invoke(30, {"topic": "t"})).code == 1
    unknown = of_java(invoke(9999, {}))
    assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
    assert invoke(30, {"topic": "oneway", "queueId": "1"}, oneway=True) is None
    assert of_java(invoke(30, {"topic": "last", "queueId": "2"})).fields == {"offset": "2"}
    wait_for(lambda: any(c.is_oneway for c in echo.calls))  # on a busy machine it came later than the last one, once
    assert [c.fields.get("topic") for c in echo.calls if c.is_oneway] == ["oneway"]
