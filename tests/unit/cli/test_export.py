"""rocketc export as users run it: its output, how it ends, and what it leaves when it is interrupted."""

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import stores
from support.command import environment, on_terminal, rocketc, start

import rocketc as library
from rocketc.cli.main import main

FORMATS = ("parquet", "arrow", "jsonl", "csv")


@pytest.fixture
def call(run, monkeypatch, tmp_path):
    """call(*args): run the command in this process, in its own folder. Return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    return partial(run, "export")


@pytest.fixture(scope="session")
def store(golden):
    return golden("v533-broker").path


# ---------------------------------------------------------------- output
@pytest.mark.parametrize("form", FORMATS)
def test_one_file(call, store, tmp_path, form):
    code, out, err = call(store, "-o", f"x.{form}")
    size = (tmp_path / f"x.{form}").stat().st_size / 1024
    size = f"{size:.1f} KiB" if size < 1023 else f"{size / 1024:.1f} MiB"
    assert (code, out, err) == (0, "", f"rocketc: 1659 messages written to x.{form}: {size}\n")


def test_a_partition_by_all_columns_is_wrong_usage(call, store, tmp_path):
    code, _, err = call(store, "-o", "lake", "--columns", "topic", "--partition-by", "topic")
    assert (code, err.count("\n")) == (2, 1) and "all columns are in partition_by" in err
    assert not (tmp_path / "lake").exists()


def test_the_summary_as_json(call, store, tmp_path):
    code, out, err = call(store, "-o", "lake", "--partition-by", "topic, date", "--json")
    told = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert told.pop("bytes") == sum(path.stat().st_size for path in tmp_path.rglob("part-*"))
    assert told == {
        "path": "lake", "format": "parquet", "rows": 1659, "files": 17, "bytesRead": 795992, "damage": [],
        "missing": [], "deleted": [],
    }  # fmt: skip


def test_damage_is_reported_and_makes_the_exit_code_1(call, golden, tmp_path):
    bad = golden("v533-bitrot").path
    code, out, err = call(bad, "-o", "x.parquet")
    file = bad / "commitlog" / "00000000000000327680"
    assert (code, out) == (1, "")
    assert err.splitlines()[0] == (
        f"rocketc: {file}: 326 bytes lost at physical offset 361670: bad_body_crc (the body does not match its CRC)"
    )
    assert err.splitlines()[1].startswith("rocketc: 1499 messages written to x.parquet: ")
    assert err.splitlines()[2:] == ["rocketc: damage: 1 range, 326 bytes lost"]
    code, out, err = call(bad, "-o", "x.csv", "--json")
    damage = {"file": str(file), "start": 361670, "stop": 361996, "reason": "bad_body_crc"}
    assert (code, json.loads(out)["damage"]) == (1, [damage])
    code, out, err = call(bad, "-o", "y.parquet", "--strict")
    assert (code, out, err.count("\n")) == (1, "", 1) and "damage at physical offset 361670" in err
    assert sorted(os.listdir(tmp_path)) == ["x.csv", "x.parquet"]


def test_spark_without_pyspark(store, tmp_path):
    code = "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from rocketc.cli.main import main; main()"
    command = [sys.executable, "-c", code, "export", str(store), "-o", "lake", "--engine", "spark"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "rocketc: rocketc.spark needs pyspark: pip install 'rocketc[spark]'\n"


def test_an_empty_store_is_an_empty_table(call, tmp_path):
    library.open(tmp_path / "store").close()
    code, out, err = call("store", "-o", "x.parquet")
    assert (code, out) == (0, "")
    assert "nothing to read: store" in err and "rocketc: 0 messages written to x.parquet: " in err
    assert call("store", "-o", "x.parquet", "--force")[0] == 0
    assert pq.read_table(tmp_path / "x.parquet").schema == pa.schema(library.decode(b""))


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "options",
    [
        ["-t", "Orders"],
        ["-t", "/.*Half.*|Seq/", "-q", "1"],
        ["--tag", "BB||BBBB"],
        ["--key", "k224"],
        ["--grep", "step 4.*9"],
        ["--sql", "KEYS IS NOT NULL AND TAGS IN ('BB', 'BBBB')"],
        ["--start", "1000", "--stop", "200000"],
        ["--from", "2026-11-21T08:11:07", "--to", "2026-11-21T08:11:09"],
        ["--no-unwrap", "--no-decompress", "--crc", "none"],
    ],
)
def test_filters_are_those_of_cat(call, store, tmp_path, options):
    code, _, _ = call(store, "-o", "x.jsonl", *options)
    with pytest.raises(SystemExit):
        main(["export", str(store), "-o", "x.parquet", *options])
    shown = rocketc("cat", store, "--json", *options).stdout
    assert code == 0 and (tmp_path / "x.jsonl").read_bytes() == shown
    offsets = [json.loads(line)["physicalOffset"] for line in shown.splitlines()]
    assert offsets and pq.read_table(tmp_path / "x.parquet").column("physicalOffset").to_pylist() == offsets


def test_columns_and_settings(call, store, tmp_path):
    code, _, _ = call(
        store, "-o", "x", "--format", "parquet", "--columns", "body,topic", "--compression", "snappy",
        "--row-group-size", "100k", "--jobs", "1",
    )  # fmt: skip
    about = pq.ParquetFile(tmp_path / "x").metadata
    assert code == 0 and about.schema.names == ["body", "topic"] and about.num_row_groups > 3
    assert about.row_group(0).column(0).compression == "SNAPPY"


# ---------------------------------------------------------------- stdout
def test_json_lines_on_stdout_are_those_of_cat(store):
    done = rocketc("export", store, "-o", "-")
    assert (done.returncode, done.stdout) == (0, rocketc("cat", store, "--json").stdout)
    assert re.fullmatch(rb"rocketc: 1659 messages written: [\d.]+ MiB\n", done.stderr)


@pytest.mark.long
def test_other_formats_on_stdout(store, tmp_path):
    whole = library.scan(store).to_arrow()
    arrow = rocketc("export", store, "-o", "-", "--format", "arrow").stdout
    assert pa.ipc.open_stream(arrow).read_all().equals(whole)
    parquet = rocketc("export", store, "-o", "-", "--format", "parquet").stdout
    assert pq.read_table(io.BytesIO(parquet)).equals(whole)
    library.export(library.scan(store), tmp_path / "x.csv")
    assert rocketc("export", store, "-o", "-", "--format", "csv").stdout == (tmp_path / "x.csv").read_bytes()


@pytest.mark.some(2)
@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(golden, form):
    with start("export", golden("flights-2013-01").path, "-o", "-", "--format", form) as process:
        assert len(process.stdout.read(100)) == 100
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_stdout_on_a_full_disk_is_reported(store):
    with open("/dev/full", "wb") as full:
        done = rocketc("export", store, "-o", "-", stdout=full)
    assert (done.returncode, done.stderr) == (3, b"rocketc: can't write: No space left on device\n")


def test_export_refuses_to_write_to_a_terminal(store):
    code, text = on_terminal("export", store, "-o", "-")
    assert code == 2 and "stdout is a terminal" in text.replace("\n", " ")


# ---------------------------------------------------------------- wrong usage
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["-o", "x.xlsx"], "unknown format of 'x.xlsx'"),
        (["-o", "x"], "unknown format of 'x'"),
        (["-o", "x.csv", "--format", "xlsx"], "'xlsx' is not one of"),
        (["-o", "x.csv", "--columns", "topic,size"], "'size' is not one of topic, queueId"),
        (["-o", "x.csv", "--columns", "topic,topic"], "'topic' is given twice"),
        (["-o", "x.csv", "--columns", ""], "'' is not one of"),
        (["-o", "x", "--partition-by", "tags"], "'tags' is not one of topic, date, queueId"),
        (["-o", "-", "--partition-by", "topic"], "partition_by needs a folder"),
        (["-o", "-", "--json"], "can't be used with -o -"),
        (["-o", "x.csv", "--compression", "snappy"], "compression 'snappy' of csv"),
        (["-o", "x.parquet", "--row-group-size", "0"], "'0' is not a size"),
        (["-o", "x.parquet", "--row-group-size", "many"], "'many' is not a size"),
        (["-o", "x.parquet", "--row-group-size", "1T"], "'1T' is not a size"),
        (["-o", "x.parquet", "--jobs", "0"], "0 is less than 1"),
        (["-o", "old.csv"], "old.csv exists: use --force to replace it"),
        (["-o", "."], "is a folder"),
        (["-o", "lake/"], "is a folder"),
        (["-o", "old", "--partition-by", "date"], "old exists: use --force to replace it"),
        (
            ["-o", "old", "--partition-by", "date", "--force"],
            "old contains what no export wrote: thesis.tex; move it, or export elsewhere",
        ),
        (["-o", "old.csv", "--partition-by", "date", "--force"], "Not a directory"),
        ([], "Missing option '-o'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(call, store, tmp_path, args, says):
    (tmp_path / "old.csv").write_text("mine")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "thesis.tex").touch()
    code, out, err = call(store, *args)
    assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith("rocketc export: ")
    assert says in err
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "old", "old.csv", "old/thesis.tex"
    ]  # fmt: skip


def test_output_inside_the_input_is_wrong_usage(call, store):
    code, _, err = call(store, "-o", store / "x.csv")
    assert code == 2 and "which is read" in err and not (store / "x.csv").exists()


def test_no_such_input(call, tmp_path):
    code, _, err = call("nowhere", "-o", "x.csv")
    assert (code, err.count("\n"), os.listdir(tmp_path)) == (3, 1, [])


def test_force_replaces(call, store, tmp_path):
    (tmp_path / "x.csv").write_text("mine")
    assert call(store, "-o", "x.csv", "--force")[0] == 0
    assert (tmp_path / "x.csv").stat().st_size > 1 << 20


# ---------------------------------------------------------------- disks
@pytest.mark.parametrize("output", ["no/x.csv", "/proc/x.csv", "/dev/full"])
def test_paths_that_cannot_be_written(call, store, tmp_path, output):
    code, out, err = call(store, "-o", output, "--format", "csv")
    assert (code, out) == (3, "") and err.startswith(f"rocketc: {output}: ") and err.count("\n") == 1
    assert os.listdir(tmp_path) == []


TARGETS = [[f"x.{form}"] for form in FORMATS] + [["lake", "--partition-by", "topic"]]


@pytest.mark.some(2)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[0])
def test_a_limit_of_the_system_is_reported_and_no_file_is_left(golden, tmp_path, target):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    output = tmp_path / target[0]
    command = [sys.executable, "-m", "rocketc", "export", str(golden("flights-2013-01").path), "-o", str(output)]
    done = subprocess.run(
        command + target[1:], env=environment(), cwd=tmp_path, preexec_fn=limit, capture_output=True, timeout=60
    )
    assert done.returncode == 3
    assert done.stderr.decode().startswith(f"rocketc: {output}") and done.stderr.endswith(b": File too large\n")
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- interrupted
STUCK = """
import sys, time
from rocketc.exports import sinks
write_all = sinks.write_all
def stuck(fd, data):
    write_all(fd, data[:1000])
    print("half way", flush=True)
    time.sleep(60)
sinks.write_all = stuck
from rocketc.cli.main import main
main(sys.argv[1:])
"""
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("target", "number", "old"),
    [
        *((TARGETS[i], number, True) for i in (0, -1) for number in ENDS),
        *((TARGETS[i], signal.SIGKILL, False) for i in (0, -1)),
        (TARGETS[-2], signal.SIGTERM, False),
    ],
)
def test_an_interrupted_export_leaves_no_partial_file(store, tmp_path, number, target, old):
    output, name = tmp_path / target[0], target[0]
    command = ["export", str(store), "-o", str(output), "--force", *target[1:], "--jobs", "1"]
    if old and len(target) == 1:
        output.write_text("old")
    elif old:
        assert rocketc("export", store, "-o", output, *target[1:]).returncode == 0
    before = sorted(os.listdir(output)) if old and len(target) > 1 else []
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, *command], env=environment(), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"half way\n"
        process.send_signal(number)
        assert process.wait(60) == ENDS[number]
        assert process.stderr.read() == b""
    left = [file for file in os.listdir(tmp_path) if ".rocketc-export" not in file]
    assert left == ([name] if old else [])
    temporary = [file for file in os.listdir(tmp_path) if file.endswith(".tmp")]
    assert bool(temporary) == (number == signal.SIGKILL), "only a kill leaves the temporary"
    if old:
        assert output.read_text() == "old" if len(target) == 1 else sorted(os.listdir(output)) == before
    if number == signal.SIGKILL:  # the command can be run again
        assert rocketc(*command).returncode == 0
        assert output.is_dir() == (len(target) > 1)


def test_nohup_is_respected(store, tmp_path):
    command = ["export", str(store), "-o", str(tmp_path / "x.csv")]

    def nohup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with subprocess.Popen(
        [sys.executable, "-c", STUCK.replace("60", "1"), *command],
        env=environment(), preexec_fn=nohup, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.stdout.read()
        assert process.wait(60) == 0


# ---------------------------------------------------------------- imports
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from rocketc.cli.main import main
main(sys.argv[2:])
"""


def without(modules, *args):
    command = [sys.executable, "-c", WITHOUT, modules, "export", *map(str, args)]
    return subprocess.run(command, env=environment(), capture_output=True, timeout=60)


def test_text_works_without_packages_and_parquet_names_its_package(golden, tmp_path):
    store = golden("v533-store").path
    for name in ("x.jsonl", "x.csv.gz"):
        assert without("pyarrow", store, "-o", tmp_path / name).returncode == 0
    for name in ("y.parquet", "y.arrow"):
        done = without("pyarrow", store, "-o", tmp_path / name)
        assert (done.returncode, done.stderr) == (3, b"rocketc: this needs pyarrow: pip install 'rocketc[arrow]'\n")
    done = without("compression.zstd,compression,backports.zstd", store, "-o", tmp_path / "y.csv.zst")
    assert done.returncode == 3 and b"pip install 'rocketc[compression]'" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["x.csv.gz", "x.jsonl"]


@pytest.mark.some(2)
@pytest.mark.measure
@pytest.mark.parametrize("output", ["x.parquet", "x.arrow", "x.jsonl.gz", "lake", "lines"])
def test_memory_does_not_grow_with_the_log(tmp_path, output):
    """A log of ten times the size needs the same memory: batches, row groups and buffers are limited."""
    code = """
import sys
import rocketc
from rocketc.exports import folder
folder.WAITING_BYTES = 4 << 20
def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) >> 10
path, output, record = sys.argv[1], sys.argv[2], 8 << 10
most = {}
scan = rocketc.scan(path, batch_bytes=1 << 20)
options = {"row_group_size": 2 << 20}
if "." not in output:
    options |= {"partition_by": "topic", "format": "jsonl" if output.endswith("lines") else "parquet"}
third = scan.bytes // 3
def look(done):
    most[done // third] = max(most.get(done // third, 0), anonymous())
report = rocketc.export(scan, output, progress=look, **options)
assert report.rows > 10_000, report
print(most)
assert most[2] < most[1] + 12, most
"""
    log = tmp_path / "log"
    log.mkdir()
    with open(log / f"{0:020d}", "wb") as file:
        while (at := file.tell()) < 90 << 20:
            number = at // 8192
            body = bytes([number % 251]) * 8000 if number % 3 else os.urandom(8000)
            file.write(library.encode(f"t{number % 7}", body, phy_offset=at))
    command = [sys.executable, "-c", code, str(log), str(tmp_path / output)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_golden_store_is_exported_as_scan_reads_it(golden, tmp_path):
    for name in stores.DAMAGED:
        done = rocketc("export", golden(name).path, "-o", tmp_path / f"{name}.jsonl")
        shown = rocketc("cat", golden(name).path, "--json")
        assert (tmp_path / f"{name}.jsonl").read_bytes() == shown.stdout
        assert done.returncode == shown.returncode
