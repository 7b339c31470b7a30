"""The files of one queue, each named by its first offset in 20 digits."""
from rocketc.files._file_queue cimport FileQueue

cdef class MappedFileQueue:
    cdef:
        FileQueue q
        bint _ready
        list _folders           # of str: writable ones, as given
        list _read_only         # of str
        list _encoded           # the same as bytes,
        char** _names           # and pointers to them
        object _refreshing      # a lock: one thread at a time looks what somebody else has made
        dict _inodes            # of files that somebody else writes, by path: a store that is cut makes some anew
        readonly list missing   # (start, stop) of files that are not there, between others
    cdef bint _is_unmade(self, str path) except -1
    cdef bint _is_read_only(self, str path) except -1
    cdef int _remove(self, int i) except -1
