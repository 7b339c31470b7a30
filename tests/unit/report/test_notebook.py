"""The library in a notebook and in an interactive session: complete, small and safe HTML; a repr of each class."""

import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rocketc
from rocketc.report.notebook import html
from rocketc.report.summaries import rebuild_lines, salvage_lines, verify_lines
from rocketc.report.tables import facts, render

SMALL = {"mapped_file_size_commit_log": 1 << 16}


class Whole(HTMLParser):
    """An HTML parser: every tag must be closed, be one of a few, and refer to no other resource."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in {"div", "table", "tr", "th", "td", "span"}
        assert {name for name, _ in attrs} <= {"style"}
        assert not any("url" in value for _, value in attrs)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.rows and self.open[-1] != "div":
            self.rows[-1][-1] += data


def rows(thing):
    """Return the rows of the tables: lists of texts."""
    text = thing._repr_html_()
    assert text == html(thing)
    return Whole(text).rows


def same_as(lines):
    """Return the output of the command line for these lines, without spaces."""
    return re.sub(r"\s", "", render([facts(lines)], False))


def joined(found):
    return re.sub(r"\s", "", "".join(cell for row in found for cell in row))


def test_reports_are_as_on_the_command_line(golden, tmp_path):
    damaged = golden("v533-bitrot").path
    report = rocketc.verify(damaged)
    found = rows(report)
    assert joined(found).startswith(same_as(verify_lines((), report, False)))
    assert ["file", "size", "records", "state"] in found
    assert "color:#e0493b" in html(report)  # damage is red

    saved = rocketc.salvage(damaged, tmp_path / "saved")
    assert joined(rows(saved)) == same_as(salvage_lines(None, None, saved, False))
    made = rocketc.rebuild(tmp_path / "saved")
    assert joined(rows(made)) == same_as(rebuild_lines(None, None, made, False))


def test_cleaning(open_store):
    store = open_store(mapped_file_size_commit_log=1 << 12)
    store.put_many("t", [bytes(1000)] * 20)
    store.wait_dispatched()
    found = rows(store.clean(expired_ms=-1))
    assert ["size", "changed", "why", "file"] in found
    assert any(row[0] == "deleted" for row in found)
    assert any(row[:2] == ["deleted", "nothing"] for row in rows(store.clean(expired_ms=1 << 40)))


def test_scans(golden, tmp_path):
    scan = rocketc.scan(golden("v533-bitrot").path, topics=["CrashB"], errors="skip")
    before = rows(scan)
    assert ["topics", "['CrashB']"] in before and ["errors", "'skip'"] in before
    assert any("nothing yet" in row[1] for row in before)
    count = scan.count()
    assert any(row[1].startswith(f"{count} messages") for row in rows(scan))
    assert any("bad_body_crc" in row[1] for row in rows(scan.report))
    written = rocketc.export(scan, tmp_path / "x.jsonl")
    assert rows(written)[0][1].startswith(f"{count} messages to {tmp_path / 'x.jsonl'}")


def test_a_store(open_store):
    store = open_store()
    store.put_many("orders", [b"x"] * 1234)
    store.flush()
    store.wait_dispatched()
    assert ["orders", "1", "1,234"] in rows(store)
    reader = rocketc.open(store.path, read_only=True)
    assert ["orders", "1", "1,234"] in rows(reader)
    assert ["state", "open for reading only"] in rows(reader)
    reader.close()
    store._hook("fail", 5)
    assert rows(store)[-3][0] == "failed" or any(row[0] == "failed" for row in rows(store))
    with pytest.raises(rocketc.StoreFailedError):
        store.close()
    assert rows(store) == [["store", store.path], ["state", "closed"]]


def test_messages(open_store):
    store = open_store()
    store.put("orders", b"<b>one</b>", tags="a", keys="k")
    store.put_many("orders", [b"\xff" * 1000] * 99)
    store.wait_dispatched()
    got = store.get("orders", max_count=100)
    found = rows(got)
    assert ["status", "FOUND"] in found and ["queue", "offsets 0 to 100; continue at 100"] in found
    [one] = [row for row in found if "orders/0@0" in row]
    assert one[1:] == ["orders/0@0", "a", "k", "10", "<b>one</b>"]
    assert len(found) < 40 and found[-1][-2:] == ["1,000", 60 * "\ufffd" + " ..."]
    assert ["found", "1 record"] in rows(store.query("orders", "k"))
    assert rows(store.get("orders", offset=100))[0] == ["status", "OFFSET_OVERFLOW_ONE"]
    views = store.get("orders", views=True, max_count=2)
    messages = views.messages
    assert messages and rows(views)[-1][-1].startswith("\ufffd")
    views.release()
    assert any("released" in row[-1] for row in rows(views))


def test_names_from_a_disk_are_escaped(open_store):
    """A queue folder may have any name: the name is shown as text, without bytes that a page cannot contain."""
    store = open_store()
    store.put("abc", b"x")
    store.close()
    evil = b"<script>a('&\xff\")"
    os.rename(os.fsencode(store.path) + b"/consumequeue/abc", os.fsencode(store.path) + b"/consumequeue/" + evil)
    with rocketc.open(store.path, read_only=True) as reader:
        text = reader._repr_html_()
        found = rows(reader)
    text.encode()
    assert "<script" not in text
    assert ["<script>a('&\\udcff\")", "1", "1"] in found


def test_long_lists_are_shortened(open_store, tmp_path):
    """The HTML stays small: of many topics, files or damaged ranges only the first and the last are shown."""
    store = open_store()
    for n in range(1500):
        store.put(f"topic-{n % 60}", b"x")
    store.flush()
    store.wait_dispatched()
    assert len(rows(store)) < 40
    assert any("more" in row[0] for row in rows(store))
    assert len(store._repr_html_()) < 30_000
    log = Path(store.path, "commitlog")
    copy = tmp_path / "copy"
    shutil.copytree(log, copy)
    for file in copy.iterdir():
        data = bytearray(file.read_bytes())
        for at in range(50, len(data), 300):
            data[at] ^= 0xFF
        file.write_bytes(data)
    report = rocketc.verify(copy)
    assert len(report.damage) > 50
    assert len(report._repr_html_()) < 30_000


def test_other_objects_cannot_be_shown():
    with pytest.raises(TypeError, match="int: there is no HTML form of this type"):
        html(1)


# ------------------------------------------------------------------------------------------------------- repr


@pytest.fixture
def things(open_store, open_queue, tmp_path, golden):
    """One object of each public class, and the results of their methods. The messages have bodies of 1 MB."""
    store = open_store(tmp_path / "store", mapped_file_size_commit_log=4 << 20)
    put = store.put("orders", b"\xff" * (1 << 20), keys="k", tags="a")
    future = store.put_async("orders", b"\xff" * (1 << 20))
    store.flush()
    store.wait_dispatched()
    scan = rocketc.scan(store.path)
    batch = next(rocketc.scan(store.path).run(None).batches())
    got = store.get("orders")
    news = store.subscribe()
    queue = open_queue(tmp_path / "jobs")
    queue.put(b"\xff" * 1_000_000)
    damaged = golden("v533-bitrot").path
    report = rocketc.verify(damaged)
    found = [
        batch, queue, report.damage[0], rocketc.export(scan, tmp_path / "x.jsonl"), report.files[0], queue.get(),
        got.messages[0], store, rocketc.decode_offset_id(put.msg_id), put, report.missing_offsets[0],
        rocketc.salvage(damaged, tmp_path / "saved"), rocketc.rebuild(tmp_path / "saved"), scan, scan.report,
        store.config, rocketc.decode_unique_id("7F000001AB12CD34EF560000000017C2"), report,
        got, store.query("orders", "k"), future, store.clean(), store.create_topic("t"),
        store.get_raw("orders"), news, rocketc.QueueChange("orders", 0, 2, [0]),
    ]  # fmt: skip
    return found


def test_each_public_class_has_its_own_repr(things):
    classes = {getattr(rocketc, name) for name in rocketc.__all__}
    kinds = {one for one in classes if isinstance(one, type) and not issubclass(one, (Exception, Warning, int))}
    assert kinds - {type(thing) for thing in things} == {
        rocketc.Broker,
        rocketc.Consumer,
        rocketc.Cleaned,
        rocketc.OldestKept,
        rocketc.ReplicaProgress,
        rocketc.Replication,
    }  # Queue is one of them
    for thing in things:
        assert " object at 0x" not in repr(thing), type(thing)
        assert len(repr(thing)) < 6000, type(thing)
        assert str(thing)


def test_a_repr_works_after_close(things, open_store):
    for thing in things:
        for end in ("release", "close"):
            if hasattr(thing, end):
                getattr(thing, end)()
    for thing in things:
        assert repr(thing)
    assert "closed" in repr(things[7])
    assert "done" in repr(things[20])


def test_the_contents_of_a_repr(open_store, golden):
    path = golden("v533-bitrot").path
    assert repr(rocketc.scan(path, topics=["CrashA"], errors="skip")) == (
        f"<rocketc.Scan of {path}, {rocketc.scan(path).bytes} bytes in 10 files, topics=['CrashA'], errors='skip'>"
    )
    assert repr(rocketc.decode(b"", file="x")) == "<rocketc.Scan of x, 0 bytes>"
    assert repr(rocketc.scan("file://" + str(path), keys=["a" * 200])).endswith(" ...>")
    store = open_store()
    store._hook("fail", 5)
    assert repr(store).endswith(", async, failed>")


def test_the_repr_of_a_message_whose_view_was_released(open_store):
    store = open_store()
    store.put("orders", b"\x00" * 100)
    store.wait_dispatched()
    result = store.get("orders", views=True)
    [message] = result.messages
    assert "<100 bytes>" in repr(message)
    result.release()
    assert re.search("^<Message orders/0@0 .*not readable.*released", repr(message))
