"""bench/load.c as a program: the load generator, and the frames that it sends."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import native

from rocketc._layout import FLAG_PREPARED
from rocketc.remoting.command import Command
from rocketc.remoting.requests import REQUESTS

SOURCE = native.HERE / "load.c"
PROGRAM = native.ROOT / "build" / "bench-native" / "load"
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wconversion"]
SEND, PULL, MAX_OFFSET, HEARTBEAT, SEND_BACK, END_TRANSACTION = 310, 11, 30, 34, 36, 37
ONEWAY = 2
KINDS = 1024  # different frames, so that keys and queues vary
QUEUE, OFFSET = "QQQQ", "OOOOOOOOOO"  # places in the frames of `load held`
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4  # sysFlag of a pull


def build() -> Path:
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < SOURCE.stat().st_mtime:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*native.compiler(), *FLAGS, "-o", PROGRAM, SOURCE], check=True)
    return PROGRAM


def run(*words: object) -> dict:
    """Run one command of load.c and return its figures."""
    done = subprocess.run([build(), *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench: load {' '.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


# ---------------------------------------------------------------- frames
def command(code: int, fields: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
    return Command(code, fields, body, opaque=100_000, flag=flag, language="JAVA").encode()


def send(topic: str, queue: str, number: int, body: bytes, more: str = "", flags: int = 0) -> bytes:
    """Return the frame of a send, with the fields and properties that the Java client sends.

    more   properties
    flags  sysFlag
    """
    key = f"7F000001AB12CD34EF56{number:012X}"
    properties = f"KEYS\1order-{number:07d}\2UNIQ_KEY\1{key}\2WAIT\1true\2{more}TAGS\1TagA\2"
    fields = {
        **{
            "a": "bench-producer",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": queue,
            "f": str(flags),
            "g": "1764000000000",
        },
        **{"h": "0", "i": properties, "j": "0", "k": "false", "m": "false", "n": "broker-a"},
    }
    return command(SEND, fields, body)


def sends(topic: str, queues: int, body: int) -> bytes:
    """Return KINDS frames of one size, which send to the queues in turn."""
    return b"".join(send(topic, f"{n % queues:04d}", n, b"x" * body) for n in range(KINDS))


def keyless_send(topic: str, queue: str, body: bytes) -> bytes:
    """Return the frame of a send without UNIQ_KEY, which the broker adds on its slow path."""
    fields = {"a": "bench-producer", "b": topic, "c": "TBW102", "d": "4", "e": queue, "f": "0", "g": "1764000000000"}
    return command(SEND, {**fields, "h": "0", "i": "TAGS\1TagA\2", "j": "0", "k": "false", "m": "false"}, body)


def max_offset(topic: str, queue: str) -> bytes:
    """Return the frame with which tools ask where a queue ends."""
    return command(MAX_OFFSET, {"topic": topic, "queueId": queue})


def half(topic: str, queue: str, number: int, body: bytes) -> bytes:
    """Return the frame of a half message, as the Java client sends it."""
    return send(topic, queue, number, body, "TRAN_MSG\1true\2PGROUP\1bench-producer\2", FLAG_PREPARED)


def end(offset: int, place: int) -> bytes:
    """Return the frame that commits a half message, as the Java client sends it.

    offset, place  of the half message in its queue and in the log
    """
    fields = {
        **{"topic": "BenchTopic", "producerGroup": "bench-producer", "tranStateTableOffset": str(offset)},
        **{"commitLogOffset": str(place), "commitOrRollback": "8", "fromTransactionCheck": "false"},
        **{"msgId": f"7F000001AB12CD34EF56{offset:012X}", "bname": "broker-a"},
    }
    return command(END_TRANSACTION, fields, flag=ONEWAY)


def pull(
    topic: str, queue: str, offset: str, flag: int = SUBSCRIPTION, commit: str = "0", wait: int = 60_000,
    most: int = 32, subscription: str = "*", expressionType: str = "TAG",
) -> bytes:  # fmt: skip
    fields = {
        **{"consumerGroup": "bench-consumer", "topic": topic, "queueId": queue, "queueOffset": offset},
        **{"maxMsgNums": str(most), "sysFlag": str(flag), "commitOffset": commit, "suspendTimeoutMillis": str(wait)},
        **{"subscription": subscription, "subVersion": "0", "expressionType": expressionType},
    }
    if set(fields) - {field.name for field in REQUESTS[PULL].fields}:
        raise AssertionError(fields)
    return command(PULL, fields)


def pulls(topic: str, messages: int, flag: int = SUBSCRIPTION, each: int = 32) -> bytes:
    """Return frames that pull a queue of this many messages in steps, with the offset before as the commit."""
    return b"".join(
        pull(topic, "0000", f"{at:010d}", flag, f"{at:010d}", most=each)
        for at in range(0, messages - messages % each, each)
    )


def held(topic: str, body: int) -> bytes:
    """Return the two frames of `load held`."""
    waiting = SUBSCRIPTION | SUSPEND
    return pull(topic, QUEUE, OFFSET, waiting) + send(topic, QUEUE, 0, b"x" * body)


def heartbeat(number: int) -> bytes:
    """Return the heartbeat of a client with one producer, as the Java client sends it."""
    body = {
        "clientID": f"127.0.0.1@{number:05d}",
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": "bench-producer"}],
    }
    return command(HEARTBEAT, {}, json.dumps(body, separators=(",", ":")).encode())


def send_back(offset: int) -> bytes:
    """Return the frame with which the Java client sends a message back."""
    fields = {
        **{"group": "bench-consumer", "offset": str(offset), "delayLevel": "0", "originTopic": "PullTopic"},
        **{"originMsgId": f"7F000001AB12CD34EF56{offset:012X}", "unitMode": "false", "maxReconsumeTimes": "16"},
    }
    return command(SEND_BACK, fields)


def sent(opaque: str = "100000") -> bytes:
    """Return the frame of the answer to a send. opaque: ten characters for `load stub`."""
    fields = {
        **{"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "0"},
        **{"transactionId": "7F000001AB12CD34EF56000000000000", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"},
    }
    frame = Command(0, fields, opaque=1_111_111_111, flag=1).encode()
    return frame.replace(b"1111111111", opaque.rjust(10).encode())


def kept(folder: Path, name: str, make: Callable[[], bytes]) -> Path:
    """Return a file with frames, which is made once."""
    path = folder / f"{name}.frames"
    if not path.exists():
        path.write_bytes(make())
    return path
