"""rocketc cat: it prints all records of RocketMQ, each option has its effect, and damage is reported."""

import base64
import hashlib
import json
import re
import shutil
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from support import oracle, stores
from support.command import GrowingLog, on_terminal, processor_seconds, rocketc

import rocketc as package
from rocketc.cli.arguments import Start
from rocketc.cli.times import parse_time
from rocketc.report.messages import compile_format
from rocketc.report.text import show_span, show_time

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def cat(run):
    """cat(*args): run the command in this process. Return exit code, stdout as bytes, stderr as text."""
    return partial(run, "cat", binary=True)


@pytest.fixture
def bodies(cat):
    """bodies(*args): the printed bodies; the command must succeed, or say that there are none."""

    def run(*args):
        code, out, err = cat("-f", r"%s\n", *args)
        if out or code:
            assert (code, err) == (0, "")
        else:
            assert err == "rocketc: no message is selected\n"
        return out.decode().splitlines()

    return run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Twelve messages one second apart, in several files: two topics with two queues each."""
    root = tmp_path_factory.mktemp("store")
    log = GrowingLog(root / "commitlog", file_size=512)
    for i in range(12):
        topic = "orders" if i % 3 else "audit"
        log.append(
            topic,
            b"body %d %s" % (i, b"even" if i % 2 == 0 else b"odd"),
            queue_id=i % 2,
            store_timestamp=T0 + 1000 * i,
            properties={"TAGS": f"Tag{i % 4}", "KEYS": f"k{i} all", "UNIQ_KEY": f"U{i:04d}"},
        )
    return root


def numbers(texts):
    return [int(text.split()[1]) for text in texts]


# ---------------------------------------------------------------- golden stores


def as_cat_tells_it(expected, files):
    """Return a line of expected.jsonl with the keys of the design, without the body, which is compared separately."""
    same = (
        "topic queueId queueOffset storeTimestamp bornTimestamp flag sysFlag reconsumeTimes bodyCRC"
        " preparedTransactionOffset msgId bornHost storeHost properties"
    )
    told = {name: expected[name] for name in same.split()}
    told |= {"physicalOffset": expected["phyOffset"], "storeSize": expected["size"]}
    properties = expected["properties"]
    told |= {name: properties[name.upper()] for name in ("keys", "tags") if name.upper() in properties}
    told["file"] = str(max(path for path in files if int(path.name) <= expected["phyOffset"]))
    return told


@pytest.mark.parametrize("name", stores.WHOLE)
def test_every_record_of_rocketmq_is_one_object_with_every_key(golden, cat, name):
    store = golden(name)
    code, out, err = cat("--json", "--no-unwrap", store.path)
    assert (code, err) == (0, "")
    seen = [json.loads(line) for line in out.splitlines()]
    assert len(seen) == len(store.messages)
    for found, expected in zip(seen, store.messages, strict=True):
        body = found.pop("body").encode() if "body" in found else base64.b64decode(found.pop("bodyBase64"))
        assert hashlib.sha256(body).hexdigest() == expected["plainBodySha256"]
        if "body" in expected:
            assert body.decode() == expected["body"]
        found["bornHost"], found["storeHost"] = map(oracle.java_host, (found["bornHost"], found["storeHost"]))
        assert found == as_cat_tells_it(expected, store.log_files)


@pytest.mark.parametrize("name", stores.NAMES)
@pytest.mark.parametrize("unwrap", [True, False], ids=["unwrap", "no-unwrap"])
def test_json_lines_are_those_of_messages(golden, cat, name, unwrap):
    path = golden(name).path
    scan = package.scan(path, errors="skip", unwrap=unwrap)
    messages = list(scan)
    code, out, _ = cat("-J", path, *([] if unwrap else ["--no-unwrap"]))
    assert code == (1 if scan.report.damage else 0)
    assert out.decode().splitlines() == [message.to_json() for message in messages]


def test_bodies_stay_compressed_with_no_decompress(golden, cat):
    store = golden("v533-broker")
    code, out, _ = cat("--no-unwrap", "--no-decompress", "--body", "hex", "-f", r"%O %S %s\n", store.path)
    assert code == 0
    for line, expected in zip(out.splitlines(), store.messages, strict=True):
        offset, length, body = line.split(b" ")
        stored = bytes.fromhex(body.decode())
        assert (int(offset), int(length), len(stored)) == (expected["phyOffset"],) + (expected["storedBodyLen"],) * 2
        assert hashlib.sha256(stored).hexdigest() == expected["bodySha256"]


@pytest.mark.measure
def test_a_month_of_flights_takes_less_than_two_seconds(golden):
    path = golden("flights-2013-01").path
    best = 9.0
    for _ in range(10):
        before = processor_seconds()
        done = rocketc("cat", "--json", path)
        best = min(best, processor_seconds() - before)
        assert (done.returncode, done.stdout.count(b"\n")) == (0, 27_004)
        if best < 2:
            break
    assert best < 2


# ---------------------------------------------------------------- selection


def test_all_messages_in_the_order_of_the_log(store, bodies):
    assert numbers(bodies(store)) == list(range(12))
    assert numbers(bodies(store / "commitlog")) == list(range(12))
    files = sorted((store / "commitlog").iterdir())
    assert len(files) > 3
    assert numbers(bodies(*files)) == list(range(12))
    assert numbers(bodies(*reversed(files))) == list(range(12))
    assert numbers(bodies(store / "commitlog" / "0*")) == list(range(12))
    assert 0 < len(bodies(files[1])) < 12


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("-t audit", [0, 3, 6, 9]),
        ("-t /aud.*/", [0, 3, 6, 9]),
        ("--topic audit -t orders", list(range(12))),
        ("-q 1", [1, 3, 5, 7, 9, 11]),
        ("-q 1 --queue 0", list(range(12))),
        ("-q 7", []),
        ("-t audit -q 1", [3, 9]),
        ("-o beginning", list(range(12))),
        ("-o 0", list(range(12))),
        ("-o 3", [10, 11]),
        ("-o -1", [6, 9, 10, 11]),
        ("-o -2 -t orders", [7, 8, 10, 11]),
        ("-o -99", list(range(12))),
        ("--offset -1 --grep odd -q 1", [9, 11]),
        ("-o -1 --grep odd", [9, 11]),
        ("-o -1 --tag Tag1", [9, 5]),
        ("-c 2", [0, 1]),
        ("-c 99", list(range(12))),
        ("--count 1 -t orders", [1]),
        ("-c 2 --grep odd", [1, 3]),
        ("-o -1 -c 3", [6, 9, 10]),
        (f"--from {T0 + 9000}", [9, 10, 11]),
        (f"--from {T0 + 8999}", [9, 10, 11]),
        (f"--from {T0 + 9001}", [10, 11]),
        (f"--to {T0 + 2000}", [0, 1]),
        ("--from 2023-11-14T22:13:25 --to 2023-11-14T22:13:27Z", [5, 6]),
        ("--from 2023-11-15T06:13:30+08:00", [10, 11]),
        ("--from -15m", []),
        ("--to -15m", list(range(12))),
        ("--to now --from -9999d", list(range(12))),
        ("--from now", []),
        ("--tag Tag1", [1, 5, 9]),
        ("--tag Tag1 --tag Tag2", [1, 2, 5, 6, 9, 10]),
        ("--tag Tag1||Tag2", [1, 2, 5, 6, 9, 10]),
        ("--tag Tag", []),
        ("--key k7", [7]),
        ("--key k7 --key k9", [7, 9]),
        ("--key all", list(range(12))),
        ("--key U0004", [4]),
        ("--sql TAGS/**/IN('Tag1','Tag3')", [1, 3, 5, 7, 9, 11]),
        ("--sql UNIQ_KEY/**/ENDSWITH'7'/**/OR/**/KEYS='k8' -q 1", [7]),
        ("--grep odd", [1, 3, 5, 7, 9, 11]),
        ("--grep ^body.1", [1, 10, 11]),
        ("--grep Tag1", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_select_messages(store, bodies, args, expected):
    found = numbers(bodies(store, *args.split()))
    assert found == sorted(expected)


def test_a_topic_must_match_as_a_whole(store, cat):
    assert cat(store, "-t", "aud") == (1, b"", "rocketc: no topic aud in this store; did you mean audit?\n")
    assert cat(store, "-t", "/aud/")[:2] == (1, b"")


def test_a_physical_range_begins_with_the_record_that_its_start_is_in(store, cat, bodies):
    _, out, _ = cat(store, "-f", r"%O\n")
    offsets = [int(line) for line in out.split()]
    for i in (0, 3, 11):
        assert numbers(bodies(store, "--start", offsets[i], "--stop", offsets[i] + 1)) == [i]
        assert numbers(bodies(store, "--start", offsets[i])) == list(range(i, 12))
        assert numbers(bodies(store, "--stop", offsets[i] + 1)) == list(range(i + 1))
    for within in (offsets[4] + 1, offsets[5] - 1):
        assert numbers(bodies(store, "--start", within, "--stop", offsets[6])) == [4, 5]
    code, out, err = cat(store, "--start", 1 << 40)
    assert (code, out, err) == (0, b"", f"rocketc: nothing to read: {store}\n")


def test_grep_reads_text(tmp_path, bodies, cat):
    log = GrowingLog(tmp_path / "commitlog")
    log.append("t", "straße".encode())
    log.append("t", b"\xff\xfe")
    log.append("t", b"plain")
    assert bodies(tmp_path, "--grep", "stra.e") == ["straße"]  # one character, not two bytes
    assert bodies(tmp_path, "--grep", "(?i)PLAIN") == ["plain"]
    assert cat(tmp_path, "--grep", "\N{REPLACEMENT CHARACTER}", "-f", "%s")[1] == b"\xff\xfe"


def test_an_inner_batch_is_printed_as_messages_or_as_a_record(golden, cat):
    path = golden("v533-broker").path
    _, out, _ = cat(path, "-t", "Inner", "-f", r"%q %o\n")
    _, whole, _ = cat(path, "-t", "Inner", "-f", r"%q %o\n", "--no-unwrap")
    by_queue = defaultdict(list)
    for line in out.split(b"\n")[:-1]:
        queue, offset = map(int, line.split())
        by_queue[queue].append(offset)
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    assert 0 < whole.count(b"\n") < out.count(b"\n")


# ---------------------------------------------------------------- output formats


@pytest.fixture
def one(tmp_path):
    """A store with one message that has all fields."""
    log = GrowingLog(tmp_path / "one" / "commitlog")
    log.append(
        "orders",
        b"gr\xc3\xbc\xc3\x9fe\n\x1b[31m",
        queue_id=3,
        store_timestamp=T0 + 7,
        store_host=("192.168.1.10", 10911),
        properties={"KEYS": "k1 k2", "TAGS": "A", "x": "1"},
    )
    return tmp_path / "one"


ONE = {
    "%t": b"orders",
    "%p": b"3",
    "%q": b"3",
    "%o": b"0",
    "%O": b"0",
    "%s": b"gr\xc3\xbc\xc3\x9fe\n\x1b[31m",
    "%S": b"13",
    "%k": b"k1 k2",
    "%g": b"A",
    "%T": b"%d" % (T0 + 7),
    "%h": b"KEYS=k1 k2,TAGS=A,x=1",
    "%i": b"C0A8010A00002A9F0000000000000000",
    "%n": b"\n",
    "%%": b"%",
    r"\n": b"\n",
    r"\t": b"\t",
    r"\r": b"\r",
    r"\0": b"\0",
    r"\\": b"\\",
    r"\x1fA": b"\x1fA",
    "é\udcff": b"\xc3\xa9\xff",
}


@pytest.mark.parametrize("token", ONE)
def test_each_token_of_a_format(one, cat, token):
    assert cat(one, "-f", token) == (0, ONE[token], "")
    assert cat(one, "--format", f"<{token}>{token}") == (0, b"<%b>%b" % (ONE[token], ONE[token]), "")


def test_missing_fields_are_empty(tmp_path, cat):
    GrowingLog(tmp_path / "commitlog").append("t", b"")
    assert cat(tmp_path, "-f", "[%k|%g|%h|%s|%S]") == (0, b"[||||0]", "")


def test_the_error_names_a_wrong_token():
    with pytest.raises(ValueError, match=r"unknown token %Q; the tokens are %t .*\\xHH$"):
        compile_format("%t%Q", "text", False)


def test_a_readable_line(one, tmp_path, cat):
    line = "2023-11-14T22:13:20.007Z orders/3@0 A k1,k2 grüße\\n\\x1b[31m\n"
    assert cat(one) == (0, line.encode(), "")
    GrowingLog(tmp_path / "commitlog").append("t", b"\xff\x00", store_timestamp=-1, properties={"TAGS": "a b"})
    assert cat(tmp_path) == (0, b"1969-12-31T23:59:59.999Z t/0@0 a\\x20b - \\xff\\x00\n", "")


def test_the_body_in_other_formats(one, cat):
    raw = ONE["%s"]
    forms = {"hex": raw.hex().encode(), "base64": base64.b64encode(raw), "none": b""}
    for form, text in forms.items():
        assert cat(one, "--body", form, "-f", "%s|%S") == (0, text + b"|13", "")
        line = b"2023-11-14T22:13:20.007Z orders/3@0 A k1,k2"
        assert cat(one, "--body", form) == (0, line + (b" " + text if text else b"") + b"\n", "")
    plain = json.loads(cat(one, "--json")[1])
    assert plain["body"] == raw.decode()
    order = list(plain)
    for form, name in {"hex": "bodyHex", "base64": "bodyBase64", "none": None}.items():
        told = json.loads(cat(one, "--json", "--body", form)[1])
        assert list(told) == [name if key == "body" else key for key in order if name or key != "body"]
        if name:
            assert told.pop(name) == forms[form].decode()
        assert told == {key: value for key, value in plain.items() if key != "body"}


def test_a_body_that_is_not_text(tmp_path, cat):
    GrowingLog(tmp_path / "commitlog").append("t", b"\xff\xfe")
    told = json.loads(cat(tmp_path, "-J")[1])
    assert ("body" in told, told["bodyBase64"]) == (False, "//4=")
    assert json.loads(cat(tmp_path, "-J", "--body", "hex")[1])["bodyHex"] == "fffe"
    assert "bodyBase64" not in json.loads(cat(tmp_path, "-J", "--body", "hex")[1])


def test_a_hostile_body_stays_harmless_on_a_terminal(tmp_path):
    hostile = "\x1b]0;pwned\x07 \x9b2J \u202etxt\x7f\r\n"
    log = GrowingLog(tmp_path / "commitlog")
    log.append("t\x1b[m", hostile.encode(), properties={"KEYS": "\x1b[1m", "TAGS": "\x1b[2m", "a\x1b": "\x1b[3m"})
    plain = {"NO_COLOR": "1"}
    for args in (["-f", r"%s %k %g %h %t\n"], [], ["--json"]):
        code, text = on_terminal("cat", tmp_path, *args, env=plain)
        assert code == 0
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), args
        assert "pwned" in text and text.count("\n") == 1
    told = json.loads(on_terminal("cat", tmp_path, "--json", env=plain)[1])
    assert (told["body"], told["topic"]) == (hostile, "t\x1b[m")
    assert rocketc("cat", tmp_path, "-f", "%s").stdout == hostile.encode()  # a pipe gets the bytes unchanged


def test_a_file_name_that_is_not_text(tmp_path, cat):
    folder = tmp_path / "caf\udce9"
    try:
        GrowingLog(folder / "commitlog").append("t", b"x")
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    code, out, err = cat("--json", folder)
    assert (code, err) == (0, "")
    assert Path(json.loads(out.decode("ascii"))["file"]).parent == folder / "commitlog"


def test_large_output_is_printed_completely(tmp_path, cat):
    log = GrowingLog(tmp_path / "commitlog", file_size=1 << 20)
    for i in range(40):
        log.append("t", b"%05d" % i * 10_000)
    code, out, _ = cat(tmp_path, "-f", "%s")
    assert code == 0
    assert out == b"".join(b"%05d" % i * 10_000 for i in range(40))


# ---------------------------------------------------------------- damage


def test_a_flipped_bit_costs_one_record_and_is_reported(golden, cat):
    store = golden("v533-bitrot")
    code, out, err = cat("-f", r"%O\n", store.path)
    lost, total = err.splitlines()
    path = store.path / "commitlog" / f"{327680:020d}"
    assert code == 1
    assert lost == (
        f"rocketc: {path}: 326 bytes lost at physical offset 361670: bad_body_crc (the body does not match its CRC)"
    )
    assert total == "rocketc: damage: 1 range, 326 bytes lost"
    assert out.count(b"\n") == 1499 and b"\n361670\n" not in out
    assert cat("-f", r"%O\n", "--crc", "none", store.path)[::2] == (0, "")
    assert cat("-f", r"%O\n", "--crc", "none", store.path)[1].count(b"\n") == 1500
    assert cat("-f", "", "--crc", "full", store.path)[0] == 1


def test_strict_stops_at_the_first_damage(golden, cat):
    store = golden("v533-bitrot")
    code, out, err = cat("-f", r"%O\n", "--strict", store.path)
    assert code == 1
    assert max(map(int, out.split())) < 361670  # everything before the damage is printed
    assert len(out.split()) == sum(m.phy_offset < 361670 for m in package.scan(store.path, errors="skip"))
    assert err.endswith(": damage at physical offset 361670: bad_body_crc (the body does not match its CRC)\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", stores.DAMAGED)
def test_torn_ends_are_damage_and_unclean_ones_are_not(golden, cat, name):
    code, _, err = cat("-f", "", golden(name).path)
    assert (code, err == "") == ((0, True) if name.endswith("unclean") else (1, False))


def test_damage_is_reported_between_the_messages_on_one_stream(golden):
    """With stdout and stderr in one file, messages read before the damage are before its report."""
    store = golden("v533-bitrot")
    with open(store.path.parent / "both", "w+b") as both:
        assert rocketc("cat", "-f", r"%O\n", store.path, stdout=both, stderr=both).returncode == 1
        both.seek(0)
        lines = both.read().splitlines()
    at = next(i for i, line in enumerate(lines) if b"bytes lost at" in line)
    assert 0 < at < len(lines) - 100
    assert max(int(line) for line in lines[:at]) < 361670


def test_the_property_crc_is_checked_on_request(tmp_path, cat):
    log = GrowingLog(tmp_path / "commitlog")
    log.append("t", b"one", properties={"a": "1"}, property_crc=True)
    path = log.file_at(0)
    path.write_bytes(path.read_bytes().replace(b"a\x011", b"a\x012"))
    assert cat(tmp_path, "-f", "%h")[0] == 0
    code, _, err = cat(tmp_path, "-f", "%h", "--crc", "full")
    assert (code, "bad_property_crc" in err) == (1, True)


def test_a_missing_file_is_damage_unless_a_part_is_read(store, tmp_path, cat):
    copy = tmp_path / "commitlog"
    shutil.copytree(store / "commitlog", copy)
    victim = sorted(copy.iterdir())[1]
    victim.unlink()
    base = int(victim.name)
    code, out, err = cat(tmp_path, "-f", r"%s\n")
    assert (code, err.splitlines()) == (
        1,
        [
            f"rocketc: {victim}: 512 bytes lost at physical offset {base}: missing_file (a file between two others is "
            "missing)",
            "rocketc: damage: 1 range, 512 bytes lost",
            "rocketc: restore the missing file, or use --partial to read the part of the log that is there",
        ],
    )
    assert 0 < out.count(b"\n") < 12
    said = f"rocketc: these files do not have the physical offsets {base} to {base + 512}\n"
    assert cat(tmp_path, "-f", r"%s\n", "--partial") == (0, out, said)
    code, before, err = cat(tmp_path, "-f", r"%s\n", "--strict")
    assert (code, out.startswith(before)) == (1, True)
    assert err == (
        f"rocketc: {victim}: damage at physical offset {base}: missing_file (a file between two others is missing)\n"
    )
    named = [str(path) for path in sorted(copy.iterdir())]
    assert cat(*named, "-f", "")[0] == 1  # as the shell expands commitlog/*
    assert cat(named[0], named[2], "-f", "")[::2] == (
        0,
        f"rocketc: these files do not have the physical offsets {base} to {base + 1024}\n",
    )
    assert cat(named[0], "-f", "")[::2] == (0, "")
    assert cat(tmp_path, "-f", "", "--stop", base)[2] == ""
    assert cat(tmp_path, "-f", "", "--start", base + 512)[2] == ""


def compressed(kind, body):
    return oracle.encode("t", body, sys_flag=0x1 | kind << 8)


def test_a_missing_codec_names_the_package(tmp_path, cat, monkeypatch):
    for kind, module, distribution in ((1, "lz4.frame", "lz4"), (2, "backports.zstd", "backports.zstd")):
        (tmp_path / f"{0:020d}").write_bytes(compressed(kind, b"not decompressed"))
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            patch.setitem(sys.modules, "compression.zstd", None)
            code, out, err = cat(tmp_path)
            strict = cat(tmp_path, "--strict")
        assert (code, out) == (1, b"")
        assert err.splitlines()[0].endswith(
            "bytes lost at physical offset 0: missing_codec (the library for its compression is not installed: pip "
            "install 'rocketc[compression]')"
        )
        assert strict[:2] == (3, b"") and strict[2].count("\n") == 1
        assert "pip install 'rocketc[compression]'" in strict[2] and distribution in strict[2]
        assert cat(tmp_path, "--no-decompress", "-f", "%s") == (0, b"not decompressed", "")


def test_a_missing_codec_costs_one_message(tmp_path, cat, run, monkeypatch):
    """Bodies are decompressed only if they are printed, searched or written."""
    log = GrowingLog(tmp_path / "commitlog")
    for n in range(3):
        log.append("t", b"plain %d" % n)
        log.append("t", b"no zstd", sys_flag=0x1 | 2 << 8)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    code, out, err = cat(tmp_path, "-f", r"%s\n")
    assert (code, out) == (1, b"plain 0\nplain 1\nplain 2\n")
    assert err.count("missing_codec (") == 3 and "damage: 3 ranges" in err
    assert cat(tmp_path, "-c", "1", "--body", "none")[::2] == (0, "")
    for shown in (("--body", "none"), ("-f", r"%t\n"), ("-f", r"%t %s\n", "--body", "none"), ("-J", "--body", "none")):
        code, out, err = cat(tmp_path, *shown)
        assert (code, out.count(b"\n"), err) == (0, 6, "")
    assert cat(tmp_path, "-f", r"%S\n")[0] == 1
    assert cat(tmp_path, "--body", "none", "--grep", "plain")[0] == 1
    assert run("stats", tmp_path, "-J")[0] == 0
    for number, form in enumerate(("x.jsonl", "x.csv", "x.parquet")):
        folder = tmp_path.parent / f"{tmp_path.name}-out"
        folder.mkdir(exist_ok=True)
        code, _, err = run("export", tmp_path, "-o", folder / form, "--columns", "topic,queueOffset")
        assert (code, err.count("6 messages written")) == (0, 1), number
        code, _, err = run("export", tmp_path, "-o", folder / f"all-{form}")
        assert (code, err.count("3 messages written"), err.count("missing_codec (")) == (1, 1, 3)


def test_a_record_with_broken_content(tmp_path, cat):
    (tmp_path / f"{0:020d}").write_bytes(compressed(3, b"no zlib stream"))
    code, out, err = cat(tmp_path)
    assert (code, out, "bad_compression" in err) == (1, b"", True)


def test_much_damage_is_reported_fast(tmp_path, cat):
    record = oracle.encode("t", b"x" * 10)
    data = b""
    for i in range(5_000):
        one = bytearray(oracle.encode("t", b"x" * 10, phy_offset=len(record) * i))
        if i % 2:
            one[90] ^= 1
        data += one
    (tmp_path / f"{0:020d}").write_bytes(data)
    before = time.process_time()
    code, out, err = cat(tmp_path, "-f", "%s")
    assert (code, len(out), err.count("\n")) == (1, 25_000, 2_501)
    assert time.process_time() - before < 30
    assert err.endswith(f"rocketc: damage: 2500 ranges, {2500 * len(record)} bytes lost\n")


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", 10**12),
        ("NOW", 10**12),
        ("-30s", 10**12 - 30_000),
        ("-15m", 10**12 - 900_000),
        ("-2h", 10**12 - 7_200_000),
        ("-3d", 10**12 - 259_200_000),
        ("-1w", 10**12 - 604_800_000),
        ("0", 0),
        ("1700000000123", 1700000000123),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T01", 3_600_000),
        ("1970-01-01 00:01", 60_000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T00:00:01,25Z", 1250),
        ("1970-01-01T00:00:01.123456789", 1123),
        ("1970-01-01t00:00:01z", 1000),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00-0130", 5_400_000),
        ("1970-01-01T08:00 +08", 0),
        ("19700101T000001Z", None),
        ("1969-12-31T23:59:59.999", -1),
        ("9999-12-31T23:59:59.999", 253402300799999),
        ("2026-02-30", None),
        ("2026-01-31T25:00", None),
        ("", None),
        ("15m", None),
        ("-15", None),
        ("-15y", None),
        ("tomorrow", None),
        ("20260131", None),
        ("1700000000", None),
        ("9" * 19, None),
        ("-" + "9" * 30 + "w", None),
        ("١٢٣", None),
        ("2026-01-31T09:30+99:99", None),
    ],
)
def test_times(text, ms):
    if ms is None:
        with pytest.raises(ValueError, match=re.escape(repr(text))):
            parse_time(text, 10**12)
    else:
        assert parse_time(text, 10**12) == ms


@pytest.mark.parametrize("ms", [0, -1, 999, T0, 253402300799999, -62135596800000])
def test_printed_times_can_be_used_as_options(ms):
    assert parse_time(show_time(ms), 0) == ms


def test_times_out_of_range(tmp_path, cat):
    assert show_time(-(1 << 63)) == "-9223372036854775808ms"
    GrowingLog(tmp_path / "commitlog").append("t", b"x", store_timestamp=(1 << 63) - 1)
    assert cat(tmp_path)[1] == b"9223372036854775807ms t/0@0 - - x\n"


def test_time_spans():
    assert [show_span(ms) for ms in (0, 999, 1000, 61_000, 3_600_000, 90_061_000)] == [
        "0 ms", "999 ms", "1 s", "1 min 1 s", "1 h", "1 d 1 h",
    ]  # fmt: skip


def test_start_is_parsed_once():
    """click may convert a value that is already converted."""
    from rocketc.cli.arguments import StartAt

    assert StartAt().convert(Start("last", 3), None, None) == Start("last", 3)


TRACE = (
    b"Recall\x011700000000000\x01R\x01shop\x01orders\x01M1\x01true\x02"
    b"SubAfter\x01Q\x01M\x1b[31m\x015\x01false\x01\x011\x02"
)


def test_message_trace_is_shown_record_by_record(tmp_path, cat, run):
    log = GrowingLog(tmp_path / "commitlog")
    for topic in ("RMQ_SYS_TRACE_TOPIC", "audit-trace"):
        log.append(topic, TRACE, properties={"KEYS": "M1 M2"}, store_timestamp=T0)
    records = ["Recall timestamp=1700000000000 regionId=R group=shop topic=orders msgId=M1 success=true",
               r"SubAfter requestId=Q msgId=M\x1b[31m costTime=5 success=false contextCode=TIME_OUT"]  # fmt: skip
    code, out, err = cat(tmp_path, "-t", "RMQ_SYS_TRACE_TOPIC")
    head = "2023-11-14T22:13:20.000Z RMQ_SYS_TRACE_TOPIC/0@0 - - "
    assert (code, out.decode(), err) == (0, "".join(f"{head}{one}\n" for one in records), "")
    _, out, _ = cat(tmp_path, "-t", "audit-trace", "--body", "trace")
    assert [line.partition(" - - ")[2] for line in out.decode().splitlines()] == records
    _, out, _ = cat(tmp_path, "-t", "audit-trace")
    assert out.count(b"\n") == 1 and rb"Recall\x01" in out
    _, out, _ = cat(tmp_path, "-t", "audit-trace", "--body", "trace", "--json")
    message = json.loads(out)
    assert [one["type"] for one in message["trace"]] == ["Recall", "SubAfter"] and "body" not in message
    assert cat(tmp_path, "-t", "audit-trace", "-f", r"%s\n")[1] == TRACE + b"\n"
    assert cat(tmp_path, "-t", "audit-trace", "-f", r"%s\n", "--body", "trace")[1].count(b"\n") == 2
    _, out, _ = run("get", tmp_path, "--phy-offset", 0, "--body", "trace")
    assert out.splitlines()[-2:] == [f"  {one}" for one in records]


def test_a_trace_topic_without_trace_records(tmp_path, cat):
    log = GrowingLog(tmp_path / "commitlog")
    for body in (b"", b"a plain text", b"\xff"):
        log.append("RMQ_SYS_TRACE_TOPIC", body, store_timestamp=T0)
    _, out, _ = cat(tmp_path)
    assert [line.partition(" - -")[2] for line in out.decode().splitlines()] == ["", " a plain text", " \\xff"]
