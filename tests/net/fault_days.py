"""Brokers and clients with faults, in real processes and on real connections; a seed decides what goes wrong, and when.

`python -m net.fault_days FOLDER SEED... --kind KIND` runs seeds and prints a line of JSON for each. `--mutant NAME`
breaks something first, see net.fault_mutants. A seed plans the same faults each time; what they meet depends on the
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import multiprocessing
import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from net import fault_member
from net.fault_member import SEND_MS, Setup
from net.fault_mutants import MUTANTS
from net.proxy import Proxy
from simulation.client_history import ClientHistory
from support.certificates import Certificates
from support.disks import small_disk
from support.ports import free_port

import rocketc

ACCOUNT = "operators", "a long secret"
DISK_BYTES = 48 << 20
LONG_SECONDS = 5.0  # from here on brokers end, too, and a group consumes in order: both need more time to drain
DRAIN_SECONDS = 90.0  # after the last fault, within which each group has got all
END_SECONDS = 40.0  # within which a client ends
LATE_SECONDS = 6.0  # beyond the time-out of a send: the machine is busy
STORE: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000, "max_hash_slot_num": 1000,
    "max_index_num": 4000, "clean_file_forcibly_enable": False, "clean_resource_interval": 500,
    "message_delay_level": "1s 1s 1s 1s 1s", "flush_consumer_offset_interval": 500,
}  # fmt: skip


class Kind(NamedTuple):
    """A combination.

    brokers  how many
    secured  TLS, and accounts
    inside   the brokers run in this process. Otherwise each has a process, which may be killed
    """

    brokers: int
    secured: bool
    inside: bool


KINDS = {"embedded": Kind(1, False, True), "secured": Kind(1, True, False), "two": Kind(2, False, False)}


class Client:
    """A process of a client, and the lines that it wrote."""

    def __init__(self, context: Any, setup: Setup, mutant: str, heard: Callable[[list[Any]], None]) -> None:
        self.setup, self._heard, self._text = setup, heard, b""
        self._pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=fault_member.main, args=(setup, theirs, mutant), daemon=True)
        self.process.start()
        theirs.close()
        self.is_up, self.has_ended = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._read)

    def _read(self) -> None:
        data = os.read(self._pipe.fileno(), 1 << 20)
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.is_up.set()
            self.has_ended.set()
            return
        self.is_up.set()
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            self._heard(json.loads(line))

    async def kill(self) -> None:
        self.process.kill()
        await self.has_ended.wait()
        self.process.join()

    async def end(self) -> str | None:
        """End it in order. Return what was wrong."""
        await self.is_up.wait()
        self.process.terminate()
        try:
            await asyncio.wait_for(self.has_ended.wait(), END_SECONDS)
        except asyncio.TimeoutError:
            await self.kill()
            return f"{self.setup.name} does not end within {END_SECONDS:.0f} s"
        self.process.join()
        return f"{self.setup.name} ended with {self.process.exitcode}" if self.process.exitcode else None


class Day:
    """Everything of one seed."""

    def __init__(self, root: Path, seed: int, kind: Kind, mutant: str, seconds: float) -> None:
        self._root, self._seed, self._kind, self._mutant, self._seconds = root, seed, kind, mutant, seconds
        self.chance = random.Random(seed)
        self.history = ClientHistory(slack=1.0)
        self._events: list[list[Any]] = []
        self._acknowledged: set[str] = set()
        self._consumed: dict[str, set[str]] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["net.fault_member"])
        self._numbers = itertools.count()
        self._clients: list[Client] = []
        self._brokers: list[rocketc.Broker] = []
        self._names: dict[str, str] = {}  # of brokers, by address
        self._proxies: list[Proxy] = []
        self._ca: str | None = None
        self._disk: Path | None = None

    # the servers

    def _settings(self, number: int) -> dict[str, Any]:
        settings = {**STORE, "broker_name": f"broker-{'ab'[number]}", "process": not self._kind.inside}
        settings |= {"port": free_port(), "flush": self.chance.choice(["async", "sync"])}
        if number == 0:
            settings["namesrv_port"] = free_port()
        else:
            settings["namesrv_addr"] = self._brokers[0].name_server
        if self._kind.secured:
            settings |= self._security()
        return settings

    def _security(self) -> dict[str, Any]:
        certificates = Certificates(self._root / "certificates")
        certificates.sign("local", host="IP:127.0.0.1,DNS:localhost")
        self._ca = str(certificates.cert("ca"))
        (self._root / "conf").mkdir()
        account = f"{{accessKey: {ACCOUNT[0]}, secretKey: {ACCOUNT[1]}, admin: true}}"
        (self._root / "conf/plain_acl.yml").write_text(f"accounts: [{account}]")
        text = certificates.properties("local")
        (self._root / "tls.properties").write_text(text)
        return {
            "acl_enable": True, "rocketmq_home": str(self._root), "tls_server_mode": "enforcing",
            "tls_config_file": str(self._root / "tls.properties"),
        }  # fmt: skip

    async def _start_brokers(self, stack: contextlib.AsyncExitStack) -> None:
        for number in range(self._kind.brokers):
            if self._kind.secured:
                (self._root / "certificates").mkdir()
            broker = rocketc.Broker(self._disk_or(self._root) / f"store-{number}", **self._settings(number))
            await asyncio.to_thread(broker.start)
            self._brokers.append(broker)
            self._names[broker.address] = f"broker-{'ab'[number]}"
            stack.callback(self._close, broker)
        addresses = [self._brokers[0].name_server, *(one.address for one in self._brokers)]
        for address in addresses:
            host, _, port = address.partition(":")
            self._proxies.append(await stack.enter_async_context(Proxy((host, int(port)))))

    def _disk_or(self, folder: Path) -> Path:
        return folder if self._disk is None else self._disk

    def _close(self, broker: rocketc.Broker) -> None:
        try:
            broker.close()
        except Exception as error:
            self.history.fault(f"the end of a broker: {error!r}")

    def _check_closed(self) -> None:
        """A broker of this process has left no file open."""
        links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
        found = [os.readlink(link) for link in links if os.path.islink(link)]
        found += [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
        for path in sorted({one for one in found if "/store-" in one and one.startswith(str(self._root))}):
            self.history.fault(f"left open: {path}")

    # the clients

    def _start(self, role: str, group: str = "") -> Client:
        proxies = self._proxies
        ports = {proxy.target[1]: proxy.address[1] for proxy in proxies}
        setup = Setup(
            role, f"{group or role}-{next(self._numbers)}", self.chance.randrange(1 << 30),
            "%s:%d" % proxies[0].address, ports, self._names,
            self._ca, ACCOUNT if self._kind.secured else None, group, group == "ordered",
        )  # fmt: skip
        client = Client(self._context, setup, self._mutant, self._heard)
        self._clients.append(client)
        return client

    def _heard(self, event: list[Any]) -> None:
        self._events.append(event)
        if event[1] == "stored":
            self._acknowledged.add(event[2])
        elif event[1] == "ends" and not event[6]:
            self._consumed[event[2]].add(event[5])

    async def _end(self, client: Client) -> None:
        self._clients.remove(client)
        if wrong := await client.end():
            self.history.fault(wrong)

    # what goes wrong

    def _faults(self) -> list[Any]:
        faults = [self._kill_client, self._kill_client, self._cut, self._hold, self._overload]
        faults += [] if self._disk is None else [self._fill_disk]
        if self._seconds >= LONG_SECONDS:
            faults += [self._restart_broker] if self._kind.inside else [self._kill_broker] * 2
        return faults

    async def _kill_client(self) -> None:
        client = self.chance.choice(self._clients)
        self._clients.remove(client)
        await client.kill()
        self._start(client.setup.role, client.setup.group)

    async def _cut(self) -> None:
        self.chance.choice(self._proxies).cut(reset=self.chance.random() < 0.5)

    async def _hold(self) -> None:
        """Nothing passes for a while."""
        proxy = self.chance.choice(self._proxies)
        proxy.passes.clear()
        await asyncio.sleep(self.chance.choice([0.2, 1.0, 4.0]) * min(1.0, self._seconds))
        proxy.passes.set()

    async def _overload(self) -> None:
        client = self._start("flood")
        await asyncio.sleep(self.chance.choice([0.3, 1.0, 2.0]) * min(1.0, self._seconds))
        if client in self._clients:
            await self._end(client)

    async def _fill_disk(self) -> None:
        assert self._disk is not None
        ballast = self._disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("ab") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        await asyncio.sleep(self.chance.choice([0.3, 1.0, 3.0]) * min(1.0, self._seconds))
        ballast.unlink(missing_ok=True)

    async def _kill_broker(self) -> None:
        broker = self._brokers[-1]  # the first one of two has the name server
        broker._engine._process.kill()  # type: ignore[union-attr]
        await self._again(broker)

    async def _restart_broker(self) -> None:
        await self._again(self._brokers[-1])

    async def _again(self, broker: rocketc.Broker) -> None:
        with contextlib.suppress(ChildProcessError):
            await asyncio.to_thread(broker.close)
        await asyncio.sleep(self.chance.choice([0.0, 0.3, 2.0]) * min(1.0, self._seconds))
        while True:
            try:
                return await asyncio.to_thread(broker.start)
            except OSError as error:  # the disk is full
                if self._disk is None or not (self._disk / "ballast").exists():
                    self.history.fault(f"the start of a broker: {error!r}")
                    return None
                await asyncio.sleep(0.1)

    # the run

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            self._disk = stack.enter_context(small_disk(self._root, DISK_BYTES))
            stack.callback(self._check_closed)
            await self._start_brokers(stack)
            groups = ["audit", "audit", "bill", *(["ordered", "ordered"] if self._seconds >= LONG_SECONDS else [])]
            for group in groups:
                self._consumed.setdefault(group, set())
                self._start("consumer", group)
            self._start("producer")
            stack.push_async_callback(self._kill_all)  # called first
            await self._wait(lambda: len(self._acknowledged) > 20)
            await self._go_wrong()
            await self._go_on()
            for client in [one for one in self._clients if one.setup.role == "producer"]:
                await self._end(client)
            await self._wait(self._is_consumed)
            await asyncio.gather(*(self._end(one) for one in list(self._clients)))

    async def _kill_all(self) -> None:
        await asyncio.gather(*(one.kill() for one in self._clients))

    def _is_consumed(self) -> bool:
        return all(self._acknowledged <= bodies for bodies in self._consumed.values())

    async def _wait(self, done: Callable[[], bool]) -> bool:
        end = time.monotonic() + DRAIN_SECONDS
        while not done() and time.monotonic() < end:
            await asyncio.sleep(0.02)
        return done()

    async def _go_wrong(self) -> None:
        end = time.monotonic() + self._seconds
        faults, waiting = self._faults(), list[Any]()
        tasks: dict[Any, asyncio.Task[None]] = {}
        while time.monotonic() < end:
            if not waiting:
                waiting = self.chance.sample(faults, len(faults))
            fault = waiting.pop()
            before = tasks.get(fault)
            if before is None or before.done():  # one of a kind at a time
                if before is not None:
                    await before
                self.history.counts[fault.__name__.strip("_")] += 1
                tasks[fault] = asyncio.ensure_future(fault())
            await asyncio.sleep(self.chance.expovariate(len(faults) / min(self._seconds, 6.0)))
        await asyncio.gather(*tasks.values())

    async def _go_on(self) -> None:
        """The brokers store messages again."""
        goal = len(self._acknowledged) + 20
        if not await self._wait(lambda: len(self._acknowledged) > goal):
            self.history.fault(f"no broker stores messages {DRAIN_SECONDS:.0f} s after the last fault")

    def judge(self) -> list[str]:
        """Replay what all clients did into the history; return what was wrong."""
        history, began = self.history, dict[str, float]()
        for group in self._consumed:
            history.consumed[group], history.done[group]
        for at, what, *more in sorted(self._events, key=lambda event: event[0]):
            if what == "sent":
                history.sent[more[0].encode()] = began[more[0]] = at
            elif what in ("stored", "failed"):
                if at - began[more[0]] > SEND_MS / 1000 + LATE_SECONDS:
                    history.fault(f"the send of {more[0]} took {at - began[more[0]]:.1f} s")
                history.counts[what] += 1
                if what == "stored":
                    history.stored_at("", more[0].encode(), tuple(more[1]), more[2], began[more[0]], at)
            elif what == "begins":
                history.begins(more[0], tuple(more[1]), more[2], more[3].encode(), at)
            elif what == "ends":
                history.ends(more[0], tuple(more[1]), more[2], more[3].encode(), failed=more[4])
            elif what == "flooded":
                history.counts["flooded"] += more[0] - more[1]
                history.counts["flood refused"] += more[1]
        found: list[str] = history.at_end()
        return found


def play(root: Path, seed: int, kind: str, mutant: str = "", seconds: float = 20.0) -> dict[str, Any]:
    """Run one seed in an empty folder; return what was wrong, and counts."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    day, began = Day(root, seed, KINDS[kind], mutant, seconds), time.monotonic()
    with _crashes(day.history):
        asyncio.run(day.run())
    wrong, history = day.judge(), day.history
    figures = {"acknowledged": len(history.acknowledged), "counts": dict(sorted(history.counts.items()))}
    return {"seed": seed, "kind": kind, "wrong": wrong[:20], **figures, "seconds": round(time.monotonic() - began, 1)}


@contextlib.contextmanager
def _crashes(history: ClientHistory) -> Iterator[None]:
    """Note tracebacks that an embedded broker logs: refusals are logged without."""

    class Tracebacks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.levelno >= logging.ERROR:
                history.fault(f"logged: {record.getMessage()}: {record.exc_info[1]!r}")

    loggers, handler = [logging.getLogger(name) for name in ("rocketc", "asyncio")], Tracebacks()
    for one in loggers:
        one.addHandler(handler)
    try:
        yield
    finally:
        for one in loggers:
            one.removeHandler(handler)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--mutant", default="")
    given = parser.parse_args()
    if given.mutant:
        MUTANTS[given.mutant][0]()
    for seed in given.seeds:
        found = play(given.folder / "day", seed, given.kind, given.mutant, given.seconds)
        print(json.dumps(found), flush=True)
        if given.mutant and re.search(MUTANTS[given.mutant][1], " ".join(found["wrong"])):
            break


if __name__ == "__main__":
    main()
