# cython: language_level=3
"""Which half messages are ended: a bit for each, so that those of millions of transactions need little memory."""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    PAGE_BITS = 13              # of an offset, within a page of bits
    PAGE_BYTES = 1024
    NUMBER_BITS = 50            # of a page, within a half queue
    QUEUES_MOST = 8192          # half queues: RocketMQ has one


cdef class EndedHalves:
    """The half messages that are marked as ended, by half queue and queue offset.

    >>> ended = EndedHalves()
    >>> _ = ended.add(0, 12), ended.add(0, 70_000)
    >>> ended.has(0, 12), ended.has(0, 13), ended.has(1, 12), ended.has(0, 70_000)
    (True, False, False, True)
    """

    def __cinit__(self):
        self._pages = {}
        self._number = -1

    cdef uint8_t* _byte_of(self, int32_t queue_id, int64_t offset, bint is_new) except? NULL:
        """Return the byte of a half message; NULL: there is none. is_new: make its page."""
        cdef int64_t number
        if not 0 <= queue_id < QUEUES_MOST or offset < 0:
            return NULL
        number = (<int64_t>queue_id << NUMBER_BITS) + (offset >> PAGE_BITS)
        if number != self._number:
            page = self._pages.get(number)
            if page is None:
                if not is_new:
                    return NULL
                page = self._pages[number] = bytearray(PAGE_BYTES)
            self._page = <bytearray>page
            self._number = number
        return <uint8_t*>PyByteArray_AS_STRING(self._page) + ((offset & ((1 << PAGE_BITS) - 1)) >> 3)

    cpdef int add(self, int32_t queue_id, int64_t offset) except -1:
        """Note that a half message is ended. A place that can not be is ignored.

        >>> EndedHalves().add(0, -1)
        0
        """
        cdef uint8_t* at = self._byte_of(queue_id, offset, True)
        if at != NULL:
            at[0] |= <uint8_t>(1 << (offset & 7))
        return 0

    cpdef bint has(self, int32_t queue_id, int64_t offset) except -1:
        """Whether a half message is ended.

        >>> EndedHalves().has(0, 5)
        False
        """
        cdef uint8_t* at = self._byte_of(queue_id, offset, False)
        return at != NULL and at[0] >> (offset & 7) & 1

    def forget(self, int32_t queue_id, int64_t before):
        """Free the pages of half messages of a queue whose offsets are below `before`.

        >>> ended = EndedHalves()
        >>> _ = ended.add(0, 12), ended.add(0, 70_000)
        >>> ended.forget(0, 65_536)
        >>> ended.has(0, 12), ended.has(0, 70_000)
        (False, True)
        """
        cdef int64_t first = <int64_t>queue_id << NUMBER_BITS
        cdef int64_t end = first + (before >> PAGE_BITS)
        cdef int64_t number
        for number in [n for n in self._pages if first <= <int64_t>n < end]:
            del self._pages[number]
        self._number = -1
