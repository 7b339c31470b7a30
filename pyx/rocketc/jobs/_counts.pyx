# cython: language_level=3
"""Count messages by group: batches in, sums out.

The key of a group consists of the values of its dimensions. A number takes 8 bytes; a text takes 4 bytes for its
length, and its own bytes. All keys are in one buffer, and a hash table with open addressing finds them.
"""
import os

from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy

from rocketc.c.layout cimport RC_FLAG_INNER_BATCH, RC_PROPERTIES_MAX_BYTES
from rocketc.read._arrow cimport Batch
from rocketc.read._column_buffers cimport BatchBuffers
from rocketc.read._message cimport (
    COL_BORN_HOST, COL_BROKER_NAME, COL_KEYS, COL_PHYSICAL_OFFSET, COL_QUEUE_ID, COL_STORE_HOST, COL_STORE_SIZE,
    COL_STORE_TIMESTAMP, COL_SYS_FLAG, COL_TAGS, COL_TOPIC,
)

from rocketc.read import _arrow

cdef extern from *:
    """
    static inline uint64_t rc_mix(uint64_t a, uint64_t b)
    {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    /* Hash n bytes at p. The seed is secret, so that a producer cannot choose keys that collide in one slot. */
    static inline uint64_t rc_key_hash(const uint8_t *p, size_t n, const uint64_t *seed)
    {
        uint64_t h = seed[0] ^ n, v;
        for (; n > 8; p += 8, n -= 8) {
            memcpy(&v, p, 8);
            h = rc_mix(h ^ v, seed[1]);
        }
        v = 0;
        memcpy(&v, p, n);
        return rc_mix(rc_mix(h ^ v, seed[1]), seed[2]);
    }
    static inline int rc_top_bit(uint32_t v) { return 31 - __builtin_clz(v | 1u); }
    """
    uint64_t rc_key_hash(const uint8_t* p, size_t n, const uint64_t* seed) noexcept nogil
    int rc_top_bit(uint32_t v) noexcept nogil

cdef extern from "<errno.h>" nogil:
    enum:
        ENOMEM

cdef enum Kind:
    BY_TEXT
    BY_NUMBER
    BY_TIME                     # start of the interval of `width` with the store timestamp
    BY_SIZE                     # the largest power of two up to the stored size

cdef enum:
    DIMENSIONS_MAX = 12         # as many as there are names
    TEXT_MAX = 3 * RC_PROPERTIES_MAX_BYTES      # a topic or property, even if all of it becomes U+FFFD
    SUB_BITS = 5                                # a size bucket is as wide as 1/32 of its power of two
    SUB_BUCKETS = 1 << SUB_BITS
    SIZE_BUCKETS = (32 - SUB_BITS) * SUB_BUCKETS
    US_PER_MS = 1000

cdef uint32_t NO_TEXT = 0xFFFFFFFFu
cdef int64_t NO_TIME = INT64_MIN                # a store timestamp that does not fit into the column
cdef uint64_t[3] SEED

ctypedef struct Dimension:
    int kind
    int column
    int64_t width               # ms; for BY_TIME

ctypedef struct Group:
    uint64_t hash
    size_t key                  # start of its key
    uint32_t key_len
    int32_t smallest            # stored bytes of a record
    int32_t largest
    int64_t messages
    int64_t bytes               # stored bytes
    int64_t first               # store timestamps in ms; NO_TIME: none
    int64_t last

# The sort keys of largest().
ctypedef struct Ranked:
    int64_t first               # larger values come first
    int64_t second
    const uint8_t* key          # then by memcmp(), so that the order is always the same
    const Group* group

_SECOND = 1000
_DIMENSIONS = {
    "topic": (BY_TEXT, COL_TOPIC, 0),
    "queue": (BY_NUMBER, COL_QUEUE_ID, 0),
    "broker": (BY_TEXT, COL_BROKER_NAME, 0),
    "tag": (BY_TEXT, COL_TAGS, 0),
    "key": (BY_TEXT, COL_KEYS, 0),
    "host": (BY_TEXT, COL_BORN_HOST, 0),
    "store-host": (BY_TEXT, COL_STORE_HOST, 0),
    "second": (BY_TIME, COL_STORE_TIMESTAMP, _SECOND),
    "minute": (BY_TIME, COL_STORE_TIMESTAMP, 60 * _SECOND),
    "hour": (BY_TIME, COL_STORE_TIMESTAMP, 3600 * _SECOND),
    "day": (BY_TIME, COL_STORE_TIMESTAMP, 24 * 3600 * _SECOND),
    "size": (BY_SIZE, COL_STORE_SIZE, 0),
}
DIMENSIONS = tuple(_DIMENSIONS)

_ALWAYS = (COL_STORE_SIZE, COL_STORE_TIMESTAMP, COL_SYS_FLAG, COL_PHYSICAL_OFFSET)

for _i in range(3):
    SEED[_i] = <uint64_t>int.from_bytes(os.urandom(8), "little") | 1


cdef inline bint is_set(const uint8_t* bits, int64_t row) noexcept nogil:
    return bits[row >> 3] >> (row & 7) & 1


cdef inline int64_t time_at(const BatchBuffers* rows, int64_t row) noexcept nogil:
    """Return the store timestamp in ms, or NO_TIME."""
    if rows.col[COL_STORE_TIMESTAMP].nulls > 0 and not is_set(rows.col[COL_STORE_TIMESTAMP].valid.p, row):
        return NO_TIME
    return (<const int64_t*>rows.col[COL_STORE_TIMESTAMP].values.p)[row] // US_PER_MS


cdef inline int64_t begin_of(int64_t ms, int64_t width) noexcept nogil:
    cdef int64_t rest = ms % width
    return ms - rest - (width if rest < 0 else 0)


cdef inline int bucket_of(uint32_t size) noexcept nogil:
    cdef int top = rc_top_bit(size)
    if top <= SUB_BITS:
        return <int>size
    return (top - SUB_BITS + 1) * SUB_BUCKETS + <int>(size >> (top - SUB_BITS) & (SUB_BUCKETS - 1))


cdef inline int64_t end_of_bucket(int bucket) noexcept nogil:
    """Return the largest size in a bucket."""
    cdef int shift = bucket // SUB_BUCKETS - 1
    if shift <= 0:
        return bucket
    return ((<int64_t>SUB_BUCKETS + bucket % SUB_BUCKETS + 1) << shift) - 1


cdef inline void clear(Group* g) noexcept nogil:
    g.messages = 0
    g.bytes = 0
    g.first = NO_TIME
    g.last = NO_TIME
    g.smallest = INT32_MAX
    g.largest = 0


cdef inline void count(Group* g, int64_t bytes, int32_t size, int64_t when) noexcept nogil:
    g.messages += 1
    g.bytes += bytes
    g.smallest = min(g.smallest, size)
    g.largest = max(g.largest, size)
    if when != NO_TIME:
        if g.first == NO_TIME or when < g.first:
            g.first = when
        if when > g.last:
            g.last = when


cdef void unite(Group* g, const Group* other) noexcept nogil:
    g.messages += other.messages
    g.bytes += other.bytes
    g.smallest = min(g.smallest, other.smallest)
    g.largest = max(g.largest, other.largest)
    if other.first != NO_TIME and (g.first == NO_TIME or other.first < g.first):
        g.first = other.first
    g.last = max(g.last, other.last)


cdef int compare(const void* a, const void* b) noexcept nogil:
    cdef const Ranked* x = <const Ranked*>a
    cdef const Ranked* y = <const Ranked*>b
    cdef int order
    if x.first != y.first:
        return -1 if x.first > y.first else 1
    if x.second != y.second:
        return -1 if x.second > y.second else 1
    order = memcmp(x.key, y.key, min(x.group.key_len, y.group.key_len))
    return order if order != 0 else <int>(x.group.key_len > y.group.key_len) - <int>(x.group.key_len < y.group.key_len)


cdef class GroupCounter:
    """Sums the messages of batches by group. Use it in one thread at a time; two counters can be merged.

    by          names in DIMENSIONS that define a group, in order; if empty, all messages are one group
    max_groups  messages of all further groups are summed in `more`

    The stored bytes of an inner batch count once, with its first message. Text values are those of the columns with
    these names; `tag` and `key` are the whole properties TAGS and KEYS.

    >>> import rocketc
    >>> counter = GroupCounter(["topic"])
    >>> scan = rocketc.decode(rocketc.encode("orders", b"hi"), columns=counter.columns)
    >>> for batch in scan.run(counter.columns).batches():
    ...     counter.add(batch)
    >>> list(counter)
    [(('orders',), 1, 99, 0, 0, 99, 99)]
    """

    cdef:
        Dimension _dimensions[DIMENSIONS_MAX]
        int _count
        uint64_t _needs         # bits of columns
        size_t _max
        Group* _groups          # _used groups, in the order of their first message
        size_t _used
        size_t _room
        uint32_t* _slots        # number of a group + 1, or 0: free. _mask + 1 slots, at most half of them used
        size_t _mask
        uint8_t* _keys
        size_t _keys_used
        size_t _keys_room
        uint8_t* _key           # the key of the current row
        Group _total
        Group _more
        int64_t _sizes[SIZE_BUCKETS]    # records by stored size
        int64_t _record         # physical offset of the last record, or -1
    cdef readonly tuple by

    def __cinit__(self, by=(), size_t max_groups=1 << 20):
        self.by = tuple(by)
        for name in self.by:
            if name not in _DIMENSIONS:
                raise ValueError(f"by: unknown dimension {name!r}; the dimensions are {', '.join(DIMENSIONS)}")
        if len(set(self.by)) < len(self.by):
            raise ValueError("by: a name is given twice")
        if len(self.by) > DIMENSIONS_MAX:
            raise ValueError(f"by: more than {DIMENSIONS_MAX} names")
        if not 0 < max_groups < 1 << 31:
            raise ValueError(f"max_groups={max_groups}: must be at least 1 and less than 2^31")
        for column in _ALWAYS:
            self._needs |= <uint64_t>1 << <int>column
        for name in self.by:
            kind, column, width = _DIMENSIONS[name]
            self._dimensions[self._count] = Dimension(kind, column, width)
            self._needs |= <uint64_t>1 << <int>column
            self._count += 1
        self._max = max_groups
        self._record = -1
        self._mask = 63
        self._slots = <uint32_t*>calloc(self._mask + 1, sizeof(uint32_t))
        self._key = <uint8_t*>malloc(<size_t>(self._count + 1) * (TEXT_MAX + sizeof(uint64_t)))
        if self._slots == NULL or self._key == NULL:
            raise MemoryError
        clear(&self._total)
        clear(&self._more)

    def __dealloc__(self):
        free(self._groups)
        free(self._slots)
        free(self._keys)
        free(self._key)

    @property
    def columns(self):
        """The columns that batches must have."""
        return [name for i, name in enumerate(_arrow.COLUMN_NAMES) if self._needs >> <int>i & 1]

    @property
    def total(self):
        """The sums of all messages, as a group without values."""
        return self._as_tuple(&self._total, ())

    @property
    def more(self):
        """The sums of the messages whose groups exceed max_groups, as in `total`."""
        return self._as_tuple(&self._more, ())

    def __len__(self):
        return <Py_ssize_t>self._used

    def __iter__(self):
        """Yield each group: values, messages, bytes, first and last store timestamp (ms), smallest and largest record.

        A value is a str, an int, or None if the messages are without a value. An int is a queue id, the ms at which a
        second, minute, hour or day begins, or the power of two that a size reaches.
        """
        cdef size_t i
        for i in range(self._used):
            yield self._as_tuple(&self._groups[i], self._values(&self._groups[i]))

    def largest(self, size_t number, bint by_messages=False):
        """Return the `number` groups with the most bytes (or messages), and the sums of all others as in `total`.

        Groups with equal bytes are sorted by messages (or the reverse); then the order is arbitrary but stable.
        """
        cdef Ranked* ranked = <Ranked*>malloc((self._used + 1) * sizeof(Ranked))
        cdef const Group* g
        cdef Group rest
        cdef size_t i
        cdef list out = []
        if ranked == NULL:
            raise MemoryError
        try:
            with nogil:
                for i in range(self._used):
                    g = &self._groups[i]
                    ranked[i].first = g.messages if by_messages else g.bytes
                    ranked[i].second = g.bytes if by_messages else g.messages
                    ranked[i].key = self._keys + g.key
                    ranked[i].group = g
                qsort(ranked, self._used, sizeof(Ranked), compare)
                rest = self._more
                for i in range(min(number, self._used), self._used):
                    unite(&rest, ranked[i].group)
            for i in range(min(number, self._used)):
                out.append(self._as_tuple(ranked[i].group, self._values(ranked[i].group)))
        finally:
            free(ranked)
        return out, self._as_tuple(&rest, ())

    def percentile(self, double part):
        """Return a size that `part` (0 to 1) of the records do not exceed, up to 1/32 too large; None if empty."""
        cdef int64_t all = 0, seen = 0
        cdef int i
        for i in range(SIZE_BUCKETS):
            all += self._sizes[i]
        if all == 0:
            return None
        for i in range(SIZE_BUCKETS):
            seen += self._sizes[i]
            if seen > 0 and <double>seen >= part * <double>all:
                return max(min(end_of_bucket(i), <int64_t>self._total.largest), <int64_t>self._total.smallest)

    def add(self, Batch batch not None):
        """Count the messages of a batch, without the GIL. Add the batches of a file in their order.

        Raises ValueError if a needed column is missing, and MemoryError; a part of the batch may be counted then.
        """
        cdef const BatchBuffers* rows = batch.buffers
        cdef int rc
        if rows.selected.bits & self._needs != self._needs:
            raise ValueError(f"the batch must have the columns {', '.join(self.columns)}")
        with nogil:
            rc = self._add(rows)
        if rc != 0:
            raise MemoryError

    def end_file(self):
        """Start another file: its physical offsets may be the same."""
        self._record = -1

    def merge(self, GroupCounter other not None):
        """Add the sums of another counter with the same dimensions. After a MemoryError a part may have been added."""
        cdef size_t i
        cdef int bucket
        cdef Group* mine
        cdef const Group* theirs
        if other.by != self.by:
            raise ValueError(f"cannot merge the dimensions {self.by} and {other.by}")
        for i in range(other._used):
            theirs = &other._groups[i]
            mine = self._find(other._keys + theirs.key, theirs.key_len, theirs.hash)
            if mine == NULL:
                raise MemoryError
            unite(mine, theirs)
        unite(&self._more, &other._more)
        unite(&self._total, &other._total)
        for bucket in range(SIZE_BUCKETS):
            self._sizes[bucket] += other._sizes[bucket]

    cdef tuple _as_tuple(self, const Group* g, tuple values):
        cdef bint none = g.messages == 0
        return (
            values, g.messages, g.bytes, None if g.first == NO_TIME else g.first, None if g.last == NO_TIME else g.last,
            None if none else g.smallest, None if none else g.largest,
        )

    cdef tuple _values(self, const Group* g):
        cdef const uint8_t* p = self._keys + g.key
        cdef list out = []
        cdef uint32_t n
        cdef int64_t v
        cdef int i
        for i in range(self._count):
            if self._dimensions[i].kind == BY_TEXT:
                memcpy(&n, p, sizeof(n))
                p += sizeof(n)
                if n == NO_TEXT:
                    out.append(None)
                else:
                    out.append((<const char*>p)[:n].decode("utf-8", "replace"))
                    p += n
            else:
                memcpy(&v, p, sizeof(v))
                p += sizeof(v)
                out.append(None if v == NO_TIME else v)
        return tuple(out)

    cdef int _add(self, const BatchBuffers* rows) noexcept nogil:
        cdef const int32_t* sizes = <const int32_t*>rows.col[COL_STORE_SIZE].values.p
        cdef const int32_t* flags = <const int32_t*>rows.col[COL_SYS_FLAG].values.p
        cdef const int64_t* offsets = <const int64_t*>rows.col[COL_PHYSICAL_OFFSET].values.p
        cdef Group* g = NULL
        cdef int64_t row, bytes, when
        cdef uint32_t n
        for row in range(rows.rows):
            n = self._make_key(rows, row)
            # adjacent messages mostly belong to one group
            if g == NULL or g == &self._more or g.key_len != n or memcmp(self._keys + g.key, self._key, n) != 0:
                g = self._find(self._key, n, rc_key_hash(self._key, n, SEED))
                if g == NULL:
                    return ENOMEM
            bytes = sizes[row]
            if flags[row] & RC_FLAG_INNER_BATCH and offsets[row] == self._record:
                bytes = 0
            else:
                self._sizes[bucket_of(<uint32_t>sizes[row])] += 1
            self._record = offsets[row]
            when = time_at(rows, row)
            count(g, bytes, sizes[row], when)
            count(&self._total, bytes, sizes[row], when)
        return 0

    cdef uint32_t _make_key(self, const BatchBuffers* rows, int64_t row) noexcept nogil:
        """Write the key of a row to _key; return its length."""
        cdef uint8_t* out = self._key
        cdef const Dimension* d
        cdef int i
        for i in range(self._count):
            d = &self._dimensions[i]
            if d.kind == BY_TEXT:
                out = put_text(out, rows, d.column, row)
            elif d.kind == BY_NUMBER:
                out = put_number(out, (<const int32_t*>rows.col[d.column].values.p)[row])
            elif d.kind == BY_SIZE:
                out = put_number(out, <int64_t>1 << rc_top_bit((<const uint32_t*>rows.col[d.column].values.p)[row]))
            else:
                out = put_time(out, time_at(rows, row), d.width)
        return <uint32_t>(out - self._key)

    cdef Group* _find(self, const uint8_t* key, uint32_t n, uint64_t hash) noexcept nogil:
        """Return the group with this key: existing, new, or _more if there are too many; NULL if out of memory."""
        cdef size_t i = hash & self._mask
        cdef Group* g
        while self._slots[i] != 0:
            g = &self._groups[self._slots[i] - 1]
            if g.hash == hash and g.key_len == n and memcmp(self._keys + g.key, key, n) == 0:
                return g
            i = (i + 1) & self._mask
        if self._used == self._max:
            return &self._more
        if not self._has_room(n):
            return NULL
        i = hash & self._mask           # the table may have grown
        while self._slots[i] != 0:
            i = (i + 1) & self._mask
        g = &self._groups[self._used]
        g.hash = hash
        g.key = self._keys_used
        g.key_len = n
        clear(g)
        memcpy(self._keys + g.key, key, n)
        self._keys_used += n
        self._used += 1
        self._slots[i] = <uint32_t>self._used
        return g

    cdef bint _has_room(self, uint32_t key_len) noexcept nogil:
        """Make room for one more group; return False without a change if memory is exhausted."""
        cdef size_t room
        cdef void* p
        if self._used == self._room:
            room = 2 * self._room + 16
            p = realloc(self._groups, room * sizeof(Group))
            if p == NULL:
                return False
            self._groups = <Group*>p
            self._room = room
        if self._keys_room - self._keys_used < key_len or self._keys == NULL:
            room = 2 * self._keys_room + key_len + 256
            p = realloc(self._keys, room)
            if p == NULL:
                return False
            self._keys = <uint8_t*>p
            self._keys_room = room
        return 2 * (self._used + 1) <= self._mask or self._has_more_slots()

    cdef bint _has_more_slots(self) noexcept nogil:
        cdef size_t mask = 2 * self._mask + 1, i, at
        cdef uint32_t* slots = <uint32_t*>calloc(mask + 1, sizeof(uint32_t))
        if slots == NULL:
            return False
        for i in range(self._used):
            at = self._groups[i].hash & mask
            while slots[at] != 0:
                at = (at + 1) & mask
            slots[at] = <uint32_t>(i + 1)
        free(self._slots)
        self._slots = slots
        self._mask = mask
        return True


cdef inline uint8_t* put_number(uint8_t* out, int64_t v) noexcept nogil:
    memcpy(out, &v, sizeof(v))
    return out + sizeof(v)


cdef inline uint8_t* put_time(uint8_t* out, int64_t ms, int64_t width) noexcept nogil:
    return put_number(out, ms if ms == NO_TIME else begin_of(ms, width))


cdef inline uint8_t* put_text(uint8_t* out, const BatchBuffers* rows, int column, int64_t row) noexcept nogil:
    cdef const int32_t* offsets = <const int32_t*>rows.col[column].offsets.p + row
    cdef uint32_t n = <uint32_t>(offsets[1] - offsets[0])
    if rows.col[column].nulls > 0 and not is_set(rows.col[column].valid.p, row):
        n = NO_TEXT
    memcpy(out, &n, sizeof(n))
    out += sizeof(n)
    if n == NO_TEXT:
        return out
    memcpy(out, rows.col[column].values.p + offsets[0], n)
    return out + n
