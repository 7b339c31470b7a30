"""The messages of each golden store, put again with the same fields and clock, give RocketMQ's own bytes.

Compared are every record, and the first 8 bytes of every blank record. The other bytes of a blank record are not
read: old releases and the transient pool leave stale bytes there, rocketc writes zeros.
"""

import itertools
import re

import pytest
from support import oracle, stores

import rocketc

pytestmark = pytest.mark.promise(9)

SHARED = ("topic", "queueId", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes")


def golden_log(store):
    """(first offset, bytes) of each log file as RocketMQ wrote it; a bit that was flipped on purpose is restored."""
    files = [(start, data) for start, data, _ in oracle.read_log(store.path / "commitlog")]
    damage = store.about["told"].get("damage", {})
    if "byte" in damage:
        bit = int(re.match(r"bit (\d)", damage["kind"])[1])
        at = next(i for i, (start, data) in enumerate(files) if start <= damage["byte"] < start + len(data))
        start, data = files[at]
        healed = bytearray(data)
        healed[damage["byte"] - start] ^= 1 << bit
        files[at] = start, bytes(healed)
    return files


def calls(items):
    """Items in log order; those that were put in one call are in one list.

    A run of single messages of one millisecond also looks like a client batch. Put as a batch they give the same bytes
    if no file ends within them, so a run ends at each blank record.
    """

    def kind(item):
        return item.start if isinstance(item, oracle.Blank) else tuple(item[key] for key in SHARED)

    for _, group in itertools.groupby(items, kind):
        run = list(group)
        if len(run) > 1 and could_be_batch(run):
            yield run
        else:
            yield from ([item] for item in run)


def could_be_batch(run):
    return (
        not run[0]["sysFlag"] & (0xC | oracle.INNER_BATCH)
        and not run[0]["topic"].startswith("%RETRY%")
        and not any(item["preparedTransactionOffset"] or "DELAY" in item["properties"] for item in run)
    )


def put(store, run, crc):
    """Put the messages of one call; return the offsets of the first record."""
    first = run[0]
    fields = {
        "queue_id": first["queueId"],
        "sys_flag": first["sysFlag"],
        "born_timestamp": first["bornTimestamp"],
        "born_host": oracle.host_pair(first["bornHost"]),
        "store_host": oracle.host_pair(first["storeHost"]),
        "reconsume_times": first["reconsumeTimes"],
    }
    stored = [item["storedProperties"][: -oracle.CRC_BYTES if crc else None] for item in run]
    store._set_clock(first["storeTimestamp"])
    if len(run) > 1:
        rows = [(item["flag"], item["storedBody"], raw) for item, raw in zip(run, stored, strict=True)]
        return store.put_batch(first["topic"], rows, **fields)
    return store.put(
        first["topic"],
        first["storedBody"],
        properties=stored[0],
        flag=first["flag"],
        prepared_transaction_offset=first["preparedTransactionOffset"],
        **fields,
    )


@pytest.mark.some(5)
@pytest.mark.parametrize("name", stores.NAMES)
def test_put_again(golden, tmp_path, name):
    files = golden_log(golden(name))
    size = len(files[0][1])
    items = oracle.walk_log(files, crc="full")
    whole = list(itertools.takewhile(lambda item: not isinstance(item, oracle.Damage), items))
    assert items[len(whole) + 1 :] == [], "only the last record may be torn"
    config = golden(name).config
    crc = config.enabled_append_prop_crc
    assert files[0][0] == 0

    with rocketc.open(
        tmp_path,
        mapped_file_size_commit_log=size,
        enabled_append_prop_crc=crc,
        transient_store_pool_enable=config.transient_store_pool_enable,
        transient_store_pool_size=config.transient_store_pool_size,
        check_before_put_message=False,  # the stores were written without a broker, or before it counted bytes
    ) as store:
        for run in calls(whole):
            if isinstance(run[0], oracle.Blank):
                if run[0].stop - run[0].start == size:  # left by a message longer than a file, which we refuse
                    store._roll()
                    store._roll()
                continue
            r = put(store, run, crc)
            assert (r.phy_offset, r.queue_offset) == (run[0]["start"], run[0]["queueOffset"])
            assert r.end == run[-1]["stop"]
            assert r.msg_id == run[0]["msgId"]
            assert r.count == len(run)
        assert store.max_phy_offset == oracle.log_end(whole)

    ours = dict(entry[:2] for entry in oracle.read_log(tmp_path / "commitlog"))
    theirs = dict(files)
    for item in whole:
        blank = isinstance(item, oracle.Blank)
        start, stop = (item.start, item.start + 8) if blank else (item["start"], item["stop"])
        base = start - start % size
        expected = theirs[base][start - base : stop - base]
        assert ours[base][start - base : stop - base] == expected, f"{name}: at physical offset {start}"
    assert oracle.walk_log(ours.items(), crc="full")[: len(whole)] == whole
    assert sorted(ours) == [base for base in sorted(theirs) if base <= last_file(whole, size)]


def last_file(whole, size):
    """Start of the file that has the last item."""
    last = whole[-1]
    start = last.start if isinstance(last, oracle.Blank) else last["start"]
    return start - start % size


def test_light_queues_get_the_offsets_that_rocketmq_gave_them(golden, tmp_path):
    found = [m for m in rocketc.scan(golden("v533-store").path) if "INNER_MULTI_DISPATCH" in m.properties]
    assert len({name for m in found for name in m.properties["INNER_MULTI_DISPATCH"].split(",")}) > 1
    with rocketc.open(tmp_path, enable_lmq=True, enable_multi_dispatch=True) as store:
        for m in found:
            store.put(m.topic, m.body, properties={"INNER_MULTI_DISPATCH": m.properties["INNER_MULTI_DISPATCH"]})
    ours = [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in rocketc.scan(tmp_path)]
    assert ours == [m.properties["INNER_MULTI_QUEUE_OFFSET"] for m in found]
