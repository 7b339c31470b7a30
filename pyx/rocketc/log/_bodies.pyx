# cython: language_level=3
"""The bodies of put_many as prepared records, some at a time: from a sequence or an Arrow array."""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from rocketc.c.arrow cimport ArrowArray, ArrowSchema
from rocketc.log._prepared_record cimport PreparedRecord

cdef enum:
    VIEWS = 65536           # most items of one fill()


cdef int check_body(body, str name, Py_ssize_t number=-1) except -1:
    """Refuse a body that is not bytes-like. Raises TypeError.

    name    of the argument
    number  of the body in it; -1: the argument is the body
    """
    if not PyObject_CheckBuffer(body):
        what = name if number < 0 else f"{name}[{number}]"
        hint = "; encode text with .encode()" if isinstance(body, str) else ""
        raise TypeError(f"{what} must be bytes-like, not {type(body).__name__}{hint}")
    return 0


cdef int check_iterable(items, str name, str of) except -1:
    """Refuse one text or one body in place of several: its items are not what the caller means. Raises TypeError.

    name  of the argument
    of    what it must contain
    """
    if isinstance(items, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be a list of {of}, not one {type(items).__name__}; for one message call put()")
    if not hasattr(items, "__iter__") and not hasattr(items, "__getitem__"):
        raise TypeError(f"{name} must be a list of {of}, not {type(items).__name__}")
    return 0


cdef class Bodies:
    """Sets the bodies of prepared records.

    bodies  an iterable of bytes-like objects, or an Arrow array of binary or string
    Raises TypeError for anything else.
    """

    def __cinit__(self, bodies):
        if hasattr(bodies, "__arrow_c_array__"):
            self._take_array(bodies.__arrow_c_array__())
        else:
            check_iterable(bodies, "bodies", "bytes-like objects")
            self._items = tuple(bodies)
            self.count = len(self._items)

    def __dealloc__(self):
        self.release()
        free(self._views)

    cdef int _take_array(self, tuple capsules) except -1:
        """Keep an array by its capsules, which own it; the values are not copied."""
        cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsules[0], "arrow_schema")
        cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsules[1], "arrow_array")
        cdef bytes kind = schema.format
        if kind not in (b"z", b"u", b"Z", b"U"):
            raise TypeError(f"an Arrow array of format {kind.decode()!r} is not usable: cast it to binary or string")
        self._capsules = capsules
        self._wide = kind in (b"Z", b"U")
        self._first = array.offset
        self.count = array.length
        self._valid = <const uint8_t*>array.buffers[0] if array.null_count != 0 else NULL
        self._offsets = array.buffers[1]
        self._values = <const uint8_t*>array.buffers[2]
        return 0

    cdef int fill(self, Py_ssize_t start, int n, PreparedRecord* records) except -1:
        """Set body and body_len of n records (at most VIEWS), from body number `start` on. Valid until the next
        call."""
        cdef int i
        cdef object item
        if self._items is None:
            self._fill_arrow(start, n, records)
            return 0
        for i in range(n):
            item = self._items[start + i]
            if not PyBytes_CheckExact(item):
                return self._fill_views(start, n, records)
            records[i].args.body = <const uint8_t*>PyBytes_AS_STRING(item)
            records[i].args.body_len = <int32_t>min(PyBytes_GET_SIZE(item), INT32_MAX)
        return 0

    cdef int _fill_views(self, Py_ssize_t start, int n, PreparedRecord* records) except -1:
        cdef Py_buffer* view
        cdef object item
        cdef int i
        self.release()
        if self._views == NULL:
            self._views = <Py_buffer*>malloc(<size_t>min(self.count, VIEWS) * sizeof(Py_buffer))
            if self._views == NULL:
                raise MemoryError
        for i in range(n):
            view = &self._views[self._viewed]
            item = self._items[start + i]
            check_body(item, "bodies", start + i)
            PyObject_GetBuffer(item, view, PyBUF_SIMPLE)
            self._viewed += 1
            records[i].args.body = <const uint8_t*>view.buf
            records[i].args.body_len = <int32_t>min(view.len, INT32_MAX)
        return 0

    cdef void _fill_arrow(self, int64_t start, int n, PreparedRecord* records) noexcept:
        """A null becomes an empty body."""
        cdef int64_t at, begin, end
        cdef int i
        for i in range(n):
            at = self._first + start + i
            if self._wide:
                begin = (<const int64_t*>self._offsets)[at]
                end = (<const int64_t*>self._offsets)[at + 1]
            else:
                begin = (<const int32_t*>self._offsets)[at]
                end = (<const int32_t*>self._offsets)[at + 1]
            if self._valid != NULL and not self._valid[at >> 3] >> (at & 7) & 1:
                end = begin
            records[i].args.body = self._values + begin
            records[i].args.body_len = <int32_t>min(end - begin, <int64_t>INT32_MAX)

    cdef void release(self) noexcept:
        """Release the buffers of the last fill()."""
        while self._viewed > 0:
            self._viewed -= 1
            PyBuffer_Release(&self._views[self._viewed])
