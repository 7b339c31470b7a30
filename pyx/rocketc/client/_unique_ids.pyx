# cython: language_level=3
"""The unique ids of messages (property UNIQ_KEY).

Source: RocketMQ MessageClientIDSetter.
"""
import datetime
import ipaddress

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    ROOM = 1 << 16              # ids of one ms
    MS_DIGITS = 8
    COUNT_DIGITS = 4


cdef void put_hex(uint8_t* dst, uint64_t value, int digits) noexcept:
    """Write the last digits of a number in hexadecimal."""
    cdef int i
    for i in range(digits - 1, -1, -1):
        dst[i] = <uint8_t>(c"0" + (value & 15)) if value & 15 < 10 else <uint8_t>(c"A" + (value & 15) - 10)
        value >>= 4


cdef class UniqueIds:
    """Makes the unique ids of messages. Two processes of one address differ by `pid` and `mark`.

    ip     address of this computer: IPv4 or IPv6
    pid    of this process; 16 bits of it are used
    mark   32 random bits; Java takes the hash code of its class loader
    clock  returns the Unix time in seconds

    >>> from rocketc.client.unique_ids import UniqueIds
    >>> ids = UniqueIds("10.0.0.1", pid=2620, mark=0x18B4AAC2, clock=lambda: 757_041.004)
    >>> first, second = ids.next(), ids.next()
    >>> first[:16], first[-4:], second[-4:]
    ('0A0000010A3C18B4', '0000', '0001')
    """

    def __init__(self, str ip, pid, mark, clock):
        packed = ipaddress.ip_address(ip).packed
        self._before = (packed.hex().upper() + f"{pid & 0xFFFF:04X}{mark & 0xFFFFFFFF:08X}").encode()
        self.size = len(self._before) + MS_DIGITS + COUNT_DIGITS
        self._clock = clock
        self._last = INT64_MIN          # before the first id, whatever the clock says

    def next(self):
        """Return an id that this object has not returned before."""
        cdef uint8_t id[ID_MOST]
        self.put(self.now(), id)
        return id[:self.size].decode("ascii")

    cdef int64_t now(self) except -1:
        """Return the time of the clock in ms since 1970."""
        return <int64_t>(<double>self._clock() * 1000)

    cdef int put(self, int64_t now, uint8_t* dst) except -1:
        """Write an id that this object has not made before: `size` characters.

        now  ms since 1970
        """
        if now > self._last:
            self._begin(now)
        else:                           # the same ms, or the clock was set back
            self._count += 1
            if self._count == ROOM:
                self._begin(self._last + 1)
        memcpy(dst, self._head, <size_t>(self.size - COUNT_DIGITS))
        put_hex(dst + self.size - COUNT_DIGITS, <uint64_t>self._count, COUNT_DIGITS)
        return 0

    cdef int _begin(self, int64_t ms) except -1:
        cdef Py_ssize_t n = len(self._before)
        if not self._month <= ms < self._next_month:
            self._month, self._next_month = _month_of(ms)
        self._last = ms
        self._count = 0
        memcpy(self._head, PyBytes_AS_STRING(self._before), <size_t>n)
        put_hex(self._head + n, <uint64_t>(ms - self._month), MS_DIGITS)
        return 0


def _month_of(ms):
    """Return the first ms of the month of a time, and of the next month, in the local time zone as Java does."""
    first = datetime.datetime.fromtimestamp(ms // 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = (first + datetime.timedelta(days=32)).replace(day=1)
    return int(first.timestamp()) * 1000, int(after.timestamp()) * 1000
