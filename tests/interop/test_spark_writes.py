"""RocketMQ reads what Spark's tasks stage and its driver commits, also after an earlier commit was cut off."""

import pytest

pytest.importorskip("pyspark")

from interop import ledger
from interop.turns import SYNC

import rocketc
from rocketc.config import ROCKETMQ_SIZES, broker_conf
from rocketc.spark import schema
from rocketc.spark.sink import RocketmqWriter

pytestmark = pytest.mark.promise(9)

# The sizes of files that a write by Spark chooses; RocketMQ's default sizes are others.
SETTINGS = {**SYNC, **broker_conf(rocketc.StoreConfig(), ROCKETMQ_SIZES), "mappedFileSizeCommitLog": 1 << 20}
COLUMNS = ["topic", "queueId", "body", "properties", "flag", "bornTimestamp", "bornHost"]


@pytest.mark.long
def test_a_store_that_spark_wrote(peer, golden, tmp_path):
    store = tmp_path / "store"
    scan = rocketc.scan(golden("v533-bitrot").path, errors="skip", columns=COLUMNS)
    settings = {"mapped_file_size_commit_log": 1 << 20}
    for body in (b"x" * (5 << 20), b"fine"):  # the first body is too large: its whole commit is cut off again
        writer = RocketmqWriter([str(store)], settings, schema(COLUMNS), False)
        last = rocketc.decode(rocketc.encode("t", body), columns=COLUMNS)
        staged = [writer.write(scan.batches()), writer.write(last.batches())]
        try:
            writer.commit(staged)
        except rocketc.IllegalMessageError:
            writer.abort(staged)
    peer.open(store, SETTINGS)
    messages = ledger.read(peer, store)
    peer.close(store)
    wanted = [(m.topic, m.queue_id, m.body, dict(m.properties), m.born_timestamp) for m in scan] + [("t", 0, b"fine")]
    found = [(m["topic"], m["queueId"], m["body"], m["properties"], m["bornTimestamp"]) for m in messages]
    assert found[:-1] == wanted[:-1] and found[-1][:3] == wanted[-1]
