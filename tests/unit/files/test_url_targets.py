"""Nothing is written to a URL: every argument that names a target, or a store that is changed, refuses one at once."""

import os

import pytest
from support.command import rocketc as run

import rocketc
from rocketc.errors import StoreIOError
from rocketc.exports.archive_target import Target
from rocketc.exports.cluster_archive import ClusterArchive
from rocketc.store.opening import open_master

URL = "s3://bucket/x"
TO_A_URL = (
    r"it is a URL; .* writes local files only; write to a local path, and copy the result to the URL: 's3://bucket"
)
AT_A_URL = r"it is a URL; .* takes local paths only; copy it first: 's3://bucket"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rocketc.open("store", mapped_file_size_commit_log=1 << 20) as store:
        store.put("orders", b"hello")
    yield
    assert os.listdir() == ["store"]  # in particular no folder "s3:"


@pytest.mark.parametrize(
    "call",
    [
        lambda: rocketc.export(rocketc.scan("store"), f"{URL}.csv"),
        lambda: rocketc.export(rocketc.scan("store"), URL, partition_by="topic"),
        lambda: rocketc.salvage("store", URL),
        lambda: rocketc.replicate("127.0.0.1:1", URL),
        lambda: Target(URL),
        lambda: ClusterArchive(None, (), URL),
    ],
)
def test_functions_that_write(call):
    with pytest.raises(StoreIOError, match=TO_A_URL):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: rocketc.open(URL),
        lambda: open_master(URL, rocketc.StoreConfig()),
        lambda: rocketc.rebuild(URL),
        lambda: rocketc.salvage(URL, "new"),
        lambda: rocketc.Queue(URL),
        lambda: rocketc.Broker(URL),
    ],
)
def test_functions_that_change_a_store(call):
    with pytest.raises(StoreIOError, match=AT_A_URL):
        call()


@pytest.mark.parametrize(
    "words",
    [
        "export {store} -o s3://bucket/x.parquet",
        "export {store} -o s3://bucket/x --partition-by topic",
        "export rocketmq://127.0.0.1:1/orders -o s3://bucket/x --append",
        "salvage {store} s3://bucket/x",
        "replicate 127.0.0.1:1 s3://bucket/x",
        "bench --quick --path s3://bucket/x",
        "rebuild s3://bucket/x",
        "clean s3://bucket/x --yes",
        "put s3://bucket/x -t orders",
        "broker s3://bucket/x --port 0 --namesrv-port 0",
    ],
)
def test_commands(words, tmp_path):
    done = run(*words.format(store=tmp_path / "store").split())
    assert done.returncode == 3
    assert done.stderr.startswith(b"rocketc: s3://bucket/x") and b": it is a URL; " in done.stderr
    assert done.stderr.count(b"\n") == 1 and done.stdout == b""
