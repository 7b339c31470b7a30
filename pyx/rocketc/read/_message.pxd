"""Message: one record as a Python value, decoded attribute by attribute."""
from libc.stdint cimport int64_t, uint8_t

from rocketc.c.properties cimport rc_pair
from rocketc.format._record cimport Record

# One name for each column, bit and position (see docs/design.md): the same in Arrow, Spark and JSON.
cdef enum:
    COL_TOPIC = 0
    COL_QUEUE_ID = 1
    COL_BROKER_NAME = 2
    COL_QUEUE_OFFSET = 3
    COL_PHYSICAL_OFFSET = 4
    COL_STORE_TIMESTAMP = 5
    COL_BORN_TIMESTAMP = 6
    COL_KEYS = 7
    COL_TAGS = 8
    COL_BODY = 9
    COL_PROPERTIES = 10
    COL_MSG_ID = 11
    COL_FLAG = 12
    COL_SYS_FLAG = 13
    COL_RECONSUME_TIMES = 14
    COL_BODY_CRC = 15
    COL_BORN_HOST = 16
    COL_STORE_HOST = 17
    COL_PREPARED_OFFSET = 18
    COL_STORE_SIZE = 19
    COL_FILE = 20
    COLUMNS = 21


cdef class Message:
    cdef:
        Record _r               # its pointers point into the objects below
        bytes _raw              # the whole record as stored, may be part of a larger object
        object _body            # None: it is in _raw; bytes: the decompressed body, or the inner batch with body and
        #                         properties; another buffer: the body in the map of a file
        str _file               # path, or None
        str _broker             # name of the broker that sent it, or None
    cdef bytes _whole(self)
    cdef const uint8_t* _behind_hosts(self) noexcept
    cdef size_t _write_json(self, uint8_t* dst, bytes broker, bytes file, rc_pair* pairs) noexcept
    cdef size_t _write_properties(self, uint8_t* dst, rc_pair* pairs) noexcept


cdef inline int64_t queue_offset_of(Message m) noexcept:
    return m._r.queue_offset


cdef str printable(str path)
cdef bytes copy_of(const Record* whole)
cdef Message message_of(const Record* r, const Record* whole, bytes raw, bytes other, str file, str broker)
cdef Message message_in(const Record* r, bytes raw, object body, str file)
