"""Read a month of real flights from a broker's files, and from a live broker. `make demo` runs this."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKED = ROOT / "tests" / "golden" / "flights-2013-01.tar.xz"


def unpack(folder: Path) -> Path:
    """Unpack the store again, with its holes and modification times."""
    store = folder / PACKED.name.removesuffix(".tar.xz")
    shutil.rmtree(store, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(PACKED) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # without tarfile's filters, in early releases of Python 3.10 and 3.11
            archive.extractall(folder)
    return store


def run(shown: list[str], command: list[str]) -> None:
    """Print a command as a user types it, then run it; if it fails, the demo fails."""
    print(f"\n$ {shlex.join(shown)}", flush=True)
    code = subprocess.run(command).returncode
    if code != 0:
        sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "demo", help="folder for all files")
    folder = parser.parse_args().folder

    print("Every flight out of New York in January 2013 was sent to a RocketMQ broker, as a")
    print("JSON message. The broker is gone; these are the files that it left.")
    store = os.path.relpath(unpack(folder))
    for words in ("info STORE", "verify STORE", "stats STORE --topic flights --by tag --top 8 --plot"):
        command = [store if word == "STORE" else word for word in words.split()]
        run(["rocketc", *command], [sys.executable, "-m", "rocketc", *command])
    out = os.path.relpath(folder)
    for name in ("flights_spark.py", "flights_cluster.py"):
        script = os.path.relpath(ROOT / "examples" / name)
        run(["python", script, store, out], [sys.executable, script, store, out])


if __name__ == "__main__":
    main()
