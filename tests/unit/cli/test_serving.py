"""serve(): signals, exit codes and errors of a server."""

import signal
import subprocess
import sys

import pytest

CODE = """
import asyncio, sys, time
from rocketc.cli.serving import serve

async def main(stop):
    print("ready", flush=True)
    if sys.argv[1] == "fails":
        raise ValueError("broken")
    await stop.wait()
    print("ending", flush=True)
    if sys.argv[1] == "busy":
        while True:
            time.sleep(0.01)
    if sys.argv[1] == "slow":
        await asyncio.sleep(600)
    return 7

sys.exit(serve(main))
"""


@pytest.fixture
def run():
    started = []

    def start(how, before=""):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", before + CODE, how], **pipes)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_sets_the_event_and_main_gives_the_exit_code(run, number):
    process = run("ends")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (7, b"ending\n") and number.name in err.decode()


@pytest.mark.parametrize("how", ["slow", "busy"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_second_signal_ends_the_process_at_once(run, how, number):
    """Also while the loop is busy."""
    process = run(how)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"ending\n"
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number


def test_an_ignored_signal_stays_ignored(run):
    process = run("ends", "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 7 and b"SIGHUP" not in err


def test_an_error_of_main_is_raised(run):
    process = run("fails")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1 and err.decode().rstrip().endswith("ValueError: broken")
