"""The memory of a batch: the buffers of its columns, and who holds them."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from rocketc.read._message cimport COLUMNS

cdef enum:
    MAP_KEYS = COLUMNS          # the two children of `properties`
    MAP_VALUES = COLUMNS + 1
    COLUMNS_STORED = COLUMNS + 2

cdef enum Kind:
    KIND_INT32
    KIND_INT64
    KIND_TIMESTAMP              # us, UTC
    KIND_STRING
    KIND_BINARY
    KIND_MAP

# Memory of our own that grows; room is a number of bytes.
ctypedef struct Buffer:
    uint8_t* p
    size_t room

ctypedef struct ColumnBuffers:
    Buffer values               # numbers, or the bytes of all texts
    Buffer offsets              # int32, one more than rows; none for numbers
    Buffer valid                # a bit a row; filled only while nulls are possible
    int64_t nulls

# Which columns, in which order.
ctypedef struct Selection:
    int count
    int column[COLUMNS]
    uint64_t bits               # bit i: column i is there

# The buffers of one batch. Whoever exports them counts as a reference; the last one gives them back to a pool.
ctypedef struct BatchBuffers:
    int refs                    # atomic
    Selection selected
    int64_t rows
    int64_t entries             # of all property maps
    int64_t bytes               # stored bytes of the records taken in
    ColumnBuffers col[COLUMNS_STORED]

cdef BatchBuffers* rows_new(const Selection* selected) noexcept nogil
cdef void rows_keep(BatchBuffers* rows) noexcept nogil
cdef void rows_free(BatchBuffers* rows) noexcept nogil
cdef int reserve(Buffer* b, size_t need) noexcept nogil
cdef Kind kind_of(int column) noexcept nogil
