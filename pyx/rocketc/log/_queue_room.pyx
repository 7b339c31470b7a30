# cython: language_level=3
"""Room for the files of new consume queues, which is checked before the first record of a queue is stored.

The files of a queue are created after its first record was acknowledged. So a put looks at the free space and the free
inodes of the file system first. Near the limit it waits for the dispatcher, which may be far behind. A look costs one
statvfs(), about 1 us; the files of a new queue cost many times that.
"""
from libc.stdint cimport int64_t

from rocketc.c.atomic cimport rc_add_i64, rc_load_i64, rc_store_i64
from rocketc.c.status cimport RC_MORE, RC_NO_QUEUE_ROOM, RC_OK

cdef extern from "sys/statvfs.h" nogil:
    struct statvfs_result "statvfs":
        unsigned long f_frsize
        unsigned long f_blocks
        unsigned long f_bavail
        unsigned long f_files
        unsigned long f_favail
    int statvfs_of "statvfs"(const char* path, statvfs_result* found)

cdef enum:
    QUEUE_INODES = 3            # the folders of topic and queue, and the file
    QUEUE_BYTES = 12 << 10      # a block for each of them
    SPARE_INODES = 16           # for the next files of log and index, and for the tables
    SPARE_BYTES = 64 << 10      # for the tables
    LOG_BYTES = 4 << 20         # the log may be allocated ahead by this much meanwhile, or by a file if that is smaller


cdef int room_take(QueueRoom* room) noexcept nogil:
    """Take the room for the files of one more queue. Returns RC_OK or RC_NO_QUEUE_ROOM.

    RC_MORE: there is room for this queue, but not if each pending one needs the most. Call again in a moment.
    File systems without a fixed number of inodes or blocks say 0; these numbers are then not compared.
    """
    cdef statvfs_result found
    cdef int64_t queues
    if room.folder == NULL:
        return RC_OK
    if statvfs_of(room.folder, &found) != 0 and statvfs_of(room.above, &found) != 0:
        return RC_OK            # the dispatcher will report why
    queues = rc_add_i64(&room.pending, 1)
    if fit(room, &found, queues):
        return RC_OK
    rc_add_i64(&room.pending, -1)
    return RC_MORE if fit(room, &found, 1) else RC_NO_QUEUE_ROOM


cdef bint room_is_free(QueueRoom* room) noexcept nogil:
    """Whether there is room for one more queue, so that dispatching can continue after it failed for lack of space."""
    cdef statvfs_result found
    return room.folder != NULL and statvfs_of(room.folder, &found) == 0 and fit(room, &found, 1)


cdef bint fit(const QueueRoom* room, const statvfs_result* found, int64_t queues) noexcept nogil:
    """Whether the files of this number of new queues fit."""
    cdef int64_t size = queues * QUEUE_BYTES + SPARE_BYTES + min(room.file_size, <int64_t>LOG_BYTES)
    if found.f_files > 0 and <int64_t>found.f_favail < queues * QUEUE_INODES + SPARE_INODES:
        return False
    return found.f_blocks == 0 or <int64_t>found.f_bavail >= size // <int64_t>found.f_frsize


cdef void room_made(QueueRoom* room, int64_t queues) noexcept nogil:
    """Return the room of queues whose files exist now. The dispatcher calls it."""
    if queues > 0 and rc_add_i64(&room.pending, -queues) < 0:
        rc_store_i64(&room.pending, 0)


cdef void room_settle(QueueRoom* room) noexcept nogil:
    """All records are dispatched: every queue has its files, or its first record was not stored."""
    if rc_load_i64(&room.pending) != 0:
        rc_store_i64(&room.pending, 0)
