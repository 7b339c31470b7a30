"""A program that puts into a queue and takes from it until it is killed, and writes to its output what it has done.

`python -m crash.queue_worker ROOT LIFE FLUSH`. Lines: `put NAME` after each put that returned, `got NAME` before each
ack, `acked NAME` after it, and `flushed` after each flush of the positions.
"""

import sys
import threading

import rocketc

TAKERS = 2


def main() -> None:
    root, life, flush = sys.argv[1:]
    lock = threading.Lock()

    def say(*words: str) -> None:
        with lock:
            print(*words, flush=True)

    queue = rocketc.Queue(root, flush=flush, mapped_file_size_commit_log=1 << 20, position_interval=0.01)
    say("open")

    def put() -> None:
        n = 0
        while True:
            name = f"{life}.{n}"
            queue.put(name.encode())
            say("put", name)
            n += 1

    def take() -> None:
        while True:
            items = queue.get_many(3)
            for item in items:
                say("got", item.decode())
            queue.ack(*reversed(items))
            for item in items:
                say("acked", item.decode())

    for work in (put, *[take] * TAKERS):
        threading.Thread(target=work).start()


if __name__ == "__main__":
    main()
