# cython: language_level=3
"""What a group was given of a topic, by queue: messages, their bytes, answers and the time that these took.

Source: RocketMQ BrokerStatsManager, QUEUE_GET_NUMS, QUEUE_GET_SIZE, GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_GET_LATENCY.
"""
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

cdef enum:
    PAGE = 16       # queues whose numbers are kept together: a group may read only the last queue of a topic with many


cdef class Delivered:
    """Counts answers with messages. One thread adds and reads; there is no lock.

    >>> delivered = Delivered()
    >>> _ = delivered.add(1, 32, 8000, 0.25), delivered.add(1, 10, 2500, 0.25)
    >>> delivered.queues(), delivered.total()
    ([(1, 42, 10500, 2, 0.5)], [42, 10500, 2])
    """

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._count):
            free(self._pages[i])
        free(self._pages)

    cdef Given* _new_page(self, int32_t queue_id) except NULL:
        cdef int32_t page = queue_id // PAGE, count = page + 1
        cdef Given** pages
        if queue_id < 0:
            raise ValueError(f"queue {queue_id}: the id of a queue is not negative")
        if count > self._count:
            pages = <Given**>realloc(self._pages, <size_t>count * sizeof(Given*))
            if pages == NULL:
                raise MemoryError()
            memset(pages + self._count, 0, <size_t>(count - self._count) * sizeof(Given*))
            self._pages, self._count = pages, count
        self._pages[page] = <Given*>calloc(PAGE, sizeof(Given))
        if self._pages[page] == NULL:
            raise MemoryError()
        return self._pages[page]

    cpdef int add(self, int32_t queue_id, int64_t messages, int64_t size, double seconds) except -1:
        """Count an answer.

        queue_id  of a queue that the topic has: 8 bytes are kept for each 16 ids below it. ValueError if it is negative
        size      bytes of the messages
        seconds   that the answer took
        """
        cdef Given* given = NULL
        if 0 <= queue_id < PAGE * <int64_t>self._count:
            given = self._pages[queue_id // PAGE]
        if given == NULL:
            given = self._new_page(queue_id)
        given += queue_id % PAGE
        given.messages += messages
        given.size += size
        given.answers += 1
        given.seconds += seconds
        return 0

    def queues(self):
        """Return (queue id, messages, bytes, answers, seconds) of each queue with answers.

        >>> Delivered().queues()
        []
        """
        cdef Given* page
        cdef int32_t i, j
        found = []
        for i in range(self._count):
            page = self._pages[i]
            for j in range(PAGE if page != NULL else 0):
                if page[j].answers > 0:
                    found.append((PAGE * i + j, page[j].messages, page[j].size, page[j].answers, page[j].seconds))
        return found

    def total(self):
        """Return the messages, bytes and answers of all queues.

        >>> Delivered().total()
        [0, 0, 0]
        """
        cdef int64_t messages = 0, size = 0, answers = 0
        cdef Given* page
        cdef int32_t i, j
        for i in range(self._count):
            page = self._pages[i]
            for j in range(PAGE if page != NULL else 0):
                messages += page[j].messages
                size += page[j].size
                answers += page[j].answers
        return [messages, size, answers]
