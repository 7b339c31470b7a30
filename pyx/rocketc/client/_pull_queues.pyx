# cython: language_level=3
"""The state of queues that are pulled over sockets: their pulls, a heap of their next records, and their requests."""
from libc.stdint cimport int64_t
from libc.string cimport memmove, memset


cdef void add_pull(Queue* q, int at, int64_t offset, int64_t most) noexcept nogil:
    """Add a pull at a place among those of its queue; it is not sent yet."""
    cdef Pull* pull = &q.pulls[at]
    memmove(pull + 1, pull, <size_t>(q.count - at) * sizeof(Pull))
    memset(pull, 0, sizeof(Pull))
    pull.offset, pull.most, pull.number = offset, most, -1
    q.count += 1
    q.unsent += 1


cdef void push(Link* link, const Queue* queues, int number) noexcept nogil:
    """Put a queue with a head into the heap of its link."""
    cdef int at = link.count, parent
    link.count += 1
    while at > 0:
        parent = (at - 1) // 2
        if queues[link.heap[parent]].head_offset <= queues[number].head_offset:
            break
        link.heap[at] = link.heap[parent]
        at = parent
    link.heap[at] = number


cdef void sift_down(Link* link, const Queue* queues) noexcept nogil:
    """Put the first queue of a heap where it belongs."""
    cdef int at = 0, child, number
    if link.count == 0:
        return
    number = link.heap[0]
    while 2 * at + 1 < link.count:
        child = 2 * at + 1
        if child + 1 < link.count and queues[link.heap[child + 1]].head_offset < queues[link.heap[child]].head_offset:
            child += 1
        if queues[number].head_offset <= queues[link.heap[child]].head_offset:
            break
        link.heap[at] = link.heap[child]
        at = child
    link.heap[at] = number


def encode_template(bytes frame not None, offset, most, opaque):
    """Return what is around three numbers in the header of a request: four pieces, and which number is between them.

    frame   of a request with these numbers, each of them once

    >>> encode_template(b"........{offset:17,most:23,opaque:42}", b"17", b"23", b"42")
    ((b'{offset:', b',most:', b',opaque:', b'}'), (1, 2, 0))
    """
    header, pieces, numbers = frame[8:], [], []
    found = sorted((header.index(text), text, number) for number, text in enumerate((opaque, offset, most)))
    begin = 0
    for at, text, number in found:
        pieces.append(header[begin:at])
        numbers.append(number)
        begin = at + len(text)
    return (*pieces, header[begin:]), tuple(numbers)
