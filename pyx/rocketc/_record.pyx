# cython: language_level=3
"""Message records of the commit log: sizes, decoding, checks, encoding.

The way from bytes to a Record is inline in _record.pxd, for the loops that walk over millions. Here is what is called
less often, and the way back.
"""
import functools
import re

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from rocketc._atomic cimport rc_fence_release
from rocketc._bytes cimport rc_get_i16, rc_get_i32, rc_put_i16, rc_put_i32, rc_put_i64
from rocketc._crc32 cimport RC_CRC32_WAYS, rc_body_crc, rc_crc32_best, rc_crc32_fn, rc_crc32_way
from rocketc._jhash cimport rc_jhash
from rocketc._layout cimport (
    RC_BLANK_BYTES,
    RC_ENTRY_BODY_AT,
    RC_ENTRY_BODY_CRC_AT,
    RC_ENTRY_BODY_LENGTH_AT,
    RC_ENTRY_FLAG_AT,
    RC_ENTRY_MAGIC_AT,
    RC_ENTRY_MIN_BYTES,
    RC_ENTRY_TOTAL_SIZE_AT,
    RC_FLAG_BORN_HOST_V6,
    RC_FLAG_STORE_HOST_V6,
    RC_HOST_V6_BYTES,
    RC_MAGIC_BLANK,
    RC_MAGIC_V1,
    RC_MAGIC_V2,
    RC_MSG_BODY_CRC_AT,
    RC_MSG_BODY_LENGTH_PAST,
    RC_MSG_BODY_PAST,
    RC_MSG_BORN_HOST_AT,
    RC_MSG_BORN_TIMESTAMP_AT,
    RC_MSG_FLAG_AT,
    RC_MSG_MAGIC_AT,
    RC_MSG_PHYSICAL_OFFSET_AT,
    RC_MSG_PREPARED_OFFSET_PAST,
    RC_MSG_QUEUE_ID_AT,
    RC_MSG_QUEUE_OFFSET_AT,
    RC_MSG_RECONSUME_TIMES_PAST,
    RC_MSG_STORE_HOST_PAST,
    RC_MSG_STORE_TIMESTAMP_PAST,
    RC_MSG_SYS_FLAG_AT,
    RC_MSG_TOTAL_SIZE_AT,
    RC_NAME_VALUE_SEPARATOR,
    RC_PROP_CRC_BYTES,
    RC_PROP_CRC_DIGITS,
    RC_PROP_CRC_NAME,
    RC_PROP_CRC_NAME_BYTES,
    RC_PROPERTIES_LENGTH_BYTES,
    RC_PROPERTIES_MAX_BYTES,
    RC_PROPERTY_SEPARATOR,
    RC_TOPIC_V1_MAX_BYTES,
    RC_TOPIC_V1_MAX_CHARS,
    RC_TOPIC_V2_MAX_BYTES,
)
from rocketc._points cimport rc_point
from rocketc._status cimport (
    RC_BAD_ARGUMENT,
    RC_BAD_INNER_BATCH,
    RC_NO_ROOM,
    RC_OK,
    RC_PROPERTIES_TOO_LONG,
    RC_TOPIC_TOO_LONG,
    check,
)

from rocketc.errors import IllegalMessageError

_OLD_CRC = re.compile(rb"(?:(?<=\x02)|\A)__CRC32#\x01[^\x02]*\x02?")

cdef int _best = rc_crc32_best()
crc32 = rc_crc32_way(_best)


cdef bint has_property_crc(const Record* r) noexcept nogil:
    """Whether the last 20 bytes are a property CRC, a pair of its own; a property of that name elsewhere is the user's.

    Source: MessageDecoder.checkMessage..., property __CRC32# of 5.2 and later.
    """
    cdef int at = r.props_len - RC_PROP_CRC_BYTES
    if at < 0 or (at > 0 and r.props[at - 1] != RC_PROPERTY_SEPARATOR):
        return False
    return (
        memcmp(r.props + at, RC_PROP_CRC_NAME, RC_PROP_CRC_NAME_BYTES) == 0
        and r.props[at + RC_PROP_CRC_NAME_BYTES] == RC_NAME_VALUE_SEPARATOR
    )


cdef bint property_crc_holds(const Record* r, rc_crc32_fn crc32) noexcept nogil:
    """Whether the record's property CRC is right, or there is none.

    Its ten digits stand least significant first; it covers all of the record before it.
    """
    cdef int i
    cdef int64_t said = 0
    cdef const uint8_t* digits = r.props + r.props_len - RC_PROP_CRC_DIGITS - 1
    if not has_property_crc(r):
        return True
    if digits[RC_PROP_CRC_DIGITS] != RC_PROPERTY_SEPARATOR:
        return False
    for i in range(RC_PROP_CRC_DIGITS - 1, -1, -1):
        if digits[i] < c"0" or digits[i] > c"9":
            return False
        said = 10 * said + (digits[i] - c"0")
    return said == rc_body_crc(crc32, r.at, <size_t>(r.size - RC_PROP_CRC_BYTES))


cdef int parse_entry(const uint8_t* src, size_t room, Record* r) noexcept nogil:
    """Read one entry of a client batch or of an inner batch's body into r: flag, body, properties, and its size.

    src   room bytes up to the end of the batch; r points into them; its other fields are left alone
    Returns RC_OK or RC_BAD_INNER_BATCH.
    Source: MessageDecoder.decodeMessage(ByteBuffer).
    """
    cdef int32_t size, rest
    if room < RC_ENTRY_MIN_BYTES:
        return RC_BAD_INNER_BATCH
    size = rc_get_i32(src + RC_ENTRY_TOTAL_SIZE_AT)
    if size < RC_ENTRY_MIN_BYTES or <size_t>size > room:
        return RC_BAD_INNER_BATCH
    rest = size - RC_ENTRY_MIN_BYTES
    r.flag = rc_get_i32(src + RC_ENTRY_FLAG_AT)
    r.body = src + RC_ENTRY_BODY_AT
    r.body_len = rc_get_i32(src + RC_ENTRY_BODY_LENGTH_AT)
    if r.body_len < 0 or r.body_len > rest:
        return RC_BAD_INNER_BATCH
    rest -= r.body_len
    r.props = r.body + r.body_len + RC_PROPERTIES_LENGTH_BYTES
    r.props_len = rc_get_i16(r.props - 2)
    if r.props_len != rest:
        return RC_BAD_INNER_BATCH
    r.size = size
    return RC_OK


cdef int64_t draft_size(const Draft* d) noexcept nogil:
    """Bytes of the record that encode_record makes of d; may be more than a record can have."""
    return (
        <int64_t>RC_MSG_BORN_HOST_AT + born_host_len(d.sys_flag) + RC_MSG_STORE_HOST_PAST + store_host_len(d.sys_flag)
        + RC_MSG_BODY_PAST + d.body_len + d.version + d.topic_len + RC_PROPERTIES_LENGTH_BYTES + d.props_len
        + d.more_len + (RC_PROP_CRC_BYTES if d.property_crc else 0)
    )


cdef int encode_record(uint8_t* dst, size_t room, const Draft* d, rc_crc32_fn crc32) noexcept nogil:
    """Write d as one record, its first 8 bytes last: who sees size and magic in shared memory sees the rest.

    dst   room bytes, writable, any alignment; not kept
    Returns RC_OK; RC_TOPIC_TOO_LONG, RC_PROPERTIES_TOO_LONG, RC_BAD_ARGUMENT (longer than 2 GiB) or RC_NO_ROOM, and
    then nothing is written.
    Source: MessageExtEncoder.encode, CommitLog.DefaultAppendMessageCallback.
    """
    cdef int64_t size = draft_size(d)
    cdef int props_len = d.props_len + d.more_len
    cdef uint8_t* p = dst
    cdef int i, width, _
    cdef uint32_t value
    cdef uint8_t head[RC_BLANK_BYTES]       # size and magic
    cdef const Piece* piece = d.pairs
    if d.property_crc:
        props_len += RC_PROP_CRC_BYTES
    if d.topic_len > (RC_TOPIC_V1_MAX_BYTES if d.version == 1 else RC_TOPIC_V2_MAX_BYTES):
        return RC_TOPIC_TOO_LONG
    if props_len > RC_PROPERTIES_MAX_BYTES:
        return RC_PROPERTIES_TOO_LONG
    if size > INT32_MAX:
        return RC_BAD_ARGUMENT
    if <size_t>size > room:
        return RC_NO_ROOM
    rc_put_i32(p + RC_MSG_BODY_CRC_AT, d.body_crc)
    rc_put_i32(p + RC_MSG_QUEUE_ID_AT, d.queue_id)
    rc_put_i32(p + RC_MSG_FLAG_AT, d.flag)
    rc_put_i64(p + RC_MSG_QUEUE_OFFSET_AT, d.queue_offset)
    rc_put_i64(p + RC_MSG_PHYSICAL_OFFSET_AT, d.phy_offset)
    rc_put_i32(p + RC_MSG_SYS_FLAG_AT, d.sys_flag)
    rc_put_i64(p + RC_MSG_BORN_TIMESTAMP_AT, d.born_timestamp)
    p += RC_MSG_BORN_HOST_AT
    width = born_host_len(d.sys_flag)
    memcpy(p, d.born_host, <size_t>width)
    p += width
    rc_put_i64(p + RC_MSG_STORE_TIMESTAMP_PAST, d.store_timestamp)
    p += RC_MSG_STORE_HOST_PAST
    width = store_host_len(d.sys_flag)
    memcpy(p, d.store_host, <size_t>width)
    p += width
    rc_put_i32(p + RC_MSG_RECONSUME_TIMES_PAST, d.reconsume_times)
    rc_put_i64(p + RC_MSG_PREPARED_OFFSET_PAST, d.prepared_offset)
    rc_put_i32(p + RC_MSG_BODY_LENGTH_PAST, d.body_len)
    rc_point(b"record: numbers")
    p += RC_MSG_BODY_PAST
    if d.body_len > 0:                  # nothing may have no address
        memcpy(p, d.body, <size_t>d.body_len)
    rc_point(b"record: body")
    p += d.body_len
    if d.version == 1:
        p[0] = <uint8_t>d.topic_len
    else:
        rc_put_i16(p, <short>d.topic_len)
    p += d.version
    memcpy(p, d.topic, <size_t>d.topic_len)
    p += d.topic_len
    rc_put_i16(p, <short>props_len)
    rc_point(b"record: topic")
    p += RC_PROPERTIES_LENGTH_BYTES
    if d.props_len > 0:
        memcpy(p, d.props, <size_t>d.props_len)
    p += d.props_len
    if d.more_len > 0 and d.props_len > 0 and p[-1] != RC_PROPERTY_SEPARATOR:
        p[0] = RC_PROPERTY_SEPARATOR
        p += 1
    for _ in range(d.pair_count):
        memcpy(p, piece.at, <size_t>piece.len)
        p += piece.len
        p[0] = RC_NAME_VALUE_SEPARATOR
        memcpy(p + 1, piece[1].at, <size_t>piece[1].len)
        p += 1 + piece[1].len
        p[0] = RC_PROPERTY_SEPARATOR
        p += 1
        piece += 2
    if d.property_crc:
        encode_head(head, size, d.version)
        value = crc32(crc32(0, head, sizeof(head)), dst + sizeof(head), <size_t>size - sizeof(head) - RC_PROP_CRC_BYTES)
        value &= 0x7FFFFFFF
        memcpy(p, RC_PROP_CRC_NAME, RC_PROP_CRC_NAME_BYTES)
        p[RC_PROP_CRC_NAME_BYTES] = RC_NAME_VALUE_SEPARATOR
        p += RC_PROP_CRC_NAME_BYTES + 1
        for i in range(RC_PROP_CRC_DIGITS):
            p[i] = <uint8_t>(c"0" + value % 10)
            value //= 10
        p[RC_PROP_CRC_DIGITS] = RC_PROPERTY_SEPARATOR
    rc_point(b"record: all but size and magic")
    rc_fence_release()
    encode_head(dst, size, d.version)
    return RC_OK


cdef inline void encode_head(uint8_t* dst, int64_t size, int version) noexcept nogil:
    rc_put_i32(dst + RC_MSG_MAGIC_AT, RC_MAGIC_V1 if version == 1 else RC_MAGIC_V2)
    rc_point(b"record: magic")
    rc_put_i32(dst + RC_MSG_TOTAL_SIZE_AT, <int32_t>size)


cdef int encode_blank(uint8_t* dst, size_t room) noexcept nogil:
    """Fill the rest of a mapped file with one blank record.

    dst   room bytes, writable, any alignment; not kept; only the first 8 are written
    room  bytes left in the file, at least RC_BLANK_BYTES
    Returns RC_OK, or RC_NO_ROOM (nothing is written).
    Source: CommitLog.doAppend, END_OF_FILE branch.
    """
    if room < RC_BLANK_BYTES:
        return RC_NO_ROOM
    if room > INT32_MAX:
        return RC_BAD_ARGUMENT
    rc_put_i32(dst + RC_MSG_TOTAL_SIZE_AT, <int32_t>room)
    rc_point(b"blank: size")
    rc_put_i32(dst + RC_MSG_MAGIC_AT, RC_MAGIC_BLANK)
    return RC_OK


@functools.lru_cache(1024)
def _packed_host(address, port):
    import ipaddress            # takes a moment to load, and only who encodes needs it

    return ipaddress.ip_address(address).packed + int(port).to_bytes(4, "big", signed=True)


cdef bytes host_bytes(object host):
    """("10.1.2.3", 10911) -> the 8 or 20 bytes of a stored host. A store has few hosts, and parsing one is slow."""
    address, port = host
    return _packed_host(address, port)


cdef bytes properties_bytes(object properties, bint trailing):
    """A mapping, bytes, or None -> a properties string; a pair whose value is None is left out, as RocketMQ does."""
    cdef list pairs
    if properties is None:
        return b""
    if isinstance(properties, bytes):
        return properties
    pairs = []
    for name, value in properties.items():
        if value is None:
            continue
        piece = f"{name}\x01{value}".encode()
        if not name or "\x01" in name or b"\x02" in piece:
            raise IllegalMessageError(f"property {name!r} holds a separator (U+0001 or U+0002), or has no name")
        pairs.append(piece)
    return b"\x02".join(pairs) + (b"\x02" if trailing and pairs else b"")


def encode(
    str topic, body=b"", *, int32_t queue_id=0, int32_t flag=0, int64_t queue_offset=0, int64_t phy_offset=0,
    int32_t sys_flag=0, int64_t born_timestamp=0, born_host=("127.0.0.1", 0), int64_t store_timestamp=0,
    store_host=("127.0.0.1", 0), int32_t reconsume_times=0, int64_t prepared_transaction_offset=0, properties=None,
    version=None, bint property_crc=False, bint trailing_separator=True,
):
    """Encode one message record as RocketMQ stores it; return its bytes.

    topic               its UTF-8 bytes: at most 127 in a V1 record, 32767 in a V2 record
    body                bytes-like, stored as it is: compress it before and say so in sys_flag
    born_host           (address, port), IPv4 or IPv6: sets the two V6 bits of sys_flag, store_host likewise
    properties          a mapping, or the stored string as bytes
    version             1 or 2; None takes 2 if the topic has more than 127 characters, as RocketMQ 5.1 does
    property_crc        append the __CRC32# property (RocketMQ 5.2, enabledAppendPropCRC) in the place of any other
    trailing_separator  end the properties with 0x02, as releases up to 4.9.0 and from 5.2.0 do
    Timestamps are milliseconds since the epoch. Raises IllegalMessageError for what the format can't hold.
    Source: MessageExtEncoder.

    >>> import rocketc
    >>> record = rocketc.encode("orders", b"hello", phy_offset=0, properties={"TAGS": "A"})
    >>> [m.body for m in rocketc.decode(record)]
    [b'hello']
    """
    cdef bytes topic_utf8 = topic.encode()
    cdef bytes born = host_bytes(born_host), stored = host_bytes(store_host)
    cdef bytes props = properties_bytes(properties, trailing_separator)
    cdef const uint8_t[::1] view = body if len(body) > 0 else b"\0"
    cdef Draft d
    cdef bytes out
    # Java counts the UTF-16 units of the topic.
    if version is None:
        version = 2 if len(topic.encode("utf-16-le")) // 2 > RC_TOPIC_V1_MAX_CHARS else 1
    d.version = version
    if d.version < 1 or d.version > 2:
        raise ValueError(f"version={version!r}: 1, 2 or None")
    if len(body) > INT32_MAX or len(props) > INT32_MAX or len(topic_utf8) > INT32_MAX:
        check(RC_BAD_ARGUMENT)
    if property_crc:
        props = _OLD_CRC.sub(b"", props)
        if props and not props.endswith(b"\x02"):
            props += b"\x02"
    d.queue_id = queue_id
    d.flag = flag
    d.queue_offset = queue_offset
    d.phy_offset = phy_offset
    d.sys_flag = sys_flag & ~(RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6)
    if len(born) == RC_HOST_V6_BYTES:
        d.sys_flag |= RC_FLAG_BORN_HOST_V6
    if len(stored) == RC_HOST_V6_BYTES:
        d.sys_flag |= RC_FLAG_STORE_HOST_V6
    d.born_timestamp = born_timestamp
    d.born_host = <const uint8_t*>PyBytes_AS_STRING(born)
    d.store_timestamp = store_timestamp
    d.store_host = <const uint8_t*>PyBytes_AS_STRING(stored)
    d.reconsume_times = reconsume_times
    d.prepared_offset = prepared_transaction_offset
    d.body = &view[0]
    d.body_len = <int32_t>len(body)
    d.body_crc = rc_body_crc(crc32, d.body, <size_t>d.body_len)
    d.topic = <const uint8_t*>PyBytes_AS_STRING(topic_utf8)
    d.topic_len = <int32_t>len(topic_utf8)
    d.props = <const uint8_t*>PyBytes_AS_STRING(props)
    d.props_len = <int32_t>len(props)
    d.pairs = NULL
    d.pair_count = d.more_len = 0
    d.property_crc = property_crc
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>min(draft_size(&d), INT32_MAX))
    check(encode_record(<uint8_t*>PyBytes_AS_STRING(out), <size_t>len(out), &d, crc32))
    return out


def encode_blank_record(size_t size):
    """The blank record that fills the last `size` (at least 8) bytes of a file: size, magic, then zeros.

    >>> import rocketc
    >>> rocketc.encode_blank(9).hex()
    '00000009cbd4319400'
    """
    cdef uint8_t head[RC_BLANK_BYTES]
    if size >= RC_BLANK_BYTES:
        check(encode_blank(head, size))
        return head[:RC_BLANK_BYTES] + bytes(size - RC_BLANK_BYTES)
    raise ValueError(f"size={size}: a blank record has at least {RC_BLANK_BYTES} bytes")


def store_timestamp_of(const uint8_t[::1] head not None):
    """Store timestamp (ms) of the record that begins at these bytes, a whole one or its first 76; 0 if none does.

    >>> from rocketc import _record
    >>> _record.store_timestamp_of(_record.encode("orders", store_timestamp=1700000000000))
    1700000000000
    """
    cdef int64_t room = head.shape[0]
    cdef int at
    if room < RC_MSG_BORN_HOST_AT or rc_get_i32(&head[RC_MSG_MAGIC_AT]) not in (RC_MAGIC_V1, RC_MAGIC_V2):
        return 0
    at = RC_MSG_BORN_HOST_AT + born_host_len(rc_get_i32(&head[RC_MSG_SYS_FLAG_AT])) + RC_MSG_STORE_TIMESTAMP_PAST
    return rc_get_i64(&head[at]) if room >= at + 8 else 0


def encode_batch(messages):
    """Encode (flag, body, properties) triples in the wire form of a client batch, which is also an inner batch's body.

    properties  a mapping, or the stored string as bytes, or None. Raises IllegalMessageError for what the format
                can't hold.
    Source: MessageDecoder.encodeMessages.

    >>> import rocketc
    >>> rocketc.encode_batch([(7, b"hi", {"KEYS": "k1"})]).hex(" ", 4)
    '00000020 00000000 00000000 00000007 00000002 68690008 4b455953 016b3102'
    """
    cdef uint8_t head[24]
    cdef list out = []
    for flag, body, properties in messages:
        props = properties_bytes(properties, True)
        if len(props) > RC_PROPERTIES_MAX_BYTES:
            check(RC_PROPERTIES_TOO_LONG)
        if len(body) > INT32_MAX - RC_ENTRY_MIN_BYTES - RC_PROPERTIES_MAX_BYTES:
            check(RC_BAD_ARGUMENT)
        rc_put_i32(head + RC_ENTRY_TOTAL_SIZE_AT, <int32_t>(RC_ENTRY_MIN_BYTES + len(body) + len(props)))
        rc_put_i32(head + RC_ENTRY_MAGIC_AT, 0)
        rc_put_i32(head + RC_ENTRY_BODY_CRC_AT, 0)
        rc_put_i32(head + RC_ENTRY_FLAG_AT, <int32_t>flag)
        rc_put_i32(head + RC_ENTRY_BODY_LENGTH_AT, <int32_t>len(body))
        out.append(head[:RC_ENTRY_BODY_AT])
        out.append(bytes(body))
        rc_put_i16(head, <short>len(props))
        out.append(head[:RC_PROPERTIES_LENGTH_BYTES])
        out.append(props)
    return b"".join(out)


def decode_batch(const uint8_t[::1] batch not None):
    """The (flag, body, properties) triples of a client batch; properties as the stored string.

    Raises ValueError for bytes that are no batch.
    Source: MessageDecoder.decodeMessages.

    >>> import rocketc
    >>> rocketc.decode_batch(rocketc.encode_batch([(7, b"hi", {"KEYS": "k1"}), (0, b"", None)]))
    [(7, b'hi', b'KEYS\\x01k1\\x02'), (0, b'', b'')]
    """
    cdef Record r
    cdef size_t at = 0, room = <size_t>batch.shape[0]
    cdef list out = []
    while at < room:
        if parse_entry(&batch[0] + at, room - at, &r) != RC_OK:
            raise ValueError(f"no batch: the entry at byte {at} of {room} does not fit")
        out.append((r.flag, <bytes>r.body[:r.body_len], <bytes>r.props[:r.props_len]))
        at += <size_t>r.size
    return out


def java_hash(str text):
    """Java's String.hashCode: what a tags code and an index key are made of.

    >>> java_hash("TagA")
    2598919
    """
    cdef bytes utf8 = text.encode()
    return rc_jhash(<const uint8_t*>PyBytes_AS_STRING(utf8), <size_t>len(utf8))


_WAYS = ("table", "pclmul", "vpclmul256", "vpclmul512", "arm64")


def crc32_ways():
    """The names of the ways to compute a CRC-32 that this processor has; the last is the fastest.

    >>> crc32_ways()[0]
    'table'
    """
    cdef int way
    return [_WAYS[way] for way in range(RC_CRC32_WAYS) if rc_crc32_way(way) != NULL]


def crc32_by(str way, const uint8_t[::1] data not None, uint32_t value=0):
    """zlib.crc32(data, value), computed in one of crc32_ways().

    >>> f"{crc32_by('table', b'123456789'):08x}"
    'cbf43926'
    """
    cdef rc_crc32_fn fn = rc_crc32_way(<int>_WAYS.index(way))
    cdef uint32_t out
    if fn == NULL:
        raise ValueError(f"this processor has no {way}")
    with nogil:
        out = fn(value, &data[0] if data.shape[0] > 0 else NULL, <size_t>data.shape[0])
    return out
