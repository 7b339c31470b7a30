"""The memory of a batch: the buffers of its columns, and the references to them."""
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

# A growing anonymous mapping; room is in bytes.
ctypedef struct Buffer:
    uint8_t* p
    size_t room

ctypedef struct ColumnBuffers:
    Buffer values               # numbers, or the bytes of all texts
    Buffer offsets              # int32, one more than rows; empty for numbers
    Buffer valid                # one bit per row; filled only if the column may have nulls
    int64_t nulls

# The selected columns in order.
ctypedef struct Selection:
    int count
    int column[COLUMNS]
    uint64_t bits               # bit i: column i is selected

# The buffers of one batch. Each exported array holds a reference; the last one returns the buffers to a pool.
ctypedef struct BatchBuffers:
    int refs                    # atomic
    Selection selected
    int64_t rows
    int64_t entries             # of all property maps
    int64_t bytes               # stored bytes of the records added
    ColumnBuffers col[COLUMNS_STORED]

cdef BatchBuffers* rows_new(const Selection* selected) noexcept nogil
cdef void rows_keep(BatchBuffers* rows) noexcept nogil
cdef void rows_free(BatchBuffers* rows) noexcept nogil
cdef int reserve(Buffer* b, size_t need) noexcept nogil
cdef Kind kind_of(int column) noexcept nogil
