"""Archive a commit log to a folder of Parquet files: each run adds the new messages.

    spark-submit examples/archive.py STORE TARGET
    python examples/archive.py STORE TARGET

TARGET gets the messages by topic and date, and two tables: statistics per file (_rocketc/statistics), and lost ranges
(_rocketc/damage). You can run it again at any time, also after a kill: TARGET contains each message once.
"""

import argparse
import os
import sys
import warnings

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import rocketc
from rocketc.spark.archive import archive

warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers run `python3` otherwise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", metavar="STORE")
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("--topic", action="append", metavar="NAME", help="archive only this topic; repeatable")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("archive").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        report = archive(spark, args.store, args.target, topics=args.topic)
        print(f"{report.messages:,} messages added: {report.bytes:,} bytes in {report.files} files")
        statistics = os.path.join(args.target, "_rocketc", "statistics")
        if os.path.isdir(statistics):
            groups = spark.read.parquet(statistics).groupBy("topic", "date")
            table = groups.agg(f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes"))
            table.orderBy("topic", "date").show(50, truncate=False)
        for one in report.damage:
            print(f"lost: {one}")
        if report.torn:
            print(f"not complete yet: {report.torn}")
    except (ValueError, rocketc.RocketcError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
