"""Look-ups: find messages by key, id and time."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.derived._index_file_queue cimport IndexCursor
from rocketc.derived._key_index cimport KeyIndex
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.format._queue_units cimport Unit
from rocketc.log._queue_offsets cimport QueueOffsets
from rocketc.store._queue_reader cimport QueueReader
from rocketc.store._results cimport Cursor, PickedRecords, ReadResult

# The arguments of query(), and the state of one query.
ctypedef struct KeyQuery:
    const uint8_t* topic
    const uint8_t* key
    int32_t topic_len
    int32_t key_len
    int32_t hash
    int64_t max_count
    int64_t begin               # ms, both included
    int64_t end
    int how
    bint unique                 # the key is a UNIQ_KEY
    int64_t last_timestamp      # of the newest key in the index; set if the index has the hash
    int64_t last_phy_offset
    int64_t damaged             # physical offset of the record that was read last; the damaged one after an error
    IndexCursor cursor          # position of the search in the index
    int failed                  # the error of KeyIndex.find(), or 0

cdef class QueryResult(ReadResult):
    cdef readonly:
        long long index_last_update_timestamp
        long long index_last_update_phy_offset

cdef int prepare_query(
    KeyQuery* w, object max_count, object begin, object end, bint exact_keys, str crc, bint decompress, bint unwrap,
) except -1


cdef class Lookups:
    cdef readonly:
        QueueReader reader
        KeyIndex index          # None: the store does not have an index
        QueueOffsets offsets    # None: the store is open for reading only
    cdef int _collect(self, KeyQuery* w, PickedRecords* h, Cursor* c) noexcept nogil
    cdef int _look(self, KeyQuery* w, int64_t phy_offset, PickedRecords* h, Cursor* c) noexcept nogil
    cdef QueryResult answer(self, str topic, str key, KeyQuery* w)
    cdef object record(self, int64_t phy_offset, int how)
    cdef ConsumeQueue* _unit(self, str topic, object queue_id, object offset, Unit* u) except? NULL
