"""Deliveries: records of the topic of delayed messages are appended to their own queues, from C."""

import pytest
from simulation.brokers import SMALL

import rocketc
from rocketc.broker import names
from rocketc.broker._deliveries import Deliveries
from rocketc.errors import ClosedError, StoreFullError
from rocketc.status import PutStatus

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
HOUR = 3_600_000


@pytest.fixture
def store(tmp_path):
    with rocketc.open(tmp_path, background=False, message_delay_level="1s 1h", **SMALL) as made:
        yield made


def deliveries(store):
    return Deliveries(store, names.REAL_TOPIC, names.REAL_QUEUE, names.HALF_TOPIC)


def wait(store, count=1, topic="orders", **how):
    for n in range(count):
        fields = {"body": b"%d" % n, "queue_id": 1, **how}
        properties = {"DELAY": "2", "REAL_TOPIC": topic, "REAL_QID": "3", **fields.pop("properties", {})}
        last = store.put(SCHEDULE, fields.pop("body"), properties=properties, **fields)
    while store.step():
        pass
    return last.store_timestamp + HOUR


def read(store, offset=0, count=600):
    return store.get_raw(SCHEDULE, 1, offset, count)


def orders(store, topic="orders"):
    while store.step():
        pass
    return store.get(topic, 3, 0, 2000, decompress=False).messages


def test_messages_are_delivered_when_they_are_due(store):
    due, deliver = wait(store, 1), deliveries(store)
    with read(store) as found:
        assert deliver.deliver(found, due - 1, HOUR) == (0, due, PutStatus.PUT_OK, -1, 0)
        assert orders(store) == [] and deliver.delivered == 0
        done = deliver.deliver(found, due, HOUR)
        assert done == (1, -1, PutStatus.PUT_OK, store.max_phy_offset, 1)
    [message] = orders(store)
    assert message.body == b"0" and deliver.delivered == 1


def test_a_due_time_that_is_too_far_away_counts_as_now(store):
    due, deliver = wait(store, 1), deliveries(store)
    with read(store) as found:
        assert deliver.deliver(found, due - 5001, 5000).next_offset == 1
    with read(store) as found:
        assert deliver.deliver(found, due - 5000, 5000).due == due


def test_many_records_over_several_calls(store):
    due, deliver = wait(store, 1200), deliveries(store)
    offset, counts = 0, []
    while offset < 1200:
        with read(store, offset, 900) as found:
            offset, before = deliver.deliver(found, due, HOUR).next_offset, offset
            counts.append(offset - before)
    assert counts[0] == 512 and sum(counts) == 1200
    assert [one.body for one in orders(store)] == [b"%d" % n for n in range(1200)]


def test_a_read_is_delivered_in_slices(store):
    due, deliver = wait(store, 1200), deliveries(store)
    rows = [0]
    with store.get_raw(SCHEDULE, 1, 0, 1200) as found:
        while rows[-1] < len(found):
            done = deliver.deliver(found, due, HOUR, rows[-1])
            rows.append(done.row)
            assert done.next_offset == done.row
        assert deliver.deliver(found, due, HOUR, 1200).row == 1200 and deliver.deliver(found, due, HOUR, -1).row == -1
    assert rows == [0, 512, 1024, 1200]
    assert [one.body for one in orders(store)] == [b"%d" % n for n in range(1200)]


def test_records_of_several_files_are_delivered_a_file_at_a_time(store):
    due, deliver = wait(store, 5, body=b"x" * 300_000), deliveries(store)
    counts, offset = [], 0
    while offset < 5:
        with read(store, offset) as found:
            offset, before = deliver.deliver(found, due, HOUR).next_offset, offset
            counts.append(offset - before)
    assert counts == [3, 2] and len(orders(store)) == 5


@pytest.mark.parametrize("hosts", [("127.0.0.1", "10.1.2.3"), ("::1", "10.1.2.3"), ("10.1.2.3", "::1"), ("::1", "::2")])
def test_all_fields_stay(store, hosts):
    born, stored = hosts
    due = wait(
        store, born_host=(born, 5), store_host=(stored, 6), flag=-7, sys_flag=0x301, reconsume_times=9,
        born_timestamp=12345, properties={"TAGS": "a", "KEYS": "k", "WAIT": "false", "é": "ü"},
    )  # fmt: skip
    with read(store) as found:
        deliveries(store).deliver(found, due, HOUR)
    [message], [before] = orders(store), store.get(SCHEDULE, 1, decompress=False).messages
    for name in (
        "stored_body", "flag", "sys_flag", "reconsume_times", "born_timestamp", "born_host", "store_host", "properties",
        "body_crc",
    ):  # fmt: skip
        assert getattr(message, name) == getattr(before, name)
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 0)
    assert message.prepared_transaction_offset == 0


def test_the_crc_of_the_properties_is_a_new_one(tmp_path):
    options = {**SMALL, "enabled_append_prop_crc": True}
    with rocketc.open(tmp_path, background=False, message_delay_level="1s 1h", **options) as store:
        due = wait(store)
        with read(store) as found:
            assert deliveries(store).deliver(found, due, HOUR).next_offset == 1
        orders(store)
        [message] = store.get("orders", 3, crc="full").messages
        assert message.record.count(b"__CRC32#") == 1


def test_an_empty_read_and_a_released_one(store):
    deliver = deliveries(store)
    with read(store) as found:
        assert deliver.deliver(found, 0, HOUR) == (0, -1, PutStatus.PUT_OK, -1, 0)
    due = wait(store)
    found = read(store)
    found.release()
    with pytest.raises(ClosedError):
        deliver.deliver(found, due, HOUR)


def test_refused_records_stay(store):
    due, deliver = wait(store, 3), deliveries(store)
    store._set_full(True)
    with read(store) as found, pytest.raises(StoreFullError):
        deliver.deliver(found, due, HOUR)
    store._set_full(False)
    with read(store) as found:
        assert deliver.deliver(found, due, HOUR).next_offset == 3
    assert len(orders(store)) == 3


def test_a_body_that_became_too_long_is_refused_and_tried_again(tmp_path):
    with rocketc.open(tmp_path, background=False, message_delay_level="1s 1h", **SMALL) as store:
        due = wait(store, 1)
        wait(store, 1, body=b"x" * 5000)
        wait(store, 1)
    with rocketc.open(tmp_path, background=False, max_message_size=4000, **SMALL) as store:
        deliver = deliveries(store)
        with read(store) as found:
            done = deliver.deliver(found, due + 5000, HOUR)
        assert (done.next_offset, done.status) == (1, PutStatus.MESSAGE_ILLEGAL)
        assert deliver.delivered == 1 and deliver.skipped == 0
        assert done.end > 0 and [one.body for one in orders(store)] == [b"0"]


def test_unknown_topics_are_skipped_if_they_are_not_created(tmp_path):
    options = {**SMALL, "auto_create_topic_enable": False}
    with rocketc.open(tmp_path, background=False, message_delay_level="1s 1h", **options) as store:
        for name in (SCHEDULE, "orders"):
            store.create_topic(name)
        due = max(wait(store, 2, topic="orders"), wait(store, 1, topic="gone"), wait(store, 2, topic="orders"))
        deliver, offset = deliveries(store), 0
        while offset < 5:
            with read(store, offset) as found:
                offset = deliver.deliver(found, due, HOUR).next_offset
        assert (deliver.delivered, deliver.skipped) == (4, 1) and len(orders(store)) == 4
