"""Putting: the part of a store that appends messages."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.format._text_table cimport TextTable
from rocketc.log._commit_log cimport CommitLog
from rocketc.log._message_args cimport MessageArgsEncoder, PutCall
from rocketc.log._prepared_record cimport PreparedRecord
from rocketc.log._put_result cimport PutResult

cdef class Putting:
    cdef:
        MessageArgsEncoder _encoder
        CommitLog log       # None if read-only
        type _future        # the class of the result of put_async()
        object _event_loops_class
        object _event_loops     # of aput(), created by its first call
        int64_t _calls      # number of running calls
        int64_t _main_calls  # running calls of the main thread; only that thread runs signal handlers and uses this
        int64_t _puts
        int64_t _refused    # number of puts that raised
        int64_t _timeout_ns
        unsigned long _generation   # of the process that opened the store
        bint _sync
        bint _slave         # only records of the master are accepted
        bint _closing
        bint _full          # the cleaner found that a disk is too full
        object _maintenance   # None if read-only
        object _stepper     # sets the time in a store without threads, and does their work; None: there are threads
        object _report      # a function that reports problems of the threads to the log of the library
        object _numbering   # lock for puts of messages that have queue offsets in their properties
        TextTable _known    # topics of earlier puts
        str _last_topic     # one of them: the topic of the last put
        bint _keeps_topics  # the store has a table of topics
        readonly str path
        readonly object config
        readonly bint closed
    cdef public object _finisher    # finishes futures of put_async(); created for the first future with a callback
    cdef bint _is_ours(self) noexcept
    cdef int append(self, PreparedRecord* records, int n, int how) except? -1
    cdef int _append(self, PreparedRecord* records, int n, int how, bint wait) except? -1
    cdef int _append_run(self, PreparedRecord* records, int n, int how, bint wait) except? -1
    cdef int _append_numbered(self, PreparedRecord* r) except? -1
    cdef int _refuse_unnumbered(self, PreparedRecord* records, int n) except -1
    cdef bint _needs_numbers(self, PreparedRecord* r) except -1
    cdef bint _check_records(self, PreparedRecord* records, int n) except -1
    cdef int _check_topic(self, const uint8_t* topic, int32_t n) except? -1
    cdef int _forget(self, names) except -1
    cdef int _enter(self) except -1
    cdef int _enter_reading(self) except -1
    cdef bint _is_inside(self) noexcept
    cdef int _report_news(self) except -1
    cdef int _note_timeout(self, const PreparedRecord* records, int n) except -1
    cdef void _leave(self) noexcept
    cdef PutResult _put(
        self, str topic, body, tags, keys, properties, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
        reconsume_times, prepared, bint wait_store_ok, bint wait,
    )
    cdef PutResult _put_records(self, PreparedRecord* records, int n, int how, store_host, bint wait)
    cdef PreparedRecord* _copies(self, const PutCall* c, Py_ssize_t n) except NULL
    cdef PutResult _result(self, const PreparedRecord* records, int n, store_host, status)
    cdef object _status_of(self, int rc)
    cdef object _wait(self, int64_t end, int64_t until)
