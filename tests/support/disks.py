"""File systems for tests, in a file below a folder: only root may mount them."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE = 320 << 20  # the least for XFS is 300 MiB; the file has holes
FORMAT = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"]}


@contextlib.contextmanager
def mounted(folder: Path, kind: str) -> Iterator[Path]:
    """Mount a new file system; skip the test where that is not possible."""
    command, *options = FORMAT[kind]
    if (tool := shutil.which(command, path="/usr/sbin:/sbin:/usr/bin:/bin")) is None:
        pytest.skip(f"{command} is not installed")
    image, place = folder / f"{kind}.image", folder / kind
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run([tool, *options, str(image)], check=True, capture_output=True)
    place.mkdir()
    done = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{kind} can't be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path | None]:
    """Mount a file system of some bytes in memory, for tests that fill it; None where that is not possible."""
    place = folder / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "none"]
    try:
        done = subprocess.run(["mount", *options, str(place)], capture_output=True, check=False)
    except FileNotFoundError:
        yield None
        return
    if done.returncode != 0:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # a test may have left files open


def used(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk, as `du` counts them."""
    return sum(path.lstat().st_blocks * 512 for path in (folder, *folder.rglob("*")))


def can_free(folder: Path) -> bool:
    """Whether the file system of a folder frees parts of a file, and shows it."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=False).stdout
    return kind.strip() in ("ext2/ext3", "xfs")
