# cython: language_level=3
"""The memory of a batch: the growing buffers of its columns, and the references to them.

Released buffers are kept in a small pool, because the first access to new memory costs as much as copying into it.
"""
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport RC_LARGE_BYTES, rc_map_grow, rc_map_own, rc_unmap
from rocketc.read._message cimport (
    COLUMNS, COL_BODY, COL_BODY_CRC, COL_BORN_TIMESTAMP, COL_FLAG, COL_PHYSICAL_OFFSET, COL_PREPARED_OFFSET,
    COL_PROPERTIES, COL_QUEUE_ID, COL_QUEUE_OFFSET, COL_RECONSUME_TIMES, COL_STORE_SIZE, COL_STORE_TIMESTAMP,
    COL_SYS_FLAG,
)

cdef extern from *:
    """
    static void *rc_pool[4]; /* unused batches; each is taken or returned with one atomic exchange */
    enum { RC_POOL = sizeof rc_pool / sizeof *rc_pool };
    static void *rc_pool_take(int i) { return __atomic_exchange_n(&rc_pool[i], NULL, __ATOMIC_ACQUIRE); }
    static int rc_pool_give(int i, void *p)
    {
        void *none = NULL;
        return __atomic_compare_exchange_n(&rc_pool[i], &none, p, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    static int rc_count(int *refs, int by) { return __atomic_add_fetch(refs, by, __ATOMIC_ACQ_REL); }
    """
    enum:
        RC_POOL
    void* rc_pool_take(int i) noexcept nogil
    bint rc_pool_give(int i, void* p) noexcept nogil
    int rc_count(int* refs, int by) noexcept nogil

cdef enum:
    PAGE = 4096
    SMALL_BYTES = 1 << 20       # a buffer that exceeds it becomes a large one at once; only touched pages use memory
    POOLED_BYTES = 96 << 20     # a larger batch is not kept in the pool


cdef Kind kind_of(int column) noexcept nogil:
    if column == COL_PROPERTIES:
        return KIND_MAP
    if column == COL_BODY:
        return KIND_BINARY
    if column == COL_STORE_TIMESTAMP or column == COL_BORN_TIMESTAMP:
        return KIND_TIMESTAMP
    if column == COL_QUEUE_OFFSET or column == COL_PHYSICAL_OFFSET or column == COL_PREPARED_OFFSET:
        return KIND_INT64
    if (
        column == COL_QUEUE_ID or column == COL_FLAG or column == COL_SYS_FLAG or column == COL_RECONSUME_TIMES
        or column == COL_BODY_CRC or column == COL_STORE_SIZE
    ):
        return KIND_INT32
    return KIND_STRING


cdef int reserve(Buffer* b, size_t need) noexcept nogil:
    """Make room for at least `need` bytes; return RC_OK, or an errno if nothing has changed."""
    cdef size_t room
    cdef int rc
    if need <= b.room:
        return RC_OK
    room = (max(need, 2 * b.room) + PAGE - 1) // PAGE * PAGE
    if room > SMALL_BYTES:
        room = (room + RC_LARGE_BYTES - 1) // RC_LARGE_BYTES * RC_LARGE_BYTES * 2
    if b.p == NULL:
        rc = rc_map_own(room, &b.p)
    else:
        rc = rc_map_grow(&b.p, b.room, room)
    if rc == RC_OK:
        b.room = room
    return rc


cdef BatchBuffers* rows_new(const Selection* selected) noexcept nogil:
    """Return an empty batch of these columns with one reference, or NULL if memory is exhausted."""
    cdef BatchBuffers* rows
    cdef int i
    for i in range(RC_POOL):
        rows = <BatchBuffers*>rc_pool_take(i)
        if rows != NULL:
            break
    else:
        rows = <BatchBuffers*>calloc(1, sizeof(BatchBuffers))
        if rows == NULL:
            return NULL
    rows.refs = 1
    rows.selected = selected[0]
    rows.rows = 0
    rows.entries = 0
    rows.bytes = 0
    for i in range(COLUMNS_STORED):
        rows.col[i].nulls = 0
        if not selected.bits >> (i if i < COLUMNS else <int>COL_PROPERTIES) & 1:
            continue
        # an Arrow array without rows has one offset
        if reserve(&rows.col[i].offsets, PAGE) != RC_OK:
            rows_drop(rows)
            return NULL
        memset(rows.col[i].offsets.p, 0, sizeof(int32_t))
    return rows


cdef void rows_drop(BatchBuffers* rows) noexcept nogil:
    cdef int i
    for i in range(COLUMNS_STORED):
        unmap(&rows.col[i].values)
        unmap(&rows.col[i].offsets)
        unmap(&rows.col[i].valid)
    free(rows)


cdef void unmap(Buffer* b) noexcept nogil:
    if b.p != NULL:
        rc_unmap(b.p, b.room)


cdef void rows_keep(BatchBuffers* rows) noexcept nogil:
    """Add a reference."""
    rc_count(&rows.refs, 1)


cdef void rows_free(BatchBuffers* rows) noexcept nogil:
    """Release a reference; may be called by any thread, with or without the GIL."""
    cdef size_t held = 0
    cdef int i
    if rc_count(&rows.refs, -1) > 0:
        return
    for i in range(COLUMNS_STORED):
        held += rows.col[i].values.room + rows.col[i].offsets.room
    if held <= POOLED_BYTES:
        for i in range(RC_POOL):
            if rc_pool_give(i, rows):
                return
    rows_drop(rows)
