"""A process that puts to a store as fast as it can until it is stopped, for readers beside it."""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import rocketc

TOPICS, QUEUES = 4, 5  # 20 queues
SIZES = {
    "keeps": {"mapped_file_size_commit_log": 16 << 20, "mapped_file_size_consume_queue": 600_000},
    # Files are deleted all the time: between their listing and their opening, too.
    "deletes": {
        "mapped_file_size_commit_log": 256 << 10,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 5000,
        "max_index_num": 2000,
        "delete_commit_log_files_interval": 0,
        "delete_consume_queue_files_interval": 0,
    },
}
KEPT_BYTES = 400 << 10  # of the log, by the writer that deletes
BATCH = 1000


def write(root, mode):
    """Put messages with keys to 20 queues until stdin ends."""
    stopped = threading.Thread(target=sys.stdin.read, daemon=True)
    stopped.start()
    number = 0
    with rocketc.open(root, **SIZES[mode]) as store:
        while stopped.is_alive():
            for _ in range(BATCH):
                topic, queue_id = f"T{number % TOPICS}", number // TOPICS % QUEUES
                last = store.put(topic, b"x" * 100, queue_id=queue_id, keys=f"k{number}")
                number += 1
            if mode == "deletes":
                store.delete_before(max(0, last.phy_offset - KEPT_BYTES))
            if number == BATCH:
                store.wait_dispatched(60)
                print("ready", flush=True)


@contextlib.contextmanager
def live_writer(root, mode):
    """While entered, a process writes to the store at root; mode: one of SIZES. It must end without an error."""
    code = f"from support.live_writer import write; write({str(root)!r}, {mode!r})"
    env = {"PYTHONPATH": ":".join([str(Path(__file__).parents[1]), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        yield process
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 0
