"""rocketc decode-id: both kinds of ids, how their kind is determined, and invalid ids."""

import json
from functools import partial

import pytest
from support import stores
from support.command import on_terminal, rocketc

from rocketc.cli import decode_id

OFFSET = "C0A8010A00002A9F0000000040001000"
UNIQUE = "7F0000010A3C18B4AAC22D1F2B6C0003"
NOW = 1_795_000_000  # 2026-11-18T10:26:40Z


@pytest.fixture
def call(run, monkeypatch):
    """call(*args): run the command in this process, on a day in November 2026. Return exit code, stdout, stderr."""
    monkeypatch.setattr(decode_id.time, "time", lambda: NOW)
    return partial(run, "decode-id")


@pytest.fixture
def told(call):
    """`told(*args)`: the JSON object of the only id."""

    def run(*args):
        code, out, err = call("--json", *args)
        assert (code, err, out.count("\n")) == (0, "", 1)
        return json.loads(out)

    return run


def test_an_offset_id_for_people(call):
    assert call(OFFSET) == (0, """\
C0A8010A00002A9F0000000040001000
  offset id       where a broker stored the message
  store host      192.168.1.10:10911 (private)
  physical offset 1073745920
  file            00000000001073741824, byte 4096, if files are 1 GiB
""", "")  # fmt: skip


def test_a_unique_id_for_people(call):
    assert call(UNIQUE.lower()) == (0, """\
7F0000010A3C18B4AAC22D1F2B6C0003
  unique id       which client made the message
  address         127.0.0.1 (loopback)
  process         2620 (the low 16 bits of its id)
  class loader    0x18B4AAC2 (its hash code, if the client is Java)
  made            on day 9 of a month at 18:16:57.452, by the client's clock
                  at the latest 2026-11-09T18:16:57.452 (see --month)
  counter         3
""", "")  # fmt: skip


def test_an_id_of_unclear_kind_for_people(call):
    code, out, err = call("E0000001" + "0" * 24)
    assert (code, err) == (0, "")
    assert "kind unclear: it can be read as both kinds, and both are unlikely\n" in out
    for doubt in ("224.0.0.1 can't be the address of a broker", "port 0 is not valid", "process id 0 is not valid"):
        assert f"  but {doubt}\n" in out
    assert out.index("offset id") < out.index("but port 0 is not valid") < out.index("unique id")
    assert "224.0.0.1 (multicast)" in out


def test_both_kinds_as_json(told):
    assert told(OFFSET, "--file-size", 4096) == {
        "id": OFFSET,
        "kind": "offset",
        "offsetId": {
            "storeHost": "192.168.1.10:10911", "address": "192.168.1.10", "port": 10911, "physicalOffset": 1073745920,
            "file": "00000000001073745920", "position": 0, "fileSize": 4096,
        },
    }  # fmt: skip
    assert told(UNIQUE) == {
        "id": UNIQUE,
        "kind": "unique",
        "uniqueId": {
            "address": "127.0.0.1", "processId": 2620, "classLoaderHash": 0x18B4AAC2, "counter": 3,
            "monthMs": 757_017_452, "day": 9, "time": "18:16:57.452", "bornAtTheLatest": "2026-11-09T18:16:57.452",
        },
    }  # fmt: skip
    unclear = told("7F0000010000" + "F" * 20)
    assert unclear["kind"] == "unclear"
    assert unclear["offsetId"]["doubts"] and unclear["uniqueId"]["doubts"]
    assert "file" not in unclear["offsetId"] and unclear["offsetId"]["physicalOffset"] < 0
    v6 = told("FE80" + "0" * 27 + "1" + "00002A9F" + "0" * 15 + "7")
    assert (v6["kind"], v6["offsetId"]["storeHost"]) == ("offset", "[fe80::1]:10911")


@pytest.mark.parametrize("name", ["v497-broker", "v533-broker", "v533-store"])
def test_the_ids_of_golden_stores(golden, call, name):
    expected, ids = [], []
    for record in golden(name).messages[::5]:
        unique = record["properties"].get("UNIQ_KEY", "")
        ids.append(record["msgId"])
        expected.append(("offset", record["phyOffset"]))
        if len(unique) in (32, 56) and not unique.startswith("TX"):
            ids.append(unique)
            expected.append(("unique", None))
    code, out, err = call("--json", *ids)
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(one["kind"], one.get("offsetId", {}).get("physicalOffset")) for one in lines] == expected
    assert [one["id"] for one in lines] == ids
    assert stores.WHOLE


def test_the_month_of_a_unique_id(told, call):
    assert told(UNIQUE, "--month", "2025-02")["uniqueId"]["born"] == "2025-02-09T18:16:57.452"
    assert (
        "\n  made            2025-02-09T18:16:57.452, by the client's clock\n" in call(UNIQUE, "--month", "2025-02")[1]
    )
    late = "7F0000010A3C18B4AAC29D1F2B6C0003"  # day 31
    assert told(late)["uniqueId"]["bornAtTheLatest"].startswith("2026-10-31T")
    code, out, err = call(late, "--month", "2026-02")
    assert (code, out) == (2, "")
    assert err == f"rocketc: {late}: made on day 31 of a month, and 2026-02 is not that long\n"


def test_an_invalid_id_is_reported_and_the_others_are_shown(call):
    code, out, err = call(OFFSET, "nonsense", UNIQUE, "AB")
    assert code == 2
    assert out.count(" id  ") == 2 and out.count("\n\n") == 1
    assert err.splitlines() == [
        "rocketc: 'nonsense' is not a message id: character 1 is 'n', not a hex digit",
        "rocketc: 'AB' is not a message id: it has 2 hex digits, not 32 (IPv4) or 56 (IPv6)",
    ]


def test_ids_with_commas_as_a_producer_gets_for_a_batch(call):
    code, out, _ = call("--json", f"{OFFSET},{UNIQUE}")
    assert (code, out.count("\n")) == (0, 2)


def test_ids_of_stdin(tmp_path):
    lines = tmp_path / "ids"
    lines.write_bytes(f"{OFFSET}\r\n\n  {UNIQUE},{OFFSET}\n".encode() + b"\xff\x1b[31m\n")
    with open(lines, "rb") as stdin:
        done = rocketc("decode-id", "-", "--json", stdin=stdin)
    assert done.returncode == 2
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [OFFSET, UNIQUE, OFFSET]
    assert done.stderr.count(b"\n") == 1 and b"is not a message id" in done.stderr and b"\x1b" not in done.stderr
    done = rocketc("decode-id", "-")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_color_is_for_terminals(call):
    code, text = on_terminal("decode-id", OFFSET)
    assert code == 0 and text.startswith("\x1b[1mC0A8")
    assert "\x1b" not in on_terminal("decode-id", OFFSET, env={"NO_COLOR": "1"})[1]
    assert max(map(len, call(UNIQUE, OFFSET)[1].splitlines())) <= 80
