"""Readers of queues that another process fills and cleans: they read whole records, each once, in order.

`python -m stress.readers ROOT SEED kept|cleaned one|many` reads all queues of a store that another process writes, to
the last message of each, in one thread or in many.
"""

import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketc

TOPIC = "T"
QUEUES = 3
END = b"end"
HANGING = 240.0
WAITING = 100.0  # seconds without a message, after which a test counts as hanging
CONFIG: dict[str, Any] = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 100,
    "max_index_num": 1000,
}


def body(queue: int, number: int) -> bytes:
    """The body of a message, which identifies it: a reader detects a torn or wrong body."""
    chance = random.Random(1000 * number + queue)
    return b"%d.%d." % (queue, number) + bytes([number % 251]) * chance.randrange(900)


class Reader:
    """One queue, read once from its beginning.

    next      offset of the next message
    seen      the number of messages read
    passed    the number of messages deleted before they were read
    """

    def __init__(self, store: Any, queue: int, seed: int, *, cleaned: bool) -> None:
        self.store = store
        self.queue = queue
        self.chance = random.Random(seed)
        self.cleaned = cleaned
        self.next = self.seen = self.passed = 0

    def read(self) -> bool:
        """Read the next messages; return False after the last message."""
        got = self.store.get(TOPIC, self.queue, self.next, self.chance.choice([1, 7, 32]))
        status = got.status.name
        assert got.min_offset <= got.max_offset
        for message in got:
            if message.body == END:
                return False
            assert message.queue_offset == self.next or (self.cleaned and message.queue_offset > self.next)
            assert (message.topic, message.queue_id) == (TOPIC, self.queue)
            assert message.body == body(self.queue, message.queue_offset)
            self.passed += message.queue_offset - self.next
            self.seen += 1
            self.next = message.queue_offset + 1
        if status == "FOUND":
            assert got.next_offset == self.next
        elif status in ("OFFSET_OVERFLOW_ONE", "NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE"):
            assert got.next_offset == (self.next if status == "OFFSET_OVERFLOW_ONE" else 0)
            assert status == "OFFSET_OVERFLOW_ONE" or self.next == 0
            time.sleep(0.001)
        else:
            assert self.cleaned, status
            assert status in ("OFFSET_TOO_SMALL", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"), status
            assert got.next_offset > self.next
            self.passed += got.next_offset - self.next
            self.next = got.next_offset
        return True

    def look_back(self) -> None:
        """Get a message that was read before by key, by time and by offset, unless it was deleted."""
        if not self.next:
            return
        number = self.chance.randrange(self.next)
        until = time.monotonic() + WAITING
        while not (found := list(self.store.query(TOPIC, f"{self.queue}-{number}"))):
            if self.store.min_offset(TOPIC, self.queue) > number:
                break
            assert time.monotonic() < until, f"{self.queue}-{number} is in the queue, but not in the index"
            time.sleep(0.001)
        if found:
            (message,) = found
            assert (message.queue_id, message.queue_offset) == (self.queue, number)
            assert message.body == body(self.queue, number)
            again = self.store.message(message.phy_offset)
            assert again is None or again.body == message.body
            when = self.store.store_time(TOPIC, self.queue, number)
            assert when in (-1, message.store_timestamp)
            at = self.store.offset_by_time(TOPIC, self.queue, message.store_timestamp)
            assert at <= number or self.cleaned

    def run(self) -> None:
        until = time.monotonic() + WAITING
        before = 0
        while self.read():
            if self.next > before:
                before, until = self.next, time.monotonic() + WAITING
            assert time.monotonic() < until, f"queue {self.queue}: nothing after {self.next}"
            if self.chance.random() < 0.2:
                self.look_back()


def write(
    store: Any, queue: int, count: int, together: threading.Barrier, then: Callable[[int], None] = lambda number: None
) -> None:
    """Fill a queue; END, the last message, is put when the other queues are full, so that it is not cleaned."""
    for number in range(count):
        result = store.put(TOPIC, body(queue, number), queue_id=queue, keys=f"{queue}-{number}", tags=f"t{number % 3}")
        assert (result.status.name, result.queue_offset) == ("PUT_OK", number)
        then(number)
    together.wait(HANGING)
    store.put(TOPIC, END, queue_id=queue)


def hold(store: Any, queue: int, done: threading.Event) -> None:
    """Hold views of the first messages of a queue for a while, without a copy: they must not change."""
    while not done.is_set():
        got = store.get(TOPIC, queue, max(store.min_offset(TOPIC, queue), 0), 5, views=True)
        for _ in range(3):
            for message in got:
                assert isinstance(message.body, memoryview)
                assert message.body in (body(queue, message.queue_offset), END)
            time.sleep(0.002)


def clean(store: Any, kept: int, done: threading.Event) -> None:
    """Repeatedly delete the log, except the last `kept` bytes."""
    while not done.is_set():
        store.delete_before(store.max_phy_offset - kept)
        time.sleep(0.002)


class Crowd:
    """Threads that must end without an error."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, target: Callable[..., object], *args: object) -> None:
        def run() -> None:
            try:
                target(*args)
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self, count: int | None = None) -> None:
        """Wait for the first `count` threads, or for all."""
        until = time.monotonic() + HANGING
        for thread in self.threads[:count]:
            while thread.is_alive() and time.monotonic() < until and not self.errors:
                thread.join(0.1)
        for error in self.errors:
            raise error
        assert not any(thread.is_alive() for thread in self.threads[:count]), "threads hang"


def main(root: Path, seed: int, cleaned: bool, many: bool) -> None:
    with rocketc.open(root, read_only=True, **CONFIG) as store:
        readers = [Reader(store, queue, seed, cleaned=cleaned) for queue in range(QUEUES)]
        if many:
            others = [Reader(store, queue, seed + 1, cleaned=cleaned) for queue in range(QUEUES)]
            crowd = Crowd()
            for reader in [*readers, *others]:
                crowd(reader.run)
            crowd.join()
        open_ones = [] if many else list(readers)
        while open_ones:
            open_ones = [reader for reader in open_ones if reader.read()]
            for reader in open_ones:
                if reader.chance.random() < 0.2:
                    reader.look_back()
    print(*[f"{reader.seen}+{reader.passed}" for reader in readers])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "cleaned", sys.argv[4] == "many")
