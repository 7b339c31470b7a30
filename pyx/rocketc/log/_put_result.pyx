# cython: language_level=3
"""What a put comes to: a PutResult, or the exception that says why nothing is stored."""
import errno
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t

from rocketc._status cimport error_of
from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.layout cimport RC_PROPERTIES_MAX_BYTES
from rocketc.c.status cimport (
    RC_BODY_TOO_LONG, RC_FAILED, RC_NO_FILE, RC_PAGE_CACHE_BUSY, RC_PROPERTIES_TOO_LONG, RC_RECORD_TOO_LONG,
)
from rocketc.c.text cimport rc_hex
from rocketc.log._commit_log cimport Appended, CommitLog, Entry
from rocketc.log._message_args cimport illegal_message

from rocketc.errors import ClosedError, PageCacheBusyError, StoreFailedError, StoreFullError
from rocketc.status import PutStatus


@cython.freelist(64)
cdef class PutResult:
    """Where a message went.

    status           PutStatus: PUT_OK, or FLUSH_DISK_TIMEOUT (stored, not known to be durable)
    phy_offset       physical offset of its record
    queue_offset     its place in its queue
    store_timestamp  ms since the epoch
    size             bytes of the record
    count            messages: more than 1 from put_batch and put_many; the offsets are those of the first then, the
                     size is that of all
    end              physical offset behind the last record
    """

    @property
    def msg_id(self):
        """Offset message id of the (first) record: what `message_by_id` and RocketMQ's tools take."""
        cdef uint8_t text[56]
        cdef bytes raw = self.host + (<object>self.phy_offset).to_bytes(8, "big")
        rc_hex(text, <const uint8_t*>PyBytes_AS_STRING(raw), <size_t>len(raw))
        return text[: 2 * len(raw)].decode()

    def __repr__(self):
        many = f", count={self.count}" if self.count != 1 else ""
        return (
            f"PutResult({self.status.name}, phy_offset={self.phy_offset}, queue_offset={self.queue_offset}, "
            f"size={self.size}{many})"
        )


cdef object closed(str text):
    """The exception for a call that comes to a store that takes none."""
    error = ClosedError(text)
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    return error


cdef object disk_full(str path):
    """The exception while a disk is used beyond disk_space_warning_level_ratio."""
    text = "the disk is nearly full (disk_space_warning_level_ratio); messages are taken again once there is room"
    error = StoreFullError(errno.ENOSPC, text, path)
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    return error


cdef object failure(CommitLog log, str path):
    """The exception for a store that has failed."""
    path = os.fsdecode(log.fl.failed_path) if log.fl.failed_path != NULL else path
    reason = error_of(<int>rc_load_i64(&log.fl.failed), path)
    error = StoreFailedError(
        f"{reason}: nothing more is taken, because what was written last may not be durable; "
        "close the store and open it again, which recovers it"
    )
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    error.__cause__ = reason
    return error


cdef object refusal(
    int rc, const Appended* out, CommitLog log, str path, config, str topic, const Entry* entries, int n,
):
    """The exception for a put that was refused."""
    cdef int64_t longest = 0, total = 0
    cdef int i
    if rc == RC_FAILED:
        error = failure(log, path)
    elif rc == RC_PAGE_CACHE_BUSY:
        most = config.os_page_cache_busy_time_out_mills
        error = PageCacheBusyError(f"the log has been appended to for more than {most} ms; try again in a moment")
        error.status = PutStatus.OS_PAGE_CACHE_BUSY
    elif rc == RC_NO_FILE:
        error = error_of(out.error, os.path.join(path, "commitlog"))
        error.status = PutStatus.CREATE_MAPPED_FILE_FAILED
    elif rc == RC_PROPERTIES_TOO_LONG:
        error = illegal_message(
            f"topic {topic!r}: the properties are longer than {RC_PROPERTIES_MAX_BYTES} bytes",
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
        )
    elif rc == RC_BODY_TOO_LONG or rc == RC_RECORD_TOO_LONG:
        for i in range(n):
            longest = max(longest, entries[i].body_len)
            total += entries[i].body_len
        what = f"a body of {longest} bytes" if n == 1 else f"{n} messages, bodies of {total} bytes together"
        error = illegal_message(
            f"topic {topic!r}: {what}; max_message_size is {config.max_message_size} bytes, "
            f"and a file of the log has {config.mapped_file_size_commit_log}"
        )
    else:
        error = error_of(rc, path)
        error.status = PutStatus.UNKNOWN_ERROR
    error.count = out.count
    return error
