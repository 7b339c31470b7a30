"""examples/clients/outbox.py is killed at three points: one order in, one message out."""

import importlib.util
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rocketc

OUTBOX = Path(__file__).parents[1] / "examples/clients/outbox.py"

# Runs the example, and dies before the order is stored, right after it, or when END_TRANSACTION was written.
DYING = f"""
import importlib.util, os, signal, sys
spec = importlib.util.spec_from_file_location("outbox", {str(OUTBOX)!r})
outbox = importlib.util.module_from_spec(spec)
spec.loader.exec_module(outbox)
name, when = sys.argv[2:4]
usual = getattr(outbox, name)

def dying(*arguments):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    usual(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(outbox, name, dying)
outbox.main(sys.argv[1], sys.stdin)
"""


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker(transaction_check_interval=200, transaction_time_out=300) as one:
        yield one


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def begin(broker, *arguments):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], env={**os.environ, "NAMESRV_ADDR": broker.name_server}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def sent(broker, order):
    """The messages about an order."""
    found = [one for queue in range(4) for one in broker.store.get("orders", queue, 0).messages]
    return [one.properties["UNIQ_KEY"] for one in found if one.keys == order]


def rows(path, query):
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


@pytest.mark.parametrize(
    ("point", "dead", "outbox"),
    [
        (["store", "before"], [], [0, 1]),  # the first half message is rolled back, the order is placed again
        (["store", "after"], [("o-1", "one bicycle")], [1]),  # the message is committed when the broker asks
        (["place", "after"], [("o-1", "one bicycle")], [1]),
    ],
    ids=["before the order is stored", "after it is stored", "after the end"],
)
def test_one_order_in_one_message_out(broker, tmp_path, point, dead, outbox):
    path, order = tmp_path / "shop.db", f"o-{point[0]}-{point[1]}"
    dead = [(order, text) for _, text in dead]
    with begin(broker, "-c", DYING, path, *point) as first:
        timer = threading.Timer(30, first.kill)
        timer.start()
        assert first.communicate(f"{order} one bicycle\n")[0] == ""
        timer.cancel()
    assert first.returncode == -signal.SIGKILL
    assert rows(path, "SELECT * FROM orders") == dead
    with begin(broker, OUTBOX, path) as second:
        timer = threading.Timer(60, second.kill)
        timer.start()
        second.stdin.write(f"{order} one bicycle\n")
        second.stdin.flush()
        line = second.stdout.readline()
        assert line.startswith(f"{order}: stored before" if dead else f"{order}: stored, message ")
        until(lambda: sorted(rows(path, "SELECT is_committed FROM outbox")) == [(one,) for one in outbox])
        until(lambda: len(sent(broker, order)) == 1)
        time.sleep(0.6)  # the broker would ask again
        second.communicate()
        timer.cancel()
    assert second.returncode == 0
    assert rows(path, "SELECT * FROM orders") == [(order, "one bicycle")]
    assert [(one,) for one in sent(broker, order)] == rows(path, "SELECT message FROM outbox WHERE is_committed")


def test_an_answer_of_the_check_stays_true(tmp_path):
    """A local transaction that is still about to commit fails after the check said that it did not."""
    spec = importlib.util.spec_from_file_location("outbox", OUTBOX)
    outbox = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(outbox)
    path = str(tmp_path / "shop.db")
    check, database = outbox.check_in(path), outbox.connect(path)
    message = next(iter(rocketc.decode(rocketc.encode("orders", b"one", properties={"UNIQ_KEY": "0A00"}))))
    assert check(message).name == "ROLLBACK_MESSAGE"
    with pytest.raises(sqlite3.IntegrityError):
        outbox.store(database, "o-1", "one bicycle", "0A00")
    assert rows(path, "SELECT * FROM orders") == [] and check(message).name == "ROLLBACK_MESSAGE"
    outbox.store(database, "o-1", "one bicycle", "0A01")
    message = next(iter(rocketc.decode(rocketc.encode("orders", b"one", properties={"UNIQ_KEY": "0A01"}))))
    assert check(message).name == "COMMIT_MESSAGE"
    database.close()
