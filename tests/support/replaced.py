"""Things that another program puts in the place of a store's file."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

OURS = b"a file of the user, not of the store"


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


MAKERS: dict[str, Callable[[Path, Path], object]] = {
    "fifo": lambda path, _: os.mkfifo(path),
    "socket": lambda path, _: make_socket(path),
    "folder": lambda path, _: path.mkdir(),
    "device": lambda path, _: path.symlink_to("/dev/zero"),
    "null": lambda path, _: path.symlink_to("/dev/null"),
    "link": lambda path, outside: path.symlink_to(outside),
    "dangling": lambda path, _: path.symlink_to("nowhere"),
}


def replace(path: Path, kind: str, outside: Path) -> bytes:
    """Put one of MAKERS in the place of a file, which may be missing. Return the content of `outside`.

    outside  a file of the user, which a link points to: with the bytes of the file that is replaced, if there is one
    """
    outside.write_bytes(path.read_bytes() if path.is_file() else OURS)
    path.unlink(missing_ok=True)
    MAKERS[kind](path, outside)
    return outside.read_bytes()


def is_named(path: Path, error: BaseException) -> bool:
    return str(path) in str(error) or str(getattr(error, "filename", "")) == str(path)


@contextlib.contextmanager
def no_hang(seconds: float = 20) -> Iterator[None]:
    """Fail if the block takes longer. The signal also ends a wait in open()."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    rest, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, rest)  # of pytest-timeout
