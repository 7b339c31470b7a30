# cython: language_level=3
"""Watch the lock file of an open store and the folders of its log: if one is gone, another process may write them.

A thread checks them twice a second. It also looks for puts that hold the put lock for long. It does not run Python.
"""
import os

from libc.errno cimport ENOENT, ENOMEM, ENOTDIR
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.stat cimport lstat, stat, struct_stat
from posix.types cimport pid_t
from posix.unistd cimport getpid

from rocketc._status cimport check
from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.service cimport (
    rc_clock_ns, rc_service, rc_service_destroy, rc_service_init, rc_service_start, rc_service_stop, rc_service_wait,
)
from rocketc.c.status cimport RC_LOCK_LOST, RC_OK
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._flusher cimport flusher_fail

cdef enum:
    INTERVAL_NS = 500_000_000

# A file or folder that must stay in its place.
ctypedef struct Watched:
    const char* path        # a string of CommitLog.watched_paths
    uint64_t device
    uint64_t inode
    bint follow             # the path may be a symbolic link


cdef class LockWatch:
    """Marks the log of a store as failed when the store is no longer protected from another writer.

    log    a CommitLog
    paths  list of (path, device, inode, whether the path may be a symbolic link)
    start() starts the thread and stop() ends it; look() does its work once.
    """
    cdef:
        CommitLog _log
        Watched* _all
        int _count
        rc_service _service
        bint _ready
        pid_t _pid              # of the process that has the thread; 0: there is none

    def __cinit__(self, CommitLog log not None, list paths not None):
        cdef int i
        self._log = log
        self._count = <int>len(paths)
        self._all = <Watched*>calloc(<size_t>self._count + 1, sizeof(Watched))
        check(ENOMEM if self._all == NULL else rc_service_init(&self._service))
        self._ready = True
        log.watched_paths = [os.fsencode(path) for path, _, _, _ in paths]
        for i in range(self._count):
            _, self._all[i].device, self._all[i].inode, self._all[i].follow = paths[i]
            self._all[i].path = <bytes>log.watched_paths[i]

    def __dealloc__(self):
        if self._pid != 0 and self._pid != getpid():
            return                  # a forked child does not have the thread, and the mutex may be locked
        self.stop()
        if self._ready:
            rc_service_destroy(&self._service)
        free(self._all)

    def start(self):
        """Start the thread."""
        check(rc_service_start(&self._service, run, <void*>self))
        self._pid = getpid()

    def stop(self):
        """End the thread, if it runs."""
        if self._pid == getpid():
            with nogil:
                rc_service_stop(&self._service)
            self._pid = 0

    def look(self):
        """Check the files and folders once."""
        with nogil:
            look_at_all(self)


cdef void look_at_all(LockWatch w) noexcept nogil:
    cdef struct_stat info
    cdef const Watched* one
    cdef int i, rc
    if rc_load_i64(&w._log.fl.failed) != 0:
        return
    for i in range(w._count):
        one = &w._all[i]
        rc = stat(one.path, &info) if one.follow else lstat(one.path, &info)
        if rc == 0:
            rc = RC_OK if info.st_dev == one.device and info.st_ino == one.inode else ENOENT
        else:
            rc = c_errno
        if rc == ENOENT or rc == ENOTDIR:      # other errors say nothing about the file
            flusher_fail(&w._log.fl, RC_LOCK_LOST, one.path)
            return


cdef void* run(void* argument) noexcept nogil:
    watch(<LockWatch>argument)
    return NULL


cdef void watch(LockWatch w) noexcept nogil:
    cdef int64_t next_look = rc_clock_ns() + INTERVAL_NS, since = 0, until_ns = 0, pause = INTERVAL_NS, now
    while not rc_service_wait(&w._service, pause):
        now = rc_clock_ns()
        if now >= next_look:
            look_at_all(w)
            next_look = now + INTERVAL_NS
        pause = min(w._log.watch_hold(&since, &until_ns), max(next_look - now, <int64_t>0))
