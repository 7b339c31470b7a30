"""The folders of many queues and the files in them, listed by several threads."""
from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    /* A file in the folder of a queue, or another entry with a number as its name. */
    typedef struct rc_found {
        int64_t start;      /* its name */
        int64_t size;       /* bytes */
        uint64_t inode;
        int odd;            /* 1: it is not a regular file; 2: a symbolic link to one */
        char name[24];
    } rc_found;
    """
    ctypedef struct rc_found:
        int64_t start
        int64_t size
        uint64_t inode
        int odd
        char name[24]

# One folder.
ctypedef struct QueueFolder:
    char* path
    rc_found* files         # by start
    int count
    int error               # errno of the listing, or of later work on the queue
    void* queue             # for the caller of add()

cdef class QueueFolders:
    cdef:
        QueueFolder* folders
        int _room
        readonly int count
        readonly list queues        # (topic as bytes, queue id, whether it is a batch queue), one for each folder
    cdef int add(self, bytes topic, object queue_id, bint batch, bytes path) except -1
    cdef int64_t usual_size(self, bint batch, int64_t unit, int64_t wanted) except -1

cdef list folders_in(bytes above, list links=*)
cdef list files_in(str folder, list odd=*)
cdef int unlink_files(list files) except -1
cdef int in_threads(object work, int64_t count, object more) except -1
