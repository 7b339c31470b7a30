"""An export to a folder removes what an export wrote, listed in a manifest beside the folder, and nothing else."""

import json
import os
import shutil

import pytest

import rocketc
from rocketc.exports.manifest import files_in, manifest_of, read_manifest, remove_export

LOG = rocketc.encode("a", b"1") + rocketc.encode("b", b"2", phy_offset=93)
FORMATS = ["parquet", "jsonl"]


@pytest.fixture(params=FORMATS)
def lake(request, tmp_path):
    """A folder with partitions of the topics a and b."""
    rocketc.export(rocketc.decode(LOG), tmp_path / "lake", request.param, partition_by="topic")
    return tmp_path / "lake"


def again(lake, topics="a"):
    rocketc.export(rocketc.decode(LOG, topics=topics), lake, partition_by="topic", overwrite=True)


def everything(folder):
    return {path: (folder / path).lstat().st_ino for path, _ in files_in(folder)}


def add_file(lake):
    (lake / "topic=a" / "notes.txt").write_text("mine")
    return "topic=a/notes.txt"


def add_part(lake):
    (lake / "topic=a" / "part-9.parquet").write_text("mine")
    return "topic=a/part-9.parquet"


def add_partition(lake):
    (lake / "topic=c").mkdir()
    (lake / "topic=c" / "part-0.parquet").write_text("mine")
    return "topic=c/part-0.parquet"


def add_empty_folder(lake):
    (lake / "topic=c").mkdir()
    return "topic=c"


def add_at_the_top(lake):
    (lake / "thesis.tex").touch()
    return "thesis.tex"


def change_a_file(lake):
    [part] = (lake / "topic=b").iterdir()
    part.write_bytes(part.read_bytes() + b"mine")
    return f"topic=b/{part.name}"


def link_a_folder(lake):
    (lake.parent / "there").mkdir()
    (lake.parent / "there" / "x").touch()
    (lake / "topic=c").symlink_to(lake.parent / "there")
    return "topic=c"


def link_a_file(lake):
    [part] = (lake / "topic=b").iterdir()
    part.rename(lake.parent / "there")
    part.symlink_to(lake.parent / "there")
    return f"topic=b/{part.name}"


CHANGES = [
    add_file,
    add_part,
    add_partition,
    add_empty_folder,
    add_at_the_top,
    change_a_file,
    link_a_folder,
    link_a_file,
]


@pytest.mark.parametrize("change", CHANGES)
def test_foreign_files_are_named_and_nothing_is_removed(lake, change):
    name = change(lake)
    before = everything(lake)
    text = f"contains what no export wrote: {name}; move it, or export elsewhere"
    with pytest.raises(FileExistsError) as told:
        again(lake)
    assert (told.value.strerror, told.value.filename) == (text, str(lake))
    assert everything(lake) == before
    assert sorted(os.listdir(lake.parent))[:2] == [".lake.rocketc-export.json", "lake"]


def test_an_older_export_is_removed(lake):
    again(lake, "a")
    assert os.listdir(lake) == ["topic=a"]
    again(lake, "b")
    assert os.listdir(lake) == ["topic=b"] and sorted(os.listdir(lake.parent)) == [".lake.rocketc-export.json", "lake"]
    listed = json.loads((lake.parent / ".lake.rocketc-export.json").read_text())
    part = lake / "topic=b" / "part-0.parquet"
    assert listed == {"version": 1, "files": [{"path": "topic=b/part-0.parquet", "bytes": part.stat().st_size}]}


def test_many_foreign_files_are_counted(lake):
    for i in range(9):
        (lake / f"x{i}").touch()
    with pytest.raises(FileExistsError, match=r"wrote: x0, x1, x2, x3, x4 and 4 more; move it"):
        again(lake)


@pytest.mark.parametrize(
    "text", [None, "", "{broken", "[]", '{"version": 2, "files": []}', '{"version": 1, "files": [1]}']
)
def test_without_a_manifest_all_files_are_foreign(lake, text):
    path = lake.parent / ".lake.rocketc-export.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(FileExistsError, match=r"wrote: topic=a/part-0\.\w+, topic=b/part-0\.\w+; move it"):
        again(lake)
    assert len(everything(lake)) == 2


def test_a_manifest_that_is_a_pipe_does_not_block(lake):
    path = lake.parent / ".lake.rocketc-export.json"
    path.unlink()
    os.mkfifo(path)
    assert read_manifest(str(lake)) == set()


def test_a_manifest_cannot_name_files_outside_of_the_folder(lake):
    (lake.parent / "mine").write_text("mine")
    path = lake.parent / ".lake.rocketc-export.json"
    listed = json.loads(path.read_text())
    listed["files"] += [{"path": "../mine", "bytes": 4}, {"path": str(lake.parent / "mine"), "bytes": 4}]
    path.write_text(json.dumps(listed))
    again(lake)
    assert (lake.parent / "mine").read_text() == "mine"


def test_files_that_came_during_the_export_move_to_the_new_folder(lake, monkeypatch):
    """A file that another program adds after the last check is in the way of the renames, and stays."""
    rename = os.rename

    def late(source, target):
        if source == str(lake):
            add_file(lake)
            add_partition(lake)
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    again(lake, "a")
    assert sorted(path for path, _ in files_in(lake)) == [
        "topic=a/notes.txt", "topic=a/part-0.parquet", "topic=c/part-0.parquet"
    ]  # fmt: skip
    assert (lake / "topic=a" / "notes.txt").read_text() == "mine"
    with pytest.raises(FileExistsError, match=r"wrote: topic=a/notes.txt, topic=c/part-0.parquet; move it"):
        again(lake)


@pytest.mark.parametrize("when", ["before the renames", "between them", "after them"])
def test_a_killed_export_can_be_run_again(lake, monkeypatch, when):
    """The manifest is right for the old and the new folder, whenever the process is killed."""

    class Killed(BaseException):
        pass

    def kill(*_):
        monkeypatch.undo()
        monkeypatch.setattr("rocketc.exports.sinks.write_manifest", lambda *_: None)
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
        raise Killed

    rename, calls = os.rename, []

    def counted(source, target):
        calls.append(target)
        if len(calls) == (1 if when == "before the renames" else 2):
            kill()
        rename(source, target)

    if when == "after them":
        monkeypatch.setattr("rocketc.exports.sinks.remove_export", kill)
    else:
        monkeypatch.setattr(os, "rename", counted)
    with pytest.raises(Killed):
        again(lake, "a")
    monkeypatch.undo()
    again(lake, "b")
    assert os.listdir(lake) == ["topic=b"]


def test_a_long_name(tmp_path):
    lake = tmp_path / ("n" * 250)
    for _ in range(2):
        again(lake)
    assert len(os.path.basename(manifest_of(str(lake)))) < 100


def test_what_cannot_be_moved_is_kept(tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "both").write_text(name)
    remove_export(str(tmp_path / "old"), [], str(tmp_path / "new"))
    assert (tmp_path / "old" / "both").read_text() == "old" and (tmp_path / "new" / "both").read_text() == "new"
