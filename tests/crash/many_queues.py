"""A program that puts messages into random queues of many, and acknowledges them on its standard output, until killed.

`python -m crash.many_queues ROOT SEED LIFE QUEUES`. It writes `open` when the store is open, and for each message

    NUMBER QUEUE PHY_OFFSET QUEUE_OFFSET
"""

import random
import sys

import rocketc

SETTINGS = {"message_index_enable": False, "mapped_file_size_commit_log": 16 << 20, "max_open_consume_queues": 1000}


def place(queue: int) -> tuple[str, int]:
    """The topic and queue id of a queue: ten queues a topic."""
    return f"t{queue // 10:06d}", queue % 10


def body(life: int, number: int) -> bytes:
    return b"%d.%d" % (life, number)


def main(root: str, seed: int, life: int, queues: int) -> None:
    chance = random.Random(seed * 1000 + life)
    write = sys.stdout.write
    with rocketc.open(root, **SETTINGS) as store:
        write("open\n")
        sys.stdout.flush()
        number = 0
        # The first life fills all queues. Later ones prefer few, so that some queues are open and most are idle.
        order = list(range(queues)) if life == 0 else []
        while True:
            queue = order.pop() if order else chance.randrange(chance.choice([100, queues]))
            topic, queue_id = place(queue)
            put = store.put(topic, body(life, number), queue_id=queue_id)
            write(f"{number} {queue} {put.phy_offset} {put.queue_offset}\n")
            number += 1


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
