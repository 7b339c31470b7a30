"""How new log files are prepared: their space, their pages, zeros, the whole file."""

import ctypes
import mmap
from pathlib import Path

import pytest

FILE_SIZE = 32 << 20  # twice the bytes that are prepared ahead of the writer
AHEAD = 16 << 20
WINDOW = 5 << 20  # as many more pages may be prepared

pytestmark = pytest.mark.skipif(not Path("/proc/thread-self/io").exists(), reason="the kernel does not count writes")


def written() -> int:
    """Return the bytes that this thread has given to write() and pwrite()."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def cached(path: Path) -> int:
    """Return the bytes of a file that are in the page cache."""
    pages = (ctypes.c_ubyte * (FILE_SIZE // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), FILE_SIZE) as area:
        start = ctypes.c_char.from_buffer(area)
        done = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(FILE_SIZE), pages)
        del start
    assert done == 0, ctypes.get_errno()
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


@pytest.mark.parametrize(
    ("settings", "zeros", "pages"),
    [
        ({"prepare": "allocate"}, 0, 0),
        ({"prepare": "populate"}, 0, AHEAD),
        ({"prepare": "write"}, AHEAD, AHEAD),
        ({"prepare": "auto"}, AHEAD, AHEAD),
        ({"prepare": "populate", "warm_maped_file_enable": True}, 0, FILE_SIZE),
        ({"warm_maped_file_enable": True}, FILE_SIZE, FILE_SIZE),
        ({"prepare": "populate", "flush": "sync"}, 0, AHEAD),
    ],
)
def test_what_is_prepared(open_store, settings, zeros, pages):
    """A store without threads prepares on the thread that calls put() and step()."""
    config = {"mapped_file_size_commit_log": FILE_SIZE, "clock": lambda: 1_700_000_000_000, "background": False}
    before = written()
    store = open_store(**config, **settings)
    store.put("t", b"x")
    store.step()
    wrote = written() - before
    assert wrote >= zeros if zeros else wrote < 1 << 20
    assert pages <= cached(Path(store.path, "commitlog", "0" * 20)) <= pages + WINDOW
