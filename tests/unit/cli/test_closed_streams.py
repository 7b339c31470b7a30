"""Commands that use the network, with stdin, stdout or stderr closed: no socket may take its number."""

import signal
import subprocess
import sys

import pytest
from support.command import environment

NOT_REACHED = (
    b"rocketc: 127.0.0.1:1: no connection: Connection refused; "
    b"no name server is reached: check that it runs, and its address\n"
)
CANNOT_WRITE = b"rocketc: can't write: stdout is closed\n"
NAME_SERVER, READY, JSON = b"name server ready on 127.0.0.1:", b"; Ctrl-C ends it", b'{"name_server": '


def run(command, closing, folder, until=None):
    """Run `rocketc COMMAND` with a stream closed; return its exit code, stdout and stderr.

    until  what a server says when it is ready; it then gets SIGTERM
    """
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$0" -m rocketc {command} {closing}', sys.executable],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
        env=environment(HOME=str(folder)),
    )  # fmt: skip
    with process:
        try:
            lines = []
            if until is not None:
                source = process.stdout if until in (NAME_SERVER, JSON) else process.stderr
                while not any(until in line for line in lines):
                    lines.append(source.readline())
                    assert lines[-1], process.communicate()
                process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize("closing", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_admin(tmp_path, closing):
    code, out, err = run("admin brokers -n 127.0.0.1:1", closing, tmp_path)
    assert (code, out, err) == (3, b"", b"" if "2>&-" in closing else NOT_REACHED)


@pytest.mark.parametrize("closing", ["<&-", "2>&-"])
def test_name_server(tmp_path, closing):
    code, out, err = run("namesrv --port 0", closing, tmp_path, NAME_SERVER)
    assert (code, out) == (0, b"") and (b"SIGTERM: ending" in err) == (closing == "<&-")


def test_name_server_that_cannot_say_its_address(tmp_path):
    code, _, err = run("namesrv --port 0", ">&-", tmp_path)
    assert code == 3 and err.endswith(CANNOT_WRITE)


@pytest.mark.parametrize(("closing", "until"), [(">&-", READY), ("2>&-", JSON)])
def test_broker(tmp_path, closing, until):
    more = " --json" if until is JSON else ""
    code, out, err = run(f"broker store --port 0 --namesrv-port 0{more}", closing, tmp_path, until)
    assert (code, out) == (0, b"") and b"Assertion" not in err


def test_broker_until_the_end_of_a_stdin_that_is_closed(tmp_path):
    code, out, _ = run("broker store --port 0 --namesrv-port 0 --json --until-eof", "<&-", tmp_path)
    assert (code, out.count(b"\n")) == (0, 1)
