"""What a put comes to: a PutResult, or the exception that says why nothing is stored."""
from rocketc.log._commit_log cimport Appended, CommitLog, Entry

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
cdef object disk_full(str path)                     # the exception while the cleaner says that a disk is too full
cdef object failure(CommitLog log, str path)        # the exception for a store that has failed
cdef object refusal(                                # the exception for records that were not taken
    int rc, const Appended* out, CommitLog log, str path, config, str topic, const Entry* entries, int n,
)
