"""GET_BROKER_RUNTIME_INFO: the numbers, compared with what was sent and pulled."""

import asyncio
import datetime
import json
import re
from pathlib import Path

import pytest
from simulation import virtual
from simulation.brokers import EPOCH, scene

from rocketc.broker.rates import Rates
from rocketc.broker.runtime_info import RuntimeInfo
from rocketc.remoting.codes import Code

# The names of a RocketMQ 5.3.3 broker: golden/admin-5.3.3.jsonl.
NAMES = {
    "msgPutTotalTodayNow", "brokerActive", "sendThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills", "remainHowManyDataToFlush", "msgGetTotalTodayNow", "timerEnqueueTps",
    "queryThreadPoolQueueSize", "timerOffsetBehind", "bootTimestamp", "msgPutTotalYesterdayMorning",
    "msgGetTotalYesterdayMorning", "pullThreadPoolQueueSize", "commitLogMinOffset",
    "pullThreadPoolQueueHeadWaitTimeMills", "runtime", "brokerVersion", "putTps", "getTransferredTps", "getMissTps",
    "litePullThreadPoolQueueHeadWaitTimeMills", "EndTransactionQueueSize", "getTotalTps", "consumeQueueDiskRatio",
    "litePullThreadPoolQueueSize", "pageCacheLockTimeMills", "ackThreadPoolQueueSize", "commitLogDiskRatio",
    "getFoundTps", "ackThreadPoolQueueHeadWaitTimeMills", "putMessageFailedTimes", "putLatency999", "timerReadBehind",
    "commitLogMaxOffset", "msgPutTotalTodayMorning", "putMessageTimesTotal", "putLatency99", "msgGetTotalTodayMorning",
    "brokerVersionDesc", "startAcceptSendRequestTimeStamp", "sendThreadPoolQueueSize", "putMessageEntireTimeMax",
    "earliestMessageTimeStamp", "commitLogDirCapacity", "timerCongestNum", "putMessageAverageSize",
    "dispatchBehindBytes", "putMessageSizeTotal", "timerDequeueTps", "putMessageDistributeTime",
    "getMessageEntireTimeMax", "dispatchMaxBuffer", "remainTransientStoreBufferNumbs",
    "EndTransactionThreadPoolQueueCapacity", "ackThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity",
    "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity", "litePullThreadPoolQueueCapacity",
}  # fmt: skip

FIXED = {
    "sendThreadPoolQueueCapacity": "10000", "pullThreadPoolQueueCapacity": "100000", "dispatchMaxBuffer": "0",
    "litePullThreadPoolQueueCapacity": "100000", "queryThreadPoolQueueCapacity": "20000",
    "ackThreadPoolQueueCapacity": "100000", "EndTransactionThreadPoolQueueCapacity": "100000",
    "remainTransientStoreBufferNumbs": "2147483647",
}  # fmt: skip


async def table_of(client):
    answer = await client.call(28)
    assert answer.code == 0
    return json.loads(answer.body)["table"]


def play(main, tmp_path, **how):
    async def whole():
        async with scene(tmp_path, delay=(0.0, 0.0), **how) as stage:
            await main(stage, stage.client())

    virtual.run(whole())


def test_the_names_are_rocketmqs(tmp_path):
    async def main(stage, client):
        found = await table_of(client)
        assert found.keys() == NAMES | {f"commitLogDiskRatio_{tmp_path}/commitlog"}
        assert all(type(value) is str for value in found.values())
        assert {name: found[name] for name in FIXED} == FIXED
        spans = re.findall(r"\[(.*?)\]:(\d+) ", found["putMessageDistributeTime"])
        assert [span for span, _ in spans][:3] == ["<=0ms", "0~10ms", "10~50ms"] and len(spans) == 13

    play(main, tmp_path)


def test_all_names_of_a_real_broker_are_known():
    golden = Path(__file__).parents[2] / "golden" / "admin-5.3.3.jsonl"
    lines = [json.loads(line) for line in golden.read_text().splitlines()]
    [table] = [json.loads(one["answerBody"])["table"] for one in lines if one["code"] == 28][:1]
    assert {name for name in table if not name.startswith("commitLogDiskRatio_")} == NAMES
    for name in sorted(NAMES):
        if name.endswith(("QueueCapacity", "Numbs", "MaxBuffer")):
            assert FIXED[name] == table[name]


def test_the_progress_of_delay_levels(tmp_path):
    """As on a 5.3.3 broker: a level is there as soon as it has delivered a message."""

    async def main(stage, client):
        async def levels():
            names = (await table_of(client)).items()
            return {name: value for name, value in names if name.startswith("scheduleMessageOffset_")}

        async def send(level, count):
            for _ in range(count):
                assert (await client.send(queueId=0, properties=f"DELAY\1{level}\2")).code == 0

        await send(2, 3)
        await stage.settle()
        assert await levels() == {}
        await asyncio.sleep(6)
        await send(2, 1)
        await send(1, 2)
        await stage.settle()
        assert await levels() == {"scheduleMessageOffset_2": "3,4"}
        await asyncio.sleep(6)
        assert await levels() == {"scheduleMessageOffset_1": "2,2", "scheduleMessageOffset_2": "4,4"}

    play(main, tmp_path)


def test_an_empty_broker(tmp_path):
    async def main(stage, client):
        await asyncio.sleep(11.5)
        found = await table_of(client)
        assert found["bootTimestamp"] == str(EPOCH)
        assert found["runtime"] == "[ 0 days, 0 hours, 0 minutes, 11 seconds ]"
        assert (found["brokerVersion"], found["brokerVersionDesc"]) == ("479", "V5_3_3")
        assert found["commitLogMinOffset"] == found["commitLogMaxOffset"] == found["putMessageTimesTotal"] == "0"
        assert found["earliestMessageTimeStamp"] == "-1" and found["putMessageAverageSize"] == "0.0"
        assert found["remainHowManyDataToFlush"] == "0 B"
        assert found["putTps"] == "0.0  "
        assert re.fullmatch(r"0\.\d+", found["commitLogDiskRatio"])
        assert re.fullmatch(r"Total : \d+\.\d [KMGT]iB, Free : \d+\.\d [KMGT]iB\.", found["commitLogDirCapacity"])
        stage.now = lambda: EPOCH + 93_784_500
        stage.broker.runtime._clock = stage.now
        assert (await table_of(client))["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"

    play(main, tmp_path)


def test_the_numbers_are_those_of_what_was_sent_and_pulled(tmp_path):
    async def main(stage, client):
        await asyncio.sleep(1)
        for n in range(40):
            assert (await client.send(body=bytes(n))).code == (0 if n else 1)
        wrong = await client.send(topic="no good")
        assert wrong.code == Code.INVALID_PARAMETER
        before = await table_of(client)
        assert before["dispatchBehindBytes"] == before["putMessageSizeTotal"] == before["commitLogMaxOffset"]
        assert before["remainHowManyDataToFlush"].endswith(" KiB")
        await stage.settle()
        answers = [await client.pull(offset=offset, maxMsgNums=10) for offset in (0, 10, 20, 39)]
        assert [answer.code for answer in answers] == [0, 0, 0, Code.PULL_NOT_FOUND]
        found = await table_of(client)
        assert found["msgPutTotalTodayNow"] == found["putMessageTimesTotal"] == "39"
        assert found["msgGetTotalTodayNow"] == "30"
        end = stage.store.max_phy_offset
        assert found["commitLogMaxOffset"] == found["putMessageSizeTotal"] == str(end)
        assert float(found["putMessageAverageSize"]) == end / 39
        assert found["dispatchBehindBytes"] == "0"
        first = stage.store.get("orders", 0, 0, 1).messages[0]
        assert found["earliestMessageTimeStamp"] == str(first.store_timestamp)

    play(main, tmp_path)


def test_rates_of_a_broker(tmp_path):
    """2 sends a second, and 1 pull a second that finds 1 message."""

    async def main(stage, client):
        for n in range(14):
            await client.send()
            await client.send()
            await stage.settle()
            await client.pull(offset=n, maxMsgNums=1)
            await client.pull(offset=99, maxMsgNums=1)
            await asyncio.sleep(0.9)
        found = await table_of(client)
        names = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps")
        rates = [found[name].split(" ") for name in names]
        assert [float(rate[0]) for rate in rates] == pytest.approx([2.0, 1.0, 1.0, 2.0, 1.0], abs=0.25)
        assert {tuple(rate[1:]) for rate in rates} == {("", "")}

    play(main, tmp_path)


def test_rates_over_ten_minutes():
    counted = [0]
    rates = Rates(lambda: counted)
    for second in range(700):
        rates.sample(second * 1.0)
        counted[0] += 6 if second < 640 else 0
    assert (rates.over(0, 10), rates.over(0, 60)) == (0.0, 0.1)
    assert rates.over(0, 600) == pytest.approx(6 * 541 / 600)
    assert len(rates.show(0).split(" ")) == 3


def test_the_totals_of_midnight(tmp_path):
    class Pulls:
        pulled = found = missed = 0

    class Store:
        records = 0

        def stats(self):
            return {"records": self.records}

    noon = datetime.datetime(2026, 11, 25, 12).timestamp() * 1000
    now, store, pulls = [int(noon)], Store(), Pulls()
    info = RuntimeInfo(store, pulls, lambda: now[0])

    def totals():
        found = info._of_messages()
        days = ("YesterdayMorning", "TodayMorning")
        return [tuple(int(found[f"msg{kind}Total{day}"]) for kind in ("Put", "Get")) for day in days]

    store.records, pulls.pulled = 10, 4
    info.sample(0.0)
    assert totals() == [(0, 0), (0, 0)]
    now[0] += 86_400_000
    info.sample(1.0)
    assert totals() == [(0, 0), (10, 4)]
    store.records, pulls.pulled = 25, 9
    info.sample(2.0)
    assert totals() == [(0, 0), (10, 4)]
    now[0] += 86_400_000
    info.sample(3.0)
    assert totals() == [(10, 4), (25, 9)]


def test_rates_without_samples():
    rates = Rates(lambda: (7,))
    assert rates.show(0) == "  "
    for _ in range(11):
        rates.sample(5.0)  # no time passes
    assert rates.show(0) == "  "


def test_a_disk_that_cannot_be_asked(tmp_path, monkeypatch):
    async def main(stage, client):
        def fails(path):
            raise OSError(5, "Input/output error", path)

        monkeypatch.setattr("os.statvfs", fails)
        answer = await client.call(28)
        assert answer.code == Code.SYSTEM_ERROR and "Input/output error" in answer.remark

    play(main, tmp_path)
