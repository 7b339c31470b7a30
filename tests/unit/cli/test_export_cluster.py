"""rocketc export --follow and --append: a folder that grows with topics of a cluster, and how the command ends."""

import contextlib
import json
import re
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from support.command import start

import rocketc
from rocketc.cli import exit_codes, follow_progress, metrics_option
from rocketc.client import Producer
from rocketc.client.access import access_to
from rocketc.exports.archive_target import Target
from rocketc.exports.cluster_archive import ClusterArchive


@pytest.fixture(scope="module")
def broker():
    with rocketc.Broker() as one:
        yield one


@pytest.fixture(scope="module")
def producer(broker):
    with Producer("shop", broker.name_server) as one:
        yield one


@pytest.fixture
def url(broker, producer, request):
    """The URL of a topic of the test, with 20 messages."""
    topic = re.sub(r"\W+", "-", request.node.name)
    for number in range(20):
        producer.send(topic, b"%d" % number, keys=f"k{number}")
    return f"rocketmq://{broker.name_server}/{topic}"


def keys(target):
    files = [str(path) for path in Path(target).glob("data/topic=*/*/*.parquet")]
    return ds.dataset(files).to_table(["keys"]).column("keys").to_pylist() if files else []


def test_append_adds_what_is_there_and_ends(run_here, producer, url):
    code, out, err = run_here("export", url, "-o", "lake", "--append")
    assert (code, out) == (0, "") and re.fullmatch(r"rocketc: 20 messages added to lake: .* KiB in 1 file\n", err)
    assert run_here("export", url, "-o", "lake", "--append") == (0, "", "rocketc: nothing new\n")
    assert run_here("export", url, "-o", "lake", "--append", "--fail-if-empty")[0] == exit_codes.NOT_FOUND
    producer.send(url.rpartition("/")[2], b"more", keys="k20")
    code, out, err = run_here("export", url, "-o", "lake", "--append", "-J", "--commit-size", "1KiB")
    summary = json.loads(out)
    assert (code, err, summary.pop("bytes") > 0) == (0, "", True)
    assert summary == {"path": str(Path("lake").absolute()), "format": "parquet", "rows": 1, "files": 1, "commits": 1,
                       "damage": []}  # fmt: skip
    assert sorted(keys("lake")) == sorted(f"k{number}" for number in range(21))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGTERM, signal.SIGHUP))]
)
def test_follow_ends_with_a_signal(producer, url, tmp_path, number):
    process = start("export", url, "-o", tmp_path / "lake", "--follow", "--interval", "0.05")
    wait_for(lambda: len(keys(tmp_path / "lake")) == 20)
    producer.send(url.rpartition("/")[2], b"more", keys="k20")
    wait_for(lambda: len(keys(tmp_path / "lake")) == 21)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (128 + number, b"")
    assert re.fullmatch(rb"rocketc: 21 messages added to \S+: .* in 2 files\n", err)
    assert sorted(keys(tmp_path / "lake")) == sorted(f"k{number}" for number in range(21))
    assert not (tmp_path / "lake" / "_rocketc" / "staging").exists()


def test_follow_says_what_it_does_and_serves_metrics(run_here, producer, url, monkeypatch):
    """stderr has a line a minute: here every 50 ms."""
    monkeypatch.setattr(follow_progress, "_LINE_SECONDS", 0.05)
    notes, page = [], []
    monkeypatch.setattr(follow_progress, "note", notes.append)
    monkeypatch.setattr(metrics_option, "note", notes.append)

    def until_told(self):
        if (staged := stage(self)) is None:
            wait_for(lambda: re.fullmatch(r"\S+: 20 messages added, 0 behind, last commit \d+ s ago", notes[-1]))
            page.append(urllib.request.urlopen(notes[0].removeprefix("metrics at ")).read().decode())
            signal.raise_signal(signal.SIGINT)
        return staged

    stage = ClusterArchive.stage
    monkeypatch.setattr(ClusterArchive, "stage", until_told)
    code, _, err = run_here("export", url, "-o", "lake", "--follow", "--metrics-port", "0")
    assert code == exit_codes.INTERRUPTED, err
    for line in ("messages_total 20", "lag_messages 0", "commits_total 1"):
        assert f"rocketc_archive_{line}" in page[0].splitlines()


def test_follow_waits_for_a_name_server(tmp_path):
    """As a consumer does: it begins before the cluster."""
    with free_port() as port:
        archive = ClusterArchive(access_to(f"127.0.0.1:{port}"), ["orders"], tmp_path / "lake", waits=True)
    try:
        assert archive.stage() is None and archive.waits_for_topics and archive.behind() is None
        with rocketc.Broker(namesrv_port=port) as broker, Producer("shop", broker.name_server) as shop:
            shop.send("orders", b"one", keys="k1")
            staged = []
            wait_for(lambda: staged or staged.extend(filter(None, [archive.stage()])))
            archive.commit(staged[0])
            assert keys(tmp_path / "lake") == ["k1"] and archive.behind() == 0
    finally:
        archive.close()


@contextlib.contextmanager
def free_port():
    """A port on which no one listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def wait_for(done, seconds=20):
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_signal_waits_for_the_commit(run_here, url, monkeypatch):
    commit = ClusterArchive.commit

    def interrupted(self, staged):
        signal.raise_signal(signal.SIGINT)
        commit(self, staged)

    monkeypatch.setattr(ClusterArchive, "commit", interrupted)
    code, _, err = run_here("export", url, "-o", "lake", "--append")
    assert code == exit_codes.INTERRUPTED and "20 messages added" in err
    assert len(keys("lake")) == 20


def test_a_signal_ends_a_stage_and_leaves_nothing_of_it(run_here, url, monkeypatch):
    stage = ClusterArchive.stage

    def interrupted(self):
        stage(self)
        self.discard()
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(ClusterArchive, "stage", interrupted)
        assert run_here("export", url, "-o", "lake", "--append") == (143, "", "rocketc: nothing new\n")
    assert not Path("lake/_rocketc/staging").exists()
    assert run_here("export", url, "-o", "lake", "--append")[0] == 0


def test_lost_messages_are_damage(run, tmp_path):
    lake = tmp_path / "lake"
    with (
        rocketc.Broker(mapped_file_size_commit_log=64 << 10) as broker,
        Producer("shop", broker.name_server) as producer,
    ):
        url = f"rocketmq://{broker.name_server}/orders"
        broker.topics.create("orders", 1)
        producer.send("orders", b"first")
        assert run("export", url, "-o", lake, "--append")[0] == 0
        for _ in range(200):
            producer.send("orders", b"x" * 1000)
        broker.store.clean(expired_ms=0, now=int(time.time() * 1000) + 60_000)
        first = min(message.queue_offset for message in rocketc.scan(broker.path, topics="orders"))
        lost = f"rocketc: orders queue 0 on broker-a: queue offsets 1 to {first} are lost: missing_messages\n"
        code, out, err = run("export", url, "-o", lake, "--append", "--strict")
        assert (code, out) == (exit_codes.DAMAGED, "")
        assert err.splitlines(keepends=True)[:2] == [
            lost, "rocketc: --strict: messages are lost or damaged; leave it out to continue without them\n"
        ]  # fmt: skip
        code, out, err = run("export", url, "-o", lake, "--append", "--json")
        assert (code, err) == (exit_codes.DAMAGED, lost)
        assert json.loads(out)["damage"] == [
            {"topic": "orders", "broker": "broker-a", "queueId": 0, "start": 1, "stop": first,
             "reason": "missing_messages"}
        ]  # fmt: skip
        assert run("export", url, "-o", lake, "--append") == (0, "", "rocketc: nothing new\n")


USAGE = """
    URL --follow --append | URL --interval 3 | URL --append --interval 3 | URL --commit-size 3MB | URL -F --interval 0
    URL -F --interval nan | URL -F --commit-size 0
    URL -F --engine spark | URL --append --engine spark | store -F | store --append
    URL -F --tag a | URL --append --key k | URL -F --from -1d | URL -F --to now | URL -F -q 1 | URL -F --sql a=1
    URL -F --grep x | URL -F --no-unwrap | URL -F --format csv | URL -F --force | URL -F --row-group-size 1MiB
    URL -F --jobs 2 | URL -F --partition-by date | URL -F --columns nope | URL -F -t orders | BARE -F
    URL -F --compression rar | URL --engine spark --tag a | URL --engine spark --strict
"""


@pytest.mark.parametrize("line", [line.strip() for line in USAGE.replace("\n", "|").split("|") if line.strip()])
def test_wrong_usage_is_one_line(run_here, line):
    url = "rocketmq://127.0.0.1:1"
    args = line.replace("URL", f"{url}/orders").replace("BARE", url).split()
    code, out, err = run_here("export", *args, "-o", "lake")
    assert (code, out, err.count("\n")) == (exit_codes.USAGE, "", 1), err
    assert not Path("lake").exists()


@pytest.mark.parametrize("flag", ["--follow", "--append"])
def test_what_could_not_be_done_is_one_line(run_here, broker, url, flag):
    Path("notes").mkdir()
    Path("notes/mine").write_text("")
    Path("file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"rocketmq://127.0.0.1:{server.getsockname()[1]}/orders"
    name, bare = url.rpartition("/")[2], url.rpartition("/")[0]
    for code, text, args in (
        (exit_codes.USAGE, "notes: not an archive: it holds 'mine'", (url, "-o", "notes")),
        (exit_codes.COULD_NOT, "file: Not a directory", (url, "-o", "file")),
        (exit_codes.COULD_NOT, "connection refused", (closed, "-o", "lake")),
        (exit_codes.NOT_FOUND, "no topic /none.*/ in this cluster", (f"{bare}/none*", "-o", "lake")),
    ):
        if flag == "--follow" and closed in args:
            continue  # it waits
        found, out, err = run_here("export", *args, flag)
        assert (found, out, err.count("\n")) == (code, "", 1), err
        assert text.lower() in err.lower()
        assert not Path("lake").exists()
    run_here("export", url, "-o", "lake", "--append")
    code, _, err = run_here("export", bare, "-t", f"/{name}.*/", "-o", "lake", flag)
    assert code == exit_codes.USAGE and err.count("\n") == 1 and "but it was made with" in err
    assert run_here("export", bare, "-t", name, "-o", "-", flag)[0] == exit_codes.USAGE
    held = Target("lake")
    code, _, err = run_here("export", url, "-o", "lake", flag)
    held.close()
    assert (code, err) == (exit_codes.COULD_NOT, "rocketc: lake: another process is writing to this archive\n")
