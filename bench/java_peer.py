"""The Java peer: RocketMQ's own decoder and java.util.zip.CRC32, in a JVM that stays alive and warm.

    java = java_peer.start(bench, "scan", "crc", *log.files)   # None, and a note on stderr, if there is no Java
    seconds, records, checksum, more = java.round()
    java = java_peer.start(bench, "put", dir="/some/dir", body=128, release="4.9.7")     # key=value commands

The commands are those of java/src/main/java/bench/Main.java. One JVM measures one thing.
The first use of a release fetches its jars through Maven; jars and classes stay in build/bench-java.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

RELEASE = "5.3.3"
RELEASES = ("4.9.7", "5.3.3")  # the one that writes faster first
HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java"
CACHE = HERE.parent / "build" / "bench-java"
HEAP = "1g"  # that of a mid-size broker
LOGGING = SOURCES / "src" / "main" / "resources" / "quiet-logback.xml"
QUIET = [f"-D{name}={LOGGING}" for name in ("rmq.logback.configurationFile", "logback.configurationFile")]
NEVER_FULL = [  # a broker refuses messages, and deletes files, when the disk is used to 90 or 85 %
    f"-Drocketmq.broker.diskSpace{name}Ratio=0.99" for name in ("WarningLevel", "CleanForcibly")
]
OPENED = "java.lang java.nio java.util sun.nio.ch jdk.internal.ref jdk.internal.misc".split()  # noqa: SIM905
OPENS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]  # RocketMQ's mapped files need them
GET_JAVA = "on Debian: apt-get install openjdk-17-jdk-headless maven"


class Round(NamedTuple):
    seconds: float
    records: int
    checksum: int
    more: dict[str, float]  # other figures of the round, by the names of Put.java


class JavaPeer:
    """One JVM that does the same work at each round(); it starts, and warms up, at the first."""

    def __init__(self, command, warm):
        self._command = command
        self._warm = warm  # seconds to run before the first round counts: the JIT needs them
        self._jvm = None

    def round(self) -> Round:
        """Let Java do the work once; the seconds are Java's own clock around it."""
        if self._jvm is None:
            self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (as long as the JVM)
            pipe = subprocess.PIPE
            self._jvm = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._said, text=True)
            ready = time.perf_counter() + self._warm
            while time.perf_counter() < ready:
                self._go()
        return self._go()

    def once(self) -> Round:
        """The first and only round: what is made but once needs no warming up."""
        self._warm = -1
        return self.round()

    def seconds(self) -> float:
        """One round as a side of common.measure."""
        return self.round().seconds

    def _go(self) -> Round:
        self._jvm.stdin.write("go\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        if not line:
            code = self._jvm.wait()
            self._said.seek(0)
            said = "".join(self._said.readlines()[-20:])
            raise RuntimeError(f"the JVM ended with code {code}: {' '.join(self._command[-3:])}\n{said}")
        return Round(**json.loads(line))

    def close(self):
        if self._jvm is not None:
            self._jvm.communicate()  # end of its input: it leaves by itself
            self._jvm = None
            self._said.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def start(bench, *command, release=RELEASE, warm=None, heap=HEAP, **options) -> JavaPeer | None:
    """A peer for one command of bench.Main, or None, said on stderr, if Java can't be had here.

    warm     seconds of rounds that do not count: 3, or 1.5 if quick
    heap     is touched before we begin: Java then never waits for fresh memory
    options  those that the command takes as key=value; True and False as Java spells them
    """
    try:
        class_path = build(release)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{bench.name}: the rows against Java are left out: {error}", file=sys.stderr)
        return None
    flags = [
        f"-Xms{heap}",
        f"-Xmx{heap}",
        "-XX:+AlwaysPreTouch",
        "-XX:MaxDirectMemorySize=4g",  # each thread that puts has 4 MiB for the largest message
        f"-Duser.home={CACHE / 'home'}",
        *QUIET,
        *NEVER_FULL,
        *OPENS,
    ]
    if warm is None:
        warm = 1.5 if bench.quick else 3
    words = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items()]
    return JavaPeer(["java", *flags, "-cp", class_path, "bench.Main", *map(str, command), *words], warm)


def build(release) -> str:
    """Fetch the jars of a release once, compile when a source is newer; returns the class path."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise FileNotFoundError(f"{tool} is missing; {GET_JAVA}")
    jars, classes = CACHE / release / "jars", CACHE / release / "classes"
    pom = SOURCES / "pom.xml"
    if not jars.is_dir() or jars.stat().st_mtime < pom.stat().st_mtime:
        fresh = jars.with_suffix(".new")  # a broken download leaves no half-filled folder behind
        shutil.rmtree(fresh, ignore_errors=True)
        _run(
            "mvn",
            "-q",
            "-B",
            "-f",
            pom,
            f"-Drmq.version={release}",
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={fresh}",
        )
        shutil.rmtree(jars, ignore_errors=True)
        fresh.rename(jars)
        os.utime(jars)
    sources = sorted(SOURCES.rglob("*.java"))
    built = classes / "bench" / "Main.class"
    if not built.exists() or built.stat().st_mtime < max(s.stat().st_mtime for s in sources):
        _run("javac", "--release", "17", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", classes, *sources)
        built.touch()
    return f"{classes}:{jars}/*"


def _run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
