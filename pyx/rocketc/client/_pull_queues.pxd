"""The state of queues that are pulled over sockets."""
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    WINDOW = 24                 # pulls of a queue at the same time, at most
    PULLS_MOST = 2 * WINDOW     # of a queue, those for the rest of other pulls included
    PIECES = 4                  # of a request, around its three numbers
    OPAQUE = 0                  # these numbers
    OFFSET = 1
    MOST = 2

# Memory that a socket is read into. The answers in it are used where they are.
ctypedef struct Chunk:
    Chunk* next                 # in the list of free ones
    size_t room                 # bytes
    int users                   # answers, and the link that reads into it
    uint8_t* bytes

# A request for the messages [offset, offset + most) of a queue, and its answer.
ctypedef struct Pull:
    int64_t offset
    int64_t most
    int64_t next_offset         # of the answer
    int32_t number              # opaque
    bint is_answered
    Chunk* chunk                # of the answer; NULL: it lacks a body
    const uint8_t* body         # records
    size_t size                 # bytes of them
    size_t at                   # position of the first record that was not returned

ctypedef struct Queue:
    int link                    # number of its connection
    int number                  # of the queue
    int window                  # pulls at the same time
    int count                   # pulls, in the order of their offsets
    int32_t sent                # pulls since the begin
    int32_t small               # pulls since one of STEP messages
    int unsent                  # pulls whose request was not written yet
    bint is_over
    bint has_head
    int64_t position            # queue offset of the next record to return
    int64_t end
    int64_t asked               # offset after the last pull
    int64_t step                # messages of a pull: what the broker sends
    const uint8_t* head         # the next record, if has_head
    size_t head_size            # bytes
    int64_t head_offset         # of the log
    int64_t head_time           # when it was stored, ms
    int64_t head_queue_offset
    const uint8_t* pieces[PIECES]       # of its requests
    size_t piece_sizes[PIECES]
    int numbers[PIECES - 1]     # which number is between two pieces
    Pull pulls[PULLS_MOST]

# A connection to a broker.
ctypedef struct Link:
    int fd
    Chunk* chunk                # that the socket is read into
    size_t at                   # position of the first frame that is not complete
    size_t end                  # position after the bytes that are there
    uint8_t* requests           # that were not sent yet
    size_t used                 # bytes of them
    size_t room                 # allocated bytes
    int count                   # queues with a head
    int* heap                   # their numbers, the one with the smallest head_offset first


cdef void add_pull(Queue* q, int at, int64_t offset, int64_t most) noexcept nogil
cdef void push(Link* link, const Queue* queues, int number) noexcept nogil
cdef void sift_down(Link* link, const Queue* queues) noexcept nogil
