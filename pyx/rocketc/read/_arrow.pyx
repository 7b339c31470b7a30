# cython: language_level=3
"""Batches and streams of the Arrow C data and C stream interfaces, as capsules (PyCapsule protocol).

pyarrow, Polars, DuckDB, pandas and nanoarrow read a Batch or a Stream without a copy. None of them must be installed.
Each exported array, and each child that a consumer moves out of it, keeps the batch's buffers until it is released.
"""
import errno

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_SetInterrupt
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

from rocketc.read._column_buffers cimport (
    BatchBuffers, KIND_BINARY, KIND_INT32, KIND_INT64, KIND_STRING, KIND_TIMESTAMP, Kind, MAP_KEYS, MAP_VALUES,
    Selection, kind_of, rows_free, rows_keep,
)
from rocketc.read._message cimport COLUMNS, COL_PROPERTIES

from rocketc.c.arrow cimport ARROW_FLAG_NULLABLE, ArrowArray, ArrowArrayStream, ArrowSchema

cdef extern from "Python.h":
    bint Py_IsInitialized() nogil

# Owned by an exported array: its reference to the buffers, the pointers to them, and the structs of its children.
ctypedef struct ArrayNode:
    BatchBuffers* rows
    const void* buffers[3]
    ArrowArray** children
    ArrowArray* store

ctypedef struct SchemaNode:
    ArrowSchema** children
    ArrowSchema* store

COLUMN_NAMES = (
    "topic", "queueId", "brokerName", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "keys",
    "tags", "body", "properties", "msgId", "flag", "sysFlag", "reconsumeTimes", "bodyCRC", "bornHost", "storeHost",
    "preparedTransactionOffset", "storeSize", "file",
)
cdef tuple _C_NAMES = tuple([name.encode() for name in COLUMN_NAMES])      # never freed: schemas point to them


cdef int select(object columns, Selection* out) except -1:
    """Select columns by name, None for all. Raises ValueError for an unknown or repeated name."""
    cdef int column
    out.count = 0
    out.bits = 0
    for name in COLUMN_NAMES if columns is None else [columns] if isinstance(columns, str) else columns:
        if name not in COLUMN_NAMES:
            raise ValueError(f"columns: unknown column {name!r}; the columns are {', '.join(COLUMN_NAMES)}")
        column = <int>COLUMN_NAMES.index(name)
        if out.bits >> column & 1:
            raise ValueError(f"columns: {name!r} is given twice")
        out.bits |= <uint64_t>1 << column
        out.column[out.count] = column
        out.count += 1
    return 0


# ---- schema

cdef void release_schema(ArrowSchema* schema) noexcept nogil:
    cdef SchemaNode* node = <SchemaNode*>schema.private_data
    cdef int64_t i
    for i in range(schema.n_children):
        if node.store[i].release != NULL:
            node.store[i].release(&node.store[i])
    free(node.children)
    free(node.store)
    free(node)
    schema.release = NULL


cdef bint schema_node(
    ArrowSchema* out, const char* format, const char* name, int64_t flags, int children
) noexcept nogil:
    """Fill out, with room for children; return False if memory is exhausted (out is then released)."""
    cdef SchemaNode* node = <SchemaNode*>calloc(1, sizeof(SchemaNode))
    cdef int i
    out.release = NULL
    if node == NULL:
        return False
    node.store = <ArrowSchema*>calloc(<size_t>children + 1, sizeof(ArrowSchema))
    node.children = <ArrowSchema**>calloc(<size_t>children + 1, sizeof(ArrowSchema*))
    out.format = format
    out.name = name
    out.metadata = NULL
    out.flags = flags
    out.n_children = children
    out.children = node.children
    out.dictionary = NULL
    out.private_data = node
    out.release = release_schema
    if node.store == NULL or node.children == NULL:
        out.n_children = 0
        release_schema(out)
        return False
    for i in range(children):
        node.children[i] = &node.store[i]
    return True


cdef const char* format_of(Kind kind) noexcept nogil:
    if kind == KIND_INT32:
        return "i"
    if kind == KIND_INT64:
        return "l"
    if kind == KIND_TIMESTAMP:
        return "tsu:UTC"
    if kind == KIND_STRING:
        return "u"
    if kind == KIND_BINARY:
        return "z"
    return "+m"


cdef int export_schema(const Selection* selected, ArrowSchema* out) except -1:
    cdef int i, column
    cdef ArrowSchema* field
    cdef bint ok = schema_node(out, "+s", "", 0, selected.count)
    for i in range(selected.count):
        if not ok:
            break
        column = selected.column[i]
        field = out.children[i]
        ok = schema_node(
            field, format_of(kind_of(column)), PyBytes_AS_STRING(_C_NAMES[column]), ARROW_FLAG_NULLABLE,
            1 if column == COL_PROPERTIES else 0,
        )
        if ok and column == COL_PROPERTIES:
            ok = schema_node(field.children[0], "+s", "entries", 0, 2)
            field = field.children[0]
            ok = ok and schema_node(field.children[0], "u", "key", 0, 0)
            ok = ok and schema_node(field.children[1], "u", "value", ARROW_FLAG_NULLABLE, 0)
    if not ok:
        if out.release != NULL:
            out.release(out)
        raise MemoryError
    return 0


# ---- arrays

cdef void release_array(ArrowArray* array) noexcept nogil:
    cdef ArrayNode* node = <ArrayNode*>array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if node.store[i].release != NULL:
            node.store[i].release(&node.store[i])
    rows_free(node.rows)
    free(node.children)
    free(node.store)
    free(node)
    array.release = NULL


cdef bint array_node(ArrowArray* out, BatchBuffers* rows, int64_t length, int buffers, int children) noexcept nogil:
    """Fill out, with room for buffers and children, and a new reference to rows; False if memory is exhausted."""
    cdef ArrayNode* node = <ArrayNode*>calloc(1, sizeof(ArrayNode))
    cdef int i
    out.release = NULL
    if node == NULL:
        return False
    rows_keep(rows)
    node.rows = rows
    node.store = <ArrowArray*>calloc(<size_t>children + 1, sizeof(ArrowArray))
    node.children = <ArrowArray**>calloc(<size_t>children + 1, sizeof(ArrowArray*))
    out.length = length
    out.null_count = 0
    out.offset = 0
    out.n_buffers = buffers
    out.n_children = children
    out.buffers = node.buffers
    out.children = node.children
    out.dictionary = NULL
    out.private_data = node
    out.release = release_array
    if node.store == NULL or node.children == NULL:
        out.n_children = 0
        release_array(out)
        return False
    for i in range(children):
        node.children[i] = &node.store[i]
    return True


cdef bint fill(ArrowArray* out, BatchBuffers* rows, int column, int64_t length) noexcept nogil:
    """Fill an array without children from one column; length is in rows or map entries."""
    cdef bint text = column >= COLUMNS or kind_of(column) == KIND_STRING or kind_of(column) == KIND_BINARY
    if not array_node(out, rows, length, 3 if text else 2, 0):
        return False
    out.null_count = rows.col[column].nulls
    out.buffers[0] = rows.col[column].valid.p if out.null_count > 0 else NULL
    out.buffers[1] = rows.col[column].offsets.p if text else rows.col[column].values.p
    if text:
        out.buffers[2] = rows.col[column].values.p
    return True


cdef bint fill_map(ArrowArray* out, BatchBuffers* rows) noexcept nogil:
    cdef ArrowArray* entries
    if not array_node(out, rows, rows.rows, 2, 1):
        return False
    out.buffers[1] = rows.col[COL_PROPERTIES].offsets.p
    entries = out.children[0]
    return (
        array_node(entries, rows, rows.entries, 1, 2)
        and fill(entries.children[0], rows, MAP_KEYS, rows.entries)
        and fill(entries.children[1], rows, MAP_VALUES, rows.entries)
    )


cdef int export_array(BatchBuffers* rows, ArrowArray* out) except -1:
    cdef int i
    cdef bint ok = array_node(out, rows, rows.rows, 1, rows.selected.count)
    for i in range(rows.selected.count):
        if not ok:
            break
        if rows.selected.column[i] == COL_PROPERTIES:
            ok = fill_map(out.children[i], rows)
        else:
            ok = fill(out.children[i], rows, rows.selected.column[i], rows.rows)
    if not ok:
        if out.release != NULL:
            out.release(out)
        raise MemoryError
    return 0


# ---- capsules

cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef object schema_capsule(const Selection* selected):
    cdef ArrowSchema* schema = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    capsule = PyCapsule_New(schema, "arrow_schema", drop_schema)
    export_schema(selected, schema)
    return capsule


cdef int check_request(object requested, const Selection* selected) except -1:
    """Raise ValueError if a requested schema has other columns. Its types are only a preference, and are ignored."""
    cdef const ArrowSchema* schema
    if requested is None:
        return 0
    schema = <const ArrowSchema*>PyCapsule_GetPointer(requested, "arrow_schema")
    asked = [
        "" if schema.children[i].name == NULL else (<bytes>schema.children[i].name).decode("utf-8", "replace")
        for i in range(schema.n_children)
    ]
    names = [COLUMN_NAMES[selected.column[i]] for i in range(selected.count)]
    if asked != names:
        raise ValueError(f"the requested schema has the columns {asked}, the scan has {names}; pass them as columns=")
    return 0


cdef Batch batch_of(BatchBuffers* rows):
    """Wrap buffers in a Batch, which takes over the reference."""
    cdef Batch batch = Batch.__new__(Batch)
    batch.buffers = rows
    return batch


cdef class Batch:
    """A batch of records of a scan as Arrow buffers.

    `pyarrow.record_batch(batch)` and other consumers read it without a copy, any number of times.
    """

    def __init__(self):
        raise TypeError("create batches with rocketc.scan() or rocketc.decode()")

    def __dealloc__(self):
        if self.buffers != NULL:
            rows_free(self.buffers)

    def __len__(self):
        return self.buffers.rows

    def __repr__(self):
        return f"<rocketc.Batch, {self.buffers.rows} rows of {self.buffers.bytes} stored bytes>"

    def __arrow_c_schema__(self):
        return schema_capsule(&self.buffers.selected)

    def __arrow_c_array__(self, requested_schema=None):
        """Return (schema, array) capsules.

        Raises ValueError if the requested schema has other columns; its types are ignored.
        """
        check_request(requested_schema, &self.buffers.selected)
        cdef ArrowArray* array = <ArrowArray*>calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError
        capsule = PyCapsule_New(array, "arrow_array", drop_array)
        export_array(self.buffers, array)
        return schema_capsule(&self.buffers.selected), capsule


cdef class Schema:
    """The columns of a scan as an Arrow schema; `pyarrow.schema(schema)` accepts it."""

    cdef Selection _selected

    def __cinit__(self, columns=None):
        select(columns, &self._selected)

    @property
    def names(self):
        """The names of the columns, in order."""
        return [COLUMN_NAMES[self._selected.column[i]] for i in range(self._selected.count)]

    def __arrow_c_schema__(self):
        return schema_capsule(&self._selected)


# ---- streams

cdef class StreamState:
    cdef object batches         # an iterator over Batch
    cdef Selection selected
    cdef int failed             # errno of the error that ended it, or 0
    cdef bytes error            # and its message


cdef bytes text_of(object error):
    """Return type and message of an exception as UTF-8; handles paths that are not UTF-8 and a failing __str__()."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text.encode("utf-8", "backslashreplace")


cdef int errno_of(object error):
    if isinstance(error, KeyboardInterrupt):
        return errno.EINTR
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    return (error.errno or errno.EIO) if isinstance(error, OSError) else errno.EINVAL


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    out.release = NULL
    if stream.private_data == NULL:
        return errno.EINVAL
    try:
        return export_schema(&(<StreamState>stream.private_data).selected, out)
    except MemoryError:
        return errno.ENOMEM


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef StreamState state
    out.release = NULL
    if stream.private_data == NULL:
        return errno.EINVAL
    state = <StreamState>stream.private_data
    if state.failed:                # return the error again: it must not look like the end of the stream
        return state.failed
    try:
        batch = next(state.batches, None)
        if batch is not None:
            export_array((<Batch?>batch).buffers, out)
    except BaseException as error:
        state.failed = errno_of(error)
        state.error = text_of(error)
        state.batches = None
        if isinstance(error, KeyboardInterrupt):
            PyErr_SetInterrupt()    # the consumer raises its own error, which `except Exception` would catch
    return state.failed


cdef const char* stream_error(ArrowArrayStream* stream) noexcept with gil:
    if stream.private_data == NULL or (<StreamState>stream.private_data).error is None:
        return NULL
    return PyBytes_AS_STRING((<StreamState>stream.private_data).error)


cdef void stream_release(ArrowArrayStream* stream) noexcept nogil:
    if Py_IsInitialized():          # a C++ consumer may release after Python's end
        with gil:
            Py_DECREF(<StreamState>stream.private_data)
    stream.private_data = NULL
    stream.release = NULL


def stream_capsule(batches, columns, requested_schema=None):
    """Return an ArrowArrayStream capsule over an iterator of Batch objects with these columns.

    An exception of the iterator ends the stream; the consumer shows its text. Raises ValueError if the requested schema
    has other columns; its types are ignored.
    """
    cdef StreamState state = StreamState.__new__(StreamState)
    cdef ArrowArrayStream* stream
    select(columns, &state.selected)
    check_request(requested_schema, &state.selected)
    stream = <ArrowArrayStream*>calloc(1, sizeof(ArrowArrayStream))
    if stream == NULL:
        raise MemoryError
    capsule = PyCapsule_New(stream, "arrow_array_stream", drop_stream)
    state.batches = batches
    Py_INCREF(state)
    stream.private_data = <void*>state
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = stream_release
    return capsule
