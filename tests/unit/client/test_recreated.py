"""Where a consumer continues in a queue that may be another one."""

import asyncio
from types import SimpleNamespace

import pytest
from simulation.virtual import run as play
from unit.client.scripted_pull import QUEUE, PullCluster

from rocketc.client.recreated import continued_at
from rocketc.errors import AnswerError, NotSentError
from rocketc.remoting.codes import Code
from rocketc.remoting.requests import CODES
from rocketc.remoting.server import Answer


class Times:
    """A broker whose queue has messages stored at these times."""

    def __init__(self, *times, error=None):
        self.times, self.error = times, error

    async def search_offset(self, queue, timestamp):
        if self.error is not None:
            raise self.error
        return next((offset for offset, time in enumerate(self.times) if time >= timestamp), len(self.times))


def found(times, offset, stored, consumed=None, error=None):
    consumed = offset if consumed is None else consumed
    broker = Times(*times, error=error)
    return asyncio.run(continued_at(QUEUE, offset, len(times), stored, consumed, broker))


def test_where_a_consumer_continues():
    assert found([50, 60], 7, stored=40) == 0, "a new queue"
    assert found([10, 20, 30, 50], 7, stored=40) == 3, "the last messages were lost, and another one came"
    assert found([10, 20, 30], 7, stored=40) == 3, "the last messages were lost"
    assert found([10, 20, 30], 7, stored=40, consumed=1) == 1, "what was not consumed comes again"
    assert found([50, 60], 7, stored=40, consumed=3) == 0
    assert found([10, 20, 30], 7, stored=40, consumed=-1) == 3, "how far it has consumed is not known"
    assert found([50, 60], 7, stored=None) == 2, "it has pulled nothing"
    assert found([], 7, stored=40) == 0
    assert found([50, 60, 70], 2, stored=40) == 0, "a new queue that is longer"
    assert found([10, 20, 30], 2, stored=20, consumed=0) == 2, "the same queue"


def test_brokers_that_do_not_say_it():
    assert found([50, 60], 7, stored=40, error=AnswerError("10.0.0.1:10911", "no", 16)) == 2
    with pytest.raises(NotSentError):
        found([50, 60], 7, stored=40, error=NotSentError("10.0.0.1:10911: refused"))


@pytest.mark.parametrize(("remark", "expected"), [("OFFSET_RESET", 1), ("OFFSET_OVERFLOW_BADLY", 2)])
def test_the_offset_that_an_operator_sets_wins(remark, expected, caplog):
    """Also if it is set because the queue was made again. The cluster says 2 to each search by time."""

    async def main():
        stage, moved = PullCluster(), []
        stage.fill(6)

        def pull(call):
            if call.values["queueId"] == 0 and call.values["queueOffset"] == 6 and not moved:
                moved.append(call)
                told = {"suggestWhichBrokerId": 0, "nextBeginOffset": 1, "minOffset": 0, "maxOffset": 4}
                return Answer(Code.PULL_OFFSET_MOVED, values=told, remark=remark)
            return stage.pull("a", call)

        stage.brokers["a"].answers[CODES["PULL_MESSAGE"]] = pull
        async with stage.puller() as one:
            assert len(await one.poll(max_records=100)) == 6
            await asyncio.sleep(5)
            return (await one.poll(max_records=100))[0].queue_offset

    assert play(main()) == expected
    said = "orders queue 0 on a does not have its messages before offset 6 any more: it was made again, or its broker "
    said += f"lost messages; it continues at {expected}"
    assert caplog.text.count("continues at") == 1
    assert (said in caplog.text) == (remark != "OFFSET_RESET")


def test_a_topic_that_was_missing_for_a_moment():
    """The queue is checked when the topic is back, also if it is longer than before."""

    async def main():
        stage, missing = PullCluster(), SimpleNamespace(answers=2)
        stage.fill(3)

        def pull(call):
            if call.values["queueOffset"] == 3 and missing.answers:
                missing.answers -= 1
                return Answer(Code.TOPIC_NOT_EXIST, remark="no")
            return stage.pull("a", call)

        stage.brokers["a"].answers[CODES["PULL_MESSAGE"]] = pull
        async with stage.puller() as one:
            assert len(await one.poll(max_records=100)) == 3
            await asyncio.sleep(1.5)
            stage.fill(2)
            await asyncio.sleep(5)
            return [message.queue_offset for message in await one.poll(max_records=100)]

    assert play(main()) == [2, 3, 4]
