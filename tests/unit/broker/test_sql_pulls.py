"""Pulls with SQL92 filters, on virtual time with a real store. Expected answers were seen on a 5.3.3 broker."""

import asyncio
import contextlib
import gc
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interop.asking import Asking
from simulation import virtual
from simulation.brokers import Scene, scene
from unit.broker.sql_pulls import ON, beat, bodies, hold, known, own, play_on, put, retried, sql

import rocketc
from rocketc.broker import pull as pull_module
from rocketc.broker._property_filters import PropertyFilter, RetryFilter, property_filter, retry_filter
from rocketc.broker._pull_path import CheckedPull
from rocketc.broker.config import BrokerConfig
from rocketc.broker.subscriptions import Subscription
from rocketc.errors import RocketcError
from rocketc.read import sql as sql_module
from rocketc.read.sql import compile_sql
from rocketc.remoting.codes import Code
from rocketc.store._results import TagFilter


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client); see play_on()."""
    return lambda main, **how: virtual.run(play_on(tmp_path, main, **how))


@pytest.mark.parametrize(
    ("text", "values", "code", "found", "following"),
    [
        ("a > 4", {}, Code.SUCCESS, [5, 6, 7, 8, 9], 10),
        ("a = 3", {}, Code.SUCCESS, [3], 10),
        ("a > 2", {"maxMsgNums": 1}, Code.SUCCESS, [3], 4),
        ("a IN ('1', '8')", {}, Code.SUCCESS, [1, 8], 10),
        ("b IS NULL AND a BETWEEN 2 AND 4", {}, Code.SUCCESS, [2, 3, 4], 10),
        ("a > 0", {"offset": 8}, Code.SUCCESS, [8, 9], 10),
        ("a = 300", {}, Code.PULL_RETRY_IMMEDIATELY, [], 10),
        ("a = 1", {"offset": 2}, Code.PULL_RETRY_IMMEDIATELY, [], 10),
        ("a = 1", {"offset": 10}, Code.PULL_NOT_FOUND, [], 10),
        ("a = 1", {"offset": 11}, Code.PULL_OFFSET_MOVED, [], 10),
        ("a = 1", {"queue_id": 1}, Code.PULL_NOT_FOUND, [], 0),
        ("a = 1", {"queue_id": 2}, Code.INVALID_PARAMETER, [], None),
    ],
)
def test_pulls_with_their_own_filter(play, text, values, code, found, following):
    async def main(stage, client):
        for _ in range(2):  # the second one takes the compiled path
            answer = await own(client, text, **values)
            assert (answer.code, bodies(answer)) == (code, found)
            assert following is None or answer.fields["nextBeginOffset"] == str(following)

    play(main)


@pytest.mark.parametrize(("text", "kind"), [("a >", "SQL92"), ("a between 10,20", "SQL92"), ("a > 4", "OTHER")])
def test_a_pull_whose_own_filter_is_not_valid_gets_all_messages(play, text, kind):
    async def main(stage, client):
        assert bodies(await own(client, text, kind)) == list(range(10))

    play(main)


@pytest.mark.parametrize("kind", ["SQL92", "OTHER"])
def test_an_empty_filter(play, kind):
    async def main(stage, client):
        assert (await own(client, "", kind)).code == Code.SUBSCRIPTION_PARSE_FAILED

    play(main)


def test_lite_pulls(play):
    async def main(stage, client):
        answer = await client.call(
            361, consumerGroup="audit", topic="orders", queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=20,
            commitOffset=0, suspendTimeoutMillis=0, subscription="a > 7", expressionType="SQL92", subVersion=1,
        )  # fmt: skip
        assert bodies(answer) == [8, 9]

    play(main)


NOT_EXIST = "The broker's consumer filter data is not exist!Your expression may be wrong!"


@pytest.mark.parametrize(
    ("wanted", "version", "answer"),
    [
        (sql("a > 7", version=10), 10, [8, 9]),
        (sql("a > 7", version=10), 9, [8, 9]),
        (sql("a > 7", version=10), 11, (Code.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")),
        (sql("a >", version=10), 10, (Code.FILTER_DATA_NOT_EXIST, NOT_EXIST)),
        (sql("", version=10), 10, (Code.FILTER_DATA_NOT_EXIST, NOT_EXIST)),
        (sql("*", version=10), 10, (Code.FILTER_DATA_NOT_EXIST, NOT_EXIST)),
        (sql("a > 7", version=10, kind="OTHER"), 10, (Code.FILTER_DATA_NOT_EXIST, NOT_EXIST)),
        (sql("a > 7", version=10, kind="sql92"), 10, (Code.FILTER_DATA_NOT_EXIST, NOT_EXIST)),
        (sql("a > 7", version=10, classFilterMode=True), 10, list(range(10))),
        (sql("a > 7", version=10, codeSet=[1, 2]), 10, [8, 9]),
        (sql("a > 7", topic="other", version=10), 10, (Code.SUBSCRIPTION_NOT_EXIST, "subscription not exist")),
    ],
)
def test_pulls_with_the_filter_of_the_heartbeat(play, wanted, version, answer):
    async def main(stage, client):
        await beat(client, wanted)
        for _ in range(2):
            found = await known(client, version)
            if isinstance(answer, list):
                assert bodies(found) == answer
            else:
                assert found.code == answer[0] and answer[1] in found.remark

    play(main)


def test_a_filter_changes_while_its_group_pulls(play):
    async def main(stage, client):
        await beat(client, sql("a > 7", version=1))
        assert bodies(await known(client)) == [8, 9]
        await beat(client, sql("a > 8", version=2))
        assert bodies(await known(client)) == [9]
        await beat(client, sql("a < 1", version=1))  # an older one
        assert bodies(await known(client)) == [9]
        await beat(client, sql("a <", version=3))
        assert (await known(client)).code == Code.FILTER_DATA_NOT_EXIST
        await beat(client, sql("*", version=4, kind="TAG"))
        assert bodies(await known(client)) == list(range(10))
        await beat(client, sql("a < 2", version=5))
        assert bodies(await known(client)) == [0, 1]

    play(main)


def test_filter_data_that_is_older_than_the_subscription(play):
    async def main(stage, client):
        await beat(client, sql("a > 7", version=5))
        later = Subscription("orders", "a > 7", sub_version=6, expression_type="SQL92")
        stage.broker.consumers.group("audit").subscriptions["orders"] = later
        stage.broker.pulls.path.forget()
        answer = await known(client)
        assert (answer.code, answer.remark) == (
            Code.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
        )  # fmt: skip

    play(main)


def test_without_enable_property_filter(play):
    async def main(stage, client):
        await beat(client, sql("a > 7"))
        await beat(client, sql("a >"), group="broken")
        for answer in (await known(client), await own(client, "a > 7"), await own(client, "a >")):
            assert (answer.code, answer.remark) == (
                Code.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92"
            )  # fmt: skip
        assert (await known(client, group="broken")).code == Code.FILTER_DATA_NOT_EXIST
        assert (await client.call(25, b"enablePropertyFilter=true")).code == 0
        assert bodies(await known(client)) == [8, 9]
        assert (await client.call(25, b"enablePropertyFilter=false")).code == 0
        assert (await known(client)).code == Code.SYSTEM_ERROR

    play(main, enable_property_filter=False)


def test_one_pull_reads_800_messages(play):
    async def main(stage, client):
        for n in range(2000):
            put(stage, n, "many")
        await stage.settle()
        for values, following in (({}, 800), ({"offset": 700, "maxMsgNums": 1000}, 1700)):
            answer = await own(client, "a = -1", topic="many", **values)
            assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, str(following))
        answer = await own(client, "a > 790", topic="many")
        assert bodies(answer) == list(range(791, 800)) and answer.fields["nextBeginOffset"] == "800"

    play(main, store={"mapped_file_size_consume_queue": 60_000})


def test_a_filter_that_takes_long_reads_fewer_messages(play):
    """Its work is bounded, because the event loop waits for it."""

    async def main(stage, client):
        for _ in range(40):
            put(stage, 0, "large", p="a" * 30_000)
        await stage.settle()
        slow, at, reads = " OR ".join(f"p = 'x{n}'" for n in range(400)), 0, []
        while at < 40:
            answer = await own(client, slow, topic="large", offset=at)
            assert answer.code == Code.PULL_RETRY_IMMEDIATELY
            reads.append(int(answer.fields["nextBeginOffset"]) - at)
            at += reads[-1]
        assert reads == [2] * 20
        assert bodies(await own(client, f"{slow} OR a = '0'", topic="large")) == [0, 0]
        waiting = hold(client, slow, topic="large", offset=40)
        await asyncio.sleep(0.1)
        for _ in range(20):
            put(stage, 0, "large", p="a" * 30_000)
        await stage.settle()
        answer = await asyncio.wait_for(waiting, 0.5)  # not only by the sweep: the next pull reads on
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "42")

    play(main)


def test_long_filters_are_compiled_on_a_thread(monkeypatch):
    threads, original = [], sql_module._compile
    monkeypatch.setattr(
        sql_module, "_compile", lambda text: threads.append(threading.current_thread().name) or original(text)
    )
    text = " OR ".join(f"a = '{n} long'" for n in range(1500))
    with (
        rocketc.Broker(enable_property_filter=True) as broker,
        rocketc.client.Producer("shop", broker.name_server) as producer,
        contextlib.closing(Asking(broker.address)) as asking,
    ):
        queue = producer.send("orders", b"one", properties={"a": "7 long"}).queue.queue_id
        threads.clear()
        consumer = {"groupName": "audit", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": [sql(text)]}
        assert asking.ask("HEART_BEAT", {"clientID": "c", "consumerDataSet": [consumer]})[0] == 0
        pull = {
            "consumerGroup": "audit", "topic": "orders", "queueId": queue, "queueOffset": 0, "maxMsgNums": 32,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 1, "expressionType": "SQL92",
        }  # fmt: skip
        for _ in range(3):
            assert asking.ask("PULL_MESSAGE", sysFlag=0, **pull)[0] == Code.SUCCESS
        assert asking.ask("PULL_MESSAGE", sysFlag=4, subscription=f"{text} AND b IS NULL", **pull)[0] == Code.SUCCESS
        assert asking.ask("PULL_MESSAGE", sysFlag=4, subscription=f"{text} AND", **pull)[0] == Code.SUCCESS
        for wrong in ("", " AND", " OR", " AND"):  # the last one is cached
            data = {"subscriptionData": {"expressionType": "SQL92", "subString": f"{text} AND c IS NULL{wrong}"}}
            assert (asking.ask("CHECK_CLIENT_CONFIG", data)[0] == Code.SUCCESS) == (wrong == "")
    assert len(threads) == 6 and all(name.startswith("rocketc-work-") for name in threads)


@pytest.mark.parametrize(("length", "most"), [(30, 700), (900, 600)])
def test_the_filters_of_pulls_that_are_kept_are_bounded(play, length, most):
    async def main(stage, client):
        gc.collect()
        before = sum(type(one) is CheckedPull for one in gc.get_objects())
        for n in range(700):
            text = f"a = '{n}x'".ljust(length) + "AND a = 'y'"
            assert (await own(client, text)).code == Code.PULL_RETRY_IMMEDIATELY
        kept = sum(type(one) is CheckedPull for one in gc.get_objects()) - before
        assert kept <= most and (length > 100 or kept >= 690)

    play(main)


def test_only_found_messages_are_counted(play):
    async def main(stage, client):
        await own(client, "a > 7")
        await own(client, "a = 300")
        pulls = stage.broker.pulls
        assert (pulls.pulled, pulls.found, pulls.missed) == (2, 1, 1)

    play(main)


@pytest.mark.parametrize(("text", "kind"), [("a = 300", "SQL92"), ("other", "TAG")])
def test_a_pull_that_matches_nothing_reads_once(play, monkeypatch, text, kind):
    """The compiled path has read it; the processor makes the answer of that."""

    async def main(stage, client):
        pulls, reads = stage.broker.pulls, []
        await client.pull(offset=10)  # it creates the group, so its checks are not kept
        missed = pulls.missed
        monkeypatch.setattr(pulls, "_get", lambda *how: reads.append(how))
        for offset in (0, 3):
            answer = await own(client, text, kind, offset=offset, sysFlag=5, commitOffset=2)
            assert (answer.code, answer.remark) == (Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
            names = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")
            assert [answer.fields[name] for name in names] == ["10", "0", "10", "0"]
        assert reads == [] and pulls.missed == missed + 2
        assert stage.broker.offsets.query("audit", "orders", 0) == 2

    play(main)


def test_a_held_pull_that_matches_nothing_reads_once(play, monkeypatch):
    async def main(stage, client):
        pulls, reads = stage.broker.pulls, []
        monkeypatch.setattr(pulls.held, "_find", lambda checked, queue_id, offset: -1)
        waiting = hold(client)
        await asyncio.sleep(0.1)
        monkeypatch.setattr(pulls, "_get", lambda *how: reads.append(how))
        put(stage, 1)
        await stage.settle()
        answer = await asyncio.wait_for(waiting, 0.5)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "11")
        assert reads == []

    play(main)


def test_what_the_path_has_read_belongs_to_one_request(play):
    async def main(stage, client):
        path = stage.broker.pulls.path
        checked = stage.broker.pulls._check(11, {
            "consumerGroup": "audit", "topic": "orders", "queueId": 0, "sysFlag": 4, "subVersion": 1,
            "subscription": "a = 300", "expressionType": "SQL92",
        }, None)  # fmt: skip
        assert path.take_unmatched(None, 7) is None
        for connection, opaque, forget in ((client, 7, False), (None, 8, False), (None, 7, True), (None, 7, False)):
            assert path.read(checked, 0, 0, 32, 7) is None
            if forget:
                path.forget()
            found = path.take_unmatched(connection, opaque)
            if forget:
                checked = stage.broker.pulls._check(11, {
                    "consumerGroup": "audit", "topic": "orders", "queueId": 0, "sysFlag": 4, "subVersion": 1,
                    "subscription": "a = 300", "expressionType": "SQL92",
                }, None)  # fmt: skip
        assert found[0] is checked and found[1].next_offset == 10 and path.take_unmatched(None, 7) is None

    play(main)


def test_without_lark(play, monkeypatch):
    def missing(kind, text):
        raise RocketcError("SQL filters need the package lark")

    async def main(stage, client):
        monkeypatch.setattr(pull_module, "text_filter", missing)
        answer = await own(client, "a > 1")
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "SQL filters need the package lark")

    play(main)


def test_a_broker_with_filters_needs_lark(tmp_path, monkeypatch):
    def missing(kind, text):
        raise RocketcError("SQL filters need the package lark")

    async def whole():
        made = Scene(tmp_path, 1, (0.0, 0.0), BrokerConfig(**ON), {})
        with pytest.raises(RocketcError, match="need the package lark"):
            await made.start()
        made.store.close()
        async with scene(tmp_path):
            pass

    monkeypatch.setattr("rocketc.broker.controller.filter_error", missing)
    virtual.run(whole())


def test_bitmaps_are_not_made(play, caplog):
    async def main(stage, client):
        assert "enableCalcFilterBitMap is ignored" in caplog.text
        assert bodies(await own(client, "a > 7")) == [8, 9]

    play(main, enable_calc_filter_bit_map=True)


# the table


def test_filters_survive_a_restart(tmp_path):
    async def whole():
        async with scene(tmp_path, **ON) as stage:
            stage.store.create_topic("orders", queues=1)
            for n in range(10):
                put(stage, n)
            await beat(stage.client(), sql("a > 7", version=10))
            await asyncio.sleep(0.1)
            assert not stage.broker.filters.table.changed
        async with scene(tmp_path, **ON) as stage:
            client = stage.client()
            assert stage.broker.filters.find("orders", "audit").is_dead
            assert (await known(client, 10)).code == Code.SUBSCRIPTION_NOT_EXIST
            await beat(client, sql("a > 7", version=10))
            assert not stage.broker.filters.find("orders", "audit").is_dead
            assert bodies(await known(client, 10)) == [8, 9]

    virtual.run(whole())


def test_a_group_without_consumers_loses_its_filter_later(play):
    async def main(stage, client):
        await beat(client, sql("a > 7", version=10))
        await client.call(35, clientID="c", consumerGroup="audit")
        assert stage.broker.filters.find("orders", "audit").is_dead
        await asyncio.sleep(50)
        assert stage.broker.filters.find("orders", "audit") is not None
        await asyncio.sleep(25)
        assert stage.broker.filters.find("orders", "audit") is None

    play(main, filter_data_clean_time_span=60_000)


def test_a_light_heartbeat_changes_no_filter(play):
    async def main(stage, client):
        await beat(client, sql("a > 7", version=10))
        group = {"groupName": "audit", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": []}
        light = {"clientID": "c", "consumerDataSet": [group], "heartbeatFingerprint": 7, "withoutSub": True}
        assert (await client.call(34, json.dumps(light).encode())).code == 0
        assert not stage.broker.filters.find("orders", "audit").is_dead

    play(main)


def test_the_filter_of_a_group_is_shown_to_tools(play):
    async def main(stage, client):
        await beat(client, sql("a > 7", version=10))
        answer = await client.call(321, topic="orders", queueId=0, index=0, count=1, consumerGroup="audit")
        text = json.loads(answer.body)["filterData"]
        assert text.startswith(
            '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n\t\t"bitPos":[97,13,70]\n\t},\n\t"bornTime":'
        )
        assert {"clientVersion": 10, "dead": False, "expression": "a > 7"}.items() <= json.loads(text).items()

    play(main)


# hostile ones


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x" * ((1 << 16) + 1), Code.SUBSCRIPTION_PARSE_FAILED),
        ("a > " + "1" * 240_000, Code.SUBSCRIPTION_PARSE_FAILED),  # a header has 256 KiB at most
        ("a > " + "1" * 40_000, Code.SUCCESS),  # not valid for the language: all messages
        ("(" * 20_000 + "a" + ")" * 20_000, Code.SUCCESS),
        ("NOT " * 8000 + "a = 1", Code.SUCCESS),
        ("\0", Code.SUCCESS),
        ("a = '\ud800'", Code.PULL_RETRY_IMMEDIATELY),
        ("a = 'ü\U0001f600'", Code.PULL_RETRY_IMMEDIATELY),
    ],
)
def test_hostile_filters_of_pulls(play, text, code):
    async def main(stage, client):
        assert (await own(client, text)).code == code

    play(main)


@pytest.mark.parametrize(
    ("text", "is_beat"),
    [("a > " + "1" * (1 << 20), False), ("a > " + "1" * 40_000, True), ("(" * 30_000, True), ("a = '\ud800'", False)],
)
def test_hostile_filters_of_heartbeats(play, text, is_beat):
    async def main(stage, client):
        group = {"groupName": "audit", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": [sql(text)]}
        answer = await client.call(34, json.dumps({"clientID": "c", "consumerDataSet": [group]}).encode())
        assert (answer.code == Code.SUCCESS) == is_beat
        assert (await known(client)).code == (Code.FILTER_DATA_NOT_EXIST if is_beat else Code.SUBSCRIPTION_NOT_EXIST)
        await asyncio.sleep(0.1)
        assert not stage.broker.filters.table.changed and stage.broker.tables.failed == 0

    play(main)


@pytest.mark.long
def test_ten_thousand_subscriptions(play):
    async def main(stage, client):
        for first in (0, 5000):
            wanted = [sql(f"a > {n}", f"t{n}") for n in range(first, first + 5000)]
            await beat(client, *wanted, group=f"g{first}")
        assert len(stage.broker.filters.table) == 10_000
        stage.store.create_topic("t9999", queues=1)
        stage.store.create_topic("t9998", queues=1)
        put(stage, 10_000, "t9999")
        await stage.settle()
        assert bodies(await known(client, topic="t9999", group="g5000")) == [10_000]
        await beat(client, *(sql("a >", "t9998", 2),), group="g5000")
        assert (await known(client, topic="t9998", group="g5000")).code == Code.FILTER_DATA_NOT_EXIST
        assert sum(not one.is_dead for one in stage.broker.filters.table.items()) == 5000

    play(main)


# retry topics


OF_ORDERS, OF_OTHERS = [0, 1, 2, 3], [10, 11, 12, 13, 20]


@pytest.mark.parametrize(
    ("support", "text", "kind", "found"),
    [
        (True, "*", "TAG", OF_ORDERS + OF_OTHERS),
        (True, "a > 2", "SQL92", [2, 3, *OF_OTHERS]),
        (True, "a >", "SQL92", [2, 3, *OF_OTHERS]),
        (False, "*", "TAG", OF_ORDERS + OF_OTHERS),
        (False, "a > 2", "SQL92", [3, 13]),
        (False, "a >", "SQL92", OF_ORDERS + OF_OTHERS),
    ],
)
def test_retry_topics(play, support, text, kind, found):
    async def main(stage, client):
        await beat(client, sql("a > 1"), sql("*", "%RETRY%audit", kind="TAG"), sql("a >", "third"))
        retry = await retried(stage)
        for group in ("audit", "another"):  # the name of the retry topic says whose filters count
            for _ in range(2):
                assert bodies(await own(client, text, kind, topic=retry, group=group)) == found

    play(main, filter_support_retry=support)


def test_a_retry_topic_that_is_subscribed_with_a_filter(play):
    async def main(stage, client):
        await beat(client, sql("a > 1"), sql("a > 2", "%RETRY%audit"))
        retry = await retried(stage)
        assert bodies(await known(client, topic=retry)) == [3, 13]
        assert (await client.call(25, b"filterSupportRetry=true")).code == 0
        assert bodies(await known(client, topic=retry)) == [2, 3, *OF_OTHERS]
        await beat(client, sql("*", kind="TAG", version=2), sql("a > 2", "%RETRY%audit"))
        assert bodies(await known(client, topic=retry)) == [2, 3, *OF_OTHERS]  # the filter of orders stays
        await beat(client, sql("a >", version=3), sql("a > 2", "%RETRY%audit"))
        assert bodies(await known(client, topic=retry)) == OF_ORDERS + OF_OTHERS

    play(main)


# the filters themselves


def test_filters_are_made_by_functions():
    for kind in (PropertyFilter, RetryFilter):
        assert issubclass(kind, TagFilter)
        with pytest.raises(TypeError, match="call"):
            kind(())
    with pytest.raises(TypeError):
        property_filter(None)
    with pytest.raises(TypeError):
        retry_filter({"orders": "a > 1"})


VALUES = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "x", "", "1.5"]), max_size=3)


@settings(max_examples=15, deadline=None)
@given(st.lists(VALUES, max_size=12), st.sampled_from(["a > 1", "a = '1' OR b IS NULL", "c CONTAINS 'x'", "NOT a = 1"]))
def test_a_read_selects_what_matches(tmp_path_factory, messages, text):
    compiled = compile_sql(text)
    with rocketc.open(tmp_path_factory.mktemp("store"), mapped_file_size_commit_log=1 << 20) as store:
        for n, properties in enumerate(messages):
            store.put("orders", b"%d" % n, properties=properties)
        store.wait_dispatched()
        found = store.get_raw("orders", 0, 0, 32, tags=property_filter(compiled), exact_tags=False)
        wanted = [
            n
            for n, properties in enumerate(messages)
            if compiled.matches("".join(f"{key}\1{value}\2" for key, value in properties.items()).encode())
        ]
        assert found.queue_offsets == wanted
        found.release()
