"""A record in the map of the log, by its physical offset."""
from libc.stdint cimport int64_t

from rocketc.files._append_file cimport FileState
from rocketc.format._record cimport Record
from rocketc.store._gets cimport Getting
from rocketc.store._raw_records cimport RawRecords

cdef FileState* hold_record(RawRecords* h, Getting store, int64_t offset, Record* record) noexcept
