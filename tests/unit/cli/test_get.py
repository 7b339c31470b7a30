"""rocketc get: one message in full, by its offset, id or key; and the error if there is no such message."""

import json
import os
import sys
from functools import partial

import pytest
from support import oracle, stores
from support.command import GrowingLog, Terminal, on_terminal, rocketc, start

import rocketc as package
from rocketc.cli import output

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def get(run):
    """get(*args): run the command in this process. Return exit code, stdout, stderr."""
    return partial(run, "get")


@pytest.fixture
def found(get):
    """found(*args): the messages of --json, as dicts; there must be at least one."""

    def run(*args):
        code, out, err = get("--json", *args)
        assert (code, err) == (0, ""), err
        return [json.loads(line) for line in out.splitlines()]

    return run


@pytest.fixture
def log(tmp_path):
    """A store of three files of 1 KiB with messages of about 120 bytes."""
    log = GrowingLog(tmp_path / "store" / "commitlog", file_size=1024)
    log.places = []
    for n in range(18):
        unique = "0A0000010A3C18B4AAC22D1F876C%04X" % n
        properties = {"KEYS": f"k{n % 3} even" if n % 2 == 0 else f"k{n % 3}", "UNIQ_KEY": unique, "TAGS": "a"}
        fields = {"store_timestamp": T0 + n, "store_host": ("10.0.0.7", 10911), "properties": properties}
        log.places.append(log.append("orders" if n % 2 else "audit", b"body %d" % n, **fields))
    return log


def sample(items):
    """Return about forty items, including the first and the last."""
    return [*items[:: max(len(items) // 40, 1)], items[-1]]


# ---------------------------------------------------------------- golden stores


@pytest.mark.parametrize("name", stores.WHOLE)
def test_golden_messages_by_offset_and_by_id(golden, found, name):
    store = golden(name)
    scanned = {m.phy_offset: [] for m in package.scan(store.path)}
    for message in package.scan(store.path):
        scanned[message.phy_offset].append(json.loads(message.to_json()))
    for record in sample(store.messages):
        by_offset = found(store.path, "--phy-offset", record["phyOffset"])
        assert by_offset == scanned[record["phyOffset"]]
        assert found(store.path, "--id", record["msgId"].lower()) == by_offset
        first = by_offset[0]
        assert (first["topic"], first["queueId"]) == (record["topic"], record["queueId"])
        assert (first["queueOffset"], first["msgId"]) == (record["queueOffset"], record["msgId"])
        assert (first["storeTimestamp"], first["bodyCRC"]) == (record["storeTimestamp"], record["bodyCRC"])


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker"])
def test_golden_messages_by_key_and_by_unique_id(golden, found, name):
    path = golden(name).path
    messages = list(package.scan(path))
    for message in sample(messages)[::4]:
        properties = message.properties
        for key in (message.keys or "").split()[:1]:
            expected = [m for m in messages if key in (m.keys or "").split() or m.properties.get("UNIQ_KEY") == key]
            assert found(path, "--key", key) == [json.loads(m.to_json()) for m in expected]
        if "UNIQ_KEY" in properties:
            unique = properties["UNIQ_KEY"]
            expected = [m for m in messages if m.properties.get("UNIQ_KEY") == unique]
            assert found(path, "--id", unique.lower()) == [json.loads(m.to_json()) for m in expected]


def test_an_inner_batch_is_printed_as_its_messages(golden, get, found):
    path = golden("v533-broker").path
    inner = [m for m in package.scan(path) if m.topic == "Inner"]
    whole = [m for m in inner if m.phy_offset == inner[0].phy_offset]
    assert len(whole) > 1
    assert found(path, "--phy-offset", inner[0].phy_offset) == [json.loads(m.to_json()) for m in whole]
    assert found(path, "--phy-offset", inner[0].phy_offset, "-c", 1) == [json.loads(whole[0].to_json())]
    [one] = found(path, "--key", whole[1].properties["UNIQ_KEY"], "-t", "Inner", "-c", 1)
    assert one == json.loads(whole[1].to_json()) or one["properties"]["UNIQ_KEY"] == whole[1].properties["UNIQ_KEY"]


# ---------------------------------------------------------------- in full


def test_all_fields_for_people(log, get):
    code, out, err = get(log.folder.parent, "--phy-offset", log.places[2])
    assert (code, err) == (0, "")
    assert (
        out
        == f"""\
topic             audit
queue             0, offset 1
message id        0A00000700002A9F{log.places[2]:016X}
physical offset   {log.places[2]}
stored            2023-11-14T22:13:20.002Z ({T0 + 2}) by 10.0.0.7:10911
born              1970-01-01T00:00:00.000Z (0) at 127.0.0.1:0
keys              k2 even
tags              a
flag              0
system flag       0x0
reconsume times   0
prepared offset   0
body CRC          {oracle.crc32(b"body 2")} (0x{oracle.crc32(b"body 2"):08X})
record            164 bytes, V1
file              {log.folder}/00000000000000000000
properties
  KEYS      k2 even
  UNIQ_KEY  0A0000010A3C18B4AAC22D1F876C0002
  TAGS      a
body, 6 bytes
  body 2
"""
    )


def write(tmp_path, *records):
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"".join(records) + bytes(100))
    return path


def test_bodies_for_people(tmp_path, get):
    binary = bytes(range(240, 256)) + b"hello, world 123"
    path = write(tmp_path, package.encode("t", binary))
    _, out, _ = get(path, "--phy-offset", 0)
    assert out.endswith(
        "body, 32 bytes\n"
        "  00000000  f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 fa fb fc fd fe ff  ................\n"
        "  00000010  68 65 6c 6c 6f 2c 20 77 6f 72 6c 64 20 31 32 33  hello, world 123\n"
    )
    assert max(map(len, out.splitlines()[-3:])) <= 80
    _, out, _ = get(path, "--phy-offset", 0, "--body", "hex")
    assert out.endswith(f"body, 32 bytes\n  {binary.hex()}\n")
    _, out, _ = get(path, "--phy-offset", 0, "--body", "none")
    assert "body, " not in out
    _, out, _ = get(write(tmp_path, package.encode("t", b"\xff" * 300)), "--phy-offset", 0)
    assert out.endswith("  000000f0" + "  " + " ".join(["ff"] * 16) + "  " + "." * 16 + "\n"
                        "  ... 44 more bytes; use --body hex to see all\n")  # fmt: skip
    _, out, _ = get(write(tmp_path, package.encode("t", "zwei\nZeilen é\x1b[31m".encode())), "--phy-offset", 0)
    assert out.endswith("body, 19 bytes\n  zwei\n  Zeilen é\\x1b[31m\n")
    _, out, _ = get(write(tmp_path, package.encode("t", b"")), "--phy-offset", 0)
    assert out.endswith("body, 0 bytes\n")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (0x2, "0x2 (several tags)"),
        (0x4, "0x4 (prepared transaction)"),
        (0x8, "0x8 (committed transaction)"),
        (0xE, "0xE (rolled back transaction, several tags)"),
        (0x40, "0x40 (to unwrap)"),
        (-(1 << 31), "0x80000000"),
    ],
)
def test_system_flags_are_explained(tmp_path, get, flag, words):
    _, out, _ = get(write(tmp_path, package.encode("t", b"", sys_flag=flag)), "--phy-offset", 0)
    assert f"\nsystem flag       {words}\n" in out


def test_compressed_bodies_are_decompressed(golden, get):
    path = golden("v533-broker").path
    kinds = {}
    for m in package.scan(path):
        if m.sys_flag & 1:
            kinds.setdefault(m.sys_flag >> 8 & 7, m)
    for kind, word in ((1, "LZ4"), (2, "zstd"), (3, "zlib")):
        _, out, _ = get(path, "--phy-offset", kinds[kind].phy_offset)
        assert f"(compressed with {word}" in out
        assert f"body, {len(kinds[kind].body)} bytes\n" in out


def test_a_missing_codec_is_named_and_other_fields_are_printed(tmp_path, get, monkeypatch):
    with package.open(tmp_path / "s", mapped_file_size_commit_log=1 << 16) as store:
        for kind in (0, 0x1 | 2 << 8):
            store.put("orders", b"no zstd", keys="k", sys_flag=kind)
        at = store.put("orders", b"no zstd", keys="k", sys_flag=0x1 | 2 << 8).phy_offset
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    one, key = (tmp_path / "s", "--phy-offset", at), (tmp_path / "s", "-t", "orders", "--key", "k")
    code, out, err = get(*one)
    assert (code, out, err.count("\n")) == (3, "", 1) and "zstd: pip install 'rocketc[compression]'" in err
    code, out, err = get(*key, "-f", r"%o\n")
    assert (code, out, err) == (0, "0\n1\n2\n", "")
    code, out, err = get(*key, "-f", r"%s\n")
    assert (code, out, err.count("missing_codec (")) == (1, "no zstd\n", 2) and "index is damaged" not in err
    code, out, err = get(*one, "--body", "none")
    assert (code, err) == (0, "") and "compressed with zstd" in out


def test_other_output_formats(log, get):
    store = log.folder.parent
    assert get(store, "--phy-offset", 0, "-f", r"%t %o %s\n") == (0, "audit 0 body 0\n", "")
    assert get(store, "--phy-offset", 0, "-f", "%s", "--body", "hex") == (0, b"body 0".hex(), "")
    code, out, _ = get(store, "--key", "k1", "-J", "--body", "none")
    assert code == 0 and len(out.splitlines()) == 6 and "body" not in json.loads(out.splitlines()[0])
    code, out, _ = get(store, "--key", "k1")
    assert code == 0 and out.count("\n\ntopic ") == 5 and out.startswith("topic ")


def test_color_and_control_characters_on_a_terminal(tmp_path):
    path = write(tmp_path, package.encode("t", b"\x1b]0;title\x07", properties={"a\x1b[2J": "b\x9b"}))
    code, text = on_terminal("get", path, "--phy-offset", 0)
    assert code == 0 and "\x1b[1mproperties" in text and "\x1b]0" not in text and "\x1b[2J" not in text
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        code, text = on_terminal("get", path, "--phy-offset", 0, env=unwanted)
        assert (code, "\x1b" in text) == (0, False)
    code, text = on_terminal("get", path, "--key", "nope")
    assert code == 1 and "no message has the key 'nope'" in text
    for form in (["--json"], ["-f", "%s%h"]):
        assert "\x1b" not in on_terminal("get", path, "--phy-offset", 0, *form)[1]


# ---------------------------------------------------------------- by offset


def no_message(get, path, offset):
    code, out, err = get(path, "--phy-offset", offset)
    assert (code, out, err.count("\n")) == (1, "", 1)
    return err.removeprefix("rocketc: ").rstrip()


def test_the_error_says_what_is_at_an_offset_without_a_record(log, get):
    """All bytes of the first two files and of the unused part after the last record."""
    records = {m.phy_offset: m for m in package.scan(log.folder)}
    blank = max(m.phy_offset + m.store_size for m in records.values() if m.phy_offset < 1024)
    for at in [*range(0, 400), *range(blank - 30, 1300), log.end - 1, log.end, 3071]:
        if at in records:
            continue
        owner = records[max(place for place in records if place <= at)]
        told = no_message(get, log.folder, at)
        assert told.startswith(f"no message begins at byte {at}: ")
        if blank <= at < 1024:
            assert told.endswith(f"from byte {blank} on {log.file_at(0)} is blank")
        elif at >= log.end:
            assert told.endswith(f"the log ends at byte {log.end}")
        else:
            which = f"{owner.topic}/0@{owner.queue_offset}"
            assert told.endswith(f"it is inside the record of {which}, which begins at byte {owner.phy_offset}")


def test_offsets_outside_of_the_log(log, get):
    assert no_message(get, log.folder, 3072) == "no message begins at byte 3072: the files of the log end at byte 3072"
    log.file_at(0).unlink()
    assert no_message(get, log.folder, 5) == "no message begins at byte 5: the log begins at byte 1024"
    assert get(log.folder, "--phy-offset", 1024)[0] == 0


def test_an_offset_in_a_file_that_is_missing(log, get):
    log.file_at(1024).unlink()
    assert no_message(get, log.folder, 1024) == "no message begins at byte 1024: there is no file for it"


def test_an_offset_in_a_file_that_was_cut(log, get):
    os.truncate(log.file_at(1024), 300)
    told = no_message(get, log.folder, 1024 + 500)
    assert told.startswith("no message begins at byte 1524: bytes ") and "are damaged: truncated" in told


def test_a_log_without_files(tmp_path, get):
    (tmp_path / "commitlog").mkdir()
    assert no_message(get, tmp_path, 0) == "no message begins at byte 0: the log is without files"


def spoil(log, at, data):
    with open(log.file_at(at), "r+b") as file:
        os.pwrite(file.fileno(), data, at % log.file_size)


@pytest.mark.parametrize(
    ("behind", "data", "says"),
    [
        (0, b"\xff", "are damaged: bad_size (these bytes are not the size of a record)"),
        (0, b"\x00\x10", "are damaged: truncated (the record is longer than what is left of the file)"),
        (4, b"\x00", "are damaged: bad_magic (no record begins here)"),
        (28, b"\x01", "are damaged: bad_physical_offset (the record contains another physical offset)"),
        (88, b"B", "is damaged: bad_body_crc (the body does not match its CRC)"),
        (84, b"\x7f", "are damaged: bad_body_length (the body's length does not fit the record)"),
    ],
)
def test_a_damaged_record(log, get, behind, data, says):
    at = log.places[9]
    spoil(log, at + behind, data)
    told = no_message(get, log.folder, at)
    assert told.endswith(says)
    code, out, _ = get(log.folder, "--phy-offset", log.places[10], "-f", "%s")
    assert (code, out) == (0, "body 10")


def test_damage_up_to_the_end(log, get):
    spoil(log, log.places[-1] + 4, b"x")
    assert (
        no_message(get, log.folder, log.end) == f"no message begins at byte {log.end}: the log ends at byte {log.end}"
    )


def test_a_property_crc_is_checked(tmp_path, get):
    record = bytearray(package.encode("t", b"x", properties={"KEYS": "k"}, property_crc=True))
    record[-22] ^= 1
    assert "bad_property_crc" in no_message(get, write(tmp_path, record), 0)


def test_only_the_file_of_the_offset_is_read(log, get):
    """The other files are garbage here, and one has the largest possible size."""
    spoil(log, 0, b"\xff" * 1024)
    os.truncate(log.file_at(0), 1024)
    log.file_at(2048).write_bytes(b"\xff" * 1024)
    assert get(log.folder, "--phy-offset", log.places[8], "-f", "%s") == (0, "body 8", "")


def test_nothing_before_a_record_is_read(tmp_path, get):
    """A scan from the start of the file would meet garbage first."""
    at = 1 << 30
    path = tmp_path / f"{0:020d}"
    with open(path, "wb") as file:
        file.write(b"\xff" * 4096)
        os.pwrite(file.fileno(), package.encode("t", b"far", phy_offset=at), at)
    assert get(path, "--phy-offset", at, "-f", "%s") == (0, "far", "")


def test_a_log_file_with_another_name(log, get):
    path = log.file_at(1024).rename(log.folder / "copy.bin")
    assert get(path, "--phy-offset", 1024, "-f", "%O") == (0, "1024", "")
    assert "which begins at byte 1024" in no_message(get, path, 1025)


def test_all_of_several_logs_are_searched(tmp_path, get):
    for name in "ab":
        GrowingLog(tmp_path / name / "commitlog").append("t", name.encode())
    assert get(tmp_path / "a", tmp_path / "b", "--phy-offset", 0, "-f", "%s") == (0, "ab", "")
    code, _, err = get(tmp_path / "a", tmp_path / "b", "--phy-offset", 1)
    assert code == 1 and err.count("it is inside the record of t/0@0") == 2


@pytest.mark.parametrize("how", [["--phy-offset", 0], ["--key", "k"], ["--id", "k"]], ids=lambda how: how[0])
def test_unreadable_paths(log, get, monkeypatch, how):
    nowhere = log.folder / "nope"
    assert get(nowhere, *how) == (3, "", f"rocketc: {nowhere}: No such file or directory\n")
    assert "no commit log here" in get(log.folder.parent.parent, *how)[2]
    log.file_at(0).unlink()
    log.file_at(0).mkdir()
    code, out, err = get(log.folder, *how)
    assert (code, out, err) == (3, "", f"rocketc: {log.file_at(0)}: Is a directory\n")
    log.file_at(0).rmdir()
    os.mkfifo(log.file_at(0))
    code, out, err = get(log.folder, *how)
    assert (code, out, err.count("\n")) == (3, "", 1)


# ---------------------------------------------------------------- by id


def test_an_offset_id_of_another_broker(log, get):
    wrong = package.OffsetId("10.0.0.8", 10911, log.places[3]).encode()
    code, out, err = get(log.folder, "--id", wrong)
    assert (code, out) == (1, "")
    assert err == (
        f"rocketc: the id is of a message that 10.0.0.8:10911 stored; the message at its physical "
        f"offset {log.places[3]} was stored by 10.0.0.7:10911: use --phy-offset {log.places[3]} to see it\n"
    )


def test_an_offset_id_without_a_message(log, get):
    code, out, err = get(log.folder, "--id", package.OffsetId("10.0.0.7", 10911, 1).encode())
    assert (code, out) == (1, "") and "it is inside the record of audit/0@0" in err


def test_an_id_that_may_be_of_both_kinds(tmp_path, get):
    """Port 0 and process 0: the id is tried as one kind first, and then searched for as the other."""
    record = package.encode("t", b"xyz", properties={"UNIQ_KEY": "7F000002" + "0" * 24})  # stored by 127.0.0.1:0
    path = write(tmp_path, record)
    assert get(path, "--id", "7F000001" + "0" * 24, "-f", "%s") == (0, "xyz", "")
    assert get(path, "--id", "7F000002" + "0" * 24, "-f", "%s") == (0, "xyz", "")
    code, _, err = get(path, "--id", "7F000003" + "0" * 24)
    assert code == 1 and "no message has the unique id '7F000003" in err


def test_a_unique_id_of_an_unknown_form(tmp_path, get):
    path = write(tmp_path, package.encode("t", b"x", properties={"UNIQ_KEY": "my-Id", "KEYS": "k"}))
    assert get(path, "--id", "my-Id", "-f", "%s") == (0, "x", "")
    lower = "0a0000010a3c18b4aac22d1f876c0003"
    other = tmp_path / "other"
    other.write_bytes(package.encode("t", b"y", properties={"UNIQ_KEY": lower}))
    assert get(other, "--id", lower, "-f", "%s") == (0, "y", "")
    code, _, err = get(path, "--id", "k")  # a key is not an id
    assert (code, err) == (1, "rocketc: no message has the unique id 'k': searched 115 B in 1 file\n")


def test_ids_of_a_topic(log, get):
    message = next(iter(package.scan(log.folder, topics="orders")))
    assert get(log.folder, "--id", message.msg_id, "-t", "orders", "-f", "%s") == (0, "body 1", "")
    assert get(log.folder, "--id", message.msg_id, "-t", "/or.*/", "-f", "%s") == (0, "body 1", "")
    code, out, err = get(log.folder, "--id", message.msg_id, "-t", "audit")
    assert (code, out, err) == (1, "", "rocketc: the message with this id has another topic: orders\n")
    code, out, err = get(log.folder, "--id", message.properties["UNIQ_KEY"], "-t", "audit")
    assert (code, out) == (1, "") and err.startswith("rocketc: no message of these topics has the unique id '0A00")


# ---------------------------------------------------------------- by key


def test_all_messages_of_a_key_in_the_order_of_the_log(log, get):
    def numbers(*args):
        code, out, err = get(log.folder, *args, "-f", r"%s\n")
        assert (code, err) == (0, "")
        return [int(line.split()[1]) for line in out.splitlines()]

    assert numbers("--key", "k1") == [1, 4, 7, 10, 13, 16]
    assert numbers("--key", "even") == list(range(0, 18, 2))
    assert numbers("--key", "k1", "-t", "orders") == [1, 7, 13]
    assert numbers("--key", "k1", "-t", "/a.*/", "-t", "none") == [4, 10, 16]
    assert numbers("--key", "k1", "-c", "2") == [1, 4]
    assert numbers("--key", "0A0000010A3C18B4AAC22D1F876C0005") == [5]


def test_a_key_without_messages(log, get):
    size = package.scan(log.folder)
    size.count()
    expected = f"rocketc: no message has the key 'k9': searched {size.report.bytes / 1024:.1f} KiB in 3 files\n"
    assert get(log.folder, "--key", "k9") == (1, "", expected)


def test_damage_found_during_a_search_is_reported(log, get):
    spoil(log, log.places[2] + 4, b"x")
    code, out, err = get(log.folder, "--key", "k1", "-f", "%s,")
    assert (code, out.count(",")) == (1, 6)
    assert f"bytes lost at physical offset {log.places[2]}: bad_magic" in err and "damage: 1 range" in err
    code, out, err = get(log.folder, "--key", "k9")
    assert (code, out) == (1, "") and "damage: 1 range" in err and "has the key 'k9'" in err


def test_a_long_search_shows_a_progress_bar_on_stderr_only(log, get, monkeypatch):
    import sys

    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    monkeypatch.setattr(output, "_REDRAW_SECONDS", 0)
    code, out, _ = get(log.folder, "--key", "even", "-f", "%s,")
    assert code == 0 and out.count(",") == 9
    assert "searching" in stderr.getvalue()


def test_the_progress_bar_is_erased_before_output_on_the_same_terminal(log, get, monkeypatch):
    import sys

    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "SHOWN_AFTER", 0)
    monkeypatch.setattr(output, "_REDRAW_SECONDS", 0)
    shown = []

    class Both(package.cli.output.Out):
        def __init__(self):
            super().__init__()
            self.is_terminal = True

        def write(self, data):
            shown.append(stderr.getvalue())
            super().write(data)

    monkeypatch.setattr("rocketc.cli.get.Out", Both)
    code, _, _ = get(log.folder, "--key", "even", "-f", "%s,")
    assert code == 0 and "searching" in shown[0]
    assert shown == [stderr.getvalue()] * 9


# ---------------------------------------------------------------- ends


def test_ctrl_c(log, get, monkeypatch):
    """During a search: messages found before are printed."""
    messages = package.Scan.__iter__

    def interrupted(scan):
        yield from messages(scan)
        raise KeyboardInterrupt

    monkeypatch.setattr(package.Scan, "__iter__", interrupted)
    assert get(log.folder, "--key", "k0", "-f", "%s,") == (130, "body 0,body 3,", "")


def test_the_reader_is_gone(log):
    with start("get", log.folder, "--key", "even") as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_a_full_disk(log):
    with open("/dev/full", "wb") as full:
        done = rocketc("get", log.folder, "--phy-offset", 0, stdout=full)
    assert (done.returncode, done.stderr) == (3, b"rocketc: can't write: No space left on device\n")
