"""docs/format.md is correct: drawings and tables agree with layout.h and the oracle, dumps with golden stores."""

import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import pytest
from support import oracle
from support.native import native

PAGE = Path(__file__).parents[1] / "docs/format.md"
TEXT = PAGE.read_text(encoding="utf-8")
FLAT = re.sub(r"\s+", " ", TEXT)  # so that a sentence is found wherever its lines are broken
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", TEXT, re.M | re.S)

BYTE = 4  # characters per byte of a drawing
WIDTHS = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "i8 in V1, i16 in V2": 1, "8 or 20 bytes": 8, "8 bytes": 8}


# ---------------------------------------------------------------------------------------------- drawings and tables


@dataclass(frozen=True)
class Cell:
    name: str
    at: int | None  # None: after a field of variable length
    width: int | None  # bytes; None: variable


@cache
def drawings() -> dict[str, list[Cell]]:
    """The cells of each drawing, by the heading above it and its number there: `Batches`, `4. Index files 2`."""
    found: dict[str, list[Cell]] = {}
    heading = ""
    for part in re.split(r"^(#+ [^\n]*\n|```\w*\n.*?^```$)", TEXT, flags=re.M | re.S):
        if part.startswith("#"):
            heading = part.lstrip("# ").strip()
        elif rows := re.findall(r"^ {2}([ \d]{3}) (│.*│)$", part, re.M):
            names = dict(re.findall(r"\b([A-Z]{2})  (\w+)", part))  # the legend below the drawing
            number = sum(key.startswith(heading) for key in found) + 1
            found[heading if number == 1 else f"{heading} {number}"] = list(cells(rows, names))
    return found


def cells(rows: list[tuple[str, str]], names: dict[str, str]) -> Iterator[Cell]:
    for label, row in rows:
        walls = [n for n, c in enumerate(row) if c == "│"]
        for left, right in itertools.pairwise(walls):
            text = row[left + 1 : right].strip()
            at = int(label) + left // BYTE if label.strip() else None
            assert left % BYTE == right % BYTE == 0, row
            name = text.split(":")[0].removesuffix(" …")
            yield Cell(names.get(name, name), at, None if text.endswith("…") else (right - left) // BYTE)


def tables() -> list[list[tuple[str, str, str]]]:
    """(at, field, type) of each row of each table of fields."""
    found = re.findall(r"^\| at \| field \| type \| meaning \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.M)
    return [re.findall(r"^\| (\d*) ?\| `(\w+)` \| ([^|]*?) ?\|", table, re.M) for table in found]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z]+)", r"_\1", name).upper()


def of_layout(starts: dict[str, int]) -> list[Cell]:
    """Cells of adjacent fields: each ends where the next begins; the last has any length."""
    ends = [*list(starts.values())[1:], None]
    return [Cell(name, at, end - at if end else None) for (name, at), end in zip(starts.items(), ends, strict=True)]


def fixed(name: str) -> list[Cell]:
    return [cell for cell in drawings()[name] if cell.at is not None]


def test_record():
    starts = {}
    for name in [cell.name for cell in fixed("A message record")]:
        constant = {"preparedTransactionOffset": "PREPARED_OFFSET"}.get(name, snake(name))
        if hasattr(native, f"RC_MSG_{constant}_AT"):
            starts[name] = getattr(native, f"RC_MSG_{constant}_AT")
        else:
            past = getattr(native, f"RC_MSG_{constant}_PAST")
            store_host = native.RC_MSG_STORE_TIMESTAMP_V4_AT + native.RC_MSG_STORE_HOST_PAST
            behind_a_host = {"storeTimestamp": native.RC_MSG_STORE_TIMESTAMP_V4_AT, "storeHost": store_host - past}
            starts[name] = behind_a_host.get(name, store_host + native.RC_HOST_V4_BYTES) + past
    assert starts["body"] == native.RC_MSG_BODY_V4_AT
    assert fixed("A message record") == of_layout(starts)
    behind = [cell for cell in drawings()["A message record"] if cell.at is None]
    assert behind == [
        Cell("topicLength", None, 1),
        Cell("topic", None, None),
        Cell("propertiesLength", None, native.RC_PROPERTIES_LENGTH_BYTES),
        Cell("properties", None, None),
    ]


def test_record_with_ipv6_hosts():
    """Each field has its IPv4 offset plus the extra bytes of the hosts before it."""
    extra, moved = native.RC_HOST_V6_EXTRA, 0
    expected = []
    for cell in fixed("A message record"):
        if cell.name in ("bornHost", "storeHost"):
            expected += [Cell(cell.name, cell.at + moved, 16), Cell("port", cell.at + moved + 16, 4)]
            moved += extra
        else:
            expected.append(Cell(cell.name, cell.at + moved, cell.width))
    assert native.RC_HOST_V4_BYTES + extra == 16 + 4
    assert fixed("A message record 2") == expected
    behind = [cell for cell in drawings()["A message record 2"] if cell.at is None]
    assert [(cell.name, cell.width) for cell in behind if cell.width] == [("topicLength", 2), ("propertiesLength", 2)]


# Drawing: prefix of its constants, and the names that layout.h shortens.
UNITS = {
    "Batches": ("ENTRY", {}),
    "3. Consume queues": ("CQ", {"physicalOffset": "PHY_OFFSET"}),
    "Queues of batches": ("BCQ", {"physicalOffset": "PHY_OFFSET"}),
    "Extension files": ("EXT", {"bit map": "BIT_MAP"}),
    "4. Index files": ("INDEX", {"hashSlotCount": "SLOT_COUNT", "indexCount": "COUNT"}),
    "4. Index files 2": ("INDEX", {}),
}


@pytest.mark.parametrize("name", UNITS)
def test_units(name):
    prefix, short = UNITS[name]
    drawn = fixed(name)
    starts = {c.name: getattr(native, f"RC_{prefix}_{short.get(c.name, snake(c.name))}_AT") for c in drawn}
    expected = of_layout(starts)
    if drawn[-1].width:  # the unit ends here
        end = native.RC_INDEX_HEADER_BYTES if name == "4. Index files" else getattr(native, f"RC_{prefix}_UNIT_BYTES")
        expected[-1] = Cell(drawn[-1].name, expected[-1].at, end - expected[-1].at)
    assert drawn == expected


def test_end_of_a_message_of_a_batch():
    assert drawings()["Batches"][-2:] == [Cell("propertiesLength", None, 2), Cell("properties", None, None)]


def test_checkpoint():
    names = [cell.name for cell in fixed("checkpoint")]
    constants = [snake(name).replace("_MSG", "") for name in names[:-1]]
    starts = {name: getattr(native, f"RC_CHECKPOINT_{c}_AT") for name, c in zip(names[:-1], constants, strict=True)}
    assert fixed("checkpoint") == of_layout({**starts, names[-1]: 40})
    assert names[-1] == f"zeros up to byte {native.RC_CHECKPOINT_BYTES}"


NOTE = "rocketc's note in the checkpoint"


def test_note_in_the_checkpoint(open_store, tmp_path):
    """The note's place and content are as the page describes, for a store that begins in the middle."""
    store = open_store(mapped_file_size_commit_log=8 << 10, mapped_file_size_consume_queue=200)
    puts = [store.put(f"T{n % 3}", bytes(500), queue_id=n % 2) for n in range(100)]
    store.wait_dispatched()
    begin = store.clean(expired_ms=-1).min_phy_offset
    store.close()
    at = native.RC_CHECKPOINT_BYTES - 64
    assert f"the note begins at byte {at} of the file" in FLAT
    note = (tmp_path / "checkpoint").read_bytes()[at:]
    assert [(cell.at, cell.width) for cell in fixed(NOTE)] == [(n, 8) for n in range(0, 64, 8)]
    told = {cell.name: note[cell.at : cell.at + 8] for cell in fixed(NOTE)}
    assert told.pop("mark") == b"rcqueues"
    files = {queue: sorted(path.iterdir()) for queue in ("T0/0", "T0/1", "T1/0", "T1/1", "T2/0", "T2/1")
             for path in [tmp_path / "consumequeue" / queue]}  # fmt: skip
    assert {name: int.from_bytes(data, "big", signed=True) for name, data in told.items()} == {
        "logBegin": begin,
        "logEnd": puts[-1].end,
        "queues": len(files),
        "queueBegins": sum(int(names[0].name) // 20 for names in files.values()),
        "queueEnds": len(puts),
        "indexEnd": -1,
        "indexFile": -1,
    }
    assert int.from_bytes(told["queueBegins"], "big") > 0


FLUSHED = "rocketc's note of what is flushed"


def test_note_of_what_is_flushed(open_store, tmp_path):
    store = open_store()
    put = store.put("T", bytes(500))
    store.flush()
    store.close()
    at = 512 - 24
    assert f"the note begins at byte {at} of the file" in FLAT
    data = (tmp_path / "checkpoint").read_bytes()
    assert [(cell.at, cell.width) for cell in fixed(FLUSHED)] == [(n, 8) for n in range(0, 24, 8)]
    told = {cell.name: data[at:][cell.at : cell.at + 8] for cell in fixed(FLUSHED)}
    assert told["mark"] == b"rcflushd"
    assert told["noteTimestamp"] == data[:8] == put.store_timestamp.to_bytes(8, "big")
    assert told["flushedOffset"] == put.end.to_bytes(8, "big")
    assert "from byte 464 on: `rcqueued`" in FLAT
    assert data[464:488] == b"rcqueued" + data[8:16] + put.end.to_bytes(8, "big")
    assert "from byte 440 on: `rcindexd`" in FLAT
    assert data[440:464] == b"rcindexd" + data[8:16] + bytes(8)


COUNTED = bytes(range(1, 250))  # every field has a different value

DECODED = {
    "3. Consume queues": lambda data: oracle.queue_units(data)[0],
    "Queues of batches": lambda data: oracle.batch_queue_units(data)[0],
    "4. Index files": lambda data: oracle.index_file(data, 0)[0],
    "4. Index files 2": lambda data: oracle.index_file(bytes(40) + data, 0)[2][0],
    "checkpoint": oracle.checkpoint,
}


@pytest.mark.parametrize("name", DECODED)
def test_units_are_where_the_oracle_reads_them(name):
    drawn = [cell for cell in fixed(name) if cell.width]
    numbers = [int.from_bytes(COUNTED[cell.at :][: cell.width], "big") for cell in drawn]
    assert numbers == list(DECODED[name](COUNTED))


def test_tables_agree_with_the_drawings():
    names = ["A message record", "3. Consume queues", "Extension files", "Queues of batches"]
    names += ["4. Index files", "4. Index files 2", "checkpoint", NOTE, FLUSHED]
    for name, table in zip(names, tables(), strict=True):
        rows = [Cell(field, int(at) if at else None, WIDTHS[type] if type else None) for at, field, type in table]
        assert rows == [cell for cell in drawings()[name] if " " not in cell.name], name


def test_sizes():
    def width(name):
        return sum(cell.width for cell in fixed(name) if cell.width)

    n = native
    assert width("Property CRC") == n.RC_PROP_CRC_BYTES == 20
    digits = n.RC_PROP_CRC_NAME_BYTES + 1
    ends = [0, n.RC_PROP_CRC_NAME_BYTES, digits, digits + n.RC_PROP_CRC_DIGITS]
    assert [cell.at for cell in fixed("Property CRC")] == ends
    assert fixed("Message ids") == [Cell("address", 0, 4), Cell("port", 4, 4), Cell("physicalOffset", 8, 8)]
    assert [cell.at for cell in fixed("Message ids 2")] == [0, 4, 6, 10, 14]
    assert width("Blank record") == n.RC_BLANK_BYTES
    assert width("Extension files") == n.RC_EXT_MIN_BYTES
    assert f"`size` {n.RC_CQ_PRE_BLANK_SIZE}, `tagsCode` 0" in FLAT
    assert 2 * width("Message ids") == n.RC_MSG_ID_V4_CHARS == 2 * width("Message ids 2") == 32
    assert f"smallest record has {n.RC_MSG_MIN_BYTES} bytes" in FLAT
    assert f"`totalSize` at least {n.RC_MSG_MIN_BYTES} " in FLAT
    assert f"is {n.RC_ENTRY_MIN_BYTES} bytes more than body and properties" in FLAT
    assert f"IPv6 host is {n.RC_HOST_V6_EXTRA} bytes longer" in FLAT
    assert f"more than {n.RC_TOPIC_V1_MAX_CHARS} UTF-16 units" in FLAT
    assert f"{40 + 5_000_000 * 4 + 20_000_000 * 20:,}" in FLAT


def test_magic_numbers_and_bits():
    n = native
    magics = {"V1": n.RC_MAGIC_V1, "V2": n.RC_MAGIC_V2, "blank": n.RC_MAGIC_BLANK}
    assert set(re.findall(r"0x(\w{8})\b", TEXT)) == {f"{m & 0xFFFFFFFF:08X}" for m in magics.values()}
    assert "`0xDAA320A7` V1, `0xDAA320AB` V2" in TEXT
    bits = re.findall(r"^\| `0x(\w{4})` \| `(\w+)` \|", TEXT, re.M)
    assert {name: int(number, 16) for number, name in bits} == {name: getattr(n, f"RC_FLAG_{name}") for _, name in bits}
    assert len(bits) == 11


def test_lines_of_drawings_are_connected():
    """Every vertical line continues above and below, and no line is wider than 100 columns."""
    for block in BLOCKS:
        lines = block.splitlines()
        assert max(map(len, lines)) <= 100 or "import struct" in block, block
        for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
            for n in [n for n, c in enumerate(line) if c == "│" and "┌" in block]:
                assert above[n] in "┌┬┐├┼┤│", block
                assert below[n] in "└┴┘├┼┤│", block


# ---------------------------------------------------------------------------------------------- dumps


@dataclass
class Field:
    name: str
    at: int
    data: bytes = b""
    text: str = ""
    cut: bool = False  # a line `...` follows


@dataclass
class Dump:
    path: str  # golden store and file
    fields: list[Field] = field(default_factory=list)

    @property
    def base(self) -> int:
        """The offset in the file's name, if it has one."""
        return int(self.path.rpartition("/")[2])


def dumps() -> list[Dump]:
    found = []
    for block in BLOCKS:
        path, _, rest = block.partition("\n\n")
        if re.fullmatch(r"[\w-]+/[\w/]+", path):
            found.append(dump := Dump(path))
            for line in rest.splitlines():
                if line == "...":
                    dump.fields[-1].cut = True
                    continue
                columns = re.fullmatch(r"(\w{6})  (.{47})  (.{17}\S*) ?(.*)", f"{line:75}")
                assert columns, line
                at, data, name, text = columns.groups()
                if name.strip():
                    dump.fields.append(Field(name.strip(), int(at, 16)))
                last = dump.fields[-1]
                assert last.at + len(last.data) == int(at, 16), line
                last.data += bytes.fromhex(data)
                last.text += text
    return found


def number(value: int, width: int) -> tuple[str, bytes]:
    return str(value), value.to_bytes(width, "big", signed=True)


def time(ms: int) -> tuple[str, bytes]:
    told = datetime.fromtimestamp(ms // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.")
    return f"{told}{ms % 1000:03}Z", struct.pack(">q", ms)


def text(data: bytes) -> tuple[str, bytes]:
    return "".join(chr(c) if 32 <= c < 127 else "." for c in data), data


def host(value: str) -> tuple[str, bytes]:
    return value, oracle.host_bytes(oracle.host_pair(value))


def in_log(data: bytes, dump: Dump) -> dict[str, tuple[str, bytes]]:
    """A message record, a blank record, or the first message of a batch."""
    start = dump.fields[0].at
    magic = dump.fields[1].text
    if magic == "blank":
        blank = oracle.valid_at(data, start, 0)
        assert isinstance(blank, oracle.Blank)
        size = number(blank.stop - blank.start, 4)
        return {"totalSize": size, "magic": (magic, b"\xcb\xd4\x31\x94"), "unspecified": ("", data[start + 8 :])}
    if magic == "0":
        records = oracle.records(oracle.walk(data, dump.base))
        [record] = [r for r in records if start == r["start"] - dump.base + 88]  # where its body begins
        flag, body, properties = oracle.decode_batch(record["storedBody"])[0]
        sizes = [("totalSize", 22 + len(body) + len(properties)), ("magic", 0), ("bodyCRC", 0), ("flag", flag)]
        sizes += [("bodyLength", len(body))]
        own = {"body": text(body), "propertiesLength": number(len(properties), 2), "properties": text(properties)}
        return {name: number(value, 4) for name, value in sizes} | own
    record = oracle.record_at(data, start)
    assert record["magic"] == magic
    topic = record["topic"].encode()
    return {
        "totalSize": number(record["storeSize"], 4),
        "magic": (magic, b"\xda\xa3\x20" + (b"\xa7" if magic == "V1" else b"\xab")),
        **{name: number(record[name], 4) for name in ("bodyCRC", "queueId", "flag", "sysFlag", "reconsumeTimes")},
        **{name: number(record[name], 8) for name in ("queueOffset", "physicalOffset", "preparedTransactionOffset")},
        **{name: time(record[name]) for name in ("bornTimestamp", "storeTimestamp")},
        **{name: host(record[name]) for name in ("bornHost", "storeHost")},
        "bodyLength": number(record["storedBodyLen"], 4),
        "body": text(record["storedBody"]),
        "topicLength": number(len(topic), 1 if magic == "V1" else 2),
        "topic": text(topic),
        "propertiesLength": number(record["propertiesLen"], 2),
        "properties": text(record["storedProperties"]),
    }


def property_crc(data: bytes, dump: Dump) -> dict[str, tuple[str, bytes]]:
    end = dump.fields[-1].at + 1
    [record] = [r for r in oracle.records(oracle.walk(data, dump.base)) if r["stop"] - dump.base == end]
    crc = oracle.crc32(data[end - record["storeSize"] : end - 20])
    expected = oracle.crc_property(crc)
    assert f"This one is {crc}:" in FLAT
    assert b"".join(f.data for f in dump.fields) == expected
    return {"name": text(expected[:8]), "digits": text(expected[9:19])}


def in_queue(data: bytes, dump: Dump) -> dict[str, tuple[str, bytes]]:
    n, rest = divmod(dump.fields[0].at, 20)
    assert rest == 0
    unit = oracle.queue_units(data)[n]
    return {
        "physicalOffset": number(unit.phy_offset, 8),
        "size": number(unit.size, 4),
        "tagsCode": number(unit.tags_code, 8),
    }


def in_batch_queue(data: bytes, dump: Dump) -> dict[str, tuple[str, bytes]]:
    n, rest = divmod(dump.fields[0].at, 46)
    assert rest == 0
    unit = oracle.batch_queue_units(data)[n]
    return {
        "physicalOffset": number(unit.phy_offset, 8),
        "size": number(unit.size, 4),
        "tagsCode": number(unit.tags_code, 8),
        "storeTimestamp": time(unit.store_timestamp),
        "baseOffset": number(unit.base_offset, 8),
        "batchSize": number(unit.batch_size, 2),
        "compactedOffset": number(unit.compacted_offset, 4),
        "reserved": number(unit.reserved, 4),
    }


def in_index(data: bytes, dump: Dump, slots: int = 500) -> dict[str, tuple[str, bytes]]:
    header, chains, entries = oracle.index_file(data, slots)
    [slot] = [f for f in dump.fields if f.name == "slot"]
    [first] = [f for f in dump.fields if f.name == "keyHash"]
    n, rest = divmod(first.at - 40 - 4 * slots, 20)
    entry = entries[n]
    assert rest == 0 and slot.at == 40 + 4 * (entry.key_hash % slots)
    assert f"at byte {slot.at}, and unit {n} is at byte {first.at}" in FLAT
    return {
        "beginTimestamp": time(header.begin_timestamp),
        "endTimestamp": time(header.end_timestamp),
        "beginPhyOffset": number(header.begin_phy_offset, 8),
        "endPhyOffset": number(header.end_phy_offset, 8),
        "hashSlotCount": number(header.hash_slot_count, 4),
        "indexCount": number(header.index_count, 4),
        "slot": number(chains[(slot.at - 40) // 4], 4),
        "keyHash": number(entry.key_hash, 4),
        "phyOffset": number(entry.phy_offset, 8),
        "timeDiff": number(entry.seconds, 4),
        "previous": number(entry.previous, 4),
    }


def in_checkpoint(data: bytes, dump: Dump) -> dict[str, tuple[str, bytes]]:
    told = oracle.checkpoint(data)
    return {
        "physicMsgTimestamp": time(told.physic_msg_timestamp),
        "logicsMsgTimestamp": time(told.logics_msg_timestamp),
        "indexMsgTimestamp": time(told.index_msg_timestamp),
        "masterFlushedOffset": number(told.master_flushed_offset, 8),
        "confirmPhyOffset": number(told.confirm_phy_offset, 8),
    }


READERS = {
    "commitlog": in_log,
    "consumequeue": in_queue,
    "batchconsumequeue": in_batch_queue,
    "index": in_index,
    "checkpoint": in_checkpoint,
}


@pytest.mark.parametrize("dump", [pytest.param(d, id=f"{d.path}:{d.fields[0].name}") for d in dumps()])
def test_dump(dump, golden):
    store, _, file = dump.path.partition("/")
    data = (golden(store).path / file).read_bytes()
    reader = property_crc if dump.fields[0].name == "name" else READERS[file.partition("/")[0]]
    expected = reader(data, dump) | {"separator": (f"U+{dump.fields[-1].data[0]:04}", dump.fields[-1].data)}
    for n, shown in enumerate(dump.fields):
        where = f"{dump.path} {shown.name}"
        assert data[shown.at :][: len(shown.data)] == shown.data, where
        if n and not dump.fields[n - 1].cut:
            assert shown.at == dump.fields[n - 1].at + len(dump.fields[n - 1].data), where
        if shown.name == "separator":
            assert shown.text == f"U+{shown.data[0]:04}"
            continue
        told, stored = expected[shown.name]
        if shown.cut and len(shown.data) < len(stored):
            told, stored = told[: len(shown.text)], stored[: len(shown.data)]
        assert (shown.text, shown.data) == (told, stored), where


def test_all_kinds_are_dumped():
    folders = [dump.path.split("/")[1] for dump in dumps()]
    assert sorted(set(folders)) == sorted(READERS)
    assert len(folders) == folders.count("commitlog") + 4 == 10


# ---------------------------------------------------------------------------------------------- examples in the text


def test_hashes_and_sums():
    hashes = re.findall(r"`hash\(\"([^\"]+)\"\)\s=\s(-?\d+)`", TEXT)
    assert len(hashes) == 4  # the number on the page
    for value, told in hashes:
        assert oracle.java_hash(value) == int(told), value
    [(value, told)] = re.findall(r"`crc\(\"(\w+)\"\) = (\d+)`", TEXT)
    assert oracle.crc32(value.encode()) == int(told)


def test_ids(golden):
    data = (golden("v533-broker").path / "commitlog/00000000000000524288").read_bytes()
    record = oracle.record_at(data, 725172 - 524288)
    assert f"`summit` has the id `{record['msgId']}`: 127.0.0.1, port 20931, physical offset 725172" in FLAT
    unique = record["properties"]["UNIQ_KEY"]
    address, process, _, ms, counter = struct.unpack(">4sHiiH", bytes.fromhex(unique))
    month = int(datetime(2026, 11, 1, tzinfo=timezone.utc).timestamp() * 1000)
    assert record["bornTimestamp"] == month + ms
    assert f"`{unique}`: {'.'.join(map(str, address))}, process {process} " in FLAT
    assert f"{ms} ms after the month began in the client's time zone, counter {counter}" in FLAT


def test_properties_example():
    [line] = re.findall(r"^(TAGS 01 .*)$", TEXT, re.M)
    raw = re.sub(r" ?\b(01|02|20)\b ?", lambda found: chr(int(found[1], 16)), line).encode()
    assert oracle.decode_properties(raw) == {"TAGS": "AaAa", "KEYS": "c21 AaAa", "WAIT": "true"}
    assert raw == oracle.encode_properties(oracle.decode_properties(raw))


def test_config_examples(golden):
    shown = re.findall(r"`(\w+\.json)` of\s`([\w-]+)`:\n\n```json\n(.*?)\n```", TEXT, re.S)
    assert len(shown) == 2
    for name, store, content in shown:
        assert content == (golden(store).path / "config" / name).read_text()
