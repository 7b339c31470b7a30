"""Files that the owner of a store deletes between their listing and their opening are not damage for a command."""

import os
import shutil

import pytest
from support.derived import SMALL, fill

import rocketc
from rocketc.files import paths
from rocketc.jobs import file_kinds, inventory, verify
from rocketc.read import scan

OF_THE_LOG = ("verify", "info", "stats", "cat")


@pytest.fixture
def root(open_store, tmp_path):
    fill(open_store(**SMALL))
    return tmp_path


@pytest.fixture
def delete_listed(monkeypatch):
    """Delete files of the log, by their numbers, after a command has listed them for the first time."""

    def arrange(*numbers):
        left = [True]

        def resolve(path, *more):
            logs = paths.resolve(path, *more)
            if left.pop() if left else False:
                for number in numbers:
                    os.unlink(logs[0].files[number].path)
            return logs

        for module in (scan, inventory, verify):
            monkeypatch.setattr(module, "resolve", resolve)

    return arrange


@pytest.mark.parametrize("command", OF_THE_LOG)
def test_a_command_continues_after_deleted_files(root, run, delete_listed, command):
    files = sorted(os.listdir(root / "commitlog"))
    delete_listed(0, 1)
    code, out, err = run(command, root)
    end = int(files[2])
    note = f"rocketc: physical offsets 0 to {end}: deleted by the owner of the store during this command; "
    assert (code, err) == (0, f"{note}the rest was read\n") and out
    assert run(command, root)[0::2] == (0, "")


@pytest.mark.parametrize("command", OF_THE_LOG)
def test_a_file_that_is_missing_after_others_is_an_error(root, run, delete_listed, command):
    delete_listed(1)
    code, out, err = run(command, root)
    assert code != 0 and "No such file or directory" in out + err


@pytest.mark.parametrize("command", OF_THE_LOG)
def test_a_command_lists_again_if_the_last_file_was_deleted(root, run, monkeypatch, command):
    listed = []

    def resolve(path, *more):
        logs = paths.resolve(path, *more)
        listed.append(logs[0].files[-1])
        if len(listed) == 1:
            new = root / "commitlog" / f"{logs[0].files[-1].next_base + (1 << 20):020d}"
            data = rocketc.encode("new", b"x", phy_offset=int(new.name), store_timestamp=1 << 41)
            new.write_bytes(data.ljust(8 << 10, b"\0"))
            for file in (root / "commitlog").iterdir():
                if file != new:
                    file.unlink()
        return logs

    if command == "verify":  # the queue of the new message
        for name in ("consumequeue", "index", "checkpoint"):
            shutil.rmtree(root / name) if name != "checkpoint" else (root / name).unlink()
    for module in (scan, inventory, verify):
        monkeypatch.setattr(module, "resolve", resolve)
    code, out, err = run(command, root)
    assert code == 0 and ("new" in out if command in ("stats", "cat") else listed[-1].path[-20:] in out)
    assert "checked  1 record " in out or command != "verify"
    assert 0 < err.count("deleted by the owner of the store") == len(err.splitlines())


def test_scan_reports_deleted_files(root):
    found = rocketc.scan(root)
    first, second = found.logs[0].files[:2]
    os.unlink(first.path)
    assert min(message.phy_offset for message in found) == second.base
    assert found.report.deleted == [(0, second.base)] and found.report.missing == []
    with pytest.raises(rocketc.StoreIOError):  # this file was asked for, not what the store has
        list(rocketc.scan(first))


def test_following_continues_after_deleted_files(root):
    found = rocketc.scan(root)
    first, second = found.logs[0].files[:2]
    os.unlink(first.path)
    assert next(found.follow()).phy_offset == second.base
    assert found.report.deleted == [(0, second.base)]


def test_the_report_of_verify(root, monkeypatch):
    """Queue offsets before the deleted files are left out, and so are the units of their records."""
    files = paths.resolve(root)[0].files
    listed = [files]

    def resolve(path):
        logs = paths.resolve(path)
        if listed and listed.pop():
            for file in files[:3]:
                os.unlink(file.path)
        return logs

    monkeypatch.setattr(verify, "resolve", resolve)
    report = rocketc.verify(root)
    assert report.is_whole and report.deleted == [(0, files[3].base)] == [(0, report.to_dict()["deleted"][0]["stop"])]
    assert [file.end for file in report.files[:4]] == ["deleted"] * 3 + ["closed"]
    assert report.derived.units == report.records > 0


@pytest.mark.parametrize("folder", ["consumequeue/T0/0", "index"])
@pytest.mark.parametrize("command", ["cat", "info"])
def test_files_of_queues_and_index(root, run, monkeypatch, folder, command):
    files = sorted((root / folder).iterdir())
    assert len(files) > 2
    listing = file_kinds._names

    def names(path):
        listed = listing(path)
        for name in listed[:2] if path == str(root / folder) else ():
            os.unlink(os.path.join(path, name))
        return listed

    monkeypatch.setattr(file_kinds, "_names", names)
    code, out, err = run(command, root / folder)
    assert code == 0 and out
    assert err == "".join(
        f"rocketc: {file}: deleted by the owner of the store during this command; the rest was read\n"
        for file in files[:2]
    )
