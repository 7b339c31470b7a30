# cython: language_level=3
"""The arguments of a put as append() wants them: topic, hosts, properties.

Texts are not copied: pointers lead into the UTF-8 form that each Python str keeps, up to the log itself.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_GET_LENGTH
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, strlen

from rocketc.c.bytes cimport rc_find_either
from rocketc.c.layout cimport (
    RC_FLAG_BORN_HOST_V6, RC_FLAG_INNER_BATCH, RC_FLAG_STORE_HOST_V6, RC_HOST_V6_BYTES, RC_PROPERTY_CRC32,
    RC_PROPERTY_INNER_BASE, RC_PROPERTY_INNER_MULTI_DISPATCH, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    RC_PROPERTY_INNER_NUM, RC_PROPERTY_KEYS, RC_PROPERTY_SEPARATOR, RC_PROPERTY_TAGS, RC_PROPERTY_WAIT,
    RC_TOPIC_V1_MAX_BYTES, RC_TOPIC_V2_MAX_BYTES,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.format._encoding cimport host_bytes, properties_bytes, without_crc_property
from rocketc.format._record cimport MessageArgs, Slice
from rocketc.log._queue_offsets cimport QueueOffsets

from rocketc import _layout as layout
from rocketc.errors import IllegalMessageError
from rocketc.status import PutStatus

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    HOOK_TOPIC_BYTES = 127          # the broker's checkBeforePutMessage: of an ordinary topic,
    HOOK_RETRY_BYTES = 255          # and of any


cdef int utf8(str text, Slice* piece) except -1:
    """The UTF-8 bytes of a text, which keeps them. Raises UnicodeEncodeError for a lone surrogate."""
    cdef Py_ssize_t n
    piece.at = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &n)
    if n > INT32_MAX:
        raise OverflowError("a text of more than 2 GiB")
    piece.len = <int32_t>n
    return 0


cdef object illegal_message(str text, status=PutStatus.MESSAGE_ILLEGAL):
    error = IllegalMessageError(text)
    error.status = status
    return error


cdef int add_value(PutCall* c, str value) except -1:
    """The value of the pair whose name stands already."""
    cdef Slice* piece = &c.pieces[2 * c.d.pair_count + 1]
    utf8(value, piece)
    if memchr(piece.at, RC_PROPERTY_SEPARATOR, <size_t>piece.len) != NULL:
        name = piece[-1].at[:piece[-1].len].decode()
        raise illegal_message(f"property {name!r}: its value holds a separator (U+0002)")
    c.d.more_len += piece[-1].len + piece.len + 2
    c.d.pair_count += 1
    return 0


cdef inline int add_pair(PutCall* c, const char* name, str value) except -1:
    cdef Slice* piece = &c.pieces[2 * c.d.pair_count]
    piece.at = <const uint8_t*>name
    piece.len = <int32_t>strlen(name)
    return add_value(c, value)


cdef inline bint has_name(const Slice* piece, const char* name) noexcept:
    return piece.len == <int32_t>strlen(name) and memcmp(piece.at, name, strlen(name)) == 0


cdef int check_pair(key, value) except -1:
    if not isinstance(key, str) or not (value is None or isinstance(value, str)):
        raise TypeError(f"properties must map str to str, not {type(key).__name__} to {type(value).__name__}")
    return 0


cdef bint is_true(str text):
    return text.lower() == "true"


cdef class MessageArgsEncoder:
    """Fills a Call from the arguments that all records of a call share.

    config  a StoreConfig: the store's host, which topics are allowed, whether a property CRC is appended
    """

    def __cinit__(self, config):
        self._host = host_bytes(config.store_host)
        self._hosts = [self._host]
        self._checked = config.check_before_put_message
        self._long_topics = config.auto_message_version_on_topic_len
        self._drop_crc = config.enabled_append_prop_crc
        self._multi = config.enable_lmq and config.enable_multi_dispatch

    cdef list encode(
        self, PutCall* c, str topic, tags, keys, properties, born_timestamp, born_host, store_host, bint wait,
    ):
        """Fill c from the arguments that all records of a call share. What c points to is kept by them, or by the list
        that is returned; the store's host is its first."""
        cdef MessageArgs* d = &c.d
        cdef bytes host
        cdef list keep
        cdef bint plain
        d.pairs = c.pieces
        d.pair_count = d.more_len = 0
        d.props = NULL
        d.props_len = 0
        c.advance = 1
        c.expected = -1
        c.unnumbered = False
        c.wait = wait
        if topic is not self._topic:
            self._check_topic(topic)
        d.topic = self._topic_bytes.at
        d.topic_len = self._topic_bytes.len
        d.version = self._version
        host = self._host if store_host is None else host_bytes(store_host)
        plain = store_host is None and born_host is None and properties is None
        keep = self._hosts if plain and (keys is None or isinstance(keys, str)) else [host]
        d.store_host = <const uint8_t*>PyBytes_AS_STRING(host)
        d.sys_flag &= ~(RC_FLAG_BORN_HOST_V6 | RC_FLAG_STORE_HOST_V6)
        if PyBytes_GET_SIZE(host) == RC_HOST_V6_BYTES:
            d.sys_flag |= RC_FLAG_STORE_HOST_V6
        d.born_timestamp = INT64_MIN if born_timestamp is None else born_timestamp
        host = self._host
        if born_host is not None:
            host = host_bytes(born_host)
            keep.append(host)
        d.born_host = <const uint8_t*>PyBytes_AS_STRING(host)
        if PyBytes_GET_SIZE(host) == RC_HOST_V6_BYTES:
            d.sys_flag |= RC_FLAG_BORN_HOST_V6
        d.store_timestamp = d.queue_offset = 0
        if properties is not None:
            if isinstance(properties, dict) and len(properties) <= PAIRS_MAX - 3:
                self._add_properties(c, keep, properties, tags is not None, keys is not None)
            else:
                raw = self.stored(properties)
                keep.append(raw)
                d.props = <const uint8_t*>PyBytes_AS_STRING(raw)
                d.props_len = <int32_t>min(len(raw), INT32_MAX)
                self._look_at(c, raw)
        if keys is not None:
            if not isinstance(keys, str):
                keys = " ".join(keys)
                keep.append(keys)
            if PyUnicode_GET_LENGTH(keys) > 0:
                add_pair(c, RC_PROPERTY_KEYS, keys)
        if tags is not None:
            if not isinstance(tags, str):
                raise TypeError(f"tags must be str, not {type(tags).__name__}")
            if PyUnicode_GET_LENGTH(tags) > 0:
                add_pair(c, RC_PROPERTY_TAGS, tags)
        if not wait:
            c.wait = False
            add_pair(c, RC_PROPERTY_WAIT, "false")
        if d.props_len > 0 and (d.more_len > 0 or self._drop_crc) and d.props[d.props_len - 1] != RC_PROPERTY_SEPARATOR:
            d.more_len += 1
        return keep

    cdef int _check_topic(self, str topic) except -1:
        """Take a topic for _topic, or say why it can't be one."""
        cdef Slice piece
        cdef int version = 1
        utf8(topic, &piece)
        if piece.len == 0 or rc_find_either(piece.at, <size_t>piece.len, 0, c"/") < <size_t>piece.len:
            raise illegal_message(
                f"topic {topic!r}: it is the name of a folder, so it is not empty and has no '/' and no NUL"
            )
        if piece.len > RC_TOPIC_V1_MAX_BYTES:
            if self._checked and (piece.len > HOOK_RETRY_BYTES or not topic.startswith(layout.RETRY_PREFIX)):
                most = HOOK_RETRY_BYTES if topic.startswith(layout.RETRY_PREFIX) else HOOK_TOPIC_BYTES
                raise illegal_message(f"topic {topic[:40]!r}...: it has {piece.len} bytes of UTF-8, {most} are allowed")
            version = 2
            if not self._long_topics or piece.len > RC_TOPIC_V2_MAX_BYTES:
                most = RC_TOPIC_V2_MAX_BYTES if self._long_topics else RC_TOPIC_V1_MAX_BYTES
                raise illegal_message(f"topic {topic[:40]!r}...: it has {piece.len} bytes of UTF-8, {most} are allowed")
        elif piece.len <= 2 and (topic == "." or topic == ".."):
            raise illegal_message(f"topic {topic!r} can't be the name of a folder")
        if self._checked and has_control(piece.at, piece.len):
            raise illegal_message(f"topic {topic!r}: it has no control characters")
        self._topic, self._topic_bytes, self._version = topic, piece, version
        return 0

    cdef int _add_properties(self, PutCall* c, list keep, dict properties, bint tags, bint keys) except -1:
        """The pairs of a mapping; those that an argument gives too, and a stale property CRC, are left out."""
        cdef Slice* name
        cdef bint inner = False, based = False, many = False, numbered = False
        for key, value in list(properties.items()):
            if value is None:
                continue
            check_pair(key, value)
            name = &c.pieces[2 * c.d.pair_count]
            utf8(key, name)
            if name.len == 0 or rc_find_either(name.at, <size_t>name.len, 1, 2) < <size_t>name.len:
                raise illegal_message(f"property {key!r} has no name, or a separator (U+0001 or U+0002) in it")
            if (tags and has_name(name, RC_PROPERTY_TAGS)) or (keys and has_name(name, RC_PROPERTY_KEYS)):
                continue
            if self._drop_crc and has_name(name, RC_PROPERTY_CRC32):
                continue
            if has_name(name, RC_PROPERTY_WAIT):
                if not c.wait:
                    continue            # wait_store_ok=False says it
                c.wait = is_true(value)
            elif name.at[0] == RC_PROPERTY_INNER_NUM[0]:
                if has_name(name, RC_PROPERTY_INNER_NUM):
                    self._inner(c, value)
                    inner = True
                based = based or has_name(name, RC_PROPERTY_INNER_BASE)
                many = many or has_name(name, RC_PROPERTY_INNER_MULTI_DISPATCH)
                numbered = numbered or has_name(name, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET)
            keep.append(key)         # another thread may change the mapping
            keep.append(value)
            add_value(c, value)
        c.unnumbered = (inner and not based) or (self._multi and many and not numbered)
        return 0

    cdef bytes stored(self, properties):
        """The stored string of properties that are many, no dict, or stored already."""
        cdef bytes raw
        if not isinstance(properties, bytes):
            pairs = dict(properties)
            for key, value in pairs.items():
                check_pair(key, value)
            if self._drop_crc:
                pairs = {key: value for key, value in pairs.items() if key != layout.PROPERTY_CRC32}
            properties = pairs
        raw = properties_bytes(properties, True)
        if self._drop_crc and <bytes>RC_PROPERTY_CRC32 in raw:
            raw = without_crc_property(raw)
        return raw

    cdef int _look_at(self, PutCall* c, bytes raw) except -1:
        """What a stored string says to the store."""
        wait = property_of(raw, RC_PROPERTY_WAIT)
        if wait is not None:
            c.wait = c.wait and is_true(wait)
        number = property_of(raw, RC_PROPERTY_INNER_NUM)
        if number is not None:
            self._inner(c, number)
            c.unnumbered = property_of(raw, RC_PROPERTY_INNER_BASE) is None
        c.unnumbered = c.unnumbered or self.lacks_light_offsets(raw)
        return 0

    cdef bint lacks_light_offsets(self, bytes raw) except -1:
        return (
            self._multi
            and property_of(raw, RC_PROPERTY_INNER_MULTI_DISPATCH) is not None
            and property_of(raw, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET) is None
        )

    cdef object with_queue_offsets(self, str topic, int32_t queue_id, properties, QueueOffsets offsets):
        """(properties as they are stored, with the queue offsets that they lack; the message's own, or -1 if they do
        not say it; next offset of each light queue behind it). Source: RocketMQ MultiDispatch.
        """
        cdef bytes raw = self.stored(properties)
        cdef int64_t base = -1
        cdef dict light = {}
        cdef list found = []
        if raw and raw[-1] != RC_PROPERTY_SEPARATOR:
            raw += b"\2"
        if property_of(raw, RC_PROPERTY_INNER_NUM) is not None and property_of(raw, RC_PROPERTY_INNER_BASE) is None:
            base = offsets.peek(topic, queue_id)
            raw += b"%b\1%d\2" % (<bytes>RC_PROPERTY_INNER_BASE, base)
        if self.lacks_light_offsets(raw):
            for name in property_of(raw, RC_PROPERTY_INNER_MULTI_DISPATCH).split(","):
                if name.startswith(layout.LMQ_PREFIX):
                    number = light.get(name, -1)
                    number = number if number >= 0 else offsets.peek(name, 0)
                    light[name] = number + 1
                    found.append(b"%d" % number)
                else:
                    found.append(b"")
            raw += b"%b\1%b\2" % (<bytes>RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET, b",".join(found))
        return raw, base, light

    cdef int _inner(self, PutCall* c, str number) except -1:
        if not c.d.sys_flag & RC_FLAG_INNER_BATCH:
            raise illegal_message(
                    "property INNER_NUM belongs to an inner batch, and sys_flag does not say it is one (0x80)"
                )
        c.advance = <int>max(number_of(number), 1)
        return 0


cdef bint has_control(const uint8_t* p, int32_t n) noexcept nogil:
    """Whether a text has a character below a blank, or DEL."""
    cdef int32_t i
    for i in range(n):
        if p[i] < c" " or p[i] == 0x7F:
            return True
    return False


cdef object property_of(bytes raw, const char* name):
    """The text of a property in a stored string, or None."""
    cdef int at, n = rc_find_property(<const uint8_t*>PyBytes_AS_STRING(raw), <int>len(raw), name, &at)
    return raw[at:at + n].decode("utf-8", "replace") if n >= 0 else None


cdef int number_of(object text) except? -1:
    """A number as Java's Integer.parseInt reads it; 0 for what is none."""
    try:
        return int(text) if text is not None else 0
    except ValueError:
        return 0
