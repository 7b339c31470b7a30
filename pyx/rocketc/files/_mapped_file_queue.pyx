# cython: language_level=3
"""The files of one queue, each named by its first offset in 20 digits.

MappedFileQueue owns the list of files that threads share (_file_queue), and does the rare work: load, truncate, delete.
Source: RocketMQ MappedFileQueue, MultiPathMappedFileQueue.
"""
import errno
import os
import re
import stat
import threading

from libc.errno cimport EBUSY, ENOENT
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

from rocketc._status cimport check, check_file
from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_allocate, rc_sync_folder
from rocketc.files._append_file cimport (
    FILE_READ, FILE_WHOLE, FileState, file_drop, file_readable, file_release, file_shutdown, file_unmap, view_of,
)
from rocketc.files._file_queue cimport (
    AVOIDABLE, queue_add, queue_at, queue_bytes, queue_free, queue_hold, queue_init, queue_known, queue_last,
    queue_remove, queue_start,
)
from rocketc.files._guard cimport install

from rocketc.errors import FILE_TEXTS, StoreIOError
from rocketc.files.durable import errors_named
from rocketc.files.regular import open_regular

_NAME = re.compile(r"\d{1,20}")
_DELETE_BATCH = 10              # most files that one call of delete_expired removes


cdef int64_t size_of(str path) except? -2:
    """The size of a file in bytes; -1 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1


cdef bint written_blocks(str path) except -1:
    """Whether a file contains a byte other than zero."""
    with open(path, "rb", opener=open_regular) as file:
        return any(block.strip(b"\0") for block in iter(lambda: file.read(1 << 20), b""))


cdef int64_t inode_of(str path) except? -2:
    """The inode of a file, which differs if the file is replaced; -1 if the file does not exist."""
    try:
        return <int64_t>(os.stat(path).st_ino & INT64_MAX)
    except FileNotFoundError:
        return -1


cdef class MappedFileQueue:
    """The files of one queue, in one or more folders.

    folders    list of str: new files go to folder number (offset / file_size) % len(folders), see avoid(); created if
               missing
    file_size  bytes of each file
    read_only  list of str: folders whose files are read and never written
    only_read  another process writes all files: create nothing, and map the files for reading
    The queue is empty until load() reads the folders.
    """

    def __cinit__(self, folders, int64_t file_size, read_only=(), *, bint only_read=False):
        cdef int i
        if not 0 < file_size <= INT32_MAX:
            raise ValueError(f"file_size={file_size}: a mapped file has 1 to {INT32_MAX} bytes")
        if not folders:
            raise ValueError("a queue needs at least one folder for new files")
        install()
        self._folders = sorted(map(os.fspath, folders))
        self._read_only = list(map(os.fspath, read_only))
        self._encoded = [os.fsencode(folder) for folder in self._folders]
        self.missing = []
        self._inodes = {}
        self._refreshing = threading.Lock()
        self._names = <char**>calloc(<size_t>len(self._folders), sizeof(char*))
        if self._names == NULL:
            raise MemoryError
        for i in range(<int>len(self._folders)):
            self._names[i] = <char*>(<bytes>self._encoded[i])
        check(queue_init(
            &self.q, file_size, self._names, <int>len(self._folders), <int>FILE_READ if only_read else <int>FILE_WHOLE,
        ))
        self._ready = True

    def __dealloc__(self):
        if self._ready:
            queue_free(&self.q)
        free(self._names)

    def load(self, *, bint crashed=False):
        """Find the files, and check their names and sizes. Nothing is mapped yet. All bytes of the files count as
        written.

        crashed  the last writer did not close the store
        Last files that are too short and contain only zeros are deleted: a crash while they were created leaves such
        files. If all files before it are deleted too, the first file is extended to its size instead: only its name
        says where the log continues. A short file of zeros before other files, as a power cut leaves it, is also
        extended, unless the later files contain data and there was no crash. Missing files between others are listed in
        `missing` as (start, stop).
        Raises StoreIOError for a file whose length is not file_size, whose offset is not a multiple of it, or that
        exists twice.
        """
        cdef list found = self._list()
        cdef bint beside = self.q.kind == FILE_READ     # the writer creates and deletes files meanwhile
        if beside:
            while found and 0 <= size_of(found[-1][1]) < self.q.file_size:
                found.pop()
        else:
            while found and self._is_partial(found[-1][1]) and (len(found) > 1 or found[0][0] == 0):
                os.unlink(found[-1][1])
                check_file(rc_sync_folder(os.fsencode(os.path.dirname(found[-1][1]))), found[-1][1])
                found.pop()
            for i in range(len(found)):
                behind = found[i + 1:]
                if self._is_partial(found[i][1]) and (crashed or not any(written_blocks(path) for _, path in behind)):
                    self._finish_file(found[i][1])
        end = None
        for start, path in found:
            size = size_of(path)
            if size < 0 and beside:
                continue
            if size != self.q.file_size:
                text = f"it has {size} bytes, but the log files have {self.q.file_size}"
                raise StoreIOError(errno.EINVAL, f"{text}; check the file size setting, or salvage the store", path)
            if start % self.q.file_size or start > INT64_MAX - self.q.file_size or (end is not None and start < end):
                text = f"its name is not the offset of a file of {self.q.file_size} bytes"
                raise StoreIOError(errno.EINVAL, text, path)
            if end is not None and start > end:
                self.missing.append((end, start))
            end = start + self.q.file_size
            if queue_known(&self.q, os.fsencode(path), start, self.q.file_size) != RC_OK:
                raise MemoryError
            if beside:
                self._inodes[path] = inode_of(path)
        if end is not None:
            self.q.wrote = self.q.flushed = end

    def _finish_file(self, str path):
        """Extend a file to its full size, durably."""
        with errors_named(path), open(path, "r+b", buffering=0, opener=open_regular) as file:
            check_file(rc_allocate(file.fileno(), <size_t>self.q.file_size), path)
            os.fsync(file.fileno())

    def refresh(self):
        """Add the files that another process created at the end, and remove those that it deleted.

        Returns whether there are new files.
        """
        with self._refreshing:
            return self._refresh()

    def _refresh(self):
        cdef int64_t start = -1
        cdef bint more = False
        self._drop_deleted()
        self._drop_replaced()
        if self.q.count > 0:
            start = self.q.files[self.q.count - 1].start + self.q.file_size
        # If the last known file is deleted, later ones may be too: then list the folders to see where the log
        # continues.
        known = self.q.count > 0 and os.path.exists(os.fsdecode(self.q.files[self.q.count - 1].path))
        for at, path in self._next_files(start) if known else self._list():
            if at < start:
                continue
            if size_of(path) < self.q.file_size:
                break
            if queue_known(&self.q, os.fsencode(path), at, self.q.file_size) != RC_OK:
                raise MemoryError
            self._inodes[path] = inode_of(path)
            self.q.wrote = self.q.flushed = at + self.q.file_size
            more = True
        if more and not known:
            self._drop_deleted()
        return more

    def _drop_deleted(self):
        """Remove deleted files from the start of the list, except the last file. Stop at a file that a view holds."""
        while self.q.count > 1 and not os.path.exists(os.fsdecode(self.q.files[0].path)):
            if queue_remove(&self.q, 0) != RC_OK:
                break

    def _drop_replaced(self):
        """Remove the last files if one of them was replaced: its writer was killed, and the next writer cut the log
        before it. Views keep their maps."""
        cdef FileState* f
        cdef int i, first = self.q.count
        for i in range(self.q.count - 1, -1, -1):
            path = os.fsdecode(self.q.files[i].path)
            inode = inode_of(path)
            if inode == self._inodes.get(path, inode) and inode >= 0:
                break
            if inode >= 0:
                first = i
        while self.q.count > first:
            f = self.q.files[self.q.count - 1]
            if queue_remove(&self.q, self.q.count - 1) != RC_OK:
                if rc_load_i64(&f.holds) != rc_load_i64(&f.pointers) - 1:
                    break                   # it is being read; the next refresh removes it
                pthread_mutex_lock(&self.q.mutex)       # only views hold it, and they keep their maps
                self.q.count -= 1
                pthread_mutex_unlock(&self.q.mutex)
                file_drop(f)

    def _next_files(self, int64_t start):
        while True:
            names = [os.path.join(folder, f"{start:020d}") for folder in [*self._folders, *self._read_only]]
            path = next(filter(os.path.exists, names), None)
            if path is None:
                return
            yield start, path
            start += self.q.file_size

    def _list(self):
        """(offset, path) of each file with a number as its name, by offset."""
        cdef list found = []
        for folder in [*self._folders, *self._read_only]:
            with errors_named(folder):
                try:
                    names = os.listdir(folder)
                except FileNotFoundError:
                    continue
            for name in names:
                path = os.path.join(folder, name)
                if _NAME.fullmatch(name) and int(name) <= INT64_MAX and (len(name) == 20 or not os.path.isdir(path)):
                    self._check_regular(path, False)
                    found.append((int(name), path))
        found.sort()
        if found and self.q.kind != FILE_READ and not self._is_read_only(found[-1][1]):
            self._check_regular(found[-1][1], True)
        return found

    cdef int _check_regular(self, str path, bint last) except -1:
        """Raise StoreIOError if a file can't be one of the queue.

        last  a writer may write to it, so it must not be a symbolic link. Older files may be on another disk
        """
        try:
            mode = os.stat(path, follow_symlinks=not last).st_mode
        except FileNotFoundError:
            if self.q.kind == FILE_READ or not os.path.islink(path):
                return 0                # deleted after it was listed
            mode = stat.S_IFLNK         # to nothing
        if not stat.S_ISREG(mode):
            kind = errno.ELOOP if stat.S_ISLNK(mode) else errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
            raise StoreIOError(kind, FILE_TEXTS.get(kind, os.strerror(kind)), path)
        return 0

    cdef bint _is_partial(self, str path) except -1:
        """Whether a file is shorter than its full length and contains only zeros."""
        if os.path.getsize(path) >= self.q.file_size or self._is_read_only(path):
            return False
        return not written_blocks(path)

    cdef bint _is_read_only(self, str path) except -1:
        return os.path.dirname(path) in self._read_only

    def make_folders(self):
        """Create the missing folders, and make their names durable."""
        for folder in self._folders:
            if not os.path.isdir(folder):
                try:
                    os.makedirs(folder, exist_ok=True)
                except OSError as error:
                    raise StoreIOError(error.errno, error.strerror, folder) from None
                check_file(rc_sync_folder(os.fsencode(os.path.dirname(os.path.abspath(folder)))), folder)

    def avoid(self, folders):
        """Put new files into the other folders from now on, or into all if all are avoided. Existing files stay."""
        cdef int64_t avoided = 0
        cdef set names = set(map(os.fspath, folders))
        for i, folder in enumerate(self._folders[:AVOIDABLE]):
            if folder in names:
                avoided |= <int64_t>1 << <int>i
        rc_store_i64(&self.q.avoided, avoided)

    @property
    def files(self):
        """The paths of the files, by offset."""
        cdef FileState* f
        cdef int i = 0
        cdef list found = []
        while True:
            f = queue_at(&self.q, i)
            if f == NULL:
                return found
            found.append(os.fsdecode(f.path))
            i += 1

    @property
    def min_offset(self):
        """Offset of the first file, -1 if there is none."""
        return queue_start(&self.q, 1)

    @property
    def max_offset(self):
        """The end of the readable bytes, 0 if there are no files."""
        cdef FileState* f = queue_last(&self.q)
        return f.start + file_readable(f) if f != NULL else 0

    @property
    def size(self):
        """The total size of the files in bytes."""
        return queue_bytes(&self.q)

    @property
    def wrote(self):
        return self.q.wrote

    @property
    def flushed(self):
        return self.q.flushed

    def create(self, int64_t start):
        """Create and map the file that begins at start, after the last one, with disk space for all of it."""
        cdef FileState* f
        cdef int rc
        with nogil:
            rc = queue_add(&self.q, start, &f)
        check_file(rc, f"{self._folders[0]}, offset {start}")

    def select(self, int64_t offset, size=None):
        """A View of [offset, offset + size), or up to the end of the file's data; None if that is not readable."""
        cdef FileState* f
        cdef int64_t pos, readable
        cdef int rc
        with nogil:
            rc = queue_hold(&self.q, offset, &f)
        if rc == ENOENT:
            return None
        check_file(rc, f"offset {offset}")
        pos = offset - f.start
        readable = file_readable(f)
        if pos >= readable or (size is not None and not 0 <= size <= readable - pos):
            file_release(f)
            return None
        return view_of(f, pos, readable - pos if size is None else size)

    def file_at_time(self, int64_t timestamp):
        """Path of the first file changed at or after a time (ms), otherwise of the last one; None without files."""
        cdef list files = self.files
        for path in files:
            if os.stat(path).st_mtime_ns // 1_000_000 >= timestamp:
                return path
        return files[-1] if files else None

    def truncate(self, int64_t offset, *, bint keep_empty=False):
        """End the queue at offset. Delete later files; the next write to the file that covers the offset is at the
        offset.

        keep_empty  keep a file that begins at the offset; otherwise it is deleted, unless it is the only one

        The bytes after the end are not changed: recovery saves and clears them before.
        Raises StoreIOError if a file can't be deleted.
        """
        cdef FileState* f
        while self.q.count > 0:
            f = self.q.files[self.q.count - 1]
            if f.start < offset or (f.start == offset and (keep_empty or self.q.count == 1)):
                break
            self._remove(self.q.count - 1)
        if self.q.count > 0:
            f = self.q.files[self.q.count - 1]
            if offset < f.start + self.q.file_size:
                file_unmap(f)           # a full file is mapped read-only
                f.wrote = f.committed = f.flushed = max(offset - f.start, 0)
                f.ready = f.claimed = 0
            self.q.wrote = self.q.flushed = min(offset, f.start + self.q.file_size)
        else:
            self.q.wrote = self.q.flushed = 0

    cdef int _remove(self, int i) except -1:
        """Delete file i, which must not be held, and remove it from the list."""
        cdef int rc
        path = os.fsdecode(queue_at(&self.q, i).path)
        if self._is_read_only(path):
            raise StoreIOError(errno.EROFS, "it is in a read-only folder, so it can't be deleted", path)
        rc = queue_remove(&self.q, i)
        if rc == EBUSY:
            raise StoreIOError(errno.EBUSY, "it is still being read: release its views, then try again", path)
        check_file(rc, path)
        check_file(rc_sync_folder(os.fsencode(os.path.dirname(path))), path)
        return 0

    def delete_expired(self, int64_t expired_ms, int64_t now_ms, *, bint immediately=False, int batch=_DELETE_BATCH):
        """Delete files that were not changed for expired_ms, oldest first, but never the last. Return how many.

        Stops after `batch` files, and at the first file that is younger or in use. Source: deleteExpiredFileByTime.
        """
        cdef FileState* f
        cdef int deleted = 0
        while queue_at(&self.q, 1) != NULL and deleted < batch:
            f = queue_at(&self.q, 0)
            path = os.fsdecode(f.path)
            changed = os.stat(path).st_mtime_ns // 1_000_000
            if not immediately and changed + expired_ms > now_ms:
                break
            if self._is_read_only(path) or not file_shutdown(f):
                break
            self._remove(0)
            deleted += 1
        return deleted
