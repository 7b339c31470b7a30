"""The rows of a Spark task at RocketMQ's own brokers: a Java consumer reads every one; faults are found at once."""

import pyarrow as pa
import pytest
from interop import scenarios
from interop.peer import RELEASES
from interop.test_security import acl_2, java

import rocketc
from rocketc.client.security import Credentials
from rocketc.errors import AnswerError
from rocketc.remoting.loops import run_on_loop
from rocketc.spark.cluster_options import Cluster
from rocketc.spark.cluster_sink import Sent, Target, check_cluster, send_batches

pytestmark = pytest.mark.long

COUNT = 3000


@pytest.mark.parametrize("release", RELEASES)
def test_a_java_consumer_reads_every_row(release, tmp_path):
    cluster = scenarios.JavaCluster(release, tmp_path / "cluster")
    clients = scenarios.Clients(release, tmp_path / "clients")
    try:
        plain = pa.record_batch({"body": [b"%d" % i for i in range(COUNT)]})
        for _ in range(2):  # it checks the topic, and creates none
            run_on_loop(check_cluster(Target(Cluster(cluster.name_server), "plain")))
        assert send_batches(Target(Cluster(cluster.name_server), "plain"), [plain]) == Sent(COUNT, {})
        run_on_loop(check_cluster(Target(Cluster(cluster.name_server), "plain")))  # now it exists
        rows = {"order": [f"o-{i}" for i in range(100)], "body": [b"%d" % i for i in range(100)]}
        rows |= {"shard": [f"s-{i % 3}" for i in range(100)], "tags": ["t"] * 100, "keys": ["k"] * 100}
        rows |= {"properties": pa.array([[("own", "v")]] * 100, pa.map_(pa.string(), pa.string()))}
        keyed = Target(Cluster(cluster.name_server), "keyed", "order")
        assert send_batches(keyed, [pa.record_batch(rows)]) == Sent(100, {})
        late = pa.record_batch({"body": [b"late"], "delayLevel": ["1s"], "order": ["o-late"]})
        assert send_batches(keyed, [late]) == Sent(1, {})
        read = {
            topic: clients.step(cluster, topic, "consume", group=f"g-{topic}", count=count, millis=0)
            for topic, count in (("plain", COUNT), ("keyed", 101))
        }
        with pytest.raises(rocketc.RocketcError, match=r"row 1 .*not stored"):
            large = pa.record_batch({"body": [b"x", b"x" * (4 << 20)]})
            send_batches(Target(Cluster(cluster.name_server), "plain"), [large])
        cluster.end()
    finally:
        clients.close()
        cluster.close()
    assert sorted(map(int, read["plain"])) == list(range(COUNT))
    assert sorted(read["keyed"]) == sorted([*map(str, range(100)), "late"])
    stored = [m for m in rocketc.scan(tmp_path / "cluster" / "store") if m.topic == "keyed"]
    assert sorted(m.properties["UNIQ_KEY"] for m in stored) == sorted([*(f"o-{i}" for i in range(100)), "o-late"])
    for shard in range(3):
        its = [int(m.body) for m in stored if m.properties.get("__SHARDINGKEY") == f"s-{shard}"]
        assert its == sorted(its) and len(its) in (33, 34)
    assert {m.properties.get("own") for m in stored} == {"v", None}
    probes = [m for m in rocketc.scan(tmp_path / "cluster" / "store") if not m.body]
    assert not probes


def test_a_refused_account_of_acl_2(tmp_path):
    with java(scenarios.JavaCluster, "5.3.3", tmp_path, **acl_2()) as cluster:
        for account in (Credentials("rocketmq", "wrong-secret"), Credentials("nobody11", "12345678"), None):
            with pytest.raises(AnswerError, match=r"check signature|is not found|cannot be null") as caught:
                run_on_loop(check_cluster(Target(Cluster(cluster.name_server, account), "TBW102")))
            assert "secret" not in str(caught.value)
        run_on_loop(check_cluster(Target(Cluster(cluster.name_server, Credentials("rocketmq", "12345678")), "TBW102")))
