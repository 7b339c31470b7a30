"""The oracle compared with stores of RocketMQ: exactly the records of RocketMQ are read."""

import hashlib
from pathlib import Path

import pytest
from support import oracle, stores


@pytest.fixture(scope="module")
def log_items(golden):
    """log_items(name): the items of a golden store, read once with all checks on."""
    done = {}

    def get(name):
        if name not in done:
            done[name] = oracle.walk_log(oracle.read_log(golden(name).path / "commitlog"), crc="full")
        return done[name]

    return get


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def as_rocketmq_tells_it(item, keys):
    """Return an item in the form of a line of expected.jsonl."""
    if isinstance(item, oracle.Blank):
        return {"phyOffset": item.start, "size": item.stop - item.start, "magic": "blank"}
    plain = oracle.plain_body(item)
    shape = {
        **item,
        "phyOffset": item["physicalOffset"],
        "size": item["storeSize"],
        "bornHost": oracle.java_host(item["bornHost"]),
        "storeHost": oracle.java_host(item["storeHost"]),
        "bodySha256": sha256(item["storedBody"]),
        "plainBodySha256": sha256(plain),
        "plainBodyLen": len(plain),
    }
    if "body" in keys:
        shape["body"] = plain.decode()
    return {key: shape[key] for key in keys}


@pytest.mark.parametrize("name", stores.WHOLE)
def test_every_record_is_read_as_by_rocketmq(golden, log_items, name):
    expected = golden(name).expected
    items = log_items(name)
    assert oracle.damage(items) == []
    assert [as_rocketmq_tells_it(i, e.keys()) for i, e in zip(items, expected, strict=True)] == expected
    for r in oracle.records(items):
        assert (r["start"], r["stop"]) == (r["physicalOffset"], r["physicalOffset"] + r["storeSize"])


@pytest.mark.parametrize("name", stores.WHOLE)
def test_decoded_records_encode_to_the_same_bytes(golden, log_items, name):
    """Each record is encoded again from its decoded fields, and from the property map where this is possible."""
    contents = {str(path): path.read_bytes() for path in golden(name).log_files}
    from_map = 0
    for r in oracle.records(log_items(name)):
        pairs, stored = r["properties"], r["storedProperties"]
        ends = stored.endswith(b"\x02")
        has_crc = oracle.ends_in_crc_property(stored)
        if oracle.encode_properties(pairs, trailing_separator=ends) == stored:
            from_map += 1
        else:
            pairs = stored  # a property name occurred twice
        again = oracle.encode(
            r["topic"],
            r["storedBody"],
            queue_id=r["queueId"],
            flag=r["flag"],
            queue_offset=r["queueOffset"],
            phy_offset=r["physicalOffset"],
            sys_flag=r["sysFlag"],
            born_timestamp=r["bornTimestamp"],
            born_host=oracle.host_pair(r["bornHost"]),
            store_timestamp=r["storeTimestamp"],
            store_host=oracle.host_pair(r["storeHost"]),
            reconsume_times=r["reconsumeTimes"],
            prepared_transaction_offset=r["preparedTransactionOffset"],
            properties=pairs,
            version=int(r["magic"][1]),
            property_crc=has_crc,
            trailing_separator=ends,
        )
        pos = r["start"] - int(Path(r["file"]).name)
        assert again == contents[r["file"]][pos : pos + r["storeSize"]]
        assert has_crc == (name == "v533-store-crc")
    assert from_map > 100


@pytest.mark.parametrize(("name", "trailing"), [("v497-broker", False), ("v533-broker", True)])
def test_last_separator_of_each_release(log_items, name, trailing):
    ends = {r["storedProperties"].endswith(b"\x02") for r in oracle.records(log_items(name))}
    assert ends == {trailing}


def test_inner_batches(log_items):
    records = [r for r in oracle.records(log_items("v533-broker")) if r["sysFlag"] & oracle.INNER_BATCH]
    assert len(records) > 10
    for r in records:
        messages = oracle.read([r])
        base, count = int(r["properties"]["INNER_BASE"]), int(r["properties"]["INNER_NUM"])
        assert [m["queueOffset"] for m in messages] == list(range(base, base + count))
        assert {m["topic"] for m in messages} == {"Inner"}
        assert len({m["properties"]["UNIQ_KEY"] for m in messages}) == count


@pytest.mark.parametrize("name", ["v497-unclean", "v533-unclean"])
def test_a_killed_store_is_read_to_its_end(golden, log_items, name):
    recovered = golden(name).recovered
    items = log_items(name)
    assert not any(golden(name).log_files[-1].read_bytes()), "the last file is only prepared"
    assert oracle.damage(items) == []
    assert len(items) == recovered["decodableRecordsBefore"]
    assert oracle.log_end(items) == recovered["decodableEndBefore"] == recovered["afterLoad"]["maxPhyOffset"]


@pytest.mark.parametrize("name", ["v497-torn", "v533-torn"])
def test_a_torn_store_loses_its_last_record(golden, log_items, name):
    torn = golden(name).about["told"]["damage"]
    items = log_items(name)
    (lost,) = oracle.damage(items)
    assert items[-1] == lost
    assert lost.reason == "bad_length"
    assert lost.start == torn["record"] == golden(name).recovered["afterLoad"]["maxPhyOffset"]
    # The damage ends with the last byte that is not zero. The kept half may end with zeros.
    assert torn["size"] // 4 < lost.stop - lost.start <= torn["size"] // 2
    whole = log_items(name.replace("torn", "unclean"))
    assert [r["start"] for r in oracle.records(items)] == [r["start"] for r in oracle.records(whole)][:-1]


def test_a_flipped_bit_costs_one_record(golden, log_items):
    store = golden("v533-bitrot")
    flipped, recovered = store.about["told"]["damage"], store.recovered["clean start"]
    items = log_items("v533-bitrot")
    (lost,) = oracle.damage(items)
    assert lost[:3] == (flipped["record"], flipped["record"] + flipped["size"], "bad_body_crc")
    assert Path(lost.file).name == flipped["file"]
    assert len(items) == recovered["decodableRecordsBefore"]
    assert oracle.log_end(items) == recovered["decodableEndBefore"]

    unchecked = oracle.walk_log(oracle.read_log(store.path / "commitlog"), crc="none")
    assert oracle.damage(unchecked) == []
    assert len(unchecked) == recovered["decodableRecordsBefore"]
    (bad,) = [r for r in oracle.records(unchecked) if r["start"] == lost.start]
    seen = recovered["damagedRecord"]
    assert [bad[key] for key in ("topic", "queueId", "queueOffset")] == [
        seen[key] for key in ("topic", "queueId", "queueOffset")
    ]


@pytest.mark.parametrize("name", stores.WHOLE)
def test_consume_queues_refer_to_the_records(golden, log_items, name):
    units, batch_units = {}, {}
    for path in golden(name).path.glob("consumequeue/*/*/*"):
        for n, unit in enumerate(oracle.queue_units(path.read_bytes()), int(path.name) // 20):
            units[path.parts[-3], int(path.parts[-2]), n] = unit
    for path in golden(name).path.glob("batchconsumequeue/*/*/*"):
        batch_units |= {unit.phy_offset: unit for unit in oracle.batch_queue_units(path.read_bytes()) if unit.size}

    checked = 0
    for r in oracle.records(log_items(name)):
        if r["sysFlag"] & 0xC in (0x4, 0xC):
            continue  # prepared or rolled back: in no queue
        tags = oracle.tags_code(r["tags"])
        if r["sysFlag"] & oracle.INNER_BATCH:
            count = int(r["properties"]["INNER_NUM"])
            expected = (r["start"], r["storeSize"], tags, r["storeTimestamp"], r["queueOffset"], count, -1, 0)
            assert batch_units.pop(r["start"]) == expected
        else:
            unit = units[r["topic"], r["queueId"], r["queueOffset"]]
            assert unit[:2] == (r["start"], r["storeSize"])
            if r["topic"] != "SCHEDULE_TOPIC_XXXX":  # its tags code is the delivery time
                assert unit.tags_code == tags
        checked += 1
    assert checked > 400
    assert batch_units == {}


@pytest.mark.parametrize("name", stores.WHOLE)
def test_index_files_refer_to_the_records(golden, log_items, name):
    slots = int(golden(name).about["config"].get("maxHashSlotNum", 5_000_000))
    by_offset = {r["start"]: r for r in oracle.records(log_items(name))}
    checked = 0
    for path in golden(name).path.glob("index/*"):
        header, chains, entries = oracle.index_file(path.read_bytes(), slots)
        assert sum(n > 0 for n in chains) == header.hash_slot_count
        for entry in entries[1 : header.index_count]:
            r = by_offset[entry.phy_offset]
            keys = [r["properties"].get("UNIQ_KEY", ""), *(r["keys"] or "").split(" ")]
            assert entry.key_hash in [oracle.key_hash(r["topic"], key) for key in keys if key]
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("name", stores.WHOLE)
def test_the_checkpoint_has_times_of_records(golden, log_items, name):
    point = oracle.checkpoint((golden(name).path / "checkpoint").read_bytes())
    times = {r["storeTimestamp"] for r in oracle.records(log_items(name))}
    assert {point.physic_msg_timestamp, point.logics_msg_timestamp} <= times
