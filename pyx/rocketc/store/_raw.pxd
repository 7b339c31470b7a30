"""Raw bytes of the log: the part of a store that replication uses."""
from libc.stdint cimport int64_t

from rocketc.log._raw_log cimport RawAppended
from rocketc.store._gets cimport Getting

cdef class RawAccess(Getting):
    cdef object _read(self, phy_offset, max_bytes, upto, bint whole, bint views)
    cdef object _no_record(self, int rc, int64_t phy_offset)
    cdef object _no_block(self, int rc, int64_t phy_offset, const RawAppended* out)
