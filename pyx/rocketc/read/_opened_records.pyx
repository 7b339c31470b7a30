# cython: language_level=3
"""The messages of one record: its body decompressed, its inner batch opened; and those of the answer to a pull."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from rocketc._status cimport error_of
from rocketc.c.layout cimport (
    RC_FLAG_COMPRESSED, RC_FLAG_COMPRESSION_MASK, RC_FLAG_COMPRESSION_SHIFT, RC_PROPERTY_RETRY_TOPIC,
    RC_PROPERTY_TAGS,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.c.status cimport RC_BAD_MAGIC, RC_BLANK, RC_OK
from rocketc.format._record cimport (
    CRC_BODY, Record, crc32, is_to_unwrap, parse_entry, parse_record, verify_record,
)
from rocketc.format._text_table cimport KEEP, TextTable
from rocketc.read._message cimport Message, message_in

from rocketc.errors import CorruptRecordError
from rocketc.format import compression

cdef int64_t PLAIN_BODY_BYTES = 64 << 20            # most bytes of a decompressed body


cdef int add_messages(
    list out, const Record* r, bytes raw, str file, int how, TextTable tags, int64_t first,
    int64_t* room=NULL,
) except -1:
    """Append the messages of a record in `raw` to a list: decompress the body, and open an inner batch.

    how    bits of OpenFlags: what is left as it is stored
    tags   the messages of a batch to include, by their tags; None: all
    first  queue offset; earlier messages of a batch are left out
    room   bytes that may be decompressed, in and out; NULL: no limit but that of one body
    Raises CorruptRecordError, MissingCodecError, and LargeBodies if the room does not suffice.
    """
    cdef bint batch = is_to_unwrap(r) and not how & OPEN_WHOLE
    cdef bint packed = r.sys_flag & RC_FLAG_COMPRESSED and r.body_len > 0 and (batch or not how & OPEN_STORED)
    cdef int kind = (r.sys_flag & RC_FLAG_COMPRESSION_MASK) >> RC_FLAG_COMPRESSION_SHIFT
    cdef bytes plain
    cdef Record part = r[0]
    cdef size_t pos = 0, size
    cdef int64_t limit = PLAIN_BODY_BYTES if room == NULL else min(PLAIN_BODY_BYTES, room[0])
    cdef int64_t queue_offset = r.queue_offset
    if not batch and not packed:
        out.append(message_in(r, raw, None, file))
        return 0
    plain = <bytes>r.body[:r.body_len]
    if packed:
        try:
            plain = compression.decompress(kind, plain, limit)
        except compression.BadBody as error:
            if limit < PLAIN_BODY_BYTES and error.args[0] == "too_large":
                raise LargeBodies from None
            advice = "unwrap=False" if batch else "decompress=False"
            raise CorruptRecordError(file, r.phy_offset, error.args[0], f"{advice} returns it as stored") from None
        if room != NULL:
            room[0] -= len(plain)
    size = <size_t>len(plain)
    if not batch:
        part.body = <const uint8_t*>PyBytes_AS_STRING(plain)
        part.body_len = <int32_t>size
        out.append(message_in(&part, raw, plain, file))
        return 0
    while pos < size:
        if parse_entry(<const uint8_t*>PyBytes_AS_STRING(plain) + pos, size - pos, &part) != RC_OK:
            raise CorruptRecordError(file, r.phy_offset, "bad_inner_batch", "unwrap=False returns it as stored")
        pos += <size_t>part.size
        part.size = r.size
        part.queue_offset = queue_offset
        part.sys_flag = r.sys_flag
        queue_offset += 1
        if part.queue_offset >= first and (tags is None or has_tag(&part, tags)):
            out.append(message_in(&part, raw, plain, file))
    return 0


cdef bint has_tag(const Record* part, TextTable tags) noexcept nogil:
    cdef int at = 0
    cdef int n = rc_find_property(part.props, part.props_len, RC_PROPERTY_TAGS, &at)
    return n >= 0 and tags.get(part.props + at, n) == KEEP


cdef void show_first_topic(Record* r) noexcept nogil:
    """Set the topic to the property RETRY_TOPIC of the record, if it has one."""
    cdef int at = 0
    cdef int n = rc_find_property(r.props, r.props_len, RC_PROPERTY_RETRY_TOPIC, &at)
    if n > 0:
        r.topic = r.props + at
        r.topic_len = n


class LargeBodies(Exception):
    """The bodies of an answer are larger than the caller wants to decompress now."""


def pulled_messages(
    bytes body not None, int64_t first=INT64_MIN, bytes retry_topic not None=b"", str broker=None, *,
    plain_bytes=None,
):
    """Return the messages in the answer to a pull, and the errors of damaged records, which are left out.

    body   records one after the other, each from anywhere in the log; the messages share it
    first  queue offset; earlier messages of an inner batch are left out
    retry_topic  the topic of a message in it is the one that it had first
    broker       name of the broker that has sent the answer
    plain_bytes  bytes of all decompressed bodies; more raise LargeBodies; None: no limit but that of one body
    Returns (list of Message, list of CorruptRecordError, bytes that were read). After a record with an impossible
    length nothing more is read. Raises MissingCodecError.
    Source: RocketMQ MessageDecoder.decodesBatch, PullAPIWrapper.processPullResult.

    >>> import rocketc
    >>> records = [rocketc.encode("orders", text, phy_offset=offset) for text, offset in [(b"one", 900), (b"two", 70)]]
    >>> messages, errors, end = pulled_messages(b"".join(records))
    >>> [(m.body, m.phy_offset) for m in messages], errors, end == len(b"".join(records))
    ([(b'one', 900), (b'two', 70)], [], True)
    """
    cdef list out = [], errors = []
    cdef Record r
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef size_t pos = 0, size = <size_t>PyBytes_GET_SIZE(body)
    cdef int64_t room = INT64_MAX if plain_bytes is None else plain_bytes
    cdef int rc
    cdef Message m
    while pos < size:
        rc = parse_record(p + pos, size - pos, &r)
        if rc != RC_OK:         # no broker sends the blank record at the end of a file
            errors.append(error_of(RC_BAD_MAGIC if rc == RC_BLANK else rc, None, <int64_t>pos))
            break
        rc = verify_record(&r, CRC_BODY, crc32, r.phy_offset)
        if rc != RC_OK:         # the offset may be damaged, too
            errors.append(error_of(rc, None, r.phy_offset if r.phy_offset >= 0 else <int64_t>pos))
        else:
            if r.topic_len == len(retry_topic) and memcmp(r.topic, <const char*>retry_topic, <size_t>r.topic_len) == 0:
                show_first_topic(&r)
            try:
                add_messages(out, &r, body, None, 0, None, first, &room)
            except CorruptRecordError as error:
                errors.append(error)
        pos += <size_t>r.size
    for m in out:
        m._broker = broker
    return out, errors, pos
