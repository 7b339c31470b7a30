"""rocketc cat and info on the other files of a store: queues, index, checkpoint, tables."""

import json
import os
import re
import signal
import struct
import tracemalloc
from pathlib import Path

import pytest
from support import oracle, stores
from support.command import on_terminal, rocketc, start

T0 = 1_700_000_000_000


@pytest.fixture
def rows(run):
    """rows(*args): the JSON Lines of cat, which must be the whole output."""

    def rows(*args):
        code, out, err = run("cat", "--json", *args)
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    return rows


def unit(phy_offset, size=100, code=0):
    return struct.pack(">qiq", phy_offset, size, code)


def batch_unit(phy_offset, base, count, when=T0):
    return struct.pack(">qiqqqhii", phy_offset, 100, 5, when, base, count, -1, 0)


def ext_unit(bits=b"", code=1, when=T0):
    return struct.pack(">hqqh", 20 + len(bits), code, when, len(bits)) + bits


@pytest.fixture
def queue(tmp_path):
    """queue(data, data, ..., base=0): the folder of the queue t/7 with consecutive files of these data."""

    def make(*files, base=0, kind="consumequeue", topic="t"):
        folder = tmp_path / kind / topic / "7"
        folder.mkdir(parents=True, exist_ok=True)
        for data in files:
            (folder / f"{base:020d}").write_bytes(data)
            base += len(data)
        return folder

    return make


def offsets(text):
    return [int(line.split()[0].rpartition("@")[2]) for line in text.splitlines()[1:]]


# ---------------------------------------------------------------- golden stores


def golden_units(store):
    """Return each unit of the store's queues as cat prints it, computed by the oracle: by queue and in order."""
    files = sorted(
        store.path.glob("consumequeue/*/*/*"), key=lambda p: (p.parent.parent.name, int(p.parent.name), p.name)
    )
    for path in files:
        for i, (phy_offset, size, code) in enumerate(oracle.queue_units(path.read_bytes()), int(path.name) // 20):
            topic, queue_id = path.parent.parent.name, int(path.parent.name)
            row = {"topic": topic, "queueId": queue_id, "queueOffset": i, "physicalOffset": phy_offset}
            row |= {"storeSize": size, "tagsCode": code}
            if topic == "SCHEDULE_TOPIC_XXXX" and code >= 1 << 31:
                row["deliverTimestamp"] = code
            if (phy_offset, size, code) != (0, 0, 0):
                yield {**row, "file": str(path)}


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_queues(golden, rows, run, name):
    store = golden(name)
    expected = list(golden_units(store))
    assert rows(store.path / "consumequeue") == expected
    code, out, err = run("info", "--json", store.path / "consumequeue")
    told = json.loads(out)
    assert (code, err, told["kind"], told["problems"], told["faults"]) == (0, "", "consumequeue", 0, [])
    for entry in told["queues"]:
        mine = [u for u in expected if (u["topic"], u["queueId"]) == (entry["topic"], entry["queueId"])]
        assert (entry["units"], len({u["file"] for u in mine})) == (len(mine), entry["files"])
        assert (entry["firstQueueOffset"], entry["lastQueueOffset"]) == (
            mine[0]["queueOffset"],
            mine[-1]["queueOffset"],
        )
        assert entry["lastPhysicalOffset"] == mine[-1]["physicalOffset"]
    assert sum(entry["units"] for entry in told["queues"]) == len(expected)


def test_golden_batch_queues(golden, rows, run):
    folder = golden("v533-broker").path / "batchconsumequeue"
    expected = [
        {
            "topic": "Inner", "queueId": int(path.parent.name), "queueOffset": u.base_offset,
            "batchSize": u.batch_size, "physicalOffset": u.phy_offset, "storeSize": u.size, "tagsCode": u.tags_code,
            "storeTimestamp": u.store_timestamp, "compactedOffset": -1, "file": str(path),
        }
        for path in sorted(folder.glob("*/*/*")) for u in oracle.batch_queue_units(path.read_bytes()) if any(u)
    ]  # fmt: skip
    assert rows(folder) == expected
    code, out, _ = run("info", "--json", folder)
    told = json.loads(out)["queues"]
    assert (code, [entry["units"] for entry in told]) == (0, [12, 12])
    last = [u for u in expected if u["queueId"] == 1][-1]
    assert told[1]["lastQueueOffset"] == last["queueOffset"] + last["batchSize"] - 1


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_index_files(golden, rows, run, name):
    store = golden(name)
    slots, expected, headers = int(store.about["config"]["maxHashSlotNum"]), [], []
    for path in sorted((store.path / "index").iterdir()):
        header, _, units = oracle.index_file(path.read_bytes(), slots)
        for n in range(1, header.index_count):
            expected.append(
                {
                    "unit": n, "keyHash": units[n].key_hash, "slot": units[n].key_hash % slots,
                    "previous": units[n].previous, "physicalOffset": units[n].phy_offset,
                    "storeTimestamp": header.begin_timestamp + 1000 * units[n].seconds, "file": str(path),
                }
            )  # fmt: skip
        headers.append(
            {
                "file": str(path), "beginTimestamp": header.begin_timestamp, "endTimestamp": header.end_timestamp,
                "beginPhyOffset": header.begin_phy_offset, "endPhyOffset": header.end_phy_offset,
                "hashSlotCount": header.hash_slot_count, "indexCount": header.index_count, "slots": slots,
                "slotsInUse": header.hash_slot_count, "capacity": len(units) - 1, "units": header.index_count - 1,
            }
        )  # fmt: skip
    assert rows(store.path / "index") == expected
    code, out, err = run("info", "--json", store.path / "index")
    assert (code, err, json.loads(out)["files"]) == (0, "", headers)


@pytest.mark.parametrize("name", stores.NAMES)
def test_golden_checkpoints_and_markers(golden, rows, run, name):
    path = golden(name).path / "checkpoint"
    fields = oracle.checkpoint(path.read_bytes())
    [row] = rows(path)
    assert list(row.values()) == [*fields, str(path)]
    assert list(row)[:3] == ["physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"]
    assert json.loads(run("info", "--json", path)[1])["files"] == [row]
    abort = golden(name).path / "abort"
    if abort.exists():
        pid = abort.read_text()
        expected = (
            {"present": True, "pid": int(pid), "file": str(abort)} if pid else {"present": True, "file": str(abort)}
        )
        assert rows(abort) == [expected]
    assert rows(golden(name).path / "lock") == [{"present": True, "file": str(golden(name).path / "lock")}]


@pytest.mark.parametrize("junk", [b"0", b"-1", b"12x", b"2147483648", b"9" * 40])
def test_an_abort_file_without_a_process_id(tmp_path, rows, run, junk):
    path = tmp_path / "abort"
    path.write_bytes(junk)
    assert rows(path) == [{"present": True, "file": str(path)}]
    assert run("cat", path)[1] == f"{path}: exists, without a process id\n"
    assert "process       unknown\n" in run("info", path)[1]


def test_golden_tables(golden, rows, run):
    folder = golden("v533-broker").path / "config"
    tables = rows(folder)
    assert [Path(row["file"]).name for row in tables] == [
        "consumerFilter.json", "consumerOffset.json", "consumerOrderInfo.json", "delayOffset.json",
        "subscriptionGroup.json", "timermetrics", "topics.json", "transactionMetrics",
    ]  # fmt: skip
    for row in tables:
        text = Path(row.pop("file")).read_text()
        assert row == json.loads(re.sub(r"([{,]\s*)(-?\d+):", r'\1"\2":', text))
    code, out, _ = run("cat", folder / "topics.json")
    assert (code, json.loads(out)) == (0, tables[-2])
    counts = {
        Path(entry["file"]).name: entry["counts"] for entry in json.loads(run("info", "--json", folder)[1])["files"]
    }
    assert counts["topics.json"] == {"topics": len(tables[-2]["topicConfigTable"])}
    assert counts["consumerOffset.json"] == {"groups with topics": 4, "topics": 10, "groups": 4}
    assert counts["delayOffset.json"] == {"delay levels": 5}


@pytest.mark.parametrize(
    "place", ["timerwheel", "timerlog", "timerlog/00000000000000000000", "config/timercheck", "compaction"]
)
@pytest.mark.parametrize("command", ["cat", "info"])
def test_files_that_are_not_shown(golden, run, command, place):
    code, out, err = run(command, golden("v533-broker").path / place)
    assert code == 1
    assert "not shown" in " ".join((out + err).split())


# ---------------------------------------------------------------- lines


def test_lines_are_aligned_and_fit_80_columns(golden, run):
    store = golden("v533-broker").path
    for place in (
        "consumequeue/Orders",
        "consumequeue/SCHEDULE_TOPIC_XXXX",
        "batchconsumequeue",
        "index",
        "checkpoint",
    ):
        code, out, err = run("cat", store / place)
        lines = out.splitlines()
        assert (code, err) == (0, "")
        assert max(len(line) for line in lines if not line.startswith("/")) <= 80
        assert len(lines) > 4
    code, out, _ = run("cat", store / "consumequeue/Orders/0", "-c", 1)
    assert out == (
        "queue@offset                  physicalOffset storeSize  tagsCode\n"
        "Orders/0@0                                 0       297  2031744\n"
    )
    out = run("cat", store / "consumequeue/SCHEDULE_TOPIC_XXXX/0", "-c", 1)[1]
    assert out.endswith("  2026-11-21T08:11:09.482Z\n")


def test_each_index_file_has_its_heading(golden, run):
    folder = golden("v533-broker").path / "index"
    _, out, _ = run("cat", folder)
    first, second = out.split("\n\n")
    for part, path in zip((first, second), sorted(folder.iterdir()), strict=True):
        assert part.splitlines()[0] == str(path)
        assert part.splitlines()[1].split()[:2] == ["unit", "keyHash"]
    assert len(first.splitlines()) == 2 + 1999


def test_names_are_harmless_on_a_terminal(queue):
    folder = queue(unit(0), topic="t\x1b[31m")
    for args in (["cat"], ["cat", "--json"], ["info"], ["info", "--json"]):
        code, text = on_terminal(*args, folder)
        assert (code, "\x1b[31m" in text.replace("\x1b[31mt", "")) == (0, False)


def test_a_table_is_harmless_on_a_terminal(tmp_path):
    path = tmp_path / "topics.json"
    path.write_text('{"topicConfigTable":{"a\\u009b\u2028\\u001b[31m":{}}}')
    for args in (["cat"], ["cat", "--json"]):
        code, text = on_terminal(*args, path)
        assert (code, [c for c in text if c in "\x1b\x9b\u2028"]) == (0, [])
        assert json.loads(text)["topicConfigTable"] == {"a\x9b\u2028\x1b[31m": {}}


# ---------------------------------------------------------------- selection


def test_a_start_offset_and_a_count(queue, rows, run):
    folder = queue(unit(1) + unit(2), unit(3) + unit(4), base=40)
    assert [row["queueOffset"] for row in rows(folder)] == [2, 3, 4, 5]
    assert [row["queueOffset"] for row in rows(folder, "-o", 3)] == [3, 4, 5]
    assert [row["queueOffset"] for row in rows(folder, "-o", 4, "-c", 1)] == [4]
    assert [row["queueOffset"] for row in rows(folder, "-o", "-3")] == [3, 4, 5]
    assert [row["queueOffset"] for row in rows(folder, "-o", 0)] == [2, 3, 4, 5]
    assert [row["queueOffset"] for row in rows(folder, "-o", "beginning")] == [2, 3, 4, 5]
    assert rows(folder, "-o", 6) == rows(folder, "-o", 10**18 - 1) == []
    assert rows(folder / f"{80:020d}") == rows(folder, "-o", 4)
    code, out, _ = run("cat", folder / f"{40:020d}", "-o", 3)
    assert (code, offsets(out)) == (0, [3])


def test_a_start_offset_inside_a_batch(queue, rows):
    folder = queue(batch_unit(0, 0, 10) + batch_unit(100, 10, 5) + bytes(46), kind="batchconsumequeue")
    assert [row["queueOffset"] for row in rows(folder)] == [0, 10]
    assert [row["queueOffset"] for row in rows(folder, "-o", 9)] == [0, 10]
    assert [row["queueOffset"] for row in rows(folder, "-o", 10)] == [10]
    assert rows(folder, "-o", 15) == []


def test_leading_blank_units_are_counted_and_not_shown(queue, rows, run):
    folder = queue(struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 3 + unit(5) + bytes(20))
    assert [row["queueOffset"] for row in rows(folder)] == [3]
    [entry] = json.loads(run("info", "--json", folder)[1])["queues"]
    assert entry == {
        "topic": "t", "queueId": 7, "files": 1, "units": 1, "capacity": 5, "preBlanks": 3, "firstQueueOffset": 3,
        "lastQueueOffset": 3, "firstPhysicalOffset": 5, "lastPhysicalOffset": 5,
    }  # fmt: skip
    assert "(3 blank in front)" in run("info", folder)[1]


def test_ext_files_and_addresses(queue, rows, run):
    first = ext_unit(b"\1\2\3") + ext_unit(code=9) + b"\xff\xff" + bytes(100)
    second = ext_unit(b"\xff", when=T0 + 1) + bytes(50)
    folder = queue(first, second, kind="consumequeue_ext")
    where = {"topic": "t", "queueId": 7}
    expected = [
        {**where, "extOffset": 0, "size": 23, "tagsCode": 1, "storeTimestamp": T0, "bitMap": "010203"},
        {**where, "extOffset": 23, "size": 20, "tagsCode": 9, "storeTimestamp": T0, "bitMap": ""},
        {**where, "extOffset": len(first), "size": 21, "tagsCode": 1, "storeTimestamp": T0 + 1, "bitMap": "ff"},
    ]
    found = rows(folder)
    assert [row.pop("file")[-20:] for row in found] == [f"{0:020d}", f"{0:020d}", f"{len(first):020d}"]
    assert found == expected
    assert len(run("cat", folder)[1].splitlines()) == 4
    [entry] = json.loads(run("info", "--json", folder)[1])["queues"]
    assert (entry["units"], entry["firstExtOffset"], entry["lastExtOffset"]) == (3, 0, len(first))

    for code, has_address in ((-5, False), (-1 << 31, False), ((-1 << 31) - 1, True)):
        [row] = rows(queue(unit(0, code=code)))
        assert ("extOffset" in row, row["tagsCode"]) == (has_address, code)
    address = 23 - (1 << 63)
    [row] = rows(queue(unit(0, code=address)))
    assert (row["tagsCode"], row["extOffset"]) == (address, 23)
    assert run("cat", queue(unit(0, code=address)))[1].endswith("ext@23\n")


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("files", "shown", "told"),
    [
        ([unit(1) + unit(2, size=0, code=1) + unit(3)], [0, 2], ["queue offset 1: bad_size (a record or unit cannot"]),
        ([unit(1) + unit(2, size=-5) * 2 + unit(3)], [0, 3], ["queue offsets 1 to 2: bad_size"]),
        ([unit(1) + unit(-2) + unit(3, size=-1)], [0], ["queue offset 1: bad_phy", "queue offset 2: bad_size"]),
        ([unit(1) + bytes(40) + unit(3)], [0, 3], ["queue offsets 1 to 2: zeroed"]),
        ([bytes(20) + unit(3)], [1], ["queue offset 0: zeroed"]),
        ([unit(1) + bytes(20), bytes(20) + unit(3)], [0, 3], ["queue offset 1: zeroed", "queue offset 2: zeroed"]),
        ([unit(1) + unit(2)[:7]], [0], ["queue offset 1: torn (the file ends within a unit)"]),
    ],
)
def test_damaged_queues(queue, run, files, shown, told):
    folder = queue(*files)
    code, out, err = run("cat", folder)
    assert (code, offsets(out)) == (1, shown)
    lines = err.splitlines()
    assert len(lines) == len(told)
    for line, text in zip(lines, told, strict=True):
        assert line.startswith(f"rocketc: {folder}/0") and text in line
    code, out, _ = run("info", folder)
    assert code == 1
    assert all(text.split("(")[0].strip() in " ".join(out.split()) for text in told)
    found = json.loads(run("info", "--json", folder)[1])
    assert (found["problems"], len(found["faults"]), found["queues"][0]["units"]) == (len(told), len(told), len(shown))


def test_unwritten_units_are_not_damage(queue, run):
    code, out, err = run("cat", queue(unit(1) + bytes(20), bytes(40)))
    assert (code, offsets(out), err) == (0, [0], "")
    code, out, err = run("cat", queue(bytes(40)))
    assert (code, out, err) == (0, "", "rocketc: nothing to read\n")
    code, _, err = run("info", queue(bytes(40)))
    assert code == 0 and "nothing to read" in err


def test_a_missing_file(queue, run):
    folder = queue(unit(1) + unit(2), unit(3) + unit(4), unit(5) + unit(6))
    (folder / f"{40:020d}").unlink()
    code, out, err = run("cat", folder)
    assert (code, offsets(out)) == (1, [0, 1, 4, 5])
    assert "queue offsets 2 to 3: missing (there is no file for them)" in err
    assert run("cat", folder, "-o", 4)[0] == 0


def test_a_file_that_is_not_named_by_a_unit(queue, run):
    code, out, err = run("cat", queue(unit(1), base=45))
    assert (code, offsets(out)) == (1, [2])
    assert "bad_name (the name of a queue file must be the byte offset of its first unit in the queue)" in err


@pytest.mark.parametrize(
    ("data", "units", "told"),
    [
        (ext_unit() + struct.pack(">h", 7) + bytes(9), 1, "bytes 20 to 30: bad_size"),
        (ext_unit() + struct.pack(">hqqh", 20, 1, 2, 3) + bytes(9), 1, "bytes 20 to 48: bad_bit_map_size"),
        (ext_unit() + bytes(30) + b"x" + bytes(9), 1, "bytes 20 to 50: zeroed"),
        (ext_unit() + ext_unit(b"abc")[:-1], 1, "bytes 20 to 41: torn"),
        (ext_unit() + b"\1", 1, "byte 20: torn"),
    ],
)
def test_damaged_ext_files(queue, run, data, units, told):
    code, out, err = run("cat", "--json", queue(data, kind="consumequeue_ext"))
    assert (code, len(out.splitlines())) == (1, units)
    assert told in err and err.count("\n") == 1


def test_damaged_batch_units(queue, run):
    data = batch_unit(0, 0, 10) + batch_unit(100, 10, 0) + batch_unit(100, -1, 5) + batch_unit(200, 15, 5)
    code, out, err = run("cat", "--json", queue(data, kind="batchconsumequeue"))
    assert (code, [json.loads(line)["queueOffset"] for line in out.splitlines()]) == (1, [0, 15])
    assert re.findall(r"unit \d: \w+", err) == ["unit 1: bad_batch_size", "unit 2: bad_base_offset"]


def test_a_damaged_index_file(golden, run, tmp_path):
    store = stores.unpack("v533-store", tmp_path)
    path = min((store.path / "index").iterdir())
    data = bytearray(path.read_bytes())
    units_at = 40 + 4 * 500
    data[units_at + 20 * 5 + 4] |= 0x80  # physical offset of unit 5
    data[units_at + 20 * 8 : units_at + 20 * 10] = bytes(40)
    slot = int.from_bytes(data[units_at + 20 * 20 : units_at + 20 * 20 + 4], "big") % 500
    data[40 + 4 * slot] = 0x7F
    path.write_bytes(data)
    code, out, err = run("cat", "--json", path)
    shown = {json.loads(line)["unit"] for line in out.splitlines()}
    assert code == 1
    assert not {5, 8, 9, 20} & shown and len(shown) > 380
    assert "unit 5: bad_phy_offset" in err and "units 8 to 9: zeroed" in err and "unit 20: bad_chain" in err
    code, out, _ = run("info", "--json", path)
    found = json.loads(out)
    assert code == 1
    assert {"file": str(path), "reason": "bad_slot", "what": "slot", "first": slot, "last": slot} in found["faults"]
    assert found["files"][0]["units"] == len(shown)


def test_an_index_file_with_an_unknown_number_of_slots(golden, run, tmp_path):
    data = (min((golden("v533-store").path / "index").iterdir())).read_bytes()
    path = tmp_path / "20261121081424858"
    path.write_bytes(data[:-30])
    for command in ("cat", "info"):
        code, out, err = run(command, "--as", "index", path)
        assert code == 1
        assert "unknown_slots (the number of hash slots is unknown: give it with --index-slots)" in " ".join(
            (out + err).split()
        )
    code, out, err = run("cat", "--as", "index", "--index-slots", 500, "--json", path)
    assert (code, len(out.splitlines())) == (1, 397)
    assert "torn (the file ends within a unit)" in err
    code, out, err = run("cat", "--as", "index", "--index-slots", 10**6, path)
    assert code == 2 and "--index-slots: " in err and "an index file of 10010 bytes can't have 1000000 slots" in err


def test_a_torn_checkpoint(tmp_path, run):
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(39))
    for command in ("cat", "info"):
        code, out, err = run(command, path)
        assert code == 1
        # a table wraps a long path at any position
        assert "checkpoint:acheckpointhasatleast40bytes,not39" in "".join((out + err).split())


def test_a_table_with_its_copy(tmp_path, run):
    path = tmp_path / "topics.json"
    path.write_text('{"topicConfigTable":{')
    code, out, err = run("cat", path)
    assert (code, out) == (1, "")
    assert f"{path}: line 1, column 22: expected a name" in err
    (tmp_path / "topics.json.bak").write_text('{"topicConfigTable":{"a":{}}}')
    code, out, err = run("cat", "--json", path)
    assert (code, json.loads(out)) == (1, {"topicConfigTable": {"a": {}}, "file": f"{path}.bak"})
    assert err.rstrip().endswith(f"or a whole number; the output is that of {path}.bak")
    code, out, _ = run("info", "--json", path)
    assert (code, json.loads(out)["files"]) == (1, [{"file": f"{path}.bak", "counts": {"topics": 1}}])
    path.unlink()
    assert run("cat", path)[0] == 1
    assert run("cat", f"{path}.bak")[0] == 0


def test_one_bad_file_does_not_hide_the_others(tmp_path, run):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/a.json").write_text("{")
    (tmp_path / "config/b.json").write_text('{"x":{}}')
    code, out, err = run("cat", "--json", tmp_path / "config")
    assert (code, json.loads(out)["x"]) == (1, {})
    assert "a.json: line 1, column 2" in err


# ---------------------------------------------------------------- kinds of files


def test_as(golden, rows, run, tmp_path):
    store = golden("v533-broker").path
    for kind, place in (
        ("consumequeue", "consumequeue/Orders/0/00000000000000000000"),
        ("batchconsumequeue", "batchconsumequeue/Inner/0/00000000000000000000"),
        ("index", "index/20261121081106903"),
        ("checkpoint", "checkpoint"),
        ("json", "config/consumerOffset.json"),
    ):
        copy = tmp_path / "copy.bin"
        copy.write_bytes((store / place).read_bytes())
        expected = [
            {k: v for k, v in row.items() if k not in ("topic", "queueId", "file")} for row in rows(store / place)
        ]
        assert [{k: v for k, v in row.items() if k != "file"} for row in rows("--as", kind, copy)] == expected
        assert run("info", "--as", kind, copy)[0] == 0
    out = run("cat", "--as", "consumequeue", "-c", 1, store / "consumequeue/Orders/0/00000000000000000000")[1]
    assert "Orders/0@0 " in out
    copy.write_bytes((store / "consumequeue/Orders/0/00000000000000000000").read_bytes())
    assert "?/?@0 " in run("cat", "--as", "consumequeue", "-c", 1, copy)[1]


def test_the_commit_log_stays_the_commit_log(golden, run, tmp_path):
    store = golden("v533-store").path
    named = [tmp_path / name for name in ("index", "config", "consumequeue")]
    for place in named:
        place.symlink_to(store)
    for path in (store, store / "commitlog", store / "commitlog" / f"{0:020d}", *named):
        code, out, err = run("cat", "-c", 1, "-f", r"%O\n", path)
        assert (code, out, err) == (0, "0\n", "")
        assert json.loads(run("info", "--json", path)[1])["firstStoreTimestamp"]
    path = tmp_path / "consumequeue" / "commitlog" / f"{0:020d}"
    assert run("cat", "-c", 1, "-f", r"%O\n", path)[1] == "0\n"
    code, out, _ = run("cat", "--as", "commitlog", store / "checkpoint")
    assert (code, out) == (1, "")


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("consumequeue", ["--tag", "a"]),
        ("consumequeue/a/0", ["--key", "a"]),
        ("consumequeue", ["-t", "a"]),
        ("consumequeue", ["--from", "-3d"]),
        ("consumequeue", ["-F"]),
        ("consumequeue", ["-f", "%t"]),
        ("consumequeue", ["--body", "hex"]),
        ("consumequeue", ["--index-slots", "5"]),
        ("index", ["-o", "5"]),
        ("index", ["--crc", "full"]),
        ("checkpoint", ["-c", "1"]),
        ("checkpoint", ["--start", "1"]),
        (".", ["--index-slots", "5"]),
    ],
)
def test_options_without_effect_are_refused_by_name(golden, run, place, options):
    code, out, err = run("cat", golden("v533-store").path / place, *options)
    name = {"-t": "--topic", "-F": "--follow", "-f": "--format", "-o": "--offset", "-c": "--count"}.get(
        *options[:1] * 2
    )
    assert (code, out) == (2, "")
    assert f"rocketc cat: {name} does not apply to " in err


def test_the_end_of_a_queue_is_not_a_start(golden, run):
    code, out, err = run("cat", golden("v533-store").path / "consumequeue", "-o", "end")
    assert (code, out) == (2, "") and "-o end" in err


def test_one_kind_at_a_time(golden, run):
    store = golden("v533-store").path
    code, _, err = run("cat", store / "checkpoint", store / "commitlog")
    assert code == 2
    assert f"{store}/checkpoint (checkpoint), {store}/commitlog (commit log)" in err


def test_patterns_and_lists(golden, rows):
    store = golden("v533-store").path
    whole = rows(store / "consumequeue/a")
    assert rows(f"{store}/consumequeue/a/*") == whole
    assert rows(*(store / f"consumequeue/a/{i}" for i in (0, 1, 2))) == whole


def test_missing_files(tmp_path, run):
    (tmp_path / "consumequeue").mkdir()
    for place in ("consumequeue", "checkpoint", "config/topics.json", "index/20261121081424858"):
        for command in ("cat", "info"):
            code, out, err = run(command, tmp_path / place)
            assert code == (0 if place == "consumequeue" else 3)
            text = " ".join((out + err).split())
            assert "nothing to read" in text or "No such file" in text
    (tmp_path / "index").mkdir()
    assert run("cat", tmp_path / "index") == (0, "", "rocketc: nothing to read\n")


# ---------------------------------------------------------------- hostile files, signals


@pytest.mark.measure
def test_a_huge_sparse_queue_file_takes_little_memory(tmp_path, run):
    folder = tmp_path / "consumequeue/t/0"
    folder.mkdir(parents=True)
    with open(folder / f"{0:020d}", "wb") as out:
        out.truncate(20 << 36)
        out.write(unit(1))
        out.seek(20 << 35)
        out.write(unit(2))
    tracemalloc.start()
    code, out, err = run("cat", "--json", folder)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert (code, [json.loads(line)["queueOffset"] for line in out.splitlines()]) == (1, [0, 1 << 35])
    assert f"queue offsets 1 to {(1 << 35) - 1}: zeroed" in err


@pytest.mark.measure
@pytest.mark.parametrize("kind", ["consumequeue", "batchconsumequeue", "consumequeue_ext", "index"])
def test_garbage_takes_little_memory_and_output(tmp_path, run, kind):
    path = tmp_path / f"{0:020d}"
    block = bytes((i * i + i // 7) & 0xFF for i in range(99_991))
    path.write_bytes(block * 4)
    more = ["--index-slots", 1000] if kind == "index" else []
    for command in ("cat", "info"):
        tracemalloc.start()
        code, _, err = run(command, "--as", kind, *more, path)
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
        tracemalloc.stop()
        assert code == 1
        assert err.count("\n") <= 101


def test_a_reader_that_closes_the_pipe(queue):
    folder = queue(b"".join(unit(100 * i) for i in range(50_000)))
    with start("cat", folder) as process:
        assert process.stdout.readline().startswith(b"queue@offset")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk(queue):
    folder = queue(unit(0) * 5000)
    for command in ("cat", "info"):
        with open("/dev/full", "wb") as full:
            done = rocketc(command, folder, stdout=full)
        assert (done.returncode, done.stderr) == (3, b"rocketc: can't write: No space left on device\n")


def test_ctrl_c(queue):
    folder = queue(b"".join(unit(100 * i) for i in range(100_000)))
    with start("cat", "--json", folder) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == b""
    assert process.returncode == 130


def test_help_names_the_kinds_of_files():
    text = rocketc("cat", "--help").stdout.decode()
    assert "--as" in text and "--index-slots" in text and "consumequeue_ext" in text
