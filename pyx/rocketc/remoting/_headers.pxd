"""Headers of remoting commands, decoded into slices of the frame."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from rocketc.remoting._frames cimport Frame

cdef enum:
    BINARY_BYTES = 21           # of a ROCKETMQ header without remark and fields
    FIELDS_MAX = 128            # of a header

# A text in a frame. In a JSON header it may contain escape sequences.
ctypedef struct Text:
    const uint8_t* at           # NULL: there is none
    uint32_t size               # bytes
    bint is_escaped

ctypedef struct HeaderField:
    Text name
    Text value

# One header. Its texts are valid as long as the frame.
ctypedef struct Header:
    int32_t code
    int32_t version
    int32_t opaque
    int32_t flag
    int32_t language            # in the ROCKETMQ form; -1: `language_name` has it
    int32_t field_count
    Text language_name
    Text remark
    HeaderField fields[FIELDS_MAX]


cdef inline int place_of(const Text* name, const char** names, const uint32_t* sizes, int count) noexcept nogil:
    """Return the place of a name among some names and their sizes, or -1."""
    cdef int i
    for i in range(count):
        if name.size == sizes[i] and memcmp(name.at, names[i], name.size) == 0:
            return i
    return -1


cdef int parse_json(const uint8_t* src, size_t n, Header* h) noexcept nogil
cdef int parse_rocketmq(const uint8_t* src, size_t n, Header* h) noexcept nogil
cdef int parse_header(const Frame* frame, Header* h) noexcept nogil
cdef Text* field_of(Header* h, const uint8_t* name, uint32_t n) noexcept nogil
cdef int number_of(const Text* text, int64_t* number) noexcept nogil
cdef int64_t unescape(const Text* text, uint8_t* dst) noexcept nogil
cdef object text_object(const Text* text)
