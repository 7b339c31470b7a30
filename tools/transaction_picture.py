"""Write a picture of transactions to docs/images: .venv/bin/python tools/transaction_picture.py [--folder FOLDER]

RocketMQ's producer sends the same messages to a broker of RocketMQ and to ours, one after the other. The picture has a
terminal for each, side by side; it needs Java and what tests/interop needs. The temporary folder is shown as /data.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from screenshots import IMAGES, ROOT, recorded, save
from terminal import RELEASE, Screen

sys.path.insert(0, str(ROOT / "tests"))
from interop.our_broker import OurBroker
from interop.scenarios import JavaCluster

COLUMNS = 65  # of one terminal
NAME_PORT, BROKER_PORT = 9876, 10911
SETTINGS = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "transactionOpBatchInterval": 100}


def rocketmq(folder: Path) -> JavaCluster:
    settings = {f"broker.{name}": value for name, value in SETTINGS.items()}
    return JavaCluster(RELEASE, folder, namePort=NAME_PORT, brokerPort=BROKER_PORT, **settings)


def ours(folder: Path) -> OurBroker:
    folder.mkdir()
    settings = {re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name): value for name, value in SETTINGS.items()}
    return OurBroker(folder / "store", "--namesrv-port", NAME_PORT, "--port", BROKER_PORT, **settings)


def story(folder: Path, start: Callable[[Path], Any]) -> list[Text]:
    """What the terminal shows beside one of the brokers."""
    screen = Screen(folder, COLUMNS)
    with contextlib.closing(start(folder)):
        for run, command in (
            (screen.java, f"Shop 127.0.0.1:{NAME_PORT} orders"),
            (screen.rocketc, f"cat rocketmq://127.0.0.1:{NAME_PORT}/orders -f '%k %s\\n'"),
            (screen.rocketc, "stats /data/store -t '/.*_HALF_.*/'"),
        ):
            if code := run(command).wait(120):
                sys.exit(f"transaction_picture: {command}: exit code {code}")
            screen.finish()
    return screen.lines


def side_by_side(columns: dict[str, list[Text]]) -> Table:
    table = Table(*columns, width=2 * COLUMNS + 7)
    table.add_row(*(Text("\n").join(lines) for lines in columns.values()))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES, help="folder for the picture")
    target = parser.parse_args().folder
    target.mkdir(parents=True, exist_ok=True)
    columns = {}
    for title, start in ((f"RocketMQ {RELEASE}", rocketmq), ("rocketc broker", ours)):
        with tempfile.TemporaryDirectory() as root:
            columns[title] = story(Path(root) / "run", start)
        print(title, *(one.plain for one in columns[title]), sep="\n")
    save("transactions", recorded("transactions", [side_by_side(columns)], 2 * COLUMNS + 7), target)


if __name__ == "__main__":
    main()
