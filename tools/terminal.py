"""What a terminal shows while commands run, for the pictures that need RocketMQ."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.text import Text
from screenshots import COLUMNS, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from interop.peer import ENVIRONMENT, SOURCES, class_path, tool

RELEASE = "5.3.3"
REDRAW = "\r\x1b[K"


class Screen:
    """What a terminal shows: commands, and the lines that they print, in the order in which they come.

    folder   where the commands run; shown as /data
    columns  width of the terminal
    """

    def __init__(self, folder: Path, columns: int = COLUMNS) -> None:
        self._folder, self._columns, self._lock = folder, columns, threading.Lock()
        self.lines: list[Text] = []
        self._readers: list[threading.Thread] = []

    def typed(self, command: str) -> None:
        self.lines.append(Text.assemble(("$ ", "bold green"), (command, "bold")))

    def run(self, shown: str, words: list[Any], **environment: str) -> subprocess.Popen[bytes]:
        """Start a command in the terminal, and show what it prints."""
        self.typed(shown)
        ours, theirs = pty.openpty()
        kept = {name: value for name, value in ENVIRONMENT.items() if name != "NO_COLOR"}
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=self._folder,
            env={**kept, "COLUMNS": str(self._columns), "TERM": "xterm-256color", **environment},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        reader = threading.Thread(target=self._read, args=(ours,))
        reader.start()
        self._readers.append(reader)
        return process

    def rocketc(self, command: str, background: bool = False) -> subprocess.Popen[bytes]:
        """Start our command with these words."""
        words = [sys.executable, "-m", "rocketc", *shlex.split(command.replace("/data/", f"{self._folder}/"))]
        return self.run(f"rocketc {command}{' &' * background}", words)

    def java(self, command: str, background: bool = False) -> subprocess.Popen[bytes]:
        """Start a class of tests/interop/java with these words, and RocketMQ's clients."""
        options = ["-Drocketmq.client.logUseSlf4j=true", f"-Dlogback.configurationFile={SOURCES}/logback.xml"]
        options += [f"-Drmq.logback.configurationFile={SOURCES}/rmq.logback.xml", f"-Duser.home={self._folder}"]
        words = [tool("java"), *options, "-cp", class_path(RELEASE), *shlex.split(command)]
        return self.run(f"java {command}{' &' * background}", words)

    def _read(self, source: int) -> None:
        with open(source, "rb", buffering=0) as stream:
            rest = b""
            with contextlib.suppress(OSError):  # on Linux, the other side is closed
                while part := stream.read(1 << 16):
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        self._show(line.decode())
            self._show(rest.decode())

    def _show(self, line: str) -> None:
        states = [one for one in line.rstrip("\r").split(REDRAW) if one and not one.startswith("\x1b[?25")]
        with self._lock:
            for state in states:
                self.lines.append(Text.from_ansi(state.replace(f"{self._folder}/", "/data/")))

    def said(self, text: str) -> bool:
        with self._lock:
            return any(text in line.plain for line in self.lines)

    def until(self, text: str, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not self.said(text):
            if time.monotonic() > end:
                sys.exit(f"terminal: {text!r} is not said:\n" + "\n".join(one.plain for one in self.lines))
            time.sleep(0.05)

    def finish(self) -> None:
        for one in self._readers:
            one.join(30)
