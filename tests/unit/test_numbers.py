"""Numbers that a caller gives: each public call accepts a number, or raises an exception that names the argument."""

import asyncio
import dataclasses
import datetime
import functools
import io
import json
import math
import subprocess
import sys
from fractions import Fraction
from queue import Empty

import pytest
from support import extension
from support.put_checks import records, refused

import rocketc
from rocketc.status import PutStatus
from rocketc.tables import ConsumerOffsets, DelayOffsets

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
WHOLE = (
    *(-1, 0, 1, 7, 1 << 16),
    *(number + more for number in (*INT32, *INT64) for more in (-1, 0, 1)),
    *(1 << 63, 1 << 64, -(1 << 64), 1 << 20_000),
)  # fmt: skip
NO_NUMBERS = (1.5, float("nan"), "7", b"7", [7], Fraction(1, 2))
NO_SIZES = (1.5, float("nan"), "many", b"7", [7], Fraction(1, 2))  # "7" is a size
SHORT = (-1, -1e300, -(1 << 20_000), 0, 0.0, 0.01, Fraction(1, 100))  # seconds, of which a call may wait all
LONG = (1e10, 1e300, math.inf, 1 << 63, 1 << 20_000)
NO_SECONDS = (float("nan"), "7", b"7", [7])


# ------------------------------------------------------------------------------------------------ queue ids of puts

PUTS = {
    "put": lambda s, queue_id: s.put("t", b"x", queue_id=queue_id),
    "put_async": lambda s, queue_id: s.put_async("t", b"x", queue_id=queue_id),
    "aput": lambda s, queue_id: asyncio.run(_aput(s, queue_id=queue_id)),
    "put_many": lambda s, queue_id: s.put_many("t", [b"x", b"y"], queue_id=queue_id),
    "put_batch": lambda s, queue_id: s.put_batch("t", [(0, b"x", None)], queue_id=queue_id),
}


async def _aput(store, **fields):
    return await store.aput("t", b"x", **fields)


@pytest.mark.parametrize("name", PUTS)
@pytest.mark.parametrize("queue_id", [-1, -(1 << 31), 1 << 31, 1 << 64])
@pytest.mark.parametrize("keeps_topics", [False, True], ids=["", "topics"])
def test_a_queue_id_that_no_queue_can_have(open_store, name, queue_id, keeps_topics):
    """Nothing is stored, and no topic is created. The store stays usable."""
    store = open_store()
    if keeps_topics:
        store.create_topic("other")
    error = refused(PutStatus.MESSAGE_ILLEGAL, PUTS[name], store, queue_id)
    assert isinstance(error, rocketc.IllegalMessageError)
    assert str(error) == f"queue_id is {queue_id}; allowed are 0 to 2147483647"
    assert store.max_phy_offset == 0
    assert store.queues() == []
    assert "t" not in store.topics()
    assert store.put("t", b"").phy_offset == 0


@pytest.mark.parametrize("name", PUTS)
def test_the_largest_queue_id(open_store, name):
    """The message is in its queue, also after the store was opened again."""
    store = open_store()
    PUTS[name](store, 2147483647)
    store.wait_dispatched()
    assert store.queues() == [("t", 2147483647)]
    store.close()
    store = open_store()
    assert [m.body for m in store.get("t", 2147483647, max_count=1)] == [b"x"]
    assert rocketc.verify(store.path).is_whole


def test_queue_ids_of_prepared_records(open_store, native_puts):
    """A record with a negative queue id is refused alone; of a batch, the whole batch is."""
    store = open_store()
    store.create_topic("other")
    row = {"topic": b"t", "body": b"x"}
    found = native_puts.put(store, [row | {"queue_id": -1}, row | {"queue_id": 3}, row | {"queue_id": -(1 << 31)}])
    illegal = PutStatus.MESSAGE_ILLEGAL
    assert [status for status, *_ in found] == [illegal, PutStatus.PUT_OK, illegal]
    batch = [row | {"batch": 2}, row | {"queue_id": -1}]
    assert [status for status, *_ in native_puts.put(store, batch)] == [illegal, illegal]
    only = native_puts.put(store, [row | {"topic": b"new", "queue_id": -1}])
    assert only[0][0] is illegal
    assert "new" not in store.topics()
    assert [m["queueId"] for m in records(store)] == [3]


@pytest.fixture(scope="module")
def native_puts():
    return extension.load("puts")


@pytest.mark.parametrize("queue_id", [-1, 1 << 31, 1 << 64])
def test_queue_ids_of_json_lines(tmp_path, queue_id):
    lines = "".join(json.dumps({"topic": "t", "body": "x", "queueId": number}) + "\n" for number in (5, queue_id, 6))
    done = subprocess.run(
        [sys.executable, "-m", "rocketc", "put", str(tmp_path / "s"), "--jsonl", "--file-size", "64KiB"],
        input=lines, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"stdin, line 2: queue_id is {queue_id}; allowed are 0 to 2147483647" in done.stderr
    assert "Traceback" not in done.stderr
    with rocketc.open(tmp_path / "s", read_only=True) as store:
        assert store.queues() == [("t", 5)]


# ------------------------------------------------------------------------------------------------ all arguments

CALLS = {}


def call(*names, none: "bool | str" = False, values=WHOLE, wrong=NO_NUMBERS, said=None):
    """Register a function of (env, keyword arguments); it is called with each value of each named argument.

    none   whether None is allowed; "endless": it is, and the call would wait without limit
    wrong  values of types that are not allowed
    said   texts of which one must be in an error; default: the name of the argument
    """

    def register(function):
        for name in names:
            key = f"{function.__name__}-{name}"
            CALLS[key] = function, name, none, values, wrong, said or (name,)
        return function

    return register


PUT_NUMBERS = ("queue_id", "flag", "sys_flag", "reconsume_times")


@call(*PUT_NUMBERS, "prepared_transaction_offset")
def put(env, **given):
    env.store.put("t", b"x", **given)


@call("born_timestamp", none=True)
def put_born(env, **given):
    env.store.put("t", b"x", **given)


@call(*PUT_NUMBERS, "prepared_transaction_offset")
def put_async(env, **given):
    env.store.put_async("t", b"x", **given).result()


@call("born_timestamp", none=True)
def put_async_born(env, **given):
    env.store.put_async("t", b"x", **given).result()


@call(*PUT_NUMBERS, "prepared_transaction_offset")
def aput(env, **given):
    asyncio.run(_aput(env.store, **given))


@call(*PUT_NUMBERS)
def put_many(env, **given):
    env.store.put_many("t", [b"x"], **given)


@call("born_timestamp", none=True)
def put_many_born(env, **given):
    env.store.put_many("t", [b"x"], **given)


@call("queue_id", "sys_flag", "reconsume_times")
def put_batch(env, **given):
    env.store.put_batch("t", [(0, b"x", None)], **given)


@call("flag")
def put_batch_entry(env, flag):
    env.store.put_batch("t", [(0, b"x", None), (flag, b"x", None)])


@call("born_host", "store_host")
def put_port(env, **given):
    [(name, port)] = given.items()
    env.store.put("t", b"x", **{name: ("10.0.0.1", port)})


@call("born_host", "store_host", none=True, wrong=(1.5, [7], "7", b"7", "10.0.0.1"))
def put_host(env, **given):
    env.store.put("t", b"x", **given)


@call("born_host", "store_host", wrong=(1.5, [7], "7", "text"))
def put_address(env, **given):
    [(name, address)] = given.items()
    env.store.put_batch("t", [(0, b"x", None)], **{name: (address, 1)})


@call("queue_id", "offset", "max_count")
def get(env, **given):
    env.store.get("t", **given)


@call("max_bytes", none=True)
def get_bytes(env, **given):
    env.store.get("t", **given)


@call("wait", none=True, values=(*SHORT, *LONG), wrong=NO_SECONDS)
def get_wait(env, **given):
    env.store.get("t", **given)


@call("wait", none=True, values=SHORT, wrong=NO_SECONDS)
def get_nothing(env, **given):
    env.store.get("no such topic", **given)


@call("queue_id", "offset", "max_count")
def get_raw(env, **given):
    env.store.get_raw("t", **given)


@call("max_bytes", none=True)
def get_raw_bytes(env, **given):
    env.store.get_raw("t", **given)


@call("queue_id", "max_count")
def follow(env, **given):
    asyncio.run(_follow(env.store, **given))


@call("offset", none=True, said=("offset", "queue_id"))
def follow_offset(env, **given):
    asyncio.run(_follow(env.store, **given))


async def _follow(store, **given):
    messages = store.follow("t", **given)
    try:
        return await asyncio.wait_for(anext(messages), 0.02)
    except (TimeoutError, asyncio.TimeoutError):
        return None


@call("queues")
def subscribe(env, queues):
    env.store.subscribe([("t", queues)]).close()


@call("timeout", none="endless", values=SHORT, wrong=NO_SECONDS)
def subscription_wait(env, **given):
    with env.store.subscribe([("no such topic", 0)]) as subscription:
        assert not subscription.wait(**given)


@call("max_count")
def query(env, **given):
    env.store.query("t", "k", **given)


@call("begin", "end", none=True)
def query_times(env, **given):
    env.store.query("t", "k", **given)


@call("phy_offset")
def message(env, phy_offset):
    env.store.message(phy_offset)


@call("queue_id")
def offset_by_time(env, queue_id):
    env.store.offset_by_time("t", queue_id, 0)


@call("timestamp")
def offset_by_time_when(env, timestamp):
    for boundary in ("lower", "upper", "nearest"):
        env.store.offset_by_time("t", 0, timestamp, boundary)


@call("queue_id")
def offsets_of_queue(env, queue_id):
    for method in (env.store.min_offset, env.store.max_offset):
        method("t", queue_id)


@call("queue_id")
def max_offset_in_log(env, queue_id):
    env.store.max_offset("t", queue_id, committed=False)


@call("queue_id", "offset")
def phy_offset_of(env, queue_id=0, offset=0):
    env.store.phy_offset_of("t", queue_id, offset)


@call("queue_id", "offset")
def store_time(env, queue_id=0, offset=0):
    env.store.store_time("t", queue_id, offset)


@call("timeout", none=True, values=(*SHORT, *LONG), wrong=NO_SECONDS)
def wait_dispatched(env, **given):
    env.store.wait_dispatched(**given)


@call("timeout", none=True, values=(*SHORT, *LONG), wrong=NO_SECONDS)
def wait_flushed(env, **given):
    assert env.store.wait_flushed(0, **given)


@call("timeout", none=True, values=(*SHORT, *LONG), wrong=NO_SECONDS)
def wait_confirmed(env, **given):
    assert env.store.wait_confirmed(0, **given)


@call("timeout", none="endless", values=SHORT, wrong=NO_SECONDS)
def wait_confirmed_in_vain(env, **given):
    assert not env.store.wait_confirmed(1 << 40, **given)


@call("timeout", none="endless", values=SHORT, wrong=NO_SECONDS)
def wait_flushed_in_vain(env, **given):
    assert not env.store.wait_flushed(1 << 40, **given)


@call("end")
def wait_flushed_end(env, end):
    env.store.wait_flushed(end, 0)


@call("end")
def wait_confirmed_end(env, end):
    env.store.wait_confirmed(end, 0)


@call("phy_offset", said=("phy_offset", "physical offset"))
def confirm(env, phy_offset):
    env.store.confirm(phy_offset)


@call("phy_offset", "max_bytes", said=("phy_offset", "max_bytes", "physical offset"))
def read_raw(env, phy_offset=0, max_bytes=100):
    env.store.read_raw(phy_offset, max_bytes)


@call("upto", none=True)
def read_raw_upto(env, upto):
    env.store.read_raw(0, upto=upto)


@call("phy_offset", said=("phy_offset", "physical offset"))
def append_raw(env, phy_offset):
    with env.new_store() as empty:
        empty.append_raw(phy_offset, b"")
    env.store.append_raw(env.store.max_phy_offset, b"")


@call("expired_ms", "now", none=True)
def clean(env, **given):
    env.store.clean(**given)


@call("phy_offset")
def delete_before(env, phy_offset):
    env.store.delete_before(phy_offset)


@call("queues", "perm", none=True, said=("queues", "queue_nums", "perm"))
def create_topic(env, **given):
    env.store.create_topic("new", **given)


@call("read_queue_nums", "write_queue_nums", none=True)
def create_topic_nums(env, **given):
    env.store.create_topic("new", **given)


# scan, decode, encode, ids


@call("start", "stop", none=True)
def scan(env, **given):
    rocketc.scan(env.store.path, **given).count()


@call("batch_bytes", "max_decompressed", wrong=NO_SIZES)
def scan_sizes(env, **given):
    scan = rocketc.scan(env.store.path, **given)
    assert sum(batch.num_rows for batch in scan.batches()) == scan.count() > 0


@call("queues", none=True, wrong=(1.5, "7", b"7", ["7"]))
def scan_queues(env, queues):
    rocketc.scan(env.store.path, queues=queues).count()


@call("queues")
def scan_list_of_queues(env, queues):
    rocketc.scan(env.store.path, queues=[queues]).count()


@call("begin", "end", none=True)
def scan_times(env, **given):
    rocketc.scan(env.store.path, **given).count()


@call("offsets", none=True)
def scan_offsets(env, offsets):
    for bounds in ((offsets, None), (None, offsets)):
        rocketc.scan(env.store.path, offsets={"t": {0: bounds}}).count()


@call("offsets", none=True, wrong=(1.5, "7", b"7"))
def scan_offsets_queue(env, offsets):
    rocketc.scan(env.store.path, offsets={"t": {offsets: (0, 1)}}).count()


@call("poll", values=(0, 0.01, *LONG, -1, -1e300), wrong=NO_SECONDS)
def scan_follow(env, poll):
    next(rocketc.scan(env.store.path).follow(poll))


@call("start", "stop", none=True)
def decode(env, **given):
    rocketc.decode(env.record, **given).count()


@call("base_offset", none=True)
def decode_base(env, base_offset):
    for options in ({}, {"crc": "full"}, {"start": 0}):
        scan = rocketc.decode(env.record, base_offset, errors="skip", **options)
        list(scan)
        scan.count()


@call("batch_bytes", "max_decompressed", wrong=NO_SIZES)
def decode_sizes(env, **given):
    rocketc.decode(env.record, **given).to_arrow()


ENCODED = (
    *("queue_id", "flag", "queue_offset", "phy_offset", "sys_flag", "born_timestamp", "store_timestamp"),
    *("reconsume_times", "prepared_transaction_offset"),
)


@call(*ENCODED)
def encode(env, **given):
    record = rocketc.encode("t", b"x", **given)
    [(name, value)] = given.items()
    if name == "phy_offset":
        assert record[28:36] == value.to_bytes(8, "big", signed=True)
    elif name != "sys_flag":
        [message] = rocketc.decode(record)
        assert getattr(message, name) == value


@call("version", none=True)
def encode_version(env, version):
    rocketc.encode("t", b"x", version=version)


@call("born_host", "store_host")
def encode_port(env, **given):
    [(name, port)] = given.items()
    rocketc.encode("t", b"x", **{name: ("10.0.0.1", port)})


@call("size", values=[value for value in WHOLE if value < 1 << 20 or value > INT32[1]])
def encode_blank(env, size):
    rocketc.encode_blank(size)


@call("flag")
def encode_batch(env, flag):
    rocketc.encode_batch([(0, b"x", None), (flag, b"x", None)])


@call("port", "phy_offset")
def offset_id(env, **given):
    made = rocketc.OffsetId(**({"host": "10.0.0.1", "port": 1, "phy_offset": 0} | given))
    made.doubts()
    assert rocketc.decode_offset_id(made.encode()) == made


@call("pid", "class_loader_hash", "month_ms", "counter")
def unique_id(env, **given):
    parts = {"ip": "10.0.0.1", "pid": 1, "class_loader_hash": 2, "month_ms": 3, "counter": 4}
    made = rocketc.UniqueId(**(parts | given))
    made.doubts()
    assert rocketc.decode_unique_id(made.encode()) == made


@call("jobs", none=True, values=[value for value in WHOLE if value < 100 or value > INT32[1]])
def verify(env, jobs):
    rocketc.verify(env.store.path, jobs=jobs)


@call("jobs", none=True, values=[value for value in WHOLE if value < 100 or value > INT32[1]])
def export(env, **given):
    rocketc.export(rocketc.scan(env.store.path), io.BytesIO(), "jsonl", **given)


@call("row_group_size", wrong=NO_SIZES)
def export_row_groups(env, **given):
    rocketc.export(rocketc.scan(env.store.path), io.BytesIO(), "parquet", **given)


# tables


@call("queue_id", "offset")
def consumer_offsets(env, queue_id=0, offset=0):
    offsets = ConsumerOffsets(env.folder)
    offsets.commit("t", "g", queue_id, offset)
    assert offsets.persist()
    assert ConsumerOffsets(env.folder).get("t", "g", queue_id) == offset


@call("level", "offset")
def delay_offsets(env, level=1, offset=0):
    offsets = DelayOffsets(env.folder)
    offsets.commit(level, offset)
    assert offsets.persist()
    assert DelayOffsets(env.folder).get(level) == offset


# Queue

SOME = (-1, 0, 7, 1 << 31, 1 << 63, 1 << 20_000)  # each opens a queue
SOME_SECONDS = (-1, -(1 << 20_000), 0, 0.01, math.inf, 1 << 20_000)


@call("maxsize", values=SOME)
def queue_maxsize(env, maxsize):
    with env.new_queue(maxsize=maxsize) as queue:
        assert queue.full() is False


@call("max_attempts", none=True, values=SOME)
def queue_attempts(env, max_attempts):
    with env.new_queue(max_attempts=max_attempts) as queue:
        queue.put(b"x")
        queue.nack(queue.get())


@call("visibility_timeout", none=True, values=SOME_SECONDS, wrong=NO_SECONDS)
def queue_visibility(env, **given):
    with env.new_queue(**given) as queue:
        queue.put(b"x")
        queue.get(timeout=5)


@call("position_interval", values=SOME_SECONDS, wrong=NO_SECONDS)
def queue_interval(env, **given):
    with env.new_queue(**given) as queue:
        queue.put(b"x")
        queue.ack(queue.get(timeout=5))


@call("timeout", none=True, values=(*SHORT, *LONG), wrong=NO_SECONDS)
def queue_get(env, timeout):
    for get in (env.queue.get, env.queue.get_many):
        env.queue.put(b"x")
        found = get(timeout=timeout)
        for item in found if isinstance(found, list) else [found]:
            env.queue.ack(item)


@call("timeout", none="endless", values=(0, 0.01), wrong=NO_SECONDS)
def queue_get_nothing(env, timeout):
    with pytest.raises(Empty):
        env.empty_queue.get(timeout=timeout)


@call("timeout", none=True, values=(*SHORT, *LONG), wrong=NO_SECONDS)
def queue_put(env, timeout):
    env.queue.put(b"x", timeout=timeout)


@call("max_count")
def queue_get_many(env, max_count):
    env.queue.put_many([b"x", b"y"])
    assert env.queue.get_many(max_count)


@call("delay", values=(*SHORT, *LONG), wrong=NO_SECONDS)
def queue_nack(env, delay):
    env.queue.put(b"x")
    env.queue.nack(env.queue.get(timeout=5), delay=delay)
    env.queue.qsize()


@call("timeout", none="endless", values=(0, 0.01), wrong=NO_SECONDS)
def queue_items(env, timeout):
    list(env.empty_queue.items(timeout))


OWN_STORE = ("append_raw", "clean", "delete_before")  # the others share one


class Env:
    """What the calls use: an open store with one message, a record, two queues; each is opened when it is needed."""

    def __init__(self, folder):
        self.record = rocketc.encode("t", b"x")
        self.folder = folder
        self._count = 0
        self._opened = []

    def _new(self):
        self._count += 1
        return self.folder / str(self._count)

    @functools.cached_property
    def store(self):
        store = rocketc.open(self._new(), mapped_file_size_commit_log=1 << 20)
        self._opened.append(store)
        store.put("t", b"x", keys="k")
        return store

    def new_store(self):
        return rocketc.open(self._new(), mapped_file_size_commit_log=1 << 16)

    def new_queue(self, **given):
        return rocketc.Queue(self._new(), mapped_file_size_commit_log=1 << 16, **given)

    @functools.cached_property
    def queue(self):
        self._opened.append(self.new_queue(maxsize=1000))
        return self._opened[-1]

    @functools.cached_property
    def empty_queue(self):
        self._opened.append(self.new_queue())
        return self._opened[-1]

    def close(self):
        for each in self._opened:
            each.close()


@pytest.fixture(scope="module")
def shared_env(tmp_path_factory):
    env = Env(tmp_path_factory.mktemp("numbers"))
    yield env
    env.close()


@pytest.fixture(scope="module")
def put_env(tmp_path_factory):
    """Its store gets messages whose system flag promises a compressed body."""
    env = Env(tmp_path_factory.mktemp("puts"))
    yield env
    env.close()


@pytest.fixture
def own_env(tmp_path):
    env = Env(tmp_path)
    yield env
    env.close()


def outcome(function, env, name, value, said):
    """Call it; return "works", "refused", or what is wrong with the exception or its text."""
    try:
        function(env, **{name: value})
    except (ValueError, TypeError) as error:
        text = str(error)
        return "refused" if any(word in text for word in said) else f"{error!r} does not name the argument"
    except Exception as error:
        return f"raises {error!r}"
    return "works"


def brief(value):
    """The repr of a value; a long number is shortened."""
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) >> 70 else repr(value)


@pytest.mark.parametrize("key", CALLS)
def test_numbers(shared_env, put_env, own_env, key):
    """Each value works, or raises ValueError or TypeError with the name of the argument; other types raise."""
    function, name, none, values, wrong, said = CALLS[key]
    is_put = function.__name__.startswith(("put", "aput"))
    env = own_env if function.__name__ in OWN_STORE else put_env if is_put else shared_env
    found = [(value, outcome(function, env, name, value, said)) for value in values]
    assert any(what == "works" for _, what in found) or "address" in key or "put_host" in key
    expected = [(value, "refused") for value in (*wrong, *(() if none else (None,)))]
    expected += [(None, "works")] if none is True else []
    wrong_types = [(value, outcome(function, env, name, value, said), what) for value, what in expected]
    faults = [f"{brief(value)}: {what}" for value, what in found if what not in ("works", "refused")]
    faults += [f"{brief(value)}: {what}, not {should}" for value, what, should in wrong_types if what != should]
    assert not faults
    assert env.store.failed is None
    offset = env.store.put("after", b"y").queue_offset
    assert [m.body for m in env.store.get("after", offset=offset)] == [b"y"]


def test_times_that_no_int64_can_hold(own_env):
    """Aware datetimes are allowed from the first to the last that Python has."""
    store, utc = own_env.store, datetime.timezone.utc
    first, last = datetime.datetime.min.replace(tzinfo=utc), datetime.datetime.max.replace(tzinfo=utc)
    assert len(store.query("t", "k", begin=first, end=last)) == 1
    assert rocketc.scan(store.path, begin=first, end=last).count() == 1
    assert store.offset_by_time("t", 0, first) == 0
    assert store.offset_by_time("t", 0, last) == 1


FIELDS = [
    field.name for field in dataclasses.fields(rocketc.StoreConfig) if type(field.default) in (int, float)
]  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_the_configuration(tmp_path, name):
    """StoreConfig and open() refuse the same values, and name the field."""
    for value in (*WHOLE, *NO_NUMBERS, None):
        try:
            rocketc.StoreConfig(**{name: value})
        except (ValueError, TypeError) as error:
            assert name in str(error)
            with pytest.raises(type(error), match=name):
                rocketc.open(tmp_path / "s", **{name: value})
            assert not (tmp_path / "s").exists()
        else:
            assert isinstance(value, (int, float)) or (value == "7" and ("size" in name or "bytes" in name))


def test_a_store_with_the_least_and_the_largest_numbers(tmp_path):
    """Each number of the configuration, except sizes of files, at both ends of its range: the store opens and works."""
    sizes = {name for name in FIELDS if "file_size" in name or name in ("max_hash_slot_num", "max_index_num")}
    for name in FIELDS:
        if name in sizes or isinstance(getattr(rocketc.StoreConfig(), name), float):
            continue
        with pytest.raises(ValueError, match="allowed are") as caught:
            rocketc.StoreConfig(**{name: -1 << 64})
        least, most = str(caught.value).rpartition("allowed are ")[2].split(" to ")
        for value in (int(least), int(most)):
            folder = tmp_path / f"{name}-{value}"
            with rocketc.open(folder, mapped_file_size_commit_log=1 << 16, **{name: value}) as store:
                try:
                    store.put("t", b"", keys="k")
                except rocketc.IllegalMessageError:
                    assert name == "max_message_size"
                except (rocketc.PageCacheBusyError, rocketc.StoreFullError):
                    assert name in ("os_page_cache_busy_time_out_mills", "disk_space_warning_level_ratio")
                store.get("t")
