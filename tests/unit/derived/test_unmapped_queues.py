"""_consume_queue_units: units of files that cannot be mapped are read, too."""

import subprocess
import sys
import textwrap
from pathlib import Path

from support.oracle_stores import QUEUE_FILE, bodies, lay_down

LARGE = 20_000_000  # bytes of a consume queue file: more than the address space that is left


def enlarge(root: Path) -> Path:
    """Extend the only queue file, in which all units are, to LARGE bytes. The rest is a hole."""
    [path] = (root / "consumequeue" / "orders" / "1").iterdir()
    assert path.stat().st_size == QUEUE_FILE
    with path.open("r+b") as file:
        file.truncate(LARGE)
    return path


def in_child(root: Path, what: str) -> list[str]:
    """Run `what` with a QueueReader `read` without address space for another queue file. Return its output."""
    script = f"""
        import os, resource
        from rocketc import StoreConfig
        from rocketc.derived._consume_queues import ConsumeQueues
        from rocketc.files._mapped_file_queue import MappedFileQueue
        from rocketc.store._queue_reader import QueueReader
        from rocketc import StoreIOError

        log = MappedFileQueue([{str(root / "commitlog")!r}], 1 << 16, only_read=True)
        log.load()
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        limit = pages * resource.getpagesize() + {LARGE} // 2
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        queues = ConsumeQueues({str(root)!r}, {LARGE}, 50 * 46, read_only=True)
        queues.load()
        read = QueueReader(log, queues, StoreConfig())
        with open("/proc/self/maps") as file:
            assert "consumequeue" not in file.read()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script) + textwrap.dedent(what)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_units_of_a_file_that_cannot_be_mapped(tmp_path):
    lay_down(tmp_path, bodies(90))
    enlarge(tmp_path)
    found = in_child(
        tmp_path,
        """
        found = read.get("orders", 1, 3, 80)
        print([m.body for m in found] == [b"%d" % n for n in range(3, 83)], found.next_offset, found.max_offset)
        print(read.get_raw("orders", 1, 85).queue_offsets)
        """,
    )
    assert found == ["True 83 90", "[85, 86, 87, 88, 89]"]


def test_a_file_that_cannot_be_mapped_and_is_cut(tmp_path):
    lay_down(tmp_path, bodies(90))
    path = enlarge(tmp_path)
    found = in_child(
        tmp_path,
        f"""
        os.truncate({str(path)!r}, 20 * 50)
        try:
            read.get("orders", 1, 60)
        except StoreIOError as error:
            print(error)
        """,
    )
    assert len(found) == 1 and "became shorter" in found[0]
