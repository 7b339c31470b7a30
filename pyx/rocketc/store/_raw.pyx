# cython: language_level=3
"""Raw bytes: what a store is to replication. The log's bytes by physical offset, out of one store and into another.

What is read and checked, and how, is in log/_raw_log; here is who may call it, and what is raised.
"""
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcpy

from rocketc._status cimport error_of, reason_of
from rocketc.c.atomic cimport rc_add_i64, rc_count_i64, rc_load_i64
from rocketc.c.status cimport (
    RC_FAILED, RC_FILE_CUT, RC_NO_FILE, RC_OK, RC_OUT_OF_ORDER, RC_PAGE_CACHE_BUSY,
)
from rocketc.c.vm cimport rc_guard
from rocketc.files._append_file cimport View, view_of
from rocketc.files._file_queue cimport FileQueue, queue_next, queue_start
from rocketc.files._guard cimport enter_writing, install, leave as guard_leave
from rocketc.log._prepared_record cimport PreparedRecord, prepared_init
from rocketc.log._put_result cimport disk_full, refusal
from rocketc.log._raw_log cimport RawAppended, RawBytes, raw_append, raw_read, raw_release
from rocketc.store._gets cimport Getting

from rocketc.errors import PhyOffsetError

cdef enum:
    MOST_BYTES = 256 << 10          # that read_raw hands out unless told otherwise: a block stays in a core's cache


cdef class RawAccess(Getting):
    """What a MessageStore is to those who copy its log."""

    def read_raw(self, int64_t phy_offset, int64_t max_bytes=MOST_BYTES, *, upto=None, bint views=False):
        """Whole records of the log from a physical offset on, as they are stored; b"" if there is nothing yet.

        phy_offset  where a record begins: min_phy_offset, or the offset behind the bytes of the call before
        max_bytes   at most so many, but one record at least
        upto        a physical offset: no record that ends behind it, such as flushed_phy_offset; None: all there is
        views       a View, memoryview(view), in place of bytes; release() it, or its end, lets the file go. None if
                    there is nothing yet
        A call ends with a file: the blank record there and what stands behind it, to the file's end, count as a record.
        Records are not checked for damage but the first, whose sizes and physical offset must be right. With
        read_only=True zero space is nothing yet, wherever it is, and the last record may be one that is being written.
        Raises PhyOffsetError for an offset that the log does not have, or that no record begins at; StoreIOError,
        ClosedError, ValueError.
        Source: RocketMQ CommitLog.getData.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two"])
        ...     block = store.read_raw(0)
        ...     len(block), store.read_raw(len(block))
        (200, b'')
        """
        cdef FileQueue* q
        cdef RawBytes raw
        cdef rc_guard guard
        cdef bytes block
        cdef View view
        cdef uint8_t* to
        cdef int64_t limit = INT64_MAX if upto is None else upto
        cdef int rc
        if max_bytes < 1:
            raise ValueError(f"max_bytes={max_bytes}: at least 1")
        install()
        self._enter_reading()
        try:
            if self.log is None:
                self._look_around()
            q = &self.reader.log.q
            with nogil:
                rc = raw_read(q, phy_offset, limit, max_bytes, True, &raw)
            if rc != RC_OK:
                raise self._no_record(rc, phy_offset)
            if raw.file == NULL:
                return None if views else b""
            if views:
                view = view_of(raw.file, phy_offset - raw.file.start, raw.size)     # the hold is the view's now
                rc_add_i64(&raw.file.pointers, -1)      # and so is the other pointer: it has one of its own
                return view
            try:
                block = PyBytes_FromStringAndSize(NULL, raw.size)
                to = <uint8_t*>PyBytes_AS_STRING(block)
                with nogil:
                    enter_writing(&guard, raw.file.base, raw.file.size, &raw.file.cut)
                    memcpy(to, raw.data, <size_t>raw.size)
                    guard_leave(&guard)
                if raw.file.cut != 0:
                    raise error_of(RC_FILE_CUT, os.fsdecode(raw.file.path))
                return block
            finally:
                raw_release(&raw)
        finally:
            self._leave()

    cdef object _no_record(self, int rc, int64_t phy_offset):
        """The exception for what raw_read() said."""
        cdef FileQueue* q = &self.reader.log.q
        cdef int64_t start = max(queue_start(q, 1), <int64_t>0), behind
        if rc == RC_OUT_OF_ORDER:
            text = f"the log ends at {rc_load_i64(&q.wrote)}"
        elif rc == ENOENT and phy_offset < start:
            text = f"the log begins at {start}; what was before it was deleted, or never here"
        elif rc == ENOENT:
            behind = queue_next(q, phy_offset)
            text = f"the file that holds it is missing; the log goes on at {behind}"
        elif rc > 0 or rc == RC_FILE_CUT:
            return error_of(rc, self.path)
        else:
            text = f"no record begins there, or it is damaged: {reason_of(rc)}"
        return PhyOffsetError(f"{self.path}: physical offset {phy_offset}: {text}", phy_offset)

    def append_raw(self, int64_t phy_offset, data):
        """Append the whole records at the front of a block of another store's log; return the offset behind them.

        phy_offset  of the block's first byte: max_phy_offset; for an empty log also any multiple of the file size
        data        bytes-like: what read_raw() handed out, in parts of any size; nobody changes it meanwhile
        A record that is cut off at the end of the block is left: it is the first of the next one. All of the block is
        checked first: sizes, stored physical offsets, the CRCs of bodies, and blank records, which end where a file of
        this log ends. No CRC covers the other fields, unless the records have the one of enabled_append_prop_crc.
        Then log, queues and index, and the next queue offsets, are as if the records had been put here; topics.json
        stays as it is. A store with broker_role SLAVE takes them, too. Nothing is waited for: flushed_phy_offset tells
        what is durable, and wait_flushed() waits.
        Raises PhyOffsetError if the log does not end at phy_offset, CorruptRecordError with the offset of what is
        damaged, PageCacheBusyError, StoreFailedError, ClosedError: nothing is changed then. StoreFullError and
        StoreIOError if the next file can't be made: what belongs into files before it is appended, as max_phy_offset
        tells.
        Source: RocketMQ CommitLog.appendData, which checks nothing.

        >>> import rocketc, tempfile
        >>> stores = [rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) for _ in range(2)]
        >>> with stores[0] as master, stores[1] as replica:
        ...     r = master.put_many("orders", [b"one", b"two"])
        ...     end = replica.append_raw(0, master.read_raw(0))
        ...     end, [m.body for m in replica.get("orders", wait=5)], replica.put("orders", b"own").queue_offset
        (200, [b'one', b'two'], 2)
        """
        cdef RawAppended out
        cdef Py_buffer view
        cdef int rc
        self._enter()
        try:
            if self._full:
                rc_count_i64(&self._refused, 1)
                raise disk_full(self.path)
            if rc_load_i64(&self.log.fl.news) != 0:
                self._tell_news()
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                with self._numbering:       # a put may have read the offsets of light queues, which move here
                    with nogil:
                        rc = raw_append(self.log, phy_offset, <const uint8_t*>view.buf, view.len, &out)
            finally:
                PyBuffer_Release(&view)
            if rc != RC_OK:
                rc_count_i64(&self._refused, 1)
                raise self._no_block(rc, phy_offset, &out)
            return out.end
        finally:
            self._leave()

    cdef object _no_block(self, int rc, int64_t phy_offset, const RawAppended* out):
        """The exception for what raw_append() said."""
        cdef PreparedRecord none
        cdef int64_t file_size = self.log.q.file_size
        if rc == RC_OUT_OF_ORDER:
            text = f"the log ends at {out.at}"
            if out.at == 0:
                text = f"the log is empty, and begins where a file does: at a multiple of {file_size}"
            return PhyOffsetError(f"{self.path}: a block at physical offset {phy_offset}: {text}", phy_offset)
        if rc == ENOMEM:
            return MemoryError()
        if rc in (RC_FAILED, RC_PAGE_CACHE_BUSY, RC_NO_FILE):
            prepared_init(&none)
            none.status, none.error = rc, out.error
            error = refusal(&none, 1, self.log, self.path, self.config)
            error.count = out.records
            return error
        return error_of(rc, None, out.at, "nothing of the block is appended")
