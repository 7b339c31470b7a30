"""Files by URL: what is read in ranges is equal to the same files on a local disk."""

import errno
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import stores
from support.http_server import Server, served
from test_parts import HERE, LOGS

import rocketc
from rocketc.files import remote
from rocketc.files.paths import LogFile, resolve

Golden = Callable[[str], stores.GoldenStore]

SECRET = "swordfish-4711"


@pytest.fixture
def memory() -> Iterator[Callable[[Path], str]]:
    """memory(path): the URL of a copy of a file, or of a folder with its content."""
    system = fsspec.filesystem("memory")
    system.store.clear()

    def copy(path: Path) -> str:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file():
                system.pipe_file(f"/{file.relative_to(path.parent)}", file.read_bytes())
        return f"memory://{path.name}"

    yield copy
    system.store.clear()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("served")) as one:
        yield one


def found(path: Any, near: str, **options: Any) -> tuple[Any, ...]:
    """The results of a scan; paths are cut before `near`."""

    def place(file: str | None) -> str:
        assert file is not None
        return file[file.index(near) :]

    scan = rocketc.scan(path, errors="skip", **options)
    rows = [(place(m.file), m.phy_offset, m.queue_offset, m.to_dict() | {"file": ""}) for m in scan]
    report = scan.report
    damage = [(place(one.file), one.start, one.stop, one.reason) for one in report.damage]
    return rows, damage, report.records, report.bytes, report.blanks, report.files, report.missing, report.end


# The same as on a local disk


@pytest.mark.some(5)
@pytest.mark.parametrize("name", stores.NAMES)
def test_every_store(golden: Golden, memory: Callable[[Path], str], name: str) -> None:
    store = golden(name)
    url = memory(store.path)
    assert found(url, "/commitlog") == found(store.path, "/commitlog")
    local, far = (rocketc.scan(path, errors="skip").to_arrow().drop_columns("file") for path in (store.path, url))
    assert far == local
    assert [replace(file, path="") for log in resolve(url) for file in log.files] == [
        replace(file, path="") for log in resolve(store.path) for file in log.files
    ]
    try:
        rocketc.scan(store.path).count()
    except rocketc.CorruptRecordError as error:
        with pytest.raises(rocketc.CorruptRecordError) as told:
            rocketc.scan(url).count()
        assert (told.value.offset, told.value.reason) == (error.offset, error.reason)
        assert told.value.file.startswith(url) and told.value.file[-20:] == error.file[-20:]


@pytest.mark.some(7)
@pytest.mark.parametrize("name", LOGS)
def test_pieces_of_every_size(
    memory: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / f"{HERE:020d}"
    path.write_bytes(LOGS[name])
    url = memory(path)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # no process writes the files
    for options in ({}, {"crc": "none"}, {"start": HERE + 100}, {"stop": HERE + 300}, {"topics": "none"}):
        local = found(path, f"{HERE:020d}", **options)
        for size in [*range(1, 12), *range(13, len(LOGS[name]) + 2, 17)]:
            monkeypatch.setattr(remote, "PIECE_BYTES", size)
            assert found(url, f"{HERE:020d}", **options) == local, (size, options)


def parts_of(path: Any, cuts: Iterable[int]) -> list[LogFile]:
    [log] = resolve(path)
    [file] = log.files
    return [replace(file, start=start, stop=stop) for start, stop in pairwise([None, *cuts, None])]


@pytest.mark.some(7)
@pytest.mark.parametrize("name", LOGS)
def test_parts_with_small_pieces(
    memory: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / f"{HERE:020d}"
    path.write_bytes(LOGS[name])
    url = memory(path)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(remote, "PIECE_BYTES", 64)
    for at in range(0, len(LOGS[name]) + 1, 5):
        for local, far in zip(parts_of(path, [HERE + at]), parts_of(url, [HERE + at]), strict=True):
            assert found(far, f"{HERE:020d}") == found(local, f"{HERE:020d}"), at


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_logs_in_pieces(
    golden: Golden, memory: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    first = golden("v533-store").log_files[0]
    content = bytearray(first.read_bytes())
    starts = [m.phy_offset for m in rocketc.scan(first)]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.sampled_from(starts)) + data.draw(st.sampled_from([0, 0, 1, 4, 30, 84, 90]))
        old = data.draw(st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from([1, 300, 9000]).map(bytes)))
        old = old[: len(content) - at]
        content[at : at + len(old)] = old
    named = data.draw(st.booleans())  # otherwise its first record gives the offset
    path = tmp_path / (first.name if named else "some.log")
    path.write_bytes(content)
    url = memory(path)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(remote, "PIECE_BYTES", data.draw(st.sampled_from([100, 1000, 4096, 5000, 30_000])))
    monkeypatch.setattr(remote, "KEEP_PIECES", data.draw(st.integers(0, 2)))
    monkeypatch.setattr(remote, "RUN_PIECES", data.draw(st.integers(1, 4)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3))) if named else []
    for local, far in zip(parts_of(path, cuts), parts_of(url, cuts), strict=True):
        assert found(far, path.name) == found(local, path.name)


# What URLs name


def test_urls_of_all_kinds(golden: Golden, memory: Callable[[Path], str]) -> None:
    store = golden("v533-store")
    url = memory(store.path)
    names = [path.name for path in store.log_files]
    whole = rocketc.scan(store.path).count()
    for one in (url, f"{url}/", f"{url}/commitlog", f"{url}/commitlog/*", f"{url[:-2]}*", [url], f"simplecache::{url}"):
        assert rocketc.scan(one).count() == whole, one
    first, second = (f"{url}/commitlog/{name}" for name in names[:2])
    two = [m.body for m in rocketc.scan([str(path) for path in store.log_files[:2]])]
    assert [m.body for m in rocketc.scan([first, second])] == two
    some = f"commitlog/{names[0][:-3]}*"
    assert found(f"{url}/{some}", "/commitlog") == found(f"{store.path}/{some}", "/commitlog")
    assert {m.file for m in rocketc.scan(first)} == {first}
    assert rocketc.scan(store.path.as_uri()).count() == whole
    assert [file.last for log in resolve(first) for file in log.files] == [False]  # by its neighbors


class Whole(MemoryFileSystem):
    """Like hdfs:// in fsspec before 2026.7.0."""

    protocol = "whole"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("whole://"))

    def cat_file(self, path: str, start: Any = None, end: Any = None, **named: Any) -> bytes:
        return super().cat_file(path, **named)


def test_a_file_system_without_ranges(golden: Golden, memory: Callable[[Path], str]) -> None:
    fsspec.register_implementation("whole", Whole, clobber=True)
    store = golden("v533-store")
    url = memory(store.path).replace("memory", "whole")
    assert rocketc.scan(url).count() == rocketc.scan(store.path).count()


class Hosted(MemoryFileSystem):
    """Like hdfs://, ftp://, sftp:// and smb://: the host is not part of a path."""

    protocol = "hosted"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(infer_storage_options(path)["path"]).rstrip("/")


@pytest.mark.parametrize("host", ["h", "store", "me:secret@h:99", ""])
def test_a_pattern_keeps_its_host(golden: Golden, memory: Callable[[Path], str], host: str) -> None:
    fsspec.register_implementation("hosted", Hosted, clobber=True)
    store = golden("v533-store")
    name = memory(store.path).removeprefix("memory://")
    assert remote.RemotePath(f"hosted://{host}/{name[:-2]}*").matches() == [f"hosted://{host}/{name}"]


def test_one_log_of_local_and_remote_files(golden: Golden, memory: Callable[[Path], str]) -> None:
    store = golden("v533-store")
    url = memory(store.path)
    [first, second, *_] = store.log_files
    scan = rocketc.scan([first, f"{url}/commitlog/{second.name}"])
    assert [m.body for m in scan] == [m.body for m in rocketc.scan([first, second])]
    assert scan.report.missing == []


def test_nothing_there(memory: Callable[[Path], str], tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "readme").write_bytes(b"x")
    (tmp_path / "log.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    for url, text in (
        ("memory://nowhere", "[Errno 2] No such file or directory: 'memory://nowhere'"),
        (f"memory://nowhere/{0:020d}", f"[Errno 2] No such file or directory: 'memory://nowhere/{0:020d}'"),
        ("memory://no*where", "[Errno 2] no file matches: 'memory://no*where'"),
        (memory(tmp_path / "notes"), "[Errno 2] no commit log here: neither a folder `commitlog` nor"),
        (memory(tmp_path / "log.gz"), "[Errno 22] compressed with gzip; unpack it first: 'memory://log.gz'"),
        ("nosuch://host/x", "fsspec can't read such a URL here: Protocol not known: nosuch: 'nosuch://host/x'"),
    ):
        with pytest.raises(rocketc.StoreIOError) as told:
            rocketc.scan(url)
        assert text in str(told.value)


def test_follow_accepts_local_files_only(golden: Golden, memory: Callable[[Path], str]) -> None:
    with pytest.raises(ValueError, match="local files only"):
        rocketc.scan(memory(golden("v533-store").path)).follow()


@pytest.mark.parametrize("package, text", [("fsspec", "pip install 'rocketc[remote]'"), ("s3fs", "Install s3fs")])
def test_a_missing_package_is_named(package: str, text: str) -> None:
    script = f"""if True:
        import sys
        sys.modules[{package!r}] = None
        import rocketc
        assert not {{"pyarrow", "pyspark", "fsspec"}} & {{name for name, found in sys.modules.items() if found}}
        try:
            rocketc.scan("s3://bucket/store")
        except rocketc.StoreIOError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert text in done.stdout and "'s3://bucket/store'" in done.stdout, done


# Over HTTP, where every byte is counted


def lay(server: Server, source: Path, name: str) -> str:
    (server.folder / name).symlink_to(source)
    return f"{server.url}/{name}"


def test_over_http(golden: Golden, server: Server) -> None:
    for name in ("v533-store", "v533-bitrot"):
        store = golden(name)
        url = lay(server, store.path, name)
        assert found(url, "/commitlog") == found(store.path, "/commitlog")
        file = f"{url}/commitlog/{store.log_files[0].name}"
        assert found(file, "/commitlog") == found(store.log_files[0], "/commitlog")


def test_a_prepared_file_is_not_fetched(golden: Golden, server: Server, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    record = rocketc.encode("t", b"x")
    for base, data in ((0, record), (1 << 30, b""), (2 << 30, b"")):
        with open(tmp_path / "commitlog" / f"{base:020d}", "wb") as file:
            file.write(data)
            file.truncate(1 << 30)
    url = lay(server, tmp_path, "ahead")
    server.sent = 0
    [log] = resolve(url)
    assert [(file.base, file.last) for file in log.files] == [(0, True)]
    assert server.sent < 1 << 20
    assert next(iter(rocketc.scan(url))).body == b"x"
    assert server.sent < 4 << 20


def test_a_last_file_that_begins_with_zeros_is_read(server: Server, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(rocketc.encode("t", b"x") + bytes(100))
    at = (1 << 30) + (2 << 20) + 100
    with open(tmp_path / "commitlog" / f"{1 << 30:020d}", "wb") as file:
        file.truncate(64 << 20)
        file.seek(at - (1 << 30))
        file.write(rocketc.encode("t", bytes(range(1, 256)) * 16_000, phy_offset=at))
    url = lay(server, tmp_path, "zeroed")
    assert found(url, "/commitlog") == found(tmp_path, "/commitlog")


def test_a_server_without_ranges_is_refused(golden: Golden, server: Server) -> None:
    url = lay(server, golden("v533-store").path, "no-ranges")
    server.ranges = False
    try:
        for accepts in (None, "none"):
            server.accepts = accepts
            with pytest.raises(rocketc.StoreIOError, match=r"no ranges of bytes; copy it first: 'http"):
                rocketc.scan(url)
    finally:
        server.ranges, server.accepts = True, None


def test_an_error_in_the_middle_names_file_and_byte(golden: Golden, server: Server) -> None:
    store = golden("flights-2013-01")
    url = lay(server, store.path, "flights")
    scan = rocketc.scan(url)
    messages = iter(scan)
    next(messages)
    server.fails = 500
    try:
        with pytest.raises(rocketc.StoreIOError, match=rf"at byte \d+: ClientResponseError: 500.*'{url}/com"):
            list(messages)
    finally:
        server.fails = None


def test_errors_over_http(server: Server) -> None:
    for status, number in ((403, errno.EACCES), (401, errno.EACCES), (404, errno.ENOENT), (500, errno.EIO)):
        server.fails = status
        try:
            with pytest.raises(rocketc.StoreIOError) as told:
                rocketc.scan(f"{server.url}/{0:020d}")
            assert told.value.errno == number
        finally:
            server.fails = None
    with pytest.raises(rocketc.StoreIOError) as told:
        rocketc.scan("http://127.0.0.1:9/store")
    assert told.value.errno == errno.ECONNREFUSED


def test_a_file_that_became_shorter(golden: Golden, server: Server, tmp_path: Path) -> None:
    source = golden("flights-2013-01").log_files[0]
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    scan = rocketc.scan(lay(server, path, source.name))
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(rocketc.StoreIOError, match=r"at byte 0: .*'http"):
        scan.count()


# Secrets


def texts_of(action: Callable[[], Any]) -> str:
    """The texts of an error, and everything that a traceback shows."""
    try:
        action()
    except Exception as error:
        return "".join([str(error), repr(error), *traceback.format_exception(error)])
    raise AssertionError("the action did not fail")


def test_no_secret_is_shown(golden: Golden, server: Server) -> None:
    netloc = server.url.removeprefix("http://")
    store = golden("v533-store")
    lay(server, store.path, "secret-store")
    options = {"headers": {"X-Key": f"Bearer {SECRET}"}}
    with_password = f"http://me:{SECRET}@{netloc}"
    texts = [
        texts_of(lambda: rocketc.scan(f"{with_password}/nowhere")),
        texts_of(lambda: rocketc.scan(f"{server.url}/nowhere?signature={SECRET}")),
        texts_of(lambda: rocketc.scan(f"{server.url}/nowhere", storage_options=options)),
        texts_of(lambda: rocketc.scan("memory://nowhere", storage_options={"nonsense": SECRET})),
        texts_of(lambda: rocketc.scan(f"s3://me:{SECRET}@bucket/store", storage_options={"secret": SECRET})),
        texts_of(lambda: rocketc.scan(f"ftp://me:{SECRET}@127.0.0.1:9/store")),
        texts_of(lambda: rocketc.scan(f"nosuch://me:{SECRET}@127.0.0.1/store")),
    ]
    server.fails = 403
    try:
        texts.append(texts_of(lambda: rocketc.scan(f"{with_password}/{0:020d}", storage_options=options)))
    finally:
        server.fails = None
    scan = rocketc.scan(f"{with_password}/secret-store", storage_options=options, errors="skip")
    server.fails = 500
    try:
        texts.append(texts_of(scan.count))
    finally:
        server.fails = None
    texts += [repr(scan), repr(scan.report), repr(scan.logs), repr(vars(scan)["_reading"])]
    message = next(iter(scan))
    texts += [repr(message), message.file]
    assert message.file.startswith(f"http://me:***@{netloc}/")
    for text in texts:
        assert SECRET not in text
    assert pickle.loads(pickle.dumps(scan.logs)) == scan.logs  # a worker needs the whole URL


def test_errors_of_a_file_system_are_shown_without_secrets(server: Server) -> None:
    """The server's error message repeats parts of the request."""
    server.says = f"no {SECRET} here"
    server.fails = 400
    try:
        text = texts_of(lambda: rocketc.scan(f"{server.url}/{0:020d}", storage_options={"headers": {"X-Key": SECRET}}))
    finally:
        server.fails = server.says = None
    assert "***" in text and SECRET not in text


# Memory


@pytest.mark.measure
def test_memory_does_not_grow_with_the_file(server: Server, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    body = bytes(range(256)) * 4000
    with path.open("wb") as file:
        while file.tell() < 256 << 20:
            file.write(rocketc.encode("t", body, phy_offset=file.tell()))
    url = f"{lay(server, tmp_path, 'large')}/{path.name}"
    script = f"""if True:
        import resource, fsspec.implementations.http, rocketc
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        scan = rocketc.scan({url!r}, columns=["queueOffset"])
        print(scan.count(), scan.report.bytes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    count, size, grown = map(int, done.stdout.split())
    assert count == rocketc.scan(path).count() and size == path.stat().st_size
    assert grown < 100


# The command line


def test_commands(golden: Golden, server: Server, tmp_path: Path) -> None:
    store = golden("v533-store")
    url = lay(server, store.path, "commands")

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rocketc", *args]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    far, near = (run("cat", path, "--json").stdout.splitlines() for path in (url, str(store.path)))
    assert len(far) == len(near) == rocketc.scan(store.path).count()
    assert far[0] == near[0].replace(str(store.path), url)
    checked = run("verify", url)
    assert checked.returncode == 0 and f"{len(far)} records" in checked.stdout.replace(",", ""), checked
    assert run("stats", url, "--json").stdout == run("stats", str(store.path), "--json").stdout
    for words in ("info", "cat -F", "get --phy-offset 0", "put -t x", "info --as index"):
        command, *options = words.split()
        refused = run(command, url, *options)
        assert refused.returncode and "takes local paths only; copy it first" in refused.stderr, refused
        assert not any(tmp_path.iterdir())
