"""What slaves ask a master about timed messages."""

import asyncio
import json

from simulation.tools import play

from rocketc.derived import timer_check

EMPTY = {"dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1_700_000_000_000}, "timingCount": {}}


def test_a_broker_without_timed_messages(memory_path):
    async def main(stage, client):
        answer = await client.call(60)
        assert answer.code == 0 and len(answer.body) == 56
        found = timer_check.decode(answer.body)
        assert (found.last_timer_queue_offset, found.last_timer_log_flush_pos, found.counter) == (0, 0, 0)
        assert stage.now() - 1000 <= found.last_read_time_ms <= stage.now()
        answer = await client.call(61)
        assert (answer.code, json.loads(answer.body)) == (0, EMPTY)

    play(memory_path, main)


def test_how_far_timed_messages_are(memory_path):

    async def main(stage, client):
        for seconds in (3, 60):
            sent = await client.send(properties=f"UNIQ_KEY\1K{seconds}\2TIMER_DELAY_SEC\1{seconds}\2", queueId=0)
            assert sent.code == 0
        await asyncio.sleep(30)
        found = timer_check.decode((await client.call(60)).body)
        assert found.last_timer_queue_offset == found.master_timer_queue_offset == 2
        assert found.last_timer_log_flush_pos == 2 * 52
        assert stage.now() - 2000 <= found.last_read_time_ms <= stage.now()
        counts = json.loads((await client.call(61)).body)["timingCount"]
        assert counts.keys() == {"orders"} and counts["orders"]["count"] == 1

    play(memory_path, main)
