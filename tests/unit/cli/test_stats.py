"""rocketc stats: numbers compared with a plain count, the table, JSON and bar charts; errors and unusual stores."""

import datetime
import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support import compare, expected_counts, oracle, stores
from support.command import Terminal, environment, on_terminal, rocketc, start

from rocketc.cli import output
from rocketc.cli import stats as command
from rocketc.jobs import _counts
from rocketc.jobs.counts import DIMENSIONS, count
from rocketc.report import plots

HOUR = 3_600_000
T0 = 1_700_000_000_000 // (24 * HOUR) * 24 * HOUR  # 2023-11-14T00:00Z

KEYS = {
    "topic": "topic", "queue": "queueId", "broker": "brokerName", "tag": "tags", "key": "keys", "host": "bornHost",
    "store-host": "storeHost",
    "second": "second", "minute": "minute", "hour": "hour", "day": "day", "size": "size",
}  # fmt: skip
SUMS = ["messages", "storeSize", "firstStoreTimestamp", "lastStoreTimestamp", "minStoreSize", "maxStoreSize"]


@pytest.fixture
def stats(run, monkeypatch):
    """stats(*args): run the command in this process. Return exit code, stdout, stderr."""
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    return partial(run, "stats")


@pytest.fixture
def told(stats):
    """`told(*args)`: exit code, and the JSON objects of the output."""

    def run(*args):
        code, out, _ = stats("--json", *args)
        return code, [json.loads(line) for line in out.splitlines()]

    return run


def groups_of(objects, by):
    """Return JSON objects in the form of expected_counts.count()."""
    names = [KEYS[name] for name in by]
    out = {}
    for found in objects:
        assert set(found) <= {*names, *SUMS}
        out[tuple(found.get(name) for name in names)] = [found.get(key) for key in SUMS]
    assert len(out) == len(objects)
    return out


def records_of(store, crc="none"):
    walked = oracle.walk_log(oracle.read_log(store.path / "commitlog"), crc=crc)
    return oracle.records(compare.expected(walked, decompress=False))


def write(folder: Path, *messages: dict) -> Path:
    """Write a log of the messages; each is a dict of arguments of oracle.encode."""
    data = b""
    for fields in messages:
        data += oracle.encode(**{"topic": "t", "body": b"", **fields}, phy_offset=len(data))
    folder.mkdir(exist_ok=True)
    (folder / f"{0:020d}").write_bytes(data)
    return folder


# ---------------------------------------------------------------- the numbers


@pytest.mark.parametrize("name", [name for name in stores.NAMES if name != "flights-2013-01"])
def test_json_by_every_dimension(golden, told, name):
    store = golden(name)
    records = records_of(store)
    alone = [[each] for each in DIMENSIONS] if name == "v533-broker" else [["topic"]]
    for by in [*alone, ["tag", "queue", "size"], list(DIMENSIONS), []]:
        code, objects = told(store.path, "--by", ",".join(by))
        assert groups_of(objects, by) == expected_counts.count(records, by), by
        assert code == (
            1 if oracle.damage(oracle.walk_log(oracle.read_log(store.path / "commitlog"), crc="none")) else 0
        )


def test_numbers_agree_with_those_of_rocketmq(golden, told):
    store = golden("v533-store")
    lines = {}
    for record in store.messages:
        group = lines.setdefault(record["topic"], [0, 0])
        group[0] += 1
        group[1] += record["size"]
    _, objects = told(store.path, "--no-unwrap")
    assert {found["topic"]: [found["messages"], found["storeSize"]] for found in objects} == lines


def test_the_selection_options_are_those_of_cat(golden, told):
    store = golden("v533-broker")
    records = [r for r in records_of(store) if r["topic"] == "Orders" and r["tags"] == "TagA"]
    assert len(records) > 10
    middle = sorted(r["storeTimestamp"] for r in records)[len(records) // 2]
    kept = [r for r in records if r["storeTimestamp"] >= middle]
    _, objects = told(store.path, "-t", "Orders", "--tag", "TagA", "--from", middle)
    assert groups_of(objects, ["topic"]) == expected_counts.count(kept, ["topic"])
    _, objects = told(store.path, "--sql", "TAGS = 'TagA'", "-t", "Orders")
    assert groups_of(objects, ["topic"]) == expected_counts.count(records, ["topic"])
    asked = [r for r in records if b"1" in oracle.plain_body(r)]
    _, objects = told(store.path, "-t", "Orders", "--tag", "TagA", "--grep", "1")
    assert groups_of(objects, ["topic"]) == expected_counts.count(asked, ["topic"])


def test_several_paths(golden, told):
    one, two = golden("v533-store"), golden("v533-store-crc")
    _, objects = told(one.path, two.path, "--by", "queue")
    assert groups_of(objects, ["queue"]) == expected_counts.count(records_of(one) + records_of(two), ["queue"])


# ---------------------------------------------------------------- order, --top


def test_orders(told, tmp_path):
    log = write(
        tmp_path / "log",
        {"topic": "b", "body": b"x" * 900, "store_timestamp": T0 + 9},
        *({"topic": "a", "body": b"x" * 50, "store_timestamp": T0 + 5 + n} for n in range(3)),
        {"topic": "c", "body": b"x" * 200, "store_timestamp": T0},
    )

    def topics(*args):
        return [found.get("topic") for found in told(log, *args)[1]]

    assert topics() == topics("--sort", "bytes") == ["b", "a", "c"]
    assert topics("--sort", "messages") == ["a", "b", "c"]
    assert topics("--sort", "name") == ["a", "b", "c"]
    assert topics("--sort", "time") == ["c", "a", "b"]
    assert topics("--top", "1") == ["b", None]
    assert topics("--top", "1", "--sort", "messages") == ["a", None]
    assert topics("--top", "2", "--sort", "name") == ["a", "b", None]
    assert topics("--top", "3") == topics("--top", "9") == topics("--top", "0") == ["b", "a", "c"]
    assert topics("--by", "topic,day") == ["a", "b", "c"]
    assert topics("--by", "size,topic") == ["a", "c", "b"]


def test_times_are_in_order_and_not_limited(told, tmp_path):
    times = [T0 + n * HOUR for n in range(30)]
    log = write(tmp_path / "log", *({"store_timestamp": when} for when in reversed(times)))
    assert [found["hour"] for found in told(log, "--by", "hour")[1]] == times


def test_the_other_groups_are_summed(golden, told, stats):
    store = golden("v533-broker")
    whole = expected_counts.count(records_of(store), ["topic"])
    _, [*shown, other] = told(store.path, "--top", "2")
    largest = sorted(whole, key=lambda key: -whole[key][1])
    assert [(found["topic"],) for found in shown] == largest[:2]
    rest = [whole[key] for key in largest[2:]]
    assert other == {
        "otherGroups": len(rest),
        "messages": sum(group[0] for group in rest),
        "storeSize": sum(group[1] for group in rest),
        "firstStoreTimestamp": min(group[2] for group in rest),
        "lastStoreTimestamp": max(group[3] for group in rest),
        "minStoreSize": min(group[4] for group in rest),
        "maxStoreSize": max(group[5] for group in rest),
    }
    _, text, _ = stats(store.path, "--top", "2")
    assert f"(other: {len(rest)} groups)" in text
    _, text, _ = stats(store.path, "--top", len(whole) - 1)
    assert "(other: 1 group)" in text


def test_a_table_shows_twenty_groups(stats, told, tmp_path):
    log = write(tmp_path / "log", *({"topic": f"t{n:02}"} for n in range(30)))
    _, text, _ = stats(log)
    assert "(other: 10 groups)" in text and text.count("\nt") == 1 + 20 + 1  # header, 20, total
    assert "(other" not in stats(log, "--top", "0")[1]
    assert len(told(log)[1]) == 30


def test_more_groups_than_the_limit(told, stats, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "count", lambda *args, **options: count(*args, max_groups=5, **options))
    log = write(tmp_path / "log", *({"topic": f"t{n:02}"} for n in range(30)))
    code, [*shown, other] = told(log)
    assert (code, [found["topic"] for found in shown]) == (0, [f"t{n:02}" for n in range(5)])
    assert (other["otherGroups"], other["messages"]) == (0, 25)
    _, text, err = stats(log, "--top", "2")
    assert "(other: more than 3 groups)" in text
    assert err == ("rocketc: there are more than 5 groups: 25 messages of the later groups are counted together\n")


# ---------------------------------------------------------------- the table


def test_the_flights_table(golden, stats):
    """Checks the exact text."""
    code, text, err = stats(golden("flights-2013-01").path)
    assert (code, err) == (0, "")
    assert text == (
        "times  2026-11-21T08:14:24.840Z to 2026-11-21T08:14:38.729Z (13 s)\n"
        "sizes  530 B to 549 B; 50% up to 543 B, 90% up to 549 B, 99% up to 549 B\n"
        "\n"
        "topic    messages  share     bytes  share   mean    max     first      last\n"
        "flights     27004   100%  13.9 MiB   100%  540 B  549 B  08:14:24  08:14:38\n"
    )


def test_the_table_by_tag_and_time(golden, stats):
    """The rows are the groups; the last row is the total."""
    store = golden("v533-broker")
    _, text, _ = stats(store.path, "--by", "second,tag")
    whole = expected_counts.count(records_of(store), ["second", "tag"])
    lines = text.splitlines()[4:]
    assert len(lines) == len(whole) + 1
    assert [line.split()[0] for line in lines[:-1]] == sorted(line.split()[0] for line in lines[:-1])
    assert re.match(r"total +1659 +100% +776.8 KiB", lines[-1])
    [[when, tag]] = [key for key in whole if whole[key][0] == max(group[0] for group in whole.values())][:1]
    shown = datetime.datetime.fromtimestamp(when / 1000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert re.search(rf"^{shown}  {re.escape(tag or '(none)')} +{whole[when, tag][0]} ", text, re.M)


def test_names(stats, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    log = write(tmp_path / "log", {"topic": "", "queue_id": 7, "store_timestamp": T0 + 3 * HOUR + 61_000})
    _, text, _ = stats(log, "--by", "topic,queue,tag,host,day,hour,minute,second,size")
    first = text.splitlines()[4]
    assert first.split()[:8] == [
        '""', "7", "(none)", "127.0.0.1:0", "2023-11-14", "2023-11-14T03:00Z", "2023-11-14T03:01Z",
        "2023-11-14T03:01:01Z",
    ]  # fmt: skip
    assert "64 B to 128 B" in first


def test_impossible_times(stats, told, tmp_path):
    log = write(tmp_path / "log", {"store_timestamp": (1 << 63) - 1}, {"store_timestamp": 1 << 52})
    _, objects = told(log, "--by", "hour")
    assert [found.get("hour") for found in objects] == [None, (1 << 52) // HOUR * HOUR]
    assert "firstStoreTimestamp" not in objects[0]
    code, text, _ = stats(log, "--by", "hour")
    assert code == 0 and "(none)" in text and f"{(1 << 52) // HOUR * HOUR}ms" in text


@pytest.mark.parametrize("columns", [60, 80, 100, 160])
@pytest.mark.parametrize("by", ["topic", "topic,hour", "queue,size", "tag,key,host,store-host,minute", ""])
def test_the_table_fits_the_terminal(golden, stats, monkeypatch, columns, by):
    monkeypatch.setenv("COLUMNS", str(columns))
    store = golden("v533-broker")
    _, text, _ = stats(store.path, "--by", by, "--top", "20")
    if by.count(",") < 4:
        assert max(map(len, text.splitlines())) <= columns
    assert re.search(r"messages +share +bytes", text)
    assert columns < 160 or by.count(",") == 4 or "last" in text


def test_long_names_are_folded_whole(golden, stats):
    [name] = {r["topic"] for r in records_of(golden("v533-broker")) if r["topic"].startswith("long-")}
    _, text, _ = stats(golden("v533-broker").path)
    at = text.index("long-")
    first, *others = text[at:].splitlines()[:6]
    assert (first.split()[0] + "".join(line.strip() for line in others)).startswith(name)


HOSTILE = "\x1b[31mred\x07\n\u202eevil"


def test_hostile_names(stats, told, tmp_path):
    log = write(tmp_path / "log", {"topic": HOSTILE, "properties": {"TAGS": HOSTILE}})
    for args in (["--by", "topic,tag"], ["--by", "tag", "--plot"], ["--by", "tag,hour", "--plot"]):
        _, text, _ = stats(log, *args)
        assert "\x1b" not in text and "\u202e" not in text
    assert told(log, "--by", "tag")[1][0]["tags"] == HOSTILE
    code, text = on_terminal("stats", log, "--by", "tag", "--json")
    assert code == 0 and "\x1b" not in text and "\u202e" not in text
    assert json.loads(text)["tags"] == HOSTILE


# ---------------------------------------------------------------- bar charts


def test_bars(golden, stats):
    """Checks the exact text."""
    _, text, _ = stats(golden("v533-broker").path, "--by", "host", "--plot")
    assert (
        text
        == """bytes by host; 776.8 KiB in all

127.0.0.1:39314┤███████████████████████████████████████████████ 536.8 KiB  69.1%
127.0.0.1:39332┤████████ 87.0 KiB  11.2%
127.0.0.1:39316┤███████ 79.0 KiB  10.2%
127.0.0.1:39340┤████ 48.9 KiB  6.3%
127.0.0.1:39352┤██ 24.3 KiB  3.1%
127.0.0.1:20931┤█ 786 B  <0.1%
               └┬────────────────┬─────────────────┬────────────────────────────
                0             200 KiB           400 KiB
"""
    )


def test_stacked_bars_over_time(golden, stats):
    """Checks the exact text."""
    _, text, _ = stats(golden("v533-broker").path, "--by", "topic,second", "--plot")
    assert (
        text
        == """bytes per second, 2026-11-21 08:11:06 to 2026-11-21 08:11:30 UTC
█ Big  ▒ Orders  ░ Batch  ▓ RMQ_SYS_TRANS_HALF_TOPIC  # SCHEDULE_TOPIC_XXXX
· (12 others)

       │                ····
       │          ··    ····
       │          ··    ····
       │          ··    ####
100 KiB┤          ▓▓····░░▓▓
       │          ▓▓····░░░░
       │          ░░##··░░░░
       │          ▒▒▓▓##▒▒▒▒
       │          ▒▒▒▒░░▒▒▒▒
       │      ··  ██▒▒░░▒▒▒▒
 50 KiB┤      ····██▒▒▒▒▒▒██
       │      ░░##████▒▒████
       │      ▒▒▒▒████▒▒████
       │      ██████████████    ··
       │  ░░##██████████████    ▓▓
      0┤▒▒██▒▒██████████████····▓▓····▓▓··········  ##··
       └────────┬─────────┬─────────┬─────────┬─────────
             08:11:10  08:11:15  08:11:20  08:11:25
"""
    )


@pytest.mark.parametrize("bars", [1, 2, 3, 7, 23, 24, 34, 35, 69])
def test_the_height_of_bars_over_time(bars):
    values = [(7919 * n) % 1000 + 1 for n in range(bars)]
    text = plots.draw_over_time("bytes", "minute", [(n * 60_000, "", v) for n, v in enumerate(values)], True, False)
    lines = [line for line in text.splitlines() if re.match(r"[^┤│]*[┤│]", line)]
    rows = [re.sub(r"^[^┤│]*[┤│]", "", line).ljust(80) for line in reversed(lines)]
    columns = min(69 // bars, 8)
    for n, value in enumerate(values):
        for column in range(columns):
            cells = [row[n * columns + column] for row in rows]
            height = sum({"█": 1, "▄": 0.5, " ": 0}[cell] for cell in cells)
            if columns > 2 and column == columns - 1:
                assert height == 0
            else:
                assert 0 <= height - value / max(values) * len(rows) <= 0.5 + 1e-6


def test_titles_of_bar_charts(golden, stats):
    store = golden("v533-broker")
    _, text, _ = stats(store.path, "--plot", "--sort", "messages", "--top", "2")
    whole = expected_counts.count(records_of(store), ["topic"])
    assert text.startswith("messages by topic; 1659 in all\n")
    first, second, other = text.splitlines()[2:5]
    most = sorted((group[0] for group in whole.values()), reverse=True)
    assert first.endswith(f" {most[0]}  {100 * most[0] / 1659:.1f}%")
    assert second.endswith(f" {most[1]}  {100 * most[1] / 1659:.1f}%")
    assert other.startswith(f"(other: {len(whole) - 2} groups)┤")
    _, text, _ = stats(store.path, "--plot", "--by", "size")
    assert [line.split("┤")[0].strip() for line in text.splitlines()[2:8]] == [
        "128 B to 256 B", "256 B to 512 B", "512 B to 1 KiB", "1 KiB to 2 KiB", "2 KiB to 4 KiB", "4 KiB to 8 KiB",
    ]  # fmt: skip
    _, text, _ = stats(store.path, "--plot", "--by", "")
    assert "total┤" in text and "776.8 KiB  100%" in text


def test_long_periods_are_drawn_in_wider_steps(stats, tmp_path):
    """A month in steps of a minute: the bars are merged until they fit, and the title has the new step."""
    log = write(tmp_path / "log", *({"store_timestamp": T0 + n * HOUR} for n in range(31 * 24)))
    _, text, _ = stats(log, "--plot", "--by", "minute")
    assert text.startswith("bytes per 12 hours, 2023-11-14 00:00 to 2023-12-15 00:00 UTC\n")
    assert max(map(len, text.splitlines())) <= 80 and len(text.splitlines()) <= 22
    _, text, _ = stats(log, "--plot", "--by", "day,queue")
    assert text.startswith("bytes per day, 2023-11-14 to 2023-12-15 UTC\n")
    assert "11-16         11-23" in text


def test_times_far_apart_and_no_times(stats, tmp_path):
    log = write(tmp_path / "log", {"store_timestamp": -(1 << 50)}, {"store_timestamp": 1 << 52})
    code, text, _ = stats(log, "--plot", "--by", "second")
    assert code == 0 and max(map(len, text.splitlines())) <= 80
    log = write(tmp_path / "none", {"store_timestamp": (1 << 63) - 1})
    code, text, _ = stats(log, "--plot", "--by", "second")
    assert (code, text) == (0, "no message has a valid time\n")


@pytest.mark.parametrize("columns", [20, 21, 30, 39, 40, 41, 42, 50, 60, 80, 133])
def test_a_bar_ends_one_blank_before_its_text(golden, stats, monkeypatch, columns):
    """On a narrow terminal the share is left out."""
    monkeypatch.setenv("COLUMNS", str(columns))
    _, text, _ = stats(golden("flights-2013-01").path, "--by", "tag", "--plot", "--top", "5")
    sizes = ["2.4 MiB  17.2%", "2.3 MiB  16.4%", "2.2 MiB  15.5%", "1.9 MiB  13.7%", "1.4 MiB  10.4%", "3.8 MiB  27.0%"]
    bars = re.findall(r"┤█+ (.*)", text)
    assert bars == [size if columns >= 39 else size.partition("  ")[0] for size in sizes]
    longest = max((line for line in text.splitlines() if "█" in line), key=len)
    assert "(oth" in longest and len(longest) == columns


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 133])
@pytest.mark.parametrize("by", ["topic", "key", "topic,second", "second", "size,host", "key,day"])
def test_bar_charts_fit_the_terminal(golden, stats, monkeypatch, columns, by):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    _, text, err = stats(golden("v533-broker").path, "--by", by, "--plot")
    assert err == ""
    assert max(map(len, text.splitlines())) <= columns
    assert len(text.splitlines()) <= 26


def test_color_is_for_terminals(golden):
    store = golden("v533-broker")
    code, text = on_terminal("stats", store.path, "--plot", "--by", "second,topic")
    assert code == 0
    assert "\x1b[38;5;33m█\x1b[0m Big" in text and "▒" not in text
    plain = rocketc("stats", store.path, "--plot", "--by", "second,topic").stdout.decode()
    assert "\x1b" not in plain and "▒" in plain
    code, text = on_terminal("stats", store.path, "--plot", "--by", "second,topic", env={"NO_COLOR": "1"})
    assert (code, text) == (0, plain)
    code, text = on_terminal("stats", store.path, env={"NO_COLOR": "1"})
    assert (code, text) == (0, rocketc("stats", store.path).stdout.decode())


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "--plot needs plotext: pip install 'rocketc[plot]'"),
        (type(sys)("plotext"), "--plot needs plotext 6 or newer: pip install --upgrade 'rocketc[plot]'"),
    ],
)
def test_without_plotext(stats, monkeypatch, tmp_path, module, said):
    monkeypatch.setitem(sys.modules, "plotext", module)
    code, out, err = stats(write(tmp_path / "log", {}), "--plot")
    assert (code, out, err) == (2, "", f"rocketc stats: {said}; see `rocketc stats --help`\n")
    assert stats(tmp_path / "log")[0] == 0, "plotext is not needed without --plot"


# ---------------------------------------------------------------- how the command ends


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--by", "topics"], "'topics' is not one of topic, queue, broker, tag, key, host, store-host, second, minute, "
         "hour, day, size; did you mean 'topic'?"),
        (["--by", "topic,,tag"], "'' is not one of topic, queue"),
        (["--by", "zzz"], "hour, day, size;"),
        (["--by", "tag,tags"], "a name is given twice in 'tag,tags'"),
        (["--top", "-1"], "-1 is less than 0"),
        (["--sort", "size"], "'size' is not one of 'bytes', 'messages', 'name', 'time'"),
        (["--json", "--plot"], "--json and --plot exclude each other"),
    ],
)  # fmt: skip
def test_wrong_usage(stats, tmp_path, args, said):
    code, out, err = stats(write(tmp_path / "log", {}), *args)
    assert (code, out) == (2, "")
    assert said in err


def test_other_names_of_dimensions(told, tmp_path):
    log = write(tmp_path / "log", {"properties": {"TAGS": "A"}})
    assert told(log, "--by", "queueId, TAGS,bornHost") == told(log, "--by", "queue,tag,host")
    assert told(log, "--by", "born-host,storehost") == told(log, "--by", "host,store-host")


def test_nothing_to_read(stats, tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(bytes(4096))
    for args in ([], ["--json"], ["--plot"]):
        code, out, err = stats(folder, *args)
        assert (code, out) == (0, "")
        assert err.endswith(f"rocketc: nothing to read: {folder}\n")
    code, out, err = stats(tmp_path / "never")
    assert (code, out) == (3, "") and "never" in err


def test_no_message_is_selected(stats, tmp_path):
    for options in ([], ["--json"]):
        code, out, err = stats(write(tmp_path / "log", {}), "--tag", "other", *options)
        assert (code, out, err) == (0, "", "rocketc: no message is selected\n")


@pytest.mark.parametrize("args", [[], ["--plot"], ["--json"]])
def test_damage_is_reported_in_the_order_of_the_log(golden, stats, args):
    store = golden("v533-bitrot")
    lost = oracle.damage(oracle.walk_log(oracle.read_log(store.path / "commitlog")))
    code, out, err = stats(store.path, "--crc", "body", *args)
    assert code == 1 and out
    told = [line for line in err.splitlines() if "bytes lost at physical offset" in line]
    assert len(told) == len(lost) > 0
    for line, damage in zip(told, lost, strict=True):
        assert f"{damage.stop - damage.start} bytes lost at physical offset {damage.start}: {damage.reason} (" in line
    assert f"{len(lost)} range" in err.splitlines()[-1]


def test_bodies_are_not_checked_unless_requested(golden, told):
    """One record of this store has a body that does not agree with its CRC."""
    path = golden("v533-bitrot").path
    assert sum(found["messages"] for found in told(path)[1]) == 1 + sum(
        found["messages"] for found in told(path, "--crc", "body")[1]
    )


def test_strict(golden, stats):
    code, out, err = stats(golden("v533-bitrot").path, "--strict", "--crc", "full")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1 and "damage at physical offset" in err


def test_an_unreadable_file(stats, tmp_path, monkeypatch):
    """The file is between readable ones, which are counted; with --strict, the threads that read these end, too."""
    log = tmp_path / "log"
    log.mkdir()
    for base in (0, 1024, 2048):
        record = oracle.encode("t", b"", phy_offset=base)
        (log / f"{base:020d}").write_bytes(record + oracle.encode_blank(1024 - len(record)))
    opened = os.open

    def refuse(path, *more, **options):
        if str(path).endswith("1024"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    code, out, err = stats(log, "--strict")
    assert (code, out, err) == (3, "", f"rocketc: {log}/{1024:020d}: Permission denied\n")
    code, out, err = stats(log)
    assert code == 1 and "total" not in out and "184 B" in out
    assert err.count("no_permission (") == 1


def test_a_file_that_is_deleted_during_the_count(stats, tmp_path, monkeypatch):
    log = write(tmp_path / "log", {})
    scan_of = command.Selection.scan

    def scan(self, **options):
        made = scan_of(self, **options)
        os.remove(log / f"{0:020d}")
        return made

    monkeypatch.setattr(command.Selection, "scan", scan)
    code, out, err = stats(log)
    assert (code, out) == (3, "") and "No such file" in err


def test_a_closed_pipe(golden):
    with start("stats", golden("v533-broker").path, "--by", "key", "--json") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_full_disk(golden):
    with open("/dev/full", "wb") as full:
        done = rocketc("stats", golden("v533-store").path, stdout=full)
    assert (done.returncode, done.stderr) == (3, b"rocketc: can't write: No space left on device\n")


def test_ctrl_c(tmp_path):
    """Ctrl-C while records are counted."""
    log = write(tmp_path / "log", {})
    code = (
        "import os, signal\n"
        "from rocketc.cli import stats\n"
        "from rocketc.cli.main import main\n"
        "stats.count = lambda *args, **options: os.kill(os.getpid(), signal.SIGINT) or signal.pause()\n"
        f"main(['stats', {str(log)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd="/",
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_threads_end_at_ctrl_c(golden, monkeypatch):
    """The main thread is interrupted while others count, and does not wait until they have counted everything."""
    from rocketc import scan
    from rocketc.jobs.counts import _Work

    threads = []

    def run_one(self, tally):
        threads.append(self)
        while not self._stopped:
            time.sleep(0.001)

    monkeypatch.setattr(_Work, "_run_one", run_one)

    def tell(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count(scan(golden("v533-broker").path), threads=2, update=tell)
    assert threads and threads[0]._stopped


def test_a_progress_bar_is_shown(golden, stats, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "SHOWN_AFTER", -1)
    monkeypatch.setattr(output, "_REDRAW_SECONDS", 0)
    assert stats(golden("v533-broker").path, "--grep", "x")[0] == 0
    assert "counting" in stream.getvalue()


def test_the_help_describes_the_checks(stats):
    code, text, _ = stats("--help")
    assert code == 0
    assert "none (default)" in text and "--by topic,queue" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_help_lists_all_dimensions():
    assert set(KEYS) == set(DIMENSIONS) == set(_counts.DIMENSIONS)
