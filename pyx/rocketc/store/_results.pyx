# cython: language_level=3
"""Results of reads: records are copied and checked by the read; messages are created on first use.

A unit of a consume queue or of the index gives the physical offset of a record. These claims are checked against the
copy of the record, which no other process can change.
"""
import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy

from rocketc.c.bytes cimport rc_get_i32
from rocketc.c.jhash cimport rc_jhash
from rocketc.c.layout cimport (
    RC_FLAG_COMPRESSED, RC_MSG_QUEUE_ID_AT, RC_PROPERTY_INNER_MULTI_DISPATCH, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    RC_PROPERTY_TAGS,
)
from rocketc.c.prefetch cimport LINE_BYTES, rc_prefetch
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport RC_BAD_UNIT, RC_FILE_CUT, RC_MORE, RC_OK
from rocketc.files._append_file cimport FileState, file_release
from rocketc.files._file_queue cimport queue_hold
from rocketc.files._guard cimport enter_writing, leave as guard_leave
from rocketc.files._mapped_file_queue cimport MappedFileQueue
from rocketc.format._record cimport Record, crc32, is_to_unwrap, parse_entry, parse_record, verify_record
from rocketc.format._text_table cimport KEEP, TextTable
from rocketc.read._message cimport Message, message_in
from rocketc.read._opened_records cimport add_messages

from rocketc.rendering import html_of

cdef enum:
    PATHS_KEPT = 4096           # most paths in the cache of LogPaths
    FETCHED_BYTES = 512         # most bytes that fetch() prefetches

cdef object NOTHING = iter(())
next(NOTHING, None)                                 # an exhausted iterator can be shared

cdef int64_t LARGEST_EXT_ADDRESS = -2147483649      # tags codes up to here are addresses of ext units


cdef int read_flags(
    str crc, bint decompress, bint unwrap, bint views, bint exact, bint broker_limits,
) except -1:
    """Return the ReadFlags for the arguments of a read. Raises ValueError."""
    cdef int how = 0
    if crc == "body":
        how = READ_BODY_CRC
    elif crc == "full":
        how = READ_FULL_CRC
    elif crc != "none":
        raise ValueError(f"crc is {crc!r}; allowed are 'none', 'body', 'full'")
    if not decompress:
        how |= READ_STORED
    if not unwrap:
        how |= READ_WHOLE
    if views:
        how |= READ_VIEWS
    if not exact:
        how |= READ_LOOSE
    if broker_limits:
        how |= READ_BROKER
    return how


@cython.final
cdef class LogPaths:
    """Finds the path of the log file that covers a physical offset; caches the paths."""

    def __cinit__(self, MappedFileQueue log not None):
        self._log = log
        self._known = {}

    cdef str at(self, int64_t phy_offset):
        """Return the path of the file that covers an offset; if it does not exist, the path that it would have."""
        cdef FileState* f
        cdef int64_t size = self._log.q.file_size, number
        if self._last is not None and self._start <= phy_offset < self._start + size:
            return self._last           # nearly always
        number = phy_offset // size
        path = self._known.get(number)
        if path is None:
            if queue_hold(&self._log.q, phy_offset, &f) != RC_OK:
                return os.path.join(os.fsdecode(self._log.q.folders[0]), f"{number * size:020d}")
            path = os.fsdecode(f.path)
            file_release(f)
            if len(self._known) >= PATHS_KEPT:
                self._known.clear()
            self._known[number] = path
        self._last = path
        self._start = number * size
        return path


cdef object files_of(LogPaths paths, const PickedRecords* h):
    """Return the path of the file that has all records; if there are several files, a dict {number of file: path}."""
    cdef int64_t size = paths._log.q.file_size, start
    cdef dict found = None
    cdef str first = paths.at(h.rows[0].phy_offset)
    cdef int i
    start = h.rows[0].phy_offset // size * size if h.count > 1 else 0
    for i in range(1, h.count):
        if not start <= h.rows[i].phy_offset < start + size:
            start = h.rows[i].phy_offset // size * size
            if found is None:
                found = {h.rows[0].phy_offset // size: first}
            found[start // size] = paths.at(h.rows[i].phy_offset)
    return found if found is not None else first


cdef class TagFilter:
    """The tags that a get() selects: by their hash in the unit, and by their text in the record.

    tags   texts
    codes  hashes, for reads with exact_tags=False, which compare no texts; tags is () then
    """

    def __cinit__(self, tags, codes=()):
        cdef bytes utf8
        cdef int i
        names = [tags] if isinstance(tags, str) else list(tags)
        for item in names:
            if not isinstance(item, str):
                raise TypeError(f"tags: expected str, got {type(item).__name__}")
        wanted = sorted({tag.strip() for item in names for tag in item.split("||")} - {""})
        self._texts = TextTable()
        self._codes = <int32_t*>calloc(<size_t>(len(wanted) + len(codes)) + 1, sizeof(int32_t))
        if self._codes == NULL:
            raise MemoryError
        for i in range(<int>len(wanted)):
            utf8 = wanted[i].encode()
            self._codes[i] = rc_jhash(<const uint8_t*>PyBytes_AS_STRING(utf8), <size_t>len(utf8))
            self._texts.put(<const uint8_t*>PyBytes_AS_STRING(utf8), <int>len(utf8), KEEP)
        self._count = <int>len(wanted)
        for code in codes:
            self._codes[self._count] = code
            self._count += 1

    def __dealloc__(self):
        free(self._codes)

    @cython.final
    cdef bint fits(self, int64_t tags_code) noexcept nogil:
        """Return True if the low 32 bits of a tags code match; always True for an extension address."""
        cdef int i
        if tags_code <= LARGEST_EXT_ADDRESS:
            return True
        for i in range(self._count):
            if self._codes[i] == <int32_t>tags_code:
                return True
        return False

    cdef bint passes(self, const Record* r) noexcept nogil:
        """Return True if TAGS of a record or of a message in its inner batch matches, or if the batch is compressed."""
        cdef Record part
        cdef size_t pos = 0
        cdef int at = 0, n
        if not is_to_unwrap(r):
            n = rc_find_property(r.props, r.props_len, RC_PROPERTY_TAGS, &at)
            return n >= 0 and self._texts.get(r.props + at, n) == KEEP
        if r.sys_flag & RC_FLAG_COMPRESSED:
            return True
        while pos < <size_t>r.body_len:
            if parse_entry(r.body + pos, <size_t>r.body_len - pos, &part) != RC_OK:
                return True             # add_messages() raises the error
            n = rc_find_property(part.props, part.props_len, RC_PROPERTY_TAGS, &at)
            if n >= 0 and self._texts.get(part.props + at, n) == KEEP:
                return True
            pos += <size_t>part.size
        return False


# ------------------------------------------------------------------------------------------------- records of the log

cdef void fetch(const uint8_t* at, int64_t size) noexcept nogil:
    """Prefetch the first cache lines of the record that is read next.

    Without it, the reader would wait for several lines in turn, because fields decide which fields are read next.
    """
    cdef int64_t i = 0
    while i < size and i < FETCHED_BYTES:
        rc_prefetch(at + i)
        i += LINE_BYTES


cdef int cursor_seek(Cursor* c, int64_t phy_offset) noexcept nogil:
    """Hold the file that covers phy_offset, and set c.file to it. RC_OK, ENOENT, or an error of mapping the file."""
    cdef int rc
    if c.file != NULL and c.file.start <= phy_offset < c.file.start + c.log.file_size:
        return RC_OK
    cursor_leave(c)
    rc = queue_hold(c.log, phy_offset, &c.file)
    if rc != RC_OK:
        c.file = NULL
    return rc


cdef void cursor_enter(Cursor* c) noexcept nogil:
    """Guard the map of c.file: it may be read until cursor_rest(), cursor_leave() or cursor_seek() of another file."""
    if not c.guarded:
        enter_writing(&c.guard, c.file.base, c.file.size, &c.file.cut)
        c.guarded = True


cdef void cursor_rest(Cursor* c) noexcept nogil:
    """End the access that cursor_enter() began; the file stays held."""
    if c.guarded:
        guard_leave(&c.guard)
        c.guarded = False


cdef void cursor_leave(Cursor* c) noexcept nogil:
    cursor_rest(c)
    if c.file != NULL:
        file_release(c.file)
        c.file = NULL


cdef int picked_reserve(PickedRecords* h, int room) noexcept nogil:
    """Allocate room for at least `room` records in total: RC_OK or ENOMEM."""
    cdef PickedRecord* rows = &h.one
    if room <= h.room:
        return RC_OK
    if room > 1:
        rows = <PickedRecord*>realloc(h.rows if h.rows != &h.one else NULL, <size_t>room * sizeof(PickedRecord))
        if rows == NULL:
            return ENOMEM
        if h.rows == &h.one:
            rows[0] = h.one
    h.rows = rows
    h.room = room
    return RC_OK


cdef int picked_add(PickedRecords* h, int64_t phy_offset, int32_t size, int64_t queue_offset) noexcept nogil:
    """Add a record: RC_OK or ENOMEM."""
    cdef PickedRecord* t
    if h.count == h.room and picked_reserve(h, <int>(2 * h.room + 32 if h.room > 0 else 1)) != RC_OK:
        return ENOMEM
    t = &h.rows[h.count]
    t.phy_offset = phy_offset
    t.size = size
    t.queue_offset = queue_offset
    t.mapped = False
    h.count += 1
    h.bytes += size
    return RC_OK


cdef bint is_listed(const Record* r, const QueueIdentity* of, int64_t queue_offset) noexcept nogil:
    """Return True if a record is in a light queue at an offset, by the properties that list queues and offsets."""
    cdef int names_at = 0, offsets_at = 0, n, m, i
    cdef const uint8_t* name
    cdef const uint8_t* digits
    cdef const uint8_t* name_end
    cdef const uint8_t* digits_end
    cdef const uint8_t* end
    cdef int64_t offset
    n = rc_find_property(r.props, r.props_len, RC_PROPERTY_INNER_MULTI_DISPATCH, &names_at)
    m = rc_find_property(r.props, r.props_len, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET, &offsets_at)
    if n < 0 or m < 0:
        return False
    name = r.props + names_at
    name_end = name + n
    digits = r.props + offsets_at
    digits_end = digits + m
    while name < name_end and digits < digits_end:
        offset = 0
        while digits < digits_end and digits[0] != c",":
            if not c"0" <= digits[0] <= c"9" or offset > (INT64_MAX - 9) // 10:
                return False
            offset = 10 * offset + digits[0] - c"0"
            digits += 1
        digits += 1
        end = <const uint8_t*>memchr(name, c",", <size_t>(name_end - name))
        if end == NULL:
            end = name_end
        i = <int>(end - name)
        if i == of.topic_len and memcmp(name, of.topic, <size_t>i) == 0 and offset == queue_offset:
            return True
        name = end + 1
    return False


cdef int check_claim(PickedRecord* t, const uint8_t* at, const QueueIdentity* of, int how) noexcept nogil:
    """Check the record at `at` against the numbers of t and the queue, and parse it into t.r. RC_OK, or its fault."""
    cdef Record* r = &t.r
    cdef int rc = parse_record(at, <size_t>t.size, r)
    if rc != RC_OK:
        return rc if rc <= -10 else RC_BAD_UNIT
    if r.size != t.size:
        return RC_BAD_UNIT
    rc = verify_record(r, (how & READ_CRC) // READ_BODY_CRC, crc32, t.phy_offset)
    if rc != RC_OK or of == NULL:
        return rc
    if r.topic_len == of.topic_len and memcmp(r.topic, of.topic, <size_t>of.topic_len) == 0:
        if r.queue_offset == t.queue_offset and rc_get_i32(at + RC_MSG_QUEUE_ID_AT) == of.queue_id:
            return RC_OK
    if of.lmq and is_listed(r, of, t.queue_offset):
        return RC_OK
    return RC_BAD_UNIT


cdef int copy_record(Cursor* c, PickedRecords* h, uint8_t* dst, const QueueIdentity* of, int how) noexcept nogil:
    """Copy the picked records one after the other, and check them.

    dst  h.bytes of room
    of   queue of the records; NULL: do not check it
    Returns RC_OK, RC_MORE if a file was deleted (pick again), or the fault of row h.count; all before it are valid.
    """
    cdef PickedRecord* t
    cdef int i, rc = RC_OK, count = h.count
    h.bytes = 0
    h.special = False
    h.count = 0
    for i in range(count):
        t = &h.rows[i]
        rc = cursor_seek(c, t.phy_offset)
        if rc != RC_OK:
            rc = RC_MORE if rc == ENOENT else rc
            break
        cursor_enter(c)
        memcpy(dst + h.bytes, c.file.base + (t.phy_offset - c.file.start), <size_t>t.size)
        rc = check_claim(t, dst + h.bytes, of, how)
        if c.file.cut != 0:
            rc = RC_FILE_CUT
        if rc != RC_OK:
            break
        h.special |= is_special(&t.r)
        h.bytes += t.size
        h.count = i + 1
    cursor_rest(c)
    return rc


cdef int read_copies(Cursor* c, ReadResult answer, const QueueIdentity* of, int how) except? -1:
    """Call copy_record() with a new buffer of the answer."""
    cdef PickedRecords* h = &answer._picked
    cdef int64_t size = h.bytes
    cdef uint8_t* dst
    cdef int rc
    answer._buffer = PyBytes_FromStringAndSize(NULL, size)
    dst = <uint8_t*>PyBytes_AS_STRING(answer._buffer)
    with nogil:
        rc = copy_record(c, h, dst, of, how)
    if h.bytes < size:
        attach_copy(answer, dst)
    return rc


cdef int attach_copy(ReadResult answer, const uint8_t* copy) except -1:
    """Give the answer a buffer of the exact size of its records, and move their pointers to it.

    copy  the copied records; may be the answer's old buffer
    """
    cdef PickedRecords* h = &answer._picked
    cdef Record* r
    cdef ptrdiff_t shift
    cdef int i
    answer._buffer = PyBytes_FromStringAndSize(<const char*>copy, h.bytes)
    shift = <ptrdiff_t>(<uintptr_t>PyBytes_AS_STRING(answer._buffer) - <uintptr_t>copy)
    for i in range(h.count):
        r = &h.rows[i].r
        r.at += shift
        r.tail += shift
        r.body += shift
        r.topic += shift
        r.props += shift
    return 0


cdef list plain_messages(const PickedRecords* h, bytes raw, str path):
    """Return the messages of records that are used as stored; all records are in `raw` and in one file."""
    cdef list out = PyList_New(h.count)
    cdef Message m
    cdef int i
    for i in range(h.count):
        m = message_in(&h.rows[i].r, raw, None, path)
        Py_INCREF(m)
        PyList_SET_ITEM(out, i, m)      # steals the reference
    return out


@cython.freelist(16)
@cython.no_gc
cdef class ReadResult:
    """A sequence of messages, created on first use. They share one copy of their records."""

    def __init__(self):
        raise TypeError(f"a {type(self).__name__} can't be created directly: call a method of a MessageStore")

    def __dealloc__(self):
        if self._picked.rows != &self._picked.one:
            free(self._picked.rows)

    def _repr_html_(self):
        return html_of(self)

    cdef list _made(self):
        cdef list out = self._messages
        cdef const PickedRecord* t
        cdef int i, views = 0
        cdef str path = None
        cdef TextTable texts = None
        if out is not None:
            return out
        if isinstance(self._paths, str):
            path = self._paths
            if not self._picked.special and not self._how & READ_VIEWS:
                self._messages = plain_messages(&self._picked, self._buffer, path)
                return self._messages
        out = []
        if self._tags is not None and not self._how & READ_LOOSE:
            texts = self._tags._texts
        for i in range(self._picked.count):
            t = &self._picked.rows[i]
            if path is None or not isinstance(self._paths, str):
                path = self._paths[t.phy_offset // self._file_size]
            if t.mapped:
                out.append(message_in(&t.r, self._buffer, self._views[views], path))
                views += 1
            elif self._picked.special:
                add_messages(out, &t.r, self._buffer, path, self._how & READ_PLAIN, texts, self._offset)
            else:
                out.append(message_in(&t.r, self._buffer, None, path))
        self._messages = out
        return out

    @property
    def messages(self):
        """The messages, in the order of the queue. Raises CorruptRecordError for a body that can't be decompressed."""
        return self._made()

    @property
    def buffer(self):
        """The records as stored, one after the other, inner batches unopened; with views=True without mapped bodies."""
        return self._buffer

    @property
    def phy_offsets(self):
        """Physical offset of each record; an inner batch is one."""
        cdef int i
        return [self._picked.rows[i].phy_offset for i in range(self._picked.count)]

    def __iter__(self):
        return iter(self._made()) if self._picked.count > 0 else NOTHING

    def __len__(self):
        return len(self._made()) if self._picked.special else self._picked.count

    def __bool__(self):
        return self._picked.count > 0

    def __getitem__(self, item):
        return self._made()[item]
