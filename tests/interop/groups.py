"""Consumer groups whose members are processes of several languages, and what must be true of what they consumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from interop.our_broker import wait_for
from interop.peer import BUILD, ENVIRONMENT, SOURCES, Unavailable, alone, class_path, tool
from interop.scenarios import _JAVA

from rocketc.client import Producer
from rocketc.errors import RocketcError

LOCK_LIVE_MS = 30_000
TROUBLE_MS = 90_000


class Consumed(NamedTuple):
    """One message that a member consumed. Times are ms."""

    member: str
    queue: tuple[str, int]  # broker, queue id
    offset: int
    body: str
    began: float
    ended: float


class Group:
    """The members of one group, and all that they consumed."""

    def __init__(
        self, name_server: str, name: str, topic: str, folder: Path, strategy: str = "AVG", orderly: bool = False,
        millis: int = 0,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        self._arguments = [name_server, name, topic, strategy, str(orderly).lower(), str(millis)]
        self._folder, self.strategy, self.orderly = folder, strategy, orderly
        self.members: dict[str, Member] = {}
        self.consumed: list[Consumed] = []
        self.troubles: dict[str, list[float]] = defaultdict(list)  # of members and brokers, ms

    def join(self, language: str, others: Path | None = None) -> Member:
        """Start a member: "python", "go", or the release of a Java client. others: see python_member"""
        name = f"{language}-{len(self.members)}"
        self.members[name] = Member(self, name, self._command(language, others), self._folder / name)
        return self.members[name]

    def _command(self, language: str, others: Path | None) -> list[str]:
        if language == "python":
            told = [] if others is None else [str(others)]
            return [sys.executable, "-m", "interop.python_member", *self._arguments, *told]
        if language == "go":
            return [str(built_member()), *self._arguments]
        quick = [f"-Drocketmq.client.rebalance.{name}Interval=1000" for name in ("wait", "lock") if language < "5"]
        return [tool("java"), *_JAVA, *quick, "-cp", class_path(language), "Member", *self._arguments]

    def bodies(self) -> set[str]:
        return {one.body for one in self.consumed}

    def wait(self, bodies: set[str], seconds: float) -> None:
        """Wait until all bodies are consumed."""
        wait_for(lambda: bodies <= self.bodies(), seconds)
        missing = sorted(bodies - self.bodies())
        assert not missing, f"{len(missing)} messages were never consumed: {missing[:5]}"

    def check(self) -> None:
        """Orderly: in the order of the offsets, and by one member at a time."""
        if not self.orderly:
            return
        by_queue: dict[Any, list[Consumed]] = defaultdict(list)
        for one in sorted(self.consumed, key=lambda one: one.began):
            by_queue[one.queue].append(one)
        for queue, calls in by_queue.items():
            greatest = -1
            for one in sorted(calls, key=lambda one: one.ended):
                assert one.offset <= greatest + 1, f"{queue}: {one} after offset {greatest}"
                greatest = max(greatest, one.offset)
            for n, one in enumerate(calls):
                for other in calls[n + 1 :]:
                    if other.began >= one.ended - 2:
                        break
                    is_same = other.member == one.member or self._was_in_trouble(one, other)
                    assert is_same, f"two members worked on {queue} at the same time: {one}, {other}"

    def _was_in_trouble(self, one: Consumed, other: Consumed) -> bool:
        since = one.began - TROUBLE_MS
        return any(
            since <= at <= other.began for name in (one.member, other.member, "broker") for at in self.troubles[name]
        )

    def owners(self, since: float) -> dict[tuple[str, int], set[str]]:
        """The members that consumed each queue since a time."""
        found: dict[tuple[str, int], set[str]] = defaultdict(set)
        for one in self.consumed:
            if one.began >= since:
                found[one.queue].add(one.member)
        return found

    def close(self) -> None:
        for member in self.members.values():
            member.kill()


class Member:
    """One process of a group."""

    def __init__(self, group: Group, name: str, command: list[str], errors: Path) -> None:
        self.name, self._group = name, group
        self._errors = errors
        self._is_ready = threading.Event()
        paths = [str(Path(__file__).parents[1]), *filter(None, sys.path)]
        env = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, env=env
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self._is_ready.wait(60)
        if self._process.poll() is not None or not self._is_ready.is_set():
            self.kill()
            raise AssertionError(f"{name} did not start: {errors.read_text(errors='replace')[-2000:]}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                self._is_ready.set()
                continue
            if not line.endswith("}\n"):
                continue  # killed while it wrote
            told = json.loads(line)
            queue = told["broker"], told["queue"]
            self._group.consumed.append(
                Consumed(self.name, queue, told["offset"], told["body"], told["began"], told["ended"])
            )
        self._is_ready.set()  # it has ended

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """End in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(timeout=60)
        self.kill()
        assert code == 0, f"{self.name} ended with {code}: {self._errors.read_text(errors='replace')[-2000:]}"

    def hang(self) -> None:
        self._note()
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._note()
        self._process.send_signal(signal.SIGCONT)

    def _note(self) -> None:
        self._group.troubles[self.name].append(time.time() * 1000)

    def kill(self) -> None:
        """SIGKILL; idempotent."""
        self._process.kill()
        self._process.wait()
        self._reading.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def built_member() -> Path:
    """The program of the Go member."""
    program = BUILD / "go" / "member"
    with alone("go"):
        command = [tool("go"), "build", "-o", str(program), "./member"]
        built = subprocess.run(command, cwd=SOURCES.parent / "go", env=ENVIRONMENT, capture_output=True, text=True)
        if built.returncode:
            raise Unavailable(f"the Go member cannot be built: {built.stderr.strip().splitlines()[-1]}")
    return program


class Sending:
    """A Python producer that sends messages of some shards all the time; `bodies` are those that were acknowledged.

    pause  seconds between the messages of a shard
    """

    def __init__(self, name_server: str, topic: str, shards: int = 8, pause: float = 0.02) -> None:
        self.bodies: set[str] = set()
        self.failures = 0
        self._topic, self._pause, self._is_ending = topic, pause, False
        self._producer = Producer("shop", name_server, send_msg_timeout=2000)
        self._producer.start()
        self._threads = [threading.Thread(target=self._run, args=(f"s{n}",)) for n in range(shards)]
        for thread in self._threads:
            thread.start()

    def _run(self, shard: str) -> None:
        number = 0
        while not self._is_ending:
            body = f"{shard}.{number}"
            try:
                self._producer.send(self._topic, body.encode(), shard=shard)
            except RocketcError:
                self.failures += 1
                time.sleep(0.1)
            else:
                self.bodies.add(body)
                number += 1
                time.sleep(self._pause)

    def end(self) -> set[str]:
        """Stop; return what was acknowledged."""
        self._is_ending = True
        for thread in self._threads:
            thread.join()
        self._producer.close()
        return set(self.bodies)
