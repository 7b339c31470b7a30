# cython: language_level=3
"""Raw bytes of the log: the part of a store that replication uses. It copies records from one store to another.

log/_raw_log reads and checks the bytes. This module checks that the store is open, and raises the errors.
"""
import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.string cimport memcpy

from rocketc._arguments cimport checked_int
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
    MOST_BYTES = 256 << 10          # default of max_bytes in read_raw(): a block fits into a core's cache


cdef class RawAccess(Getting):
    """The methods of a MessageStore that copy the log."""

    def read_raw(self, phy_offset, max_bytes=MOST_BYTES, *, upto=None, bint views=False):
        """Return whole records of the log from a physical offset on, as stored; b"" if there are no records yet.

        phy_offset  where a record begins: min_phy_offset, or the end of the bytes of the previous call
        max_bytes   the most bytes to return; a first record that is longer is returned whole
        upto        a physical offset, such as flushed_phy_offset: return no record that ends after it; None: no limit
        views       True: return a View instead of bytes, for memoryview(view); release() of the view, or its end,
                    releases the file. None if there are no records yet
        The result never contains bytes of two files. The blank record at the end of a file, with all bytes after it,
        counts as one record. Only the first record is checked: its sizes and physical offset must be valid. With
        read_only=True zero bytes count as "no records yet", wherever they are, and the last record may be incomplete.
        Raises PhyOffsetError if the log does not have the offset, or no record begins there; StoreIOError, ClosedError,
        ValueError.
        Source: RocketMQ CommitLog.getData.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put_many("orders", [b"one", b"two"])
        ...     block = store.read_raw(0)
        ...     len(block), store.read_raw(len(block))
        (200, b'')
        """
        return self._read(phy_offset, max_bytes, upto, True, views)

    def read_log(self, phy_offset, max_bytes=MOST_BYTES, *, bint views=False):
        """Return bytes of the log from any physical offset on, as stored; b"" if there are no bytes yet.

        phy_offset  anywhere in the log, also within a record
        max_bytes   the most bytes to return
        views       True: return a View instead of bytes, for memoryview(view); release() of the view, or its end,
                    releases the file. None if there are no bytes yet
        The bytes end at the end of the last whole record, or at the end of the file, whichever comes first. With a
        transient store pool they end where the log file ends, and that may be within a record. Nothing is checked:
        read_raw() returns whole records. A master of the HA protocol sends these bytes.
        Raises PhyOffsetError if the log does not have the offset; StoreIOError, ClosedError, ValueError.
        Source: RocketMQ DefaultHAConnection, DefaultMessageStore.getCommitLogData.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one")
        ...     whole = store.read_log(0)
        ...     len(whole), store.read_log(7, 3) == whole[7:10], store.read_log(len(whole))
        (100, True, b'')
        """
        return self._read(phy_offset, max_bytes, None, False, views)

    cdef object _read(self, phy_offset, max_bytes, upto, bint whole, bint views):
        """Do the work of read_raw(), and of read_log() if `whole` is False."""
        cdef FileQueue* q
        cdef RawBytes raw
        cdef rc_guard guard
        cdef bytes block
        cdef View view
        cdef uint8_t* to
        cdef int64_t at = checked_int("phy_offset", phy_offset, INT64_MIN, INT64_MAX)
        cdef int64_t most = checked_int("max_bytes", max_bytes, 1, INT64_MAX)
        cdef int64_t limit = INT64_MAX if upto is None else checked_int("upto", upto, INT64_MIN, INT64_MAX)
        cdef int rc
        install()
        self._enter_reading()
        try:
            if self.log is None:
                self._look_around()
            q = &self.reader.log.q
            with nogil:
                rc = raw_read(q, at, limit, most, whole, &raw)
            if rc != RC_OK:
                raise self._no_record(rc, at)
            if raw.file == NULL:
                return None if views else b""
            if views:
                view = view_of(raw.file, at - raw.file.start, raw.size)     # takes over the hold
                rc_add_i64(&raw.file.pointers, -1)      # the view has counted a pointer of its own
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
        """Return the exception for a return code of raw_read()."""
        cdef FileQueue* q = &self.reader.log.q
        cdef int64_t start = max(queue_start(q, 1), <int64_t>0), behind
        if rc == RC_OUT_OF_ORDER:
            text = f"the log ends at {rc_load_i64(&q.wrote)}"
        elif rc == ENOENT and phy_offset < start:
            text = f"the log begins at {start}; earlier records were deleted, or never in this store"
        elif rc == ENOENT:
            behind = queue_next(q, phy_offset)
            text = f"the file that holds it is missing; the log continues at {behind}"
        elif rc > 0 or rc == RC_FILE_CUT:
            return error_of(rc, self.path)
        else:
            text = f"no record begins there, or it is damaged: {reason_of(rc)}"
        return PhyOffsetError(f"{self.path}: physical offset {phy_offset}: {text}", phy_offset)

    def append_raw(self, phy_offset, data):
        """Append the whole records of a block of another store's log; return the physical offset after them.

        phy_offset  of the block's first byte: max_phy_offset; for an empty log also any multiple of the file size
        data        bytes-like: the bytes that read_raw() returned, in parts of any size; do not change it in this call
        An incomplete record at the end of the block is not appended: the next block begins with it. The whole block is
        checked first: sizes, stored physical offsets, the CRCs of bodies, and blank records, which must end where a
        file of this log ends. No CRC covers the other fields, unless the records have a property CRC
        (enabled_append_prop_crc). Log, queues, index and next queue offsets are then the same as after puts of these
        messages; topics.json does not change. A store with broker_role SLAVE accepts them too. The call does not wait
        for the flush: see flushed_phy_offset and wait_flushed().
        Raises PhyOffsetError if the log does not end at phy_offset, CorruptRecordError with the offset of the damage,
        PageCacheBusyError, StoreFailedError, ClosedError; then nothing changes. Raises StoreFullError or StoreIOError
        if the next file can't be created; the records for earlier files are appended then, up to max_phy_offset.
        Source: RocketMQ CommitLog.appendData, which does not check the block.

        >>> import rocketc, tempfile
        >>> stores = [rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) for _ in range(2)]
        >>> with stores[0] as master, stores[1] as replica:
        ...     r = master.put_many("orders", [b"one", b"two"])
        ...     end = replica.append_raw(0, master.read_raw(0))
        ...     end, [m.body for m in replica.get("orders", wait=5)], replica.put("orders", b"own").queue_offset
        (200, [b'one', b'two'], 2)
        """
        cdef int64_t at = checked_int("phy_offset", phy_offset, INT64_MIN, INT64_MAX)
        cdef RawAppended out
        cdef Py_buffer view
        cdef int rc
        self._enter()
        try:
            if self._full:
                rc_count_i64(&self._refused, 1)
                raise disk_full(self.path)
            if rc_load_i64(&self.log.fl.news) != 0:
                self._report_news()
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                with self._numbering:       # no put may use queue offsets of light queues that change here
                    with nogil:
                        rc = raw_append(self.log, at, <const uint8_t*>view.buf, view.len, &out)
            finally:
                PyBuffer_Release(&view)
            if rc != RC_OK:
                rc_count_i64(&self._refused, 1)
                raise self._no_block(rc, at, &out)
            return out.end
        finally:
            self._leave()

    cdef object _no_block(self, int rc, int64_t phy_offset, const RawAppended* out):
        """Return the exception for a return code of raw_append()."""
        cdef PreparedRecord none
        cdef int64_t file_size = self.log.q.file_size
        if rc == RC_OUT_OF_ORDER:
            text = f"the log ends at {out.at}"
            if out.at == 0:
                text = f"the log is empty; its first block must begin at a multiple of {file_size}"
            return PhyOffsetError(f"{self.path}: block at physical offset {phy_offset}: {text}", phy_offset)
        if rc == ENOMEM:
            return MemoryError()
        if rc in (RC_FAILED, RC_PAGE_CACHE_BUSY, RC_NO_FILE):
            prepared_init(&none)
            none.status, none.error = rc, out.error
            error = refusal(&none, 1, self.log, self.path, self.config)
            error.count = out.records
            return error
        return error_of(rc, None, out.at, "no record of the block was appended")
