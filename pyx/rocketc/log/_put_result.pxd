"""The result of a put: a PutResult, or the exception that says why nothing is stored."""
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._prepared_record cimport PreparedRecord

cdef class PutResult:
    cdef:
        bytes host         # 8 or 20 bytes
        readonly object status
        readonly long long phy_offset
        readonly long long queue_offset
        readonly long long store_timestamp
        readonly long long size
        readonly long long count
        readonly long long end

cdef object closed(str text)                        # a ClosedError with its PutStatus
cdef object disk_full(str path)                     # the exception for a put while the disk is too full
cdef object failure(CommitLog log, str path)        # the exception for a store that has failed
cdef object put_status(int rc)                      # RocketMQ's PutStatus for the status of a prepared record
cdef object refusal(                                # the exception for records that were not stored
    const PreparedRecord* records, int n, CommitLog log, str path, config,
)
