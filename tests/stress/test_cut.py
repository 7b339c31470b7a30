"""Files that another process truncates while they are read: an exception or a report, never SIGBUS.

Everything valid before the cut is returned. Each case runs in its own Python process, so that a crash is a failed test
and does not end the run.
"""

import os
import subprocess
import sys

import pytest
from support.native import ROOT

pytestmark = pytest.mark.promise(3, 8)

FILE = "00000000000000000000"

# The start of each case: a log of `count` records of `size` bytes in a file, and helpers to check them.
PROLOGUE = """
import os, sys
import rocketc
from support import oracle

path = sys.argv[1]

def write(count, size, room=0):
    global starts
    body = size - len(oracle.encode("topic", b"", properties={"TAGS": "tag"}))
    data, starts = [], []
    for n in range(count):
        starts.append(n * size)
        text = b"%08d" % n + b"x" * (body - 8)
        data.append(oracle.encode("topic", text, phy_offset=n * size, properties={"TAGS": "tag"}))
    with open(path, "wb") as file:
        file.write(b"".join(data))
        file.truncate(max(room, count * size))

def whole(cut, size):
    "The number of records that end before the cut."
    return cut // size

def check(m, size):
    n = m.phy_offset // size
    assert (m.topic, m.tags, m.body[:8], m.phy_offset) == ("topic", "tag", b"%08d" % n, n * size), n
    assert m.body[8:].strip(b"x") == b"", n
    return n
"""


def run(code, folder, timeout=60):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    command = [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + code, str(folder / FILE)]
    done = subprocess.run(command, env=env, timeout=timeout, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# Truncate to nothing, within the first page, at pages, within pages, within the last page, by one byte.
CUTS = [0, 1, 4095, 4096, 4097, 100_000, 409_600, 700_001, 999_000, 999_999]


@pytest.mark.parametrize("crc", ["none", "body"])
@pytest.mark.parametrize("taken", [1, 300, 999])
def test_cut_while_messages_are_read(tmp_path, crc, taken):
    """1,000 records of 1,000 bytes; after `taken` of them the file is cut. Records before the cut are still whole."""
    code = f"""
for cut in {CUTS}:
    for errors in ("raise", "skip"):
        write(1000, 1000)
        scan = rocketc.scan(path, errors=errors, crc={crc!r})
        found, error = [], None
        try:
            for m in scan:
                found.append(check(m, 1000))
                if len(found) == {taken}:
                    os.truncate(path, cut)
        except rocketc.CorruptRecordError as e:
            error = e
        count = max(whole(cut, 1000), {taken})      # records decoded before the cut may follow
        assert found[:count] == list(range(count)), (cut, len(found))
        assert found == list(range(len(found)))
        assert len(found) <= max(whole(cut, 1000), {taken} + 64), (cut, len(found))
        if len(found) == 1000:
            continue                                # all records had been copied
        if errors == "raise":
            assert (error.file, error.offset, error.reason) == (path, len(found) * 1000, "file_cut"), (cut, error)
            assert "from 1000000 to %d" % cut in str(error), error
        else:
            [damage] = scan.report.damage
            told = (damage.file, damage.start, damage.stop, damage.reason)
            assert told == (path, len(found) * 1000, 1000000, "file_cut"), (cut, told)
"""
    run(code, tmp_path)


@pytest.mark.some(3)
@pytest.mark.parametrize("size", [150, 1000, 4096, 70_000])
@pytest.mark.parametrize("columns", [None, ["queueOffset"], ["topic", "body"]])
def test_cut_while_a_batch_is_built(tmp_path, size, columns):
    """The predicate of a record cuts the file in the middle of a batch."""
    code = f"""
size, count = {size}, 2_000_000 // {size}
for part in (0.0, 0.1, 0.5, 0.97, 1.0):
    for errors in ("raise", "skip"):
        write(count, size)
        length = size * count
        cut = min(int(length * part), length - 1)
        asked = []
        def where(m):
            asked.append(check(m, size))
            if len(asked) == count // 3:
                os.truncate(path, cut)
            return True
        scan = rocketc.scan(path, errors=errors, where=where, columns={columns!r}, batch_bytes=1 << 30)
        rows, error = 0, None
        try:
            for batch in scan.batches():
                if {columns!r} == ["topic", "body"]:
                    assert batch.column("body").to_pylist() == [
                        b"%08d" % n + b"x" * len(b[8:]) for n, b in enumerate(batch.column("body").to_pylist(), rows)]
                rows += batch.num_rows
        except rocketc.CorruptRecordError as e:
            error = e
        assert rows >= whole(cut, size), (cut, rows)
        reason = error.reason if errors == "raise" else scan.report.damage[-1].reason
        assert reason == "file_cut", reason
        offset = error.offset if errors == "raise" else scan.report.damage[-1].start
        assert offset == rows * size, (offset, rows)
"""
    run(code, tmp_path)


def test_cut_before_the_scan_begins(tmp_path):
    """The cut is between scan() and its first record."""
    code = """
for cut in (0, 5000, 50_000):
    write(100, 1000)
    scan = rocketc.scan(path)
    os.truncate(path, cut)
    found = []
    try:
        for m in scan:
            found.append(check(m, 1000))
    except rocketc.CorruptRecordError as e:
        raise AssertionError(e)         # opened after the cut: the file is just shorter
    assert len(found) == cut // 1000
"""
    run(code, tmp_path)


def test_cut_of_a_middle_file(tmp_path):
    """The files before and after it are read as before."""
    code = """
folder = os.path.dirname(path)
body, count = b"x" * 900, 99
record = len(oracle.encode("topic", body))
for n in range(3):
    base = n * 100_000
    data = b"".join(oracle.encode("topic", body, phy_offset=base + i * record) for i in range(count))
    with open(os.path.join(folder, "%020d" % base), "wb") as file:
        file.write(data + oracle.encode_blank(100_000 - len(data)))
scan = rocketc.scan(folder, errors="skip")
found = []
for m in scan:
    found.append(m.phy_offset)
    if len(found) == count + 1:
        os.truncate(os.path.join(folder, "%020d" % 100_000), 70_000)
good = [n * record for n in range(count)]
middle = [100_000 + n * record for n in range(count)]
kept = [n for n in found if 100_000 <= n < 200_000]
assert kept == middle[:len(kept)] and 70_000 // record <= len(kept) <= 70
assert [n for n in found if n < 100_000] == good
assert [n for n in found if n >= 200_000] == [200_000 + n for n in good]
[damage] = scan.report.damage
assert damage.reason == "file_cut" and damage.start == 100_000 + len(kept) * record and damage.stop == 200_000
"""
    run(code, tmp_path)


def test_cut_again_and_again(tmp_path):
    """Each cut leaves fewer records; all returned records are still right."""
    code = """
write(2000, 1000)
scan = rocketc.scan(path, errors="skip")
found = []
for m in scan:
    found.append(check(m, 1000))
    if len(found) % 100 == 0:
        os.truncate(path, max(2_000_000 - 1000 * len(found) - 37, 0))
assert found == list(range(len(found))) and 900 <= len(found) <= 1100, len(found)
[damage] = scan.report.damage
assert (damage.start, damage.stop, damage.reason) == (1000 * len(found), 2_000_000, "file_cut")
"""
    run(code, tmp_path)


def test_cut_and_grown_again(tmp_path):
    """A hole in the place of records is not read as a record, whatever the file's size is."""
    code = """
write(2000, 1000)
scan = rocketc.scan(path, errors="skip")
found = []
for m in scan:
    found.append(check(m, 1000))
    if len(found) == 10:
        os.truncate(path, 500_000)
        os.truncate(path, 2_000_000)
assert found[:500] == list(range(500)), len(found)
assert scan.report.damage or found == list(range(len(found)))
"""
    run(code, tmp_path)


def test_cut_by_another_process_at_any_time(tmp_path):
    """Nothing is synchronized: another process cuts and rewrites the file while scans start and end."""
    code = """
import subprocess, time
write(3000, 700)
data = open(path, "rb").read()
other = subprocess.Popen([sys.executable, "-c", '''
import os, random, sys, time
path = sys.argv[1]
data = open(path, "rb").read()
rng = random.Random(1)
while True:
    os.truncate(path, rng.randrange(len(data)))
    time.sleep(rng.random() / 500)
    with open(path, "r+b") as file:
        file.write(data)
    time.sleep(rng.random() / 200)
''', path])
cut = 0
stop = time.monotonic() + 4
try:
    while time.monotonic() < stop:
        scan = rocketc.scan(path, errors="skip")
        for m in scan:
            pass
        cut += any(d.reason == "file_cut" for d in scan.report.damage)
        try:
            scan = rocketc.scan(path)
            for batch in scan.batches():
                pass
        except rocketc.CorruptRecordError:
            cut += 1
        rocketc.scan(path, errors="skip", topics="none", crc="none").count()
finally:
    other.kill()
    other.wait()
print(cut)
"""
    assert int(run(code, tmp_path)) > 3


def test_cut_during_the_search_after_damage(tmp_path):
    """The search for the next record reads pages that disappear."""
    code = """
for cut in (0, 4096, 500_001):
    write(10, 1000)
    with open(path, "ab") as file:
        file.write(b"\\xda\\xa3\\x20\\xa7" * 500_000)
    scan = rocketc.scan(path, errors="skip")
    found = []
    for m in scan:
        found.append(check(m, 1000))
        if len(found) == 10:
            os.truncate(path, cut)
    assert found == list(range(10))
    assert [d.reason for d in scan.report.damage][-1] in ("file_cut", "bad_size"), scan.report.damage
"""
    run(code, tmp_path)


def test_sigbus_outside_of_our_reads_is_passed_on(tmp_path):
    """Outside of rocketc's reads, SIGBUS still ends the process, or goes to the handler installed before."""
    code = """
import ctypes, faulthandler, mmap, resource, signal, subprocess
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
write(100, 1000)
for m in rocketc.scan(path):
    pass
with open(path, "rb") as file:
    theirs = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
os.truncate(path, 0)
child = os.fork()
if child == 0:
    faulthandler.disable()
    theirs[50_000]
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS, status
"""
    run(code, tmp_path)


def test_a_handler_installed_later_is_kept(tmp_path):
    """faulthandler is enabled after the first scan; the next scan still survives a cut."""
    code = """
import faulthandler
for turn in range(3):
    write(1000, 1000)
    scan = rocketc.scan(path, errors="skip")
    found = []
    for m in scan:
        found.append(check(m, 1000))
        if len(found) == 5:
            os.truncate(path, 0)
    assert scan.report.damage[0].reason == "file_cut"
    faulthandler.disable()
    faulthandler.enable()
"""
    run(code, tmp_path)
