# cython: language_level=3
"""The arguments of a put from Python as a prepared record: topic, hosts, properties in stored form."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_Next
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_GET_LENGTH
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, strlen

from rocketc._arguments cimport checked_int, is_int_in
from rocketc.c.bytes cimport rc_find_either
from rocketc.c.layout cimport (
    RC_FLAG_BORN_HOST_V6, RC_FLAG_STORE_HOST_V6, RC_HOST_V6_BYTES, RC_NAME_VALUE_SEPARATOR, RC_PROPERTY_CRC32,
    RC_PROPERTY_INNER_BASE, RC_PROPERTY_INNER_MULTI_DISPATCH, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    RC_PROPERTY_INNER_NUM, RC_PROPERTY_KEYS, RC_PROPERTY_SEPARATOR, RC_PROPERTY_TAGS, RC_PROPERTY_WAIT,
)
from rocketc.format._encoding cimport host_bytes, properties_bytes, without_crc_property
from rocketc.format._queue_units cimport has_light_queues
from rocketc.log._prepared_record cimport PreparedRecord, prepared_init, property_of
from rocketc.log._queue_offsets cimport QueueOffsets

from rocketc import _layout as layout
from rocketc.errors import IllegalMessageError
from rocketc.format.message_keys import joined_keys
from rocketc.status import PutStatus

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(PyObject* text, Py_ssize_t* size) except NULL

cdef object ZERO = 0
cdef str TAGS = layout.PROPERTY_TAGS, KEYS = layout.PROPERTY_KEYS, WAIT = layout.PROPERTY_WAIT


cdef object illegal_message(str text, status=PutStatus.MESSAGE_ILLEGAL):
    error = IllegalMessageError(text)
    error.status = status
    return error


cdef int64_t message_int(str what, object value, int64_t least, int64_t most) except? -1:
    """Return a number of a message that is put. Raises TypeError, IllegalMessageError."""
    cdef int64_t n
    if value is ZERO:           # the default of most; every range here has 0
        return 0
    if is_int_in(value, least, most, &n):       # the try statement costs more than that
        return n
    try:
        return checked_int(what, value, least, most)
    except ValueError as error:
        raise illegal_message(str(error)) from None


cdef bytes message_host(str what, object host):
    """Return a host of a message that is put, in stored form. Raises TypeError, IllegalMessageError."""
    try:
        return host_bytes(what, host)
    except ValueError as error:
        raise illegal_message(str(error)) from None


cdef inline bint is_name(const uint8_t* p, Py_ssize_t n, const char* name) noexcept:
    return n == <Py_ssize_t>strlen(name) and memcmp(p, name, strlen(name)) == 0


cdef inline int lower(int letter) noexcept:
    return letter | 32


cdef bint is_true(const uint8_t* p, Py_ssize_t n) noexcept:
    """Read a boolean as Java's Boolean.parseBoolean does."""
    return n == 4 and lower(p[0]) == c"t" and lower(p[1]) == c"r" and lower(p[2]) == c"u" and lower(p[3]) == c"e"


cdef inline uint8_t* add_pair(
    uint8_t* p, const uint8_t* end, const uint8_t* name, Py_ssize_t name_len, PyObject* text,
) except? NULL:
    """Write a pair in stored form at p. Return the position after it, or NULL if it does not fit before end."""
    cdef Py_ssize_t n
    cdef const uint8_t* value = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &n)
    if memchr(value, RC_PROPERTY_SEPARATOR, <size_t>n) != NULL:
        shown = name[:name_len].decode()
        raise illegal_message(f"property {shown!r}: its value contains a separator (U+0002)")
    if name_len + n + 2 > end - p:
        return NULL
    memcpy(p, name, <size_t>name_len)
    p += name_len
    p[0] = RC_NAME_VALUE_SEPARATOR
    memcpy(p + 1, value, <size_t>n)
    p += n + 1
    p[0] = RC_PROPERTY_SEPARATOR
    return p + 1


cdef int check_pair(key, value) except -1:
    if not isinstance(key, str) or not (value is None or isinstance(value, str)):
        raise TypeError(f"properties must map str to str, not {type(key).__name__} to {type(value).__name__}")
    return 0


cdef class MessageArgsEncoder:
    """Fills a PutCall from the arguments of a put.

    config  a StoreConfig: the store host, which topics are allowed, whether a property CRC is appended
    """

    def __cinit__(self, config):
        self.host = host_bytes("store_host", config.store_host)
        self.checked = config.check_before_put_message
        self.long_topics = config.auto_message_version_on_topic_len
        self.multi = config.enable_lmq and config.enable_multi_dispatch
        self._drop_crc = config.enabled_append_prop_crc

    cdef void default_hosts(self, PreparedRecord* r) noexcept:
        """Use the store's own host for each of the two hosts that a record lacks."""
        if r.args.born_host == NULL:
            r.args.born_host = <const uint8_t*>PyBytes_AS_STRING(self.host)
            r.args.sys_flag &= ~RC_FLAG_BORN_HOST_V6
            if PyBytes_GET_SIZE(self.host) == RC_HOST_V6_BYTES:
                r.args.sys_flag |= RC_FLAG_BORN_HOST_V6
        if r.args.store_host == NULL:
            r.args.store_host = <const uint8_t*>PyBytes_AS_STRING(self.host)
            r.args.sys_flag &= ~RC_FLAG_STORE_HOST_V6
            if PyBytes_GET_SIZE(self.host) == RC_HOST_V6_BYTES:
                r.args.sys_flag |= RC_FLAG_STORE_HOST_V6

    cdef bytes encode(
        self, PutCall* c, str topic, tags, keys, properties, born_timestamp, born_host, store_host, bint wait,
    ):
        """Fill c from the arguments. It points to memory in c, in the arguments, or in the returned object.

        Raises IllegalMessageError, TypeError, UnicodeEncodeError for a lone surrogate.
        """
        cdef PreparedRecord* r = &c.record
        cdef Py_ssize_t n
        cdef uint8_t* p = c.properties
        cdef const uint8_t* end = p + PROPERTIES_ROOM
        cdef bytes host, raw
        prepared_init(r)
        c.wait = wait
        r.args.topic = <const uint8_t*>PyUnicode_AsUTF8AndSize(<PyObject*>topic, &n)
        r.args.topic_len = <int32_t>min(n, INT32_MAX)
        if born_timestamp is not None:
            # prepared_init() has set INT64_MIN: the store timestamp
            r.args.born_timestamp = message_int("born_timestamp", born_timestamp, -INT64_MAX, INT64_MAX)
        if born_host is not None:
            host = message_host("born_host", born_host)
            memcpy(c.born_host, PyBytes_AS_STRING(host), <size_t>len(host))
            r.args.born_host = c.born_host
            if len(host) == RC_HOST_V6_BYTES:
                r.args.sys_flag |= RC_FLAG_BORN_HOST_V6
        if store_host is not None:
            host = message_host("store_host", store_host)
            memcpy(c.store_host, PyBytes_AS_STRING(host), <size_t>len(host))
            r.args.store_host = c.store_host
            if len(host) == RC_HOST_V6_BYTES:
                r.args.sys_flag |= RC_FLAG_STORE_HOST_V6
        self.default_hosts(r)
        if properties is None and keys is None and tags is None and wait:
            return None
        if tags is not None and not isinstance(tags, str):
            raise TypeError(f"tags must be str, not {type(tags).__name__}")
        if keys is not None and not isinstance(keys, str):
            if isinstance(keys, bytes):
                raise TypeError("keys must be str or a list of str, not bytes; decode them: keys.decode()")
            try:
                keys = joined_keys(keys)
            except IllegalMessageError as error:
                raise illegal_message(str(error)) from None
        if properties is not None:
            p = self._add_properties(c, p, properties, tags, keys) if PyDict_CheckExact(properties) else NULL
        if p != NULL and keys is not None and PyUnicode_GET_LENGTH(keys) > 0:
            p = add_pair(p, end, <const uint8_t*>RC_PROPERTY_KEYS, strlen(RC_PROPERTY_KEYS), <PyObject*>keys)
        if p != NULL and tags is not None and PyUnicode_GET_LENGTH(tags) > 0:
            p = add_pair(p, end, <const uint8_t*>RC_PROPERTY_TAGS, strlen(RC_PROPERTY_TAGS), <PyObject*>tags)
        if p != NULL and not wait:
            p = add_pair(p, end, <const uint8_t*>RC_PROPERTY_WAIT, strlen(RC_PROPERTY_WAIT), <PyObject*>"false")
        if p != NULL:
            r.args.props = c.properties
            r.args.props_len = <int32_t>(p - c.properties)
            return None
        raw = self._joined(c, tags, keys, properties, wait)
        r.args.props = <const uint8_t*>PyBytes_AS_STRING(raw)
        r.args.props_len = <int32_t>min(len(raw), INT32_MAX)
        return raw

    cdef uint8_t* _add_properties(self, PutCall* c, uint8_t* p, dict properties, bint tags, bint keys) except? NULL:
        """Write the pairs of a mapping in stored form at p. Return the position after them, or NULL if they do not fit.

        Leaves out a pair without a value, the pairs that an argument also gives, and a stale property CRC.
        """
        cdef const uint8_t* end = c.properties + PROPERTIES_ROOM
        cdef const uint8_t* name
        cdef PyObject* key
        cdef PyObject* value
        cdef Py_ssize_t at = 0, n
        cdef uint8_t* stop
        while p != NULL and PyDict_Next(properties, &at, &key, &value):
            if not PyUnicode_CheckExact(<object>key) or not PyUnicode_CheckExact(<object>value):
                check_pair(<object>key, <object>value)
                if <object>value is None:
                    continue
            name = <const uint8_t*>PyUnicode_AsUTF8AndSize(key, &n)
            if n == 0 or rc_find_either(name, <size_t>n, 1, 2) < <size_t>n:
                raise illegal_message(f"property {<object>key!r}: its name is empty or contains U+0001 or U+0002")
            if n == 4 and (
                (tags and is_name(name, n, RC_PROPERTY_TAGS)) or (keys and is_name(name, n, RC_PROPERTY_KEYS))
                or (not c.wait and is_name(name, n, RC_PROPERTY_WAIT))      # wait_store_ok=False says it
            ):
                continue
            if self._drop_crc and is_name(name, n, RC_PROPERTY_CRC32):
                continue
            stop = add_pair(p, end, name, n, value)
            if stop != NULL and is_name(name, n, RC_PROPERTY_WAIT):
                c.wait = is_true(p + n + 1, stop - p - n - 2)
            p = stop
        return p

    cdef bytes _joined(self, PutCall* c, tags, keys, properties, bint wait):
        """The stored string of properties that are long, not a dict or already stored, with those of the arguments."""
        cdef bytes raw, text
        if properties is not None and not isinstance(properties, bytes):
            properties = dict(properties)
            for name, given in ((TAGS, tags is not None), (KEYS, keys is not None), (WAIT, not wait)):
                if given:
                    properties.pop(name, None)
        raw = self.stored(b"" if properties is None else properties)
        wait_value = property_of(<const uint8_t*>PyBytes_AS_STRING(raw), <int32_t>len(raw), RC_PROPERTY_WAIT)
        c.wait = wait and (wait_value is None or wait_value.lower() == "true")
        for name, value in ((KEYS, keys), (TAGS, tags), (WAIT, None if wait else "false")):
            if not value:
                continue
            text = value.encode()
            if b"\2" in text:
                raise illegal_message(f"property {name!r}: its value contains a separator (U+0002)")
            if raw and raw[-1] != RC_PROPERTY_SEPARATOR:
                raw += b"\2"
            raw += b"%b\1%b\2" % (name.encode(), text)
        return raw

    cdef bytes stored(self, properties):
        """The stored string of properties that are a mapping or already stored."""
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

    cdef object with_queue_offsets(self, const PreparedRecord* r, QueueOffsets offsets):
        """Add the queue offsets that a message of an inner batch or for light queues lacks.

        Returns (properties in stored form with these offsets; the queue offset of the record, or -1 if they do not say
        it; the next offset of each light queue after it). Source: RocketMQ MultiDispatch.
        """
        cdef const uint8_t* props = r.args.props
        cdef int32_t n = r.args.props_len
        cdef str topic = r.args.topic[:r.args.topic_len].decode()
        cdef bytes raw = props[:n]
        cdef long long base = -1
        cdef dict light = {}
        cdef list found = []
        if raw and raw[-1] != RC_PROPERTY_SEPARATOR:
            raw += b"\2"
        if property_of(props, n, RC_PROPERTY_INNER_NUM) is not None:
            if property_of(props, n, RC_PROPERTY_INNER_BASE) is None:
                base = offsets.peek(topic, r.args.queue_id)
                raw += b"%b\1%d\2" % (<bytes>RC_PROPERTY_INNER_BASE, base)
        if self.multi and lacks_light_offsets(r.args.topic, r.args.topic_len, props, n):
            for name in property_of(props, n, RC_PROPERTY_INNER_MULTI_DISPATCH).split(","):
                if name.startswith(layout.LMQ_PREFIX):
                    number = light.get(name, -1)
                    number = number if number >= 0 else offsets.peek(name, 0)
                    light[name] = number + 1
                    found.append(b"%d" % number)
                else:
                    found.append(b"")
            raw += b"%b\1%b\2" % (<bytes>RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET, b",".join(found))
        return raw, base, light


cdef bint lacks_light_offsets(const uint8_t* topic, int32_t topic_len, const uint8_t* props, int32_t n) except -1:
    """Whether properties name light queues that messages of the topic go to, but lack the offsets in them."""
    return (
        has_light_queues(topic, topic_len) and property_of(props, n, RC_PROPERTY_INNER_MULTI_DISPATCH) is not None
        and property_of(props, n, RC_PROPERTY_INNER_MULTI_QUEUE_OFFSET) is None
    )
