"""Keywords of the public functions: a misspelled one is refused with the nearest, and sizes may be text."""

import asyncio
import io

import pytest

import rocketc


@pytest.mark.parametrize(
    ("call", "given", "near"),
    [
        (lambda s, **given: s.put_async("t", b"x", **given), "property", "properties"),
        (lambda s, **given: s.put_many("t", [b"x"], **given), "queue", "queue_id"),
        (lambda s, **given: s.put_batch("t", [(0, b"x", None)], **given), "queueId", "queue_id"),
        (lambda s, **given: s.get("t", **given), "max_cnt", "max_count"),
        (lambda s, **given: s.get_raw("t", **given), "tag", "tags"),
        (lambda s, **given: s.query("t", "k", **given), "beginn", "begin"),
        (lambda s, **given: rocketc.scan(s.path, **given), "topcs", "topics"),
        (lambda s, **given: rocketc.scan(s.path, **given), "batch", "batch_bytes"),
        (lambda s, **given: rocketc.decode(b"", **given), "unwarp", "unwrap"),
    ],
)
def test_a_misspelled_keyword(open_store, call, given, near):
    store = open_store()
    with pytest.raises(TypeError, match=rf"^\w+\(\): unknown keyword {given}; did you mean {near}\?$"):
        call(store, **{given: "a"})
    with pytest.raises(TypeError, match=r"^\w+\(\): unknown keyword qqqqqq$"):
        call(store, qqqqqq="a")
    assert store.max_phy_offset == 0


def test_a_misspelled_keyword_of_put(open_store):
    """put() is called too often for a look at the other keywords: the message is Python's own."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'tgas'"):
        open_store().put("t", b"x", tgas="a")


def test_a_misspelled_keyword_of_aput(open_store):
    store = open_store()

    async def put():
        await store.aput("t", b"x", tgas="a")

    with pytest.raises(TypeError, match=r"^aput\(\): unknown keyword tgas; did you mean tags\?$"):
        asyncio.run(put())


def test_sizes_as_text(open_store):
    store = open_store()
    store.put_many("t", [bytes(100)] * 10_000)
    for text, number in (("64KiB", 64 << 10), ("1m", 1 << 20)):
        scans = [rocketc.scan(store.path, batch_bytes=size) for size in (text, number)]
        of_text, rows = [[batch.num_rows for batch in scan.batches()] for scan in scans]
        assert of_text == rows and sum(rows) == 10_000
    record = rocketc.encode("t", b"x")
    assert rocketc.decode(record, batch_bytes="16MiB", max_decompressed="64 mb").to_arrow().num_rows == 1
    rocketc.export(rocketc.scan(store.path), io.BytesIO(), "parquet", row_group_size="1MiB")


@pytest.mark.parametrize("name", ["batch_bytes", "max_decompressed"])
def test_texts_that_are_not_sizes(open_store, name):
    store = open_store()
    for call in (lambda **given: rocketc.scan(store.path, **given), lambda **given: rocketc.decode(b"", **given)):
        with pytest.raises(ValueError, match=f"^{name}: 'many' is not a number of bytes, nor a size such as '64MiB'$"):
            call(**{name: "many"})


def test_a_topic_that_brokers_refuse(open_store):
    """create_topic() refuses it, unless check_name is False. What no folder can be called is always refused."""
    store = open_store()
    with pytest.raises(rocketc.IllegalMessageError, match="may only have letters"):
        store.create_topic("new orders")
    store.create_topic("new orders", check_name=False)
    store.put("new orders", b"x")
    for name in ("", "..", "a/b", "a\nb", "x" * 256):
        with pytest.raises(rocketc.IllegalMessageError):
            store.create_topic(name, check_name=False)
    assert [*store.topics()] == ["new orders"]
    store.close()
    assert [*open_store().topics()] == ["new orders"]
