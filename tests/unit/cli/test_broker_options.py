"""rocketc broker: the options for programs that start it."""

import json
import signal
import socket
import subprocess
import urllib.request

import pytest
from support.command import start

PORTS = ("--port", "0", "--namesrv-port", "0")


@pytest.fixture
def folder(tmp_path):
    """The folder of temporary stores."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def broker(folder):
    """broker(*args): start a broker; return its process and the line that it prints."""
    started = []

    def begin(*args):
        process = start("broker", *PORTS, *args, stdin=subprocess.PIPE, env={"TMPDIR": str(folder)})
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield begin
    for process in started:
        process.kill()
        with process:  # closes the pipes
            pass


def test_it_ends_with_stdin_and_removes_its_store(broker, folder):
    process, line = broker("--temporary", "--json", "--until-eof", "--settings", '{"broker_name": "b"}')
    assert set(line) == {"name_server", "address", "ha_address", "store", "pid"}
    assert line["pid"] == process.pid
    assert [str(path) for path in folder.iterdir()] == [line["store"]]
    assert process.communicate(b"ignored\n", timeout=20) == (b"", b"")
    assert (process.returncode, list(folder.iterdir())) == (0, [])


def test_without_until_eof_it_ends_with_a_signal(broker, folder):
    process, _ = broker("--temporary", "--json")
    process.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.send_signal(signal.SIGTERM)
    assert (process.wait(20), list(folder.iterdir())) == (0, [])


def test_an_error_is_a_line_of_json(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = run("broker", tmp_path / "file", "--json", *PORTS)
    assert (code, err) == (3, "")
    assert json.loads(out) == {
        "error": "StoreIOError",
        "text": "this is a file, not a folder; give the store's root folder, which contains commitlog",
        "errno": 20,
        "filename": str(tmp_path / "file"),
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("{", "--settings is not JSON: "),
        ("[" * 100_000, "--settings is not JSON: "),
        ("[1]", "--settings is not a JSON object"),
        ('{"broker_nme": 1}', "--settings: unknown keyword broker_nme; did you mean broker_name?"),
        ('{"listen_port": 1}', "--settings: listen_port is not a keyword; use port"),
        ('{"trace_on": 1}', "trace_on is 1; allowed are True and False"),
        ('{"max_message_size": []}', "max_message_size is []; allowed are 10 to"),
    ],
)
def test_wrong_settings(run, tmp_path, settings, says):
    code, out, err = run("broker", tmp_path / "store", "--settings", settings)
    assert (code, out) == (2, "")
    assert err.startswith(f"rocketc: {says}") and err.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_temporary_store_does_not_take_a_path(run, tmp_path):
    assert run("broker", tmp_path / "store", "--temporary") == (
        2,
        "",
        "rocketc broker: --temporary makes a store of its own; leave out STORE; see `rocketc broker --help`\n",
    )


def test_metrics_are_served(broker):
    _, line = broker("--temporary", "--json", "--until-eof", "--metrics-port", "0")
    with urllib.request.urlopen(line["metrics"], timeout=20) as answer:
        assert b"\nrocketmq_broker_permission{" in answer.read()


def test_a_metrics_port_in_use_is_an_error(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = run("broker", "--temporary", *PORTS, "--metrics-port", port)
    assert (code, out) == (3, "") and f"127.0.0.1:{port}: " in err
