# cython: language_level=3
"""Headers of remoting commands, decoded in one pass into slices of the frame.

The JSON decoder accepts what RocketMQ's peers write: an object of numbers and texts with one object of texts. Other
valid headers go to the module json (see rocketc.remoting.command), which is slower. Both give the same result.
Source: RocketMQ RemotingCommand, RocketMQSerializable.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from rocketc.c.bytes cimport rc_get_i16, rc_get_i32
from rocketc.c.status cimport RC_BAD_ARGUMENT, RC_BAD_SIZE, RC_MORE, RC_OK
from rocketc.remoting._frames cimport FORM_JSON, Frame

cdef enum:
    WORD = 8
    UTF8_MORE = 128             # bit of each byte of a character after U+007F
    HALF_PAIR = 0xFFFD          # the character that replaces half of a surrogate pair
    JSON_BYTES_MOST = 64 << 10  # of a header that only json may decode, because it takes long
    JSON_MARKS_MOST = 1024      # of its commas, colons and opening brackets
    JSON_RUN_MOST = 64          # of its bytes without a mark, blank or text, such as the digits of a number

cdef extern from *:
    int __builtin_ctzll(unsigned long long) noexcept nogil

cdef uint64_t ONES = 0x0101010101010101ULL
cdef uint64_t TOPS = 0x8080808080808080ULL
cdef uint64_t QUOTES = 0x2222222222222222ULL
cdef uint64_t SLASHES = 0x5C5C5C5C5C5C5C5CULL


# JSON

cdef inline const uint8_t* skip_blanks(const uint8_t* p, const uint8_t* end) noexcept nogil:
    while p < end and (p[0] == c" " or p[0] == c"\t" or p[0] == c"\n" or p[0] == c"\r"):
        p += 1
    return p


cdef const uint8_t* parse_text(const uint8_t* p, const uint8_t* end, Text* text) noexcept nogil:
    """Parse a text after its opening quotation mark. Return the place after the closing one, or NULL."""
    cdef uint64_t word, quote, slash, found
    text.at = p
    text.is_escaped = False
    while True:
        while end - p >= WORD:          # skip eight bytes without a quotation mark or backslash at a time
            memcpy(&word, p, WORD)
            quote = word ^ QUOTES
            slash = word ^ SLASHES
            found = (((quote - ONES) & ~quote) | ((slash - ONES) & ~slash)) & TOPS
            if found != 0:
                p += __builtin_ctzll(found) >> 3        # the lowest bit is of the first such byte
                break
            p += WORD
        while p < end and p[0] != c'"' and p[0] != c"\\":
            p += 1
        if p == end:
            return NULL
        if p[0] == c'"':
            text.size = <uint32_t>(p - text.at)
            return p + 1
        text.is_escaped = True
        if end - p < 2:
            return NULL
        p += 2


cdef const uint8_t* parse_int32(const uint8_t* p, const uint8_t* end, int32_t* number) noexcept nogil:
    """Parse a number in decimal. Return the place after it, or NULL for anything else."""
    cdef int64_t value = 0
    cdef bint negative = p < end and p[0] == c"-"
    cdef const uint8_t* digits
    if negative:
        p += 1
    digits = p
    while p < end and c"0" <= p[0] <= c"9" and p - digits <= 10:
        value = 10 * value + (p[0] - c"0")
        p += 1
    if p == digits or (digits[0] == c"0" and p - digits > 1):
        return NULL
    if p < end and p[0] != c"," and p[0] != c"}" and p[0] > c" ":       # 1.5, 1e3, more digits
        return NULL
    value = -value if negative else value
    if not INT32_MIN <= value <= INT32_MAX:
        return NULL
    number[0] = <int32_t>value
    return p


cdef inline bint is_named(const Text* name, const char* text, uint32_t n) noexcept nogil:
    return name.size == n and memcmp(name.at, text, n) == 0


cdef const uint8_t* parse_name(const uint8_t* p, const uint8_t* end, Text* name) noexcept nogil:
    """Parse the name of a member and the colon after it. Return the place of the value, or NULL."""
    if p == end or p[0] != c'"':
        return NULL
    p = parse_text(p + 1, end, name)
    if p == NULL or name.is_escaped:
        return NULL
    p = skip_blanks(p, end)
    if p == end or p[0] != c":":
        return NULL
    p = skip_blanks(p + 1, end)
    return p if p < end else NULL


cdef const uint8_t* parse_fields(const uint8_t* p, const uint8_t* end, Header* h) noexcept nogil:
    """Parse the object of fields after its opening brace. Return the place after the closing one, or NULL."""
    cdef HeaderField* field
    h.field_count = 0           # of two such objects, the last one counts
    p = skip_blanks(p, end)
    if p < end and p[0] == c"}":
        return p + 1
    while h.field_count < FIELDS_MAX:
        field = &h.fields[h.field_count]
        if (end - p > 4 and p[0] == c'"' and p[2] == c'"' and p[3] == c":" and p[4] == c'"'
                and p[1] != c"\\" and p[1] != c'"'):
            field.name.at = p + 1           # the name is one letter, as in sends
            field.name.size = 1
            field.name.is_escaped = False
            p += 4
        else:
            p = parse_name(p, end, &field.name)
            if p == NULL or p[0] != c'"':
                return NULL
        p = parse_text(p + 1, end, &field.value)
        if p == NULL:
            return NULL
        h.field_count += 1
        p = skip_blanks(p, end)
        if p == end:
            return NULL
        if p[0] == c"}":
            return p + 1
        if p[0] != c",":
            return NULL
        p = skip_blanks(p + 1, end)
    return NULL


cdef int parse_json(const uint8_t* src, size_t n, Header* h) noexcept nogil:
    """Parse a header in JSON. Returns RC_OK, or RC_MORE if this decoder does not accept it: json may."""
    cdef const uint8_t* end = src + n
    cdef const uint8_t* p = skip_blanks(src, end)
    cdef Text name, text
    cdef int32_t number = 0
    memset(h, 0, sizeof(Header) - sizeof(h.fields))
    h.language = -1
    if p == end or p[0] != c"{":
        return RC_MORE
    p = skip_blanks(p + 1, end)
    if p < end and p[0] == c"}":
        return RC_OK if skip_blanks(p + 1, end) == end else RC_MORE
    while True:
        p = parse_name(p, end, &name)
        if p == NULL:
            return RC_MORE
        if p[0] == c'"':
            p = parse_text(p + 1, end, &text)
            if is_named(&name, b"remark", 6):
                h.remark = text
            elif is_named(&name, b"language", 8):
                h.language_name = text
            elif text.is_escaped or not is_named(&name, b"serializeTypeCurrentRPC", 23):
                return RC_MORE
        elif p[0] == c"{":
            if not is_named(&name, b"extFields", 9):
                return RC_MORE
            p = parse_fields(p + 1, end, h)
        else:
            p = parse_int32(p, end, &number)
            if is_named(&name, b"code", 4):
                h.code = number
            elif is_named(&name, b"opaque", 6):
                h.opaque = number
            elif is_named(&name, b"flag", 4):
                h.flag = number
            elif is_named(&name, b"version", 7):
                h.version = number
            else:
                return RC_MORE
        if p == NULL:
            return RC_MORE
        p = skip_blanks(p, end)
        if p == end:
            return RC_MORE
        if p[0] == c"}":
            return RC_OK if skip_blanks(p + 1, end) == end else RC_MORE
        if p[0] != c",":
            return RC_MORE
        p = skip_blanks(p + 1, end)


cdef int32_t hex4(const uint8_t* p) noexcept nogil:
    """Return the number of four hexadecimal digits, or -1."""
    cdef int32_t number = 0
    cdef int i
    for i in range(4):
        number <<= 4
        if c"0" <= p[i] <= c"9":
            number |= p[i] - c"0"
        elif c"a" <= (p[i] | 32) <= c"f":
            number |= (p[i] | 32) - c"a" + 10
        else:
            return -1
    return number


cdef int64_t unescape(const Text* text, uint8_t* dst) noexcept nogil:
    """Write a text without its escape sequences, as UTF-8. Return the bytes written, at most text.size.

    dst  text.size bytes, not of the text itself; those after the result may have changed
    -1  an escape sequence is wrong: json decides
    Half of a surrogate pair becomes U+FFFD.
    """
    cdef const uint8_t* p = text.at
    cdef const uint8_t* end = p + text.size
    cdef uint8_t* out = dst
    cdef uint8_t letter
    cdef int32_t number, low
    cdef uint64_t word, slash, found
    if not text.is_escaped:
        memcpy(dst, p, text.size)
        return text.size
    while p < end:
        while end - p >= WORD and p[0] != c"\\":    # copy eight bytes at a time; dst has room for the rest of the text
            memcpy(&word, p, WORD)
            memcpy(out, &word, WORD)
            slash = word ^ SLASHES
            found = (slash - ONES) & ~slash & TOPS
            if found != 0:
                p += __builtin_ctzll(found) >> 3
                out += __builtin_ctzll(found) >> 3
                break
            p += WORD
            out += WORD
        if p == end:
            break
        if p[0] != c"\\":
            out[0] = p[0]
            out += 1
            p += 1
            continue
        letter = p[1]           # the parser has seen it
        p += 2
        if letter == c"u":
            number = hex4(p) if end - p >= 4 else -1
            if number < 0:
                return -1
            p += 4
            if 0xD800 <= number < 0xE000:
                low = hex4(p + 2) if end - p >= 6 and p[0] == c"\\" and p[1] == c"u" else -1
                if number < 0xDC00 <= low < 0xE000:
                    number = 0x10000 + (number - 0xD800 << 10) + (low - 0xDC00)
                    p += 6
                else:
                    number = HALF_PAIR
            out += put_utf8(out, <uint32_t>number)
            continue
        if letter == c"n":
            letter = c"\n"
        elif letter == c"t":
            letter = c"\t"
        elif letter == c"r":
            letter = c"\r"
        elif letter == c"b":
            letter = c"\b"
        elif letter == c"f":
            letter = c"\f"
        elif letter != c'"' and letter != c"\\" and letter != c"/":
            return -1
        out[0] = letter
        out += 1
    return out - dst


cdef inline int put_utf8(uint8_t* dst, uint32_t number) noexcept nogil:
    """Write one character; return its bytes."""
    if number < UTF8_MORE:
        dst[0] = <uint8_t>number
        return 1
    if number < 0x800:
        dst[0] = <uint8_t>(0xC0 | number >> 6)
        dst[1] = <uint8_t>(UTF8_MORE | number & 63)
        return 2
    if number < 0x10000:
        dst[0] = <uint8_t>(0xE0 | number >> 12)
        dst[1] = <uint8_t>(UTF8_MORE | number >> 6 & 63)
        dst[2] = <uint8_t>(UTF8_MORE | number & 63)
        return 3
    dst[0] = <uint8_t>(0xF0 | number >> 18)
    dst[1] = <uint8_t>(UTF8_MORE | number >> 12 & 63)
    dst[2] = <uint8_t>(UTF8_MORE | number >> 6 & 63)
    dst[3] = <uint8_t>(UTF8_MORE | number & 63)
    return 4


# ROCKETMQ

cdef int parse_rocketmq(const uint8_t* src, size_t n, Header* h) noexcept nogil:
    """Parse a header in the ROCKETMQ form. Returns RC_OK; RC_BAD_SIZE for a length that can't be; RC_BAD_ARGUMENT for
    more than FIELDS_MAX fields."""
    cdef const uint8_t* end = src + n
    cdef const uint8_t* p
    cdef HeaderField* field
    cdef uint32_t size
    memset(h, 0, sizeof(Header) - sizeof(h.fields))
    if n < BINARY_BYTES:
        return RC_BAD_SIZE
    h.code = rc_get_i16(src)
    h.language = src[2]
    h.version = rc_get_i16(src + 3)
    h.opaque = rc_get_i32(src + 5)
    h.flag = rc_get_i32(src + 9)
    p = parse_sized(src + 13, end, &h.remark)
    if p == NULL or end - p < 4:
        return RC_BAD_SIZE
    size = <uint32_t>rc_get_i32(p)
    p += 4
    if size > <size_t>(end - p):
        return RC_BAD_SIZE
    end = p + size
    while p < end:
        if h.field_count == FIELDS_MAX:
            return RC_BAD_ARGUMENT
        field = &h.fields[h.field_count]
        if end - p < 2:
            return RC_BAD_SIZE
        size = <uint16_t>rc_get_i16(p)
        p += 2
        if size > <size_t>(end - p):
            return RC_BAD_SIZE
        field.name.at = p
        field.name.size = size
        field.name.is_escaped = False
        p = parse_sized(p + size, end, &field.value)
        if p == NULL:
            return RC_BAD_SIZE
        if field.name.size > 0 and field.value.size > 0:        # Java reads a text of length 0 as null
            h.field_count += 1
    return RC_OK


cdef const uint8_t* parse_sized(const uint8_t* p, const uint8_t* end, Text* text) noexcept nogil:
    """Parse a text after its length of 4 bytes. Return the place after it, or NULL. Length 0 means a missing text."""
    cdef uint32_t size
    if end - p < 4:
        return NULL
    size = <uint32_t>rc_get_i32(p)
    p += 4
    if size > <size_t>(end - p):
        return NULL
    text.at = p if size > 0 else NULL
    text.size = size
    text.is_escaped = False
    return p + size


cdef int parse_header(const Frame* frame, Header* h) noexcept nogil:
    """Parse the header of a frame. Returns RC_OK, or another code if this module does not accept it."""
    if frame.form == FORM_JSON:
        return parse_json(frame.header, frame.header_size, h)
    return parse_rocketmq(frame.header, frame.header_size, h)


# fields

cdef Text* field_of(Header* h, const uint8_t* name, uint32_t n) noexcept nogil:
    """Return the value of a field, or NULL. Of two fields with the name, the last one counts."""
    cdef HeaderField* field
    cdef int i
    for i in range(h.field_count - 1, -1, -1):
        field = &h.fields[i]
        if field.name.size == n and memcmp(field.name.at, name, n) == 0:
            return &field.value
    return NULL


cdef int number_of(const Text* text, int64_t* number) noexcept nogil:
    """Parse a field as Java's Long.parseLong does. Return RC_OK or RC_BAD_ARGUMENT."""
    cdef uint64_t value = 0, most = INT64_MAX
    cdef uint32_t i = 0
    cdef bint negative = False
    if text.size > 0 and (text.at[0] == c"-" or text.at[0] == c"+"):
        negative = text.at[0] == c"-"
        i = 1
    if negative:
        most += 1
    if i == text.size:
        return RC_BAD_ARGUMENT
    while i < text.size:
        if not c"0" <= text.at[i] <= c"9":
            return RC_BAD_ARGUMENT
        if value > most // 10 or 10 * value > most - (text.at[i] - c"0"):
            return RC_BAD_ARGUMENT
        value = 10 * value + (text.at[i] - c"0")
        i += 1
    number[0] = <int64_t>(0 - value) if negative else <int64_t>value
    return RC_OK


# for Python

cdef object text_object(const Text* text):
    """Return a text as str, None if it is missing. Raises ValueError for an escape sequence that json must decide."""
    cdef uint8_t* copy
    cdef int64_t n
    if text.at == NULL:
        return None
    if not text.is_escaped:
        return text.at[:text.size].decode("utf-8", "replace")
    copy = <uint8_t*>malloc(text.size)
    if copy == NULL:
        raise MemoryError
    try:
        n = unescape(text, copy)
        if n < 0:
            raise ValueError
        return copy[:n].decode("utf-8", "replace")
    finally:
        free(copy)


def decode_json(bytes header not None):
    """Decode a header in JSON: (code, language, version, opaque, flag, remark, fields); None: only json may know it.

    language  its name, or None
    """
    cdef Header h
    cdef int i
    if parse_json(<const uint8_t*>PyBytes_AS_STRING(header), <size_t>PyBytes_GET_SIZE(header), &h) != RC_OK:
        return None
    try:
        fields = {text_object(&h.fields[i].name): text_object(&h.fields[i].value) for i in range(h.field_count)}
        return h.code, text_object(&h.language_name), h.version, h.opaque, h.flag, text_object(&h.remark), fields
    except ValueError:
        return None


def is_cheap(bytes header not None):
    """Return whether json decodes a header in less than a millisecond: the header is short and contains few values.

    >>> is_cheap(b'{"code":[1,2,3]}'), is_cheap(b"[" * 2000), is_cheap(b'{"code":' + b"1" * 100 + b"}")
    (True, False, False)
    """
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(header)
    cdef const uint8_t* end = p + PyBytes_GET_SIZE(header)
    cdef Text text
    cdef int marks = 0, run = 0
    if end - p > JSON_BYTES_MOST:
        return False
    while p < end:
        if p[0] == c'"':
            p = parse_text(p + 1, end, &text)
            if p == NULL:
                return True         # json refuses it
            run = 0
            continue
        if p[0] == c"," or p[0] == c":" or p[0] == c"[" or p[0] == c"{":
            marks += 1
            run = 0
        elif p[0] <= c" ":
            run = 0
        else:
            run += 1
        if marks > JSON_MARKS_MOST or run > JSON_RUN_MOST:
            return False
        p += 1
    return True


def decode_rocketmq(bytes header not None):
    """Decode a header in the ROCKETMQ form, as decode_json() does; the language is its number.

    None: a length is impossible, or there are more than FIELDS_MAX fields.
    """
    cdef Header h
    cdef int i
    if parse_rocketmq(<const uint8_t*>PyBytes_AS_STRING(header), <size_t>PyBytes_GET_SIZE(header), &h) != RC_OK:
        return None
    fields = {text_object(&h.fields[i].name): text_object(&h.fields[i].value) for i in range(h.field_count)}
    return h.code, h.language, h.version, h.opaque, h.flag, text_object(&h.remark), fields


def parse_number(bytes text not None):
    """Parse a field as a Java long; None for anything else. For tests of number_of()."""
    cdef Text slice
    cdef int64_t number = 0
    slice.at = <const uint8_t*>PyBytes_AS_STRING(text)
    slice.size = <uint32_t>PyBytes_GET_SIZE(text)
    slice.is_escaped = False
    return number if number_of(&slice, &number) == RC_OK else None
