"""The files of one queue: RocketMQ's MappedFileQueueTest and MultiPathMappedFileQueueTest."""

import errno
import os
import random
import threading
import time

import pytest

from rocketc.errors import StoreIOError
from rocketc.files._mapped_file_queue import MappedFileQueue

SIZE = 1024


def name(start):
    return f"{start:020d}"


def fill(folder, *starts, size=SIZE):
    """Write files as a store leaves them, each filled with its number."""
    folder.mkdir(exist_ok=True)
    for start in starts:
        (folder / name(start)).write_bytes(bytes([start // SIZE % 256]) * size)


def loaded(*folders, read_only=()):
    queue = MappedFileQueue(folders, SIZE, read_only)
    queue.load()
    return queue


def starts(queue):
    return [int(os.path.basename(path)) for path in queue.files]


# ------------------------------------------------------------------------------------------------ load


def test_an_empty_queue(tmp_path):
    for folder in (tmp_path, tmp_path / "no"):
        queue = loaded(folder)
        assert (queue.files, queue.min_offset, queue.max_offset, queue.wrote, queue.flushed) == ([], -1, 0, 0, 0)
        assert queue.select(0) is None
        assert queue.file_at_time(0) is None
        queue.truncate(0)
        assert queue.delete_expired(0, 1 << 60, immediately=True) == 0


def test_load(tmp_path):
    """Sorted by offset, in whatever order the folder lists them. All bytes count as written and flushed."""
    fill(tmp_path, 3 * SIZE, SIZE, 2 * SIZE)
    queue = loaded(tmp_path)
    assert starts(queue) == [SIZE, 2 * SIZE, 3 * SIZE]
    assert (queue.min_offset, queue.max_offset, queue.wrote, queue.flushed) == (SIZE, 4 * SIZE, 4 * SIZE, 4 * SIZE)
    assert queue.missing == []


def test_other_names_are_not_files_of_the_queue(tmp_path):
    fill(tmp_path, 0)
    (tmp_path / str(SIZE)).mkdir()
    for other in ("x", f"{name(SIZE)}.delete", "-1", "9" * 20, "1" * 21, ""):
        if other:
            (tmp_path / other).write_bytes(b"short")
    assert starts(loaded(tmp_path)) == [0]


def test_a_folder_with_the_name_of_a_file(tmp_path):
    fill(tmp_path, 0)
    (tmp_path / name(SIZE)).mkdir()
    with pytest.raises(StoreIOError, match="Is a directory") as refused:
        loaded(tmp_path)
    assert (refused.value.errno, refused.value.filename) == (errno.EISDIR, str(tmp_path / name(SIZE)))


def test_names_of_fewer_digits(tmp_path):
    """RocketMQ parses a name as a number, whatever its length."""
    (tmp_path / "0").write_bytes(bytes(SIZE))
    (tmp_path / "1024").write_bytes(bytes(SIZE))
    queue = loaded(tmp_path)
    assert starts(queue) == [0, 1024]
    assert queue.files[1] == str(tmp_path / "1024")


def test_an_empty_last_file_is_deleted(tmp_path):
    fill(tmp_path, 0, SIZE)
    (tmp_path / name(2 * SIZE)).touch()
    queue = loaded(tmp_path)
    assert starts(queue) == [0, SIZE]
    assert sorted(os.listdir(tmp_path)) == [name(0), name(SIZE)]


@pytest.mark.parametrize("size", [0, 100])
def test_a_single_empty_file_determines_the_start_of_the_log(tmp_path, size):
    """The earlier files were deleted. From 0 on, new messages would reuse earlier offsets."""
    (tmp_path / name(3 * SIZE)).write_bytes(bytes(size))
    queue = loaded(tmp_path)
    assert (starts(queue), queue.max_offset) == ([3 * SIZE], 4 * SIZE)
    assert (tmp_path / name(3 * SIZE)).stat().st_size == SIZE


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1, 2 * SIZE])
def test_a_file_of_another_size(tmp_path, size):
    fill(tmp_path, 0, 2 * SIZE)
    fill(tmp_path, SIZE, size=size)
    with pytest.raises(StoreIOError, match=f"it has {size} bytes, but the log files have {SIZE}") as caught:
        loaded(tmp_path)
    assert caught.value.filename == str(tmp_path / name(SIZE))
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("start", [1, SIZE - 1, SIZE + 20])
def test_a_name_that_is_not_the_start_of_a_file(tmp_path, start):
    fill(tmp_path, start)
    with pytest.raises(StoreIOError, match="its name is not the offset"):
        loaded(tmp_path)


def test_missing_files_are_reported(tmp_path):
    fill(tmp_path, 0, SIZE, 4 * SIZE, 6 * SIZE)
    queue = loaded(tmp_path)
    assert queue.missing == [(2 * SIZE, 4 * SIZE), (5 * SIZE, 6 * SIZE)]
    assert queue.max_offset == 7 * SIZE
    for offset, first in [(0, 0), (SIZE, 1), (4 * SIZE, 4), (5 * SIZE - 1, 4), (6 * SIZE, 6)]:
        assert bytes(queue.select(offset, 1)) == bytes([first])
    for offset in (2 * SIZE, 3 * SIZE, 4 * SIZE - 1, 5 * SIZE, 7 * SIZE):
        assert queue.select(offset, 1) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every folder")
def test_a_folder_without_read_permission(tmp_path):
    (tmp_path / "log").mkdir(mode=0)
    with pytest.raises(StoreIOError, match="Permission"):
        loaded(tmp_path / "log")


def test_wrong_arguments(tmp_path):
    for size in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="1 to 2147483647"):
            MappedFileQueue([tmp_path], size)
    with pytest.raises(ValueError, match="needs at least one folder"):
        MappedFileQueue([], SIZE)
    with pytest.raises(TypeError):
        MappedFileQueue([5], SIZE)


# ------------------------------------------------------------------------------------------------ find


def test_find_by_offset(tmp_path):
    """MappedFileQueueTest: offsets inside, at the edges, and after the last file."""
    fill(tmp_path, *range(0, 4 * SIZE, SIZE))
    queue = loaded(tmp_path)
    for offset in (0, 100, SIZE - 1, SIZE, SIZE + 100, 2 * SIZE, 3 * SIZE + 100, 4 * SIZE - 1):
        view = queue.select(offset)
        assert view.start == offset
        assert bytes(view) == bytes([offset // SIZE]) * (SIZE - offset % SIZE)
    for offset in (4 * SIZE, 4 * SIZE + 100, -1, 1 << 62):
        assert queue.select(offset) is None


def test_a_queue_that_does_not_begin_at_zero(tmp_path):
    fill(tmp_path, SIZE)
    queue = loaded(tmp_path)
    assert bytes(queue.select(SIZE + 1, 2)) == b"\1\1"
    assert queue.select(0) is None
    assert queue.select(SIZE - 1) is None


def test_select_sizes(tmp_path):
    fill(tmp_path, 0, SIZE)
    queue = loaded(tmp_path)
    assert len(queue.select(10, 0)) == 0
    assert len(queue.select(10, SIZE - 10)) == SIZE - 10
    assert queue.select(10, SIZE - 9) is None  # never across two files
    assert queue.select(10, -1) is None


def test_find_by_time(tmp_path):
    """getMappedFileByTime: the first file modified at or after a time, otherwise the last."""
    fill(tmp_path, 0, SIZE, 2 * SIZE)
    for n in range(3):
        os.utime(tmp_path / name(n * SIZE), ns=(0, (n + 1) * 1_000_000_000))
    queue = loaded(tmp_path)
    found = [int(os.path.basename(queue.file_at_time(t))) // SIZE for t in (0, 1000, 1001, 2000, 3000, 3001)]
    assert found == [0, 0, 1, 1, 2, 2]


# ------------------------------------------------------------------------------------------------ create


def test_create(tmp_path):
    queue = loaded(tmp_path)
    for n in range(2):
        queue.create(n * SIZE)
    assert starts(queue) == [0, SIZE]
    assert os.path.getsize(queue.files[1]) == SIZE
    assert (queue.min_offset, queue.max_offset) == (0, SIZE)  # nothing is written in the second file
    with pytest.raises(StoreIOError, match="exists"):
        queue.create(SIZE)
    assert starts(queue) == [0, SIZE]


def test_several_folders(tmp_path):
    """File number n is created in folder n modulo the number of folders, sorted by name. All files are read."""
    folders = [tmp_path / c for c in "cab"]
    queue = MappedFileQueue(folders, SIZE)
    queue.make_folders()
    queue.load()
    for n in range(7):
        queue.create(n * SIZE)
    assert [os.path.basename(os.path.dirname(path)) for path in queue.files] == list("abcabca")
    assert starts(loaded(*folders)) == [n * SIZE for n in range(7)]
    fewer = loaded(*folders[1:])
    assert starts(fewer) == [n * SIZE for n in (0, 1, 3, 4, 6)]
    assert fewer.missing == [(2 * SIZE, 3 * SIZE), (5 * SIZE, 6 * SIZE)]


def test_changed_folders_apply_to_new_files_only(tmp_path):
    a, b, c = (tmp_path / name for name in "abc")
    queue = loaded(a, b)
    queue.make_folders()
    for n in range(4):
        queue.create(n * SIZE)
    queue = loaded(a, b, c)
    queue.make_folders()
    for n in range(4, 7):
        queue.create(n * SIZE)
    assert [os.path.basename(os.path.dirname(path)) for path in queue.files] == list("abab" + "bca")


@pytest.mark.parametrize("count", [1, 3, 7, 70])
def test_full_folders_are_avoided(tmp_path, count):
    """RocketMQ's rule: file n is in folder n modulo the number of usable folders, or of all if none is usable."""
    seen = random.Random(count)
    folders = [str(tmp_path / f"{i:02d}") for i in range(count)]
    queue = loaded(*folders)
    queue.make_folders()
    for n in range(60):
        avoided = seen.sample(folders[:63], seen.randint(0, min(count, 63)))
        queue.avoid([*avoided, str(tmp_path / "another")])
        left = [folder for folder in folders if folder not in avoided] or folders
        queue.create(n * SIZE)
        assert os.path.dirname(queue.files[-1]) == left[n % len(left)]
    assert starts(loaded(*folders)) == [n * SIZE for n in range(60)]


def test_read_only_folders(tmp_path):
    """Their files are read, but never written or deleted. New files are created in other folders."""
    old, new = tmp_path / "old", tmp_path / "new"
    fill(old, 0, 2 * SIZE)
    fill(new, SIZE, 3 * SIZE)
    queue = loaded(new, read_only=[old])
    assert starts(queue) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    queue.create(4 * SIZE)
    queue.create(5 * SIZE)
    assert len(os.listdir(old)) == 2
    assert queue.delete_expired(0, 1 << 60, immediately=True) == 0
    with pytest.raises(StoreIOError, match="read-only") as caught:
        queue.truncate(SIZE)
    assert caught.value.errno == errno.EROFS
    assert sorted(os.listdir(old)) == [name(0), name(2 * SIZE)]


def test_an_empty_last_file_of_a_read_only_folder_stays(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    fill(old, 0)
    (old / name(SIZE)).touch()
    with pytest.raises(StoreIOError, match="0 bytes"):
        loaded(new, read_only=[old])
    assert (old / name(SIZE)).exists()


def test_the_same_file_twice(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, 0)
    fill(b, 0)
    with pytest.raises(StoreIOError):
        loaded(a, b)


def test_make_folders(tmp_path):
    MappedFileQueue([tmp_path / "x" / "y", tmp_path / "z"], SIZE).make_folders()
    assert (tmp_path / "x" / "y").is_dir()
    assert (tmp_path / "z").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(StoreIOError):
        MappedFileQueue([tmp_path / "file" / "log"], SIZE).make_folders()


# ------------------------------------------------------------------------------------------------ truncate, delete


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, 1),
        (1, 1),
        (SIZE - 1, 1),
        (SIZE, 1),
        (SIZE + 1, 2),
        (3 * SIZE - 1, 3),
        (3 * SIZE, 3),
        (4 * SIZE, 4),
        (9 * SIZE, 4),
    ],
)
def test_truncate(tmp_path, offset, left):
    """Later files are deleted, and the file with the end is continued. Its bytes after the end stay unchanged."""
    fill(tmp_path, *range(0, 4 * SIZE, SIZE))
    queue = loaded(tmp_path)
    queue.truncate(offset)
    assert starts(queue) == [n * SIZE for n in range(left)]
    assert sorted(os.listdir(tmp_path)) == [name(n * SIZE) for n in range(left)]
    end = min(offset, 4 * SIZE)
    assert (queue.wrote, queue.flushed, queue.max_offset) == (end, end, end)
    assert queue.select(end) is None
    if end:
        assert bytes(queue.select(end - 1)) == bytes([(end - 1) // SIZE])
    assert all((tmp_path / name(n * SIZE)).read_bytes() == bytes([n]) * SIZE for n in range(left))


def test_truncate_before_the_first_file(tmp_path):
    fill(tmp_path, 2 * SIZE, 3 * SIZE)
    queue = loaded(tmp_path)
    queue.truncate(SIZE)
    assert queue.files == []
    assert (queue.min_offset, queue.max_offset, queue.wrote) == (-1, 0, 0)


def test_truncate_of_a_file_in_use(tmp_path):
    fill(tmp_path, 0, SIZE)
    queue = loaded(tmp_path)
    view = queue.select(SIZE)
    with pytest.raises(StoreIOError, match="still being read") as caught:
        queue.truncate(10)
    assert caught.value.errno == errno.EBUSY
    assert (tmp_path / name(SIZE)).exists()
    view.release()
    queue.truncate(10)
    assert starts(queue) == [0]


def expired(tmp_path, ages, **arguments):
    """Return how many files with ages in hours are deleted; the limit is one hour."""
    now = 10_000_000_000
    tmp_path.mkdir(exist_ok=True)
    fill(tmp_path, *range(0, len(ages) * SIZE, SIZE))
    for n, age in enumerate(ages):
        os.utime(tmp_path / name(n * SIZE), ns=(0, (now - age * 3_600_000) * 1_000_000))
    queue = loaded(tmp_path)
    deleted = queue.delete_expired(3_600_000, now, **arguments)
    assert starts(queue) == [n * SIZE for n in range(deleted, len(ages))]
    assert sorted(os.listdir(tmp_path)) == [name(start) for start in starts(queue)]
    return deleted


def test_delete_expired(tmp_path):
    """MappedFileQueueTest: of 50 files, 0-4 and 21-49 are old: the first newer file ends the deletion."""
    assert expired(tmp_path, [2] * 5 + [0] * 16 + [2] * 29) == 5


def test_delete_expired_stops_at_the_batch(tmp_path):
    assert expired(tmp_path, [2] * 15) == 10
    assert expired(tmp_path / "few", [2] * 15, batch=3) == 3


def test_delete_expired_keeps_the_last_file(tmp_path):
    assert expired(tmp_path, [2, 2, 2]) == 2
    assert expired(tmp_path / "one", [2]) == 0


def test_delete_expired_at_its_limit(tmp_path):
    assert expired(tmp_path, [1, 0]) == 1  # exactly this old


def test_delete_immediately(tmp_path):
    assert expired(tmp_path, [0] * 5, immediately=True) == 4


def test_delete_expired_stops_at_a_file_in_use(tmp_path):
    """The file is then shut down: it returns None to new readers, and is deleted after the release of the old one."""
    fill(tmp_path, 0, SIZE, 2 * SIZE)
    queue = loaded(tmp_path)
    view = queue.select(0)
    assert queue.delete_expired(0, 1 << 60) == 0
    assert queue.select(0) is None
    assert bytes(view) == bytes(SIZE)
    view.release()
    assert queue.delete_expired(0, 1 << 60) == 2
    assert queue.min_offset == 2 * SIZE


def test_select_after_others_were_deleted(tmp_path):
    fill(tmp_path, *range(0, 5 * SIZE, SIZE))
    queue = loaded(tmp_path)
    assert queue.delete_expired(0, 1 << 60, immediately=True, batch=2) == 2
    assert bytes(queue.select(4 * SIZE, 1)) == b"\4"
    assert queue.select(SIZE) is None


def test_a_file_that_was_cut_short(tmp_path):
    fill(tmp_path, 0)
    queue = loaded(tmp_path)
    os.truncate(tmp_path / name(0), 10)
    with pytest.raises(StoreIOError):
        queue.select(0)


# --------------------------------------------------------------------------------------------- files of other processes


def test_many_threads_find_deleted_files(tmp_path, monkeypatch):
    """A file that its owner has deleted is removed once, and no existing file is deleted."""
    fill(tmp_path, *range(0, 20 * SIZE, SIZE))
    queue = MappedFileQueue([tmp_path], SIZE, only_read=True)
    queue.load()
    really = os.path.exists

    def exists(path):
        found = really(path)
        time.sleep(0.001)  # give the other threads time to run
        return found

    monkeypatch.setattr(os.path, "exists", exists)
    for start in range(0, 8 * SIZE, SIZE):
        (tmp_path / name(start)).unlink()
    fill(tmp_path, *range(20 * SIZE, 30 * SIZE, SIZE))
    threads = [threading.Thread(target=queue.refresh) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert starts(queue) == list(range(8 * SIZE, 30 * SIZE, SIZE))
    assert sorted(os.listdir(tmp_path)) == [name(start) for start in range(8 * SIZE, 30 * SIZE, SIZE)]
