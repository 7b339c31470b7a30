"""`PYTHONPATH=tests .venv/bin/python -m fuzz.seeds`: makes tests/fuzz/corpus from the golden stores, the same each
time.

Inputs are small: libFuzzer combines parts of several.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from crash import remains
from fuzz import logs, mutate, texts, timed, whole
from support import oracle, sql_corpus, stores
from support.index_files import SPECIFIED, index_bytes

import rocketc
from rocketc.remoting.command import Command, Form
from rocketc.tables.fastjson import parse, to_bytes

CORPUS = Path(__file__).parent / "corpus"
LARGEST = 700  # most bytes of a record that is copied
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": whole.SECOND,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 8,
    "max_index_num": 10,
    "mapper_file_size_batch_consume_queue": 230,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 128,
}
ODD_TABLES = [b"", b"[]", b'{"a":NaN}', b'{0:1,"1":2}', b'{"a":"\\ud800"}', b'{"a":1e999}', b"{" * 200, b'{"a"']
_HEARTBEAT = (
    b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
    b'"CONSUME_PASSIVELY","groupName":"audit","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":'
    b'false,"codeSet":[65],"expressionType":"TAG","subString":"A || B","subVersion":17,"tagsSet":["A"],"topic":'
    b'"orders"}],"unitMode":false}],"heartbeatFingerprint":"7","producerDataSet":[{"groupName":"shop"}],"withoutSub":false}'
)
_CHECK = b'{"clientId":"c","group":"g","subscriptionData":{"expressionType":"SQL92","subString":"a > 1","topic":"t"}}'
_LOCK = (
    b'{"clientId":"c@1","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"},'
    b'{"brokerName":"b","queueId":"1","topic":"t"}],"onlyThisBroker":false}'
)
_REGISTRATION = (
    b'{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":'
    b'5},"mappingDataVersion":{},"topicConfigTable":{"orders":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,'
    b'"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":8},"bills":{"perm":"4"}}}}'
)
ODD_CONF = "# c\n! d\nmaxMessageSize : 65536\nflushDiskType=SYNC_\\\n  FLUSH\ndeleteWhen\\u0020=04;16\nbrokerIP1=::1\n"


def kinds(names: list[str], folder: Path) -> list[tuple[bytes, oracle.Record]]:
    """The smallest record of each form and sysFlag, with its bytes."""
    chosen: dict[Any, tuple[bytes, oracle.Record]] = {}
    for name in names:
        for path in (folder / name / "commitlog").iterdir():
            base, data = int(path.name), path.read_bytes()
            for one in oracle.records(oracle.walk(data, base, last=False)):
                has_crc = oracle.ends_in_crc_property(one["storedProperties"])
                kind = (one["magic"], one["sysFlag"], bool(one["storedBody"]), bool(one["storedProperties"]), has_crc)
                small = one["storeSize"] <= LARGEST
                if small and (kind not in chosen or one["storeSize"] < chosen[kind][1]["storeSize"]):
                    chosen[kind] = data[one["start"] - base : one["stop"] - base], one
    return [chosen[kind] for kind in sorted(chosen)]


def log_of(records: list[bytes], base: int, rest: bytes = b"") -> bytes:
    """Records one after the other, with the physical offsets of their new places."""
    return mutate.mended(b"".join(records), base, Always()) + rest


class Always(random.Random):
    """A generator that always draws the same: mended() then repairs everything."""

    def randrange(self, *_: Any) -> int:
        return 1


def of_logs(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    found = kinds(["v533-store-crc", "v533-store", "v533-broker", "v497-broker"], folder)
    raws = [raw for raw, _ in found]
    for n, (one, other) in enumerate(pairwise(raws)):
        rest = (b"", bytes(40), oracle.encode_blank(30), b"\xff" * 9, b"\0" * 20 + one[:50])[n % 5]
        yield "record", f"{n:02d}", bytes([n % 16 & ~8]) + log_of([one, other], (0, 4096)[n >> 2 & 1], rest)
        yield "parts", f"{n:02d}", bytes([n % 4, 80, 170]) + log_of([one, other, one], logs.HERE, rest)
    yield "record", "learned", b"\x08" + b"noise" + log_of(raws[:2], 1 << 20)
    yield "record", "far", b"\x0c" + log_of(raws[2:4], 1 << 62)
    yield "record", "stored", b"\x32" + log_of(raws[4:7], 0)
    yield "record", "empty", b"\0"
    batches = [one["storedBody"] for _, one in found if one["sysFlag"] & 0xC0 == 0xC0]
    batches.append(oracle.encode_batch([(7, b"hi", {"KEYS": "k1"}), (0, b"", None)]))
    for n, body in enumerate(batches):
        yield "batch", f"{n}", body


def of_queues(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    queues = (folder / "v533-store/consumequeue", folder / "v533-broker/consumequeue")
    for n, path in enumerate(sorted(path for queue in queues for path in queue.rglob("0*") if path.is_file())):
        units = [unit for unit in oracle.queue_units(path.read_bytes()) if any(unit)]
        if n % 12 == 0 and units:
            yield "queue", f"{n:02d}", bytes([n % 7, 0x20 * (n % 3)]) + path.read_bytes()[: 20 * len(units) + 60][:300]
    blank = b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 8
    yield "queue", "pre-blank", b"\2\x20" + blank * 3 + bytes(20)
    for n, path in enumerate(sorted((folder / "v533-broker/batchconsumequeue").rglob("0*"))):
        if path.is_file():
            yield "batch-queue", f"{n}", bytes([1, 0x20 * (n % 2)]) + path.read_bytes()[: 46 * 5]
    unit = (20).to_bytes(2, "big") + bytes(7) + b"\5" + b"\0\0\1\x8b\xcf\xe5\x68\x7b" + b"\0\0"
    mapped = (24).to_bytes(2, "big") + unit[2:18] + b"\0\4" + b"\xaa" * 4
    yield "queue-ext", "units", bytes([24]) + unit * 3 + b"\xff\xff\0\0" + mapped * 2
    yield "queue-ext", "unused", bytes([60]) + mapped + unit + bytes(50)


def of_indexes(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    yield "index", "specified", b"\0" + SPECIFIED
    yield "index", "specified-slots", b"\x0a" + SPECIFIED
    for n, path in enumerate(sorted((folder / "v533-store/index").iterdir())):
        with rocketc.derived._index_reader.IndexFile(path) as file:
            units = [unit for some in file.units() for unit in some][:12]
            begin = file.header.begin_timestamp
        entries = [(unit[1], unit[2], max(unit[3] - begin, 0) // 1000) for unit in units]
        yield "index", f"{n}", bytes([n * 8]) + index_bytes(8, 16, entries, begin)
    topic = [(oracle.key_hash("topic", f"k{n % 3}"), 100 * n, n) for n in range(9)]
    yield "index", "keys", b"\3" + index_bytes(3, 10, topic)


def of_small_files(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for name in ("v533-store", "v497-broker", "v533-broker"):
        yield "checkpoint", name, (folder / name / "checkpoint").read_bytes()[:64]
    for path in sorted((folder / "v533-broker/config").glob("*.json")) + [folder / "v497-broker/config/topics.json"]:
        table = {key: _first(value) for key, value in parse(path.read_bytes()).items()}
        raw = to_bytes(table)
        if len(raw) < 900:
            yield "table", f"{path.parts[-3]}-{path.stem}", raw
            yield "table", f"{path.parts[-3]}-{path.stem}-bak", raw[:-9] + texts.BAK + to_bytes(table, compact=True)
    for n, raw in enumerate(ODD_TABLES):
        yield "table", f"odd-{n}", raw
    for name in stores.NAMES[-3:]:
        config = stores.GoldenStore(name, folder).about["config"]
        yield "conf", name, "".join(f"{key}={value}\n" for key, value in config.items()).encode()[:1000]
    yield "conf", "forms", ODD_CONF.encode()
    ids = [one["msgId"] for one in stores.GoldenStore("v533-store", folder).messages[:200:40]]
    unique = [one["properties"].get("UNIQ_KEY", "") for one in stores.GoldenStore("v533-broker", folder).messages[:9]]
    yield "id", "offset", "\n".join(ids).encode()
    yield "id", "unique", "\n".join([*unique, "not an id", "0" * 56]).encode()[:250]


def of_timers(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    data = timed.joined(timed.whole())
    yield "timers", "whole", data
    for bit in range(5):  # without one of the files, or with a short one
        yield "timers", f"without-{bit}", bytes([1 << bit]) + data[1:]
    yield "timers", "check", data[:30]
    yield "timers", "odd-log", data[:260] + bytes(52) + data[312:400]


def of_frames(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Recorded requests: the first one of each code, in both forms."""
    recorded = [json.loads(line) for line in (CORPUS.parents[1] / "golden/admin-5.3.3.jsonl").read_text().splitlines()]
    for code in (11, 12, 30, 34, 105, 310):
        one = next(one for one in recorded if one["code"] == code)
        command = Command(
            code, one["request"] or {}, (one["requestBody"] or "")[:200].encode(), opaque=7, language="JAVA"
        )
        for form in Form:
            frame = command.encode(form)
            yield "frames", f"{code}-{form.name.lower()}", b"\x20" + frame + frame[: len(frame) // 2]
            yield "broker", f"{code}-{form.name.lower()}", b"\xff" + frame + frame
            yield "header", f"{code}-{form.name.lower()}", frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
    yield "header", "escapes", b'{"remark":"\\u00e9\\ud83d\\ude00\\n\\/\\x","extFields":{"a":null,"b":1},"code":-1}'


def of_bodies(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Bodies of the recorded requests, and fields of those that have only fields."""
    recorded = [json.loads(line) for line in (CORPUS.parents[1] / "golden/admin-5.3.3.jsonl").read_text().splitlines()]
    for kind, code in ((0, 34), (2, 46), (4, 41), (5, 42)):
        found = dict.fromkeys(one["requestBody"] for one in recorded if one["code"] == code and one["requestBody"])
        for n, text in enumerate(list(found)[:6]):
            yield "broker-body", f"{code}-{n}", bytes([kind]) + text.encode()
    yield "broker-body", "15", b"\3audit\0orders\0000\00012\0audit\0orders\0003\0-1"
    yield "broker-body", "34-all", b"\0" + _HEARTBEAT
    yield "broker-body", "46-all", b"\2" + _CHECK
    yield "broker-body", "41-all", b"\4" + _LOCK
    yield "namesrv-body", "registration", b"\0" + _REGISTRATION
    version = b'{"counter":1,"stateVersion":0,"timestamp":5}'
    topics = (b"orders 8 8 6 SINGLE_TAG {}", b"bills 4 4 4 MULTI_TAG")
    parts = [_block(version), (2).to_bytes(4, "big"), *map(_block, topics), _block(b'["f:1"]')]
    old = b"".join(parts)
    new = old + (1).to_bytes(4, "big") + _block(b'{"topic":"t"}')
    yield "namesrv-body", "registration-parts", b"\1" + new
    yield "namesrv-body", "registration-old-parts", b"\2" + old
    yield "namesrv-body", "registration-zlib", b"\3" + zlib.compress(new, 9)
    yield "namesrv-body", "settings", b"\4orderMessageEnable=true\nlistenPort=99\nproductEnvName : a\\u00e9\\n b\n"
    yield "namesrv-body", "key-values", b'\5ORDER_TOPIC_CONFIG\0orders\0a:4;b:4\0n\0k\0"v\\\0n\0k\0\xc3\xa9'
    yield "namesrv-body", "data-version", b"\6" + version
    yield "namesrv-body", "queues", b'\7{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":1}]}'


def of_tls(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """The first message of a client, without the byte that begins it; a server of 1.3 asks for another one."""
    suites = bytes.fromhex("1301 c02f c030")
    groups, algorithms = bytes.fromhex("0002 001d"), bytes.fromhex("0006 0804 0403 0401")
    usual = ((10, groups), (13, algorithms))
    for name, extensions in (("1.2", usual), ("1.3", (*usual, (43, b"\2\3\4"), (51, b"\0\0")))):
        parts = [kind.to_bytes(2, "big") + _short(raw) for kind, raw in extensions]
        hello = b"\3\3" + bytes(32) + b"\0" + _short(suites) + b"\1\0" + _short(b"".join(parts))
        message = b"\1" + len(hello).to_bytes(3, "big") + hello
        yield "tls", f"hello-{name}", b"\xff" + b"\3\1" + _short(message)


def _short(raw: bytes) -> bytes:
    return len(raw).to_bytes(2, "big") + raw


def _block(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def _first(value: Any) -> Any:
    """Reduce each object of a table to its first two entries."""
    return dict(list(value.items())[:2]) if isinstance(value, dict) else value


def of_stores(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Small stores with bodies of a golden store, closed and killed."""
    bodies = [one["storedBody"][:40] for _, one in kinds(["v533-store"], folder)]
    root = folder / "small"
    with rocketc.open(root, **SIZES) as store:
        store.create_topic("b", queue_type="BatchCQ", persist=False)
        for n in range(10):
            store._set_clock(1_700_000_000_000 + 350 * n)
            topic, body = ("t", "t", "b")[n % 3], bodies[n % len(bodies)]
            fields = {"born_timestamp": 1_700_000_000_000, "keys": f"k{n % 3}", "tags": ("A", None)[n % 2]}
            store.put(topic, body, queue_id=n % 2 if topic == "t" else 0, **fields)
        assert store.wait_dispatched(30)
        killed = _input(root, ("commitlog", "consumequeue", "index", "abort"))
    closed = _input(root, ("commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint"))
    extended = _input(root, ("commitlog", "consumequeue_ext", "consumequeue"))
    log = _input(root, ("commitlog",))
    broken = {name: raw[:300] + b"\xff" * 9 + raw[309:] for name, raw in whole.split(log).items()}
    damaged = whole.join({**broken, "checkpoint": bytes(range(48)), "config/topics.json": b"{"})
    seeds = {"killed": killed, "closed": closed, "extended": extended, "log": log, "damaged": damaged}
    for (name, data), how in zip(seeds.items(), (0, 2, 8, 16, 5), strict=True):
        yield "store", name, data
        yield "opened", name, bytes([how]) + data


def _input(root: Path, folders: tuple[str, ...]) -> bytes:
    files = remains.take(root)
    index = sorted(name for name in files if name.startswith("index/"))
    for n, name in enumerate(index[:2]):
        files[f"index/2024010{n + 1}000000000"] = files.pop(name)
    taken = {name: files[name] for name in whole.NAMES if name in files and name.split("/")[0] in folders}
    return whole.join({name: raw[:64] if name == "checkpoint" else raw for name, raw in taken.items()})


def of_filters(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    chosen = [(text, values) for text, values in sql_corpus.chosen() if len(text) > 20 or len(values) < 3]
    for n, (text, values) in enumerate(chosen[:: len(chosen) // 40]):
        yield "sql", f"{n:02d}", text.encode() + texts.SQL_END + sql_corpus.encoded(values)


def main() -> None:
    shutil.rmtree(CORPUS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for golden in ("v533-store", "v533-store-crc", "v533-broker", "v497-broker"):
            stores.unpack(golden, folder)
        for make in (
            of_logs,
            of_queues,
            of_indexes,
            of_small_files,
            of_timers,
            of_stores,
            of_frames,
            of_bodies,
            of_tls,
            of_filters,
        ):
            for target, seed, data in make(folder):
                (CORPUS / target).mkdir(parents=True, exist_ok=True)
                (CORPUS / target / seed).write_bytes(data)


if __name__ == "__main__":
    main()
