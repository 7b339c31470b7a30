"""rocketc namesrv: its settings, its errors, and how it ends."""

import json
import select
import signal
import socket
import struct

import pytest
from support.command import rocketc, start

from rocketc.remoting.command import Command


@pytest.fixture
def home(tmp_path):
    """The arguments of start() and rocketc() for a home folder of this test."""
    return {"env": {"HOME": str(tmp_path)}}


def line_of(process):
    assert select.select([process.stdout], [], [], 20)[0], "the line does not come"
    return process.stdout.readline().decode()


@pytest.fixture
def server(home):
    """server(*args): a started name server and the port it says; killed at the end."""
    started = []

    def run(*args, port=0):
        process = start("namesrv", "--port", port, *args, **home)
        started.append(process)
        line = line_of(process)
        assert line.startswith("name server ready on 127.0.0.1:") and line.endswith("\n")
        return process, int(line.rpartition(":")[2])

    yield run
    for process in started:
        process.kill()
        process.communicate()


def ask(port, code, fields, body=b""):
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(Command(code, fields, body, 1).encode())
        file = peer.makefile("rb")
        size, head = struct.unpack(">II", file.read(8))
        rest = file.read(size - 4)
        return Command.decode(head >> 24, rest[: head & 0xFFFFFF], rest[head & 0xFFFFFF :])


def test_it_answers_and_keeps_settings_in_the_home_folder(server, tmp_path):
    _, port = server()
    assert ask(port, 105, {"topic": "orders"}).code == 17
    assert ask(port, 100, {"namespace": "NS", "key": "k", "value": "v"}).code == 0
    assert json.loads((tmp_path / "namesrv/kvConfig.json").read_text()) == {"configTable": {"NS": {"k": "v"}}}
    assert ask(port, 318, {}, b"orderMessageEnable=true").code == 0
    assert "orderMessageEnable=true" in (tmp_path / "namesrv/namesrv.properties").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_ends_it_in_order(server, number):
    process, port = server()
    with socket.create_connection(("127.0.0.1", port), 10) as idle:
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert idle.recv(10) == b""
    assert (process.returncode, out) == (0, b"")
    assert err.decode().rstrip().endswith(f"INFO rocketc: {number.name}: ending")


def test_a_file_of_settings(server, tmp_path):
    conf = tmp_path / "namesrv.conf"
    kv = tmp_path / "elsewhere" / "kv.json"
    conf.write_text(f"bindAddress=127.0.0.1\nkvConfigPath={kv}\nserverWorkerThreads=9\nlistenprot=1\nlistenPort=1\n")
    process, port = server("-c", conf)
    assert ask(port, 100, {"namespace": "NS", "key": "k", "value": "v"}).code == 0 and kv.exists()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    first = err.decode().splitlines()[0]
    assert first == f"rocketc: {conf}: not used here: serverWorkerThreads, listenprot; did you mean listenPort?"


def test_a_port_that_is_in_use(server, home):
    _, port = server()
    done = rocketc("namesrv", "--port", port, **home)
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == f"rocketc: can't listen on 127.0.0.1:{port}: Address already in use\n"


def test_a_host_that_is_unknown(home):
    done = rocketc("namesrv", "--host", "host.invalid", "--port", 0, **home)
    assert done.returncode == 3 and done.stderr.decode().startswith("rocketc: can't listen on host.invalid:0: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args, says",
    [(("--port", "65536"), "65536 is more than 65535"), (("--port", "x"), "'x' is not a whole number"), (("x",), "x")],
)
def test_wrong_usage(home, args, says):
    done = rocketc("namesrv", *args, **home)
    assert done.returncode == 2 and says in done.stderr.decode() and len(done.stderr.splitlines()) == 1


def test_a_wrong_setting(home, tmp_path):
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=many\n")
    done = rocketc("namesrv", "-c", conf, **home)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert f"{conf}: listenPort is 'many'; allowed are whole numbers from 0 to 65535" in done.stderr.decode()


def test_wrong_settings_of_tls(home, tmp_path):
    conf = tmp_path / "namesrv.conf"
    conf.write_text("tls.server.keyPath=/missing\ntls.server.certPath=/missing\n")
    done = rocketc("namesrv", "-c", conf, "--port", 0, **home)
    assert done.returncode == 2 and done.stderr.decode() == (
        "rocketc: /missing or /missing: No such file or directory\n"
    )


def test_a_file_that_is_missing(home, tmp_path):
    done = rocketc("namesrv", "-c", tmp_path / "no.conf", **home)
    assert done.returncode == 3 and "no.conf" in done.stderr.decode() and len(done.stderr.splitlines()) == 1


def test_key_value_settings_that_cannot_be_read(home, tmp_path):
    (tmp_path / "namesrv" / "kvConfig.json").mkdir(parents=True)
    done = rocketc("namesrv", "--port", 0, **home)
    assert done.returncode == 3 and "kvConfig.json" in done.stderr.decode() and len(done.stderr.splitlines()) == 1
