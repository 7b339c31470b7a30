"""Every field of every record of every golden store is read as RocketMQ reads it, through Message, Arrow and JSON."""

import hashlib
import json

import pyarrow as pa
import pytest
from support import compare, oracle, stores

import rocketc

pytestmark = pytest.mark.promise(9)


@pytest.fixture(scope="module")
def items(golden):
    """items(name): what the oracle reads in a golden store.

    tests/unit/support/test_oracle_golden.py checks that it agrees with RocketMQ.
    """
    done = {}

    def get(name):
        if name not in done:
            done[name] = oracle.walk_log(oracle.read_log(golden(name).path / "commitlog"), crc="full")
        return done[name]

    return get


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def told(m):
    """A message in the form of a line of expected.jsonl; m is a dict of JSON keys with `storedBody` and `body`."""
    return {
        **{key: m[key] for key in m if key not in ("body", "physicalOffset", "storeSize", "keys", "tags", "file")},
        "phyOffset": m["physicalOffset"],
        "size": m["storeSize"],
        "bornHost": oracle.java_host(m["bornHost"]),
        "storeHost": oracle.java_host(m["storeHost"]),
        "plainBodySha256": sha256(m["body"]),
        "plainBodyLen": len(m["body"]),
    }


def same(found, expected):
    """Compare the keys that `expected` has; both are in the form of expected.jsonl."""
    return [{key: f[key] for key in e} for f, e in zip(found, expected, strict=True)]


ROW_KEYS = ["phyOffset", "size", "topic", "queueId", "queueOffset", "flag", "sysFlag", "bornTimestamp", "bornHost"]
ROW_KEYS += ["storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "bodyCRC", "properties"]
ROW_KEYS += ["plainBodySha256", "plainBodyLen", "msgId"]  # the fields of a record that a row has


@pytest.mark.parametrize("name", stores.WHOLE)
def test_messages(golden, name):
    store = golden(name)
    scan = rocketc.scan(store.path, unwrap=False, crc="full")
    found = []
    for message in scan:
        m = compare.of_message(message)
        one = told(m)
        one["storedBodyLen"] = len(m["storedBody"])
        one["bodySha256"] = sha256(m["storedBody"])
        one["propertiesLen"] = oracle.record_at(message.record, 0)["propertiesLen"]
        one["body"] = m["body"].decode("utf-8", "replace")
        assert m["keys"] == m["properties"].get("KEYS")
        assert m["tags"] == m["properties"].get("TAGS")
        assert m["file"] in map(str, store.log_files)
        assert len(message.record) == m["storeSize"]
        found.append(one)
    assert same(found, store.messages) == store.messages
    assert scan.report.damage == scan.report.missing == []
    assert scan.report.blanks == len(store.expected) - len(store.messages)
    last = store.expected[-1]
    assert scan.report.end == last["phyOffset"] + last["size"]


@pytest.mark.some(6)
@pytest.mark.parametrize("name", stores.WHOLE)
@pytest.mark.parametrize("way", ["to_arrow", "batches"])
def test_arrow(golden, name, way):
    store = golden(name)
    scan = rocketc.scan(store.path, unwrap=False, batch_bytes=100_000)
    if way == "to_arrow":
        table = scan.to_arrow()
    else:
        batches = list(scan.batches())
        assert len(batches) > 1
        table = pa.Table.from_batches(batches)
    rows = compare.table_rows(table)
    for row in rows:
        row["bornTimestamp"] //= 1000
        row["storeTimestamp"] //= 1000
        assert row["keys"] == row["properties"].get("KEYS")
        assert row["tags"] == row["properties"].get("TAGS")
    expected = [{key: record[key] for key in ROW_KEYS} for record in store.messages]
    assert same([told(row) for row in rows], expected) == expected


@pytest.mark.parametrize("name", stores.WHOLE)
def test_json(golden, name):
    store = golden(name)
    keys = ["topic", "queueId", "queueOffset", "storeTimestamp", "bornTimestamp", "properties", "msgId", "flag"]
    keys += ["sysFlag", "reconsumeTimes", "bodyCRC", "preparedTransactionOffset"]
    for message, record in zip(rocketc.scan(store.path, unwrap=False), store.messages, strict=True):
        line = message.to_json()
        assert "\n" not in line
        one = json.loads(line)
        assert {key: one[key] for key in keys} == {key: record[key] for key in keys}
        assert one == message.to_dict()
        assert list(one) == [
            key for key in (*oracle.JSON_KEYS[:10], "bodyBase64", *oracle.JSON_KEYS[10:]) if key in one
        ]
        assert one["physicalOffset"] == record["phyOffset"]
        assert one["storeSize"] == record["size"]
        assert oracle.java_host(one["storeHost"]) == record["storeHost"]
        assert one.get("keys") == record["properties"].get("KEYS")
        if "body" in record:
            assert one["body"] == record["body"]


@pytest.mark.some(6)
@pytest.mark.parametrize("name", stores.NAMES)
@pytest.mark.parametrize("unwrap", [True, False])
def test_everything_as_the_oracle_reads_it(items, golden, name, unwrap):
    """Damaged stores and inner batches too: messages, rows, JSON, damage, numbers of the report."""
    expected = compare.expected(items(name), unwrap=unwrap)
    messages, _ = compare.outline(expected)
    scan = rocketc.scan(golden(name).path, errors="skip", crc="full", unwrap=unwrap)
    found = list(scan)
    assert [compare.of_message(m) for m in found] == messages
    compare.check_report(scan.report, items(name), expected)
    assert [m.to_dict() for m in found] == [oracle.json_form(r) for r in oracle.records(expected)]
    assert compare.table_rows(scan.to_arrow()) == [compare.row_of_record(r) for r in oracle.records(expected)]
    compare.check_report(scan.report, items(name), expected)
    assert scan.count() == len(messages)
    compare.check_report(scan.report, items(name), expected)


def test_inner_batches_are_read_as_their_messages(golden):
    """The numbers in the golden store: INNER_BASE, INNER_NUM, and the units of the batch queue."""
    store = golden("v533-broker")
    records = [m for m in rocketc.scan(store.path, unwrap=False) if m.sys_flag & 0x80]
    assert len(records) > 10
    inner = {}
    for m in rocketc.scan(store.path):
        if m.sys_flag & 0x80:
            inner.setdefault(m.phy_offset, []).append(m)
    for record in records:
        messages = inner[record.phy_offset]
        base, count = int(record.properties["INNER_BASE"]), int(record.properties["INNER_NUM"])
        assert [m.queue_offset for m in messages] == list(range(base, base + count))
        entries = rocketc.decode_batch(record.stored_body)
        assert [(m.flag, m.body) for m in messages] == [(flag, body) for flag, body, _ in entries]
        assert [m.properties for m in messages] == [oracle.decode_properties(raw) for _, _, raw in entries]
        assert {m.record for m in messages} == {record.record}
    bodies = [m.body for batch in inner.values() for m in batch]
    assert len(set(bodies)) == len(bodies)


def test_the_damage_of_the_golden_stores(golden):
    """The places of the damage, according to the files that describe it."""
    rotten = golden("v533-bitrot").about["told"]["damage"]
    scan = rocketc.scan(golden("v533-bitrot").path, errors="skip")
    records = scan.count()
    lost = (rotten["record"], rotten["record"] + rotten["size"], "bad_body_crc")
    assert [(d.start, d.stop, d.reason) for d in scan.report.damage] == [lost]
    assert rocketc.scan(golden("v533-bitrot").path, crc="none").count() == records + 1
    for version in ("v497", "v533"):
        torn = golden(f"{version}-torn").about["told"]["damage"]
        scan = rocketc.scan(golden(f"{version}-torn").path, errors="skip")
        whole = rocketc.scan(golden(f"{version}-unclean").path)
        assert scan.count() == whole.count() - 1
        [damage] = scan.report.damage
        assert damage.start == torn["record"]
        assert damage.stop <= torn["record"] + torn["size"]
        assert whole.report.damage == []
        with pytest.raises(rocketc.CorruptRecordError) as caught:
            rocketc.scan(golden(f"{version}-torn").path).count()
        assert caught.value.offset == torn["record"]


@pytest.mark.parametrize("name", stores.NAMES)
def test_a_store_by_all_forms_of_its_path(golden, name, monkeypatch):
    """Root, commitlog folder, glob, list of files, single files, relative paths: the same messages."""
    store = golden(name)

    def offsets(path):
        return [m.phy_offset for m in rocketc.scan(path, errors="skip")]

    whole = offsets(store.path)
    assert len(whole) > 500
    assert offsets(str(store.path)) == whole
    assert offsets(store.path / "commitlog") == whole
    assert offsets(f"{store.path}/commitlog/0*") == whole
    assert offsets(list(reversed(store.log_files))) == whole
    monkeypatch.chdir(store.path)
    assert offsets("commitlog") == offsets(".") == whole
    assert [n for path in store.log_files for n in offsets(path)] == whole


@pytest.mark.parametrize("name", stores.NAMES)
def test_a_file_as_bytes(golden, name):
    """Each file, read as a buffer whose offset follows from its first record, has the messages of the file's scan."""
    for path in golden(name).log_files:
        from_file = rocketc.scan(path, errors="skip")
        data = path.read_bytes()
        if not any(data):
            continue
        from_bytes = rocketc.decode(data, None, errors="skip", file=str(path))
        assert list(from_bytes) == list(from_file)
        last = path == golden(name).log_files[-1] or from_file.report.end < int(path.name) + len(data)
        if not last:
            assert from_bytes.report.damage == from_file.report.damage
