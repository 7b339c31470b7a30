"""rocketc top: rates of a store that another process writes, on a terminal, as a table and as JSON."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

import rocketc
from rocketc.cli.top_screen import Top
from rocketc.metrics import TopicLook, Watch
from rocketc.report.rates import Rates, draw, spark
from rocketc.report.tables import render
from rocketc.report.text import visible
from rocketc.tables.offsets import ConsumerOffsets

WRITER = """
import sys, time, rocketc
store = rocketc.open(sys.argv[1], mapped_file_size_commit_log=1 << 20)
while True:
    for n in range(20):
        store.put("busy", bytes(1000), queue_id=n % 4)
    store.put("calm", b"x")
    store.flush()
    print(store.max_phy_offset, flush=True)
    time.sleep(0.005)
"""


@pytest.fixture
def live(tmp_path):
    """The path of a store that another process writes: 20 messages of `busy` for each message of `calm`."""
    path = str(tmp_path / "live")
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as writer:
        for _ in range(3):
            writer.stdout.readline()
        offsets = ConsumerOffsets(path)
        offsets.commit("busy", "late", 0, 0)
        offsets.persist()
        yield path
        writer.kill()


def test_json_of_a_written_store(live, run):
    code, out, err = run("top", live, "--json", "--interval", "0.5")
    assert (code, err) == (0, "")
    found = json.loads(out)
    topics = {one["topic"]: one for one in found["topics"]}
    assert list(topics) == ["busy", "calm"]
    assert 0.4 < found["seconds"] < 30
    assert found["messagesPerSecond"] > 0
    assert topics["busy"]["messagesPerSecond"] > 5 * topics["calm"]["messagesPerSecond"] > 0
    assert topics["busy"]["bytesPerSecond"] > 1000 * topics["busy"]["messagesPerSecond"]
    assert (topics["busy"]["queues"], topics["calm"]["queues"]) == (4, 1)
    assert found["bytesPerSecond"] > 0 and found["endOffset"] > found["firstOffset"] == 0
    assert found["dispatchBehindBytes"] < found["endOffset"]
    assert [(one["group"], one["topic"]) for one in found["groups"]] == [("late", "busy")]
    assert found["groups"][0]["lagMessages"] > 0 and found["groups"][0]["lagMs"] > 0
    assert abs(found["time"] - time.time() * 1000) < 60_000


def test_the_table_of_a_written_store(live, run_here):
    code, out, _ = run_here("top", live, "--once", "-n", "0.2")
    assert code == 0
    assert re.search(r"^in +[\d,]+ messages/s, [\d.]+ [KM]iB/s$", out, re.M)
    assert re.search(r"^ +[\d,]+ +[\d.]+ [KM]iB +[\d,]+ +4  busy$", out, re.M)
    code, out, _ = run_here("top", live, "--once", "-n", "0.1", "--groups")
    assert re.search(r"^ *[\d,]+ +[\d]+ m?s +late +busy$", out, re.M)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["v533-broker", "v497-broker", "flights-2013-01"])
def test_a_store_without_a_writer(golden, run, name):
    """There are no new messages. The numbers of queues and groups are those of the store's tables."""
    path = golden(name).path
    _, out, _ = run("top", path, "--json", "-n", "0.1")
    found = json.loads(out)
    assert found["messagesPerSecond"] == found["bytesPerSecond"] == 0
    assert all(one["messagesPerSecond"] == 0 for one in found["topics"])
    with rocketc.open(path, read_only=True) as store:
        held = {}
        for topic, queue_id in store.queues():
            count = store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
            held[topic] = held.get(topic, 0) + count
        assert {one["topic"]: one["messages"] for one in found["topics"]} == held
        lags = {}
        for topic, group, queue_id, offset in ConsumerOffsets(path).items():
            if (topic, queue_id) in store.queues():
                key = group, topic
                lags[key] = lags.get(key, 0) + max(store.max_offset(topic, queue_id) - offset, 0)
    assert {(one["group"], one["topic"]): one["lagMessages"] for one in found["groups"]} == lags
    assert lags
    code, out, _ = run("top", path, "--once", "-n", "0.1")
    assert code == 0 and re.search(r"^flush +durable up to messages of 20", out, re.M)


def test_rates(open_store):
    store = open_store()
    watch = Watch(store)
    store.put("a", bytes(100))
    store.wait_dispatched()
    one = watch.look()
    store.put_many("a", [bytes(100)] * 10)
    store.put("b", b"x")
    store.wait_dispatched()
    two = replace(watch.look(), time=one.time + 500)
    rates = Rates.between(one, two)
    assert rates.messages_per_second == 22
    assert rates.bytes_per_second == 2 * (two.end - one.end)
    assert [(t.topic, t.messages_per_second) for t in rates.sorted("messages")] == [("a", 20), ("b", 2)]
    assert [t.topic for t in rates.sorted("name")] == [t.topic for t in rates.sorted("held")] == ["a", "b"]
    assert Rates.between(two, two).messages_per_second == 0
    anew = replace(two, topics={"a": TopicLook(1, 3, 3, 300)}, time=two.time + 1000)  # deleted and created again
    assert Rates.between(two, anew).messages_per_second == 3


def test_the_table_fits_and_is_harmless(open_store):
    """No more rows than fit; a name from the disk is printed without control characters."""
    store = open_store()
    watch = Watch(store)
    for n in range(30):
        store.put(f"topic-{n}", b"x")
    store.wait_dispatched()
    rates = Rates.between(watch.look(), watch.look())
    text = render(draw("p", rates, "name", "topics", 5, [0, 1, 2]), False)
    assert text.count("topic-") == 5 and "... 25 more" in text and "▁▅█" in text
    odd = replace(rates.look, topics={"\x1b[31m": TopicLook(1, 1)})
    assert visible("\x1b[31m") in render(draw("p", Rates.between(odd, odd), "name", "topics"), False)
    assert spark([0, 0]) == spark([]) == ""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("top", "PATH/commitlog", "--once"), "is a commit log; give the folder that contains it"),
        (("top", "PATH"), "use --once or --json to print one snapshot"),
        (("top", "s3://a/b", "--once"), "top"),
        (("top", "PATH", "--interval", "0"), "interval"),
    ],
)
def test_wrong_usage(golden, run, args, told):
    path = str(golden("v533-store").path)
    code, out, err = run(*(arg.replace("PATH", path) for arg in args))
    assert code in (2, 3) and out == "" and told in err


def test_without_textual(golden, run, monkeypatch):
    """On a terminal the error names the missing package, and what works without it."""
    code = "import sys; sys.modules['textual'] = None; from rocketc.cli.main import main; main(sys.argv[1:])"
    path = golden("v533-store").path
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", code, "top", path]
    ended = subprocess.run(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(ours), os.close(theirs)
    assert ended.returncode == 2
    assert "pip install 'rocketc[top]'; --once and --json print one snapshot" in ended.stderr
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "rocketc.cli.top_screen")
    assert run("top", path, "--once", "-n", "0.1")[::2] == (0, "")


# ------------------------------------------------------------------------------------------------- the screen


def shown(app):
    """Return the text on the screen."""
    lines = re.findall(r"<text [^>]*>(.*?)</text>", app.export_screenshot())
    return "\n".join(lines).replace("&#160;", " ")


async def until(pilot, condition):
    while not condition():
        await pilot.pause(0.05)


def test_the_screen_of_a_written_store(live):
    async def look(store):
        app = Top("live", Watch(store), 0.1, "messages", "topics")
        async with app.run_test(size=(100, 24)) as pilot:
            await until(pilot, lambda: app.rates is not None and app.rates.messages_per_second)
            await until(pilot, lambda: all(text in shown(app) for text in ("busy", "calm", "messages/s", "quit")))
            end = app.rates.look.end
            await pilot.press("t")
            await until(pilot, lambda: "late" in shown(app) and "calm" not in shown(app))
            await pilot.press("t", "s")
            await until(pilot, lambda: (app.view, app.sort) == ("topics", "bytes"))
            await until(pilot, lambda: app.rates.look.end > end and "calm" in shown(app))
            await pilot.resize_terminal(60, 12)
            await until(pilot, lambda: "... 1 more" in shown(app))
            await pilot.press("q")
        assert app.return_code == 0

    with rocketc.open(live, read_only=True) as store:
        asyncio.run(asyncio.wait_for(look(store), 60))


@pytest.mark.long
def test_the_screen_continues_when_an_update_fails(open_store, tmp_path):
    store = open_store()
    store.put("a", b"x")
    store.wait_dispatched()

    async def look():
        app = Top("the path", Watch(store), 0.1, "messages", "topics")
        async with app.run_test(size=(200, 24)) as pilot:
            await until(pilot, lambda: app.rates is not None)
            store.close()
            await until(pilot, lambda: "the store is closed" in shown(app))

    asyncio.run(asyncio.wait_for(look(), 60))


@pytest.mark.long
def test_the_screen_on_a_terminal(live):
    """The command on a real terminal, ended by the key q."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "rocketc", "top", live, "-n", "0.1"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as top:
        os.close(theirs)
        seen = b""
        while b"busy" not in seen:
            seen += os.read(ours, 1 << 16)
        os.write(ours, b"q")
        try:
            while os.read(ours, 1 << 16):
                pass
        except OSError:  # it has ended
            pass
        assert top.wait(30) == 0
    os.close(ours)


@pytest.mark.measure
def test_an_update_of_a_thousand_queues_is_cheap(open_store, tmp_path):
    """One update a second takes less than 5 % of a core."""
    store = open_store(mapped_file_size_commit_log=1 << 20)
    for n in range(1000):
        store.put(f"topic-{n // 4}", b"x", queue_id=n % 4)
    store.wait_dispatched()
    me = psutil.Process()
    with rocketc.open(store.path, read_only=True) as reader:
        watch = Watch(reader)
        look = watch.look()
        before = me.cpu_times()
        for _ in range(10):
            Rates.between(look, watch.look())
        after = me.cpu_times()
    assert sum(of.queues for of in look.topics.values()) == 1000
    assert (after.user + after.system - before.user - before.system) / 10 < 0.05


def test_a_log_in_another_folder(run, tmp_path):
    where = {"store_path_commit_log": str(tmp_path / "log"), "mapped_file_size_commit_log": 4096}
    with rocketc.open(tmp_path / "s", **where) as s:
        s.put("orders", b"x")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path}/log\nmappedFileSizeCommitLog=4096\n")
    code, _, err = run("top", tmp_path / "s", "--json", "-n", "0.1")
    assert (code, err.count("no commit log here")) == (3, 1)
    code, out, err = run("top", tmp_path / "s", "--json", "-n", "0.1", "--conf", conf)
    assert (code, err) == (0, "")
    assert json.loads(out)["topics"][0]["topic"] == "orders"
