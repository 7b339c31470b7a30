"""rocketc cat, get, stats, export, put and consume at RocketMQ's own brokers."""

import json
import time

import pytest
from interop import scenarios
from interop.kept_tables import FLUSH_MS, tables
from interop.peer import RELEASES

from rocketc.client import Producer

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:no topic")]

COUNT = 200  # more than a pull of 32, and of several queues


@pytest.fixture(scope="module", params=RELEASES)
def place(request, tmp_path_factory):
    """The URL of a Java cluster with messages, and the folder of its store."""
    folder = tmp_path_factory.mktemp("python-shell")
    cluster = scenarios.JavaCluster(request.param, folder / "cluster", flushConsumerOffsetInterval=FLUSH_MS)
    try:
        with Producer("shop", cluster.name_server) as producer:
            for i in range(COUNT):
                body = b"z" * 9000 if i == 50 else b"body %d" % i
                producer.send("orders", body, tags="web" if i % 3 else "app", keys=f"k{i}")
        yield f"rocketmq://{cluster.name_server}", folder / "cluster" / "store"
        cluster.end()
    finally:
        cluster.close()


def shown(text):
    """The messages that were printed, without the names of files."""
    return [
        {name: value for name, value in json.loads(line).items() if name not in ("file", "brokerName")}
        for line in text.splitlines()
    ]


def test_reading_is_as_reading_the_store_and_leaves_nothing(place, run, tmp_path):
    url, store = place
    run("consume", f"{url}/orders", "-g", "first", "-o", "beginning", "-c", "5")  # the tables have entries
    offsets, end = store / "config" / "consumerOffset.json", time.monotonic() + 30
    while not (offsets.exists() and "orders@first" in offsets.read_text()):  # the broker writes it 10 s after its start
        assert time.monotonic() < end
        time.sleep(0.2)
    before = tables(store, with_empty=True)
    for options in ([], ["--tag", "web"], ["-o", "-3"], ["--grep", "7$"], ["--from", "-1h"], ["--to", "2020-01-01"]):
        code, out, err = run("cat", f"{url}/orders", "--json", *options)
        of_store = run("cat", store, "-t", "orders", "--json", *options)
        assert (code, err) == (of_store[0], of_store[2])
        assert shown(out) == shown(of_store[1])
    times = sorted(message["storeTimestamp"] for message in shown(run("cat", f"{url}/orders", "--json")[1]))
    for at in (times[0], times[COUNT // 2], times[-1] + 1):
        for option in ("--from", "--to"):
            found = run("cat", f"{url}/orders", "-f", "%k\n", option, at)[1]
            assert found == run("cat", store, "-t", "orders", "-f", "%k\n", option, at)[1]
    assert run("stats", f"{url}/orders", "--by", "tag") == run("stats", store, "-t", "orders", "--by", "tag")
    rows = shown(run("stats", f"{url}/orders", "-J")[1])
    assert sum(row["messages"] for row in rows) == COUNT
    assert min(row["firstStoreTimestamp"] for row in rows) == times[0]
    assert max(row["lastStoreTimestamp"] for row in rows) == times[-1]
    [one] = shown(run("get", f"{url}/orders", "--key", "k7", "--json")[1])
    for options in (["--id", one["msgId"]], ["--id", one["properties"]["UNIQ_KEY"]]):
        assert shown(run("get", f"{url}/orders", "--json", *options)[1]) == [one]
    assert run("get", f"{url}/orders", "--key", "nothing")[0] == 1
    assert run("export", f"{url}/orders", "-o", tmp_path / "x.csv", "--columns", "keys,body")[0] == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == COUNT + 1
    assert run("cat", f"{url}/orders", "-F", "-c", str(COUNT), "-f", "%k\n")[1].splitlines()[-1] == f"k{COUNT - 1}"
    assert tables(store, with_empty=True) == before


def test_put_and_consume(place, run, tmp_path):
    url, _ = place
    lines = run("cat", f"{url}/orders", "--json", "-c", "20", binary=True)[1]
    (tmp_path / "lines").write_bytes(lines)
    code, _, err = run("put", f"{url}/copied", tmp_path / "lines", "--jsonl")
    assert code == 0, err
    keys = sorted(message["keys"] for message in shown(lines.decode()))
    first = shown(run("consume", f"{url}/copied", "-g", "copiers", "-o", "beginning", "-c", "8")[1])
    rest = shown(run("consume", f"{url}/copied", "-g", "copiers", "-c", "12")[1])
    assert sorted(message["keys"] for message in first + rest) == keys


def test_lines_of_mixed_queues(place, run, tmp_path):
    url, _ = place
    lines = "".join(json.dumps({"queueId": i % 4, "body": f"{i}"}) + "\n" for i in range(100))
    (tmp_path / "mixed").write_text(lines)
    code, out, err = run("put", f"{url}/mixed", tmp_path / "mixed", "--jsonl", "-J")
    assert code == 0 and json.loads(out)["messages"] == 100, err
    found = [line.split() for line in run("cat", f"{url}/mixed", "-f", "%q %s\n")[1].splitlines()]
    for queue in range(4):
        assert [int(body) for number, body in found if int(number) == queue] == list(range(queue, 100, 4))


def test_top_of_a_topic(place, run):
    url, _ = place
    code, out, err = run("top", f"{url}/orders", "--json", "-n", "0.5")
    assert (code, err) == (0, "")
    [one] = json.loads(out)["brokers"]
    assert one["endOffset"] > COUNT and one["broker"]["brokerVersionDesc"].startswith("V")
    code, out, err = run("top", f"{url}/orders", "--once", "-n", "0.5")
    assert (code, err) == (0, "") and f"broker    {one['brokerName']}, {one['address']}" in out


def test_errors_are_one_line(place, run):
    url, _ = place
    assert run("cat", f"{url}/order") == (1, "", "rocketc: no topic order in this cluster; did you mean orders?\n")
