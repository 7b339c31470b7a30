"""The Java peer: RocketMQ's decoder, store and java.util.zip.CRC32, in a JVM that stays alive and warm.

    java = java_peer.start(bench, "scan", "crc", *log.files)   # None, and a note on stderr, without Java

    seconds, records, checksum, more = java.round()

    java = java_peer.start(bench, "put", dir="/some/dir", body=128, release="4.9.7")     # key=value commands

The commands are those of java/src/main/java/bench/Main.java. One JVM measures one thing.
The first use of a release downloads its jars with Maven; jars and classes are kept in build/bench-java.
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
RELEASES = ("4.9.7", "5.3.3")  # the release that writes faster is first
HERE = Path(__file__).resolve().parent
SOURCES = HERE / "java"
CLUSTER = HERE.parent / "tests" / "interop" / "java" / "JavaCluster.java"  # RocketMQ's name server and broker
CACHE = HERE.parent / "build" / "bench-java"
HEAP = "1g"  # as of a broker of medium size
LOGGING = SOURCES / "src" / "main" / "resources" / "quiet-logback.xml"
QUIET = [f"-D{name}={LOGGING}" for name in ("rmq.logback.configurationFile", "logback.configurationFile")]
NEVER_FULL = [  # a broker refuses messages at 90 % disk use, and deletes files at 85 %
    f"-Drocketmq.broker.diskSpace{name}Ratio=0.99" for name in ("WarningLevel", "CleanForcibly")
]
OPENED = "java.lang java.nio java.util sun.nio.ch jdk.internal.ref jdk.internal.misc".split()  # noqa: SIM905
OPENS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]  # RocketMQ's mapped files need these packages
GET_JAVA = "on Debian: apt-get install openjdk-17-jdk-headless maven"


class Round(NamedTuple):
    seconds: float
    records: int
    checksum: int
    more: dict[str, float]  # other figures of the round, with the names of Put.java


class JavaPeer:
    """A JVM that does the same work in each round(). It starts and warms up in the first round."""

    def __init__(self, command, warm):
        self._command = command
        self._warm = warm  # seconds to run before the first round counts, for the JIT compiler
        self._jvm = None

    def round(self, words: str = "") -> Round:
        """Run the work once in Java; the seconds are from Java's clock. words: for rounds that take some."""
        if self._jvm is None:
            self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (as long as the JVM)
            pipe = subprocess.PIPE
            self._jvm = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._said, text=True)
            ready = time.perf_counter() + self._warm
            while time.perf_counter() < ready:
                self._go(words)
        return self._go(words)

    def once(self) -> Round:
        """Run the only round, without a warm-up."""
        self._warm = -1
        return self.round()

    def seconds(self) -> float:
        """Run one round and return its seconds, for common.measure."""
        return self.round().seconds

    def _go(self, words: str) -> Round:
        self._jvm.stdin.write(f"go {words}".rstrip() + "\n")
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
            self._jvm.communicate()  # the JVM ends at the end of its input
            self._jvm = None
            self._said.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def start(bench, *command, release=RELEASE, warm=None, heap=HEAP, **options) -> JavaPeer | None:
    """Return a peer for one command of bench.Main; if Java is not available, report it on stderr and return None.

    warm     seconds of warm-up rounds: 3, or 1.5 if quick
    heap     its memory is touched at the start, so that Java does not wait for new pages later
    options  options of the command, passed as key=value; True and False in Java's spelling
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
        "-XX:MaxDirectMemorySize=4g",  # each thread that puts has a buffer of 4 MiB for the largest message
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
    """Download the jars of a release once, compile newer sources, and return the class path."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise FileNotFoundError(f"{tool} is missing; {GET_JAVA}")
    jars, classes = CACHE / release / "jars", CACHE / release / "classes"
    pom = SOURCES / "pom.xml"
    if not jars.is_dir() or jars.stat().st_mtime < pom.stat().st_mtime:
        fresh = jars.with_suffix(".new")  # renamed when complete: a broken download does not leave an incomplete folder
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
    sources = [*sorted(SOURCES.rglob("*.java")), CLUSTER]
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
