"""Batches: by the compiled path and by the processor, which must do the same."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import virtual
from simulation.brokers import scene
from unit.broker.sends import TOLD, counts, play_on, stored

import rocketc
from rocketc.broker.batches import decode_batch
from rocketc.errors import BadRequestError
from rocketc.format.ids import decode_offset_id
from rocketc.remoting.codes import Code
from rocketc.status import PutStatus


@pytest.fixture(params=["path", "processor"])
def play(request, tmp_path):
    """Run main(scene, client), with the compiled path and without it; see play_on()."""
    return lambda main, **how: virtual.run(play_on(tmp_path, main, by_path=request.param == "path", **how))


BATCH = [(1, b"one", {"TAGS": "A"}), (2, b"two", None), (3, b"three", {"KEYS": "k"})]


def test_a_batch_is_stored_as_messages(play):
    async def main(stage, client):
        answer = await client.send(code=320, body=rocketc.encode_batch(BATCH), properties="UNIQ_KEY\1B\2WAIT\1true\2")
        assert answer.code == 0 and answer.fields["queueOffset"] == "0"
        ids = answer.fields["msgId"].split(",")
        messages = stored(stage)
        assert [decode_offset_id(one).phy_offset for one in ids] == [m.phy_offset for m in messages]
        assert [(m.flag, m.body, m.queue_offset) for m in messages] == [
            (1, b"one", 0),
            (2, b"two", 1),
            (3, b"three", 2),
        ]
        common = {"UNIQ_KEY": "B", "WAIT": "true", **TOLD, "CLUSTER": "DefaultCluster"}
        assert [m.properties for m in messages] == [{"TAGS": "A", **common}, common, {"KEYS": "k", **common}]

    play(main)


def test_the_answer_to_a_batch_of_many_messages(play):
    """It has their ids in its header. An error would make the producer send them twice."""

    async def main(stage, client):
        many = [(0, b"x", {}) for _ in range(9000)]
        answer = await client.send(code=320, body=rocketc.encode_batch(many), properties="")
        assert answer.code == 0 and answer.fields["msgId"].count(",") == 8999
        while stage.store.step():
            pass
        assert stage.store.max_offset("orders", 0) == 9000

    play(main, store={"mapped_file_size_commit_log": 4 << 20})


def test_a_batch_stays_without_a_unique_key(play):
    """Clients 4.x: each message has its own key."""
    own = [(0, b"one", {"UNIQ_KEY": "A1"}), (0, b"two", {"UNIQ_KEY": "A2"})]

    async def main(stage, client):
        answer = await client.send(code=320, body=rocketc.encode_batch(own), properties="")
        assert answer.code == 0 and "transactionId" not in answer.fields
        assert [m.properties["UNIQ_KEY"] for m in stored(stage)] == ["A1", "A2"]

    play(main)


def test_a_batch_for_queues_with_a_unit_per_batch(play):
    async def main(stage, client):
        stage.store.create_topic("inner", queue_type="BatchCQ")
        answer = await client.send(topic="inner", code=320, body=rocketc.encode_batch(BATCH))
        assert answer.code == 0 and answer.fields["batchUniqId"] == "K1" and "," not in answer.fields["msgId"]
        assert [m.body for m in stored(stage, "inner")] == [b"one", b"two", b"three"]

    play(main)


# Seen on a broker of 5.3.3; each sysFlag 0x80 that is accepted takes that many queue offsets.
INNER = {"3": 3, "0": 1, "-1": 1, "+3": 3, "32767": 32767, None: 1}
NO_NUMBERS = ("x", " 3", "32768", "-32769", "70000", "2147483648", "9" * 50)


@pytest.mark.parametrize("topic", ["orders", "inner"])
def test_the_marks_of_an_inner_batch(play, topic):
    async def main(stage, client):
        stage.store.create_topic("inner", queue_type="BatchCQ")
        stage.store.create_topic("orders", queue_type="SimpleCQ")

        async def send(count, sys_flag):
            properties = "UNIQ_KEY\1K\2" + ("" if count is None else f"INNER_NUM\1{count}\2")
            return await client.send(topic=topic, properties=properties, sysFlag=sys_flag)

        taken = 0
        for count in (*INNER, *NO_NUMBERS):
            if count is not None:
                assert (await send(count, 0)).code == Code.MESSAGE_ILLEGAL
            answer = await send(count, 0x80)
            if topic == "orders":
                assert answer.code == Code.MESSAGE_ILLEGAL and "msg body length limit" in answer.remark
            elif count in NO_NUMBERS:
                assert answer.code == Code.SYSTEM_ERROR
                assert answer.remark == f"the property INNER_NUM is {count[:20]!r}, which is not a number of 16 bits"
            else:
                assert (answer.code, answer.fields["queueOffset"]) == (0, str(taken))
                taken += INNER[count]
        assert stage.store.max_offset(topic, 0, committed=False) == taken

    play(main)


def test_the_largest_inner_batch(play):
    async def main(stage, client):
        stage.store.create_topic("inner", queue_type="BatchCQ")
        one = rocketc.encode_batch([(0, b"", None)])
        answer = await client.send(topic="inner", code=320, body=one * 32767)
        assert answer.code == 0
        answer = await client.send(topic="inner", code=320, body=one * 32768)
        assert (answer.code, answer.remark) == (1, "the batch has 32768 messages; 32767 at most")

    play(main)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"topic": "%RETRY%TOOLS_CONSUMER"}, Code.MESSAGE_ILLEGAL),
        ({"body": b""}, Code.SYSTEM_ERROR),
        ({"body": b"x"}, Code.MESSAGE_ILLEGAL),
        ({"body": rocketc.encode_batch(BATCH)[:-1]}, Code.MESSAGE_ILLEGAL),
        *(({"sysFlag": kind}, Code.MESSAGE_ILLEGAL) for kind in (4, 8, 12)),
        ({"body": rocketc.encode_batch(BATCH) + b"\0"}, Code.MESSAGE_ILLEGAL),
    ],
)
def test_batches_that_are_refused(play, values, code):
    async def main(stage, client):
        told = {"body": rocketc.encode_batch(BATCH), **values}
        answer = await client.send(code=320, **told)
        assert answer.code == code and stage.store.max_phy_offset == 0

    play(main)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_decoder_of_batches(data):
    try:
        found = decode_batch(data)
    except BadRequestError:
        return
    assert sum(22 + len(body) + len(properties) for _, body, properties in found) == len(data)


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("properties", ["", "WAIT\1true\2", "UNIQ_KEY\1B\2", "own\1x"])
def test_the_compiled_path_takes_batches(tmp_path, flush, properties):
    async def main():
        async with scene(tmp_path, store={"flush": flush}) as stage:
            client, path = stage.client(), stage.broker.path
            await client.send(queueId=9999)  # creates the topic
            single = client.send(properties="UNIQ_KEY\1first\2")  # before the batch in the same connection
            batch = client.send(code=320, body=rocketc.encode_batch(BATCH), properties=properties)
            answers = await asyncio.gather(single, batch)
            assert [answer.code for answer in answers] == [0, 0] and path.sent == 1 + len(BATCH)
            ids = [decode_offset_id(one).phy_offset for one in answers[1].fields["msgId"].split(",")]
            assert [m.phy_offset for m in stored(stage, "orders", 0)[1:]] == ids
            assert answers[1].fields.get("transactionId") == ("B" if "UNIQ_KEY" in properties else None)
            assert counts(stage)[320, 0] == 1
            values = {"producerGroup": "shop", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
            values |= {"queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": properties}
            await client.channel.send(320, values, asyncio.get_running_loop().time() + 3, rocketc.encode_batch(BATCH))
            await asyncio.sleep(1)
            assert path.sent == 1 + 2 * len(BATCH) and counts(stage)[320, 0] == 2

    virtual.run(main())


def test_a_full_disk_is_an_answer_to_a_batch(play):
    async def main(stage, client):
        stage.store._set_full(True)
        answer = await client.send(code=320, body=rocketc.encode_batch(BATCH), properties="")
        assert answer.code == Code.SERVICE_NOT_AVAILABLE and "full" in answer.remark
        assert counts(stage)[320, Code.SERVICE_NOT_AVAILABLE] == 1
        stage.store._set_full(False)

    play(main)


def appended_batch(stage, body, added=b"TOLD\1x\2"):
    """Append the body of a batch to the first queue of `orders` by the compiled path."""
    return stage.broker.path.append_batch(b"orders", 0, body, added, 0, 1, bytes([127, 0, 0, 1, 0, 0, 0, 9]), 0)


def test_the_compiled_batch_is_stored_as_the_decoded_one(play):
    """The same records but for their places: with properties, without, and with a separator at their end or not."""

    async def main(stage, client):
        added, host = b"TOLD\1x\2", bytes([127, 0, 0, 1, 0, 0, 0, 9])
        batch = [*BATCH, (9, b"", None), (-1, b"x" * 300, {"TAGS": "A"})]
        body = rocketc.encode_batch(batch)
        bare = body.replace(b"TAGS\1A\2", b"TAGS\1AA")  # no separator at the end, the same size
        assert bare != body
        for one in (body, bare):
            status, ids, first, end = appended_batch(stage, one)
            assert (status, end) == (PutStatus.PUT_OK, stage.store.max_phy_offset)
            messages = [
                (flag, text, own + (b"\2" if own and not own.endswith(b"\2") else b"") + added)
                for flag, text, own in decode_batch(one)
            ]
            _, offsets, second, _ = stage.broker.path.append(b"orders", 0, messages, 0, 1, host, 0, True)
            await stage.settle()
            found = [stage.store.get("orders", 0, at, len(batch)).messages for at in (first, second)]
            assert [m.phy_offset for m in found[0]] == [decode_offset_id(id).phy_offset for id in ids.split(",")]
            assert [m.phy_offset for m in found[1]] == offsets
            told = [[(m.flag, m.body, m.properties, m.store_size) for m in some] for some in found]
            assert told[0] == told[1] and len(told[0]) == len(batch)

    play(main)


def test_the_compiled_batch_refuses_what_the_decoder_refuses(play):
    async def main(stage, client):
        data = rocketc.encode_batch(BATCH)
        before = stage.store.max_phy_offset
        ends = {0}
        for one in BATCH:
            ends.add(max(ends) + len(rocketc.encode_batch([one])))
        for cut in range(len(data)):
            if cut not in ends or cut == 0:
                assert appended_batch(stage, data[:cut]) is None, cut
        for at in range(len(data)):  # every byte of the sizes as large and as negative as it can be
            for value in (0x7F, 0x80, 0xFF):
                damaged = data[:at] + bytes([value]) + data[at + 1 :]
                try:
                    decode_batch(damaged)
                except BadRequestError:
                    assert appended_batch(stage, damaged) is None, at
        assert appended_batch(stage, data, b"x" * 32767) is None
        assert stage.store.max_phy_offset == before

    play(main)


@pytest.mark.parametrize("cut", range(len(rocketc.encode_batch(BATCH))))
def test_a_batch_that_is_cut_off(cut):
    data = rocketc.encode_batch(BATCH)
    ends = {0}
    for one in BATCH:
        ends.add(max(ends) + len(rocketc.encode_batch([one])))
    if cut in ends:
        assert len(decode_batch(data[:cut])) == sorted(ends).index(cut)
    else:
        with pytest.raises(BadRequestError, match="of the batch is invalid"):
            decode_batch(data[:cut])
