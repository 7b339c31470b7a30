"""Timed messages: a store moves between RocketMQ's broker and ours while messages wait; records of both are equal."""

import time
from collections import Counter

import pytest
from interop.asking import Asking
from interop.our_broker import wait_for
from interop.test_moved_broker import Home

import rocketc
from rocketc.client import Producer
from rocketc.derived import timer_check

pytestmark = pytest.mark.long

RELEASE = "5.3.3"  # timers are in 5.x only
TOPIC = "Timed"
SETTINGS = {"broker.recallMessageEnable": "true", "store.timerRollWindowSlot": 8}
CONF = "mappedFileSizeTimerLog=1048576\nrecallMessageEnable=true\ntimerRollWindowSlot=8\nautoCreateTopicEnable=true\n"


@pytest.fixture
def new_home(tmp_path, begin):
    def make(name):
        folder = tmp_path / name
        folder.mkdir()
        home = Home(folder, begin)
        with (folder / "broker.conf").open("a") as file:
            file.write(CONF)
        return home

    return make


def start(home, whose):
    return home.theirs(RELEASE, **SETTINGS) if whose == "theirs" else home.ours()


def send(asking, body, **properties):
    """Send a message; return the fields of the answer."""
    text = "".join(f"{name}\1{value}\2" for name, value in {"UNIQ_KEY": body.upper(), **properties}.items())
    sent = {"a": "p", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": text, "m": False}
    code, fields, _ = asking.ask("SEND_MESSAGE_V2", body.encode(), **sent)
    assert code == 0, (body, code)
    return fields


def delivered(home):
    """The messages of the topic, as the store has them on the disk."""
    return list(rocketc.scan(home.store, topics=TOPIC))


def bodies(home):
    return Counter(one.body.decode() for one in delivered(home))


def records(home, bodies):
    """All records of some bodies, for a message."""
    found = rocketc.scan(home.store, topics=[TOPIC, "rmq_sys_wheel_timer"])
    return [
        (one.topic, one.body, one.queue_offset, one.store_timestamp, one.properties)
        for one in found
        if one.body.decode() in bodies
    ]


def now_ms():
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_a_store_moves_while_messages_wait(new_home, first):
    """Some are due in this turn, some in the next ones, some roll, some are taken back; each comes once, in time."""
    home = new_home("home")
    turns = ["theirs", "ours"] * 2 if first == "theirs" else ["ours", "theirs"] * 2
    due, taken = {}, set()
    for turn, whose in enumerate(turns):
        broker = start(home, whose)
        asking = Asking(broker.address)
        for delay in (1500, 2600, 6700, 9500, 14_700, 22_000, 31_000):
            body = f"t{turn}-{delay}"
            due[body] = now_ms() + delay
            fields = send(asking, body, TIMER_DELAY_MS=delay)
            if delay == 6700 or (delay == 2600 and turn % 2):  # they do not roll, so that no end of a broker is between
                code, answer, _ = asking.ask("RECALL_MESSAGE", topic=TOPIC, recallHandle=fields["recallHandle"])
                assert code == 0 and answer["msgId"] == body.upper()
                taken.add(body)
        wait_for(lambda turn=turn: bodies(home)[f"t{turn}-1500"] > 0, 8)
        time.sleep(2.5)
        asking.close()
        broker.end()
    broker = start(home, turns[0])
    wanted = Counter(set(due) - taken)
    wait_for(lambda: bodies(home) >= wanted, 45)
    time.sleep(2)
    broker.end()
    found = bodies(home)
    assert found == wanted, records(home, (found - wanted) + (wanted - found))
    for one in delivered(home):
        moment = int(one.properties["TIMER_OUT_MS"])
        assert moment % 1000 == 0 and abs(moment - due[one.body.decode()]) < 1500
        assert one.store_timestamp >= moment + 1000


@pytest.mark.parametrize("order", [("theirs", "ours"), ("ours", "theirs")])
def test_a_broker_that_is_killed(new_home, order):
    """The other one delivers all that waits; those of the last seconds may come twice, as after its own kills."""
    home = new_home("home")
    broker = start(home, order[0])
    asking = Asking(broker.address)
    for n in range(40):
        send(asking, f"k{n}", TIMER_DELAY_MS=2000 + 400 * n)
    wait_for(lambda: bodies(home)["k0"] > 0, 8)
    time.sleep(2)
    asking.close()
    broker.kill() if order[0] == "ours" else broker.close()
    before = set(bodies(home))
    (home.store / "lock").unlink(missing_ok=True)
    broker = start(home, order[1])
    wait_for(lambda: len(bodies(home)) == 40, 30)
    time.sleep(1.5)
    broker.end()
    found = bodies(home)
    assert len(found) == 40 and max(found.values()) <= 2
    rolled = {f"k{n}" for n in range(14, 40)}  # put into the topic again in the last second, as a delivery
    assert not [body for body, count in found.items() if count > 1 and body not in before | rolled]


@pytest.mark.parametrize("lost", ["ahead", "missing"])
def test_a_wrong_timercheck_of_theirs(new_home, lost):
    """RocketMQ's broker delivers nothing until a time that is ahead, and all again if timercheck is missing."""
    home = new_home("home")
    broker = start(home, "theirs")
    asking = Asking(broker.address)
    delays = [1500, 4500, 5500, 12_000, 13_000]
    for delay in delays:
        send(asking, f"w{delay}", TIMER_DELAY_MS=delay)
    wait_for(lambda: bodies(home)["w1500"] > 0, 8)
    time.sleep(2)
    asking.close()
    broker.end()
    before = set(bodies(home))
    path = home.store / "config" / "timercheck"
    if lost == "ahead":
        check = timer_check.read(path)
        check.last_read_time_ms = check.timestamp = now_ms() + 3_600_000
        timer_check.write(path, check)
    else:
        path.unlink()
    broker = start(home, "ours")
    asking = Asking(broker.address)
    send(asking, "new", TIMER_DELAY_MS=2000)
    wanted = {"new", *(f"w{delay}" for delay in delays)}
    wait_for(lambda: set(bodies(home)) == wanted, 30)
    time.sleep(1.5)
    asking.close()
    broker.end(b"timercheck: it is missing or wrong; timed messages that were due from")
    again = {body for body, count in bodies(home).items() if count > 1}
    rolled = {"w12000", "w13000"}  # put into the topic again, as a delivery
    assert set(bodies(home)) == wanted and again <= before | rolled and len(again) <= 2


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_messages_that_are_sent_to_the_timer_topic(new_home, whose):
    """Both accept them, and change nothing of them. RocketMQ's timer then waits for ever; ours leaves them out."""
    home = new_home("home")
    broker = start(home, whose)
    asking = Asking(broker.address)
    send(asking, "first", TIMER_DELAY_MS=1500)
    wait_for(lambda: bodies(home)["first"], 10)
    for body, properties in (("plain", {}), ("delayed", {"TIMER_DELAY_MS": 1000})):
        text = "".join(f"{name}\1{value}\2" for name, value in {"UNIQ_KEY": body, **properties}.items())
        sent = {"a": "p", "b": "rmq_sys_wheel_timer", "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": 1, "h": 0, "i": text}
        assert asking.ask("SEND_MESSAGE_V2", body.encode(), m=False, **sent)[0] == 0
    send(asking, "later", TIMER_DELAY_MS=1500)
    if whose == "ours":
        wait_for(lambda: bodies(home)["later"], 10)
    else:
        time.sleep(6)
    asking.close()
    broker.end(b"timed messages before") if whose == "ours" else broker.end()
    assert bodies(home) == {"first": 1, **({"later": 1} if whose == "ours" else {})}
    waiting = [one.properties for one in rocketc.scan(home.store, topics="rmq_sys_wheel_timer")]
    found = {one["UNIQ_KEY"]: "TIMER_OUT_MS" in one for one in waiting}
    assert found == {"FIRST": True, "plain": False, "delayed": False, "LATER": True}


TIMES = [
    ("a", {"TIMER_DELAY_SEC": "2"}),
    ("b", {"TIMER_DELAY_MS": "1700", "KEYS": "k1", "TAGS": "t"}),
    ("c", {"TIMER_DELAY_SEC": "0"}),
    ("d", {"TIMER_DELIVER_MS": "5"}),
    ("e", {"DELAY": "1", "TIMER_DELAY_SEC": "9"}),
    ("f", {"TIMER_DELAY_SEC": "10"}),
    ("g", {"TIMER_DELAY_SEC": "2", "TIMER_DEL_UNIQKEY": f"{TOPIC}+A"}),
    ("h", {"DELAY": "0", "TIMER_DELAY_MS": "1000"}),
]


def shown(message):
    """A record without what differs from run to run."""
    varies = {"UNIQ_KEY", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "BORN_TIMESTAMP", "TIMER_DELIVER_MS"}
    properties = {name: "*" if name in varies else value for name, value in message.properties.items()}
    names = ("topic", "queue_id", "body", "flag", "sys_flag", "reconsume_times")
    return (*(getattr(message, name) for name in names), tuple(sorted(properties.items())))


def test_records_are_equal(new_home):
    found = {}
    for whose in ("theirs", "ours"):
        home = new_home(whose)
        broker = start(home, whose)
        asking = Asking(broker.address)
        handles = {body: send(asking, body, **properties).get("recallHandle") for body, properties in TIMES}
        assert {body for body, handle in handles.items() if handle} == set("abfgh")
        code, _, _ = asking.ask("RECALL_MESSAGE", topic=TOPIC, recallHandle=handles["f"], producerGroup="p")
        assert code == 0
        wait_for(lambda home=home: bodies(home)["h"] + bodies(home)["b"] == 2, 8)
        time.sleep(13)
        asking.close()
        broker.end()
        records = list(rocketc.scan(home.store, topics=[TOPIC, "rmq_sys_wheel_timer"]))
        found[whose] = sorted(shown(one) for one in records)
        assert sorted(one.body.decode() for one in records if one.topic == TOPIC) == list("bcdeh")
    assert found["ours"] == found["theirs"]


def test_a_client_of_python_at_ours(new_home):
    home = new_home("home")
    broker = home.ours()
    with Producer("shop", broker.name_server) as producer:
        kept = producer.send(TOPIC, b"kept", delay=2.5)
        taken = producer.send(TOPIC, b"taken", delay=3)
        assert producer.recall(TOPIC, taken.recall_handle) == taken.msg_id
        assert kept.recall_handle is not None
    assert wait_for(lambda: bodies(home)["kept"], 8) == 1
    time.sleep(2)
    broker.end()
    assert bodies(home) == {"kept": 1}
