"""Producers and consumers where programs use them: many of them, forks, pools of threads, event loops, and the end."""

import asyncio
import concurrent.futures
import gc
import os
import queue
import signal
import subprocess
import sys
import time

import psutil
import pytest

import rocketc
from rocketc.client import AsyncConsumer, AsyncProducer, AsyncPullConsumer, Producer, PushConsumer, loop_thread
from rocketc.errors import ClosedError

FIRST = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker(process=True) as one:
        yield one


@pytest.fixture
def no_thread():
    """No client of another test is open."""
    assert loop_thread._shared is None
    yield
    assert loop_thread._shared is None


def program(broker, text, *, seconds=55.0, then=None):
    """Run a program with NAME_SERVER; `then` gets the process after its first line. Returns code, stdout, stderr."""
    no_log = "import logging; logging.getLogger('rocketc').addHandler(logging.NullHandler())"  # stderr is for faults
    text = f"{no_log}\nNAME_SERVER = {broker.name_server!r}\n{text}"
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            if then is not None:
                assert process.stdout.readline() == "ready\n", process.stderr.read()
                then(process)
            out, err = process.communicate(timeout=seconds)
        finally:
            process.kill()
    return process.returncode, out, err


# many of them


def used(process):
    gc.collect()
    return process.num_fds(), process.num_threads(), len(gc.get_objects())


def settled(process, before, seconds=10):
    """Wait until descriptors, threads and objects are as before; return what they are."""
    end = time.monotonic() + seconds
    while (now := used(process)) and any(a > b for a, b in zip(now, before, strict=True)) and time.monotonic() < end:
        time.sleep(0.05)
    return now


@pytest.mark.parametrize("count", [50, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside-another"])
@pytest.mark.measure
def test_producers_leave_nothing_behind(broker, count, others):
    def once():
        with Producer("shop", broker.name_server) as producer:
            producer.send("left", b"one")

    def many(count):
        if others:
            with Producer("shop", broker.name_server):  # its thread serves all
                for _ in range(count):
                    once()
        else:
            for _ in range(count):
                once()

    process = psutil.Process()
    many(20 + count // 10)
    before, memory = used(process), process.memory_info().rss
    many(count)
    files, threads, objects = settled(process, (*before[:2], before[2] + 100))
    assert (files, threads) == before[:2] and objects <= before[2] + 100
    assert process.memory_info().rss - memory < 8 << 20


def test_async_clients_leave_nothing_behind(broker):
    async def once():
        async with AsyncProducer("shop", broker.name_server) as producer:
            await producer.send("left", b"one")
        async with AsyncConsumer("left", broker.name_server, topics=["left"]):
            pass

    async def main():
        for _ in range(3):
            await once()
        process = psutil.Process()
        before = used(process)
        for _ in range(10):
            await once()
        for _ in range(50):  # transports close a moment later
            await asyncio.sleep(0.05)
            files, threads, objects = used(process)
            if (files, threads) == before[:2] and objects <= before[2] + 100:
                break
        assert (files, threads) == before[:2] and objects <= before[2] + 100
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


# forks


def in_child(work):
    """Run work() in a forked child; return whether it returned True."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(20)
        try:
            status = 0 if work() is True else 2
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_a_client_that_is_made_before_a_fork_and_opened_after_it(broker, no_thread):
    found = queue.Queue()
    producer, consumer = Producer("shop", broker.name_server), PushConsumer("made", broker.name_server, **FIRST)
    consumer.subscribe("made", listener=found.put)

    def work():
        with producer:
            producer.send("made", b"one")
            with consumer:
                return found.get(timeout=15).body == b"one"

    assert in_child(work)
    assert work(), "the parent can still open them"


@pytest.mark.parametrize(
    "use",
    [
        lambda one: one.wait(5),
        lambda one: one.subscribe("other", listener=print),
        lambda one: one.unsubscribe("forks"),
        lambda one: one.suspend(),
        lambda one: one.client_id,
    ],
)
def test_a_consumer_that_is_opened_before_a_fork(broker, use):
    with PushConsumer("forks", broker.name_server) as one:

        def work():
            with pytest.raises(ClosedError, match="opened before a fork: open one in this process"):
                use(one)
            one.close()
            with pytest.raises(ClosedError):
                one.start()
            return True

        assert in_child(work)
        assert one.wait(0.01) is False, "that of the parent is open"


def test_a_producer_that_a_child_closes_and_starts(broker):
    with Producer("shop", broker.name_server) as producer:
        producer.send("forks", b"parent")

        def work():
            producer.close()
            producer.start()
            with pytest.raises(ClosedError, match="opened before a fork"):
                producer.send("forks", b"child")
            return True

        assert in_child(work)
        producer.send("forks", b"parent")


PREFORK = """
import os, signal, sys
from rocketc.client import Producer
shared = Producer("shop", NAME_SERVER)      # the program is loaded before the workers start, as `gunicorn --preload`
shared.start()
shared.send("prefork", b"parent")
stop = lambda *signal: sys.exit(0)
for _ in range(2):
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, stop)
        try:
            shared.send("prefork", b"wrong")
        except ValueError as error:
            assert "before a fork" in str(error), error
        producer = Producer("shop", NAME_SERVER)    # a worker opens its own, and the end of the process closes it
        producer.start()
        for _ in range(10):
            producer.send("prefork", b"worker")
        sys.exit(0)
codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)]
shared.send("prefork", b"parent")
shared.close()
print(codes)
"""


def test_workers_that_are_forked(broker):
    assert program(broker, PREFORK) == (0, "[0, 0]\n", "")


ENDS = """
import atexit, threading
atexit.register(lambda: print([one.name for one in threading.enumerate() if one.daemon]))
from rocketc.client import Producer
producer = Producer("shop", NAME_SERVER)
producer.start()
producer.send("ends", b"one")
"""


def test_the_loop_ends_before_the_interpreter_does(broker):
    """Its timers would call into an interpreter that is gone: the process crashed, one time in a hundred."""
    assert program(broker, ENDS) == (0, "[]\n", "")


# threads and loops


def test_a_pool_of_threads_that_send_and_open(broker, no_thread):
    def task(i):  # a worker of Celery with threads: each task opens its own, or uses the one of the program
        if i % 4:
            return shared.send("pool", b"%d" % i).msg_id
        with Producer(f"task-{i}", broker.name_server) as own:
            return own.send("pool", b"%d" % i).msg_id

    with Producer("shop", broker.name_server) as shared, concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(task, range(80))}) == 80


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_consumer_and_a_producer_on_a_loop_of_the_program(broker, loop):
    async def main():
        topic = f"loop-{loop}"
        async with AsyncProducer("shop", broker.name_server) as producer:
            queue = (await producer.send(topic, b"one")).queue
        async with AsyncConsumer(topic, broker.name_server, topics=[topic], **FIRST) as consumer:
            message = await asyncio.wait_for(consumer.getone(), 15)
            await consumer.commit()
        async with AsyncPullConsumer(f"{topic}-polled", broker.name_server) as puller:
            await puller.assign([queue])
            await puller.seek(queue, 0)
            polled = await puller.poll(15_000)
            return message.body, polled[0].body

    run = pytest.importorskip("uvloop").run if loop == "uvloop" else asyncio.run
    assert run(main()) == (b"one", b"one")


def test_plain_clients_while_a_loop_runs(broker, no_thread):
    """As in Jupyter: a loop runs in the main thread, and a cell calls what blocks."""

    async def cell():
        found = queue.Queue()
        with Producer("shop", broker.name_server) as producer:
            producer.send("cell", b"one")
        with PushConsumer("cell", broker.name_server, **FIRST) as consumer:
            consumer.subscribe("cell", listener=found.put)
            body = found.get(timeout=15).body
        async with AsyncProducer("shop", broker.name_server) as other:
            await other.send("cell", b"two")
        return body

    assert asyncio.run(cell()) == b"one"


def test_an_async_client_on_another_loop(broker):
    async def starts():
        producer = AsyncProducer("shop", broker.name_server)
        consumer = AsyncConsumer("loops", broker.name_server, topics=["loops"])
        puller = AsyncPullConsumer("pulls", broker.name_server, topics=["loops"])
        await producer.start()
        await consumer.start()
        await puller.start()
        return producer, consumer, puller

    async def uses(producer, consumer, puller):
        calls = [producer.start, lambda: producer.send("loops", b"one"), consumer.getone, consumer.commit]
        calls += [puller.poll, puller.commit, lambda: puller.subscribe("more"), lambda: puller.unsubscribe("loops")]
        for call in calls:
            with pytest.raises(ClosedError, match="was started on another event loop: open one on this loop"):
                await call()

    loop = asyncio.new_event_loop()
    try:
        clients = loop.run_until_complete(starts())
        asyncio.run(uses(*clients))
        for one in clients:
            loop.run_until_complete(one.close())
    finally:
        loop.close()


# the end of the program

OPEN = """
import sys, threading, time
from rocketc.client import Producer, PushConsumer
producer = Producer("shop", NAME_SERVER)
producer.start()
begun = threading.Event()
def listener(message):
    begun.set()
    time.sleep(60)
async def coroutine(message):
    listener_of_coroutines.set()
listener_of_coroutines = threading.Event()
consumers = [PushConsumer(f"ends-{i}", NAME_SERVER, consume_from_where="CONSUME_FROM_FIRST_OFFSET") for i in range(2)]
for consumer, function in zip(consumers, (listener, coroutine)):
    consumer.subscribe("ends", listener=function)
    consumer.start()
producer.send("ends", b"one")
assert begun.wait(20) and listener_of_coroutines.wait(20)
for _ in range(100):
    producer.send_async("ends", b"one")
"""


@pytest.mark.parametrize(("last", "code"), [pytest.param("", 0, marks=pytest.mark.long), ("sys.exit(3)", 3)])
def test_the_end_of_a_program_with_open_clients(broker, last, code):
    began = time.monotonic()
    assert program(broker, OPEN + last) == (code, "", "")
    assert time.monotonic() - began < 45, "it does not wait for the listener"


UNSENT = """
import os, signal
from rocketc.client import Producer
producer = Producer("shop", NAME_SERVER)
producer.start()
producer.send("unsent", b"one")
os.kill({}, signal.SIGSTOP)
for _ in range(10):
    producer.send_async("unsent", b"one")
logging.getLogger("rocketc").handlers.pop(0)    # of the test: what remains is the handler of last resort
"""


def test_a_program_that_ends_says_what_may_be_unsent():
    with rocketc.Broker(process=True) as broker:
        pid = broker._engine._process.pid
        try:
            code, out, err = program(broker, UNSENT.format(pid))
        finally:
            os.kill(pid, signal.SIGCONT)
    assert (code, out) == (0, "")
    assert "WARNING rocketc.client: the program ends while 10 messages of send_async() are without a result" in err


WAITS = """
from rocketc.client import PushConsumer
with PushConsumer("waits", NAME_SERVER) as consumer:
    consumer.subscribe("waits", listener=print)
    print("ready", flush=True)
    try:
        consumer.wait()
    except KeyboardInterrupt:
        print("interrupted")
print("closed")
"""
SENDS = """
import threading
from rocketc.client import Producer
with Producer("shop", NAME_SERVER) as producer:
    producer.send("ctrl-c", b"one")
    print("ready", flush=True)
    try:
        while True:
            producer.send("ctrl-c", b"one")
    except KeyboardInterrupt:
        print("interrupted")
    producer.send("ctrl-c", b"after")
print("closed", [one.name for one in threading.enumerate()])
"""
READS = """
import asyncio
from rocketc.client import AsyncConsumer
async def main():
    async with AsyncConsumer("reads", NAME_SERVER, topics=["reads"]) as consumer:
        print("ready", flush=True)
        async for message in consumer:
            pass
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("closed")
"""


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (WAITS, "interrupted\nclosed\n"),
        (SENDS, "interrupted\nclosed ['MainThread']\n"),
        (READS, "closed\n"),
    ],
    ids=["consumer", "producer", "async-consumer"],
)
def test_ctrl_c(broker, text, printed):
    def interrupt(process):
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)

    assert program(broker, text, then=interrupt) == (0, printed, "")
