"""The lock file and the abort file: which process may write, and what is known after a crash."""

import copy
import errno
import gc
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rocketc.errors import StoreFullError, StoreIOError, StoreLockedError
from rocketc.files import lock_file
from rocketc.files.durable import sync_folder
from rocketc.files.lock_file import AbortFile, StoreLock, holder_of

pytestmark = pytest.mark.promise(7)

HOLD = """
import sys
from rocketc.files.lock_file import *
if sys.argv[2] == "abort":
    AbortFile(sys.argv[1]).create()
lock = StoreLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""

# Tries the lock as RocketMQ's DefaultMessageStore does, and holds it until its input ends.
JAVA = """
import java.io.*; import java.nio.channels.*;
public class Try {
    public static void main(String[] args) throws IOException {
        FileChannel file = new RandomAccessFile(args[0] + "/lock", "rw").getChannel();
        FileLock lock = file.tryLock(0, 1, false);
        System.out.println(lock == null ? "refused" : "held");
        System.in.read();
    }
}
"""


@pytest.fixture(params=["by file", "by process"])
def either(request, monkeypatch):
    """With open file locks, as on Linux, and with process locks."""
    if request.param == "by file" and not lock_file._BY_FILE:
        pytest.skip("no locks of open files here")
    monkeypatch.setattr(lock_file, "_BY_FILE", request.param == "by file")


@contextmanager
def process(*command: object) -> Iterator[subprocess.Popen]:
    """Start the process, and end it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([str(word) for word in command], **pipes) as started:
        try:
            yield started
        finally:
            started.kill()


def holder(root: Path, abort: str = "abort"):
    return process(sys.executable, "-c", HOLD, root, abort)


def said(started: subprocess.Popen) -> str:
    return started.stdout.readline().strip()


def is_free(root: Path) -> bool:
    """Whether another process could take the lock."""
    code = "import sys; from rocketc.files.lock_file import *; StoreLock(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True)
    assert ran.returncode == 0 or "StoreLockedError" in ran.stderr
    assert ran.returncode or not ran.stderr
    return ran.returncode == 0


def in_child(work: Callable[[], object]) -> int:
    """Fork and run `work` in the child. Return 0 if it returned something true."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# The lock


def test_the_lock_file(tmp_path, either):
    lock = StoreLock(tmp_path)
    assert (tmp_path / "lock").stat().st_size == 4
    assert os.fstat(lock.fd).st_ino == (tmp_path / "lock").stat().st_ino
    assert not os.get_inheritable(lock.fd)
    lock.release()
    assert lock.fd == -1
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_longer_file_keeps_its_rest(tmp_path):
    (tmp_path / "lock").write_bytes(b"LOCKED manually")
    StoreLock(tmp_path).release()
    assert (tmp_path / "lock").read_bytes() == b"lockED manually"


def test_twice_in_this_process(tmp_path, either):
    first = StoreLock(str(tmp_path))
    for _ in range(3):
        with pytest.raises(StoreLockedError, match="is open for writing already") as refused:
            StoreLock(tmp_path)
        assert str(tmp_path) in str(refused.value)
        assert not is_free(tmp_path)
    AbortFile(tmp_path).create()
    with pytest.raises(StoreLockedError, match=r"in this process$"):
        StoreLock(tmp_path)
    first.release()
    second = StoreLock(tmp_path)
    first.release()  # does nothing
    assert not is_free(tmp_path)
    second.release()
    assert is_free(tmp_path)


def test_under_another_name(tmp_path, either):
    (tmp_path / "store").mkdir()
    (tmp_path / "other").symlink_to("store")
    lock = StoreLock(tmp_path / "store")
    with pytest.raises(StoreLockedError, match="other is open for writing"):
        StoreLock(tmp_path / "other")
    lock.release()
    StoreLock(tmp_path / "other").release()


def test_two_stores(tmp_path, either):
    for name in "ab":
        (tmp_path / name).mkdir()
    locks = [StoreLock(tmp_path / name) for name in "ab"]
    locks[0].release()
    assert is_free(tmp_path / "a")
    assert not is_free(tmp_path / "b")
    locks[1].release()


def test_another_process_is_named(tmp_path, either):
    with holder(tmp_path) as other:
        assert said(other) == "held"
        with pytest.raises(StoreLockedError, match=f"already, by process {other.pid}$"):
            StoreLock(tmp_path)
    StoreLock(tmp_path).release()


def test_another_process_without_a_process_id(tmp_path, either):
    (tmp_path / "abort").touch()  # as RocketMQ 4 leaves it
    with holder(tmp_path, "no abort") as other:
        assert said(other) == "held"
        with pytest.raises(StoreLockedError, match=r"already$"):
            StoreLock(tmp_path)


@pytest.mark.skipif(not lock_file._BY_FILE, reason="needs open file locks")
def test_the_process_that_holds_a_store(tmp_path):
    assert holder_of(tmp_path) is None and not (tmp_path / "lock").exists()
    with holder(tmp_path) as other:
        assert said(other) == "held"
        assert holder_of(tmp_path) == other.pid
        (tmp_path / "abort").write_bytes(b"9" * 40)
        assert holder_of(tmp_path) == 0
    assert holder_of(tmp_path) is None


def test_an_ended_process_is_not_named(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "abort").write_text(str(ended.pid))
    lock = StoreLock(tmp_path)
    assert not holder_of(tmp_path)
    with pytest.raises(StoreLockedError, match=r"already$"):
        StoreLock(tmp_path)
    lock.release()


def test_a_killed_process_leaves_no_lock(tmp_path, either):
    with holder(tmp_path) as other:
        assert said(other) == "held"
        other.kill()
        other.wait()
        assert AbortFile(tmp_path).pid == other.pid
        lock = StoreLock(tmp_path)
        assert not is_free(tmp_path)
        lock.release()


def test_a_dropped_lock_is_released(tmp_path, either):
    lock = StoreLock(tmp_path)
    fd = lock.fd
    del lock
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert is_free(tmp_path)


def test_held_when_python_exits(tmp_path):
    code = "import builtins, sys; from rocketc.files.lock_file import *; builtins.x = StoreLock(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_one_of_many_threads_gets_it(tmp_path, either):
    start = threading.Barrier(8)
    got: list[object] = []

    def take() -> None:
        start.wait()
        try:
            got.append(StoreLock(tmp_path))
        except StoreLockedError as error:
            got.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(one) for one in got].count(StoreLock) == 1
    next(one for one in got if isinstance(one, StoreLock)).release()


def test_no_file_is_left_open(tmp_path, either):
    (tmp_path / "commitlog").mkdir()
    before = psutil.Process().num_fds()
    for _ in range(50):
        lock = StoreLock(tmp_path)
        with pytest.raises(StoreLockedError):
            StoreLock(tmp_path)
        lock.release()
    assert psutil.Process().num_fds() == before


def test_a_lock_cannot_be_copied(tmp_path):
    lock = StoreLock(tmp_path)
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a StoreLock can't be pickled: it belongs to its process"):
            make(lock)
    lock.release()


# The folders of the log


def folders(*paths: Path) -> list[str]:
    for path in paths:
        path.mkdir(parents=True, exist_ok=True)
    return list(map(str, paths))


def test_the_folder_of_the_log_is_locked_too(tmp_path, either):
    """Even a writer that finds another file `lock` is refused."""
    folders(tmp_path / "commitlog")
    AbortFile(tmp_path).create()
    lock = StoreLock(tmp_path)
    for _ in range(2):
        (tmp_path / "lock").unlink()
        with pytest.raises(StoreLockedError, match=r"the log in .*commitlog is in use by another writer, in this proc"):
            StoreLock(tmp_path)
        assert not is_free(tmp_path)
    lock.release()
    assert is_free(tmp_path)


def test_two_roots_with_one_log(tmp_path, either):
    one, two, three = folders(tmp_path / "one", tmp_path / "two", tmp_path / "three")
    (tmp_path / "link").symlink_to("two")
    for name in "ab":
        (tmp_path / name).mkdir()
    first = StoreLock(tmp_path / "a", [one, two, str(tmp_path / "none")])
    for shared in (one, two, str(tmp_path / "link"), f"{tmp_path}/a/../one"):
        with pytest.raises(StoreLockedError, match=r"the log in .* is in use by another writer$"):
            StoreLock(tmp_path / "b", [three, shared])
    second = StoreLock(tmp_path / "b", [three])
    with pytest.raises(StoreLockedError):
        second.take_folders([one])
    second.take_folders([three])
    first.release()
    second.take_folders([one])
    second.release()


def test_a_folder_that_is_named_twice(tmp_path):
    one, *_ = folders(tmp_path / "one")
    (tmp_path / "link").symlink_to("one")
    lock = StoreLock(tmp_path, [one, str(tmp_path / "link"), one])
    assert len(lock.watched()) == 2
    lock.release()


def test_a_file_system_that_cannot_lock_folders(tmp_path, monkeypatch):
    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    folders(tmp_path / "commitlog")
    monkeypatch.setattr(lock_file.fcntl, "flock", refuse)
    lock = StoreLock(tmp_path)
    assert len(lock.watched()) == 2
    assert not is_free(tmp_path)
    lock.release()
    assert is_free(tmp_path)


def test_a_child_of_c_code_keeps_no_released_folder(tmp_path):
    folders(tmp_path / "commitlog")
    lock = StoreLock(tmp_path)
    copied = [os.dup(int(fd)) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    lock.release()
    assert is_free(tmp_path)
    for fd in copied:
        os.close(fd)


# Forked children


@pytest.mark.parametrize("log", [False, True])
def test_the_exit_of_a_child_releases_nothing(tmp_path, either, log):
    if log:
        (tmp_path / "commitlog").mkdir()
    lock = StoreLock(tmp_path)
    assert in_child(lambda: lock.fd == -1) == 0
    assert not is_free(tmp_path)
    assert in_child(lambda: lock.release() is None) == 0
    assert in_child(lambda: lock.__del__() is None) == 0
    assert not is_free(tmp_path)
    lock.release()


def test_a_child_cannot_take_a_lock_that_its_parent_holds(tmp_path, either):
    lock = StoreLock(tmp_path)

    def take() -> bool:
        with pytest.raises(StoreLockedError):
            StoreLock(tmp_path)
        return True

    assert in_child(take) == 0
    assert not is_free(tmp_path)
    lock.release()
    assert in_child(lambda: StoreLock(tmp_path)) == 0


@pytest.mark.parametrize("how", ["os.fork()", "multiprocessing.get_context('fork').Process(target=wait).start()"])
def test_a_child_that_outlives_its_parent_keeps_no_lock(tmp_path, how):
    (tmp_path / "commitlog").mkdir()
    code = f"""
import multiprocessing, os, signal, sys
from rocketc.files.lock_file import *
lock = StoreLock(sys.argv[1])
def wait():
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
me = os.getpid()
{how}
if os.getpid() != me:
    wait()
signal.pause()
"""
    with process(sys.executable, "-c", code, tmp_path) as parent:
        child = psutil.Process(int(said(parent)))
        assert not is_free(tmp_path)
        parent.kill()
        parent.wait()
        assert child.is_running()
        assert is_free(tmp_path)
        parent.stdin.close()
        child.wait(20)


def test_a_child_of_c_code_keeps_no_released_lock(tmp_path):
    """A child forked by C code has the open file, too. The release applies to the open file, not to one descriptor."""
    if not lock_file._BY_FILE:
        pytest.skip("no locks of open files here")
    lock = StoreLock(tmp_path)
    copied = os.dup(lock.fd)
    lock.release()
    assert is_free(tmp_path)
    os.close(copied)


def test_a_spawned_process(tmp_path):
    lock = StoreLock(tmp_path)
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=sync_folder, args=(tmp_path,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert not is_free(tmp_path)
    lock.release()


def test_forks_while_others_open(tmp_path):
    """No child keeps a lock file that was being opened."""
    end = threading.Event()

    def open_and_release() -> None:
        while not end.is_set():
            StoreLock(tmp_path).release()

    thread = threading.Thread(target=open_and_release)
    thread.start()
    mine = str(tmp_path / "lock")
    try:
        for _ in range(50):
            assert in_child(lambda: mine not in {os.readlink(link.path) for link in os.scandir("/proc/self/fd")}) == 0
    finally:
        end.set()
        thread.join()


# Java


@pytest.fixture(scope="module")
def java(tmp_path_factory) -> list[object]:
    found = shutil.which("java")
    if found is None:
        pytest.skip("there is no java")
    source = tmp_path_factory.mktemp("java") / "Try.java"
    source.write_text(JAVA)
    return [found, source]


def test_java_is_refused(tmp_path, java, either):
    lock = StoreLock(tmp_path)
    with process(*java, tmp_path) as other:
        assert said(other) == "refused"
    lock.release()
    with process(*java, tmp_path) as other:
        assert said(other) == "held"


def test_java_refuses(tmp_path, java):
    (tmp_path / "abort").touch()  # as RocketMQ 4 leaves it: the lock itself has the process id
    with process(*java, tmp_path) as other:
        assert said(other) == "held"
        with pytest.raises(StoreLockedError, match=f"by process {other.pid}$" if lock_file._BY_FILE else "already$"):
            StoreLock(tmp_path)
        other.kill()
        other.wait()
    StoreLock(tmp_path).release()


# Errors of folders and files


@pytest.fixture
def read_only(tmp_path):
    """A folder in which no file can be created."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o500)
    if os.geteuid() != 0:
        return folder
    return Path("/proc/self")  # also for root


def test_a_read_only_folder(read_only):
    for act, name in [(lambda: StoreLock(read_only), "lock"), (AbortFile(read_only).create, "abort")]:
        with pytest.raises(StoreIOError) as refused:
            act()
        assert refused.value.filename == str(read_only / name)
        assert refused.value.errno in (errno.EACCES, errno.EROFS, errno.ENOENT)
        assert str(refused.value.filename) in str(refused.value)


def test_a_missing_folder(tmp_path):
    with pytest.raises(StoreIOError) as refused:
        StoreLock(tmp_path / "none")
    assert (refused.value.errno, refused.value.filename) == (errno.ENOENT, str(tmp_path / "none" / "lock"))


def test_lock_is_a_folder(tmp_path):
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreIOError) as refused:
        StoreLock(tmp_path)
    assert (refused.value.errno, refused.value.filename) == (errno.EISDIR, str(tmp_path / "lock"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(tmp_path, monkeypatch, number):
    def full(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    for name in ("write", "pwrite"):
        monkeypatch.setattr(os, name, full)
    with pytest.raises(StoreFullError, match="abort"):
        AbortFile(tmp_path).create()
    assert not AbortFile(tmp_path).exists()  # there was no write: the store is still closed
    with pytest.raises(StoreFullError, match="lock"):
        StoreLock(tmp_path)
    monkeypatch.undo()
    assert is_free(tmp_path)


def test_a_file_system_without_locks(tmp_path, monkeypatch, either):
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for name in ("fcntl", "lockf"):
        monkeypatch.setattr(lock_file.fcntl, name, none)
    before = psutil.Process().num_fds()
    with pytest.raises(StoreIOError) as refused:
        StoreLock(tmp_path)
    assert (refused.value.errno, refused.value.filename) == (errno.ENOLCK, str(tmp_path / "lock"))
    assert psutil.Process().num_fds() == before


def test_too_many_open_files(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StoreIOError) as refused:
            StoreLock(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (refused.value.errno, refused.value.filename) == (errno.EMFILE, str(tmp_path / "lock"))


# The abort file


def test_abort(tmp_path):
    abort = AbortFile(tmp_path)
    assert (abort.exists(), abort.pid) == (False, None)
    abort.create()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert (abort.exists(), abort.pid) == (True, os.getpid())
    assert stat.S_IMODE((tmp_path / "abort").stat().st_mode) & 0o111 == 0
    abort.create()
    abort.remove()
    assert not abort.exists()
    abort.remove()
    assert list(tmp_path.iterdir()) == []


def test_abort_of_another_process_is_taken_over(tmp_path):
    (tmp_path / "abort").write_text("99999999999")
    AbortFile(tmp_path).create()
    assert (tmp_path / "abort").read_text() == str(os.getpid())


@pytest.mark.parametrize("text", [b"", b"0", b"-1", b"12x", b"2147483648", b"9" * 1000, b"\xb2", b" 12"])
def test_abort_without_a_process_id(tmp_path, text):
    (tmp_path / "abort").write_bytes(text)
    assert AbortFile(tmp_path).exists()
    assert AbortFile(tmp_path).pid is None
    lock = StoreLock(tmp_path)
    with pytest.raises(StoreLockedError, match=r"already$"):
        StoreLock(tmp_path)
    lock.release()


def test_abort_that_is_not_a_file(tmp_path):
    (tmp_path / "abort").symlink_to("nowhere")
    assert AbortFile(tmp_path).exists()
    (tmp_path / "abort").unlink()
    (tmp_path / "abort").mkdir()
    abort = AbortFile(tmp_path)
    assert (abort.exists(), abort.pid) == (True, None)
    for act in (abort.create, abort.remove):
        with pytest.raises(StoreIOError) as refused:
            act()
        assert refused.value.filename == str(tmp_path / "abort")


def test_abort_is_durable_before_any_other_change(tmp_path, monkeypatch):
    done = []
    sync, write, unlink = os.fsync, os.write, os.unlink
    kind = lambda fd: "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(f"fsync {kind(fd)}"), sync(fd))[1])
    monkeypatch.setattr(os, "write", lambda fd, data: (done.append("write"), write(fd, data))[1])
    monkeypatch.setattr(os, "unlink", lambda path: (done.append("unlink"), unlink(path))[1])
    AbortFile(tmp_path).create()
    AbortFile(tmp_path).remove()
    assert done == ["write", "fsync file", "fsync folder", "unlink", "fsync folder"]


def test_signals_do_not_affect_the_lock(tmp_path):
    """A signal handler forks while a lock file is being opened."""
    lock = StoreLock(tmp_path)
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(in_child(lambda: lock.fd == -1)))
    try:
        with lock_file._opening:
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [0]
    assert not is_free(tmp_path)
    lock.release()
