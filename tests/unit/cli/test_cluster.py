"""cat, get, stats, export, put and consume of a cluster: as of a store, and errors in one line."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

import rocketc
from rocketc.cli import exit_codes
from rocketc.cli.cluster_selection import warnings_noted
from rocketc.client import AsyncConsumer, Producer
from rocketc.client.send_results import SendResult, SendStatus
from rocketc.errors import NoAnswerError, NotSentError, PartlySentError

COUNT = 30


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one, Producer("shop", one.name_server) as producer:
        one.topics.create("mixed")
        for i in range(COUNT):
            body = b"\xff\x00" if i == 3 else b"z" * 9000 if i == 4 else b"body %d" % i
            producer.send("orders", body, tags=["web", "app", None][i % 3], keys=f"k{i}", properties={"n": str(i)})
        yield one


@pytest.fixture(scope="module")
def url(broker):
    return f"rocketmq://{broker.name_server}"


def without_file(text):
    """The messages without what only files have, and only clusters."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.pop("file", None)
        line.pop("brokerName", None)
    return lines


@pytest.mark.parametrize(
    "options",
    [
        "", "--tag web", "--tag web --tag app", "--key k7",
        "--sql KEYS='k7'/**/OR/**/TAGS='web'", "-o -1 --sql TAGS='web'", "--grep 1$", "-q 2", "-q 1 -o 3", "-o -2",
        "-o -1 --tag app",
        "-c 5", "-o 4", "--from 2020-01-01 --to 2021-01-01", "--from -10m", "--body hex", "--no-decompress",
        "--crc full",
        "--strict",
    ],
)  # fmt: skip
def test_cat_prints_the_same_json_as_cat_of_the_store(run, broker, url, options):
    code, out, err = run("cat", f"{url}/orders", "--json", *options.split())
    of_store = run("cat", broker.path, "-t", "orders", "--json", *options.split())
    assert (code, err) == (of_store[0], of_store[2])
    assert without_file(out) == without_file(of_store[1])
    assert '"file"' not in out


def test_cat_prints_the_same_lines_as_cat_of_the_store(run, broker, url):
    assert run("cat", f"{url}/orders") == run("cat", broker.path, "-t", "orders")
    assert run("cat", url, "-t", "/ord.*/", "-f", "%k\n") == run("cat", broker.path, "-t", "orders", "-f", "%k\n")


def test_a_pattern_in_the_url(run, broker, url):
    assert run("cat", f"{url}/ord*", "-f", "%k\n") == run("cat", broker.path, "-t", "/ord.*/", "-f", "%k\n")
    assert run("stats", f"{url}/ord*", "-J") == run("stats", f"{url}/orders", "-J")
    assert run("cat", f"{url}/none*") == (1, "", "rocketc: no topic /none.*/ in this cluster\n")


def test_cat_follows(run, url):
    assert run("cat", f"{url}/orders", "-F", "-c", str(COUNT), "-f", "%k\n")[1].splitlines()[-1] == f"k{COUNT - 1}"
    code, out, _ = run("cat", f"{url}/orders", "-F", "-o", "-1", "--tag", "app", "-c", "4", "-f", "%q@%o\n")
    assert (code, len(out.splitlines())) == (0, 4)
    code, out, _ = run("cat", f"{url}/orders", "-F", "-o", "5", "-c", "2", "-f", "%o\n")
    assert all(int(line) >= 5 for line in out.split())


def test_stats_counts_as_for_a_store(run, broker, url):
    for options in (["--by", "tag"], ["--by", "queue", "-J"], ["--tag", "web"], ["--by", "", "-J"]):
        assert run("stats", f"{url}/orders", *options) == run("stats", broker.path, "-t", "orders", *options)


def test_stats_shows_the_queues(run, broker, url):
    code, out, err = run("stats", f"{url}/orders", "-J")
    rows = [json.loads(line) for line in out.splitlines()]
    times = [message.store_timestamp for message in rocketc.scan(broker.path, topics="orders")]
    assert (code, err) == (0, "")
    assert [row["queueId"] for row in rows] == [0, 1, 2, 3]
    assert sum(row["messages"] for row in rows) == COUNT
    assert min(row["firstStoreTimestamp"] for row in rows) == min(times)
    assert max(row["lastStoreTimestamp"] for row in rows) == max(times)
    _, out, _ = run("stats", f"{url}/orders")
    assert out.splitlines()[0].startswith("topic   broker")
    assert out.splitlines()[-1].split()[:2] == ["total", str(COUNT)]


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet", "x.arrow"])
def test_export_writes_the_same_as_for_a_store(run, broker, url, tmp_path, name):
    columns = ["--columns", "topic,queueId,queueOffset,physicalOffset,body,keys,tags,properties,msgId"]
    for where, path in (("a", [f"{url}/orders"]), ("b", [broker.path, "-t", "orders"])):
        (tmp_path / where).mkdir()
        assert run("export", *path, "-o", tmp_path / where / name, *columns)[0] == 0
    if name == "x.parquet":  # only that of a store says that it is in the order of the log
        assert parquet.read_table(tmp_path / "a" / name).equals(parquet.read_table(tmp_path / "b" / name))
    elif name == "x.arrow":  # the unused bits of a bitmap may differ
        assert feather.read_table(tmp_path / "a" / name).equals(feather.read_table(tmp_path / "b" / name))
    else:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_get_prints_the_same_as_get_of_the_store(run, broker, url):
    [found] = without_file(run("get", broker.path, "--key", "k7", "-t", "orders", "--json")[1])
    for options in (["--key", "k7"], ["--id", found["msgId"]], ["--id", found["properties"]["UNIQ_KEY"].lower()]):
        code, out, err = run("get", f"{url}/orders", "--json", *options)
        assert (code, err) == (0, "")
        assert without_file(out) == [found]
    assert without_file(run("get", url, "--id", found["msgId"], "--json")[1]) == [found]
    assert "body, 6 bytes" in run("get", f"{url}/orders", "--key", "k7")[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--key", "nothing"], "no message of topic orders has the key 'nothing'"),
        (["--id", "7F00000100002A9F0000000000FF0000"], "has the id '7F00000100002A9F0000000000FF0000'"),
    ],
)
def test_get_finds_nothing(run, url, options, text):
    code, out, err = run("get", f"{url}/orders", *options)
    assert (code, out) == (exit_codes.NOT_FOUND, "")
    assert text in err
    assert run("get", url, "--id", "7F00000100002A9F0000000000FF0000")[2].endswith("name the topic\n")


# put


def put(run, monkeypatch, tmp_path, text, *args):
    (tmp_path / "input").write_bytes(text)
    return run("put", args[0], tmp_path / "input", *args[1:])


def test_put_lines(run, monkeypatch, tmp_path, url):
    options = ["--tag", "web", "--key", "k1", "--key", "k2", "--property", "a=b"]
    code, _, err = put(run, monkeypatch, tmp_path, b"one\ntwo\n", f"{url}/lines", *options)
    assert code == 0
    assert err.startswith(f"rocketc: 2 messages put into {url}/lines: 6 B in ")
    found = [json.loads(line) for line in run("cat", f"{url}/lines", "-J")[1].splitlines()]
    assert [(m["body"], m["tags"], m["keys"], m["properties"]["a"]) for m in found] == [
        ("one", "web", "k1 k2", "b"), ("two", "web", "k1 k2", "b"),
    ]  # fmt: skip


def test_put_into_queues(run, monkeypatch, tmp_path, url):
    assert put(run, monkeypatch, tmp_path, b"1\n2\n3\n", f"{url}/queues", "--queues", "3")[0] == 0
    assert put(run, monkeypatch, tmp_path, b"4\n", f"{url}/queues", "-q", "2", "--whole")[0] == 0
    assert sorted(run("cat", f"{url}/queues", "-f", "%q %s,")[1].split(",")) == ["", "0 1", "1 2", "2 3", "2 4\n"]
    code, _, err = put(run, monkeypatch, tmp_path, b"1\n2\n", f"{url}/queues", "-q", "9")
    assert code == exit_codes.DAMAGED
    assert "lines 1 to 2: not stored: topic 'queues' has the queues 0 to 3" in err


def test_put_takes_what_cat_prints(run, monkeypatch, tmp_path, url):
    lines = run("cat", f"{url}/orders", "--json", binary=True)[1]
    assert put(run, monkeypatch, tmp_path, lines, f"{url}/copied", "--jsonl")[0] == 0
    copied, orders = (run("cat", f"{url}/{topic}", "-f", "%q %k %g %S\n")[1] for topic in ("copied", "orders"))

    def in_queue(text, number):
        return [line for line in text.splitlines() if line.startswith(f"{number} ")]

    assert [in_queue(copied, number) for number in range(4)] == [in_queue(orders, number) for number in range(4)]
    [one] = without_file(run("cat", f"{url}/copied", "--key", "k5", "--json")[1])
    assert one["properties"]["n"] == "5"


def test_put_counts_what_is_stored_before_an_error(run, monkeypatch, tmp_path, url):
    code, out, err = put(run, monkeypatch, tmp_path, b"one\n\nthree\n", f"{url}/lines-2", "-J")
    assert code == exit_codes.DAMAGED
    assert json.loads(out)["messages"] == 1
    assert err == f"rocketc: {tmp_path}/input, line 2: an empty body; brokers refuse it\n"
    line = b'{"body":"AAAA","sysFlag":1}\n'
    assert "the body is compressed" in put(run, monkeypatch, tmp_path, line, f"{url}/lines-2", "--jsonl")[2]


def test_a_delay_is_kept(run, monkeypatch, tmp_path, url):
    line = b'{"body":"later","properties":{"DELAY":"18"}}\n'
    assert put(run, monkeypatch, tmp_path, line, f"{url}/delayed", "--jsonl")[0] == 0
    assert run("cat", f"{url}/SCHEDULE_TOPIC_XXXX", "--tag", "x")[2] == "rocketc: no message is selected\n"
    assert run("cat", f"{url}/SCHEDULE_TOPIC_XXXX", "-f", "%s")[1] == "later"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NotSentError("10.0.0.1:10911: no connection"), exit_codes.COULD_NOT, "lines 2 to 3: not stored: 10.0.0.1"),
        (NoAnswerError("10.0.0.1:10911: no answer"), exit_codes.COULD_NOT, "lines 2 to 3: may be stored: 10.0.0.1"),
    ],
)
def test_an_error_names_the_lines_that_are_not_stored(run, monkeypatch, tmp_path, url, error, code, text):
    def fails(self, topic, messages, **options):
        raise PartlySentError([SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "", None, 0, "")], error)

    monkeypatch.setattr(Producer, "send_many", fails)
    found, out, err = put(run, monkeypatch, tmp_path, b"1\n2\n3\n", f"{url}/lines", "-J")
    assert found == code
    assert text in err
    assert "1 message stored with the status FLUSH_DISK_TIMEOUT" in err
    assert json.loads(out) | {"seconds": 0} == {
        "path": f"{url}/lines", "messages": 1, "bytes": 1, "seconds": 0, "statuses": {"FLUSH_DISK_TIMEOUT": 1},
    }  # fmt: skip


def of_queues(*numbers, **others):
    """A line of JSON for each queue; the body is the number of the line."""
    lines = [json.dumps({"queueId": queue, "body": f"{i}", **others}) for i, queue in enumerate(numbers, 1)]
    return "".join(f"{line}\n" for line in lines).encode()


class Recording:
    """Producer.send_many(), which keeps what each call got, and fails as a test says.

    faults  by the number of the call, from 1
    """

    def __init__(self, monkeypatch, **faults):
        self.calls = []
        real = Producer.send_many

        def send_many(producer, topic, messages, *, queue=None):
            self.calls.append((queue and queue.queue_id, b"".join(one.body for one in messages)))
            fault = faults.get(f"call{len(self.calls)}")
            if fault is not None:
                fault = fault() if callable(fault) else fault
                raise fault
            return real(producer, topic, messages, queue=queue)

        monkeypatch.setattr(Producer, "send_many", send_many)


def test_lines_of_mixed_queues_are_sent_together(run, monkeypatch, tmp_path, url):
    assert run("admin", "create-topic", "mixed", "-n", url.removeprefix("rocketmq://"), "--queues", "3")[0] == 0
    sent = Recording(monkeypatch)
    assert put(run, monkeypatch, tmp_path, of_queues(2, 0, 1, 0, 2, 2, 1), f"{url}/mixed", "--jsonl")[0] == 0
    assert sent.calls == [(2, b"156"), (0, b"24"), (1, b"37")]
    shown = run("cat", f"{url}/mixed", "-f", "%q:%s ")[1].split()
    assert [[one[2:] for one in shown if one[0] == number] for number in "012"] == [["2", "4"], ["3", "7"], [*"156"]]
    assert put(run, monkeypatch, tmp_path, b"1\n2\n3\n4\n", f"{url}/mixed", "--queues", "2")[0] == 0
    assert sent.calls[3:] == [(0, b"13"), (1, b"24")]


def test_the_first_line_of_a_queue_makes_its_topic(run, monkeypatch, tmp_path, url):
    sent = Recording(monkeypatch)
    lines = of_queues(1, 0, 1, 1, 0)
    assert put(run, monkeypatch, tmp_path, lines, f"{url}/new", "--jsonl")[0] == 0
    assert sent.calls == [(1, b"34"), (0, b"25")]
    assert run("cat", f"{url}/new", "-q", "1", "-f", "%s ")[1] == "1 3 4 "
    Recording(monkeypatch, call1=PARTLY)
    code, out, err = put(run, monkeypatch, tmp_path, lines, f"{url}/newer", "--jsonl", "-J")
    assert code == exit_codes.COULD_NOT and json.loads(out)["messages"] == 2
    assert [line.partition("input, ")[2] for line in err.splitlines()] == [
        "line 4: may be stored: a:1: no answer", "lines 2 to 5 with topic 'newer', queue 0: not stored",
    ]  # fmt: skip


NOT_SENT, NO_ANSWER = NotSentError("a:1: no connection"), NoAnswerError("a:1: no answer")
PARTLY = PartlySentError([SendResult(SendStatus.SEND_OK, "", None, 0, "")], NO_ANSWER)


@pytest.mark.parametrize(
    ("queues", "faults", "stored", "texts"),
    [
        ((0, 1, 0, 1), {"call1": NOT_SENT}, 0,
         ["lines 1 to 3 with topic 'mixed', queue 0: not stored: a:1: no connection",
          "lines 2 to 4 with topic 'mixed', queue 1: not stored"]),
        ((0, 1, 0, 2), {"call2": NO_ANSWER}, 2, ["line 2: may be stored: a:1: no answer", "line 4: not stored"]),
        ((0, 0, 0, 1, 2, 1), {"call1": PARTLY}, 1,
         ["lines 2 to 3: may be stored: a:1: no answer", "lines 4 to 6: not stored"]),
        ((0, 1, 0, 1), {"call2": PARTLY}, 3, ["line 4: may be stored: a:1: no answer"]),
        ((0, 1, 1, 0, 2), {"call2": NOT_SENT}, 2,
         ["lines 2 to 3: not stored: a:1: no connection", "line 5: not stored"]),
    ],
)  # fmt: skip
def test_an_error_names_all_lines_of_mixed_queues(
    run, monkeypatch, tmp_path, url, queues, faults, stored, texts
):  # fmt: skip
    Recording(monkeypatch, **faults)
    code, out, err = put(run, monkeypatch, tmp_path, of_queues(*queues), f"{url}/mixed", "--jsonl", "-J")
    assert code == exit_codes.COULD_NOT and json.loads(out)["messages"] == stored
    assert err.splitlines() == [f"rocketc: {tmp_path}/input, {text}" for text in texts]


def test_the_text_about_mixed_lines_tells_them_apart(run, monkeypatch, tmp_path, url):
    Recording(monkeypatch, call1=NOT_SENT)
    lines = b'{"body":"1"}\n' + of_queues(1, 2, 1, 2) + b'{"body":"6"}\n{"body":"7","properties":{"DELAY":"18"}}\n' * 2
    _, _, err = put(run, monkeypatch, tmp_path, lines, f"{url}/mixed", "--jsonl")
    assert [line.partition("input, ")[2] for line in err.splitlines()] == [
        "lines 1 to 8 with topic 'mixed', no queue: not stored: a:1: no connection",
        "lines 2 to 4 with topic 'mixed', queue 1: not stored",
        "lines 3 to 5 with topic 'mixed', queue 2: not stored",
        "lines 7 to 9 with topic 'mixed', no queue, delay level 18: not stored",
    ]


def test_lines_before_a_wrong_one_are_sent(run, monkeypatch, tmp_path, url):
    sent = Recording(monkeypatch)
    lines = of_queues(0, 1, 0) + b"{}\n" + of_queues(1)
    code, out, err = put(run, monkeypatch, tmp_path, lines, f"{url}/lines", "--jsonl", "-J")
    assert code == exit_codes.DAMAGED and json.loads(out)["messages"] == 3 and len(sent.calls) == 2
    assert err.startswith(f"rocketc: {tmp_path}/input, line 4: give exactly one of ") and err.count("\n") == 1


def test_a_signal_between_the_queues_names_the_rest(run, monkeypatch, tmp_path, url):
    real = Producer.send_many

    def send_many(*args, **options):
        signal.raise_signal(signal.SIGINT)
        return real(*args, **options)

    monkeypatch.setattr(Producer, "send_many", send_many)
    code, _, err = put(run, monkeypatch, tmp_path, of_queues(0, 1, 0, 1), f"{url}/lines", "--jsonl")
    assert code == exit_codes.INTERRUPTED
    assert err.splitlines()[0] == f"rocketc: {tmp_path}/input, lines 2 to 4 with topic 'lines', queue 1: not stored"
    assert err.splitlines()[1].startswith("rocketc: 2 messages put into ")
    code, _, err = put(run, monkeypatch, tmp_path, of_queues(0, 0), f"{url}/lines", "--jsonl")
    assert code == exit_codes.INTERRUPTED and err.startswith("rocketc: 2 messages put into ")


# consume


def test_consume_commits_what_it_wrote(run, url):
    def consume(*options):
        code, out, err = run("consume", f"{url}/orders", "-g", "billing", *options)
        assert (code, err) == (0, "")
        return [json.loads(line)["keys"] for line in out.splitlines()]

    first = consume("-o", "beginning", "-c", "10")
    rest = consume("-c", str(COUNT - 10))
    assert sorted(first + rest) == sorted(f"k{i}" for i in range(COUNT))


def test_consume_from_a_time_with_tags_in_a_format(run, url):
    options = ["--from", "-1h", "--tag", "web", "-c", "10", "-f", "%k\n"]
    code, out, _ = run("consume", f"{url}/orders", "-g", "auditing", *options)
    assert code == 0
    assert sorted(out.split()) == sorted(f"k{i}" for i in range(0, COUNT, 3))


def test_consume_with_a_filter(run):
    with rocketc.Broker(enable_property_filter=True) as broker, Producer("shop", broker.name_server) as producer:
        for price in ("9", "250", "80"):
            producer.send("orders", price.encode(), properties={"price": price})
        url = f"rocketmq://{broker.name_server}/orders"
        options = ["-g", "auditing", "-o", "beginning", "--sql", "price > 10", "-c", "2", "-f", "%s\n"]
        code, out, err = run("consume", url, *options)
        assert (code, sorted(out.split()), err) == (0, ["250", "80"], "")


def test_consume_at_a_broker_without_filters_is_an_error(run, url):
    code, out, err = run("consume", f"{url}/orders", "-g", "filtering", "--sql", "n > 10", "-c", "1")
    assert (code, out) == (exit_codes.COULD_NOT, "") and "does not support consumer to filter message by SQL92" in err
    assert err.count("\n") == 1


def test_wrong_filters_of_consume(run, url):
    for options, text in (
        (["--tag", "web", "--sql", "n > 10"], "--tag and --sql: a group has either"),
        (["--sql", "n >"], "SQL filter, column 4"),
    ):
        code, _, err = run("consume", f"{url}/orders", "-g", "filtering", *options)
        assert code == exit_codes.USAGE and text in err


def test_signals_and_closed_pipes(run, url):
    """All at the same time, because each is a process of its own."""

    def start(*args, **options):
        command = [sys.executable, "-m", "rocketc", *args]
        return subprocess.Popen(command, stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **options})

    follow = ["cat", f"{url}/orders", "-F", "-f", "%k\n"]
    member = ["consume", f"{url}/orders", "-o", "beginning", "-g"]
    read, write = os.pipe()
    os.close(read)
    ended, closed, unread, stopped = (
        start(*follow), start(*follow), start(*member, "shipping", stdout=write), start(*member, "printing"),
    )  # fmt: skip
    os.close(write)
    with ended, closed, unread, stopped:
        for one in (ended, closed):
            assert one.stdout.readline() == b"k0\n"
        assert stopped.stdout.readline().startswith(b'{"topic"')
        ended.send_signal(signal.SIGINT)
        closed.stdout.close()
        began = time.monotonic()
        stopped.send_signal(signal.SIGTERM)
        stopped.communicate(timeout=10)
        assert time.monotonic() - began < 5
        codes = [one.wait(20) for one in (ended, closed, unread, stopped)]
        assert codes == [exit_codes.INTERRUPTED, exit_codes.DONE, exit_codes.DONE, 128 + signal.SIGTERM]
        assert [one.stderr.read() for one in (ended, closed, unread)] == [b""] * 3
    # what was not written comes again
    assert len(run(*member, "shipping", "-c", str(COUNT))[1].splitlines()) == COUNT


def test_a_warning_that_comes_again_is_one_line_a_minute(capsys, monkeypatch):
    log, now = logging.getLogger("rocketc.client"), [1000.0]

    def warn(text, at):
        now[0] = at
        log.handle(log.makeRecord(log.name, logging.WARNING, "", 0, "%s", (text,), None))

    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "time_ns", lambda: int(now[0] * 1e9))
    with warnings_noted():
        for i in range(100):
            warn("a pull failed", 1000.0 + i)
            warn("another one", 1000.0 + i)
    assert capsys.readouterr().err.splitlines() == ["rocketc: a pull failed", "rocketc: another one"] * 2
    with warnings_noted():
        for i in range(5_000):
            warn(f"text {i}", 2000.0)
        assert len(log.parent.handlers[-1].noted) < 2_000


def interrupted(*args, **options):
    """Two Ctrl-C for this process; the second one raises in its main thread."""
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)


def test_signals_while_a_command_ends(run, monkeypatch, tmp_path, url):
    close_producer, close_consumer = Producer.close, AsyncConsumer.close

    def close(self):
        close_producer(self)
        interrupted()

    async def aclose(self):
        await close_consumer(self)
        for _ in range(2):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)

    monkeypatch.setattr(Producer, "close", close)
    code, _, err = put(run, monkeypatch, tmp_path, b"1\n", f"{url}/lines-3")
    assert code == exit_codes.INTERRUPTED and err.startswith("rocketc: 1 message put into ")
    monkeypatch.undo()
    monkeypatch.setattr(AsyncConsumer, "close", aclose)
    code, out, err = run("consume", f"{url}/orders", "-g", "ending", "-o", "beginning", "-c", "1")
    assert (code, err, out.count("\n")) == (exit_codes.INTERRUPTED, "", 1)


def test_put_names_the_lines_of_a_send_that_is_interrupted(run, monkeypatch, tmp_path, url):
    def of_spark(number, frame):  # a Spark session leaves such a handler
        raise KeyboardInterrupt

    monkeypatch.setattr(Producer, "send_many", interrupted)
    before = signal.signal(signal.SIGINT, of_spark)
    try:
        code, _, err = put(run, monkeypatch, tmp_path, b"1\n2\n", f"{url}/lines")
        assert signal.getsignal(signal.SIGINT) is of_spark
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, err) == (exit_codes.INTERRUPTED, f"rocketc: {tmp_path}/input, lines 1 to 2: may be stored\n")


# errors


@pytest.mark.parametrize("command", ["cat", "stats", "export -o x.csv", "get --key k", "consume -g g"])
def test_a_topic_that_does_not_exist(run_here, url, command):
    name, *options = command.split()
    code, out, err = run_here(name, f"{url}/order", *options)
    assert (code, out, err) == (1, "", "rocketc: no topic order in this cluster; did you mean orders?\n")


@pytest.mark.parametrize("options", [[], ["-q", "3"]])
def test_put_into_a_topic_that_does_not_exist(run, monkeypatch, tmp_path, options):
    with rocketc.Broker(auto_create_topic_enable=False) as broker:
        assert run("admin", "create-topic", "orders", "-n", broker.name_server)[0] == 0
        where = f"rocketmq://{broker.name_server}/order"
        code, _, err = put(run, monkeypatch, tmp_path, b"1\n", where, *options)
        assert code == 1
        assert err == (
            f"rocketc: {tmp_path}/input, line 1: not stored: topic 'order': no broker has it, and none creates topics "
            "by itself; create it: rocketc admin create-topic order; did you mean orders?\n"
        )
        assert "did you mean" not in put(run, monkeypatch, tmp_path, b"1\n", where.replace("order", "x"), *options)[2]


@pytest.mark.parametrize("command", ["cat", "stats", "export -o x.csv", "get --key k", "consume -g g"])
def test_servers_that_do_not_know_routes(run_here, broker, command):
    name, *options = command.split()
    code, _, err = run_here(name, f"rocketmq://{broker.address}/orders", *options)
    assert code == exit_codes.COULD_NOT
    assert err.startswith(f"rocketc: {broker.address}: it is not a name server; give the address of a name server")
    code, _, err = run_here(name, "rocketmq://127.0.0.1:1/orders", *options)
    assert code == exit_codes.COULD_NOT
    assert err.startswith("rocketc: 127.0.0.1:1: ")
    assert err.count("\n") == 1


def test_http_on_the_port_is_one_line(run):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            peer, _ = listening.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        code, out, err = run("cat", f"rocketmq://{address}/orders")
    assert (code, out) == (exit_codes.COULD_NOT, "")
    assert err.startswith(f"rocketc: {address}: the connection ended")
    assert err.endswith("; no name server is reached: check that it runs, and its address\n")
    assert err.count("\n") == 1


USAGE = """
    cat URL | cat URL/orders -t x | cat URL/orders /data | cat URL/orders --start 5 | cat URL/orders --stop 5
    cat URL/orders --partial | cat URL/orders --as index | cat URL/orders -o end | cat URL/bad,topic
    cat URL/orders --group 1,2
    cat rocketmq://host/orders | cat rocketmq://host:99999/orders | cat rocketmq://me@host:1/orders | cat rocketmq://
    stats URL | cat / --access-key x | get / --key k --tls | put / -t t --tls
    get URL/orders --phy-offset 3 | get URL --key k | get URL -t a -t b --key k | get URL/orders
    put URL | put URL/orders --flush sync | put URL/orders --any-topic | put URL/orders --no-create
    put URL/orders -t t| put URL/orders --conf x | put rocketmq://host/orders
    consume URL/orders | consume URL -g g | consume /data -g g | consume rocketmq://host/orders -g g
    consume URL/orders -g 1,2 | consume URL/ord* -g g | put URL/ord* | get URL/ord* --key k
    cat URL/orders?tls=1 | cat URL/ord* -t orders | cat rocketmq://key:secret@host:9876/orders
"""


@pytest.mark.parametrize("line", [line.strip() for line in USAGE.replace("\n", "|").split("|") if line.strip()])
def test_wrong_usage_is_one_line(run_here, url, line):
    code, out, err = run_here(*line.replace("URL", url).split())
    assert (code, out) == (exit_codes.USAGE, "")
    assert err.count("\n") == 1, err
    assert "secret@" not in err


def test_a_group_of_its_own(run, url):
    assert run("cat", f"{url}/orders", "--group", "auditors", "-f", "%k ")[1].split()[0] == "k0"
