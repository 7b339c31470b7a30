# cython: language_level=3
"""One mapped file, for reading: the map, its size, its holes, and who uses it."""
import errno
import os
import stat

from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as close_file

from rocketc._status cimport check_file
from rocketc.c.vm cimport rc_map_random, rc_map_read, rc_map_sequential, rc_unmap
from rocketc.files._guard cimport install

from rocketc.errors import ClosedError, StoreIOError
from rocketc.files import sparse
from rocketc.files.durable import errors_named

cdef enum:
    HOLE = 64       # of a file with less than that part on the disk, what is read ahead is zeros, and fills the cache


cdef class MappedFile:
    """Map a file for reading; an empty one has no map but is fine.

    path    str or os.PathLike
    random  it is read here and there, not front to back: the kernel reads no pages ahead
    Raises StoreIOError with errno and file name: missing, no permission, a folder, no regular file.
    """

    def __cinit__(self, path, bint random=False):
        self._fd = -1
        self._path = os.fspath(path)
        with errors_named(self._path):
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            info = os.fstat(self._fd)
        if stat.S_ISDIR(info.st_mode):
            raise StoreIOError(errno.EISDIR, os.strerror(errno.EISDIR), self._path)
        if not stat.S_ISREG(info.st_mode):
            raise StoreIOError(errno.EINVAL, "not a regular file", self._path)
        self.length = info.st_size
        if self.length > 0:
            install()
            check_file(rc_map_read(self._fd, self.length, &self.base), self._path)
            if random or info.st_blocks * 512 < self.length // HOLE:
                rc_map_random(self.base, self.length)
            else:
                rc_map_sequential(self.base, self.length)

    def __dealloc__(self):
        if self.base != NULL:
            rc_unmap(self.base, self.length)
        if self._fd >= 0:
            close_file(self._fd)    # not os.close: when Python ends, `os` may be gone before this

    cdef int hold(self) except -1:
        """Keep the map until release(); raises ClosedError."""
        if self._fd < 0:
            raise ClosedError(f"{self._path} is closed")
        self._holds += 1
        return 0

    cdef void release(self) noexcept:
        self._holds -= 1

    def close(self):
        """Unmap. Raises ValueError while somebody reads; does nothing the second time."""
        if self._holds > 0:
            raise ValueError(f"{self._path}: {self._holds} readers still use the map")
        if self.base != NULL:
            rc_unmap(self.base, self.length)
            self.base = NULL
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def path(self):
        return self._path

    @property
    def size(self):
        """Bytes, when it was opened."""
        return self.length

    cdef bint is_shorter(self, size_t size) noexcept nogil:
        """Whether the file has fewer than size bytes by now."""
        cdef struct_stat info
        return fstat(self._fd, &info) == 0 and <size_t>info.st_size < size

    def size_now(self):
        """Bytes the file has now."""
        return os.fstat(self._fd).st_size

    def next_data(self, Py_ssize_t pos):
        """As sparse.next_data() has it, with the file's size as it was mapped."""
        return sparse.next_data(self._fd, pos, <Py_ssize_t>self.length)

    def next_hole(self, Py_ssize_t pos):
        """As sparse.next_hole() has it."""
        return sparse.next_hole(self._fd, pos, <Py_ssize_t>self.length)
