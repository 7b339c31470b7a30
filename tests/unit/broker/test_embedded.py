"""rocketc.Broker: it starts and ends in both modes, and leaves nothing behind."""

import asyncio
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from simulation.tools import heartbeat

import rocketc
from rocketc.broker.child import error_line, error_of
from rocketc.errors import AnswerError
from rocketc.ha.protocol import encode_report
from rocketc.remoting._frames import FrameDecoder
from rocketc.remoting.codes import Code
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS
from rocketc.tables.offsets import ConsumerOffsets
from rocketc.tables.topics import Topics

HEARTBEAT, SEND, PULL, ROUTE = 34, 10, 11, 105
BOTH = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])


def ask(address, code, values, body=b""):
    """Send one request, and return its answer."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(Command(code, REQUESTS[code].encode(values), body, 1).encode())
        decoder = FrameDecoder()
        while True:
            for frame in decoder.receive(connection.recv(1 << 16)):
                command = Command.decode(*frame)
                if command.is_answer:  # a consumer is asked, too
                    return command


def send(broker, topic, body):
    values = {
        **{"producerGroup": "g", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4},
        **{"queueId": 0, "sysFlag": 0, "bornTimestamp": 0, "flag": 0},
    }
    return ask(broker.address, SEND, values, body).code


def pull(broker, topic, offset=0):
    return ask(
        broker.address,
        PULL,
        {
            **{"consumerGroup": "g", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32},
            **{"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0},
        },
    )


def has_route(broker, topic):
    return ask(broker.name_server, ROUTE, {"topic": topic}).code == Code.SUCCESS


def in_use():
    """The threads, open files and child processes of this process. What earlier tests left may end at any time."""
    files = {(fd, link) for fd in os.listdir("/proc/self/fd") if (link := link_of(fd))}
    return set(threading.enumerate()) | files | {child.pid for child in psutil.Process().children()}


def link_of(fd):
    """What a descriptor is open on; None for one that is closed meanwhile."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return None


@pytest.fixture(autouse=True, scope="module")
def first():
    """The first loop of uvloop opens a pipe for the whole process."""
    with rocketc.Broker():
        pass


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """The folder of temporary stores. Afterwards it is empty, and no thread, descriptor or child process is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = in_use()
    yield folder
    assert in_use() - before == set()
    assert list(folder.iterdir()) == []


def python(code, **options):
    """Start a Python that runs code; stdout is a pipe."""
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, **options)


# life


@BOTH
def test_it_serves_and_leaves_nothing(folder, process):
    with rocketc.Broker(process=process) as broker:
        assert broker.path.startswith(str(folder))
        broker.topics.create("orders")
        assert has_route(broker, "orders")
        assert send(broker, "orders", b"hello") == Code.SUCCESS
        assert b"hello" in pull(broker, "orders").body
        if process:
            with pytest.raises(AttributeError, match="runs in another process; use Broker"):
                _ = broker.store
        assert repr(broker) == (
            f"<rocketc.Broker {broker.address}, name server {broker.name_server}, store {broker.path}>"
        )
    assert repr(broker) == "<rocketc.Broker, closed>"


def test_clients_find_a_topic_of_a_put():
    with rocketc.Broker() as broker:
        broker.store.put("put", b"hello")
        until = time.monotonic() + 10  # not 30 s, when the broker registers again
        while not has_route(broker, "put"):
            assert time.monotonic() < until


@BOTH
def test_it_serves_metrics(process):
    with rocketc.Broker(process=process, metrics_exporter_type="PROM") as broker:
        url = f"http://127.0.0.1:{broker.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert b"\nrocketmq_broker_permission{" in answer.read()
    with pytest.raises(rocketc.ClosedError):
        _ = broker.metrics_port
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=20)


@BOTH
def test_where_slaves_connect(process):
    with rocketc.Broker(process=process) as broker:
        broker.topics.create("orders")
        assert send(broker, "orders", b"hello") == Code.SUCCESS
        host, _, port = broker.ha_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as slave:
            slave.sendall(encode_report(0))
            assert slave.recv(8, socket.MSG_WAITALL) == encode_report(0), "the log from its beginning on"
    with pytest.raises(rocketc.ClosedError):
        _ = broker.ha_address


@BOTH
@pytest.mark.parametrize("kind", ["DISABLE", "LOG"])
def test_without_metrics(process, kind):
    with rocketc.Broker(process=process, metrics_exporter_type=kind) as broker:
        assert broker.metrics_port is None


@BOTH
def test_a_metrics_port_in_use(process):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError) as caught:
            rocketc.Broker(process=process, metrics_exporter_type="PROM", metrics_prom_exporter_port=port).start()
    assert caught.value.errno == errno.EADDRINUSE and caught.value.filename == f"127.0.0.1:{port}"


def test_a_store_is_kept(tmp_path):
    broker = rocketc.Broker(tmp_path / "store", flush="sync")
    for body in (b"one", b"two"):  # started again, it continues
        broker.start()
        broker.start()  # nothing happens
        assert broker.path == str(tmp_path / "store")
        assert send(broker, "orders", body) == Code.SUCCESS
        broker.close()
        broker.close()
    assert [message.body for message in rocketc.scan(tmp_path / "store")] == [b"one", b"two"]


def test_a_process_keeps_the_store_of_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rocketc.Broker("store", process=True, flush="sync") as broker:
        assert broker.path == str(tmp_path / "store")
        assert send(broker, "orders", b"one") == Code.SUCCESS
    assert [message.body for message in rocketc.scan(tmp_path / "store")] == [b"one"]


def test_a_put_reaches_a_pull():
    with rocketc.Broker() as broker:
        broker.topics.create("orders")
        broker.store.put("orders", b"from the store", queue_id=0)
        assert b"from the store" in pull(broker, "orders").body


@BOTH
def test_fields_reach_broker_and_store(process):
    fields = {"broker_name": "broker-z", "max_message_size": "1KiB", "auto_create_topic_enable": False}
    with rocketc.Broker(process=process, **fields) as broker:
        assert b"broker-z" in ask(broker.name_server, ROUTE, {"topic": "BenchmarkTest"}).body
        assert send(broker, "BenchmarkTest", bytes(1025)) == Code.MESSAGE_ILLEGAL
        assert send(broker, "orders", b"hello") == Code.TOPIC_NOT_EXIST
        if process:
            with pytest.raises(ValueError, match=r"orders: the broker did not create the topic: topic\[orders\] not"):
                broker.topics.create("orders")
        else:
            assert broker.topics.create("orders").write_queue_nums == 4


@BOTH
def test_outside_of_its_life_it_is_closed(process):
    broker = rocketc.Broker(process=process)
    for name in ("name_server", "address", "ha_address", "path", "store"):
        with pytest.raises(rocketc.ClosedError, match="is not started"):
            getattr(broker, name)
    with pytest.raises(rocketc.ClosedError, match="is not started"):
        broker.topics.create("orders")
    broker.close()


def test_two_at_once():
    with rocketc.Broker() as one, rocketc.Broker() as two:
        one.topics.create("orders")
        assert "orders" not in two.topics
        assert len({one.address, two.address, one.name_server, two.name_server}) == 4


def test_the_error_of_the_block_is_raised():
    with pytest.raises(KeyError, match="mine"), rocketc.Broker():
        raise KeyError("mine")


def test_a_failure_while_it_serves_is_raised_at_the_end():
    async def fail():
        raise ArithmeticError("broken")

    async def start(services):
        services.start("a service", fail())

    broker = rocketc.Broker()
    broker.start()
    engine = broker._engine
    asyncio.run_coroutine_threadsafe(start(engine._controller._services), engine._loop).result()
    with pytest.raises(ArithmeticError, match="broken"):
        broker.close()
    broker.close()


def test_a_killed_process_is_reported_at_the_end():
    broker = rocketc.Broker(process=True)
    broker.start()
    os.kill(broker._engine.pid, signal.SIGKILL)
    os.waitid(os.P_PID, broker._engine.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ChildProcessError, match="ended with -9; stderr says why"):
        broker.close()


def test_a_process_that_does_not_end_is_killed(monkeypatch, caplog):
    monkeypatch.setattr("rocketc.broker.child.END_SECONDS", 0.05)
    broker = rocketc.Broker(process=True)
    broker.start()
    os.kill(broker._engine.pid, signal.SIGSTOP)
    with pytest.raises(ChildProcessError, match="ended with -9"):
        broker.close()
    assert "does not end; it is killed" in caplog.text


# topics


@BOTH
def test_topics(process):
    with rocketc.Broker(process=process) as broker:
        made = broker.topics.create("orders", queue_nums=2)
        assert (made.topic_name, made.read_queue_nums, made.write_queue_nums, made.perm) == ("orders", 2, 2, 6)
        assert broker.topics["orders"] == made == broker.topics.create("orders")  # it exists
        assert broker.topics.create("orders", queue_nums=2) == made
        text = r"topic 'orders' has 2 queues, not 7: delete\(\) it before, or change it with Admin.create_topic\(\)"
        with pytest.raises(ValueError, match=text):
            broker.topics.create("orders", queue_nums=7)
        assert {"orders", "TBW102"} <= set(broker.topics)
        assert len(broker.topics) == len(list(broker.topics))
        assert "'orders'" in repr(broker.topics)
        assert has_route(broker, "orders")
        assert pull(broker, "orders").code != Code.SUCCESS  # there is no message
        with pytest.raises(KeyError):
            broker.topics["bills"]
        with pytest.raises(rocketc.IllegalMessageError, match="'new orders': a topic name may only have"):
            broker.topics.create("new orders")
        with pytest.raises(ValueError, match="queue_nums"):
            broker.topics.create("bills", queue_nums=0)


# errors


@BOTH
def test_the_path_is_a_file(tmp_path, process):
    (tmp_path / "file").write_text("")
    with pytest.raises(rocketc.StoreIOError, match="this is a file") as caught:
        rocketc.Broker(tmp_path / "file", process=process).start()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, str(tmp_path / "file"))


@BOTH
def test_the_store_is_locked(tmp_path, process):
    with (
        rocketc.open(tmp_path / "store", mapped_file_size_commit_log=1 << 16),
        pytest.raises(rocketc.StoreLockedError, match="is open for writing already"),
    ):
        rocketc.Broker(tmp_path / "store", process=process).start()


@pytest.mark.parametrize(
    ("process", "name"), [(False, "port"), (False, "namesrv_port"), (True, "port")], ids=lambda value: str(value)
)
def test_a_port_is_in_use(process, name):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError) as caught:
            rocketc.Broker(process=process, **{name: port}).start()
        assert (caught.value.errno, caught.value.filename) == (errno.EADDRINUSE, f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"prt": 1}, TypeError, r"Broker\(\): unknown keyword prt; did you mean port\?"),
        ({"broker_nme": "b"}, TypeError, r"unknown keyword broker_nme; did you mean broker_name\?"),
        ({"max_mesage_size": 1}, TypeError, r"unknown keyword max_mesage_size; did you mean max_message_size\?"),
        ({"listen_port": 1}, TypeError, "listen_port is not a keyword; use port"),
        ({"store_path_root_dir": "/"}, TypeError, "store_path_root_dir is not a keyword; use path"),
        ({"store_host": ("::1", 1)}, TypeError, "store_host is not a keyword; use port and broker_ip1"),
        ({"flush": "sync", "flush_disk_type": "SYNC_FLUSH"}, TypeError, "set the same field"),
        ({"port": 65536}, ValueError, "port"),
        ({"port": 1}, ValueError, "3 is the smallest one"),
        ({"namesrv_port": -1}, ValueError, "namesrv_port"),
        ({"port": "http"}, TypeError, "port"),
        ({"flush": "never"}, ValueError, "flush is 'never'; allowed are async, sync"),
        ({"max_message_size": "big"}, ValueError, "max_message_size: 'big' is not a number of bytes"),
        ({"trace_on": "yes"}, ValueError, "trace_on is 'yes'; allowed are True and False"),
        ({"broker_id": True}, ValueError, "broker_id is True; allowed are -1 to 9223372036854775807"),
        ({"flush_consumer_offset_interval": 0}, ValueError, "flush_consumer_offset_interval is 0; allowed are 1 to"),
        ({"broker_name": None}, ValueError, "broker_name .* it must be text"),
        ({"broker_ip1": 5}, ValueError, "broker_ip1 is 5; it must be text"),
        ({"path": "s3://bucket/store"}, rocketc.StoreIOError, "it is a URL"),
    ],
)
@BOTH
def test_wrong_arguments(process, fields, error, says):
    with pytest.raises(error, match=says):
        rocketc.Broker(process=process, **fields)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        TypeError("wrong"),
        OSError(errno.EADDRINUSE, "in use", "127.0.0.1:1"),
        OSError(errno.EMFILE, "too many"),
        rocketc.StoreLockedError("locked"),
        rocketc.StoreIOError(errno.ENOTDIR, "a file", "/file"),
    ],
    ids=repr,
)
def test_an_error_of_the_process_is_the_same_here(error):
    made = error_of(error_line(error))
    assert (type(made), made.args, str(made)) == (type(error), error.args, str(error))


@pytest.mark.parametrize("name", ["ZeroDivisionError", "os", "annotations", None])
def test_an_unknown_error_of_the_process(name):
    assert repr(error_of({"error": name, "text": "x"})) == "RuntimeError('the broker did not start: x')"


def test_a_process_that_ends_at_once(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ChildProcessError, match="ended with 1; stderr says why"):
        rocketc.Broker(process=True).start()


# asyncio


@BOTH
def test_beside_a_loop_of_the_program(process):
    async def main():
        async with rocketc.Broker(process=process) as broker:
            ticks = asyncio.ensure_future(tick())
            broker.topics.create("orders")
            assert await asyncio.to_thread(send, broker, "orders", b"hello") == Code.SUCCESS
            await ticks
            return broker

    async def tick():
        for _ in range(3):
            await asyncio.sleep(0)

    broker = asyncio.run(main())
    with pytest.raises(rocketc.ClosedError):
        _ = broker.address


@BOTH
def test_a_start_that_is_canceled(process):
    async def main():
        entering = asyncio.ensure_future(rocketc.Broker(process=process).__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(main())


def test_the_errors_of_an_async_block(tmp_path):
    async def fail_inside():
        async with rocketc.Broker():
            raise KeyError("mine")

    async def fail_at_start():
        (tmp_path / "file").write_text("")
        async with rocketc.Broker(tmp_path / "file"):
            raise AssertionError

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(fail_inside())
    with pytest.raises(rocketc.StoreIOError):
        asyncio.run(fail_at_start())


def test_without_uvloop(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with rocketc.Broker() as broker:
        assert send(broker, "orders", b"hello") == Code.SUCCESS


# the end of the program


def test_a_program_that_forgets_to_close(folder):
    with python("""
        import rocketc
        for process in (False, True):
            broker = rocketc.Broker(process=process)
            broker.start()
        print(broker._engine.pid)
    """) as program:
        child = int(program.stdout.readline())
        assert program.wait(20) == 0
    assert not psutil.pid_exists(child)


def test_the_process_ends_with_a_killed_program(folder):
    with python(
        """
        import rocketc, time
        with rocketc.Broker(process=True) as broker:
            print(broker.path, flush=True)
            time.sleep(20)
        """,
        stderr=subprocess.PIPE,
    ) as program:
        path = program.stdout.readline().strip()
        program.kill()
        assert path.startswith(str(folder))
        assert program.communicate(timeout=20)[1] == ""  # it ends when both processes have ended
    assert list(folder.iterdir()) == []


def test_ctrl_c(folder):
    """Ctrl-C at a terminal reaches all processes of its group. The program may use its brokers until it has ended."""
    with python(
        """
        import rocketc, time
        with rocketc.Broker() as one, rocketc.Broker(process=True) as two:
            try:
                print(two._engine.pid, flush=True)
                time.sleep(20)
            except KeyboardInterrupt:
                time.sleep(0.1)
                one.topics.create("orders")
                two.topics.create("orders")
                print("created", flush=True)
        """,
        start_new_session=True,
    ) as program:
        child = int(program.stdout.readline())
        os.killpg(program.pid, signal.SIGINT)
        assert program.communicate(timeout=20)[0] == "created\n"
        assert program.returncode == 0
    assert not psutil.pid_exists(child)


@BOTH
def test_a_forked_child_cannot_use_it(process):
    """The process of a broker ends when its stdin ends: no forked child holds the other end of this pipe."""
    with rocketc.Broker(process=process) as broker:
        broker.topics.create("orders")
        pipe = os.readlink(f"/proc/self/fd/{broker._engine._stdin.fileno()}") if process else "none"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                broker.close()  # nothing happens
                for use in (lambda: broker.address, lambda: broker.topics.create("bills"), broker.start):
                    with pytest.raises(rocketc.ClosedError, match="from which this one was forked"):
                        use()
                assert repr(broker) == "<rocketc.Broker, closed>"
                assert pipe not in [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert send(broker, "orders", b"hello") == Code.SUCCESS
        assert "bills" not in broker.topics


@BOTH
def test_a_topic_is_deleted(process):
    with rocketc.Broker(process=process, broker_name="a") as broker:
        broker.topics.create("orders", 2)
        with rocketc.client.Producer("shop", broker.name_server) as producer:
            producer.send("orders", b"hello")
        with rocketc.client.PullConsumer("audit", broker.name_server, topics=["orders"]) as consumer:
            [message] = consumer.poll(10_000)
        queue = rocketc.client.MessageQueue("orders", "a", message.queue_id)
        broker.topics.delete("orders")
        assert "orders" not in broker.topics and not has_route(broker, "orders")
        with pytest.raises(AnswerError, match="no broker has the topic 'orders'"):
            broker.topics.delete("orders")
        assert broker.topics.create("orders", 6).read_queue_nums == 6
        with rocketc.client.PullConsumer("audit", broker.name_server) as consumer:
            assert consumer.committed(queue) is None and consumer.max_offset(queue) == 0


def test_more_queues_than_a_process_creates():
    with rocketc.Broker(process=True, default_topic_queue_nums=3) as broker:
        text = (
            "topic 'orders': default_topic_queue_nums is 3, so the broker does not create 4 queues; give it to Broker"
        )
        with pytest.raises(ValueError, match=text):
            broker.topics.create("orders", 4)
        assert "orders" not in broker.topics
        assert broker.topics.create("orders").write_queue_nums == 3


def test_a_topic_that_is_being_deleted_is_not_created():
    with rocketc.Broker() as broker:
        topics = broker._running()._controller.topics
        topics.hide(["orders"])
        with pytest.raises(ValueError, match="orders: the topic is being deleted; create it again when"):
            broker.topics.create("orders")
        topics.unhide(["orders"])
        assert broker.topics.create("orders").topic_name == "orders"


UNCLOSED = """
import rocketc, sys, threading
broker = rocketc.Broker(sys.argv[1])
broker.start()
def use():
    broker.topics.create("orders", 1)
    with rocketc.client.Producer("shop", broker.name_server) as producer:
        producer.send("orders", b"hello")
    with rocketc.client.PullConsumer("audit", broker.name_server, topics=["orders"], auto_commit=False) as consumer:
        [message] = consumer.poll(10_000)
        consumer.commit()
"""
AFTER_MAIN = """
def use_later():
    threading.main_thread().join()
    use()
threading.Thread(target=use_later).start()
"""


@pytest.mark.parametrize("used", ["use()", AFTER_MAIN], ids=["by the main thread", "after the main thread's end"])
def test_the_interpreter_ends_with_an_open_broker(tmp_path, used):
    """The last writes of the broker succeed, and stderr stays empty."""
    program = [sys.executable, "-c", UNCLOSED + used, tmp_path]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "abort").exists()
    assert list(ConsumerOffsets(tmp_path).queues("orders", "audit").values()) == [1]
    assert "orders" in Topics(tmp_path)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("nowhere.invalid", "the host name is not known (Name or service not known)"),
        ("198.51.100.7", "Cannot assign requested address; no interface of this machine has it"),
    ],
)
@pytest.mark.parametrize("name", ["bind_address", "metrics_prom_exporter_host"])
def test_an_address_that_is_not_of_this_machine(name, host, says):
    broker = rocketc.Broker(metrics_exporter_type="PROM", **{name: host})
    with pytest.raises(OSError, match=re.escape(f"{says}: '{host}:")) as raised:
        broker.start()
    assert raised.value.errno == errno.EADDRNOTAVAIL


def test_the_route_of_a_groups_retries_is_there_when_the_heartbeat_is_answered():
    with rocketc.Broker() as broker:
        for n in range(30):
            assert ask(broker.address, HEARTBEAT, {}, heartbeat(group=f"audit{n}")).code == Code.SUCCESS
            assert has_route(broker, f"%RETRY%audit{n}"), n
