"""Ends of transactions, from the frame to the committed message in the log and the answer."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketc.broker._empty_answer cimport EmptyAnswer
from rocketc.broker._ended_halves cimport EndedHalves
from rocketc.broker._send_path cimport SendPath
from rocketc.broker._transaction_counts cimport TopicTransactions, TransactionCounters
from rocketc.format._record cimport Record
from rocketc.format._text_table cimport TextTable
from rocketc.remoting._answer_times cimport AnswerTimes
from rocketc.remoting._connection cimport ConnectionCore, FastPath
from rocketc.remoting._frames cimport Frame
from rocketc.remoting._headers cimport Header, Text
from rocketc.store._gets cimport Getting
from rocketc.store._raw_records cimport RawRecords

cdef enum:
    END_FIELDS = 4              # of an end, that are read

# What the properties of a half message say. The pointers are those of its record.
ctypedef struct HalfParts:
    const uint8_t* topic        # where it goes when it is committed
    const uint8_t* group        # of its producer
    const uint8_t* key          # UNIQ_KEY; NULL: none
    int32_t topic_size
    int32_t group_size
    int32_t key_size
    int32_t queue_id
    int32_t size                # bytes of the properties, without the CRC of the record


cdef class EndPath(FastPath):
    cdef:
        SendPath _sends
        Getting _store
        object _config          # a BrokerConfig
        object _check           # returns whether a topic is known
        object _mark            # called with the queue and the offset of each half message that is ended
        EndedHalves _ended
        int64_t _since          # half messages from this physical offset on were stored by this process
        int64_t _retried        # ms
        int32_t _key_hash       # of "half topic#", where the hashes of keys continue
        object _clock
        object _topics          # with a `generation`
        TransactionCounters _counters
        dict _known             # TopicTransactions by topic, in bytes; None: a processor does it
        int64_t _known_at       # the generation of _known
        TextTable _names        # of properties
        bytes _half_topic
        AnswerTimes _times
        EmptyAnswer _answer
    cdef readonly int64_t taken     # ends
    cdef bint take_parsed(self, ConnectionCore connection, Header* h) except -1
    cdef TopicTransactions _known_topic(self, const HalfParts* parts)
    cdef TopicTransactions _end(
        self, RawRecords* h, const Text* group, const int64_t* numbers, int32_t* queue_id, int64_t* born,
    )
    cdef bint _find_parts(self, const Record* half, HalfParts* parts) noexcept
    cdef bint _is_queued(self, int32_t queue_id, int64_t offset, int64_t phy_offset) noexcept
    cdef bint _is_alone(self, const Record* half, const HalfParts* parts) noexcept
    cdef bint _commit(self, const Record* half, const HalfParts* parts) except -1
