"""Memory does not grow: over thousands of scans, over a log larger than 2 GiB, over holes and zeros."""

import os
import subprocess
import sys

import pytest
from support.native import ROOT

pytestmark = [
    pytest.mark.measure,
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="/proc is not available"),
]

PROLOGUE = """
import gc, os, sys
import rocketc
from support import oracle

def memory(name):
    "A number of /proc/self/status in KiB."
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith(name + ":")]
    return int(line.split()[1])
"""


def run(code, *arguments, timeout=120):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    command = [sys.executable, "-c", PROLOGUE + code, *map(str, arguments)]
    done = subprocess.run(command, env=env, timeout=timeout, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


WAYS = {
    "messages": "list(rocketc.decode(data))",
    "attributes": "[m.to_json() for m in rocketc.decode(data)]",
    "left in the middle": "next(iter(rocketc.decode(data)))",
    "count": "rocketc.decode(data).count()",
    "filtered": "rocketc.decode(data, topics=re.compile('t.*'), tags='A', keys=['k'], where=lambda m: True).count()",
    "batches": "list(rocketc.decode(data).batches())",
    "table": "rocketc.decode(data).to_arrow().to_pylist()",
    "stream": "pa.RecordBatchReader.from_stream(rocketc.decode(data)).read_all()",
    "stream left": "pa.RecordBatchReader.from_stream(rocketc.decode(data))",
    "stream left in the middle": "pa.RecordBatchReader.from_stream(rocketc.scan(path)).read_next_batch()",
    "an error raised twice": "twice(pa.RecordBatchReader.from_stream(rocketc.decode(data[:-9])).read_all)",
    "a schema refused": "attempt(lambda: rocketc.decode(data).__arrow_c_stream__(other.__arrow_c_schema__()))",
    "capsules": "[b.__arrow_c_array__() for b in rocketc.decode(data).run(None).batches()]",
    "a capsule never taken": "rocketc.decode(data).__arrow_c_stream__(), rocketc.decode(data).__arrow_c_schema__()",
    "columns": "[b.column(6) for b in rocketc.decode(data).batches()]",
    "damage": "list(rocketc.decode(data[:-1] + b'x' + data, errors='skip'))",
    "raised": "attempt(lambda: list(rocketc.decode(data[:-1] + b'x')))",
    "raised in a stream": "attempt(lambda: pa.table(rocketc.decode(data[:-9])))",
    "pickled": "pickle.loads(pickle.dumps(list(rocketc.decode(data))))",
    "encoded": "rocketc.encode('t', b'x' * 999, properties={'a': 'b'}, property_crc=True), rocketc.decode_batch(wire)",
    "file": "list(rocketc.scan(path)), rocketc.scan(path).to_arrow()",
}


@pytest.mark.some(3)
@pytest.mark.parametrize("way", WAYS)
def test_ten_thousand_scans_of_a_small_buffer(way, tmp_path):
    """A leak of 100 bytes per scan would be found."""
    code = f"""
import pickle, re, zlib
import pyarrow as pa
path = sys.argv[1]
wire = oracle.encode_batch([(0, b"one", {{"TAGS": "A"}}), (1, b"two", None)])
data = b""
for fields in (
    {{"properties": {{"TAGS": "A", "KEYS": "k l"}}}},
    {{"body": zlib.compress(b"plain" * 9), "sys_flag": 1, "properties": b"\\xff\\x01\\xfe\\x02"}},
    {{"body": wire, "sys_flag": 0xC0}},
):
    data += oracle.encode(**{{"topic": "t", "body": b"body", "phy_offset": len(data), **fields}})
with open(path, "wb") as file:
    file.write(data)
def attempt(call):
    try:
        call()
    except (rocketc.CorruptRecordError, ValueError):  # pa.ArrowInvalid is one
        return
    raise AssertionError
def twice(call):
    attempt(call)
    attempt(call)
other = pa.schema({{"topic": pa.string()}})
def turn():
    {WAYS[way]}
for _ in range(1000):
    turn()
gc.collect()
before = memory("VmRSS")
for _ in range(10_000):
    turn()
gc.collect()
print(memory("VmRSS") - before)
"""
    assert int(run(code, tmp_path / "00000000000000000000")) < 700, "growth in KiB"


GIB = 1 << 30


def test_more_than_two_gib_in_holes(tmp_path):
    """Three sparse files of 1 GiB: with zeros in the middle, with blank records, with data after a hole."""
    code = """
from pathlib import Path
GIB = 1 << 30
folder = Path(sys.argv[1])
size = len(oracle.encode("t", b"body"))
def write(base, blank=False):
    with open(folder / f"{base:020d}", "wb") as file:
        file.write(b"".join(oracle.encode("t", b"body", phy_offset=base + n * size) for n in range(10)))
        if blank:
            file.write((GIB - 10 * size).to_bytes(4, "big") + bytes.fromhex("cbd43194"))
        file.truncate(GIB)

for n in range(3):
    write(n * GIB)
scan = rocketc.scan(folder, errors="skip")
assert scan.count() == 30
holes = [(n * GIB + 10 * size, (n + 1) * GIB, "zeroed") for n in range(2)]
assert [(d.start, d.stop, d.reason) for d in scan.report.damage] == holes
assert scan.report.end == 2 * GIB + 10 * size

for n in range(2):
    write(n * GIB, blank=True)
scan = rocketc.scan(folder)
assert [m.phy_offset for m in scan] == [n * GIB + i * size for n in range(3) for i in range(10)]
assert scan.to_arrow().num_rows == 30
assert scan.report.blanks == 2 and scan.report.bytes == 2 * GIB + 10 * size

with open(folder / f"{2 * GIB:020d}", "r+b") as file:
    file.seek(GIB - size)
    file.write(oracle.encode("t", b"last", phy_offset=3 * GIB - size))
scan = rocketc.scan(folder, errors="skip")
assert [m.body for m in scan][-1] == b"last"
[damage] = scan.report.damage
assert (damage.start, damage.stop, damage.reason) == (2 * GIB + 10 * size, 3 * GIB - size, "zeroed")

# A record that begins in the last bytes of a hole: only a part of its size field is there.
for before in range(1, 4):
    write(2 * GIB)
    at = (1 << 29) - before
    with open(folder / f"{2 * GIB:020d}", "r+b") as file:
        file.seek(at)
        file.write(oracle.encode("t", b"mid", phy_offset=2 * GIB + at))
    scan = rocketc.scan(folder, errors="skip")
    assert [m.body for m in scan][-1] == b"mid", before
    assert sum(f.stat().st_blocks for f in folder.iterdir()) * 512 < 1 << 20
print(memory("VmHWM"))
"""
    folder = tmp_path / "commitlog"
    folder.mkdir()
    assert int(run(code, folder)) < 300 << 10, "the most KiB"


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("way", "limit"),
    [
        ("for m in scan: n += 1", 60),
        ("n = scan.count()", 60),
        ("n = sum(b.num_rows for b in scan.batches())", 160),
        ("n = rocketc.scan(path, columns=['topic', 'properties', 'storeTimestamp']).to_arrow().num_rows", 60),
        ("n = duckdb.sql('select count(body) from scan').fetchall()[0][0]", 400),
    ],
)
def test_anonymous_memory_over_a_large_file(tmp_path, way, limit):
    """1 GiB of records whose bodies are mostly a hole: memory of rocketc stays small, and so does the mapped part."""
    code = f"""
import zlib
import duckdb
path, size = sys.argv[1], 4 << 20
body = bytes(size)
crc = zlib.crc32(body) & 0x7FFFFFFF
one = oracle.encode("t", b"")
at = 0
with open(path, "wb") as file:
    for n in range(256):
        # a record with a body of zeros, which are not written
        whole = len(one) + size
        file.seek(at)
        file.write(whole.to_bytes(4, "big") + one[4:8] + crc.to_bytes(4, "big") + one[12:28])
        file.write(at.to_bytes(8, "big") + one[36:84] + size.to_bytes(4, "big"))
        file.seek(at + 88 + size)
        file.write(one[88:])
        at += whole
scan = rocketc.scan(path)
assert scan.run([]) is not None
before, n = memory("RssAnon"), 0
{way}
assert n == 256, n
assert memory("RssAnon") - before < {limit} << 10, (memory("RssAnon") - before) >> 10
assert memory("VmHWM") < 900 << 10, memory("VmHWM") >> 10
"""
    run(code, tmp_path / "00000000000000000000", timeout=200)
