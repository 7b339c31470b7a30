"""rocketc salvage as users run it."""

import json
import os
import sys
from functools import partial

import pytest
from support import stores

import rocketc


@pytest.fixture
def call(run_here):
    return partial(run_here, "salvage")


@pytest.fixture
def rotten(tmp_path):
    return stores.unpack("v533-bitrot", tmp_path).path


def test_the_summary(call, rotten):
    code, out, err = call("v533-bitrot", "new")
    assert (code, err) == (1, "")
    names = [line.split()[0] for line in out.splitlines() if line[0] != " "]
    assert names == ["from", "made", "whole", "lost"]
    assert "1499 records" in out and "361670 to 361996" in out and "bad_body_crc" in out
    assert rocketc.verify("new").damage == []


def test_as_json(call, rotten):
    code, out, err = call("v533-bitrot", "new", "--json", "--compact")
    told = json.loads(out)
    assert (code, err) == (1, "")
    assert (told["path"], told["store"], told["isWhole"], told["messages"]) == ("v533-bitrot", "new", False, 1499)
    assert [(one["start"], one["stop"]) for one in told["lost"]] == [(361670, 361996)]
    assert told["map"] == os.path.abspath("new/salvage-map.jsonl") and os.path.exists(told["map"])
    assert all(os.path.getsize(os.path.join("new", one["path"])) == one["size"] for one in told["files"])


def test_dry_run(call, rotten, tmp_path):
    code, out, _ = call("v533-bitrot", "new", "--dry-run")
    assert code == 1 and "would make  new" in out and os.listdir(tmp_path) == ["v533-bitrot"]


def test_a_whole_store(call, tmp_path):
    store = stores.unpack("v497-broker", tmp_path)
    (tmp_path / "broker.conf").write_text("\n".join(f"{key}={value}" for key, value in store.about["config"].items()))
    code, out, err = call("v497-broker", "new", "--conf", "broker.conf")
    assert (code, err) == (0, "") and out.splitlines()[-1].split() == ["lost", "nothing"]
    assert (tmp_path / "new" / "config" / "topics.json").exists()


def test_a_loss_that_hides_others(call, rotten):
    with open(rotten / "commitlog" / f"{0:020d}", "r+b") as file:
        file.write(b"lost")
    assert "advice" in call("v533-bitrot", "new")[1]
    assert "advice" not in call("v533-bitrot", "other", "--compact")[1]


@pytest.mark.parametrize("place", ["v533-bitrot", "v533-bitrot/new", ".", "there"])
def test_wrong_usage(call, rotten, tmp_path, place):
    (tmp_path / "there").mkdir()
    code, out, err = call("v533-bitrot", place)
    assert (code, out) == (2, "") and err.startswith("rocketc salvage: ") and len(err.splitlines()) == 1


def test_nothing_to_read(call, tmp_path):
    assert call("nowhere", "new") == (3, "", "rocketc: nowhere: No such file or directory\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / f"{0:020d}").write_bytes(b"\xee" * 1000)
    code, out, err = call("old", "new")
    assert code == 1 and "0 records" in out and "nothing to read" in err and os.listdir(tmp_path) == ["old"]
    assert "map" not in call("old", "new", "--compact")[1]


def test_interrupted(call, rotten, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["rocketc.jobs.salvage"], "find", interrupt)
        code, out, err = call("v533-bitrot", "new")
    assert (code, out, err) == (130, "", "rocketc: interrupted: new.unfinished is kept; run the same command again\n")
    assert "1499 records" in call("v533-bitrot", "new")[1]


def test_the_end_of_the_log_is_lost(call, rotten):
    """A last file of zeros looks like an unused file, but the queues have units of its messages."""
    last = sorted((rotten / "commitlog").iterdir())[-1]
    last.write_bytes(bytes(last.stat().st_size))
    for more in ((), ("--compact",), ("--dry-run",)):
        code, out, _ = call("v533-bitrot", "new" + "".join(more), *more)
        assert code == 1 and "120 records after the end of the log, up to 639282" in " ".join(out.split())


def test_a_message_that_fits_into_no_queue(call, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / f"{0:020d}").write_bytes(rocketc.encode("a/b", b"x").ljust(4096, b"\0"))
    code, out, _ = call("old", "new")
    assert code == 1 and "1 record with an invalid topic or queue offset" in " ".join(out.split())


def test_a_single_file_and_a_destination_beside_it(call, rotten, tmp_path):
    (rotten / "commitlog" / "00000000000000327680").rename(tmp_path / "00000000000000327680")
    assert "160 records" in call("00000000000000327680", "new")[1]
    assert call("v533-bitrot/commitlog/00000000000000000000", "v533-bitrot/commitlog/new")[0] == 2


def test_progress_is_shown(call, rotten, monkeypatch):
    shown = []
    monkeypatch.setattr("rocketc.cli.output.SHOWN_AFTER", 0)
    monkeypatch.setattr("rocketc.cli.output._REDRAW_SECONDS", 0)
    monkeypatch.setattr("rocketc.cli.output._Bar._start", lambda bar: setattr(bar, "_move", shown.append))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    call("v533-bitrot", "new")
    assert shown == sorted(shown) and len(shown) > 10
