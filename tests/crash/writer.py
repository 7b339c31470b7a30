"""A program that puts messages into a store and acknowledges them on its standard output, until it is killed.

`python -m crash.writer ROOT PLAN`, where PLAN is a Plan in JSON. The messages follow from the plan alone, so a reader
of the store knows which messages must be there. The lines are `opening`, `open`, and for each call that returned

    THREAD NUMBER COUNT QUEUE PHY_OFFSET QUEUE_OFFSET

where NUMBER is that of the first message, counted per thread.
"""

import dataclasses
import json
import logging
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

TOPICS = ["orders", "a", "%RETRY%" + "g" * 140]
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
LONGEST = 20_000


@dataclass(frozen=True)
class Plan:
    """One life of the writer.

    seed     of all lives of a store
    life     the number of this one
    threads  the number of threads that put
    fields   arguments of rocketc.open()
    flushed  acknowledge only messages that a flush() has made durable
    """

    seed: int
    life: int
    threads: int
    fields: dict[str, Any]
    flushed: bool = False

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def body(seed: int, life: int, thread: int, number: int) -> bytes:
    """The body of a message, which identifies it."""
    chance = random.Random(f"{seed}/{life}/{thread}/{number}")
    size = chance.choice([0, 20, chance.randrange(300), chance.randrange(300), chance.randrange(4000)])
    if chance.random() < 0.01:
        size = chance.randrange(LONGEST)
    return b"%d.%d.%d." % (life, thread, number) + chance.randbytes(size)


def calls(plan: Plan, thread: int) -> Iterator[tuple[str, int, int, int]]:
    """(method, QUEUE, NUMBER, COUNT) of the calls that a thread makes, without end."""
    chance = random.Random(f"{plan.seed}/{plan.life}/{thread}")
    number = 0
    while True:
        method = chance.choice(["put", "put", "put", "put_async", "put_many", "put_batch"])
        count = 1
        if method == "put_many":
            count = chance.choice([1, 10, 100, 400])
        elif method == "put_batch":
            count = chance.randrange(1, 6)
        elif method == "put_async":
            count = chance.randrange(1, 20)
        yield method, chance.randrange(len(QUEUES)), number, count
        number += count


def run(store: Any, plan: Plan, thread: int, tell: Callable[[str], None]) -> None:
    for method, queue, number, count in calls(plan, thread):
        topic, queue_id = QUEUES[queue]
        bodies = [body(plan.seed, plan.life, thread, number + i) for i in range(count)]
        where = {"queue_id": queue_id}
        if method == "put":
            results = [store.put(topic, bodies[0], tags="A", keys=f"k{number}", **where)]
        elif method == "put_async":
            futures = [store.put_async(topic, one, tags="A", **where) for one in bodies]
            results = [future.result() for future in futures]
        elif method == "put_many":
            results = [store.put_many(topic, bodies, tags="A", **where)]
        elif topic.startswith("%RETRY%"):  # does not accept batches
            results = [store.put(topic, one, **where) for one in bodies]
        else:
            results = [store.put_batch(topic, [(0, one, {"TAGS": "A"}) for one in bodies], **where)]
        if plan.flushed:
            store.flush()
        for result in results:
            assert result.status.name == "PUT_OK", result
            line = f"{thread} {number} {result.count} {queue} {result.phy_offset} {result.queue_offset}"
            tell(line)
            number += result.count


def main() -> None:
    from crash.small import SMALL

    import rocketc

    logging.getLogger("rocketc").addHandler(logging.NullHandler())  # standard error is for unexpected errors only
    plan = Plan(**json.loads(sys.argv[2]))

    def tell(line: str) -> None:
        os.write(1, line.encode() + b"\n")  # one write, so that lines of several threads do not mix

    tell("opening")
    store = rocketc.open(sys.argv[1], **{**SMALL, **plan.fields})
    tell("open")
    threads = [threading.Thread(target=run, args=(store, plan, i, tell)) for i in range(1, plan.threads)]
    for thread in threads:
        thread.start()
    run(store, plan, 0, tell)


if __name__ == "__main__":
    main()
