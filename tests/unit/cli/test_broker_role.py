"""rocketc broker --role: what the terminal shows, and which role a broker gets."""

import contextlib
import json
import signal

import pytest
from interop.asking import Asking
from support.command import start

PORTS = ("--port", "0", "--settings", '{"broker_ip1": "127.0.0.1"}')


@pytest.fixture
def broker():
    """broker(*args): a broker that serves, and the lines of its start up to one with `last`."""
    started = []

    def begin(*args, last="Ctrl-C ends it"):
        process = start("broker", *args)
        started.append(process)
        lines = []
        while not lines or last not in lines[-1]:
            lines.append(process.stderr.readline().decode().rstrip("\n"))
            assert lines[-1], lines
        return process, lines

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def addresses(line):
    """(name server, broker) of the line of a start."""
    words = line.replace(",", " ").replace(";", " ").split()
    return words[words.index("server") + 1], words[words.index("broker") + 1]


def ask(address, code, body=None, **fields):
    with contextlib.closing(Asking(address)) as asking:
        return asking.ask(code, body, **fields)


SEND = {"a": "p", "b": "orders", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False}


def test_a_slave_beside_its_master(broker, tmp_path):
    _, lines = broker(tmp_path / "master", "--namesrv-port", "0", *PORTS)
    names, master = addresses(lines[-1])
    assert ask(master, 310, b"x", **SEND)[0] == 0
    args = (tmp_path / "slave", "--role", "slave", "--name-server", names, *PORTS)
    process, lines = broker(*args, last="rocketc: slave 1 of ")
    assert lines[-1].startswith("rocketc: slave 1 of broker-a: its master's log is at 127.0.0.1:")
    assert lines[-1].endswith(f", topics, groups and offsets are at {master}")
    [line] = [line for line in lines if "Ctrl-C ends it" in line]
    slave = addresses(line)[1]
    assert ask(slave, 310, b"x", **SEND)[0] == 2
    table = json.loads(ask(names, 106)[2].replace(b"{0:", b'{"0":').replace(b",1:", b',"1":'))["brokerAddrTable"]
    assert table["broker-a"]["brokerAddrs"] == {"0": master, "1": slave}
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    # the same store as a master
    process, lines = broker(tmp_path / "slave", "--role", "master", "--namesrv-port", "0", *PORTS)
    assert ask(addresses(lines[-1])[1], 310, b"x", **SEND)[0] == 0


def test_a_slave_that_waits_for_its_master(broker, tmp_path):
    _, lines = broker(tmp_path / "master", "--namesrv-port", "0", *PORTS)
    conf = tmp_path / "broker.conf"
    settings = {
        "brokerName": "broker-b", "brokerId": 2, "brokerRole": "SLAVE", "namesrvAddr": addresses(lines[-1])[0],
        "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "storePathRootDir": tmp_path / "slave", "listenPort": 0,
    }  # fmt: skip
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    _, lines = broker("-c", conf, last="rocketc: slave 2 of ")
    assert lines[-1] == "rocketc: slave 2 of broker-b: no name server knows its master yet"


@pytest.mark.parametrize(("role", "broker_id", "given", "expected"), [
    ("SLAVE", 3, "master", ("ASYNC_MASTER", 0)), ("ASYNC_MASTER", 0, "slave", ("SLAVE", 1)),
    ("SLAVE", 3, "slave", ("SLAVE", 3)), ("SLAVE", 0, "slave", ("SLAVE", 1)), ("ASYNC_MASTER", 5, "master",
    ("ASYNC_MASTER", 0)), ("SYNC_MASTER", 0, "master", ("SYNC_MASTER", 0)),
])  # fmt: skip
def test_the_option_over_the_settings(role, broker_id, given, expected):
    from rocketc.cli.broker import _with_role
    from rocketc.config import StoreConfig

    fields = {"broker_id": broker_id}
    config = _with_role(given, StoreConfig(broker_role=role), fields)
    assert (config.broker_role, fields["broker_id"]) == expected


@pytest.mark.parametrize("args", [["--role", "x"], ["--role", "slave"]])
def test_wrong_use(run, tmp_path, args):
    code, out, err = run("broker", tmp_path / "store", *args)
    assert (code, out) == (2, "") and ("is not one of" in err or "neither a name server" in err)
