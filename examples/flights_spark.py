"""Compute the delays of airlines: Spark reads flights from a RocketMQ commit log, without a broker.

    python examples/flights_spark.py STORE FOLDER

STORE has messages of the topic `flights`, with one flight each, as JSON. Spark reads them in three ways: by the data
source, by mapInArrow and by mapPartitions. FOLDER gets Parquet files by airline, and a plot. All results must be equal
to a count in plain Python.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import rocketc

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run `python3` otherwise
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")

AIRLINES = {
    "9E": "Endeavor Air",
    "AA": "American Airlines",
    "AS": "Alaska Airlines",
    "B6": "JetBlue Airways",
    "DL": "Delta Air Lines",
    "EV": "ExpressJet Airlines",
    "F9": "Frontier Airlines",
    "FL": "AirTran Airways",
    "HA": "Hawaiian Airlines",
    "MQ": "Envoy Air",
    "OO": "SkyWest Airlines",
    "UA": "United Air Lines",
    "US": "US Airways",
    "VX": "Virgin America",
    "WN": "Southwest Airlines",
    "YV": "Mesa Airlines",
}
FLIGHT = """carrier string, flight int, tailnum string, origin string, dest string, distance int, time_hour timestamp,
    dep_delay int, arr_delay int"""
COLUMNS = ["physicalOffset", "body"]  # of the messages; other columns are not decoded


class Carrier(NamedTuple):
    """The results of one airline. Delays are in minutes. A canceled flight does not depart and is not late."""

    flights: int
    cancelled: int
    mean: float | None
    p95: float | None


Result = dict[str, Carrier]


# Spark


def read_source(spark: Any, store: str) -> Any:
    """Return the messages as a DataFrame, from the data source."""
    options = {"subscribe": "flights", "columns": ",".join(COLUMNS)}
    return spark.read.format("rocketmq").options(**options).load(store)


def decode_rows(spark: Any, store: str) -> Any:
    """Return the messages as a DataFrame, by an RDD of Row."""
    from rocketc.spark import decode_partition, schema, splits

    cut = splits(store)
    rdd = spark.sparkContext.parallelize(cut, max(len(cut), 1))
    rows = rdd.mapPartitions(partial(decode_partition, topics="flights", columns=COLUMNS))
    return spark.createDataFrame(rows, schema(COLUMNS))


def decode_arrow(spark: Any, store: str) -> Any:
    """Return the messages as a DataFrame, by Arrow batches."""
    from rocketc.spark import decode_batches, schema, splits

    cut = splits(store)
    parts = spark.sparkContext.parallelize(cut, max(len(cut), 1))
    files = spark.createDataFrame(parts, "path string, start long, stop long")
    return files.mapInArrow(partial(decode_batches, topics="flights", columns=COLUMNS), schema(COLUMNS))


def flights_of(messages: Any) -> Any:
    from pyspark.sql import functions as f

    body = f.from_json(messages.body.cast("string"), FLIGHT, {"mode": "FAILFAST"})
    return messages.select("physicalOffset", body.alias("flight")).select("physicalOffset", "flight.*")


def count_with_spark(messages: Any) -> Result:
    from pyspark.sql import functions as f

    table = flights_of(messages).groupBy("carrier")
    rows = table.agg(
        f.count("*"), f.count_if(f.isnull("dep_delay")), f.avg("dep_delay"), f.percentile("dep_delay", f.lit(0.95))
    ).collect()
    return {carrier: Carrier(*values) for carrier, *values in rows}


# Without Spark


def count_with_python(store: str) -> Result:
    delays: dict[str, list[int | None]] = {}
    for message in rocketc.scan(store, topics="flights"):
        flight = json.loads(message.body)
        delays.setdefault(flight["carrier"], []).append(flight["dep_delay"])
    out = {}
    for carrier, every in delays.items():
        known = sorted(delay for delay in every if delay is not None)
        mean = sum(known) / len(known) if known else None
        out[carrier] = Carrier(len(every), len(every) - len(known), mean, percentile(known, 0.95))
    return out


def percentile(values: list[int], share: float) -> float | None:
    """Return a percentile, interpolated between the two nearest of the sorted values, as Spark's percentile()."""
    if not values:
        return None
    at = (len(values) - 1) * share
    low, high = values[math.floor(at)], values[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def differences(a: Result, b: Result) -> list[str]:
    """Return the airlines whose results in a and b differ."""

    def same(x: float | None, y: float | None) -> bool:
        return x == y if x is None or y is None else math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-9)

    return sorted(
        carrier
        for carrier in a.keys() | b.keys()
        if carrier not in a or carrier not in b or not all(map(same, a[carrier], b[carrier]))
    )


# Results


def print_table(result: Result) -> None:
    block = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
    longest = max((row.mean or 0 for row in result.values()), default=0)
    print(f"{'departure delay in minutes':24}{'flights':>10}{'canceled':>11}{'mean':>8}{'95th %':>8}")
    for carrier, row in by_delay(result):
        bar = block * round(max(row.mean or 0, 0) / max(longest, 1) * 16)
        mean, p95 = (format(v, ".1f") if v is not None else "-" for v in (row.mean, row.p95))
        name = f"{carrier}  {AIRLINES.get(carrier, '')}"
        print(f"{name:24}{row.flights:>10,}{row.cancelled:>11,}{mean:>8}{p95:>8}  {bar}".rstrip())
    flights, cancelled = totals(result)
    print(f"{'all':24}{flights:>10,}{cancelled:>11,}")


def totals(result: Result) -> tuple[int, int]:
    """Return the number of all flights, and of the canceled ones."""
    return sum(row.flights for row in result.values()), sum(row.cancelled for row in result.values())


def by_delay(result: Result) -> list[tuple[str, Carrier]]:
    return sorted(result.items(), key=lambda item: (item[1].mean is None, -(item[1].mean or 0)))


def plot(result: Result, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ink, pale, mean_color, p95_color = "#22303c", "#c9d3db", "#0b6e8a", "#e07a1f"
    rows = by_delay({carrier: row for carrier, row in result.items() if row.mean is not None})[::-1]
    heights, means, p95s = range(len(rows)), [row.mean or 0 for _, row in rows], [row.p95 or 0 for _, row in rows]
    pyplot.rcParams.update({"font.size": 10, "text.color": ink, "axes.labelcolor": ink})
    figure, axes = pyplot.subplots(figsize=(10, 0.42 * len(rows) + 1.9), layout="constrained")
    axes.hlines(heights, means, p95s, color=pale, linewidth=3, zorder=1)
    axes.scatter(means, heights, s=60, color=mean_color, label="mean", zorder=2)
    axes.scatter(p95s, heights, s=60, color=p95_color, label="95th percentile", zorder=2)
    for y in heights:
        for x, color, side, shift in ((means[y], mean_color, "right", -9), (p95s[y], p95_color, "left", 9)):
            axes.annotate(f"{x:.0f}", (x, y), (shift, 0), textcoords="offset points", color=color, ha=side, va="center")
    axes.axvline(0, color=ink, linewidth=0.8, zorder=0)
    axes.set_yticks(heights, [f"{AIRLINES.get(carrier, carrier)}  ({row.flights:,})" for carrier, row in rows])
    axes.tick_params(length=0, colors=ink)
    axes.grid(axis="x", color="#e9edf0", zorder=0)
    axes.set_axisbelow(True)
    axes.margins(x=0.06)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("minutes behind schedule at departure; in brackets: flights")
    flights, cancelled = totals(result)
    axes.set_title(
        f"Late departures from New York\nJanuary 2013: {flights:,} flights, {cancelled:,} of them canceled",
        loc="left",
        fontsize=13,
    )
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


# Spark's session


def missing_java() -> str | None:
    """Return why this machine can't run Spark, and what to do; None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    wanted = "Spark needs Java 17 or newer"
    how = "On Debian: sudo apt-get install default-jre-headless; on macOS: brew install openjdk@17."
    if java is None:
        return f"{wanted}, but {f'there is none in JAVA_HOME={home}' if home else 'no `java` is on the PATH'}. {how}"
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = told.split('"')[1] if told.count('"') > 1 else "0"
    major = version.removeprefix("1.").split(".")[0].split("-")[0]
    if major.isdigit() and int(major) < 17:
        return f"{wanted}, but {java} is version {version}. {how}"
    return None


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """While entered, new processes write their stderr to a file: Spark's JVM and its Python workers log a lot."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def start_spark(log: Path) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("flights").master("local[*]")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    try:
        with stderr_to(log):
            spark = builder.getOrCreate()
    except Exception:
        sys.exit(f"Spark did not start. The end of {os.path.relpath(log)}:\n{log.read_text(errors='replace')[-2000:]}")
    if " " in os.environ["PYSPARK_PYTHON"]:  # then Spark does not search for data sources
        from pyspark_rocketmq import DefaultSource

        spark.dataSource.register(DefaultSource)
    spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()  # starts the Python workers
    return spark


def step(text: str) -> None:
    """Say what begins. Some steps take many seconds."""
    print(f"{text} ...", flush=True)


class Clock:
    """Return the seconds since the last call."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()

    def lap(self) -> float:
        before, self.last = self.last, time.perf_counter()
        return self.last - before

    def total(self) -> float:
        return time.perf_counter() - self.start


def decode_only(messages: Any) -> None:
    """Decode every message and discard it."""
    messages.write.format("noop").mode("overwrite").save()


def begin(description: str, use: str) -> tuple[str, Path, Result, Clock]:
    """Return the store and the folder of the command line, the results of plain Python, and the clock of those.

    use  of the folder
    Ends the program with a line on stderr if Java is missing, or the store cannot be read or does not have flights.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("store", help="a RocketMQ store with the topic `flights`")
    parser.add_argument("folder", type=Path, help=f"folder for {use}")
    asked = parser.parse_args()
    if problem := missing_java():
        sys.exit(problem)
    asked.folder.mkdir(parents=True, exist_ok=True)
    step("reading the store in plain Python")
    clock = Clock()
    warnings.simplefilter("ignore", rocketc.MissingTopicWarning)  # reported below
    try:
        truth = count_with_python(asked.store)
    except rocketc.RocketcError as error:
        sys.exit(str(error))
    if not truth:
        sys.exit(f"{asked.store}: no messages of the topic flights")
    return asked.store, asked.folder, truth, clock


def main() -> int:
    store, folder, truth, clock = begin(__doc__, "the Parquet files and the plot")
    counting = clock.lap()
    parquet, picture, log = (folder / name for name in ("flights.parquet", "delays.png", "spark.log"))

    results: dict[str, Result] = {"plain Python": truth}
    times: dict[str, tuple[float, float]] = {}
    pa.RecordBatchReader.from_stream(rocketc.scan(store, topics="flights", columns=COLUMNS)).read_all()
    times["plain Python"] = counting, clock.lap()
    step("starting Spark")
    clock.lap()
    spark = start_spark(log)
    started = clock.lap()
    ways = {'format("rocketmq")': read_source, "mapInArrow": decode_arrow, "mapPartitions": decode_rows}
    for way, messages_of in ways.items():
        step(f"reading the store with {way}")
        clock.lap()
        results[way] = count_with_spark(messages_of(spark, store))
        counting = clock.lap()
        decode_only(messages_of(spark, store))
        times[way] = counting, clock.lap()
    step("writing Parquet files and a plot")
    clock.lap()
    flights = flights_of(read_source(spark, store))
    flights.repartition("carrier").write.mode("overwrite").partitionBy("carrier").parquet(str(parquet))
    kept = {row.carrier: row["count"] for row in spark.read.parquet(str(parquet)).groupBy("carrier").count().collect()}
    writing = clock.lap()
    plot(truth, picture)
    plotting = clock.lap()
    spark.stop()

    print_table(truth)
    print()
    print(f"{'':18}{'decode, parse JSON, count':>26}{'decode alone, again':>22}")
    for way, (counting, decoding) in times.items():
        print(f"{way:18}{counting:>24.2f} s{decoding:>20.2f} s")
    print("The first way in Spark includes the warm-up of Spark.")
    print()
    print(f"{os.path.relpath(parquet)}: {len(kept)} folders, {sum(kept.values()):,} rows, {writing:.1f} s")
    print(f"{os.path.relpath(picture)}: {plotting:.1f} s")
    print(f"total: {clock.total():.1f} s, {started:.1f} s of it to start Spark (its log: {os.path.relpath(log)})")
    print()
    wrong = [f"{way}: {', '.join(bad)}" for way, result in results.items() if (bad := differences(result, truth))]
    if kept != {carrier: row.flights for carrier, row in truth.items()}:
        wrong.append("counts in Parquet")
    if wrong:
        print(f"WRONG: these differ from the count in plain Python: {'; '.join(wrong)}", file=sys.stderr)
        return 1
    print(f"All {len(results)} ways and the Parquet files agree; {totals(truth)[1]:,} flights were canceled.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
