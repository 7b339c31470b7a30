"""Settings that tools change are written to broker.conf: the lines of the changed keys, and no others."""

import asyncio
import os
import re
import stat

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from simulation.tools import play

from rocketc.broker import conf_file
from rocketc.broker.conf_file import ConfFile, changed_text
from rocketc.broker.config import read_broker_conf
from rocketc.config import properties
from rocketc.errors import StoreFullError
from rocketc.remoting.codes import Code
from rocketc.tables import table_file

OURS = "# brokerPermission=1\n! ours\n\nbrokerName = broker-b\nbrokerPermission=6\nfileReservedTime : 48\nstrange\n"


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("", {"a": "1"}, "a=1\n"),
        ("a=1", {"a": "2"}, "a=2"),
        ("a=1", {"b": "2"}, "a=1\nb=2\n"),
        ("a=1\r\nb=2\r\n", {"a": "3", "c": "4"}, "a=3\r\nb=2\r\nc=4\r\n"),
        ("a=1\rb=2", {"a": "3", "c": "4"}, "a=3\rb=2\rc=4\r"),
        ("  a \t= 1  \n", {"a": "2"}, "  a \t= 2\n"),
        ("a 1\n", {"a": "2"}, "a 2\n"),
        ("a: 1\n", {"a": "2"}, "a: 2\n"),
        ("a\n", {"a": "2"}, "a=2\n"),
        ("a=\n", {"a": "2"}, "a=2\n"),
        ("a=1\na=2\nb=a\n", {"a": "3"}, "a=1\na=3\nb=a\n"),  # of equal keys the last one counts
        ("#a=1\n!a=2\n", {"a": "3"}, "#a=1\n!a=2\na=3\n"),
        ("# a comment \\\na=1\n", {"a": "3"}, "# a comment \\\na=3\n"),  # a comment is not continued
        ("a=1,\\\n  2\nb=3\n", {"a": "4"}, "a=4\nb=3\n"),
        ("b=1\\\n# a=5\na=2\n", {"a": "4"}, "b=1\\\n# a=5\na=4\n"),  # the second line is a part of the value of b
        ("b=1\\\\\na=2\n", {"a": "4"}, "b=1\\\\\na=4\n"),
        ("b=1\\", {"a": "4"}, "b=1\\\n\na=4\n"),
        ("b=1\\\n", {"a": "4"}, "b=1\\\n\na=4\n"),
        ("a=1\nb=1\\\r", {"c": "4"}, "a=1\nb=1\\\r\rc=4\r"),  # a line feed after \r ends no line
        ("b=1\\\n", {"b": "4"}, "b=4\n"),
        ("\\u0061=1\n", {"a": "2"}, "\\u0061=2\n"),
        ("a\\=b=1\n", {"a": "2", "a=b": "3"}, "a\\=b=3\na=2\n"),
        ("a=\xe4\n", {"b": "\xe4\\ \u20ac"}, "a=\xe4\nb=\\u00e4\\\\\\u0020\\u20ac\n"),
    ],
)
def test_lines(text, changes, expected):
    found = changed_text(text, changes)
    assert dict(properties(found)) == {**dict(properties(text)), **changes}
    assert found == expected


LINES = st.lists(
    st.sampled_from(
        ["a=1", "a = 2 ", " b:3", "c", "", "# a=4", "!b=5", "d=6\\", "  7", "e 8", "a=9\\\\", "f=\\u0041", "\f"]
    )
)


def comments(text):
    return [line for line in re.split("\r\n|\r|\n", text) if line.startswith(("#", "!"))]


@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.dictionaries(st.sampled_from("abfx"), st.text()))
@example(["d=6\\"], "\n", False, {"a": "1"})
@example(["d=6\\"], "\n", True, {"a": "1"})
def test_all_other_lines_stay(lines, end, is_ended, changes):
    text = end.join(lines) + (end if is_ended else "")
    found, before = changed_text(text, changes), dict(properties(text))
    assert dict(properties(found)) == {**before, **changes}
    assert found.isascii() and changed_text(text, {}) == text
    assert comments(found) == comments(text) or "\\" in text


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "conf" / "broker.conf"
    path.parent.mkdir()
    path.write_text(OURS)
    return path


def test_the_file_keeps_its_permissions_and_its_link(path, tmp_path):
    path.chmod(0o640)
    link = tmp_path / "link.conf"
    link.symlink_to(path)
    conf = ConfFile(link)
    conf.change({"brokerPermission": "4"}, {})
    assert conf.changed and conf.persist() and not conf.changed
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_text() == OURS.replace("brokerPermission=6", "brokerPermission=4")
    assert (path.parent / "broker.conf.bak").read_text() == OURS
    assert not (path.parent / "broker.conf.tmp").exists()
    before = path.stat()
    conf.change({"brokerPermission": "4"}, {"fileReservedTime": "48", "deleteWhen": "04"})
    assert not conf.persist() and not conf.changed and path.stat().st_ino == before.st_ino  # it has them already
    assert not conf.persist()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_the_file_keeps_its_owner(path):
    os.chown(path, 1234, 4321)
    conf = ConfFile(path)
    conf.change({"brokerPermission": "4"}, {})
    assert conf.persist() and (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


def test_an_owner_that_it_may_not_set(path, monkeypatch):
    os.chown(path, 1234, 4321) if os.getuid() == 0 else None
    monkeypatch.setattr(table_file.os, "fchown", lambda *how: (_ for _ in ()).throw(PermissionError(1, "no")))
    conf = ConfFile(path)
    conf.change({"brokerPermission": "4"}, {})
    assert conf.persist()


@pytest.mark.parametrize("fault", ["full", "gone", "no properties"])
def test_a_change_that_cannot_be_written_waits(path, monkeypatch, fault):
    conf = ConfFile(path)
    conf.change({"brokerPermission": "4", "deleteWhen": "05"}, {"fileReservedTime": "72"})
    with monkeypatch.context() as patch:
        if fault == "full":
            patch.setattr(conf_file, "replace_file", lambda *how, **more: _full())
        elif fault == "gone":
            path.rename(f"{path}.away")
        else:
            path.write_text("a=\\u12")
        with pytest.raises((OSError, ValueError)):
            conf.persist()
    assert conf.changed
    conf.change({"deleteWhen": "06"}, {"brokerPermission": "4"})  # the newer one counts
    if fault == "gone":
        assert not path.exists()
    path.write_text(OURS)
    assert conf.persist()
    expected = OURS.replace("brokerPermission=6", "brokerPermission=4").replace(": 48", ": 72")
    assert path.read_text() == expected + "deleteWhen=06\n"


def _full():
    raise StoreFullError(28, "No space left on device", "broker.conf")


# in a broker


async def update(client, text):
    answer = await client.call(25, text.encode())
    return answer.code, answer.remark


def test_a_change_is_in_the_file_before_the_answer(memory_path, path):
    async def main(stage, client):
        assert await update(client, "brokerPermission=4\ndeleteWhen=05\nnothing=1") == (0, "not used here: nothing")
        changed = OURS.replace("brokerPermission=6", "brokerPermission=4") + "deleteWhen=05\n"
        assert path.read_text() == changed
        assert (await update(client, "brokerName=other"))[0] == Code.NO_PERMISSION
        assert (await update(client, "brokerPermission=x"))[0] == Code.SYSTEM_ERROR
        assert await update(client, "") == (0, None)
        assert path.read_text() == changed
        path.write_text(OURS)  # as a person may
        assert await update(client, "brokerPermission=4\nslaveReadEnable=false\nlistenPort=10911") == (0, None)
        assert path.read_text() == OURS.replace("brokerPermission=6", "brokerPermission=4")

    play(memory_path, main, conf=path)
    fields, store, _ = read_broker_conf(path)
    assert fields["broker_permission"] == 4 and store.file_reserved_time == 48


def test_a_file_that_cannot_be_written(memory_path, path, monkeypatch):
    async def main(stage, client):
        with monkeypatch.context() as patch:
            patch.setattr(conf_file, "replace_file", lambda *how, **more: _full())
            code, remark = await update(client, "brokerPermission=4")
            assert code == Code.SYSTEM_ERROR and "broker.conf is not written: No space left on device; " in remark
            assert stage.broker.config.broker_permission == 4 and path.read_text() == OURS
        for _ in range(100):
            if path.read_text() != OURS:
                break
            await asyncio.sleep(0.1)
        assert path.read_text() == OURS.replace("brokerPermission=6", "brokerPermission=4")

    play(memory_path, main, conf=path)


def test_a_change_that_waits_is_written_at_the_end(memory_path, path, monkeypatch):
    async def main(stage, client):
        with monkeypatch.context() as patch:
            patch.setattr(conf_file, "replace_file", lambda *how, **more: _full())
            assert (await update(client, "brokerPermission=4"))[0] == Code.SYSTEM_ERROR

    play(memory_path, main, conf=path)
    assert "brokerPermission=4" in path.read_text()
