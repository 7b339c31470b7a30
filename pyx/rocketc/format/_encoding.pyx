# cython: language_level=3
"""Message records for Python: encoding, client batches, moving records in the log, hashes and CRC-32."""
import functools
import re

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT16_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from rocketc._arguments cimport checked_int, is_int_in
from rocketc._status cimport check
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64, rc_put_i16, rc_put_i32, rc_put_i64
from rocketc.c.crc32 cimport RC_CRC32_WAYS, rc_body_crc, rc_crc32_fn, rc_crc32_way
from rocketc.c.jhash cimport rc_jhash
from rocketc.c.layout cimport (
    RC_BLANK_BYTES, RC_ENTRY_BODY_AT, RC_ENTRY_BODY_CRC_AT, RC_ENTRY_BODY_LENGTH_AT, RC_ENTRY_FLAG_AT,
    RC_ENTRY_MAGIC_AT, RC_ENTRY_MIN_BYTES, RC_ENTRY_TOTAL_SIZE_AT, RC_FLAG_BORN_HOST_V6, RC_FLAG_STORE_HOST_V6,
    RC_HOST_V6_BYTES, RC_MAGIC_V1, RC_MAGIC_V2, RC_MSG_BORN_HOST_AT, RC_MSG_MAGIC_AT, RC_MSG_PHYSICAL_OFFSET_AT,
    RC_MSG_STORE_TIMESTAMP_PAST, RC_MSG_SYS_FLAG_AT, RC_NAME_VALUE_SEPARATOR, RC_PROPERTIES_LENGTH_BYTES,
    RC_PROPERTIES_MAX_BYTES, RC_PROPERTY_SEPARATOR, RC_PROP_CRC_BYTES, RC_PROP_CRC_DIGITS, RC_PROPERTY_CRC32,
    RC_PROP_CRC_NAME_BYTES, RC_TOPIC_V1_MAX_CHARS,
)
from rocketc.c.status cimport RC_BAD_ARGUMENT, RC_OK, RC_PROPERTIES_TOO_LONG

from rocketc.c.status cimport RC_BLANK, RC_TRUNCATED
from rocketc.format._record cimport (
    MessageArgs, Record, born_host_len, crc32, encode_blank, encode_record, message_args_size, parse_entry,
    parse_record,
)

from rocketc.errors import IllegalMessageError

_OLD_CRC = re.compile(rb"(?:(?<=\x02)|\A)%b\x01[^\x02]*\x02?" % <bytes>RC_PROPERTY_CRC32)


@functools.lru_cache(1024)
def _packed_host(address, port):
    import ipaddress            # slow to import, and only needed for encoding

    return ipaddress.ip_address(address).packed + port.to_bytes(4, "big", signed=True)


cdef bytes host_bytes(str what, object host, bint any_port=False):
    """("10.1.2.3", 10911) -> the 8 or 20 bytes of a stored host. Cached: a store has few hosts, and parsing is slow.

    what      name of the argument, for errors
    any_port  True: any number that the field can hold; False: 0 to 65535. Java can't read a host with another port
    Raises TypeError; IllegalMessageError for an address or a port that is not valid.
    """
    cdef int64_t port, least, most
    try:
        address, given = host
    except TypeError:
        raise TypeError(f"{what}: expected (address, port), got {type(host).__name__}") from None
    except ValueError:
        raise IllegalMessageError(f"{what} is {host!r}; it must be (address, port)") from None
    least = INT32_MIN if any_port else 0
    most = INT32_MAX if any_port else UINT16_MAX
    if not is_int_in(given, least, most, &port):
        port = checked_int(f"the port of {what}", given, least, most, IllegalMessageError)
    if isinstance(address, (int, float)):
        raise TypeError(f"{what}: the address must be text, not {type(address).__name__}")
    try:
        return _packed_host(address, port)
    except TypeError:
        raise TypeError(f"{what}: the address must be text, not {type(address).__name__}") from None
    except ValueError:
        raise IllegalMessageError(f"{what}: {address!r} is not an IPv4 or IPv6 address") from None


cdef int64_t field(str what, object value, int64_t least, int64_t most) except? -1:
    """Return a number for a field of a record. Raises TypeError, IllegalMessageError."""
    cdef int64_t n
    if is_int_in(value, least, most, &n):       # most calls; inline
        return n
    return checked_int(what, value, least, most, IllegalMessageError)


cdef bytes properties_bytes(object properties, bint trailing):
    """A mapping, bytes, or None -> a properties string. A pair with the value None is left out, as in RocketMQ."""
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
            raise IllegalMessageError(f"property {name!r}: its name is empty, or it contains U+0001 or U+0002")
        pairs.append(piece)
    return b"\x02".join(pairs) + (b"\x02" if trailing and pairs else b"")


cdef bytes without_crc_property(bytes properties):
    """Return a properties string without the property __CRC32#."""
    return _OLD_CRC.sub(b"", properties)


def encode(
    str topic, body=b"", *, queue_id=0, flag=0, queue_offset=0, phy_offset=0, sys_flag=0, born_timestamp=0,
    born_host=("127.0.0.1", 0), store_timestamp=0, store_host=("127.0.0.1", 0), reconsume_times=0,
    prepared_transaction_offset=0, properties=None, version=None, bint property_crc=False, bint trailing_separator=True,
):
    """Encode one message record in RocketMQ's format. Return its bytes.

    topic               its UTF-8 bytes: at most 127 in a V1 record, 32767 in a V2 record
    body                bytes-like, stored unchanged: if it is compressed, say so in sys_flag
    born_host           (address, port), IPv4 or IPv6: sets the V6 bit of sys_flag; so does store_host
    properties          a mapping, or the stored string as bytes
    version             1 or 2; None: 2 if the topic has more than 127 characters, as in RocketMQ 5.1
    property_crc        append the __CRC32# property (RocketMQ 5.2, enabledAppendPropCRC) in place of an existing one
    trailing_separator  end the properties with 0x02, as releases up to 4.9.0 and from 5.2.0 do
    Timestamps are milliseconds since the epoch. A number may be any that its field can hold, also one that a store does
    not accept, such as a negative queue id. Raises IllegalMessageError for values that the format does not allow.
    Source: MessageExtEncoder.

    >>> import rocketc
    >>> record = rocketc.encode("orders", b"hello", phy_offset=0, properties={"TAGS": "A"})
    >>> [m.body for m in rocketc.decode(record)]
    [b'hello']
    """
    cdef bytes topic_utf8 = topic.encode()
    cdef bytes born = host_bytes("born_host", born_host, True), stored = host_bytes("store_host", store_host, True)
    cdef bytes props = properties_bytes(properties, trailing_separator)
    cdef const uint8_t[::1] view = body if len(body) > 0 else b"\0"
    cdef MessageArgs d
    cdef bytes out
    # Java counts the UTF-16 units of the topic: of an ASCII text, as many as it has bytes.
    if version is None:
        is_ascii = len(topic_utf8) == len(topic)
        units = len(topic_utf8) if is_ascii else len(topic.encode("utf-16-le")) // 2
        version = 2 if units > RC_TOPIC_V1_MAX_CHARS else 1
    d.version = <int>checked_int("version", version, 1, 2)
    if len(body) > INT32_MAX or len(props) > INT32_MAX or len(topic_utf8) > INT32_MAX:
        check(RC_BAD_ARGUMENT)
    if property_crc:
        props = without_crc_property(props)
    d.queue_id = <int32_t>field("queue_id", queue_id, INT32_MIN, INT32_MAX)
    d.flag = <int32_t>field("flag", flag, INT32_MIN, INT32_MAX)
    d.queue_offset = field("queue_offset", queue_offset, INT64_MIN, INT64_MAX)
    d.phy_offset = field("phy_offset", phy_offset, INT64_MIN, INT64_MAX)
    d.sys_flag = <int32_t>field("sys_flag", sys_flag, INT32_MIN, INT32_MAX)
    d.sys_flag &= ~(RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6)
    if len(born) == RC_HOST_V6_BYTES:
        d.sys_flag |= RC_FLAG_BORN_HOST_V6
    if len(stored) == RC_HOST_V6_BYTES:
        d.sys_flag |= RC_FLAG_STORE_HOST_V6
    d.born_timestamp = field("born_timestamp", born_timestamp, INT64_MIN, INT64_MAX)
    d.born_host = <const uint8_t*>PyBytes_AS_STRING(born)
    d.store_timestamp = field("store_timestamp", store_timestamp, INT64_MIN, INT64_MAX)
    d.store_host = <const uint8_t*>PyBytes_AS_STRING(stored)
    d.reconsume_times = <int32_t>field("reconsume_times", reconsume_times, INT32_MIN, INT32_MAX)
    d.prepared_offset = field("prepared_transaction_offset", prepared_transaction_offset, INT64_MIN, INT64_MAX)
    d.body = &view[0]
    d.body_len = <int32_t>len(body)
    d.body_crc = rc_body_crc(crc32, d.body, <size_t>d.body_len)
    d.topic = <const uint8_t*>PyBytes_AS_STRING(topic_utf8)
    d.topic_len = <int32_t>len(topic_utf8)
    d.props = <const uint8_t*>PyBytes_AS_STRING(props)
    d.props_len = <int32_t>len(props)
    d.property_crc = property_crc
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>min(message_args_size(&d), INT32_MAX))
    check(encode_record(<uint8_t*>PyBytes_AS_STRING(out), <size_t>len(out), &d, crc32))
    return out


def encode_blank_record(size):
    """Return the blank record that fills the last `size` (at least 8) bytes of a file: size, magic number, then zeros.

    >>> import rocketc
    >>> rocketc.encode_blank(9).hex()
    '00000009cbd4319400'
    """
    cdef uint8_t head[RC_BLANK_BYTES]
    cdef size_t n = <size_t>field("size", size, RC_BLANK_BYTES, INT32_MAX)
    check(encode_blank(head, n))
    return head[:RC_BLANK_BYTES] + bytes(n - RC_BLANK_BYTES)


def store_timestamp_of(const uint8_t[::1] head not None):
    """Return the store timestamp (ms) of a record, given its first 76 bytes or all of it; 0 if it is not a record.

    >>> from rocketc.format import _encoding
    >>> _encoding.store_timestamp_of(_encoding.encode("orders", store_timestamp=1700000000000))
    1700000000000
    """
    cdef int64_t room = head.shape[0]
    cdef int at
    if room < RC_MSG_BORN_HOST_AT or rc_get_i32(&head[RC_MSG_MAGIC_AT]) not in (RC_MAGIC_V1, RC_MAGIC_V2):
        return 0
    at = RC_MSG_BORN_HOST_AT + born_host_len(rc_get_i32(&head[RC_MSG_SYS_FLAG_AT])) + RC_MSG_STORE_TIMESTAMP_PAST
    return rc_get_i64(&head[at]) if room >= at + 8 else 0


def encode_batch(messages):
    """Encode (flag, body, properties) triples in the wire format of a client batch, which an inner batch's body also
    has.

    properties  a mapping, or the stored string as bytes, or None. Raises IllegalMessageError for values that the
                format does not allow.
    Source: MessageDecoder.encodeMessages.

    >>> import rocketc
    >>> rocketc.encode_batch([(7, b"hi", {"KEYS": "k1"})]).hex(" ", 4)
    '00000020 00000000 00000000 00000007 00000002 68690008 4b455953 016b3102'
    """
    cdef uint8_t head[24]
    cdef list out = []
    cdef int32_t number
    for i, (flag, body, properties) in enumerate(messages):
        number = <int32_t>field(f"messages[{i}]: flag", flag, INT32_MIN, INT32_MAX)
        props = properties_bytes(properties, True)
        if len(props) > RC_PROPERTIES_MAX_BYTES:
            check(RC_PROPERTIES_TOO_LONG)
        if len(body) > INT32_MAX - RC_ENTRY_MIN_BYTES - RC_PROPERTIES_MAX_BYTES:
            check(RC_BAD_ARGUMENT)
        rc_put_i32(head + RC_ENTRY_TOTAL_SIZE_AT, <int32_t>(RC_ENTRY_MIN_BYTES + len(body) + len(props)))
        rc_put_i32(head + RC_ENTRY_MAGIC_AT, 0)
        rc_put_i32(head + RC_ENTRY_BODY_CRC_AT, 0)
        rc_put_i32(head + RC_ENTRY_FLAG_AT, number)
        rc_put_i32(head + RC_ENTRY_BODY_LENGTH_AT, <int32_t>len(body))
        out.append(head[:RC_ENTRY_BODY_AT])
        out.append(bytes(body))
        rc_put_i16(head, <short>len(props))
        out.append(head[:RC_PROPERTIES_LENGTH_BYTES])
        out.append(props)
    return b"".join(out)


def decode_batch(const uint8_t[::1] batch not None):
    """Return the (flag, body, properties) triples of a client batch; properties as the stored string.

    Raises ValueError if the bytes are not a batch.
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
            raise ValueError(f"not a batch: the entry at byte {at} of {room} does not fit")
        out.append((r.flag, <bytes>r.body[:r.body_len], <bytes>r.props[:r.props_len]))
        at += <size_t>r.size
    return out


def java_hash(str text):
    """Java's String.hashCode, as used for tags codes and index keys.

    >>> java_hash("TagA")
    2598919
    """
    cdef bytes utf8 = text.encode()
    return rc_jhash(<const uint8_t*>PyBytes_AS_STRING(utf8), <size_t>len(utf8))


_WAYS = ("table", "pclmul", "vpclmul256", "vpclmul512", "arm64")


def crc32_ways():
    """Return the names of the CRC-32 implementations that this processor supports; the last is the fastest.

    >>> crc32_ways()[0]
    'table'
    """
    cdef int way
    return [_WAYS[way] for way in range(RC_CRC32_WAYS) if rc_crc32_way(way) != NULL]


def crc32_by(str way, const uint8_t[::1] data not None, uint32_t value=0):
    """Return zlib.crc32(data, value), computed by one of crc32_ways().

    >>> f"{crc32_by('table', b'123456789'):08x}"
    'cbf43926'
    """
    cdef rc_crc32_fn fn = rc_crc32_way(<int>_WAYS.index(way))
    cdef uint32_t out
    if fn == NULL:
        raise ValueError(f"this processor does not support {way}")
    with nogil:
        out = fn(value, &data[0] if data.shape[0] > 0 else NULL, <size_t>data.shape[0])
    return out


cdef void move_record(uint8_t* p, const Record* r, int64_t phy_offset) noexcept nogil:
    """Set the physical offset in the record at p, and update its property CRC if it has one."""
    cdef int at = r.props_len - RC_PROP_CRC_BYTES, i
    cdef int64_t value
    cdef uint8_t* digits
    rc_put_i64(p + RC_MSG_PHYSICAL_OFFSET_AT, phy_offset)
    if at < 0 or (at > 0 and r.props[at - 1] != RC_PROPERTY_SEPARATOR):
        return
    if memcmp(r.props + at, RC_PROPERTY_CRC32, RC_PROP_CRC_NAME_BYTES) != 0:
        return
    digits = p + r.size - RC_PROP_CRC_DIGITS - 1
    if digits[-1] != RC_NAME_VALUE_SEPARATOR or digits[RC_PROP_CRC_DIGITS] != RC_PROPERTY_SEPARATOR:
        return
    value = rc_body_crc(crc32, p, <size_t>(r.size - RC_PROP_CRC_BYTES))
    for i in range(RC_PROP_CRC_DIGITS):
        digits[i] = <uint8_t>(c"0" + value % 10)
        value //= 10


def move_records(uint8_t[::1] data not None, int64_t phy_offset, size_t room):
    """Move the whole, consecutive records at the start of `data` to phy_offset: set their physical offsets.

    data        writable; the records in it have been checked
    room        free bytes in the file from phy_offset on
    Returns (bytes of the records that fit, why the next one is not included): "more" if it is not whole in data,
    "full" if the file has too little space for it and the blank record after it, "blank", or "damage".

    >>> import rocketc
    >>> data = bytearray(rocketc.encode("t", b"a") + rocketc.encode("t", b"b", phy_offset=93))
    >>> move_records(data, 4096, 4096)
    (186, 'more')
    >>> [m.phy_offset for m in rocketc.decode(data, 4096)]
    [4096, 4189]
    """
    cdef Record r
    cdef size_t pos = 0, n = <size_t>data.shape[0], size
    cdef uint8_t* p
    cdef int rc = RC_TRUNCATED
    cdef bint full = False
    if n > 0:
        p = &data[0]
        with nogil:
            while pos < n:
                rc = parse_record(p + pos, n - pos, &r)
                if rc != RC_OK:
                    break
                size = <size_t>r.size
                if size + RC_BLANK_BYTES > room - pos:
                    full = True
                    break
                move_record(p + pos, &r, phy_offset + <int64_t>pos)
                pos += size
                rc = RC_TRUNCATED
    if full:
        return pos, "full"
    return pos, "more" if rc == RC_TRUNCATED else "blank" if rc == RC_BLANK else "damage"
