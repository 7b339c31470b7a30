"""How long does it take to open a store of 1 GiB, after a clean close and after a kill?"""

import gc
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import java_peer
from common import MIB, Bench, clock, same
from reading import into_cache, reading_with_crc
from writing import BATCH, TAG, TOPIC, JavaSide, scratch, text

import rocketc

BODY = 1024
bench = Bench("recovery", __doc__)
SIZE = (256 if bench.quick else 1024) * MIB  # size of the log, which is one file
JAVA_SIZES = {"1 KiB": 1024, "128 B": 128}

# Puts until only 1 MiB of the log file is free, reports it, and waits to be killed.
WRITER = f"""
import sys, time, rocketc
path, size, body = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
store = rocketc.open(path, mapped_file_size_commit_log=size)
while store.max_phy_offset < size - (3 << 20):
    store.put_many({TOPIC!r}, [body] * {BATCH}, tags={TAG!r})
print(store.flush(), flush=True)
time.sleep(1000)
"""


def killed_store(root: Path) -> int:
    """Fill a store in a child process, kill the process, and return the end of the log."""
    command = [sys.executable, "-c", WRITER, str(root), str(SIZE), text(BODY).hex()]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        return int(writer.stdout.readline())
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()


class Opening:
    """Open a store repeatedly, each time in the state that its last process left."""

    def __init__(self, root: Path, end: int, file_size: int, killed: bool):
        self._root, self._end, self._options, self._killed = (
            root,
            end,
            {"mapped_file_size_commit_log": file_size},
            killed,
        )
        self._checkpoint = (root / "checkpoint").read_bytes() if (root / "checkpoint").exists() else None
        self._files = sorted((root / "commitlog").iterdir())

    def _as_left(self):
        for file in (self._root / "commitlog").iterdir():
            if file not in self._files:
                file.unlink()  # a file that was allocated ahead
        abort = self._root / "abort"
        if self._killed:
            abort.write_text("1")
        else:
            abort.unlink(missing_ok=True)
        if self._checkpoint is not None:
            (self._root / "checkpoint").write_bytes(self._checkpoint)

    def __call__(self) -> float:
        self._as_left()
        gc.collect()
        start = clock()
        store = rocketc.open(self._root, **self._options)
        seconds = clock() - start
        with store:
            same(store.max_phy_offset, self._end, "rocketc (end of the log)")
        return seconds


def against_reading():
    with scratch(bench) as folder:
        root = folder / "rocketc"
        end = killed_store(root)
        log = min((root / "commitlog").iterdir())
        into_cache(root)
        records = sum(1 for _ in rocketc.scan(root))
        for killed in (True, False):
            case = f"open, {SIZE // MIB} MiB, 1 KiB bodies, {'killed' if killed else 'closed in good order'}"
            bench.row(
                case,
                against="reading the bytes with CRC (remap)",
                goal=0.7,
                work=end / 1e9,
                unit="GB/s",
                check=lambda: same(sum(1 for _ in rocketc.scan(root)), records, "rocketc"),
                ours=Opening(root, end, SIZE, killed),
                theirs=reading_with_crc(log, end),
            )


def against_java(name: str, body: int, release: str):
    """Both sides open a copy of the same store, which Java has written; its queues and index are complete."""
    what = f"open, {SIZE // MIB} MiB, {name} bodies"
    cases = [(f"{what}, {'killed' if k else 'closed in good order'}", k) for k in (False, True)]
    against = f"Java {release} load()"
    if not any(bench.wanted(case, against) for case, _ in cases):
        return
    mib, warm = SIZE // MIB, None if bench.quick else 8
    with scratch(bench) as folder:
        filler = java_peer.start(bench, "fill", dir=folder / "java", body=body, mib=mib, filemib=mib, release=release)
        if not filler:
            return
        with filler:
            end = filler.once().checksum
        shutil.copytree(folder / "java", folder / "rocketc")
        into_cache(folder / "java"), into_cache(folder / "rocketc")
        for case, killed in cases:
            java = java_peer.start(
                bench, "load", dir=folder / "java", filemib=mib, abnormal=killed, release=release, warm=warm
            )
            with java:
                bench.row(
                    case,
                    against=against,
                    goal=3,
                    work=end / 1e9,
                    unit="GB/s",
                    check=lambda java=java: same(java.round().checksum, end, "Java (end of the log)"),
                    ours=Opening(folder / "rocketc", end, SIZE, killed),
                    theirs=JavaSide(java, folder),
                )


def main():
    against_reading()
    for release in java_peer.RELEASES[:1] if bench.quick else java_peer.RELEASES:
        for name, body in list(JAVA_SIZES.items())[: 1 if bench.quick else None]:
            against_java(name, body, release)


if __name__ == "__main__":
    main()
