"""_in_flight: the state of each message between the first unacked one and the last one read."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc import Message, encode
from rocketc.workqueue._in_flight import InFlight, Item

SECONDS = 10.0


class Owner:
    pass


owner = Owner()


def message(offset):
    return Message.of(encode("t", b"%d" % offset, queue_offset=offset))


def ledger_of(offsets, base=0, behind=None):
    ledger = InFlight(base)
    ledger.add([message(offset) for offset in offsets], offsets[-1] + 1 if behind is None else behind)
    return ledger


def numbers(ledger):
    return ledger.base, ledger.next, ledger.taken, ledger.finished


def test_messages_are_returned_in_order():
    ledger = ledger_of([5, 6, 7], base=5)
    assert ledger.has_ready
    items = [ledger.take(owner, 0.0, SECONDS) for _ in range(3)]
    assert items == [b"5", b"6", b"7"]
    assert [item.attempts for item in items] == [1, 1, 1]
    assert [ledger.offset_of(owner, item) for item in items] == [5, 6, 7]
    assert (ledger.take(owner, 0.0, SECONDS), ledger.has_ready) == (None, False)
    assert numbers(ledger) == (5, 8, 3, 0)
    assert ledger.next_check == SECONDS


def test_several_at_once():
    ledger = ledger_of(list(range(5)))
    assert ledger.take_many(owner, 0.0, SECONDS, 3) == [b"0", b"1", b"2"]
    assert ledger.take_many(owner, 0.0, SECONDS, 3) == [b"3", b"4"]
    assert ledger.take_many(owner, 0.0, SECONDS, 3) == []


def test_no_memory_for_an_item(monkeypatch):
    """The message is returned when there is memory again."""
    ledger = ledger_of([0, 1])

    def fail(body):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("rocketc.workqueue._in_flight.Item", fail)
        with pytest.raises(MemoryError):
            ledger.take(owner, 0.0, SECONDS)
    assert numbers(ledger) == (0, 2, 0, 0)
    items = ledger.take_many(owner, 0.0, SECONDS, 2)
    assert [(item, item.attempts) for item in items] == [(b"0", 1), (b"1", 1)]


def test_base_moves_past_acked_messages():
    ledger = ledger_of(list(range(4)))
    items = ledger.take_many(owner, 0.0, SECONDS, 4)
    assert not ledger.ack(owner, (items[1], items[3]))
    assert numbers(ledger) == (0, 4, 2, 2)
    assert ledger.ack(owner, (items[0],))
    assert numbers(ledger) == (2, 4, 1, 1)
    assert not ledger.ack(owner, (items[0], items[1], items[3])), "they are acked already"
    assert ledger.finish(2)
    assert numbers(ledger) == (4, 4, 0, 0)
    assert not ledger.finish(2)


def test_messages_that_are_not_taken_cannot_be_finished():
    ledger = ledger_of([0, 1])
    for offset in (-1, 0, 1, 2, 1 << 40):
        assert not ledger.finish(offset)
        assert not ledger.give_back(offset)
        assert not ledger.is_returned(offset)
    assert numbers(ledger) == (0, 2, 0, 0)


def test_gaps():
    ledger = ledger_of([3, 4, 7], base=0, behind=10)
    assert numbers(ledger) == (3, 10, 0, 4)
    items = ledger.take_many(owner, 0.0, SECONDS, 9)
    assert ledger.ack(owner, tuple(items[:2]))
    assert numbers(ledger) == (7, 10, 1, 2)
    assert ledger.ack(owner, tuple(items[2:]))
    assert numbers(ledger) == (10, 10, 0, 0)
    ledger.add([], 1 << 40)
    assert numbers(ledger) == (1 << 40, 1 << 40, 0, 0)


def test_a_nacked_message_can_be_taken_again():
    ledger = ledger_of([0])
    item = ledger.take(owner, 0.0, SECONDS)
    assert ledger.give_back(0) == 1
    assert (ledger.give_back(0), ledger.is_returned(0), ledger.taken) == (0, True, 0)
    again = ledger.hand_out(owner, item.message, 0.0, SECONDS)
    assert again.attempts == 2
    assert ledger.give_back(0, attempts=1) == 0, "an earlier taker cannot return it"
    assert ledger.give_back(0, attempts=2) == 2
    assert ledger.ack(owner, (item,)), "an ack by an earlier taker counts"
    assert not ledger.is_returned(0)


def test_a_skipped_message_stays_unacked():
    ledger = ledger_of([0])
    ledger.skip()
    ledger.add([message(2)], 3)
    assert ledger.ack(owner, tuple(ledger.take_many(owner, 0.0, SECONDS, 9)))
    assert numbers(ledger) == (1, 3, 0, 1)
    assert ledger.finish(1)
    assert numbers(ledger) == (3, 3, 0, 0)


def test_messages_are_overdue_after_the_timeout():
    ledger = ledger_of([0, 1, 2, 3])
    for now in (0.0, 1.0, 2.0, 3.0):
        ledger.take(owner, now, SECONDS)
    ledger.finish(1)
    assert ledger.next_check == SECONDS
    assert ledger.overdue(9.0) == []
    assert ledger.overdue(12.0) == [0, 2]
    assert ledger.next_check == 13.0
    for offset in (0, 2):
        ledger.give_back(offset)
    assert ledger.overdue(13.0) == [3]
    assert ledger.next_check > 13.0, "it is not checked again at once"


def test_starting_over():
    """Items taken before belong to no message, even if there is a message with the same offset."""
    ledger = ledger_of([0, 1, 2])
    old = ledger.take(owner, 0.0, SECONDS)
    ledger.start_over()
    assert (numbers(ledger), ledger.has_ready, ledger.life) == ((0, 0, 0, 0), False, 1)
    assert ledger.next_check < 0, "the next take checks first"
    ledger.add([message(0)], 1)
    new = ledger.take(owner, 0.0, SECONDS)
    assert not ledger.ack(owner, (old,))
    assert (ledger.offset_of(owner, old), ledger.give_back(ledger.offset_of(owner, old))) == (-1, 0)
    assert ledger.ack(owner, (new,))
    assert numbers(ledger) == (1, 1, 0, 0)


def test_the_last_message_of_a_thread():
    ledger = ledger_of([0, 1, 2, 3])
    assert ledger.last_taken() is None
    items = ledger.take_many(owner, 0.0, SECONDS, 2)
    other = threading.Thread(target=ledger.take, args=(owner, 0.0, SECONDS))
    other.start()
    other.join()
    assert ledger.last_taken() == 1
    ledger.give_back(1)
    assert ledger.last_taken() is None
    ledger.hand_out(owner, items[1].message, 0.0, SECONDS)
    assert ledger.last_taken() == 1
    ledger.finish(1)
    assert ledger.last_taken() is None
    ledger.take(owner, 0.0, SECONDS)
    assert ledger.last_taken() == 3
    ledger.forget_last()
    assert ledger.last_taken() is None


@pytest.mark.parametrize("wrong", [b"0", None, "0", Item(b"0")])
def test_items_that_were_not_taken(wrong):
    with pytest.raises(ValueError, match="was not taken from"):
        InFlight(0).offset_of(owner, wrong)
    with pytest.raises(ValueError, match="was not taken from"):
        ledger_of([0]).ack(owner, (wrong,))
    with pytest.raises(ValueError, match="was not taken from"):
        ledger = ledger_of([0])
        ledger.offset_of(Owner(), ledger.take(owner, 0.0, SECONDS))


@given(
    st.lists(st.sampled_from(["add", "take", "ack", "back", "again"]), max_size=300), st.randoms(use_true_random=False)
)
def test_against_sets(steps, chance):
    """Compared for any size and any order of acks."""
    ledger, taken, again, done, end, ready = InFlight(0), {}, {}, set(), 0, 0
    for step in steps:
        if step == "add":
            count = chance.choice([1, 3, 100])
            ledger.add([message(offset) for offset in range(end, end + count)], end + count)
            end += count
        elif step == "take" and ready < end:
            for item in ledger.take_many(owner, 0.0, SECONDS, chance.choice([1, 50])):
                assert int(item) == ready
                taken[ready] = item
                ready += 1
        elif step == "ack" and taken:
            some = chance.sample(sorted(taken), chance.randint(1, len(taken)))
            ledger.ack(owner, tuple(taken.pop(offset) for offset in some))
            done.update(some)
        elif step == "back" and taken:
            offset = chance.choice(sorted(taken))
            again[offset] = taken.pop(offset)
            assert ledger.give_back(offset) == again[offset].attempts
        elif step == "again" and again:
            offset = chance.choice(sorted(again))
            item = again.pop(offset)
            taken[offset] = ledger.hand_out(owner, item.message, 0.0, SECONDS)
            assert taken[offset].attempts == item.attempts + 1
        base = next((offset for offset in range(end) if offset not in done), end)
        assert numbers(ledger) == (base, end, len(taken), sum(offset > base for offset in done))
