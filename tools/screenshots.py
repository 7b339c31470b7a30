"""Write pictures of rocketc in a terminal to docs/images: .venv/bin/python tools/screenshots.py [--folder FOLDER]

The pictures show the real output of commands for real data from tests/golden: a month of flights that a broker stored,
and a log with flipped bits. For `top`, a second process puts the flights into a new store, with one topic per airline.
The pictures are SVG from rich and textual, without their fonts, which a browser would load from other sites.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

import rocketc
from rocketc.cli.top_screen import Top
from rocketc.metrics import Watch

ROOT = Path(__file__).resolve().parents[1]
GOLDEN, IMAGES = ROOT / "tests/golden", ROOT / "docs/images"
STORES = {"store": "flights-2013-01", "damaged": "v533-bitrot"}
COLUMNS = 100
LARGEST = 60_000  # most bytes of a picture

# Picture -> the command, which runs in a folder with the STORES
COMMANDS = {
    "info": "rocketc info store",
    "stats": "rocketc stats store --by tag --top 8 --plot",
    "verify": "rocketc verify damaged",
}
WRITER = """
import sys, time, rocketc
flights = list(rocketc.scan(sys.argv[1], topics="flights"))
with rocketc.open(sys.argv[2], mapped_file_size_commit_log=16 << 20) as store:
    for number, flight in enumerate(flights * 1000):
        store.put(f"flights-{flight.tags}", flight.body, tags=flight.tags, keys=flight.keys, queue_id=flight.queue_id)
        if number % 10 == 0:
            time.sleep(0.001 + 0.002 * (number // 4000 % 2))
        if number == 5000:
            print("ready", flush=True)
"""


def unpack(folder: Path) -> None:
    """Unpack the stores under the names that the commands use."""
    for name, golden in STORES.items():
        with tarfile.open(GOLDEN / f"{golden}.tar.xz") as archive:
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        (folder / golden).rename(folder / name)


def printed(command: str, folder: Path) -> str:
    """Return the output of a command in a terminal, with its colors."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    words = [sys.executable, "-m", *shlex.split(command)]
    with subprocess.Popen(words, cwd=folder, env=environment, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 1 << 16):
                parts.append(part)
        except OSError:  # on Linux, the other side is closed
            pass
    os.close(ours)
    if process.returncode not in (0, 1):  # 1: damage was found
        sys.exit(f"screenshots: {command}: exit code {process.returncode}")
    return b"".join(parts).decode().replace("\r\n", "\n")


def recorded(name: str, lines: Iterable[RenderableType], columns: int = COLUMNS) -> str:
    """Return a picture of a terminal with these lines."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in lines:
        console.print(line)
    return console.export_svg(title="rocketc", unique_id=name)


def picture(command: str, text: str, name: str) -> str:
    typed = Text.assemble(("$ ", "bold green"), (command, "bold"))
    return recorded(name, [typed, Text.from_ansi(text.rstrip("\n"))])


async def picture_of_top(folder: Path) -> str:
    """Return the screen of `rocketc top` after some snapshots, while a process writes to the store."""
    path = folder / "live"
    with subprocess.Popen([sys.executable, "-c", WRITER, folder / "store", path], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            with rocketc.open(path, read_only=True) as store:
                app = Top("live", Watch(store), 0.25, "messages", "topics")
                async with app.run_test(size=(COLUMNS, 28)) as pilot:
                    await pilot.pause(8)
                    return app.export_screenshot(title="rocketc top live")
        finally:
            writer.kill()


def save(name: str, svg: str, folder: Path) -> None:
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    if "http" in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", svg) or len(svg) > LARGEST:
        sys.exit(f"screenshots: {name}.svg has external resources, or is too large: {len(svg)} bytes")
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    print(f"screenshots: {name}.svg, {len(svg)} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES, help="folder for the pictures")
    target = parser.parse_args().folder
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack(folder)
        for each, command in COMMANDS.items():
            save(each, picture(command, printed(command, folder), each), target)
        save("top", asyncio.run(picture_of_top(folder)), target)


if __name__ == "__main__":
    main()
