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


def test_full_length_and_disk_space(path):
    """The file has its full length and disk space before the first byte is written."""
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


def test_append_beyond_the_end(path):
    """One byte too many: False, and nothing is written. An append that fills the file exactly succeeds."""
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
    """[pos, pos + size) if it has been written; up to the end of the readable bytes without a size."""
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
    """The object is gone and the file is deleted: the map stays until the last view is released."""
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
    assert file.destroy()  # a file that is shut down can be deleted


@pytest.mark.parametrize(
    ("wrote", "flushed", "least_pages", "moves"),
    [
        (0, 0, 0, False),
        (1, 0, 0, True),
        (1, 0, 1, False),
        (PAGE_BYTES - 1, 0, 1, False),
        (PAGE_BYTES, 0, 1, True),
        (2 * PAGE_BYTES - 1, PAGE_BYTES - 1, 1, True),  # pages are counted from the start of the file
        (2 * PAGE_BYTES - 1, PAGE_BYTES, 1, False),
        (4 * PAGE_BYTES - 1, 0, 4, False),
        (4 * PAGE_BYTES, 0, 4, True),
        (SIZE, SIZE - 1, 4, True),  # a full file is always flushed
        (SIZE, SIZE, 0, False),
    ],
)
def test_least_pages(path, wrote, flushed, least_pages, moves):
    """The rule of RocketMQ's isAbleToFlush and isAbleToCommit."""
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
    """Bytes in the buffer can be read after the commit."""
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


def test_an_existing_file(path):
    path.write_bytes(b"mine")
    with pytest.raises(StoreIOError, match="exists") as caught:
        AppendFile(path, SIZE)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"mine"


def test_a_missing_folder(tmp_path):
    with pytest.raises(StoreIOError, match="No such file"):
        AppendFile(tmp_path / "no" / "0", SIZE)


@pytest.mark.parametrize("size", [0, -1, 1 << 31])
def test_wrong_sizes(path, size):
    with pytest.raises(ValueError, match="1 to 2147483647"):
        AppendFile(path, size)
    assert not path.exists()


def test_a_file_that_another_process_cuts_short(path):
    """An append to pages that have been cut off is an error, and so is a flush, although msync succeeds."""
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
