"""A master and a slave, each a broker of RocketMQ or ours; one load for both; and what must be equal afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interop import scenarios
from interop.asking import Asking
from interop.our_broker import OurBroker, wait_for
from support import derived, oracle
from support.command import start
from support.ports import free_port

from rocketc.client import NewMessage, TransactionProducer
from rocketc.errors import RocketcError
from rocketc.tables.fastjson import parse

OURS = "ours"
FILE_SIZE = 1 << 20
TOPIC, GROUP = "orders", "audit"
TOPICS, GROUPS, OFFSETS, DELAYS, RUNTIME = 21, 201, 43, 45, 28  # requests for tables
SYNC_SECONDS = {
    OURS: 20,
    "4.9.7": 20,
    "5.3.3": 75,
}  # a slave of 5.3.3 asks for the tables each minute, others each 10 s
HEADER_BYTES = 40  # of an index file; RocketMQ writes it only when it flushes the file

# Settings under RocketMQ's names; a release without one ignores it.
BROKER = {
    "brokerId": 0, "brokerName": "broker-a", "brokerClusterName": "DefaultCluster", "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1", "slaveReadEnable": "true", "transactionCheckInterval": 1000, "transactionTimeOut": 4000,
    "transactionOpBatchInterval": 100,
}  # fmt: skip
STORE = {
    "mappedFileSizeCommitLog": FILE_SIZE, "mappedFileSizeConsumeQueue": 6000, "maxHashSlotNum": 500,
    "maxIndexNum": 2000, "messageDelayLevel": scenarios.DELAY_LEVELS, "enabledAppendPropCRC": "true",
    "haSendHeartbeatInterval": 500,
}  # fmt: skip


class NameServer:
    """Our name server in a process of its own."""

    def __init__(self) -> None:
        self._process = start("namesrv", "--port", 0)
        self.address = self._process.stdout.readline().decode().split()[-1]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Member:
    """A broker of a pair. Its process may end and begin again, on the same store and ports.

    begin      the fixture
    kind       a release of RocketMQ, or OURS
    folder     of the broker, kept
    names      address of the name server
    master     of a slave; None: this broker is the master
    elsewhere  of a master: slaves connect to this address, on the port where it listens on 127.0.0.1. There is a proxy
    settings   under RocketMQ's names, over BROKER and STORE

    A slave learns from the name server where its master is: one of 5.3.3 never connects to its haMasterAddress.

    store      root folder of the store
    """

    def __init__(
        self,
        begin: Callable[..., Any],
        kind: str,
        folder: Path,
        names: str,
        master: Member | None = None,
        elsewhere: str | None = None,
        **settings: Any,
    ) -> None:
        self._begin, self.kind, self.folder, self.name_server = begin, kind, folder, names
        self._port, self.ha_port = free_port(2), free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._listens = "::" if elsewhere is None else "127.0.0.1"
        self.other_host = "[::1]" if elsewhere is None else "127.0.0.1"  # of clients
        self.store = folder / "store"
        self._broker, self._store = dict(BROKER), {**STORE, "haListenPort": self.ha_port}
        if master is not None:
            self._broker["brokerId"], self._store["brokerRole"] = 1, "SLAVE"
        if elsewhere is not None:
            self._broker["brokerIP2"] = elsewhere
        for name, value in settings.items():
            (self._broker if name in BROKER else self._store)[name] = value
        folder.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        """Begin the process."""
        if self.kind == OURS:
            conf = self.folder / "broker.conf"
            pairs = {**self._broker, **self._store, "bindAddress": self._listens}
            conf.write_text("".join(f"{name}={value}\n" for name, value in pairs.items()))
            options = ("-c", conf, "--name-server", self.name_server, "--port", self._port)
            self._process = self._begin(OurBroker, self.store, *options)
        else:
            named = {f"broker.{name}": value for name, value in self._broker.items()}
            named |= {f"store.{name}": value for name, value in self._store.items()}
            ports = {"namePort": "none", "brokerPort": self._port, "bindAddress": self._listens}
            self._process = self._begin(
                scenarios.JavaCluster, self.kind, self.folder, nameServer=self.name_server, **ports, **named
            )

    def kill(self) -> None:
        """SIGKILL."""
        self._process.close()

    def end(self) -> str:
        """End in order. Return what our broker has logged."""
        if self.kind != OURS:
            self._process.end()
            return ""
        process = self._process._process
        process.send_signal(signal.SIGTERM)
        errors: str = process.communicate(timeout=30)[1].decode()
        assert process.returncode == 0, errors
        return errors

    def signal(self, number: int) -> None:
        os.kill(self._process._process.pid, number)

    def ask(self, code: int | str, body: object = None, *, host: str = "127.0.0.1", **fields: object) -> Any:
        """The fields and the body of an answer."""
        asking = Asking(f"{host}:{self._port}")
        try:
            found, values, raw = asking.ask(code, body, **fields)
        finally:
            asking.close()
        assert found == 0, (code, found)
        return values, raw

    def table(self, code: int) -> Any:
        return parse(self.ask(code)[1])

    def log_end(self) -> int:
        return int(self.table(RUNTIME)["table"]["commitLogMaxOffset"])

    def send(self, body: bytes, host: str = "127.0.0.1") -> None:
        """Send a message by a plain request, from an address of this family."""
        properties = f"UNIQ_KEY\1U{body[:20].decode()}\2KEYS\1six\2TAGS\1t\2"
        fields = {"a": "plain", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": properties}
        self.ask("SEND_MESSAGE_V2", body, host=host, **fields, m=False)

    def commit(self, offset: int) -> None:
        """A consumer group of RocketMQ is there, and commits an offset of queue 0."""
        consumer = {
            "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": TOPIC, "subString": "*"}],
        }  # fmt: skip
        self.ask("HEART_BEAT", {"clientID": "c1", "producerDataSet": [], "consumerDataSet": [consumer]})
        self.ask("UPDATE_CONSUMER_OFFSET", consumerGroup=GROUP, topic=TOPIC, queueId=0, commitOffset=offset)


class Load:
    """Sends in a thread, until the end of the `with` block: single messages and batches, over IPv4 and IPv6, delayed
    ones and transactions. IPv6 only if the master listens there.

    pause    seconds after each send
    is_hard  brokers end meanwhile: sends may fail

    bodies   that consumers must get
    unknown  bodies whose send or commit failed: consumers may get them
    failed   how many sends have failed
    """

    def __init__(self, master: Member, *, seed: int, pause: float = 0.0, is_hard: bool = False) -> None:
        self._master, self._chance, self._pause, self._is_hard = master, random.Random(seed), pause, is_hard
        options = {"check": self._check, "send_msg_timeout": 2000 if is_hard else 10_000}
        self._producer = TransactionProducer("shop", master.name_server, **options)
        self._is_over, self._thread = threading.Event(), threading.Thread(target=self._run)
        self._seed = seed
        self.bodies: set[str] = set()
        self.unknown: set[str] = set()
        self.sent = self.failed = 0
        self._error: BaseException | None = None

    @staticmethod
    def _check(message: Any) -> str:
        return "COMMIT_MESSAGE" if message.body.startswith(b"commit") else "ROLLBACK_MESSAGE"

    def _body(self, kind: str, part: int = 0) -> str:
        size = self._chance.randrange(100) ** 2 // 4
        return f"{kind} {self._seed}.{self.sent}.{part} {self._chance.randbytes(size).hex()}"

    def _send(self) -> None:
        """Send one message or batch."""
        kinds = ("one", "one", "batch", "late", "commit", "rollback", "one", "six")
        kind, producer = kinds[self.sent % len(kinds)], self._producer
        bodies = [self._body(kind, part) for part in range(1 + self._chance.randrange(20) if kind == "batch" else 1)]
        body, keys = bodies[0].encode(), f"k{self.sent} all"
        is_known = kind != "rollback"
        try:
            if kind == "batch":
                named = enumerate(bodies)
                producer.send_many(TOPIC, [NewMessage(one.encode(), tags="t", keys=f"k{n} all") for n, one in named])
            elif kind == "six":
                self._master.send(body, self._master.other_host)
            elif kind in ("commit", "rollback"):
                with producer.transaction(TOPIC, body, tags="t", keys=keys) as transaction:
                    transaction.commit() if kind == "commit" else transaction.rollback()
                is_known = is_known and transaction.end_error is None
                if kind == "commit" and not is_known:
                    self.unknown.update(bodies)
            else:
                producer.send(TOPIC, body, tags="t", keys=keys, **({"delay_level": 1} if kind == "late" else {}))
        except (RocketcError, OSError, AssertionError, struct.error):  # the last three of a plain request
            if not self._is_hard:
                raise
            self.failed += 1
            self.unknown.update(bodies)
            time.sleep(0.05)
        else:
            if is_known:
                self.bodies.update(bodies)
        self.sent += 1

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._send()
                time.sleep(self._pause)
        except BaseException as error:
            self._error = error

    def until(self, is_done: Callable[[], object], seconds: float = 60.0) -> None:
        """Send until this is true."""
        end = time.monotonic() + seconds
        while not is_done():
            assert self._error is None, self._error
            assert time.monotonic() < end
            time.sleep(0.05)

    def until_bytes(self, size: int) -> None:
        """Send until the master's log has this size."""
        self.until(lambda: self._master.log_end() >= size)

    def more(self, count: int) -> None:
        """Send this many messages and batches more; failed ones do not count."""
        until = self.sent - self.failed + count
        self.until(lambda: self.sent - self.failed >= until)

    def __enter__(self) -> Load:
        self._producer.start()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.close()
        if self._error is not None and error[0] is None:
            raise self._error


def is_following(master: Member, slave: Member) -> bool:
    """Whether the slave has all. A slave of 5.3.3 may answer with an error while it makes its first file."""
    with contextlib.suppress(AssertionError):
        return master.log_end() == slave.log_end() > 0
    return False


def settle(master: Member, slave: Member, quiet: float = 3.0) -> None:
    """Wait until the slave has all, and the master has written nothing more for `quiet` seconds: delayed messages are
    delivered, and transactions are ended.
    """
    deadline, since, before = time.monotonic() + 60, time.monotonic(), (-1, -1)
    while time.monotonic() < since + quiet or before[0] != before[1]:
        assert time.monotonic() < deadline, f"the ends of the logs are {before}"
        time.sleep(0.2)
        found = master.log_end(), slave.log_end()
        if found != before:
            since, before = time.monotonic(), found


def log_of(store: Path) -> dict[str, bytes]:
    """The files of a log that have content: the next one may be there already."""
    return {name: data for name, data in derived.files_of(store, "commitlog").items() if any(data)}


def queues_of(store: Path) -> dict[str, bytes]:
    """The files of the consume queues that have units, without the zeros after the last unit."""
    found = {name: data.rstrip(b"\0") for name, data in derived.files_of(store, "consumequeue").items()}
    return {name: data for name, data in found.items() if data}


def indexes_of(store: Path) -> list[bytes]:
    """The slots and the entries of each index file that has any, in their order."""
    found = [data[HEADER_BYTES:] for _, data in sorted(derived.files_of(store, "index").items())]
    return [data for data in found if any(data)]


def index_units(store: Path) -> set[tuple[int, int]]:
    """Hash and physical offset of each entry of the index."""
    files = [data for _, data in sorted(derived.files_of(store, "index").items())]
    found = [oracle.index_file(data, STORE["maxHashSlotNum"])[2] for data in files]
    return {(entry.key_hash, entry.phy_offset) for entries in found for entry in entries if entry != (0, 0, 0, 0)}


def differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """The names whose contents differ, or that one side lacks."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def assert_equal_files(master: Path, slave: Path, *, was_killed: bool = False) -> None:
    """Assert that logs and queues are equal byte for byte, and the index unit by unit.

    was_killed  then keys may be in an index twice, or in other files: only hashes and offsets are compared
    """
    assert differing(log_of(slave), log_of(master)) == []
    assert wait_for(lambda: differing(queues_of(slave), queues_of(master)) == [], 5), (
        differing(queues_of(slave), queues_of(master))
    )  # fmt: skip
    if was_killed:
        assert wait_for(lambda: index_units(slave) == index_units(master) != set(), 5)
    else:
        assert wait_for(lambda: indexes_of(slave) == indexes_of(master) != [], 5)


def are_alike(slave: Mapping[str, Any], master: Mapping[str, Any]) -> bool:
    """Whether two tables have equal entries. A release lacks fields of other releases."""
    if slave.keys() != master.keys():
        return False
    pairs = [(slave[name], master[name]) for name in master]
    return all(one[field] == other[field] for one, other in pairs for field in one.keys() & other.keys())


def other_tables(master: Member, slave: Member) -> list[str]:
    """The names of the tables of the slave that are not those of the master."""
    tables = [
        (one.table(TOPICS)["topicConfigTable"], one.table(GROUPS)["subscriptionGroupTable"]) for one in (slave, master)
    ]
    kept = slave.store / "config/delayOffset.json"  # a slave of RocketMQ 4 uses it when it starts
    delays = parse(kept.read_bytes())["offsetTable"] if kept.exists() else {}
    offsets = [one.table(OFFSETS)["offsetTable"] for one in (slave, master)]
    same = {
        "topics": are_alike(tables[0][0], tables[1][0]),
        "groups": are_alike(tables[0][1], tables[1][1]),
        "offsets": offsets[0] == offsets[1] and offsets[1].get(f"{TOPIC}@{GROUP}", {}).get(0, 0) > 0,
        "delays": delays == master.table(DELAYS)["offsetTable"] != {},
    }
    return [name for name, is_same in same.items() if not is_same]


def assert_equal_tables(master: Member, slave: Member) -> None:
    """Assert that topics, groups, offsets and the progress of delayed messages are equal, after the slave's period."""
    assert wait_for(lambda: other_tables(master, slave) == [], SYNC_SECONDS[slave.kind]), other_tables(master, slave)
