# cython: language_level=3
"""One mapped file for reading: its map, size, holes and readers."""
import os

from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close as close_file

from rocketc._status cimport check_file
from rocketc.c.vm cimport rc_map_random, rc_map_read, rc_map_sequential, rc_unmap
from rocketc.files._guard cimport install

from rocketc.errors import ClosedError
from rocketc.files import sparse
from rocketc.files.durable import errors_named
from rocketc.files.regular import open_regular

cdef enum:
    HOLE = 64       # a file with less than 1/64 of its size on the disk: read-ahead would fill the cache with zeros


cdef class MappedFile:
    """Map a file for reading. An empty file has a size of 0 and is not mapped.

    path    str or os.PathLike
    random  the file is read in random order, not from start to end: the kernel does not read ahead
    Raises StoreIOError with errno and file name: missing, no permission, a folder, not a regular file.
    """

    def __cinit__(self, path, bint random=False):
        self._fd = -1
        self._path = os.fspath(path)
        with errors_named(self._path):
            self._fd = open_regular(self._path)
            info = os.fstat(self._fd)
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
            close_file(self._fd)    # not os.close: at interpreter exit, `os` may be gone already

    cdef int hold(self) except -1:
        """Keep the map until release(). Raises ClosedError."""
        if self._fd < 0:
            raise ClosedError(f"{self._path} is closed")
        self._holds += 1
        return 0

    cdef void release(self) noexcept:
        self._holds -= 1

    def close(self):
        """Unmap the file. A second call does nothing. Raises ValueError while the map is in use."""
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
        """The size in bytes when the file was opened."""
        return self.length

    cdef bint is_shorter(self, size_t size) noexcept nogil:
        """Whether the file now has fewer than size bytes."""
        cdef struct_stat info
        return fstat(self._fd, &info) == 0 and <size_t>info.st_size < size

    def size_now(self):
        """The current size of the file in bytes."""
        return os.fstat(self._fd).st_size

    def next_data(self, Py_ssize_t pos):
        """Do sparse.next_data(), with the size that the file had when it was mapped."""
        return sparse.next_data(self._fd, pos, <Py_ssize_t>self.length)

    def next_hole(self, Py_ssize_t pos):
        """Do sparse.next_hole(), with the size that the file had when it was mapped."""
        return sparse.next_hole(self._fd, pos, <Py_ssize_t>self.length)
