"""Send flights through a broker, and read them back over the wire: with DuckDB, and with Spark, which also writes back.

    python examples/flights_cluster.py STORE FOLDER

STORE has messages of the topic `flights`, with one flight each, as JSON. FOLDER gets the store of the broker. All
results must be equal to a count over the files of STORE.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import duckdb
from flights_spark import (
    COLUMNS,
    Carrier,
    Result,
    begin,
    by_delay,
    count_with_spark,
    differences,
    start_spark,
    step,
    totals,
)

import rocketc
from rocketc.client import NewMessage, Producer

PER_CARRIER = """
    select body->>'carrier' as carrier, count(*) as flights, avg((body->>'dep_delay')::int) as mean
    from (select cast(decode(body) as json) as body from messages) group by carrier"""


def messages_of(store: str) -> Iterator[NewMessage]:
    """Yield the messages of the files, as a program sends them."""
    for one in rocketc.scan(store, topics="flights"):
        yield NewMessage(one.body, tags=one.tags, keys=one.keys)


def count_with_duckdb(name_server: str) -> Result:
    """Return flights and mean delay by airline, from a topic of a live cluster."""
    messages = rocketc.scan(f"rocketmq://{name_server}/flights", columns=["body"])  # noqa: F841 (DuckDB reads it)
    rows = duckdb.execute(PER_CARRIER).fetchall()
    return {carrier: Carrier(flights, 0, mean, None) for carrier, flights, mean in rows}


def read_cluster(spark: Any, name_server: str) -> Any:
    """Return the messages as a DataFrame: each task reads some queues from the brokers."""
    options = {"nameServer": name_server, "subscribe": "flights", "columns": ",".join(COLUMNS)}
    return spark.read.format("rocketmq").options(**options).load()


def write_delays(spark: Any, name_server: str, result: Result) -> None:
    """Send a message with the mean delay of each airline to the topic `delays`."""
    rows = [("delays", carrier, json.dumps({"mean": row.mean}).encode()) for carrier, row in by_delay(result)]
    delays = spark.createDataFrame(rows, "topic string, keys string, body binary")
    delays.write.format("rocketmq").option("nameServer", name_server).mode("append").save()


def read_delays(name_server: str) -> dict[str, float | None]:
    return {str(one.keys): json.loads(one.body)["mean"] for one in rocketc.scan(f"rocketmq://{name_server}/delays")}


def main() -> int:
    store, folder, truth, clock = begin(__doc__, "the store of the broker")
    root = folder / "cluster"
    shutil.rmtree(root, ignore_errors=True)
    sent, times = totals(truth)[0], dict[str, float]()
    clock.lap()
    step("starting a name server and a broker")
    with rocketc.Broker(root, process=True) as broker:
        times["start"] = clock.lap()
        step(f"sending the flights to {broker.name_server}")
        with Producer("flights", broker.name_server) as producer:
            producer.send_many("flights", messages_of(store))
        times["send"] = clock.lap()
        step("reading the topic with DuckDB")
        by_duckdb = count_with_duckdb(broker.name_server)
        times["DuckDB"] = clock.lap()
        step("starting Spark")
        spark = start_spark(folder / "spark-cluster.log")
        clock.lap()
        step("reading the topic with Spark")
        by_spark = count_with_spark(read_cluster(spark, broker.name_server))
        times["Spark"] = clock.lap()
        step("writing delays to another topic with Spark")
        write_delays(spark, broker.name_server, by_spark)
        times["write"] = clock.lap()
        delays = read_delays(broker.name_server)
        spark.stop()
    print(f"broker started            {times['start']:8.2f} s")
    print(f"{sent:,} flights sent       {times['send']:8.2f} s")
    print(f"read and counted by DuckDB{times['DuckDB']:8.2f} s")
    print(f"read and counted by Spark {times['Spark']:8.2f} s")
    print(f"{len(delays)} delays sent by Spark   {times['write']:8.2f} s")
    wrong = differences(truth, by_spark)
    wrong += differences({carrier: row._replace(cancelled=0, p95=None) for carrier, row in truth.items()}, by_duckdb)
    wrong += sorted(carrier for carrier, row in by_spark.items() if delays.get(carrier, "missing") != row.mean)
    if wrong:
        print(f"\nThe results differ for {', '.join(dict.fromkeys(wrong))}.", file=sys.stderr)
        return 1
    print(f"\nDuckDB and Spark read what the files have: {sent:,} flights of {len(truth)} airlines.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
