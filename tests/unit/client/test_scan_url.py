"""rocketc.scan("rocketmq://..."): the messages of the broker's own files, bounds, arguments, errors, and no trace."""

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.secured import ACCESS_KEY, SECRET, Secured

import rocketc
from rocketc.client import Credentials, NewMessage, Producer, Tls, topic_reader, topic_scan
from rocketc.client.access import access_to
from rocketc.client.cluster_url import topic_url
from rocketc.client.direct_pulls import DirectPulls
from rocketc.client.loop_thread import give_back_loop, shared_loop
from rocketc.client.topic_merge import TopicMerge
from rocketc.client.topic_reader import TopicReader
from rocketc.client.topic_scan import TopicScan
from rocketc.errors import AnswerError, ConnectionLostError, NotSentError, SqlError, TopicNotFoundError
from rocketc.read.record_block import RecordBlock

COUNT = 60
COLUMNS = [name for name in rocketc.COLUMN_NAMES if name not in ("file", "brokerName")]
REGIONS = ("eu", "us", None)


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker(enable_property_filter=True) as one, Producer("shop", one.name_server) as producer:
        for i in range(COUNT - 2):
            properties = {"price": str(i), **({"region": region} if (region := REGIONS[i % 3]) else {})}
            body = b"x" * 9000 if i == 7 else b"body %d" % i
            producer.send("orders", body, tags=["web", "app"][i % 2], keys=f"k{i} all", properties=properties)
        producer.send_many("orders", [NewMessage(b"in a batch", tags="web"), b"in a batch, too"])
        for i in range(5):
            producer.send("orders-old", b"old %d" % i)
        producer.send("bills", b"a bill")
        yield one


@pytest.fixture
def url(broker):
    return f"rocketmq://{broker.name_server}"


@pytest.fixture
def general(monkeypatch):
    """Scans do not use direct pulls."""
    monkeypatch.setattr(TopicReader, "direct_pulls", lambda *_, **__: None)


def without(message, name):
    return {key: value for key, value in message.to_dict().items() if key != name}


def rows(scan):
    return scan.to_arrow().sort_by("physicalOffset").to_pylist()


# the same as the files


@pytest.mark.parametrize("way", ["direct", "general"])
def test_the_rows_are_those_of_the_files(broker, url, way, request):
    if way == "general":
        request.getfixturevalue("general")
    ours = rocketc.scan(f"{url}/orders", columns=COLUMNS)
    of_files = rocketc.scan(broker.path, topics="orders", columns=COLUMNS)
    assert ours.to_arrow().equals(of_files.to_arrow())
    assert [without(m, "brokerName") for m in ours] == [without(m, "file") for m in of_files]
    assert (ours.report.records, ours.report.damage, ours.count()) == (COUNT, [], COUNT)
    assert rocketc.scan(f"{url}/orders").to_arrow()["file"].null_count == COUNT


def test_all_ways_to_read(url):
    scan = rocketc.scan(f"{url}/orders", columns=["body"])
    assert sum(batch.num_rows for batch in scan.batches()) == COUNT
    assert pyarrow.table(scan).num_rows == COUNT
    assert pyarrow.schema(scan).names == ["body"]
    assert next(scan.follow()).body.startswith(b"body")
    scan.close()
    assert isinstance(scan, rocketc.Scan)
    assert scan.by_file() == [scan]
    assert "rocketmq://" in scan._repr_html_()


TIMES = st.sampled_from([0, 0.2, 0.5, 0.9, 1, 1.5])
BOUND = st.none() | st.integers(0, 20)
SQL = (
    "price > 10", "region = 'eu'", "region IS NULL OR price BETWEEN 5 AND 8", "TAGS = 'web' AND price > 3",
    "NOT (region = 'eu')", "KEYS CONTAINS '7'", "price > 1.5 AND region <> 'us'",
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    tags=st.none() | st.sampled_from(["web", "app||web", ["app"], "none", "*"]),
    keys=st.none() | st.sampled_from(["k5", "all", ["k1", "k2"], "none"]),
    sql=st.none() | st.sampled_from(SQL),
    queues=st.none() | st.integers(0, 4) | st.sets(st.integers(0, 3)),
    times=st.tuples(st.none() | TIMES, st.none() | TIMES),
    offsets=st.none() | st.dictionaries(st.none() | st.integers(0, 3), st.tuples(BOUND, BOUND)),
)
def test_filters_select_the_same_messages_as_of_files(broker, tags, keys, sql, queues, times, offsets):
    stored = sorted(m.store_timestamp for m in rocketc.scan(broker.path, topics="orders"))

    def at(part):
        return None if part is None else round(stored[0] + part * (stored[-1] - stored[0]))

    how = {"tags": tags, "keys": keys, "sql": sql, "queues": queues, "begin": at(times[0]), "end": at(times[1])}
    how["offsets"] = None if offsets is None else {"orders": offsets}
    ours = rocketc.scan(f"rocketmq://{broker.name_server}/orders", columns=COLUMNS, **how)
    of_files = rocketc.scan(broker.path, topics="orders", columns=COLUMNS, **how)
    assert ours.to_arrow().equals(of_files.to_arrow())


def test_a_time_of_microseconds(broker, url):
    from datetime import datetime, timedelta, timezone

    for stored in sorted({m.store_timestamp for m in rocketc.scan(broker.path, topics="orders")})[:8]:
        at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=stored)
        for when in (at, at + timedelta(microseconds=1), at - timedelta(microseconds=1)):
            for how in ({"begin": when}, {"end": when}):
                assert rows(rocketc.scan(f"{url}/orders", columns=COLUMNS, **how)) == rows(
                    rocketc.scan(broker.path, topics="orders", columns=COLUMNS, **how)
                )


def test_only_what_the_offsets_ask_for_is_pulled(url, general, monkeypatch):
    pulled, real = [], TopicReader.pull

    async def pull(self, queue, offset, **how):
        pulled.append((queue.queue_id, offset))
        return await real(self, queue, offset, **how)

    monkeypatch.setattr(TopicReader, "pull", pull)
    scan = rocketc.scan(f"{url}/orders", offsets={"orders": {2: (5, 6)}})
    assert [(m.queue_id, m.queue_offset) for m in scan] == [(2, 5)]
    assert pulled == [(2, 5)]


@pytest.mark.parametrize("progress", [False, True])
def test_after_an_answer_that_is_not_usual_the_direct_way_is_taken_again(broker, url, monkeypatch, progress):
    """Each way reads some blocks; without progress of the direct one, the general one reads the rest."""
    with Producer("shop", broker.name_server) as producer:
        for _ in range(16):
            producer.send_many(f"large-{progress}", [b"x" * 1000] * 500)
    ways, real = [], TopicMerge.next

    async def next_block(self):
        ways.append("general")
        return await real(self)

    class Stopping(DirectPulls):
        def next(self):
            ways.append("direct")
            return (
                super().next() if progress and ways[-2:] != ["direct"] * 2 else RecordBlock()
            )  # as after an unusual answer

    monkeypatch.setattr(TopicMerge, "next", next_block)
    monkeypatch.setattr(topic_reader, "DirectPulls", Stopping)
    monkeypatch.setattr(topic_scan, "_UNUSUAL", 1e-9)
    offsets = [m.phy_offset for m in rocketc.scan(f"{url}/large-{progress}")]
    assert len(offsets) == 8000 and offsets == sorted(offsets)
    assert ways.count("direct") > 4 if progress else ways.count("direct") == 3
    assert ways.count("general") > 3


def test_what_comes_later_is_not_read(broker, url):
    with Producer("shop", broker.name_server) as producer:
        for _ in range(4):
            producer.send("growing", b"before")
        messages = iter(rocketc.scan(f"{url}/growing"))
        found = [next(messages).body]
        for _ in range(4):
            producer.send("growing", b"after")
    assert found + [m.body for m in messages] == [b"before"] * 4


def test_a_topic_of_two_brokers(broker, url):
    with (
        rocketc.Broker(namesrv_addr=broker.name_server, broker_name="broker-b") as other,
        Producer("shop", broker.name_server) as producer,
    ):
        broker.topics.create("spread")
        other.topics.create("spread")

        async def all_queues():
            async with TopicReader(access_to(broker.name_server)) as reader:
                return await reader.queues("spread")

        while len(queues := asyncio.run(all_queues())) < 8:
            time.sleep(0.05)
        for i in range(40):
            producer.send("spread", b"%d" % i, queue=queues[i % len(queues)])
            time.sleep(0.002)
        scan = rocketc.scan(f"{url}/spread", columns=COLUMNS)
        both = [m for each in (broker, other) for m in rocketc.scan(each.path, topics="spread")]
        assert {m.store_host for m in both} == {broker.address, other.address}
        found = list(scan)
        assert sorted(m.msg_id for m in found) == sorted(m.msg_id for m in both)
        times = [m.store_timestamp for m in found]
        assert times == sorted(times) and scan.to_arrow().num_rows == 40
        one = [m for m in both if m.queue_id == 1 and m.queue_offset >= 2]
        part = rocketc.scan(f"{url}/spread", offsets={"spread": {1: (2, None)}})
        assert sorted(m.msg_id for m in part) == sorted(m.msg_id for m in one)


# topics


def test_several_topics(broker, url):
    def count(*path, **how):
        return rocketc.scan(*path, **how).count()

    assert count(f"{url}/orders*") == COUNT + 5
    assert count(f"{url}/*old") == 5
    assert count(url, topics="bills") == count(f"{url}/", topics=["bills"]) == count([f"{url}/bills"]) == 1
    assert count(url, topics=["bills", re.compile("orders-.*")]) == 6
    found = {m.topic for m in rocketc.scan(f"{url}/*")}
    assert found >= {"orders", "orders-old", "bills"}
    two = f"rocketmq://{broker.name_server};{broker.name_server}/bills"
    assert count(two) == 1
    assert count(f"rocketmq://127.0.0.1:1;{broker.name_server}/bills") == 1


@pytest.mark.parametrize(
    ("text", "pattern"),
    [("orders*", "orders.*"), ("*", ".*"), ("a*b**c", "a.*b.*c"), ("%DLQ%*", "%DLQ%.*"), ("a|b*", r"a\|b.*")],
)
def test_a_pattern_of_a_url(text, pattern):
    found = topic_url(f"rocketmq://127.0.0.1:9876/{text}", patterns=True)
    assert (found.topic, found.pattern.pattern) == (None, pattern)
    with pytest.raises(ValueError, match="name one topic; several can only be read"):
        topic_url(f"rocketmq://127.0.0.1:9876/{text}")


# arguments


@pytest.mark.parametrize(
    ("path", "how", "text"),
    [
        ("/orders", {"start": 0}, "start is for files of a log, not for a cluster: .* use offsets, or begin and end"),
        ("/orders", {"stop": 5}, "stop is for files of a log, not for a cluster: .* use offsets, or begin and end"),
        ("/orders", {"storage_options": {"key": "swordfish"}}, "storage_options is for files .*: use credentials"),
        ("/orders", {"partial": True}, "partial is for files of a log, not for a cluster: leave it out"),
        ("/orders", {"unreadable": "skip"}, "unreadable is for files of a log, not for a cluster: leave it out; "),
        ("/orders", {"topics": "orders"}, "names the topic already: leave out topics"),
        ("/orders*", {"topics": "orders"}, "names the topic already: leave out topics"),
        ("", {}, "name the topic, as in rocketmq://127.0.0.1:9/orders, or with topics="),
        ("/", {"topics": []}, "name the topic, as in "),
        ("/a,b", {}, "topic 'a,b': a topic name may only have letters"),
        ("/orders?tls=swordfish", {}, "does not have options after `\\?`"),
        ("/orders", {"group": "1,2"}, "group '1,2'"),
        ("/orders", {"errors": "ignore"}, "errors='ignore'"),
        ("/orders", {"batch_bytes": "many"}, "batch_bytes"),
        ("/orders", {"sql": "price >"}, "SQL filter, column 8"),
        ("/orders", {"columns": ["price"]}, "price"),
    ],
)
def test_wrong_arguments(path, how, text):
    with pytest.raises(ValueError, match=text) as caught:
        rocketc.scan(f"rocketmq://127.0.0.1:9{path}", **how)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    "how",
    [{"topics": 5}, {"topics": ["a", 5]}, {"credentials": ("a", "b")}, {"tls": "yes"}, {"group": 5},
     {"offsets": {"orders": {"0": (0, 1)}}}, {"queues": "0"}],
)  # fmt: skip
def test_wrong_types(how):
    with pytest.raises(TypeError):
        rocketc.scan(f"rocketmq://127.0.0.1:9{'' if 'topics' in how else '/orders'}", **how)


def test_misspelled_arguments():
    with pytest.raises(TypeError, match=r"scan\(\): unknown keyword credential; did you mean credentials\?"):
        rocketc.scan("rocketmq://127.0.0.1:9/orders", credential=None)


@pytest.mark.parametrize("where", ["", "host", "host:99999", "host:0", "me@host:9", "key:swordfish@host:9876"])
def test_wrong_addresses(where):
    with pytest.raises(ValueError, match="give the address of a name server") as caught:
        rocketc.scan(f"rocketmq://{where}/orders")
    assert "swordfish" not in str(caught.value)
    assert ("accounts are not part of the URL" in str(caught.value)) == ("@" in where)


def test_a_cluster_beside_other_paths(tmp_path):
    for paths in (["rocketmq://127.0.0.1:9/orders", tmp_path], [str(tmp_path), "rocketmq://127.0.0.1:9/orders"]):
        with pytest.raises(ValueError, match="orders: a cluster can't be read together with other paths"):
            rocketc.scan(paths)


@pytest.mark.parametrize("how", [{"credentials": Credentials("a", "swordfish")}, {"tls": True}, {"group": "billing"}])
def test_arguments_of_clusters_with_files(tmp_path, how):
    [name] = how
    with pytest.raises(ValueError, match=f"^{name} is for a cluster, as in rocketmq://127.0.0.1:9876/orders") as caught:
        rocketc.scan(tmp_path, **how)
    assert "swordfish" not in str(caught.value)


def test_a_wrong_filter_is_an_error_of_the_scan():
    with pytest.raises(SqlError):
        rocketc.scan("rocketmq://127.0.0.1:9/orders", sql="region > 'a'")


def test_iterators_as_arguments(url):
    scan = rocketc.scan(url, topics=iter(["orders"]), tags=iter(["web"]), queues=iter([0, 1]), keys=iter(["all"]))
    found = scan.count()
    assert 0 < found == scan.count() == len(list(scan))


# SQL92 at the broker


def types_of_pulls(monkeypatch):
    """The types of the expressions that are pulled with."""
    found, real = [], TopicReader.pull

    async def pull(self, queue, offset, **how):
        answer = await real(self, queue, offset, **how)
        found.append((how.get("expression_type", "TAG"), len(answer.places)))
        return answer

    monkeypatch.setattr(TopicReader, "pull", pull)
    return found


def test_the_broker_selects_by_sql(url, general, monkeypatch):
    pulls = types_of_pulls(monkeypatch)
    assert rocketc.scan(f"{url}/orders", sql="price = 11").count() == 1
    assert {kind for kind, _ in pulls} == {"SQL92"} and sum(count for _, count in pulls) == 1


@pytest.mark.parametrize("how", [{"tags": "web"}, {"sql": "price = 11", "tags": "app"}, {"sql": "KEYS CONTAINS '11'"}])
def test_other_filters_are_tags_for_the_broker(url, general, monkeypatch, how):
    pulls = types_of_pulls(monkeypatch)
    assert rocketc.scan(f"{url}/orders", **how).count() == (COUNT // 2 if "sql" not in how else 1)
    assert {kind for kind, _ in pulls} == {"TAG"}


def test_a_broker_that_does_not_select_by_sql(monkeypatch):
    """RocketMQ's default is enablePropertyFilter=false."""
    with rocketc.Broker() as broker, Producer("shop", broker.name_server) as producer:
        for i in range(20):
            producer.send("orders", b"x", properties={"price": str(i)})
        pulls = types_of_pulls(monkeypatch)
        scan = rocketc.scan(f"rocketmq://{broker.name_server}/orders", sql="price > 15")
        assert sorted(m.properties["price"] for m in scan) == ["16", "17", "18", "19"]
        assert "TAG" in {kind for kind, _ in pulls}
        messages = scan.follow()
        assert sorted(next(messages).properties["price"] for _ in range(4)) == ["16", "17", "18", "19"]
        scan.close()


# passes


def test_two_passes_at_the_same_time(url):
    scan = rocketc.scan(f"{url}/orders", columns=["keys"])
    first, second = iter(scan), iter(scan)
    assert next(first).keys == next(second).keys == "k0 all"
    assert len(list(first)) == len(list(second)) == COUNT - 1


def test_a_join_of_a_scan_with_itself(url):
    duckdb = pytest.importorskip("duckdb")
    scan = rocketc.scan(f"{url}/orders", columns=["keys", "tags"])
    assert duckdb.sql("select count(*) from scan a join scan b using (keys)").fetchall() == [(COUNT - 2,)]
    del scan


def test_an_error_in_duckdb_is_one_line():
    duckdb = pytest.importorskip("duckdb")
    scan = rocketc.scan("rocketmq://127.0.0.1:1/orders")
    with pytest.raises(duckdb.Error, match=r"127\.0\.0\.1:1: "):
        duckdb.sql("select count(*) from scan").fetchall()
    del scan


def test_a_pass_that_is_left_ends_in_the_background(url):
    """Garbage collection may run on the thread of the loop, which must not wait for itself."""
    thread = shared_loop()
    try:
        messages = [iter(rocketc.scan(f"{url}/orders"))]
        assert next(messages[0]).queue_offset == 0
        before = threading.active_count()

        async def forget():
            messages.clear()
            gc.collect()

        thread.run(forget())
        end = time.monotonic() + 10
        while any(one.name == "rocketc-scan-end" for one in threading.enumerate()):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert threading.active_count() <= before
        assert rocketc.scan(f"{url}/orders").count() == COUNT
    finally:
        give_back_loop(thread)


@pytest.mark.parametrize(
    "ends",
    ["", "import os; pid = os.fork(); pid and os.waitpid(pid, 0)", "del messages", "scan.close()"],
)
def test_a_program_ends_in_the_middle_of_a_pass(url, ends):
    code = (
        f"import rocketc; scan = rocketc.scan({url!r} + '/orders'); messages = iter(scan); next(messages); "
        f"print(scan.report.records > 0)\n{ends}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_files_do_not_load_the_client(tmp_path):
    (tmp_path / "00000000000000000000").write_bytes(rocketc.encode("orders", b"hi"))
    code = (
        f"import sys, rocketc; rocketc.scan({str(tmp_path)!r}).count(); "
        "print([name for name in sys.modules if name.startswith(('rocketc.client', 'rocketc.remoting', 'asyncio'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_export(url, tmp_path):
    path = tmp_path / "orders.parquet"
    report = rocketc.export(rocketc.scan(f"{url}/orders"), path)
    assert (report.rows, report.scan.damage) == (COUNT, [])
    file = pyarrow.parquet.ParquetFile(path)
    assert file.metadata.num_rows == COUNT
    assert not file.metadata.row_group(0).sorting_columns  # several brokers have several logs
    assert rocketc.export(rocketc.scan(f"{url}/orders"), tmp_path / "folder", partition_by="topic").rows == COUNT


# accounts, and secrets


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    servers = Secured(tmp_path_factory.mktemp)
    yield servers
    servers.close()


def test_an_account_and_tls(secured):
    account = Credentials(ACCESS_KEY, SECRET)
    for kind, tls in (("plain", False), ("tls", Tls(secured.file("ca")))):
        where = secured[kind].name_server
        with Producer("shop", where, credentials=account, tls=tls) as producer:
            producer.send("orders", b"signed")
        scan = rocketc.scan(f"rocketmq://{where}/orders", credentials=account, tls=tls)
        assert [m.body for m in scan] == [b"signed"]
        assert SECRET not in repr(scan) + scan._repr_html_()
        assert rocketc.scan(f"rocketmq://{where}/orders", credentials=account, tls=tls, group="auditors").count() == 1


def test_an_account_that_is_refused(secured):
    where = secured["plain"].name_server
    with Producer("shop", where, credentials=Credentials(ACCESS_KEY, SECRET)) as producer:
        producer.send("refused", b"signed")
    for account, says in (
        (Credentials(ACCESS_KEY, "a wrong secret"), "Check signature failed"),
        (None, "No accessKey"),
    ):
        with pytest.raises(AnswerError, match=says) as caught:
            rocketc.scan(f"rocketmq://{where}/refused", credentials=account).to_arrow()
        assert "wrong secret" not in str(caught.value) and "\n" not in str(caught.value)


# errors


def test_no_name_server():
    began = time.monotonic()
    with pytest.raises(NotSentError, match=r"^127\.0\.0\.1:1: ") as caught:
        rocketc.scan("rocketmq://127.0.0.1:1/orders").to_arrow()
    assert "\n" not in str(caught.value) and time.monotonic() < began + 5


def test_an_unknown_topic(url):
    with pytest.raises(TopicNotFoundError, match=r"^no topic order in this cluster; did you mean orders\?$"):
        rocketc.scan(f"{url}/order").count()
    with pytest.raises(TopicNotFoundError, match=r"^no topic /nothing\.\*/ in this cluster$"):
        rocketc.scan(f"{url}/nothing*").count()


def test_a_broker_that_is_the_name_server(broker):
    with pytest.raises(AnswerError, match="it is not a name server; give the address of a name server"):
        rocketc.scan(f"rocketmq://{broker.address}/orders").count()


def test_a_broker_that_dies(tmp_path):
    with rocketc.Broker() as broker:
        with Producer("shop", broker.name_server) as producer:
            queue = producer.send("orders", b"x").queue
            for _ in range(100):
                producer.send_many("orders", [b"x" * 20_000] * 30, queue=queue)
        address = broker.address
        messages = iter(rocketc.scan(f"rocketmq://{broker.name_server}/orders"))
        next(messages)
        broker.close()
        began = time.monotonic()
        with pytest.raises((NotSentError, ConnectionLostError), match=re.escape(address)) as caught:
            list(messages)
    assert "\n" not in str(caught.value) and time.monotonic() < began + 10


def test_a_broker_that_dies_is_the_error_even_if_the_name_server_dies_too(monkeypatch):
    """It is in the error, not the name server that is asked whether another broker is the master now."""
    monkeypatch.setattr(topic_reader, "_PAUSE", 0.01)

    async def main(broker):
        async with TopicReader(access_to(broker.name_server)) as reader:
            [queue, *_] = await reader.queues("orders")
            broker.close()
            with pytest.raises(NotSentError, match=re.escape(reader.address(queue))):
                await reader.pull_surely(queue, 0)

    with rocketc.Broker() as broker:
        broker.topics.create("orders")
        asyncio.run(main(broker))


# no trace


def tables_in(folder):
    """The tables of a broker that has ended, but for counters of changes."""
    found = {}
    for path in sorted((Path(folder) / "config").glob("*.json")):
        table = json.loads(path.read_text() or "{}")
        table.pop("dataVersion", None)
        found[path.name] = table
    return found


def test_nothing_stays_in_the_broker(tmp_path):
    with (
        rocketc.Broker(tmp_path / "store", enable_property_filter=True) as broker,
        Producer("shop", broker.name_server) as producer,
    ):
        for i in range(40):
            producer.send("orders", b"x", tags="web", properties={"price": str(i)})
    with rocketc.Broker(tmp_path / "store", enable_property_filter=True):
        pass
    before = tables_in(tmp_path / "store")
    assert "topics.json" in before and "subscriptionGroup.json" in before
    with rocketc.Broker(tmp_path / "store", enable_property_filter=True) as broker:
        url = f"rocketmq://{broker.name_server}"
        for how in ({}, {"tags": "web"}, {"sql": "price > 3"}, {"begin": 5}, {"queues": 0}):
            assert rocketc.scan(f"{url}/orders", **how).count() > 0
        assert rocketc.scan(f"{url}/o*").count() == 40
        scan = rocketc.scan(f"{url}/orders", sql="price > 3")
        messages = scan.follow()
        assert [next(messages).body for _ in range(36)] == [b"x"] * 36
        scan.close()
        with pytest.raises(TopicNotFoundError):
            rocketc.scan(f"{url}/another").count()
    assert tables_in(tmp_path / "store") == before


def test_the_scan_is_a_topic_scan(url):
    scan = rocketc.scan(f"{url}/orders", tags="web", offsets={"orders": {0: (1, None)}})
    assert isinstance(scan, TopicScan)
    assert repr(scan) == (
        f"<rocketc.Scan of {url}/orders, a stream, tags='web', offsets={{'orders': {{0: (1, None)}}}}>"
    )
    assert TopicScan(access_to("127.0.0.1:9"), ["orders"]).bytes == os.path.getsize(os.devnull) == 0
