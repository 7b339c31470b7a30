# cython: language_level=3
"""Ends of transactions, from the frame to the committed message in the log and the answer.

The half message is read from the map of the log. The EndTransactionProcessor has all rules. It gets what is unusual: a
delay, a new topic, an error, a half message that is not in memory, a transaction with several half messages. Both give
the same result.
Source: RocketMQ EndTransactionProcessor.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from rocketc.broker._appending cimport bytes_at
from rocketc.broker._empty_answer cimport EmptyAnswer
from rocketc.broker._held_record cimport hold_record
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.jhash cimport rc_jhash, rc_jhash_from
from rocketc.c.layout cimport (
    RC_FLAG_COMMIT, RC_FLAG_INNER_BATCH, RC_FLAG_ROLLBACK, RC_FLAG_TRANSACTION_MASK, RC_MSG_BORN_HOST_AT,
    RC_MSG_BORN_TIMESTAMP_AT, RC_MSG_QUEUE_ID_AT, RC_MSG_RECONSUME_TIMES_PAST, RC_MSG_STORE_HOST_PAST,
    RC_MSG_STORE_TIMESTAMP_PAST,
    RC_PROPERTY_CRC32, RC_PROPERTY_DELAY, RC_PROPERTY_SEPARATOR, RC_PROP_CRC_BYTES,
)
from rocketc.c.status cimport RC_OK
from rocketc.derived._consume_queue_units cimport cq_read, cq_unit_of
from rocketc.derived._index_file_queue cimport IndexCursor, index_cursor, key_hash
from rocketc.derived._key_index cimport KeyIndex
from rocketc.derived._queue_files cimport ConsumeQueue
from rocketc.files._append_file cimport FileState
from rocketc.format._queue_units cimport Unit
from rocketc.format._record cimport has_property_crc, may_have_property_crc, store_host_len
from rocketc.log._prepared_record cimport PreparedRecord, prepared_init
from rocketc.remoting._headers cimport number_of, place_of
from rocketc.store._raw_records cimport raw_free, raw_init

from rocketc.errors import RocketcError

cdef enum:
    END_TRANSACTION = 37
    FLAG_ANSWER = 1
    FLAG_ONEWAY = 2
    KNOWN_MOST = 16384          # topics that are kept
    HITS = 4                    # of a key in the index
    DIGITS_MOST = 10            # of a queue id

# The names of the fields, and their places.
cdef const char* NAMES[END_FIELDS]
NAMES[:] = [b"producerGroup", b"tranStateTableOffset", b"commitLogOffset", b"commitOrRollback"]
cdef uint32_t SIZES[END_FIELDS]
SIZES[:] = [13, 20, 15, 16]

cdef enum:
    GROUP = 0                   # the only text
    QUEUE_OFFSET = 1
    PHY_OFFSET = 2
    KIND = 3

# Verdicts of the names of properties.
cdef enum:
    NEEDS_PROCESSOR = 3         # of TextTable verdicts: smaller ones have other meanings
    REAL_TOPIC = 4
    REAL_QUEUE = 5
    PRODUCER_GROUP = 6
    UNIQUE_KEY = 7


cdef int64_t queue_of(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the number of a queue from its digits; -1 for anything else."""
    cdef int64_t number = 0
    if not 0 < end - p <= DIGITS_MOST:
        return -1
    while p < end:
        if not c"0" <= p[0] <= c"9":
            return -1
        number = 10 * number + (p[0] - c"0")
        p += 1
    return number if number <= INT32_MAX else -1


cdef class EndPath(FastPath):
    """Takes the ends of transactions that are commits and rollbacks of half messages, and answers them.

    sends       appends to the store
    store       has the half messages
    topics      `generation` changes with the topics
    check       called with the name of a topic; returns whether it is known
    config      its broker_id is 0 for a master
    marks       an OpMarks: has the half messages that are ended, and gets each end
    since       physical offset: half messages from there on were stored by this process
    retried     ms in which a send is tried again
    counters    count the transactions
    clock       ms since the epoch
    half_topic  of half messages
    names       of the properties for the topic, the queue, the group of the producer and the unique key, in this order
    special     names of properties; the processor gets a half message with one of them
    """

    def __init__(
        self, SendPath sends not None, Getting store not None, topics, check, config, marks,
        int64_t since, int64_t retried, TransactionCounters counters not None, clock, str half_topic not None, names,
        special,
    ):
        self._sends, self._store, self._topics = sends, store, topics
        self._check, self._config, self._clock = check, config, clock
        self._mark, self._ended, self._since, self._retried = marks.add, marks.ended, since, retried
        self._counters = counters
        self._half_topic = half_topic.encode()
        self._key_hash = rc_jhash_from(
            rc_jhash(bytes_at(self._half_topic), <size_t>PyBytes_GET_SIZE(self._half_topic)), b"#", 1,
        )
        self._known = {}
        self._times = sends.times.of(END_TRANSACTION, 0, False)
        self._names = TextTable()
        for verdict, name in enumerate(names, REAL_TOPIC):
            text = name.encode()
            self._names.put(bytes_at(text), <int>len(text), verdict)
        for text in (RC_PROPERTY_CRC32, RC_PROPERTY_DELAY, *(one.encode() for one in special)):
            self._names.put(bytes_at(text), <int>len(text), NEEDS_PROCESSOR)
        self._answer = EmptyAnswer()

    cdef bint take(self, ConnectionCore connection, const Frame* frame) except -1:
        return False                    # the PullPath has parsed the header: take_parsed()

    cdef bint take_parsed(self, ConnectionCore connection, Header* h) except -1:
        """End a transaction. Return False if the processor must do it; then nothing has changed."""
        cdef const Text* of[END_FIELDS]
        cdef int64_t numbers[END_FIELDS]
        cdef RawRecords found
        cdef TopicTransactions counts
        cdef int i, place
        cdef int32_t queue_id = 0
        cdef int64_t born = 0
        if h.code != END_TRANSACTION or h.flag & FLAG_ANSWER or connection.waited > 0:
            return False
        for i in range(END_FIELDS):
            of[i] = NULL
        for i in range(h.field_count):
            if h.fields[i].value.is_escaped or h.fields[i].name.is_escaped:
                return False
            place = place_of(&h.fields[i].name, NAMES, SIZES, END_FIELDS)
            if place >= 0:
                of[place] = &h.fields[i].value
        for place in range(END_FIELDS):
            if of[place] == NULL:
                return False
            if place != GROUP and number_of(of[place], &numbers[place]) != RC_OK:
                return False
        if numbers[KIND] != RC_FLAG_COMMIT and numbers[KIND] != RC_FLAG_ROLLBACK or self._config.broker_id != 0:
            return False
        raw_init(&found)
        try:
            counts = self._end(&found, of[GROUP], numbers, &queue_id, &born)
        except (RocketcError, OSError):
            return False                # the processor gets the error, too
        finally:
            raw_free(&found)
        if counts is None:
            return False
        self.taken += 1
        if numbers[KIND] == RC_FLAG_COMMIT:
            counts.commit(<double>max(<int64_t>self._clock() - born, <int64_t>0) / 1000)
        else:
            counts.roll_back()
        self._mark(queue_id, numbers[QUEUE_OFFSET])
        self._times.add(self._sends.now() - connection.last_active, 1)
        if h.flag & FLAG_ONEWAY:
            return True
        connection.write(self._answer.to(h.opaque))
        return True

    cdef TopicTransactions _known_topic(self, const HalfParts* parts):
        """Return the counters of the topic of a half message; None: the processor must do it."""
        cdef PyObject* known
        cdef int64_t now = <int64_t>self._topics.generation
        if self._known_at != now or len(self._known) >= KNOWN_MOST:
            self._known.clear()
            self._known_at = now
        name = PyBytes_FromStringAndSize(<const char*>parts.topic, parts.topic_size)
        known = PyDict_GetItem(self._known, name)
        if known != NULL:
            return <TopicTransactions>known
        try:
            is_known = self._check(name.decode())
        except UnicodeDecodeError:
            return None
        counts = self._known[name] = self._counters.at(parts.topic, parts.topic_size) if is_known else None
        return counts

    cdef TopicTransactions _end(
        self, RawRecords* h, const Text* group, const int64_t* numbers, int32_t* queue_id, int64_t* born,
    ):
        """End a transaction, and return the counters of its topic; None: the processor must do it.

        h         holds the half message
        queue_id  set to the queue of the half message
        born      set to the time when it was born
        Raises the errors of put().
        """
        cdef Record half
        cdef HalfParts parts
        cdef TopicTransactions counts
        cdef FileState* f = hold_record(h, self._store, numbers[PHY_OFFSET], &half)
        if f == NULL or half.sys_flag & RC_FLAG_INNER_BATCH or half.queue_offset != numbers[QUEUE_OFFSET]:
            return None
        if half.topic_len != PyBytes_GET_SIZE(self._half_topic):
            return None
        if memcmp(half.topic, bytes_at(self._half_topic), <size_t>half.topic_len) != 0:
            return None
        if not self._find_parts(&half, &parts):
            return None
        if <uint32_t>parts.group_size != group.size or memcmp(parts.group, group.at, group.size) != 0:
            return None
        queue_id[0] = rc_get_i32(half.at + RC_MSG_QUEUE_ID_AT)
        born[0] = rc_get_i64(half.at + RC_MSG_BORN_TIMESTAMP_AT)
        counts = self._known_topic(&parts)
        if counts is None or f.cut != 0 or not self._is_queued(queue_id[0], half.queue_offset, half.phy_offset):
            return None
        if not self._is_alone(&half, &parts) or self._ended.has(queue_id[0], half.queue_offset):
            return None                 # its transaction may be decided
        if numbers[KIND] == RC_FLAG_COMMIT and not self._commit(&half, &parts):
            return None
        return counts

    cdef bint _find_parts(self, const Record* half, HalfParts* parts) noexcept:
        """Read the properties of a half message. False: the processor must do it."""
        cdef const uint8_t* p = half.props
        cdef const uint8_t* end = p + half.props_len
        cdef const uint8_t* stop
        cdef const uint8_t* middle
        cdef int verdict
        if may_have_property_crc(half) and has_property_crc(half):
            end -= RC_PROP_CRC_BYTES        # the log adds its own
        parts.topic = parts.group = parts.key = NULL
        parts.topic_size = parts.group_size = parts.key_size = 0
        parts.queue_id = -1
        parts.size = <int32_t>(end - p)
        while p < end:
            stop = <const uint8_t*>memchr(p, RC_PROPERTY_SEPARATOR, <size_t>(end - p))
            if stop == NULL:
                stop = end
            middle = <const uint8_t*>memchr(p, 1, <size_t>(stop - p))
            if middle == NULL:
                return False
            verdict = self._names.get(p, <int>(middle - p))
            middle += 1
            if verdict == NEEDS_PROCESSOR:
                return False
            if verdict == REAL_TOPIC:
                if parts.topic != NULL or middle == stop:
                    return False
                parts.topic = middle
                parts.topic_size = <int32_t>(stop - middle)
            elif verdict == REAL_QUEUE:
                if parts.queue_id >= 0:
                    return False
                parts.queue_id = <int32_t>queue_of(middle, stop)
                if parts.queue_id < 0:
                    return False
            elif verdict == PRODUCER_GROUP:
                if parts.group != NULL or middle == stop:
                    return False
                parts.group = middle
                parts.group_size = <int32_t>(stop - middle)
            elif verdict == UNIQUE_KEY:
                if parts.key != NULL:
                    return False
                parts.key = middle
                parts.key_size = <int32_t>(stop - middle)
            p = stop + 1
        return parts.topic != NULL and parts.group != NULL and parts.queue_id >= 0

    cdef bint _is_queued(self, int32_t queue_id, int64_t offset, int64_t phy_offset) noexcept:
        """Whether the half topic has a record: it is not a part of the body of another message."""
        cdef ConsumeQueue* q = self._store.reader.queues.find(
            bytes_at(self._half_topic), <int32_t>PyBytes_GET_SIZE(self._half_topic), queue_id
        )
        cdef Unit u
        cdef int64_t unit = -1
        cdef int got = 0
        if q == NULL or cq_unit_of(q, offset, &unit) != RC_OK or unit < 0:
            return False
        return cq_read(q, unit, 1, &u, &got) == RC_OK and got == 1 and u.phy_offset == phy_offset

    cdef bint _is_alone(self, const Record* half, const HalfParts* parts) noexcept:
        """Whether no other half message has the key. False: the processor must find out if the transaction is decided.

        A half message of an earlier process may be decided by a mark, or by a committed message, of that process.
        """
        cdef int64_t hits[HITS]
        cdef IndexCursor cursor
        cdef KeyIndex index = self._store.lookups.index
        cdef int i, n
        if half.phy_offset < self._since:
            return False
        if index is None or parts.key_size == 0:
            return True
        index_cursor(&cursor, False)
        n = index.find(
            key_hash(rc_jhash_from(self._key_hash, parts.key, <size_t>parts.key_size)),
            rc_get_i64(half.tail + RC_MSG_STORE_TIMESTAMP_PAST) - self._retried, INT64_MAX, hits, HITS, &cursor,
        )
        for i in range(n):
            if hits[i] != half.phy_offset:
                return False
        return 0 <= n < HITS

    cdef bint _commit(self, const Record* half, const HalfParts* parts) except -1:
        """Append the committed message. False: it is not stored. Raises the errors of put()."""
        cdef PreparedRecord r
        cdef const uint8_t* store_host = half.tail + RC_MSG_STORE_HOST_PAST
        prepared_init(&r)
        r.args.topic = parts.topic
        r.args.topic_len = parts.topic_size
        r.args.queue_id = parts.queue_id
        r.args.flag = half.flag
        r.args.sys_flag = half.sys_flag & ~RC_FLAG_TRANSACTION_MASK | RC_FLAG_COMMIT
        r.args.body = half.body
        r.args.body_len = half.body_len
        r.args.props = half.props
        r.args.props_len = parts.size
        r.args.born_timestamp = rc_get_i64(half.at + RC_MSG_BORN_TIMESTAMP_AT)
        r.args.born_host = half.at + RC_MSG_BORN_HOST_AT
        r.args.store_host = store_host
        r.args.reconsume_times = rc_get_i32(
            store_host + store_host_len(half.sys_flag) + RC_MSG_RECONSUME_TIMES_PAST
        )
        r.args.prepared_offset = half.phy_offset
        self._sends._store.append(&r, 1, 0)
        return r.status == RC_OK
