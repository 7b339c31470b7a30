"""Signals that end a process: when their exception is raised, and that the earlier handlers are restored."""

import os
import signal

import pytest

from rocketc.cli.signals import Ended, Stop, signals_raise

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def usual():
    """Set the signal handlers that a command finds, however the tests were started."""
    before = {number: signal.getsignal(number) for number in ENDING}
    meant = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]
    for number, handler in zip(ENDING, meant, strict=True):
        signal.signal(number, handler)
    yield
    assert [signal.getsignal(number) for number in ENDING] == meant
    for number, handler in before.items():
        signal.signal(number, handler)


def come(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", ENDING[1:])
def test_signals_raise(number):
    with pytest.raises(Ended) as ended, signals_raise():
        come(number)
    assert ended.value.code == 128 + number


@pytest.mark.parametrize("number", ENDING)
def test_stop_waits_until_it_is_checked(number):
    stop = Stop()
    with stop.installed():
        stop.check()
        come(number)
        with pytest.raises(Ended) as ended:
            stop.check()
        assert ended.value.code == 128 + number
        with pytest.raises(Ended), stop.waiting():
            raise AssertionError("it is not entered")
        with pytest.raises(Ended):
            come(number)  # the second signal


@pytest.mark.parametrize("number", ENDING)
def test_stop_raises_at_once_when_no_message_can_be_lost(number):
    stop = Stop()
    with stop.installed():
        with stop.waiting():
            pass
        with pytest.raises(Ended), stop.waiting():
            come(number)
            raise AssertionError("it raises before")


def test_ignored_signals_stay_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = Stop()
    with stop.installed(), signals_raise():
        come(signal.SIGHUP)
        stop.check()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
