"""rocketc.scan("rocketmq://...") at RocketMQ's own brokers: the rows of their files, and no trace in their tables."""

import time

import pytest
from interop import scenarios
from interop.kept_tables import FLUSH_MS, tables
from interop.peer import RELEASES, Unavailable

import rocketc
from rocketc.client import NewMessage, Producer
from rocketc.errors import TopicNotFoundError

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:no topic")]

COUNT = 400
COLUMNS = [name for name in rocketc.COLUMN_NAMES if name not in ("file", "brokerName")]
FILTERS = [
    {},
    {"tags": "web"},
    {"tags": "web||app", "keys": "k7"},
    {"sql": "price > 100 AND region = 'eu'"},
    {"sql": "region IS NULL OR price BETWEEN 5 AND 8"},
    {"sql": "NOT (region = 'eu') AND TAGS = 'web'"},
    {"sql": "price > 99.5 OR region IN ('us', 'e''u')"},
    {"sql": "KEYS CONTAINS '7'"},
    {"sql": "price > 100", "tags": "app"},
    {"queues": [1, 3]},
    {"offsets": {"orders": {0: (10, 20), 1: (None, 5), None: (90, None)}}},
]


class Place:
    """A Java cluster with messages, its URL, and the root folder of its store."""

    def __init__(self, release, folder, filters):
        self.selects_by_sql = filters
        flags = {"broker.enablePropertyFilter": "true"} if filters else {}
        self.cluster = scenarios.JavaCluster(release, folder, flushConsumerOffsetInterval=FLUSH_MS, **flags)
        self.url, self.store = f"rocketmq://{self.cluster.name_server}", folder / "store"
        with Producer("shop", self.cluster.name_server, compress_msg_body_over_howmuch=4096) as producer:
            for i in range(COUNT - 2):
                region = ("eu", "us", None)[i % 3]
                properties = {"price": "ten" if i == 9 else str(i), **({"region": region} if region else {})}
                body = b"z" * 9000 if i == 50 else b"body %d" % i
                producer.send("orders", body, tags="web" if i % 3 else "app", keys=f"k{i}", properties=properties)
            producer.send_many("orders", [NewMessage(b"in a batch", tags="web"), b"in a batch, too"])
            producer.send("orders-old", b"old")


@pytest.fixture(scope="module", params=[(release, filters) for release in RELEASES for filters in (True, False)],
                ids=lambda param: f"{param[0]}-{'sql' if param[1] else 'tags'}")  # fmt: skip
def place(request, tmp_path_factory):
    try:
        one = Place(request.param[0], tmp_path_factory.mktemp("scan-url"), request.param[1])
    except Unavailable as reason:
        pytest.skip(str(reason))
    try:
        yield one
        one.cluster.end()
    finally:
        one.cluster.close()


def test_every_row_is_that_of_the_files_and_nothing_stays(place):
    names, end = ("topics.json", "consumerOffset.json"), time.monotonic() + 60
    while not all((place.store / "config" / name).exists() for name in names):  # 10 s after its start
        assert time.monotonic() < end
        time.sleep(0.2)
    before = tables(place.store)
    assert "orders-old" in before["topics.json"]["topicConfigTable"]
    times = sorted(m.store_timestamp for m in rocketc.scan(place.store, topics="orders"))
    assert len(times) == COUNT
    bounds = [{"begin": times[COUNT // 3], "end": times[COUNT // 2]}, {"end": times[0]}, {"begin": times[-1] + 1}]
    for how in (*FILTERS, *bounds):
        ours = rocketc.scan(f"{place.url}/orders", columns=COLUMNS, **how)
        of_files = rocketc.scan(place.store, topics="orders", columns=COLUMNS, **how)
        assert ours.to_arrow().equals(of_files.to_arrow()), how
        assert ours.report.records == of_files.count()
    whole, part = rocketc.scan(f"{place.url}/orders"), rocketc.scan(f"{place.url}/orders", sql="price BETWEEN 5 AND 8")
    assert (whole.count(), part.count()) == (COUNT, 4)
    assert (part.report.bytes < whole.report.bytes / 10) == place.selects_by_sql
    assert rocketc.scan(f"{place.url}/orders*").count() == COUNT + 1
    with pytest.raises(TopicNotFoundError, match="did you mean orders"):
        rocketc.scan(f"{place.url}/order").count()
    scan = rocketc.scan(f"{place.url}/orders", sql="price = 42")
    messages = scan.follow()
    assert next(messages).keys == "k42"
    with Producer("shop", place.cluster.name_server) as producer:
        producer.send("orders", b"later", properties={"price": "42"})
    assert next(messages).body == b"later"
    scan.close()
    assert tables(place.store) == before


def test_a_broker_that_is_killed_in_the_middle(tmp_path):
    try:
        place = Place(RELEASES[-1], tmp_path, True)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with Producer("shop", place.cluster.name_server) as producer:
        for _ in range(1500):
            producer.send("large", bytes(range(256)) * 80)
    messages = iter(rocketc.scan(f"{place.url}/large"))
    next(messages)
    place.cluster.close()
    began = time.monotonic()
    with pytest.raises(rocketc.RocketcError, match=r"^127\.0\.0\.1:\d+: ") as caught:
        list(messages)
    assert "\n" not in str(caught.value) and time.monotonic() < began + 20
