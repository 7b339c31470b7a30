# cython: language_level=3
"""Turn blocks of records into messages or batches: split inner batches, decompress bodies."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc

from rocketc._status cimport check
from rocketc.c.layout cimport RC_FLAG_COMPRESSED, RC_FLAG_COMPRESSION_MASK, RC_FLAG_COMPRESSION_SHIFT
from rocketc.c.status cimport RC_MORE, RC_OK
from rocketc.c.text cimport rc_stream_end
from rocketc.c.vm cimport rc_guard
from rocketc.format._record cimport Record, Slice, is_to_unwrap, parse_entry
from rocketc.format._text_table cimport KEEP
from rocketc.read._arrow cimport Batch, batch_of, select
from rocketc.read._column_buffers cimport BatchBuffers, Selection, rows_new
from rocketc.read._columns cimport Origin, append, cut_back
from rocketc.read._filter cimport Filter
from rocketc.read._log_bytes cimport STEP_BYTES
from rocketc.read._message cimport COL_BODY, copy_of, message_of, printable
from rocketc.read._walk cimport Walker, broker_of

from rocketc.errors import MissingCodecError
from rocketc.format import compression

cdef enum:
    LIST_MESSAGES = 64          # approximately; short lists reuse the memory of freed messages while it is in the cache

cdef int64_t BODY_MAX = INT32_MAX - (1 << 20)   # fits into one Arrow column with room to spare


cdef inline Slice slice_of(bytes text):
    return Slice(<const uint8_t*>PyBytes_AS_STRING(text), <int32_t>len(text))


cdef class Reader:
    """Iterates over the messages of several Walkers in lists, or returns batches.

    walkers  an iterator; each walker is read to its end before the next one is taken
    columns  names for batches, None for all
    where    a predicate of Message, or None

    Use either the messages or the batches: both consume the walkers.
    """

    cdef:
        object _walkers
        Walker _walker          # the current one, or None
        Filter _filter
        Selection _selected
        object _where
        bint _decompress
        bint _unwrap
        int64_t _limit          # the most bytes of a decompressed body
        int64_t _batch_bytes
        Origin _origin          # of the walker's records
        Slice* _brokers         # owned; _origin.brokers, or NULL
        list _texts             # own the texts of _origin
        int _at                 # index in the walker's block: records before it are done
        object _raised          # an error to raise after the records before it were returned
        # result of _open() for the record at _at
        Record* _parts
        int _part_count
        int _part_room
        bytes _other            # the memory of the bodies and properties of _parts
        str _fault
        object _no_codec        # the MissingCodecError, if _fault is "missing_codec"
    cdef readonly int64_t records

    def __cinit__(
        self, walkers, Filter filter not None, *, columns=None, where=None, bint decompress=True, bint unwrap=True,
        int64_t max_decompressed=64 << 20, int64_t batch_bytes=16 << 20,
    ):
        self._walkers = iter(walkers)
        self._filter = filter
        select(columns, &self._selected)
        self._where = where
        self._decompress = decompress
        self._unwrap = unwrap
        self._limit = min(max_decompressed, BODY_MAX)
        self._batch_bytes = min(batch_bytes, BODY_MAX)

    def __dealloc__(self):
        free(self._parts)
        free(self._brokers)

    def __iter__(self):
        return self

    def __next__(self):
        """Return the next messages, at least one."""
        cdef list out = self._messages()
        if not out:
            raise StopIteration
        return out

    cdef bint _advance(self) except -1:
        """Get the next block of records; return False if there are no more."""
        self._at = 0
        while True:
            if self._walker is None:
                self._walker = next(self._walkers, None)
                if self._walker is None:
                    return False
                self._note_origin(self._walker)
            if self._walker.next_block():
                return True
            self._walker = None

    cdef int _note_origin(self, Walker w) except -1:
        """Note where the records of a walker come from."""
        names = [] if w._brokers is None else [name.encode("utf-8", "replace") for name in w._brokers]
        file = None if w._file is None else printable(w._file).encode()
        free(self._brokers)
        self._brokers, self._origin.brokers = NULL, NULL
        self._texts = [file, *names]
        self._origin.file = Slice(NULL, 0)
        if file is not None:
            self._origin.file = slice_of(file)
        if names:
            self._brokers = <Slice*>calloc(<size_t>len(names), sizeof(Slice))
            if self._brokers == NULL:
                raise MemoryError
            for i, name in enumerate(names):
                self._brokers[<int>i] = slice_of(name)
            self._origin.brokers = self._brokers
        return 0

    cdef bint _is_plain(self, const Record* r, bint body) noexcept nogil:
        """Whether the record is returned as stored."""
        if self._unwrap and is_to_unwrap(r):
            return False
        return not (body and self._decompress and r.sys_flag & RC_FLAG_COMPRESSED and r.body_len > 0)

    cdef bint _open(self, const Record* r, bint body) except -1:
        """Decompress, or split an inner batch, into _parts. False: impossible, _fault has the reason.

        Called between enter() and leave().
        """
        cdef bytes other
        cdef Record part
        cdef size_t pos = 0, room
        cdef int64_t queue_offset = r.queue_offset      # not INNER_BASE: RocketMQ's clients also count from here
        cdef int kind = (r.sys_flag & RC_FLAG_COMPRESSION_MASK) >> RC_FLAG_COMPRESSION_SHIFT
        cdef bint batch = self._unwrap and is_to_unwrap(r)
        if r.sys_flag & RC_FLAG_COMPRESSED and r.body_len > 0 and (self._decompress or batch):
            try:
                other = compression.decompress(kind, <bytes>r.body[:r.body_len], self._limit)
            except compression.BadBody as error:
                self._fault = error.args[0]
                return False
            except MissingCodecError as error:
                self._fault = "missing_codec"
                self._no_codec = error
                return False
        else:
            other = <bytes>r.body[:r.body_len]
        self._other = other
        self._part_count = 0
        part = r[0]
        if not batch:
            part.body = <const uint8_t*>PyBytes_AS_STRING(other)
            part.body_len = <int32_t>len(other)
            self._add_part(&part)
            return True
        room = <size_t>len(other)
        while pos < room:
            if parse_entry(<const uint8_t*>PyBytes_AS_STRING(other) + pos, room - pos, &part) != RC_OK:
                self._fault = "bad_inner_batch"
                return False
            pos += <size_t>part.size
            part.size = r.size
            part.queue_offset = queue_offset
            queue_offset += 1
            if self._filter.verdict_of_content(&part) == KEEP:
                self._add_part(&part)
        return True

    cdef int _lose(self, Walker w, const Record* r) except -1:
        """Report a record that _open() could not open: raise, or add it to the walker's damage."""
        if self._fault == "missing_codec" and w._raise and not w.is_cut():
            where = f"{w._file}: " if w._file is not None else ""
            raise MissingCodecError(
                f"{where}physical offset {r.phy_offset}: {self._no_codec}; decompress=False returns the stored body"
            )
        return w.lost(r, self._fault)

    cdef int _add_part(self, const Record* part) except -1:
        cdef void* p
        if self._part_count == self._part_room:
            p = realloc(self._parts, <size_t>(2 * self._part_room + 16) * sizeof(Record))
            if p == NULL:
                raise MemoryError
            self._parts = <Record*>p
            self._part_room = 2 * self._part_room + 16
        self._parts[self._part_count] = part[0]
        self._part_count += 1
        return 0

    # ---- messages

    cdef list _messages(self):
        """Return the messages of the next block that has some; empty at the end."""
        cdef list out = []
        cdef bytes raw
        cdef rc_guard guard
        cdef Walker w
        cdef const Record* r
        cdef int i, first
        cdef int64_t opened     # bytes of decompressed bodies and inner batches in out
        while not out:
            if self._walker is None or self._at >= self._walker._count:
                if not self._advance():
                    return out
            w = self._walker
            first = self._at
            opened = 0
            w.enter(&guard)
            try:
                while self._at < w._count and opened < self._batch_bytes and len(out) < LIST_MESSAGES:
                    r = &w._block[self._at]
                    if self._is_plain(r, True):
                        out.append(message_of(r, r, None, None, w._file, broker_of(w, r)))
                    elif self._open(r, True):
                        opened += len(self._other)
                        raw = copy_of(r)
                        for i in range(self._part_count):
                            out.append(message_of(&self._parts[i], r, raw, self._other, w._file, broker_of(w, r)))
                    elif out and w._raise:
                        break       # return the messages before it first
                    else:
                        self._lose(w, r)
                    self._at += 1
            finally:
                w.leave(&guard)
            if w.cut_in_block(first):
                out = []
            elif self._where is not None:
                out = [m for m in out if self._where(m)]
        self.records += len(out)
        return out

    # ---- batches

    def next_batch(self):
        """Return the next Batch, or None at the end.

        A batch has about batch_bytes of records, plus at most a part of a block: 256 records, or one record that is
        larger than 512 KiB. An error is raised after the records before it were returned.
        """
        cdef BatchBuffers* rows
        cdef Batch batch
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error
        rows = rows_new(&self._selected)
        if rows == NULL:
            raise MemoryError
        batch = batch_of(rows)
        try:
            self._fill(rows)
        except Exception as error:
            if rows.rows == 0:
                raise
            self._raised = error
        rc_stream_end()
        self.records += rows.rows
        return batch if rows.rows > 0 else None

    def count(self):
        """Count the messages."""
        self._selected.count = 0
        self._selected.bits = 0
        while self.next_batch() is not None:
            pass
        return self.records

    cdef int _fill(self, BatchBuffers* rows) except -1:
        cdef rc_guard guard
        cdef Walker w
        cdef int64_t before, bytes_before
        cdef bint more
        cdef int first
        while rows.bytes < self._batch_bytes:
            if self._walker is not None and self._where is None and self._at >= self._walker._count:
                self._run(rows)
                if rows.bytes >= self._batch_bytes:
                    return 0
            if self._walker is None or self._at >= self._walker._count:
                if not self._advance():
                    return 0
            w = self._walker
            before = rows.rows
            bytes_before = rows.bytes
            first = self._at
            w.enter(&guard)
            try:
                more = self._take_block(rows, w)
            finally:
                w.leave(&guard)
            if w.is_cut():
                cut_back(rows, before, bytes_before)
                w.cut_in_block(first)
            elif not more:
                return 0
        return 0

    cdef int _run(self, BatchBuffers* rows) except -1:
        """The common case, without the GIL: add blocks of plain records one after the other.

        Ends when rows is full, after STEP_BYTES, or at anything but a plain record. The remaining records are in the
        walker's block (from _at on) or at its position, and the caller handles them.
        """
        cdef Walker w = self._walker
        with nogil:
            self._run_blocks(rows, w)
        w._forget_pages(w._pos)
        return 0

    cdef void _run_blocks(self, BatchBuffers* rows, Walker w) noexcept nogil:
        cdef rc_guard guard
        cdef size_t stop = w._pos + STEP_BYTES
        cdef bint body = self._selected.bits >> COL_BODY & 1, going = not w._done
        cdef int64_t before, bytes_before
        cdef int rc, i
        w.enter(&guard)
        while going and rows.bytes < self._batch_bytes and w._pos < stop:
            rc = w._fill()
            self._at = 0
            if w._count == 0 or w.is_cut():
                break
            for i in range(w._count):
                going = going and self._is_plain(&w._block[i], body)
            if not going:
                break
            before = rows.rows
            bytes_before = rows.bytes
            if append(rows, w._block, w._count, w._buf + w._len, &self._origin) != RC_OK:
                break
            if w.is_cut():
                cut_back(rows, before, bytes_before)
                break
            self._at = w._count
            going = rc == RC_OK
        w.leave(&guard)

    cdef bint _take_block(self, BatchBuffers* rows, Walker w) except -1:
        """Add the rest of the block to rows; return False if rows becomes full first."""
        cdef int first, rc
        cdef bint body = self._selected.bits >> COL_BODY & 1
        cdef const Record* r
        while self._at < w._count:
            first = self._at
            if self._where is None:
                while self._at < w._count and self._is_plain(&w._block[self._at], body):
                    self._at += 1
            if self._at > first:
                with nogil:
                    rc = append(rows, &w._block[first], self._at - first, w._buf + w._len, &self._origin)
                if rc == RC_MORE and rows.rows > 0:
                    self._at = first
                    return False
                check(rc)
                continue
            r = &w._block[self._at]
            if self._is_plain(r, body or self._where is not None):
                self._other = None
                self._part_count = 0
                self._add_part(r)
            elif not self._open(r, body):
                if w._raise and rows.rows > 0:
                    return False        # return the records before it first
                self._lose(w, r)
                self._at += 1
                continue
            if self._where is not None and not self._ask(r, w):
                return True             # the file was cut: the caller checks for this, too
            rc = append(rows, self._parts, self._part_count, NULL, &self._origin)
            if rc == RC_MORE and rows.rows > 0:
                return False
            check(rc)
            self._at += 1
            if self._other is not None:
                rows.bytes += len(self._other)
                if rows.bytes >= self._batch_bytes:
                    return False
        return True

    cdef bint _ask(self, const Record* r, Walker w) except -1:
        """Keep those of _parts that `where` selects; return False if the file was cut and they are invalid."""
        cdef bytes raw = copy_of(r)
        cdef int i, kept = 0
        if w.is_cut():
            return False
        for i in range(self._part_count):
            if self._where(message_of(&self._parts[i], r, raw, self._other, w._file, broker_of(w, r))):
                self._parts[kept] = self._parts[i]
                kept += 1
        self._part_count = kept
        return True
