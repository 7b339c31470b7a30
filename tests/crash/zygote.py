"""A process that forks a child for each job, so that a tracer attached to the child sees only the job's system calls.

`python -m crash.zygote FD`: jobs come through the socket FD, a JSON object each:

root    the folder of the store
job     a name of JOBS
fields  the arguments of rocketc.open()
point   only with points.c: [name, n], where the process ends; null: report all points

The modules of the variable ZYGOTE_IMPORTS are imported first. The child sends its process id and begins when b"go" has
come. When it has ended, its wait status is sent back. A job writes what it acknowledges to standard output.
"""

import ctypes
import importlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from crash.small import SMALL

import rocketc
from rocketc.cli.main import main as main_of_commands
from rocketc.tables.table_file import write_table

COUNT = 9  # messages of the job `write`: three files of 4 KiB


def body(number: int) -> bytes:
    return b"%d." % number + bytes([65 + number]) * (900 + 10 * number)


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def write(root: str, fields: dict[str, Any]) -> None:
    store = rocketc.open(root, **{**SMALL, **fields})
    for number in range(COUNT):
        result = store.put("orders", body(number), tags="A", keys=f"k{number % 3} l{number}")
        if store.config.transient_store_pool_enable:
            store.flush()
        tell(f"{number} {result.phy_offset} {result.queue_offset}")
    store.flush()
    store.close()
    tell("closed")


def delete(root: str, fields: dict[str, Any]) -> None:
    store = rocketc.open(root, **{**SMALL, **fields})
    store.delete_topics("orders")
    tell("deleted")
    for number in range(3):
        result = store.put("orders", b"new %d" % number)
        tell(f"{number} {result.queue_offset}")
    store.close()
    tell("closed")


def recover(root: str, fields: dict[str, Any]) -> None:
    rocketc.open(root, **{**SMALL, **fields}).close()
    tell("closed")


def table(root: str, fields: dict[str, Any]) -> None:
    write_table(f"{root}/topics.json", fields)
    tell("written")


def clean(root: str, fields: dict[str, Any]) -> None:
    try:
        main_of_commands(["clean", root, *fields["options"]])
    except SystemExit as end:
        assert not end.code
    tell("cleaned")


def archive(root: str, fields: dict[str, Any]) -> None:
    topics = [word for topic in fields["topics"] for word in ("-t", topic)]
    try:
        main_of_commands(["export", fields["url"], *topics, "-o", root, "--append", "--commit-size", fields["size"]])
    except SystemExit as end:
        assert not end.code
    tell("archived")


def transact(root: str, fields: dict[str, Any]) -> None:
    importlib.import_module("crash.transacting").transact(root, fields, tell)  # ZYGOTE_IMPORTS has imported it


def produce(root: str, fields: dict[str, Any]) -> None:
    importlib.import_module("crash.producing").produce(fields["name_server"], fields["name"], tell)


def tell_of_points() -> None:
    text = ctypes.create_string_buffer(10_000)
    ctypes.CDLL(None).points_met(text, len(text))
    for line in text.value.decode().splitlines():
        tell(f"point\t{line}")


JOBS: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "write": write,
    "delete": delete,
    "recover": recover,
    "table": table,
    "clean": clean,
    "archive": archive,
    "transact": transact,
    "produce": produce,
}


def main() -> None:
    jobs = socket.socket(fileno=int(sys.argv[1]))
    for name in os.environ.get("ZYGOTE_IMPORTS", "").split():
        importlib.import_module(name)
    jobs.send(b"ready")
    while message := jobs.recv(65536):
        job = json.loads(message)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: any process may
                jobs.send(b"%d" % os.getpid())
                if jobs.recv(100) != b"go":
                    return
                point = job.get("point")
                if point:
                    ctypes.CDLL(None).points_arm(point[0].encode(), ctypes.c_long(point[1]))
                JOBS[job["job"]](job["root"], job["fields"])
                if "point" in job and not point:
                    tell_of_points()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        jobs.send(b"%d" % os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
