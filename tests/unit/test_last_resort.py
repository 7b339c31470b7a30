"""last_resort: what a program without logging sees of the warnings of rocketc."""

import io
import logging
import subprocess
import sys
import textwrap

import pytest

from rocketc.last_resort import LastResort


@pytest.fixture
def program(capsys):
    """A logger below which a program has set up nothing, its LastResort, what it printed, and its clock."""

    class Program:
        now = 0.0

        def __init__(self):
            self.handler = LastResort(lambda: self.now)
            self.parent = logging.Logger("rocketc")
            self.logger = logging.getLogger("rocketc_tests")
            self.logger.parent, self.logger.propagate = self.parent, True  # without the root: it has pytest's handlers
            self.logger.addHandler(self.handler)

        def lines(self):
            return capsys.readouterr().err.splitlines()

    one = Program()
    yield one
    one.logger.removeHandler(one.handler)


def test_one_line_a_second(program):
    for n in range(5):
        program.logger.warning("line %d", n)
    program.now = 0.9
    program.logger.error("line 5")
    program.now = 1.0
    program.logger.info("not shown")
    program.logger.error("line\n6")
    program.now = 2.0
    program.logger.warning("line 7")
    assert program.lines() == [
        "WARNING rocketc_tests: line 0 (logging.basicConfig() shows all of them, with tracebacks)",
        "ERROR rocketc_tests: line 6; 5 more lines since the last one",
        "WARNING rocketc_tests: line 7",
    ]


def test_an_exception_is_named_once(program):
    error = KeyError("price")
    program.logger.warning("failed", exc_info=error)
    program.now = 1.0
    program.logger.warning("failed: KeyError: 'price'", exc_info=error)
    first, second = program.lines()
    assert "failed: KeyError: 'price' (logging" in first and second.endswith(": failed: KeyError: 'price'")


def test_a_handler_of_the_program_ends_it(program):
    program.logger.warning("one")
    assert len(program.lines()) == 1
    program.now = 5.0
    program.parent.addHandler(logging.NullHandler())
    program.logger.warning("two")
    assert program.lines() == []
    program.logger.propagate = False
    program.logger.warning("three")
    assert len(program.lines()) == 1


def test_the_end_says_what_is_missing(program):
    for n in range(3):
        program.logger.warning("line %d", n)
    program.handler.close()
    assert program.lines()[1:] == ["WARNING rocketc: the program ends; 2 more lines since the last one"]
    program.handler.close()
    assert program.lines() == []


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_no_stderr(program, monkeypatch, stderr):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    program.logger.warning("one")


FAILS = """
    import threading, rocketc
    from rocketc.client import Producer, PushConsumer
    {setup}
    tries = threading.Semaphore(0)
    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as shop:
        broker.topics.create("orders")
        with PushConsumer("billing", broker.name_server, max_reconsume_times=0) as consumer:
            @consumer.subscribe("orders")
            def on_order(message):
                tries.release()
                raise KeyError("price")
            shop.send("orders", b"one bicycle", keys="o-7")
            tries.acquire(timeout=20)
"""
SAID = "{} of topic orders, keys 'o-7', attempt 1: KeyError: 'price'; the message goes to the topic %DLQ%billing ("


def printed(setup=""):
    script = textwrap.dedent(FAILS).format(setup=setup)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_consumer_that_fails_in_a_program_without_logging():
    [line] = printed().splitlines()
    assert line.startswith("WARNING rocketc.client: billing: the listener failed for ")
    id = line.split()[7]
    assert SAID.format(id) + "logging.basicConfig()" in line and len(id) == 32


def test_the_same_with_logging():
    text = printed("import logging; logging.basicConfig(format='own: %(message)s')")
    assert text.startswith("own: billing: the listener failed for ") and "Traceback" in text
    assert "WARNING rocketc" not in text
