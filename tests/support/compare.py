"""What rocketc and the oracle read, in one form that can be compared.

A message is a dict with the oracle's keys (those of JSON and a few more), damage is (file, start, stop, reason).
"""

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rocketc
from support import oracle

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
KEYS = [*oracle.JSON_KEYS, "storedBody", "magic"]
INT64_US = (1 << 63) // 1000  # larger values in ms do not fit into a column of us

Told = dict[str, Any]
Lost = tuple[str | None, int, int, str]


def stored(message: rocketc.Message) -> Told:
    """The fields that RocketMQ reports too, under its names; without the body and the hosts."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.phy_offset,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "properties": message.properties,
        "msgId": message.msg_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "bodyCRC": message.body_crc,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "storeSize": message.store_size,
    }


def of_message(message: rocketc.Message) -> Told:
    """Every attribute of a Message under the oracle's key."""
    return {
        **stored(message),
        "keys": message.keys,
        "tags": message.tags,
        "body": message.body,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "file": message.file,
        "brokerName": message.broker_name,
        "storedBody": message.stored_body,
        "magic": f"V{message.version}",
    }


def of_record(record: oracle.Record) -> Told:
    return {key: record[key] for key in KEYS}


def of_row(row: dict[str, Any]) -> Told:
    """A row of to_pylist(), timestamps as us (see `table_rows`)."""
    return {**row, "properties": dict(row["properties"])}


def row_of_record(record: oracle.Record) -> Told:
    """The Arrow row of a record: us instead of ms, null where they do not fit."""
    row = {key: record[key] for key in oracle.JSON_KEYS}
    for key in ("storeTimestamp", "bornTimestamp"):
        row[key] = row[key] * 1000 if -INT64_US <= row[key] <= INT64_US else None
    return row


def table_rows(table: Any) -> list[Told]:
    """The rows of a pyarrow.Table or RecordBatch; timestamps as int us, because Python's begin with the year 1."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    table.validate(full=True)
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            assert field.type == pa.timestamp("us", tz="UTC")
            table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    rows = table.to_pylist()
    for row in rows:
        if "properties" in row:
            assert len(dict(row["properties"])) == len(row["properties"]), "a map has a key twice"
            row["properties"] = dict(row["properties"])
    return rows


def lost(damage: Iterable[Any]) -> list[Lost]:
    """Damage, as rocketc or the oracle reports it."""
    return [(d.file, d.start, d.stop, d.reason) for d in damage]


def expected(
    items: list[oracle.Item], *, decompress: bool = True, unwrap: bool = True, limit: int = 64 << 20
) -> list[oracle.Item]:
    """Like oracle.read, but with unwrap a compressed inner batch is read as its messages even without decompress."""
    out: list[oracle.Item] = []
    for item in items:
        batch = isinstance(item, dict) and item["sysFlag"] & 0xC0 == 0xC0
        out += oracle.read([item], decompress=decompress or (batch and unwrap), unwrapping=unwrap, limit=limit)
    return out


def outline(items: list[oracle.Item]) -> tuple[list[Told], list[Lost]]:
    return [of_record(r) for r in oracle.records(items)], lost(oracle.damage(items))


def first_damage(items: list[oracle.Item]) -> tuple[list[Told], oracle.Damage | None]:
    """The messages before the first damage, and that damage."""
    before: list[Told] = []
    for item in items:
        if isinstance(item, oracle.Damage):
            return before, item
        if isinstance(item, dict):
            before.append(of_record(item))
    return before, None


def write_log(folder: Path, files: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes, str]]:
    """Write the files of a log as a store's commitlog folder; return the argument for oracle.walk_log."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for base, data in files:
        path = folder / f"{base:020d}"
        path.write_bytes(data)
        written.append((base, data, str(path)))
    return written


def check_report(report: rocketc.ScanReport, walked: list[oracle.Item], read: list[oracle.Item], base: int = 0) -> None:
    """Check the numbers of a finished scan: `walked` are the items of oracle.walk_log, `read` those of oracle.read."""
    assert report.records == len(oracle.records(read))
    assert report.blanks == len(oracle.blanks(walked))
    spans = [(i["start"], i["stop"]) if isinstance(i, dict) else (i.start, i.stop) for i in walked]
    assert report.bytes == sum(stop - start for start, stop in spans)
    assert report.end == oracle.log_end(walked, base)
    assert lost(report.damage) == lost(oracle.damage(read))
