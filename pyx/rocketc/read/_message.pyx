# cython: language_level=3
"""Message: one record as a Python value, decoded attribute by attribute."""
import datetime
import json
from base64 import b64encode

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uintptr_t
from libc.string cimport memcpy, strlen

from rocketc._status cimport error_of
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.json cimport RC_JSON_GROWTH, rc_json_base64, rc_json_i64, rc_json_text
from rocketc.c.layout cimport (
    RC_ENTRY_BODY_AT, RC_MAGIC_V1, RC_MSG_BODY_CRC_AT, RC_MSG_BORN_HOST_AT, RC_MSG_BORN_TIMESTAMP_AT, RC_MSG_MAGIC_AT,
    RC_MSG_PHYSICAL_OFFSET_AT, RC_MSG_PREPARED_OFFSET_PAST, RC_MSG_QUEUE_ID_AT, RC_MSG_RECONSUME_TIMES_PAST,
    RC_MSG_STORE_HOST_PAST, RC_MSG_STORE_TIMESTAMP_PAST, RC_PROPERTY_KEYS, RC_PROPERTY_TAGS,
)
from rocketc.c.properties cimport (
    RC_PAIRS_SEEN, RC_PAIR_MIN_BYTES, rc_drop_duplicates, rc_find_property, rc_pair, rc_split_properties,
)
from rocketc.c.status cimport RC_OK, RC_TRUNCATED
from rocketc.c.text cimport RC_HOST_TEXT_MAX, rc_hex, rc_host_text
from rocketc.c.utf8 cimport rc_utf8_valid
from rocketc.format._record cimport Record, born_host_len, parse_entry, parse_record, store_host_len

from rocketc.errors import CorruptRecordError

cdef enum:
    JSON_ROOM = 2048        # bytes that to_json() writes in addition to the texts: names, numbers, ids and hosts

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


cdef bytes copy_of(const Record* whole):
    """Copy the bytes of a record."""
    return PyBytes_FromStringAndSize(<const char*>whole.at, <Py_ssize_t>whole.size)


cdef Message message_of(const Record* r, const Record* whole, bytes raw, bytes other, str file, str broker):
    """Create a message with its own memory.

    r      the record, or a message of the inner batch in `whole`
    whole  the record in the log; r itself if it is not an inner batch
    raw    a copy of the whole record, shared by the messages of a batch; None: make a copy
    other  the memory of the body of r (and of its properties, for a message of an inner batch); None: the record
    broker  name of the broker that sent it, or None
    """
    cdef Message m = Message.__new__(Message)
    cdef ptrdiff_t shift
    m._raw = raw if raw is not None else copy_of(whole)
    m._body = other
    m._file = file
    m._broker = broker
    m._r = r[0]
    m._r.at = <const uint8_t*>PyBytes_AS_STRING(m._raw)
    shift = <ptrdiff_t>(<uintptr_t>m._r.at - <uintptr_t>whole.at)
    m._r.tail = whole.tail + shift
    m._r.topic = whole.topic + shift
    m._r.size = whole.size
    if other is None:
        m._r.body = r.body + shift
    if r.props == whole.props:
        m._r.props = r.props + shift
    return m


cdef Message message_in(const Record* r, bytes raw, object body, str file):
    """Create a message that points to shared memory; nothing is copied.

    r     the record, or a message of an inner batch; its pointers point into raw and body
    raw   bytes of the whole record, or of the parts before and after the body if the body is elsewhere
    body  the memory of the body of r (and of its properties, for a message of an inner batch). It is a bytes object, or
          a buffer of the body alone that keeps a file mapped; None: the body is in raw
    """
    cdef Message m = Message.__new__(Message)
    m._raw = raw
    m._body = body
    m._file = file
    m._r = r[0]
    return m


cdef str text(const uint8_t* p, Py_ssize_t n):
    return (<const char*>p)[:n].decode("utf-8", "replace")


cdef inline str property_of(const Record* r, const char* name):
    cdef int at = 0, n = rc_find_property(r.props, r.props_len, name, &at)
    return None if n < 0 else text(r.props + at, n)


cdef rc_pair* room_for_pairs(int props_len) except NULL:
    """Allocate room for the pairs of a property string; the caller frees it."""
    cdef rc_pair* pairs = <rc_pair*>PyMem_Malloc((<size_t>props_len // RC_PAIR_MIN_BYTES + 2) * sizeof(rc_pair))
    if pairs == NULL:
        raise MemoryError
    return pairs


cdef inline size_t literal(uint8_t* dst, const char* text) noexcept:
    memcpy(dst, text, strlen(text))
    return strlen(text)


cdef inline size_t number(uint8_t* dst, const char* name, int64_t value) noexcept:
    cdef size_t n = literal(dst, name)
    return n + rc_json_i64(dst + n, value)


cdef str printable(str path):
    """Return a path as text, with U+FFFD where the name of a file or folder is not UTF-8."""
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


cdef str host_text(const uint8_t* p, int width):
    """Return `ip:port` or `[v6]:port` (RFC 5952)."""
    cdef uint8_t dst[RC_HOST_TEXT_MAX]
    return text(dst, rc_host_text(dst, p, width))


cdef object time_of(int64_t ms):
    try:
        return _EPOCH + datetime.timedelta(milliseconds=ms)
    except OverflowError:
        return None


@cython.freelist(256)
@cython.no_gc
@cython.final
cdef class Message:
    """One message of a store, created by scans and reads. Attributes are decoded on access, from a copy of the record.

    Names are RocketMQ's (MessageExt) in snake_case. Timestamps are int milliseconds; `store_time` and `born_time` are
    the same as aware datetimes (None outside of the years 1 to 9999). Texts that are not UTF-8 are decoded with U+FFFD,
    as in Java. A message of an inner batch has its own queue offset, flag, body and properties; all other fields are
    those of the batch's record. Messages are equal if their records are equal, in any file. They can be pickled.

    >>> import rocketc
    >>> [m] = rocketc.decode(rocketc.encode("orders", b"hi", properties={"TAGS": "A"}))
    >>> m.topic, m.body, m.tags, m.keys, m.msg_id
    ('orders', b'hi', 'A', None, '7F000001000000000000000000000000')
    """

    def __init__(self):
        raise TypeError(
            "create messages with rocketc.scan() or rocketc.decode(), or with Message.of(record) from a record's bytes"
        )

    @staticmethod
    def of(bytes record not None, str file=None):
        """Create a message from the bytes of one record; only its lengths are checked.

        Raises CorruptRecordError.

        >>> import rocketc
        >>> rocketc.Message.of(rocketc.encode("orders", b"hi", queue_id=3)).queue_id
        3
        """
        cdef Record r
        cdef int rc = parse_record(<const uint8_t*>PyBytes_AS_STRING(record), <size_t>len(record), &r)
        if rc != RC_OK or r.size != len(record):
            raise error_of(rc if -40 < rc <= -10 else RC_TRUNCATED, file, 0)
        return message_of(&r, &r, record, None, file, None)

    @property
    def topic(self):
        return text(self._r.topic, self._r.topic_len)

    @property
    def queue_id(self):
        return rc_get_i32(self._r.at + RC_MSG_QUEUE_ID_AT)

    @property
    def broker_name(self):
        """The broker that sent it, or None if it was read from a file or a buffer.

        Each broker of a topic has queues of its own, from 0 on. So the key of a message of a cluster is (broker_name,
        topic, queue_id, queue_offset).
        """
        return self._broker

    @property
    def queue_offset(self):
        return self._r.queue_offset

    @property
    def phy_offset(self):
        """Physical offset of the record: bytes from the start of the commit log."""
        return self._r.phy_offset

    @property
    def store_timestamp(self):
        """The time when the broker stored it: ms since the epoch."""
        return rc_get_i64(self._r.tail + RC_MSG_STORE_TIMESTAMP_PAST)

    @property
    def born_timestamp(self):
        """The time when the producer created it: ms since the epoch."""
        return rc_get_i64(self._r.at + RC_MSG_BORN_TIMESTAMP_AT)

    @property
    def store_time(self):
        return time_of(self.store_timestamp)

    @property
    def born_time(self):
        return time_of(self.born_timestamp)

    @property
    def keys(self):
        """Property KEYS: keys separated by blanks, or None."""
        return property_of(&self._r, RC_PROPERTY_KEYS)

    @property
    def tags(self):
        """Property TAGS, or None."""
        return property_of(&self._r, RC_PROPERTY_TAGS)

    @property
    def body(self):
        """The body, decompressed unless the scan has decompress=False. With get(..., views=True): a memoryview."""
        if self._body is not None and type(self._body) is not bytes:
            return memoryview(self._body)
        return <bytes>self._r.body[:self._r.body_len]

    @property
    def stored_body(self):
        """The body as stored in the record: compressed, or the whole inner batch."""
        cdef bytes whole = self._whole()
        cdef Record r
        # The bytes were copied after the check: a writer may have changed them in between.
        if parse_record(<const uint8_t*>PyBytes_AS_STRING(whole), <size_t>len(whole), &r) != RC_OK:
            raise CorruptRecordError(self._file, self._r.phy_offset, "bad_length", "it changed while it was read")
        return <bytes>r.body[:r.body_len]

    @property
    def properties(self):
        """All properties as a new dict, in the stored order; of duplicates the last one counts."""
        cdef const uint8_t* p = self._r.props
        cdef dict out = {}
        cdef int i, n
        cdef rc_pair* pairs = room_for_pairs(self._r.props_len)
        try:
            n = rc_split_properties(p, self._r.props_len, p + self._r.props_len, pairs)
            for i in range(n):
                name = text(p + pairs[i].name, pairs[i].name_end - pairs[i].name)
                out[name] = text(p + pairs[i].value, pairs[i].value_end - pairs[i].value)
        finally:
            PyMem_Free(pairs)
        return out

    @property
    def msg_id(self):
        """Offset message id: store host and physical offset, upper-case hex; 32 characters, 56 with IPv6."""
        cdef bytes host = self._r.tail[RC_MSG_STORE_HOST_PAST:RC_MSG_STORE_HOST_PAST + store_host_len(self._r.sys_flag)]
        return host.hex().upper() + f"{<unsigned long long>self._r.phy_offset:016X}"

    @property
    def flag(self):
        return self._r.flag

    @property
    def sys_flag(self):
        return self._r.sys_flag

    @property
    def reconsume_times(self):
        return rc_get_i32(self._behind_hosts() + RC_MSG_RECONSUME_TIMES_PAST)

    @property
    def body_crc(self):
        """BODYCRC as stored: the CRC of the stored body, with the top bit cleared."""
        return rc_get_i32(self._r.at + RC_MSG_BODY_CRC_AT)

    @property
    def born_host(self):
        return host_text(self._r.at + RC_MSG_BORN_HOST_AT, born_host_len(self._r.sys_flag))

    @property
    def store_host(self):
        return host_text(self._r.tail + RC_MSG_STORE_HOST_PAST, store_host_len(self._r.sys_flag))

    @property
    def prepared_transaction_offset(self):
        return rc_get_i64(self._behind_hosts() + RC_MSG_PREPARED_OFFSET_PAST)

    @property
    def store_size(self):
        """Size of the whole record in bytes."""
        return self._r.size

    @property
    def file(self):
        """The path of the file that it was read from, or None."""
        return self._file

    @property
    def version(self):
        """Version of the record format: 1, or 2 for long topics."""
        return 1 if rc_get_i32(self._r.at + RC_MSG_MAGIC_AT) == RC_MAGIC_V1 else 2

    @property
    def record(self):
        """The bytes of the whole record as stored."""
        return self._whole()

    cdef bytes _whole(self):
        cdef Py_ssize_t head, tail
        if self._body is not None and type(self._body) is not bytes:
            head = self._r.topic - self._r.at - (1 if self.version == 1 else 2)
            tail = self._r.size - self._r.body_len - head
            return b"".join([self._r.at[:head], self._body, (self._r.at + head)[:tail]])
        if len(self._raw) == self._r.size:
            return self._raw
        return self._r.at[:self._r.size]

    cdef const uint8_t* _behind_hosts(self) noexcept:
        return self._r.tail + RC_MSG_STORE_HOST_PAST + store_host_len(self._r.sys_flag)

    def to_dict(self):
        """Return the columns of a scan as a JSON-ready dict.

        Timestamps are in ms. The body is text, or bodyBase64 if it is not UTF-8. Missing fields are left out.

        >>> import rocketc
        >>> [m] = rocketc.decode(rocketc.encode("t", b"\\xff"))
        >>> m.to_dict()["bodyBase64"]
        '/w=='
        """
        cdef dict out = {
            "topic": self.topic,
            "queueId": self.queue_id,
        }
        if self._broker is not None:
            out["brokerName"] = self._broker
        out |= {
            "queueOffset": self.queue_offset,
            "physicalOffset": self.phy_offset,
            "storeTimestamp": self.store_timestamp,
            "bornTimestamp": self.born_timestamp,
        }
        for name, value in (("keys", self.keys), ("tags", self.tags)):
            if value is not None:
                out[name] = value
        body = bytes(self.body)
        try:
            out["body"] = body.decode()
        except UnicodeDecodeError:
            out["bodyBase64"] = b64encode(body).decode("ascii")
        out["properties"] = self.properties
        out["msgId"] = self.msg_id
        out["flag"] = self.flag
        out["sysFlag"] = self.sys_flag
        out["reconsumeTimes"] = self.reconsume_times
        out["bodyCRC"] = self.body_crc
        out["bornHost"] = self.born_host
        out["storeHost"] = self.store_host
        out["preparedTransactionOffset"] = self.prepared_transaction_offset
        out["storeSize"] = self.store_size
        if self._file is not None:
            out["file"] = self._file
        return out

    def to_json(self):
        """Return to_dict() as one line of JSON.

        >>> import rocketc
        >>> rocketc.Message.of(rocketc.encode("t", b"a")).to_json()[:58]
        '{"topic": "t", "queueId": 0, "queueOffset": 0, "physicalOf'
        """
        cdef size_t texts = <size_t>self._r.topic_len + 2 * <size_t>self._r.props_len + <size_t>self._r.body_len
        cdef bytes broker = None, file = None
        cdef rc_pair* pairs = NULL
        cdef uint8_t* dst
        if self._body is not None and type(self._body) is not bytes:
            return json.dumps(self.to_dict(), ensure_ascii=False)
        try:
            if not rc_utf8_valid(self._r.props, <size_t>self._r.props_len):
                raise UnicodeError         # different names may become equal when they are decoded
            if self._file is not None:
                file = self._file.encode()
                texts += <size_t>len(file)
            if self._broker is not None:
                broker = self._broker.encode()
                texts += <size_t>len(broker)
        except UnicodeError:
            return json.dumps(self.to_dict(), ensure_ascii=False)
        dst = <uint8_t*>PyMem_Malloc(RC_JSON_GROWTH * texts + JSON_ROOM)
        try:
            if dst == NULL:
                raise MemoryError
            pairs = room_for_pairs(self._r.props_len)
            return PyUnicode_DecodeUTF8(<const char*>dst, <Py_ssize_t>self._write_json(dst, broker, file, pairs), NULL)
        finally:
            PyMem_Free(pairs)
            PyMem_Free(dst)

    cdef size_t _write_json(self, uint8_t* dst, bytes broker, bytes file, rc_pair* pairs) noexcept:
        """Write to_dict() as JSON to dst, which is large enough; return the length."""
        cdef uint8_t* out = dst
        cdef const uint8_t* hosts = self._behind_hosts()
        cdef const uint8_t* store_host = self._r.tail + RC_MSG_STORE_HOST_PAST
        cdef const uint8_t* p = self._r.props
        cdef int at = 0, n
        out += literal(out, '{"topic": ')
        out += rc_json_text(out, self._r.topic, <size_t>self._r.topic_len)
        out += number(out, ', "queueId": ', rc_get_i32(self._r.at + RC_MSG_QUEUE_ID_AT))
        if broker is not None:
            out += literal(out, ', "brokerName": ')
            out += rc_json_text(out, <const uint8_t*>PyBytes_AS_STRING(broker), <size_t>len(broker))
        out += number(out, ', "queueOffset": ', self._r.queue_offset)
        out += number(out, ', "physicalOffset": ', self._r.phy_offset)
        out += number(out, ', "storeTimestamp": ', rc_get_i64(self._r.tail + RC_MSG_STORE_TIMESTAMP_PAST))
        out += number(out, ', "bornTimestamp": ', rc_get_i64(self._r.at + RC_MSG_BORN_TIMESTAMP_AT))
        n = rc_find_property(p, self._r.props_len, RC_PROPERTY_KEYS, &at)
        if n >= 0:
            out += literal(out, ', "keys": ')
            out += rc_json_text(out, p + at, <size_t>n)
        n = rc_find_property(p, self._r.props_len, RC_PROPERTY_TAGS, &at)
        if n >= 0:
            out += literal(out, ', "tags": ')
            out += rc_json_text(out, p + at, <size_t>n)
        if rc_utf8_valid(self._r.body, <size_t>self._r.body_len):
            out += literal(out, ', "body": ')
            out += rc_json_text(out, self._r.body, <size_t>self._r.body_len)
        else:
            out += literal(out, ', "bodyBase64": ')
            out += rc_json_base64(out, self._r.body, <size_t>self._r.body_len)
        out += self._write_properties(out, pairs)
        out += literal(out, ', "msgId": "')
        n = store_host_len(self._r.sys_flag)
        rc_hex(out, store_host, <size_t>n)
        out += 2 * n
        rc_hex(out, self._r.at + RC_MSG_PHYSICAL_OFFSET_AT, 8)
        out += 16
        out += number(out, '", "flag": ', self._r.flag)
        out += number(out, ', "sysFlag": ', self._r.sys_flag)
        out += number(out, ', "reconsumeTimes": ', rc_get_i32(hosts + RC_MSG_RECONSUME_TIMES_PAST))
        out += number(out, ', "bodyCRC": ', rc_get_i32(self._r.at + RC_MSG_BODY_CRC_AT))
        out += literal(out, ', "bornHost": "')
        out += rc_host_text(out, self._r.at + RC_MSG_BORN_HOST_AT, born_host_len(self._r.sys_flag))
        out += literal(out, '", "storeHost": "')
        out += rc_host_text(out, store_host, n)
        out += number(out, '", "preparedTransactionOffset": ', rc_get_i64(hosts + RC_MSG_PREPARED_OFFSET_PAST))
        out += number(out, ', "storeSize": ', self._r.size)
        if file is not None:
            out += literal(out, ', "file": ')
            out += rc_json_text(out, <const uint8_t*>PyBytes_AS_STRING(file), <size_t>len(file))
        out[0] = <uint8_t>c'}'
        return <size_t>(out + 1 - dst)

    cdef size_t _write_properties(self, uint8_t* dst, rc_pair* pairs) noexcept:
        cdef uint16_t seen[RC_PAIRS_SEEN]
        cdef uint8_t* out = dst
        cdef const uint8_t* p = self._r.props
        cdef int i, n = rc_split_properties(p, self._r.props_len, p + self._r.props_len, pairs)
        n = rc_drop_duplicates(p, pairs, n, seen)
        out += literal(out, ', "properties": {')
        for i in range(n):
            if i > 0:
                out += literal(out, ", ")
            out += rc_json_text(out, p + pairs[i].name, <size_t>(pairs[i].name_end - pairs[i].name))
            out += literal(out, ": ")
            out += rc_json_text(out, p + pairs[i].value, <size_t>(pairs[i].value_end - pairs[i].value))
        out[0] = <uint8_t>c'}'
        return <size_t>(out + 1 - dst)

    def __repr__(self):
        try:
            body = self.body
            shown = repr(bytes(body)) if len(body) <= 40 else f"<{len(body)} bytes>"
        except Exception as error:      # compressed, and damaged or without a codec
            shown = f"<not readable: {error}>"
        where = f"{self.topic}/{self.queue_id}@{self.queue_offset} phy_offset={self.phy_offset}"
        return f"<Message {where} tags={self.tags!r} body={shown}>"

    def __eq__(self, other):
        cdef Message m
        if not isinstance(other, Message):
            return NotImplemented
        m = <Message>other
        return self._whole() == m._whole() and self._r.queue_offset == m._r.queue_offset and self.body == m.body

    def __hash__(self):
        return hash((self._r.phy_offset, self._r.queue_offset))

    def __reduce__(self):
        cdef uintptr_t at = <uintptr_t>self._r.at, props = <uintptr_t>self._r.props
        entry, other = None, self._body if type(self._body) is bytes else None
        if other is not None and not at <= props <= at + <uintptr_t>self._r.size:
            start = self._r.body - RC_ENTRY_BODY_AT - <const uint8_t*>PyBytes_AS_STRING(other)
            entry = (start, self._r.queue_offset)
        return _again, (self._whole(), other, entry, self._file, self._broker)


def _again(bytes raw not None, bytes other, entry, str file, str broker=None):
    """Create a message from its pickled form; checks the form."""
    cdef Record whole, r
    cdef int rc = parse_record(<const uint8_t*>PyBytes_AS_STRING(raw), <size_t>len(raw), &whole)
    cdef Py_ssize_t start
    if rc != RC_OK or whole.size != len(raw):
        raise ValueError("not a pickled Message")
    r = whole
    if entry is not None:
        start, queue_offset = entry
        if other is None or not 0 <= start <= len(other):
            raise ValueError("not a pickled Message")
        if parse_entry(<const uint8_t*>PyBytes_AS_STRING(other) + start, <size_t>(len(other) - start), &r) != RC_OK:
            raise ValueError("not a pickled Message")
        r.queue_offset = queue_offset
    elif other is not None:
        r.body = <const uint8_t*>PyBytes_AS_STRING(other)
        r.body_len = <int32_t>len(other)
    return message_of(&r, &whole, raw, other, file, broker)
