"""The metrics of a broker: names, labels and values, compared with what was sent and pulled."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from simulation import virtual
from simulation.brokers import scene

from rocketc.errors import ClosedError
from rocketc.metrics.broker_measures import BrokerMetrics
from rocketc.metrics.exposition import exposition
from rocketc.metrics.measures import Histogram, Measure
from rocketc.remoting.command import Command
from rocketc.remoting.rpc_times import BOUNDS, RpcTimes

COMMON = 'cluster="DefaultCluster",node_type="broker",node_id="broker-a"'
LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\\n])*"(,[a-z_]+="(\\.|[^"\\\n])*")*\})? [0-9.e+-]+')


@pytest.fixture
def play(tmp_path):
    """Run main(scene, client, read); read() returns the samples by name and labels."""

    def run(main, **how):
        async def whole():
            async with scene(tmp_path, delay=(0.0, 0.0), **how) as stage:
                metrics = BrokerMetrics(stage.broker)

                async def read():
                    text = await metrics.text()
                    lines = [line for line in text.splitlines() if not line.startswith("#")]
                    assert text.endswith("\n") and all(LINE.fullmatch(line) for line in lines)
                    pairs = [line.rsplit(" ", 1) for line in lines]
                    found = {name: float(value) for name, value in pairs}
                    assert len(found) == len(pairs) and all(COMMON in name for name in found)
                    return {
                        name.replace(COMMON + ",", "").replace("{" + COMMON + "}", ""): n for name, n in found.items()
                    }

                await main(stage, stage.client(), read)

        virtual.run(whole())

    return run


def beat(client_id, producers=(), consumers=()):
    return json.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [{"groupName": name, "consumeType": kind} for name, kind in consumers],
        }
    ).encode()


def test_transactions(play):
    async def main(stage, client, read):
        for number, (age, kind) in enumerate(((1, 8), (7, 8), (90_000, 8), (0, 12), (0, None), (0, None))):
            properties = f"UNIQ_KEY\1K{number}\2TRAN_MSG\1true\2PGROUP\1shop\2"
            born = stage.now() - 1000 * age
            sent = (await client.send(properties=properties, bornTimestamp=born)).fields
            if kind is not None:
                place = {"tranStateTableOffset": int(sent["queueOffset"]), "producerGroup": "shop"}
                place["commitLogOffset"] = int(sent["msgId"][-16:], 16)
                assert (await client.call(37, **place, commitOrRollback=kind)).code == 0
        found = await read()
        assert found['rocketmq_half_messages{topic="orders"}'] == 2
        assert found['rocketmq_commit_messages_total{topic="orders"}'] == 3
        assert found['rocketmq_rollback_messages_total{topic="orders"}'] == 1
        name = "rocketmq_finish_message_latency"
        below = [found[f'{name}_bucket{{topic="orders",le="{bound}"}}'] for bound in (5, 60, 86400, "+Inf")]
        assert below == [1, 2, 2, 3] and found[name + '_count{topic="orders"}'] == 3
        assert found[name + '_sum{topic="orders"}'] == pytest.approx(90_008, abs=1)

    play(main)


def test_messages_in_and_out(play):
    async def main(stage, client, read):
        for _ in range(25):
            assert (await client.send(queueId=1)).code == 0
        await stage.settle()
        for offset, count in ((0, 10), (10, 5)):
            assert (await client.pull(queue_id=1, offset=offset, maxMsgNums=count)).code == 0
        assert (await client.pull(queue_id=1, offset=0, maxMsgNums=3, group="billing")).code == 0
        found = await read()
        record = stage.store.max_phy_offset // 25
        assert found['rocketmq_messages_in_total{topic="orders",is_system="false"}'] == 25
        assert found['rocketmq_throughput_in_total{topic="orders",is_system="false"}'] == 25 * record
        out = 'rocketmq_{}_out_total{{topic="orders",consumer_group="{}",is_system="false"}}'
        for group, count in (("audit", 15), ("billing", 3)):
            assert found[out.format("messages", group)] == count
            assert found[out.format("throughput", group)] == count * record
        assert found["rocketmq_message_size_count"] == 25 and found["rocketmq_message_size_sum"] == 25 * record
        assert found["rocketc_kept_back_total"] == 0
        assert found["rocketc_pulls_found_total"] == 3 and found["rocketc_fast_sends_total"] > 0
        assert len([name for name in found if name.startswith("rocketmq_messages_out")]) == 2

    play(main)


def test_lags_are_those_of_the_offsets_in_memory(play):
    async def main(stage, client, read):
        for _ in range(10):
            await client.send()
        await stage.settle()
        await client.pull()  # creates the group
        await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=4)
        await asyncio.sleep(3)
        found = await read()
        labels = '{topic="orders",consumer_group="audit",is_system="false",is_retry="false"}'
        assert found["rocketmq_consumer_lag_messages" + labels] == 6
        assert "rocketmq_consumer_lag_latency" + labels in found

    play(main)


def test_connections(play):
    async def main(stage, client, read):
        second = stage.client()
        await client.call(34, beat("a", ["shop", "store"], [("audit", "CONSUME_PASSIVELY")]))
        await second.call(34, beat("b", ["shop"], [("audit", "CONSUME_PASSIVELY"), ("lite", "CONSUME_ACTIVELY")]))
        of = 'language="python",version="v5_3_3",protocol_type="remoting"'
        found = await read()
        assert found["rocketmq_producer_connections{" + of + "}"] == 2
        consumers = (
            'rocketmq_consumer_connections{{consumer_group="{}",consume_mode="{}",is_system="false",' + of + "}}"
        )
        assert found[consumers.format("audit", "push")] == 2
        assert found[consumers.format("lite", "pull")] == 1
        assert found["rocketc_connections"] == 2
        second.transport.cut()
        await asyncio.sleep(1)
        found = await read()
        assert found["rocketmq_producer_connections{" + of + "}"] == 1 and found["rocketc_connections"] == 1
        assert not any("lite" in name for name in found)

    play(main)


def test_times_of_requests(play):
    async def main(stage, client, read):
        await client.send()
        await stage.settle()
        await client.call(30, topic="orders", queueId=0)
        await client.call(30, topic="orders", queueId=0)
        held = asyncio.ensure_future(client.pull(offset=1, wait=1500))
        await asyncio.sleep(0.5)
        assert (await read())["rocketc_held_pulls"] == 1
        await held
        found = await read()
        of = (
            'rocketmq_rpc_latency_{}{{request_code="{}",response_code="{}",is_long_polling="{}",'
            'protocol_type="remoting",result="success"'
        )
        asked = ("get_max_offset", "success", "false")
        assert found[of.format("count", *asked) + "}"] == 2
        assert found[of.format("bucket", *asked) + ',le="1.0"}'] == 2
        pulled = ("pull_message", "pull_not_found", "true")
        assert found[of.format("count", *pulled) + "}"] == 1
        assert 1500 <= found[of.format("sum", *pulled) + "}"] < 5100
        assert found[of.format("bucket", *pulled) + ',le="1000.0"}'] == 0
        assert found[of.format("bucket", *pulled) + ',le="+Inf"}'] == 1
        assert found["rocketc_held_pulls"] == 0

    play(main)


def test_unknown_requests_share_one_label(play):
    """A peer chooses the code, so it must not make new samples."""

    async def main(stage, client, read):
        await client.send()
        for code in range(70_000, 70_050):
            client.transport.write(Command(code, opaque=code).encode())
        await asyncio.sleep(1)
        found = await read()
        unknown = [name for name in found if 'request_code="unknown"' in name]
        assert len(unknown) == len(BOUNDS) + 3
        assert {found[name] for name in unknown if "_count" in name} == {50}
        assert not any("700" in name for name in found)

    play(main)


def test_states(play):
    async def main(stage, client, read):
        found = await read()
        assert found["rocketmq_broker_permission"] == 4
        assert found["rocketmq_consumer_group_number"] == len(set(stage.broker.groups.table))
        assert found["rocketmq_topic_number"] == len(dict(stage.broker.topics.table))

    play(main, broker_permission=4)


def test_a_closed_store(tmp_path):
    async def main():
        async with scene(tmp_path) as stage:
            metrics = BrokerMetrics(stage.broker)
            await metrics.text()
        with pytest.raises(ClosedError):
            await metrics.text()

    virtual.run(main())


def test_prometheus_reads_the_text(play):
    parser = pytest.importorskip("prometheus_client.parser")

    async def main(stage, client, read):
        await client.send()
        await stage.settle()
        await client.pull()
        text = await BrokerMetrics(stage.broker).text()
        families = {family.name: family.type for family in parser.text_string_to_metric_families(text)}
        assert families["rocketmq_messages_in"] == "counter"
        assert families["rocketmq_rpc_latency"] == "histogram"
        assert families["rocketmq_broker_permission"] == "gauge"

    play(main)


def test_hostile_labels_are_escaped():
    one = Measure("held", "gauge", "", "back\\slash\nline", ("topic",)).add(1, 'a"b\\c\nd}').add(2.5, "plain")
    assert exposition([one, Measure("empty", "gauge", "", "nothing")]) == (
        "# HELP held back\\\\slash\\nline\n# TYPE held gauge\n"
        'held{topic="a\\"b\\\\c\\nd}"} 1\nheld{topic="plain"} 2.5\n'
    )


def test_a_histogram_without_labels():
    one = Measure("t", "histogram", "s", "Times").add(Histogram(((0.5, 1), (1.0, 3)), 4, 7.5))
    assert exposition([one]).splitlines()[2:] == [
        't_bucket{le="0.5"} 1', 't_bucket{le="1.0"} 3', 't_bucket{le="+Inf"} 4', "t_sum 7.5", "t_count 4",
    ]  # fmt: skip


def test_times_at_the_bounds():
    times = RpcTimes()
    for seconds in (0.0, 0.001, 0.0011, 3.0, 3.1, 99.0):
        times.add(11, 0, seconds, True)
    [(counts, total)] = times.read().values()
    assert counts == [2, 1, 0, 0, 0, 0, 0, 0, 1, 2] and total == pytest.approx(105.1021)


def test_the_page_names_every_metric_of_a_broker(play):
    """docs/howto/observe.md, its section of a broker: name, kind, unit and labels."""
    text = (Path(__file__).parents[3] / "docs/howto/observe.md").read_text(encoding="utf-8")
    section = text.partition("## A broker\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(roc\w+)` \| ([^|]+) \| ([^|]*)\| [^|]+ \|$", section, re.M)
    table = {name: (*kind.partition(", ")[::2], set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}

    async def main(stage, client, read):
        found = {one.name: (one.kind, one.unit, set(one.labels)) for one in BrokerMetrics(stage.broker)._of_broker()}
        del found["rocketmq_messages_out_total"], found["rocketmq_throughput_out_total"]  # in the other table
        assert table == found

    play(main)


def test_timed_messages(play):
    async def main(stage, client, read):
        before = await read()
        assert before["rocketmq_timer_dequeue_lag"] == 0 and 'rocketmq_timing_messages{topic="orders"}' not in before
        for seconds in (3, 4, 900):
            await client.send(properties=f"UNIQ_KEY\1K{seconds}\2TIMER_DELAY_SEC\x01{seconds}\2")
        found = await read()
        assert found["rocketmq_timer_enqueue_lag"] == 3
        await asyncio.sleep(8)
        found = await read()
        assert {name: n for name, n in found.items() if name.startswith(("rocketmq_timer", "rocketmq_timing"))} == {
            "rocketmq_timer_enqueue_lag": 0, "rocketmq_timer_dequeue_lag": 1, "rocketmq_timer_dequeue_latency": 0,
            "rocketmq_timer_enqueue_total": 3, "rocketmq_timer_dequeue_total": 2,
            'rocketmq_timing_messages{topic="orders"}': 1,
        }  # fmt: skip

    play(main)
