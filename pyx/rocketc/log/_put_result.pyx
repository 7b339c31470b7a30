# cython: language_level=3
"""The result of a put: a PutResult, or the exception that says why nothing is stored."""
import errno
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT32_MAX, int64_t, uint8_t

from rocketc._status cimport error_of
from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.layout cimport RC_PROPERTIES_MAX_BYTES, RC_TOPIC_V1_MAX_BYTES, RC_TOPIC_V2_MAX_BYTES
from rocketc.c.status cimport (
    RC_BAD_ARGUMENT, RC_BAD_QUEUE_ID, RC_BODY_TOO_LONG, RC_FAILED, RC_LOCK_LOST, RC_NOT_A_BATCH, RC_NO_FILE,
    RC_NO_QUEUE_ROOM, RC_OK, RC_PAGE_CACHE_BUSY, RC_PROPERTIES_TOO_LONG, RC_RECORD_TOO_LONG, RC_TOPIC_TOO_LONG,
    RC_UNFIT_TOPIC, RC_UNKNOWN_TOPIC,
)
from rocketc.c.text cimport rc_hex
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._message_args cimport illegal_message
from rocketc.log._prepared_record cimport RETRY_MAX_BYTES, PreparedRecord

from rocketc import _layout as layout
from rocketc.errors import ClosedError, PageCacheBusyError, StoreFailedError, StoreFullError
from rocketc.status import PutStatus

cdef frozenset ILLEGAL = frozenset([
    RC_BODY_TOO_LONG, RC_RECORD_TOO_LONG, RC_TOPIC_TOO_LONG, RC_UNFIT_TOPIC, RC_UNKNOWN_TOPIC, RC_NOT_A_BATCH,
    RC_BAD_ARGUMENT, RC_BAD_QUEUE_ID,
])


@cython.freelist(64)
cdef class PutResult:
    """The result of a put: where the message is stored.

    status           PutStatus: PUT_OK, or FLUSH_DISK_TIMEOUT (stored, not known to be durable)
    phy_offset       physical offset of its record
    queue_offset     its number in its queue
    store_timestamp  ms since the epoch
    size             bytes of the record
    count            number of messages: may be more than 1 after put_batch and put_many; the offsets are then those of
                     the first message, and size is the total
    end              physical offset of the end of the last record
    """

    @property
    def msg_id(self):
        """Offset message id of the (first) record: the id that `message_by_id` and RocketMQ's tools take."""
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
    """The exception for a call on a store that does not accept it because it is closed."""
    error = ClosedError(text)
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    return error


cdef object disk_full(str path):
    """The exception for a put while the disk is used beyond disk_space_warning_level_ratio."""
    text = "the disk is nearly full (disk_space_warning_level_ratio); puts are refused until space is freed"
    error = StoreFullError(errno.ENOSPC, text, path)
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    return error


cdef object failure(CommitLog log, str path):
    """The exception for a store that has failed."""
    cdef int rc
    path = os.fsdecode(log.fl.failed_path) if log.fl.failed_path != NULL else path
    rc = <int>rc_load_i64(&log.fl.failed)
    reason = error_of(rc, path)
    if rc == RC_LOCK_LOST:
        error = StoreFailedError(
            f"{reason}: the store refuses all puts; make sure that nothing else writes it, then close it and open it "
            "again, which recovers it"
        )
    else:
        error = StoreFailedError(
            f"{reason}: the store refuses all puts, because the last messages may not be durable; "
            "close the store and open it again, which recovers it"
        )
    error.status = PutStatus.SERVICE_NOT_AVAILABLE
    error.__cause__ = reason
    return error


cdef object put_status(int rc):
    """RocketMQ's PutStatus for the status of a prepared record."""
    if rc == RC_OK:
        return PutStatus.PUT_OK
    if rc == RC_PAGE_CACHE_BUSY:
        return PutStatus.OS_PAGE_CACHE_BUSY
    if rc == RC_NO_FILE:
        return PutStatus.CREATE_MAPPED_FILE_FAILED
    if rc == RC_FAILED or rc == RC_NO_QUEUE_ROOM:
        return PutStatus.SERVICE_NOT_AVAILABLE
    if rc == RC_PROPERTIES_TOO_LONG:
        return PutStatus.PROPERTIES_SIZE_EXCEEDED
    if rc in ILLEGAL:
        return PutStatus.MESSAGE_ILLEGAL
    return PutStatus.UNKNOWN_ERROR


cdef object refusal(const PreparedRecord* records, int n, CommitLog log, str path, config):
    """The exception for records that were not all stored; the first refused record gives the reason."""
    cdef const PreparedRecord* r = records
    cdef int64_t total = 0
    cdef int i, rc, stored = 0
    for i in range(n):
        total += records[i].args.body_len
        stored += records[i].status == RC_OK
        if r.status == RC_OK:
            r = &records[i]
    rc = r.status
    topic = r.args.topic[:r.args.topic_len].decode("utf-8", "surrogateescape")
    if rc == RC_FAILED:
        error = failure(log, path)
    elif rc == RC_PAGE_CACHE_BUSY:
        most = config.os_page_cache_busy_time_out_mills
        error = PageCacheBusyError(f"the log has been appended to for more than {most} ms; try again in a moment")
    elif rc == RC_NO_FILE:
        error = error_of(r.error, os.path.join(path, "commitlog"))
    elif rc == RC_NO_QUEUE_ROOM:
        error = _no_queue_room(path)
    elif rc == RC_PROPERTIES_TOO_LONG:
        error = illegal_message(f"topic {topic!r}: the properties are longer than {RC_PROPERTIES_MAX_BYTES} bytes")
    elif rc == RC_BODY_TOO_LONG or rc == RC_RECORD_TOO_LONG:
        what = f"a body of {r.args.body_len} bytes"
        if records.batch > 1:
            what = f"{n} messages, bodies of {total} bytes together"
        error = illegal_message(
            f"topic {topic!r}: {what}; max_message_size is {config.max_message_size} bytes, "
            f"and a log file has {config.mapped_file_size_commit_log}"
        )
    elif rc == RC_TOPIC_TOO_LONG:
        most = RC_TOPIC_V2_MAX_BYTES if config.auto_message_version_on_topic_len else RC_TOPIC_V1_MAX_BYTES
        retry = topic.startswith(layout.RETRY_PREFIX)
        if config.check_before_put_message and not (retry and r.args.topic_len <= RETRY_MAX_BYTES):
            most = RETRY_MAX_BYTES if retry else RC_TOPIC_V1_MAX_BYTES
        has = r.args.topic_len
        error = illegal_message(f"topic {topic[:40]!r}...: it has {has} bytes of UTF-8, at most {most} are allowed")
    elif rc == RC_UNFIT_TOPIC:
        error = illegal_message(f"topic {topic!r}: {_unfit(topic)}")
    elif rc == RC_BAD_QUEUE_ID:
        error = illegal_message(f"queue_id is {r.args.queue_id}; allowed are 0 to {INT32_MAX}")
    elif rc == RC_UNKNOWN_TOPIC:
        error = illegal_message(
            f"topic {topic!r} is not in config/topics.json, and auto_create_topic_enable is off: "
            "create it with create_topic()"
        )
    elif rc == RC_NOT_A_BATCH:
        error = illegal_message(
            "property INNER_NUM is only allowed on an inner batch (sys_flag 0x80), for at most 32767 messages"
        )
    elif rc == RC_BAD_ARGUMENT:
        error = illegal_message(
            f"topic {topic!r}: a message of a batch lacks queue offsets (INNER_BASE, INNER_MULTI_QUEUE_OFFSET): "
            "store it with put()"
        )
    else:
        error = error_of(rc, path)
    error.status = put_status(rc)
    error.count = stored
    return error


def _no_queue_room(root):
    """The exception for a put while the consume queues can't have more files, or could not take the last records."""
    folder = os.path.join(root, "consumequeue")
    folder = folder if os.path.isdir(folder) else root
    found = os.statvfs(folder)
    inodes = f" and {found.f_favail} inodes" if found.f_files else ""
    text = (
        "the file system is too full for more consume queues; puts are refused until there is room: "
        f"{found.f_bavail * found.f_frsize} bytes{inodes} are free"
    )
    return StoreFullError(errno.ENOSPC, text, folder)


def _unfit(topic):
    """Why a text can't be a topic."""
    if topic in (".", ".."):
        return "it can't be used as the name of a folder"
    if not topic or "/" in topic or "\0" in topic:
        return "it is used as the name of a folder, so it must not be empty or contain '/' or NUL"
    try:
        topic.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return "it must not contain control characters"
