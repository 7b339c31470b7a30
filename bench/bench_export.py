"""How fast are logs exported to Parquet, JSON Lines and CSV?"""

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from common import Bench, Log, same, sum_batches, timed

import rocketc
from rocketc.exports.columns import ROW_GROUP_BYTES, parquet_options

bench = Bench("export", __doc__)
OUT = Path(bench.args.data, "export")
SIZE = (64 if bench.quick else 256) << 20  # size of a log; the peer has its table in memory


def exported(log: Log, name: str, **options) -> rocketc.ExportReport:
    return rocketc.export(rocketc.scan(log.path), OUT / name, overwrite=True, **options)


def written_by_pyarrow(table: pa.Table):
    """Write the same table with pyarrow: same settings, same row group sizes, also durable."""
    rows = -(-table.num_rows // -(-table.nbytes // ROW_GROUP_BYTES))
    path = OUT / "theirs.parquet"
    with pq.ParquetWriter(path, table.schema, **parquet_options(table.schema, "zstd", True)) as writer:
        writer.write_table(table, row_group_size=rows)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def check(log: Log, table: pa.Table):
    """Check that both files have the log, and that ours is not larger than theirs."""
    exported(log, "ours.parquet")
    written_by_pyarrow(table)
    ours, theirs = (pq.ParquetFile(OUT / f"{who}.parquet") for who in ("ours", "theirs"))
    same(sum_batches(ours.iter_batches()), log.sum, "rocketc")
    same(sum_batches(theirs.iter_batches()), log.sum, "pyarrow")
    sizes = [os.path.getsize(OUT / f"{who}.parquet") for who in ("ours", "theirs")]
    if sizes[0] > 1.1 * sizes[1]:
        raise SystemExit(f"bench: {sizes[0]} bytes of rocketc against {sizes[1]} of pyarrow; nothing was measured")


def against_pyarrow(log: Log, name: str):
    table = rocketc.scan(log.path).to_arrow()
    theirs = timed(partial(written_by_pyarrow, table))
    for case, goal, options in (("", 0.8, {}), (", one thread", None, {"jobs": 1})):
        bench.row(
            f"{name} -> Parquet{case}",
            against="pyarrow, from memory",
            goal=goal,
            work=log.bytes / 1e6,
            unit="MB/s",
            check=partial(check, log, table),
            ours=timed(partial(exported, log, "ours.parquet", **options)),
            theirs=theirs,
        )


def for_information(log: Log, name: str):
    """Measure the other formats against the same peer."""
    table = rocketc.scan(log.path).to_arrow()
    for case, file, options in (
        ("Parquet by topic and date", "folder", {"partition_by": ("topic", "date")}),
        *((suffix[1:], f"ours{suffix}", {}) for suffix in (".arrow", ".jsonl", ".csv", ".jsonl.gz")),
    ):
        bench.row(
            f"{name} -> {case}",
            against="pyarrow, from memory, to Parquet",
            work=log.bytes / 1e6,
            unit="MB/s",
            ours=timed(partial(exported, log, file, **options)),
            theirs=timed(partial(written_by_pyarrow, table)),
        )


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for body, name in ((1024, "1 KiB"), (256, "256 B")):
        against_pyarrow(bench.log(body=body, size=SIZE), name)
        for_information(bench.log(body=body, size=SIZE // 8), name)


if __name__ == "__main__":
    main()
