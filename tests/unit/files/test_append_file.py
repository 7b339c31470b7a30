"""One mapped file: RocketMQ's DefaultMappedFile, and its MappedFileTest."""

import os

import pytest

from rocketc.errors import ClosedError, StoreIOError
from rocketc.files._append_file import PAGE_BYTES, AppendFile

pytestmark = pytest.mark.promise(3)

SIZE = 64 << 10


@pytest.fixture
def path(tmp_path):
    return tmp_path / "00000000000000000000"


def test_mapped_file(path):
    """MappedFileTest: append, select, a view that outlives the shutdown, destroy."""
    file = AppendFile(path, SIZE)
    text = b"This is test msg 0"
    assert file.append(text)
    view = file.select(0)
    assert bytes(view) == text
    assert view.start == 0
    assert not file.shutdown()
    assert file.select(0) is None
    assert not file.destroy()
    assert path.exists()
    assert bytes(view) == text
    view.release()
    assert file.shutdown()
    assert file.destroy()
    assert not path.exists()


def test_full_length_and_room(path):
    """The file has its length and its room on the disk before the first byte."""
    AppendFile(path, SIZE)
    assert path.stat().st_size == SIZE
    assert path.stat().st_blocks * 512 >= SIZE
    assert path.read_bytes() == bytes(SIZE)


def test_appends_move_wrote(path):
    file = AppendFile(path, SIZE)
    for n in range(1, 5):
        assert file.append(b"x" * 1000)
        assert file.wrote == n * 1000
    assert file.append(b"")
    assert file.wrote == 4000


def test_append_of_what_does_not_fit(path):
    """A byte too many: False, and nothing is written; exactly full is full."""
    file = AppendFile(path, 100)
    file.append(b"a" * 60)
    assert not file.append(b"b" * 41)
    assert file.wrote == 60
    assert not file.is_full
    assert file.append(b"b" * 40)
    assert file.is_full
    assert file.append(b"")
    assert not file.append(b"c")
    assert path.read_bytes() == b"a" * 60 + b"b" * 40


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:]])
def test_append_takes_bytes_like(path, data):
    file = AppendFile(path, 100)
    file.append(data)
    assert path.read_bytes()[:4] == b"abc\0"
    for wrong in ("abc", None, 5):
        with pytest.raises(TypeError):
            file.append(wrong)


def test_select(path):
    """[pos, pos + size) iff that was written; to the readable end without a size."""
    file = AppendFile(path, SIZE)
    assert file.select(0) is None
    file.append(b"0123456789")
    assert bytes(file.select(2, 3)) == b"234"
    assert bytes(file.select(9)) == b"9"
    assert bytes(file.select(0, 10)) == b"0123456789"
    assert bytes(file.select(10, 0)) == b""
    assert file.select(3, 3).start == 3
    for pos, size in [(10, None), (0, 11), (9, 2), (11, 0), (-1, 1), (-1, None), (0, -1), (1 << 62, 1)]:
        assert file.select(pos, size) is None


def test_the_name_is_the_start(tmp_path):
    file = AppendFile(tmp_path / "00000000000000065536", SIZE)
    file.append(b"abc")
    assert file.select(1).start == 65537
    with pytest.raises(ValueError, match="invalid literal"):
        AppendFile(tmp_path / "name", SIZE)
    assert os.listdir(tmp_path) == ["00000000000000065536"]


def test_a_view_is_released_once(path):
    file = AppendFile(path, SIZE)
    file.append(b"abc")
    with file.select(0) as view:
        memory = memoryview(view)
        with pytest.raises(BufferError, match="1 memoryviews"):
            view.release()
        assert memory.readonly
        assert bytes(memory) == b"abc"
        memory.release()
    view.release()
    with pytest.raises(ClosedError):
        memoryview(view)
    assert file.shutdown()  # released twice, counted once


def test_views_outlive_their_file(path):
    """The object is gone, the file deleted: the map stays until the last view."""
    file = AppendFile(path, SIZE)
    file.append(b"abc")
    view = file.select(0)
    del file
    path.unlink()
    assert bytes(view) == b"abc"


def test_a_file_that_is_shut_down(path):
    file = AppendFile(path, SIZE)
    file.append(b"abc")
    assert file.shutdown()
    assert file.shutdown()
    for call in (lambda: file.append(b"x"), file.flush, file.commit):
        with pytest.raises(ClosedError, match="shut down"):
            call()
    assert file.select(0) is None
    assert file.destroy()
    assert file.destroy()  # a file that is gone is deleted


@pytest.mark.parametrize(
    ("wrote", "flushed", "least_pages", "moves"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (1, 0, 1, False),
        (PAGE_BYTES - 1, 0, 1, False),
        (PAGE_BYTES, 0, 1, True),
        (2 * PAGE_BYTES - 1, PAGE_BYTES - 1, 1, True),  # pages are counted from the file's start
        (2 * PAGE_BYTES - 1, PAGE_BYTES, 1, False),
        (4 * PAGE_BYTES - 1, 0, 4, False),
        (4 * PAGE_BYTES, 0, 4, True),
        (SIZE, SIZE - 1, 4, True),  # a full file always
        (SIZE, SIZE, 0, False),
    ],
)
def test_least_pages(path, wrote, flushed, least_pages, moves):
    """As RocketMQ's isAbleToFlush and isAbleToCommit."""
    for buffer in (False, True):
        file = AppendFile(path, SIZE, buffer=buffer)
        file.append(bytes(flushed))
        file.commit()
        assert file.flush() == flushed
        file.append(bytes(wrote - flushed))
        file.commit()
        assert file.flush(least_pages) == file.flushed == (wrote if moves else flushed)
        file.destroy()


def test_buffer(path):
    """What is in the buffer is readable once it is committed."""
    file = AppendFile(path, SIZE, buffer=True)
    assert file.append(b"abc")
    assert (file.wrote, file.committed, file.flushed) == (3, 0, 0)
    assert file.select(0) is None
    assert file.flush() == 0
    assert path.read_bytes()[:3] == bytes(3)
    assert file.commit() == 3
    assert (file.wrote, file.committed, file.flushed) == (3, 3, 0)
    assert bytes(file.select(0)) == b"abc"
    file.append(b"def")
    assert bytes(file.select(0)) == b"abc"
    assert file.commit() == 6
    assert file.commit() == 6
    assert file.flush() == 6
    assert path.read_bytes()[:7] == b"abcdef\0"


def test_without_a_buffer_commit_has_nothing_to_do(path):
    file = AppendFile(path, SIZE)
    file.append(b"abc")
    assert file.commit() == 3


def test_a_file_that_is_there(path):
    path.write_bytes(b"mine")
    with pytest.raises(StoreIOError, match="exists") as caught:
        AppendFile(path, SIZE)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"mine"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StoreIOError, match="No such file"):
        AppendFile(tmp_path / "no" / "0", SIZE)


@pytest.mark.parametrize("size", [0, -1, 1 << 31])
def test_sizes_that_no_file_has(path, size):
    with pytest.raises(ValueError, match="1 to 2147483647"):
        AppendFile(path, size)
    assert not path.exists()


def test_a_file_that_somebody_cuts_short(path):
    """An append to pages that are gone is an error, and so is a flush: msync of them succeeds."""
    file = AppendFile(path, SIZE)
    file.append(b"abc")
    os.truncate(path, 0)
    with pytest.raises(StoreIOError):
        file.append(b"def")
    assert file.wrote == 3
    with pytest.raises(StoreIOError):
        file.flush()
    assert file.flushed == 0


def test_a_file_cut_between_append_and_flush(path):
    file = AppendFile(path, SIZE)
    file.append(bytes(10000))
    os.truncate(path, 5000)
    with pytest.raises(StoreIOError):
        file.flush()
    assert file.flushed == 0
