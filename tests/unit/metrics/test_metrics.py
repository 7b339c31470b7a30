"""rocketc.metrics: the numbers agree with the operations, and Prometheus and OpenTelemetry get the same numbers."""

import gc
import os
import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import rocketc
from rocketc.metrics import Histogram, Watch, measures
from rocketc.metrics.opentelemetry import observe
from rocketc.metrics.prometheus import StoreCollector
from rocketc.tables.offsets import ConsumerOffsets

NODE = {"node_id": "n"}


def values(store, name, *labels):
    """Return {values of some labels: value} of a metric; the key is () without labels."""
    [one] = [one for one in measures(store, NODE) if one.name == name]
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in one.samples}


def value(store, name):
    [found] = values(store, name).values()
    return found


def put_some(store):
    """Put messages of 10 and 5,000 bytes into two queues of `a`, one of 2 MB into `b`. Return the record bytes."""
    sizes = {"a": 0, "b": 0}
    for n in range(10):
        sizes["a"] += store.put("a", bytes(10), queue_id=n % 2).size
    sizes["a"] += store.put("a", bytes(5000)).size
    sizes["b"] += store.put("b", bytes(2_000_000)).size
    assert store.wait_dispatched(10)
    return sizes


@pytest.fixture
def store(open_store):
    return open_store(mapped_file_size_commit_log=4 << 20)


def test_incoming_messages(store):
    sizes = put_some(store)
    store.put_batch("a", [(0, b"one", None), (0, b"two", None)])
    assert store.wait_dispatched(10)
    assert values(store, "rocketmq_messages_in_total", "topic", "is_system") == {("a", "false"): 13, ("b", "false"): 1}
    assert values(store, "rocketc_topic_messages", "topic") == {("a",): 13, ("b",): 1}
    of = values(store, "rocketmq_throughput_in_total", "topic")
    assert of[("b",)] == sizes["b"]
    assert of[("a",)] == store.max_phy_offset - sizes["b"]
    assert value(store, "rocketmq_topic_number") == 2
    assert value(store, "rocketc_queues") == 3


def test_outgoing_messages(store):
    sizes = put_some(store)
    assert len(store.get("a", 0, 0, 3).messages) == 3
    store.get("b")
    assert store.get("b", 0, 1).messages == []
    assert values(store, "rocketmq_messages_out_total", "topic") == {("a",): 3, ("b",): 1}
    assert values(store, "rocketmq_throughput_out_total", "topic")[("b",)] == sizes["b"]


def test_counters_begin_when_the_store_is_opened(store, open_store):
    put_some(store)
    store.close()
    again = open_store(mapped_file_size_commit_log=4 << 20)
    assert set(values(again, "rocketmq_messages_in_total", "topic").values()) == {0}
    assert values(again, "rocketc_topic_messages", "topic") == {("a",): 11, ("b",): 1}
    again.put("b", b"x")
    assert again.wait_dispatched(10)
    assert values(again, "rocketmq_messages_in_total", "topic") == {("a",): 0, ("b",): 1}


def test_system_topics_are_marked(store):
    store.put("rmq_sys_REVIVE_LOG_a", b"x")
    assert store.wait_dispatched(10)
    assert list(values(store, "rocketmq_messages_in_total", "is_system")) == [("true",)]


def test_sizes(store):
    sizes = put_some(store)
    found = value(store, "rocketmq_message_size")
    assert found.below == ((1024, 10), (4096, 10), (512 << 10, 11), (1 << 20, 11), (2 << 20, 12), (4 << 20, 12))
    assert (found.count, found.sum) == (12, sum(sizes.values()))


def test_times(store):
    for _ in range(64):
        store.put("a", b"x")
    store.flush()
    puts, flushes = value(store, "rocketc_put_seconds"), value(store, "rocketc_flush_seconds")
    assert puts.count == 4  # every 16th put is timed
    assert flushes.count >= 1
    for one in (puts, flushes):
        bounds, counts = zip(*one.below, strict=True)
        assert list(bounds) == sorted(bounds) and list(counts) == sorted(counts)
        assert counts[-1] == one.count
        assert 0 < one.sum < one.count * 10
    stats = store.stats()["flush_time"]
    assert stats["max"] <= stats["sum"] <= stats["count"] * stats["max"]


def test_a_slow_flush_is_measured(store):
    store.flush()
    store._hook("slow_ns", 30_000_000)
    store.put("a", b"x")
    assert value(store, "rocketmq_storage_flush_behind_bytes") == store.max_phy_offset
    store.flush()
    found = value(store, "rocketc_flush_seconds")
    assert found.sum >= 0.03
    assert dict(found.below)[2**24 / 1e9] < found.count == found.below[-1][1]
    assert value(store, "rocketmq_storage_flush_behind_bytes") == 0
    offsets = values(store, "rocketc_log_offset_bytes", "position")
    assert offsets[("flushed",)] == offsets[("end",)] == store.max_phy_offset
    assert offsets[("first",)] == 0


def test_storage(store):
    store._set_clock(1_000_000)
    put_some(store)
    store._set_clock(None)
    assert value(store, "rocketmq_storage_size") == sum(
        os.path.getsize(os.path.join(folder, name))
        for kind in ("commitlog", "consumequeue", "index")
        for folder, _, names in os.walk(os.path.join(store.path, kind))
        for name in names
        if kind != "commitlog" or int(name) < store.max_phy_offset  # the next file may exist already
    )
    assert value(store, "rocketmq_storage_dispatch_behind_bytes") == 0
    age = value(store, "rocketmq_storage_message_reserve_time")
    assert abs(age - (Watch(store).look().time - 1_000_000)) < 60_000


def test_refused_and_failed(store):
    assert value(store, "rocketc_puts_refused_total") == value(store, "rocketc_failed") == 0
    with pytest.raises(rocketc.IllegalMessageError):
        store.put("a", bytes(5 << 20))
    assert value(store, "rocketc_puts_refused_total") == 1
    assert value(store, "rocketc_disk_full") == 0
    store._set_full(True)
    with pytest.raises(rocketc.StoreFullError):
        store.put("a", b"x")
    assert value(store, "rocketc_disk_full") == 1
    store._set_full(False)
    store._hook("fail", 5)
    with pytest.raises(rocketc.StoreFailedError):
        store.put("a", b"x")
    assert value(store, "rocketc_puts_refused_total") == 3
    assert value(store, "rocketc_failed") == 1


def test_waiting_calls_and_the_put_lock(store):
    assert value(store, "rocketc_waiting_readers") == value(store, "rocketc_append_seconds") == 0
    waiting = threading.Thread(target=lambda: store.get("a", wait=30))
    waiting.start()
    while value(store, "rocketc_waiting_readers") == 0:
        pass
    assert value(store, "rocketc_calls") == 2  # including this call
    store.put("a", b"x")
    waiting.join()
    assert value(store, "rocketc_waiting_readers") == 0
    store._hook("busy_ms", 500)
    assert 0.4 < value(store, "rocketc_append_seconds") < 60


def test_groups(store):
    store._set_clock(1_000_000)
    put_some(store)
    offsets = ConsumerOffsets(store.path)
    offsets.commit("a", "late", 0, 2)  # queue 0 has 6 messages, queue 1 has 5
    offsets.commit("a", "late", 1, 5)
    offsets.commit("b", "done", 0, 1)
    offsets.commit("gone", "late", 0, 7)
    offsets.persist()
    lags = values(store, "rocketmq_consumer_lag_messages", "topic", "consumer_group")
    assert lags == {("a", "late"): 4, ("b", "done"): 0}
    ages = values(store, "rocketmq_consumer_lag_latency", "topic", "consumer_group")
    assert ages[("b", "done")] == 0
    assert abs(ages[("a", "late")] - (Watch(store).look().time - 1_000_000)) < 60_000
    assert value(store, "rocketmq_consumer_group_number") == 2
    watch = Watch(store)
    watch.look()
    offsets.commit("a", "late", 0, 6)
    offsets.persist()
    assert [lag.messages for lag in watch.look().lags] == [0, 0]  # a changed table is read again


def test_a_queue_of_rocketc(open_queue):
    queue = open_queue()
    for _ in range(3):
        queue.put(b"x")
    queue.ack(queue.get())
    queue._positions.write()
    queue._store.wait_dispatched()
    [lag] = Watch(queue._store).look().lags
    assert (lag.topic, lag.messages) == (queue.topic, 2)


# -------------------------------------------------------------------------- a store that another process writes


WRITER = """
import sys, rocketc
store = rocketc.open(sys.argv[1], mapped_file_size_commit_log=1 << 16)
for line in sys.stdin:
    topic, count = line.split()
    for n in range(int(count)):
        store.put(topic, bytes(1000), queue_id=n % 2)
    store.flush()
    store.wait_dispatched()
    print(store.max_phy_offset, flush=True)
"""


def test_a_store_that_another_process_writes(tmp_path):
    """Messages are counted between two reads, over new files of log and queues, and new topics."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:

        def write(topic, count):
            writer.stdin.write(f"{topic} {count}\n")
            writer.stdin.flush()
            return int(writer.stdout.readline())

        write("a", 10)
        with rocketc.open(tmp_path, read_only=True) as store:
            watch = Watch(store)
            first = watch.look()
            assert (first.topics["a"].messages, first.topics["a"].came) == (10, 0)
            end = write("a", 200)  # three files of the log
            look = watch.look()
            assert (look.end, look.dispatched, look.dispatch_behind) == (end, end, 0)
            assert (look.topics["a"].came, look.topics["a"].messages) == (200, 210)
            assert 200 * 1000 < look.topics["a"].came_bytes < 200 * 1100
            write("b", 5)
            look = watch.look()
            assert look.topics["b"].messages == 5
            write("b", 7)
            assert watch.look().topics["b"].messages == 12
            assert {one.name for one in measures(watch)} >= {"rocketmq_messages_in_total", "rocketmq_storage_size"}
            assert not {one.name for one in measures(watch)} & {"rocketc_put_seconds", "rocketc_calls"}
            writer.stdin.close()
            writer.wait()
            look = watch.look()
            assert look.flush_behind == 0


@pytest.mark.parametrize("name", ["v533-store", "v497-broker", "v533-torn"])
def test_stores_of_rocketmq(golden, name):
    """The end of the log is found with and without the queues. RocketMQ reports no durable offset."""
    path = golden(name).path
    scan = rocketc.scan(path, errors="skip", unwrap=False)
    ends = [message.phy_offset + message.store_size for message in scan]
    with rocketc.open(path, read_only=True) as store:
        look = Watch(store).look()
    assert look.end == (ends[-1] if name == "v533-torn" else scan.report.end)
    assert look.flush_behind is None
    assert look.oldest == next(iter(rocketc.scan(path))).store_timestamp


def test_queues_that_are_ahead_of_the_log(store):
    """A log that has lost its end ends at its last record, whatever the queues contain."""
    ends = [store.put("a", bytes(100)).end for _ in range(10)]
    store.close()
    with open(os.path.join(store.path, "commitlog", 20 * "0"), "r+b") as log:
        log.seek(ends[6])
        log.write(bytes(ends[9] - ends[6]))
    with rocketc.open(store.path, read_only=True) as reader:
        watch = Watch(reader)
        for _ in range(2):
            look = watch.look()
            assert (look.end, look.dispatched, look.dispatch_behind) == (ends[6], ends[9], 0)


# ------------------------------------------------------------------------------------------------ threads and close


def test_a_closed_store(store):
    put_some(store)
    watch = Watch(store)
    watch.look()
    store.close()
    with pytest.raises(rocketc.ClosedError):
        watch.look()


def test_reads_during_puts_and_close(open_store):
    """A thread that reads all the time blocks no other, and gets an error when the store is closed."""
    store = open_store()
    seen = []

    def look():
        watch = Watch(store)
        with pytest.raises(rocketc.ClosedError):
            while True:
                seen.append(watch.look())

    looking = [threading.Thread(target=look) for _ in range(3)]
    for thread in looking:
        thread.start()
    for n in range(2000):
        store.put(f"topic-{n % 50}", bytes(200))
    while len(seen) < 20:
        pass
    store.close()
    for thread in looking:
        thread.join()
    came = [sum(of.came for of in look.topics.values()) for look in seen]
    assert 0 <= min(came) <= max(came) <= 2000


# -------------------------------------------------------------------------------------------------- prometheus


def read(text):
    """({name: type}, {(name, *labels): value}) of the samples for Prometheus."""
    families = list(text_string_to_metric_families(text))
    kinds = {one.name: one.type for one in families}
    return kinds, {(s.name, *sorted(s.labels.items())): s.value for one in families for s in one.samples}


def registry_of(collector):
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    return registry


def scrape(collector):
    return read(prometheus_client.generate_latest(registry_of(collector)).decode())


def test_prometheus_over_http(store):
    sizes = put_some(store)
    registry = registry_of(StoreCollector(store, labels=[{"node_id": "n", "cluster": "c"}]))
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            kinds, samples = read(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    common = ("cluster", "c"), ("node_id", "n")
    assert (
        samples["rocketmq_throughput_in_total", common[0], ("is_system", "false"), common[1], ("topic", "a")]
        == (sizes["a"])
    )
    assert samples["rocketmq_message_size_bucket", common[0], ("le", "1024.0"), common[1]] == 10
    assert samples["rocketmq_message_size_bucket", common[0], ("le", "+Inf"), common[1]] == 12
    assert samples[("rocketmq_message_size_sum", *common)] == sum(sizes.values())
    assert kinds["rocketmq_messages_in"] == "counter"
    assert kinds["rocketmq_storage_size"] == "gauge"
    assert kinds["rocketc_flush_seconds"] == "histogram"
    every = {one.name.removesuffix("_total") for one in measures(store) if one.samples}
    assert every <= set(kinds)


def test_prometheus_of_several_stores(open_store, tmp_path):
    one, two = open_store(tmp_path / "1"), open_store(tmp_path / "2")
    one.put("t", b"x")
    two.put_many("t", [b"x"] * 2)
    one.wait_dispatched(), two.wait_dispatched()
    collector = StoreCollector(one, two)

    def came():
        _, samples = scrape(collector)
        return {key[2][1]: value for key, value in samples.items() if key[0] == "rocketmq_messages_in_total"}

    assert came() == {one.path: 1, two.path: 2}
    one.close()
    assert came() == {two.path: 2}
    two.close()
    assert came() == {}


def test_labels_are_valid_for_prometheus(open_store, tmp_path):
    one, two = open_store(tmp_path / "1"), open_store(tmp_path / "2")
    for labels in ([NODE], [NODE, {"cluster": "c"}]):
        with pytest.raises(ValueError, match="for each of the 2 stores, all with the same names"):
            StoreCollector(one, two, labels=labels)


def test_names_that_are_not_text(store):
    store.put("abc", b"x")
    store.close()
    os.rename(os.fsencode(store.path) + b"/consumequeue/abc", os.fsencode(store.path) + b"/consumequeue/a\xff<c")
    with rocketc.open(store.path, read_only=True) as reader:
        _, samples = scrape(StoreCollector(reader))
    assert any(("topic", "a\ufffd<c") in key for key in samples)


# ------------------------------------------------------------------------------------------------ opentelemetry


def collected(reader):
    data = reader.get_metrics_data()
    metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
    return {metric.name: metric for metric in metrics}


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def meter(reader):
    provider = MeterProvider([reader])
    yield provider.get_meter("test")
    provider.shutdown()
    del provider
    gc.collect()  # while the reader exists, it starts threads in every forked process


def test_opentelemetry(store, reader, meter):
    sizes = put_some(store)
    observe(store, labels=NODE, meter=meter)
    found = collected(reader)
    points = found["rocketmq_throughput_in_total"].data.data_points
    assert {p.attributes["topic"]: p.value for p in points} == sizes
    assert found["rocketmq_throughput_in_total"].data.is_monotonic
    assert found["rocketmq_throughput_in_total"].unit == "By"
    assert [dict(p.attributes) for p in found["rocketmq_topic_number"].data.data_points] == [NODE]
    buckets = found["rocketmq_message_size_bucket"].data.data_points
    assert [(p.attributes["le"], p.value) for p in buckets][:1] == [("1024.0", 10)]
    assert [(p.attributes["le"], p.value) for p in buckets][-1:] == [("+Inf", 12)]
    assert found["rocketmq_message_size_sum"].data.data_points[0].value == sum(sizes.values())
    store.put("b", b"x")
    store.wait_dispatched()
    again = collected(reader)
    points = again["rocketmq_messages_in_total"].data.data_points
    assert {p.attributes["topic"]: p.value for p in points} == {"a": 11, "b": 2}
    store.close()
    assert collected(reader) == {}


def test_one_read_for_each_collection(store, reader, meter, monkeypatch):
    looks = []
    real = Watch.read
    monkeypatch.setattr(Watch, "read", lambda self: looks.append(1) or real(self))
    observe(store, meter=meter)
    assert len(looks) == 1
    for count in (2, 3):
        assert len(collected(reader)) > 20
        assert len(looks) == count


# ----------------------------------------------------------------------------------------------------- packages


def test_importing_rocketc_imports_no_metrics_package():
    code = "import sys, rocketc.metrics as m; print({'prometheus_client', 'opentelemetry', 'textual'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("extra", ["prometheus", "opentelemetry"])
def test_the_error_names_a_missing_package(extra):
    package = {"prometheus": "prometheus_client"}.get(extra, extra)
    code = f"import sys; sys.modules[{package!r}] = None; import rocketc.metrics.{extra}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert told.endswith(f"pip install 'rocketc[{extra}]'\n")


def test_every_metric_agrees_with_its_description(store):
    put_some(store)
    found = measures(store)
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert one.kind in ("counter", "gauge", "histogram") and one.unit in ("", "bytes", "ms", "s")
        assert (one.kind == "counter") == one.name.endswith("_total")
        assert one.name.startswith(("rocketmq_", "rocketc_")) and one.help
        for sample in one.samples:
            assert {*sample.labels} == {"node_id", *one.labels}
            assert isinstance(sample.value, Histogram) == (one.kind == "histogram")


def test_the_page_names_every_metric(store):
    """docs/howto/observe.md: name, kind, unit and labels of each metric, and which ones only a writer has."""
    text = (Path(__file__).parents[3] / "docs/howto/observe.md").read_text(encoding="utf-8")
    table, above = {}, ""
    text = text.partition("## The metrics\n")[2]
    for name, kind, labels, told in re.findall(r"^\| `(roc\w+)` \| ([^|]+) \| ([^|]*)\| ([^|]+) \|$", text, re.M):
        above = above if labels.strip() == "the same" else labels
        table[name] = (
            *kind.partition(", ")[::2],
            set(re.findall(r"`(\w+)`", above.partition(":")[0])),
            told.endswith("*"),
        )
    with rocketc.open(store.path, read_only=True) as reader:
        of_reader = {one.name for one in measures(reader)}
    found = {one.name: (one.kind, one.unit, set(one.labels), one.name not in of_reader) for one in measures(store)}
    assert table == found
