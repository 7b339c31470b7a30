"""The files of one queue, each named by its first offset in 20 digits."""
from rocketc.files._file_queue cimport FileQueue

cdef class MappedFileQueue:
    cdef:
        FileQueue q
        bint _ready
        list _folders           # of str: those with new files, as given
        list _read_only         # of str
        list _encoded           # _folders as bytes
        char** _names           # pointers to the strings of _encoded
        object _refreshing      # a lock: one thread at a time lists the files of another process
        dict _inodes            # by path, of another process's files: it replaces some when it cuts the log
        readonly list missing   # (start, stop) of missing files between others
    cdef int _check_regular(self, str path, bint last) except -1
    cdef bint _is_partial(self, str path) except -1
    cdef bint _is_read_only(self, str path) except -1
    cdef int _remove(self, int i) except -1
