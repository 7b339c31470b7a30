"""Scenarios that RocketMQ's own clients play, against any cluster, and what came of them at RocketMQ's own broker.

`Clients("5.3.3", folder).run(names, address, threads)` plays scenarios of java/Clients.java against the cluster of a
name server; `JavaCluster("5.3.3", folder)` is a cluster of RocketMQ's own; `recorded()` reads the outcomes that
tools/record_interop.py wrote. A scenario's outcome is the same value on every cluster that behaves alike.
"""

import difflib
import functools
import json
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from interop.peer import BUILD, ENVIRONMENT, OPTIONS, SOURCES, Unavailable, alone, class_path, tool

RECORDED = Path(__file__).parents[1] / "golden" / "interop-5.3.3.jsonl"

DELAY_LEVELS = "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 3s"  # as in JavaCluster.java

# What differs from the recorded outcome at rocketc's broker for a reason: the scenario and the reason. Such a test is
# expected to fail.
NOT_YET: dict[str, str] = {
    "send_v1": "the remark about a missing body is a sentence, not Java's exception",
}

_JAVA = [
    *(option for option in OPTIONS if not option.startswith("-Xmx")),
    *("-Xmx512m", "-Drocketmq.client.logUseSlf4j=true", f"-Dlogback.configurationFile={SOURCES}/logback.xml"),
    f"-Drmq.logback.configurationFile={SOURCES}/rmq.logback.xml",
    "-Drocketmq.client.rebalance.minInterval=100",  # a new consumer of 5.x begins 0.1 s after its start, not 1 s
]


class Process:
    """A Java process that talks in lines of JSON. It ends with its input, or with this process."""

    def __init__(self, release: str, folder: Path, main: str, *arguments: str, options: Iterable[str] = ()) -> None:
        """release  of RocketMQ; folder  for logs and local offsets; main  the class. Raises peer.Unavailable."""
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / f"{main}.stderr"
        command = [
            tool("java"),
            *_JAVA,
            *options,
            f"-Duser.home={folder}",
            "-cp",
            class_path(release),
            main,
            *arguments,
        ]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=folder,  # mqadmin writes files there
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    def tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The next answer; EOFError if the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise EOFError(f"Java has gone: {self._errors.read_text(errors='replace')[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        """End the process without a word; idempotent."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class Clients(Process):
    """RocketMQ's clients of one release."""

    def __init__(self, release: str, folder: Path, options: Iterable[str] = ()) -> None:
        if release < "5":  # after a refused lock, 4.x waits for these periods of 20 s
            options = [*options, *(f"-Drocketmq.client.rebalance.{name}Interval=1000" for name in ("wait", "lock"))]
        super().__init__(release, folder, "Clients", options=options)

    def names(self) -> list[str]:
        """All scenarios of this release."""
        self.tell(do="list")
        names: list[str] = self.hear()
        return names

    def run(self, names: Iterable[str], name_server: str, threads: int = 8) -> Iterator[tuple[str, float, Any]]:
        """Play scenarios, `threads` at a time; yield (name, seconds, outcome) of each as it ends."""
        names = list(names)
        prefix = f"i{secrets.token_hex(4)}"
        self.tell(do="run", names=names, nameServer=name_server, prefix=prefix, threads=threads)
        for _ in names:
            answer = self.hear()
            yield answer["scenario"], answer["millis"] / 1000, answer.get("outcome")

    def step(self, broker: Any, topic: str, do: str, **values: object) -> Any:
        """What these clients do with one topic at the name server of a broker, see java/Steps.java."""
        self.tell(do=do, nameServer=broker.name_server, topic=topic, **values)
        answer = self.hear()
        assert not (isinstance(answer, dict) and "failed" in answer), answer
        return answer


class ConsumerParts(Process):
    """Parts of RocketMQ's consumer that work without a cluster; java/ConsumerParts.java lists the commands."""

    def __init__(self, release: str, folder: Path) -> None:
        self.release, self.folder = release, folder / "offsets"  # the folder with all files of offsets
        options = [f"-Drocketmq.client.localOffsetStoreDir={self.folder}"]
        super().__init__(release, folder, "ConsumerParts", options=options)

    def answers(self, questions: Iterable[dict[str, Any]]) -> list[Any]:
        """What RocketMQ answers to each question."""
        found = []
        for question in questions:
            self.tell(**question)
            found.append(self.hear())
        return found

    def offsets(self, client_id: str, group: str, steps: list[list[Any]]) -> list[Any]:
        """What happens at each step of a store of offsets."""
        return self.answers([{"do": "offsets", "clientId": client_id, "group": group, "steps": steps}])[0]


class JavaCluster(Process):
    """RocketMQ's own name server and broker; java/JavaCluster.java lists the settings."""

    name_server: str
    broker: str

    def __init__(self, release: str, folder: Path, options: Iterable[str] = (), **settings: object) -> None:
        pairs = [f"{name}={value}" for name, value in settings.items()]
        options = list(options)
        for is_last in (False, False, True):
            super().__init__(release, folder, "JavaCluster", str(folder), *pairs, options=options)
            try:
                ready = self.hear()
            except EOFError:
                self.close()
                if is_last or "Address already in use" not in self._errors.read_text(errors="replace"):
                    raise
            except BaseException:
                self.close()
                raise
            else:
                break  # otherwise another program took a port that was free: try others
        self.name_server, self.broker = ready["nameServer"], ready["broker"]

    def end(self) -> None:
        """Shut down in good order."""
        self.tell()
        self.hear()
        self.close()


GO = "go-2.1.2"  # the release of rocketmq-client-go in go/go.mod


def play_go(name_server: str) -> Any:
    """The outcome of the scenario of RocketMQ's Go client, go/main.go. Raises peer.Unavailable."""
    program = BUILD / "go" / "interop"
    with alone("go"):  # `go` downloads the modules once, and builds only what changed
        command = [tool("go"), "build", "-o", str(program), "."]
        built = subprocess.run(command, cwd=SOURCES.parent / "go", env=ENVIRONMENT, capture_output=True, text=True)
        if built.returncode:
            raise Unavailable(f"the Go client cannot be built: {built.stderr.strip().splitlines()[-1]}")
    command = [str(program), name_server, f"i{secrets.token_hex(4)}"]
    played = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=90)
    return json.loads(played.stdout) if not played.returncode else {"failed": played.stderr[-1000:]}


@functools.cache
def recorded() -> dict[str, dict[str, Any]]:
    """The outcomes at RocketMQ's own broker: by release of the clients, by scenario."""
    found: dict[str, dict[str, Any]] = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        found.setdefault(entry["client"], {})[entry["scenario"]] = entry["outcome"]
    return found


def difference(expected: Any, outcome: Any) -> str:
    """The lines that differ, with a little around them; empty if nothing does."""
    before, after = (
        json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines() for value in (expected, outcome)
    )
    return "\n".join(difflib.unified_diff(before, after, "RocketMQ", "this broker", lineterm="", n=4))
