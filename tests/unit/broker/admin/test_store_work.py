"""Work for tools beside the event loop: look-ups in the store's files, and what follows on the loop."""

import asyncio
import threading
import types

import pytest
from simulation.tools import create, heartbeat, lax, play

from rocketc.broker.admin import forms
from rocketc.broker.admin.store_work import StoreWork
from rocketc.errors import StoreFullError
from rocketc.remoting.codes import Code
from rocketc.remoting.server import Answer


class Executor:
    """In place of the threads: what they get waits until run()."""

    def __init__(self, stage, monkeypatch):
        work = stage.broker.admin._work
        self.waiting, self._loop, self.is_running = [], work._loop, False
        monkeypatch.setattr(work, "_in_thread", True)
        monkeypatch.setattr(work, "_loop", types.SimpleNamespace(
            create_task=self._loop.create_task, call_soon=self._loop.call_soon, run_in_executor=self.take,
        ))  # fmt: skip

    def take(self, pool, work, *what):
        future = self._loop.create_future()
        self.waiting.append((future, work, what))
        return future

    async def asked(self):
        for _ in range(1000):
            if self.waiting:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nothing was given to a thread")

    def run(self):
        future, work, what = self.waiting.pop(0)
        self.is_running = True
        future.set_result(work(*what))
        self.is_running = False


def looked(read, then):
    async def main():
        answers, threads = [], []
        work = StoreWork(in_thread=True)
        call = types.SimpleNamespace(later=answers.append)

        def on_loop(found):
            threads.append(threading.current_thread() is threading.main_thread())
            return then(found)

        def on_thread():
            threads.append(threading.current_thread() is threading.main_thread())
            return read()

        assert work.look(call, on_thread, on_loop) is None
        await asyncio.wait_for(work.close(), 5)
        return answers, threads

    return asyncio.run(main())


def test_a_look_up_runs_on_a_thread_and_its_answer_on_the_loop():
    answers, threads = looked(lambda: 7, lambda found: Answer(remark=str(found)))
    assert [one.remark for one in answers] == ["7"] and threads == [False, True]


def test_a_look_up_may_be_answered_later():
    assert looked(lambda: 7, lambda found: None)[0] == []


@pytest.mark.parametrize(
    ("read", "then", "remark"),
    [
        (lambda: 1 // 0, lambda found: Answer(), "ZeroDivisionError: integer division or modulo by zero"),
        (lambda: 0, lambda found: 1 // found, "ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_an_error_is_the_answer(read, then, remark):
    [answer] = looked(read, then)[0]
    assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, remark)


def test_an_error_of_a_file_names_it():
    def full():
        raise StoreFullError(28, "No space left on device", "topics.json")

    [answer] = looked(full, lambda found: Answer())[0]
    assert answer.remark == "topics.json: No space left on device; when the file can be written, repeat the request"


RESET = {"topic": "orders", "group": "audit", "timestamp": 0, "isForce": True, "queueId": -1, "offset": -1}


async def used(client):
    await create(client, queues=1)
    await client.send()
    await client.call(34, heartbeat())
    await client.call(15, consumerGroup="audit", topic="orders", queueId=0, commitOffset=1)


@pytest.mark.parametrize("is_here", [True, False])
def test_times_of_a_reset_are_found_on_a_thread(memory_path, monkeypatch, is_here):
    """The loop looked up each queue, and waited for the disk. A body for 65,536 queues takes a second."""
    made, queue_map = [], forms.queue_map

    async def main(stage, client):
        await used(client)
        threads = Executor(stage, monkeypatch)
        monkeypatch.setattr(forms, "queue_map", lambda table: made.append(threads.is_running) or queue_map(table))
        asking = asyncio.ensure_future(client.call(222, **RESET))
        await threads.asked()
        assert (await client.send()).code == 0 and not asking.done()
        assert stage.broker.offsets.query("audit", "orders", 0) == 1
        threads.run()
        answer = await asking
        assert lax(answer.body)["offsetTable"] == {("orders", 0): 0} and made == [True]
        assert (stage.broker.offsets.query("audit", "orders", 0) == 0) is is_here

    play(memory_path, main, use_server_side_reset_offset=is_here)


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ("topic", (Code.TOPIC_NOT_EXIST, "Topic orders does not exist")),
        ("group", (Code.SUBSCRIPTION_GROUP_NOT_EXIST, "Group audit does not exist")),
    ],
)
def test_no_offset_of_what_was_deleted_meanwhile(memory_path, monkeypatch, gone, expected):
    async def main(stage, client):
        await used(client)
        threads = Executor(stage, monkeypatch)
        asking = asyncio.ensure_future(client.call(222, **RESET))
        await threads.asked()
        if gone == "topic":
            stage.broker.topics.hide(["orders"])
        else:
            stage.broker.groups.table.delete("audit")
        threads.run()
        answer = await asking
        assert (answer.code, answer.remark) == expected
        assert stage.broker.offsets.query("audit", "orders", 0) == 1 and not stage.broker.offsets.resets

    play(memory_path, main)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_message_to_consume_directly_is_read_on_a_thread(memory_path, monkeypatch, is_there):
    async def main(stage, client):
        await used(client)
        msg_id = (await client.send()).fields["msgId"]
        threads, asked = Executor(stage, monkeypatch), []
        client.channel._on_request = lambda request, reply: asked.append(request)
        msg_id = msg_id if is_there else msg_id[:-2] + "ff"
        asking = asyncio.ensure_future(stage.client().call(309, consumerGroup="audit", clientId="c1", msgId=msg_id))
        await threads.asked()
        await asyncio.sleep(1)
        assert not asked
        threads.run()
        await asyncio.sleep(1)
        assert len(asked) == is_there
        answer = await asking
        assert answer.code == (Code.CONSUME_MSG_TIMEOUT if is_there else Code.SYSTEM_ERROR)

    play(memory_path, main)


def test_look_ups_of_tools_leave_threads_for_others():
    async def main():
        gate, answers = threading.Event(), []
        work = StoreWork(in_thread=True)
        call = types.SimpleNamespace(later=answers.append)
        for _ in range(100):
            assert work.look(call, lambda: gate.wait(20), lambda found: Answer()) is None
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.run_in_executor(None, lambda: 7), 5) == 7
        gate.set()
        await work.close()
        assert len(answers) == 100

    asyncio.run(main())
