"""RocketMQ as a partner of tests: a Java process that opens message stores and reads them.

`Peer("5.3.3", folder)` starts the process; java/Peer.java describes its commands. Maven downloads the release's jars
the first time; they stay in build/interop. If that fails, `Unavailable` gives the reason.
"""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

RELEASES = ("4.9.7", "5.3.3")
OLD_RELEASES = ("4.3.2", "4.5.2", "4.7.1")  # only as clusters: JavaCluster

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "interop"
SOURCES = Path(__file__).parent / "java"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

# For a short-lived process on a shared machine; 4.x needs access to internals of Java 17.
OPTIONS = [
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"),
    *("-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98"),
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"),
]

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # no sanitizers in Java

Told = dict[str, Any]  # a message, or an answer, with the field names of Peer.java; the body is bytes


class Unavailable(Exception):
    """RocketMQ cannot be run here; the message is the reason."""


class PeerError(Exception):
    """The error that the Java side answered."""


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which(name, path=f"{home}/bin") if home and name != "mvn" else None) or shutil.which(name)
    if not found:
        raise Unavailable(f"{name} is not installed")
    return found


@contextlib.contextmanager
def alone(release: str) -> Iterator[Path]:
    """The build folder of a release, locked: tests run in several processes, and one of them fills it."""
    folder = BUILD / release
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def jars(release: str) -> Path:
    """The folder with the jars that pom.xml names and their dependencies; filled once for each version of the file."""
    with alone(release) as above:
        folder = above / f"jars-{zlib.crc32((SOURCES / 'pom.xml').read_bytes()):08x}"
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=above) as part:
                fetch(release, Path(part))
                (Path(part) / "jars").rename(folder)
    return folder


def fetch(release: str, part: Path) -> None:
    """Let Maven download the folder `jars` in an empty folder."""
    command = [tool("mvn"), "-q", "-B", "-f", str(SOURCES / "pom.xml"), COPY, f"-Drocketmq={release}"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={part}/jars"]
    log = part / "log"
    with log.open("wb") as output:
        try:
            subprocess.run(
                command,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=240,
                check=True,
            )
        except (subprocess.SubprocessError, OSError) as error:
            said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] or [str(error)]
            raise Unavailable(f"Maven could not get the jars of RocketMQ {release}: {said[0]}") from None


def class_path(release: str) -> str:
    """The class path: the tests' classes, compiled against the release, and its jars."""
    lib = jars(release)
    if release in OLD_RELEASES:
        sources = [SOURCES / "JavaCluster.java"]
    else:
        sources = [path for path in SOURCES.glob("*.java") if path.name != "Tables.java"]
        sources += (SOURCES / f"release{release[0]}").glob("*.java")
    with alone(release) as above:
        classes = above / "classes"
        made = classes / f"{sources[0].stem}.class"
        if not made.exists() or any(source.stat().st_mtime > made.stat().st_mtime for source in sources):
            options = ["-J-XX:TieredStopAtLevel=1", "--release", "11", "-proc:none"]
            command = [tool("javac"), *options, "-cp", f"{lib}/*", "-d", str(classes), *map(str, sources)]
            subprocess.run(command, env=ENVIRONMENT, check=True)
    return f"{classes}:{lib}/*"


class Peer:
    """One Java process and the stores that are open in it, each named by its root."""

    def __init__(self, release: str, folder: Path) -> None:
        """Start the process. Its error output goes to folder/stderr; raises Unavailable."""
        self.release = release
        self._errors = folder / "stderr"
        command = [tool("java"), *OPTIONS, f"-Duser.home={folder}", "-cp", class_path(release), "Peer"]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
            )

    @property
    def knows_v2(self) -> bool:
        """Whether topics of more than 127 characters are supported: since 5.1."""
        return self.release >= "5"

    def send(self, **command: Any) -> None:
        """Send a command; `receive` returns the answer. Answers come in the order of the commands."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """The next answer; EOFError if the process has ended before."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise EOFError(f"Java has gone: {self._errors.read_text(errors='replace')[-2000:]}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise PeerError(f"RocketMQ {self.release}: {answer['error']}; see {self._errors}")
        return answer

    def ask(self, **command: Any) -> Any:
        self.send(**command)
        return self.receive()

    def open(self, root: Path, settings: Mapping[str, object]) -> Told:
        """Load and start a store with MessageStoreConfig's settings; return the bounds of its log after dispatch."""
        return self.ask(do="open", root=str(root), settings=dict(settings))

    def put(self, root: Path, messages: Iterable[Told]) -> list[Told]:
        """Put messages, or client batches {"batch": [messages]}; return the store's answer to each."""
        return self.ask(do="put", root=str(root), messages=[to_json(message) for message in messages])

    def pour(self, root: Path, messages: Iterable[Told], count: int) -> list[Told]:
        """Put messages, and kill the process right after `count` of them; return all answers that it gave."""
        self.send(do="pour", root=str(root), messages=[to_json(message) for message in messages])
        answers = [self.receive() for _ in range(count)]
        self._process.kill()
        with contextlib.suppress(EOFError):
            while answer := self.receive():
                answers.append(answer)
        self.kill()
        return answers

    def read(self, root: Path) -> Told:
        """min and max of the log; queues: (topic, queueId, min, max) of each; messages: as getMessage returns them."""
        answer = self.ask(do="read", root=str(root))
        answer["messages"] = [from_json(message) for message in answer["messages"]]
        return answer

    def look(self, root: Path, offsets: Iterable[int]) -> list[Told | None]:
        """The record at each physical offset."""
        found = self.ask(do="look", root=str(root), offsets=list(offsets))
        return [message and from_json(message) for message in found]

    def query(self, root: Path, topic: str, key: str) -> list[int]:
        """Physical offsets of the newest messages with a key, at most 64, in log order."""
        return self.ask(do="query", root=str(root), topic=topic, key=key)

    def answers(self, root: Path, questions: Iterable[Told]) -> list[Told]:
        """RocketMQ's answers to questions in the form of `support.queries`, in their order."""
        return self.ask(do="ask", root=str(root), questions=list(questions))

    def close(self, *roots: Path) -> None:
        """Shut down several stores at once, because RocketMQ waits some seconds."""
        self.ask(do="close", roots=[str(root) for root in roots])

    def kill(self) -> None:
        """SIGKILL; idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # a command that the process did not read before it ended
                pass


def to_json(message: Told) -> Told:
    if "batch" in message:
        return {"batch": [to_json(entry) for entry in message["batch"]]}
    return {**message, "body": base64.b64encode(message["body"]).decode()}


def from_json(message: Told) -> Told:
    if "batch" in message:
        return {"batch": [from_json(entry) for entry in message["batch"]]}
    return {**message, "body": base64.b64decode(message["body"])}
