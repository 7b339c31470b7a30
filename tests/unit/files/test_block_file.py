"""BlockFile: whole units, skipped holes, and clear errors for unreadable files."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketc.errors import StoreIOError
from rocketc.files import block_file
from rocketc.files.block_file import BlockFile

PAGE = 1 << 16  # more than the page size of any file system


@given(
    st.binary(max_size=300),
    st.integers(1, 40),
    st.integers(0, 320),
    st.integers(0, 320),
    st.sampled_from([1, 50, 1000]),
)
def test_blocks_are_the_whole_units_of_a_range(tmp_path_factory, data, unit, start, stop, block):
    path = tmp_path_factory.mktemp("blocks") / "file"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch, BlockFile(path) as file:
        patch.setattr(block_file, "BLOCK_BYTES", block)
        found = list(file.blocks(start, stop, unit))
    assert all(0 < len(part) <= max(block, unit) and len(part) % unit == 0 for _, part in found)
    assert all(data[pos : pos + len(part)] == part and (pos - start) % unit == 0 for pos, part in found)
    whole = max(min(stop, len(data)) - start, 0) // unit * unit
    assert b"".join(part for _, part in found) == data[start : start + whole]


def sparse(path, size, *at):
    with open(path, "wb") as out:
        out.truncate(size)
        for pos in at:
            out.seek(pos)
            out.write(b"x")
    return path


def test_holes_are_skipped(tmp_path):
    path = sparse(tmp_path / "file", 1 << 40, 30 * PAGE, (1 << 39) + 7)
    if os.stat(path).st_blocks * 512 > 1 << 30:
        pytest.skip("a file system without holes")
    with BlockFile(path) as file:
        read = 0
        seen = []
        for pos, data in file.blocks(0, file.size, 20):
            read += len(data)
            seen += [pos + i for i, byte in enumerate(data) if byte]
            assert pos % 20 == 0
            if read > 64 << 20:
                break
        assert seen == [30 * PAGE, (1 << 39) + 7]
        assert read <= 8 << 20
        assert file.data_stop() == (1 << 39) + 8
        assert file.next_data(file.size) == file.size


@pytest.mark.parametrize("size", [0, 1, 100, (1 << 20) - 1, 1 << 20, (2 << 20) + 5])
def test_where_the_data_ends(tmp_path, size):
    path = tmp_path / "file"
    for used in {0, 1, size // 2, size - 1, size} & set(range(size + 1)):
        path.write_bytes(b"\1" * used + bytes(size - used))
        with BlockFile(path) as file:
            assert file.data_stop() == used


def test_a_file_cut_short_while_it_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with BlockFile(path) as file:
        os.truncate(path, 50)
        assert file.read(0, 50) == b"x" * 50
        with pytest.raises(StoreIOError, match="became shorter while it was read") as raised:
            list(file.blocks(0, file.size, 20))
        assert raised.value.filename == str(path)


def test_a_file_that_grows_is_read_up_to_its_earlier_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with BlockFile(path) as file, open(path, "ab") as more:
        more.write(b"y" * 100)
        more.flush()
        assert (file.size, file.read(90, 1000)) == (100, b"x" * 10)


def test_paths_that_are_not_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, text in (("none", "No such file"), (".", "Is a directory"), ("pipe", "not a regular file")):
        with pytest.raises(StoreIOError, match=text):
            BlockFile(tmp_path / name)
    with pytest.raises(TypeError):
        BlockFile(None)


def test_closing_twice(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    file = BlockFile(path)
    assert os.fstat(file.fileno()).st_size == 1
    file.close()
    file.close()
    with pytest.raises(StoreIOError, match="Bad file descriptor"):
        file.read(0, 1)
