"""Exports read back by other libraries: each format as a table with the columns of a scan."""

import csv
import datetime
import gzip
import io
import json
import os
from base64 import b64decode
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

import rocketc

SCHEMA = pa.schema(rocketc.decode(b""))
US = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def read_parquet(path):
    return pq.ParquetFile(path).read()


def read_arrow(path):
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def unpacked(path):
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    if path.suffix == ".zst":
        return pa.input_stream(str(path), compression="zstd").read().decode()
    return path.read_bytes().decode()


def read_jsonl(path):
    rows = []
    for line in unpacked(path).split("\n")[:-1]:
        row = json.loads(line)
        if "bodyBase64" in row:
            row["body"] = b64decode(row.pop("bodyBase64"))
        elif "body" in row:
            row["body"] = row["body"].encode()
        for name in {"storeTimestamp", "bornTimestamp"} & row.keys():
            row[name] *= 1000
        if "properties" in row:
            row["properties"] = list(row["properties"].items())
        rows.append(row)
    return table_of(rows, SCHEMA)


def read_csv(path):
    names, *lines = csv.reader(io.StringIO(unpacked(path), newline=""))
    schema = pa.schema([SCHEMA.field(name) for name in names if name != "bodyBase64"])
    rows = []
    for line in lines:
        row = dict(zip(names, line, strict=True))
        for field in schema:
            if pa.types.is_integer(field.type):
                row[field.name] = int(row[field.name])
            elif pa.types.is_timestamp(field.type):
                row[field.name] = (datetime.datetime.fromisoformat(row[field.name][:-1] + "+00:00") - EPOCH) // US
        for name in {"keys", "tags", "brokerName"} & row.keys():
            row[name] = row[name] or None
        if "body" in row:
            row["body"] = b64decode(row.pop("bodyBase64")) or row["body"].encode()
        if "properties" in row:
            row["properties"] = list(json.loads(row["properties"]).items())
        rows.append(row)
    return table_of(rows, schema)


def table_of(rows, schema):
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


READERS = {
    "x.parquet": read_parquet,
    "x.arrow": read_arrow,
    "x.feather": read_arrow,
    "x.jsonl": read_jsonl,
    "x.ndjson": read_jsonl,
    "x.csv": read_csv,
    "x.jsonl.gz": read_jsonl,
    "x.jsonl.zst": read_jsonl,
    "x.csv.gz": read_csv,
    "x.csv.zst": read_csv,
}
FORMATS = {"parquet": read_parquet, "arrow": read_arrow, "jsonl": read_jsonl, "csv": read_csv}


def read_parts(root, form):
    """Each partition's values, and its rows in the order of its parts."""
    found = {}
    for leaf in sorted({path.parent for path in root.rglob("part-*")}):
        key = tuple(unquote(level.partition("=")[2]) for level in leaf.relative_to(root).parts)
        numbers = sorted(int(path.name.split("-")[1].split(".")[0]) for path in leaf.iterdir())
        assert numbers == list(range(len(numbers)))
        found[key] = pa.concat_tables([FORMATS[form](leaf / f"part-{n}.{form}") for n in numbers])
    return found


def names_in(path):
    return sorted(os.listdir(path))
