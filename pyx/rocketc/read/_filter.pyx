# cython: language_level=3
"""Select the records of a scan by their bytes: first the header, then topic, then properties; never the body."""
import datetime
import re

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr

from rocketc._arguments cimport checked_int
from rocketc.c.bytes cimport rc_get_i32, rc_get_i64
from rocketc.c.layout cimport (
    RC_MSG_QUEUE_ID_AT, RC_MSG_STORE_TIMESTAMP_PAST, RC_PROPERTY_KEYS, RC_PROPERTY_TAGS, RC_PROPERTY_UNIQUE_KEY,
)
from rocketc.c.properties cimport rc_find_property
from rocketc.format._record cimport Record, is_to_unwrap
from rocketc.format._text_table cimport KEEP, SKIP, TextTable, UNKNOWN
from rocketc.read._sql_filter cimport SqlFilter, sql_matches

from rocketc.read.regex import limited

cdef enum:
    TABLE_MAX = 1 << 16     # size at which the cached verdicts of patterns are cleared
    FIRST_RANGE = 3         # in the table of topics with queue offsets: lower numbers are verdicts


cdef TextTable table_of(str what, object texts):
    """Create a table with the given texts, a str or several."""
    cdef TextTable table = TextTable()
    cdef bytes utf8
    for item in [texts] if isinstance(texts, str) else texts:
        if not isinstance(item, str):
            raise TypeError(f"{what}: expected str, got {type(item).__name__}")
        utf8 = item.encode()
        table.put(utf8, <int>len(utf8), KEEP)
    return table


cdef int64_t ms_of(str what, object when, int64_t default) except? -1:
    if when is None:
        return default
    if isinstance(when, datetime.datetime):
        if when.tzinfo is None:
            raise ValueError(f"{what}: a datetime without a time zone; add one, such as datetime.timezone.utc")
        return <int64_t>(-(-int(when.timestamp() * 1_000_000) // 1000))
    if isinstance(when, int):
        return checked_int(what, when, INT64_MIN, INT64_MAX)
    raise TypeError(f"{what}: expected int (ms since the epoch) or datetime, got {type(when).__name__}")


cdef class Filter:
    """The filter arguments of rocketc.scan(): topics, queues, tags, keys, sql, begin, end, offsets; None: everything.

    A record passes if all of these hold:

    topics   its topic is one of them (names, or patterns that match the whole topic)
    queues   its queue id is one of them
    tags     its TAGS is one of them ("A||B" is both)
    keys     one of them is among its KEYS or is its UNIQ_KEY
    sql      this expression is true for its properties: a text, or a SqlFilter
    begin, end  its store timestamp is in [begin, end)
    offsets  its queue offset is in a range given for its topic

    The messages of an inner batch have their own queue offsets and properties. So a batch passes these conditions, and
    its messages are checked one by one. With unwrap=False a batch is checked like any other record.
    """

    def __cinit__(
        self, topics=None, queues=None, tags=None, keys=None, begin=None, end=None, *,
        offsets=None, bint unwrap=True, sql=None,
    ):
        cdef int i
        self._unwrap = unwrap
        self._queue_count = -1
        self._patterns = []
        if topics is not None:
            names = []
            for item in [topics] if isinstance(topics, (str, re.Pattern)) else topics:
                if not isinstance(item, re.Pattern):
                    names.append(item)
                elif isinstance(item.pattern, str):
                    self._patterns.append(item)
                else:
                    raise TypeError("topics: a pattern over bytes; compile it from a str")
            self._names = names
            self._topics = table_of("topics", names)
        if tags is not None:
            names = [tags] if isinstance(tags, str) else list(tags)
            if "*" not in names:
                self._tags = table_of("tags", [t.strip() for item in names for t in item.split("||")])
        if keys is not None:
            self._keys = table_of("keys", keys)
        if sql is not None:
            if not isinstance(sql, SqlFilter):
                from rocketc.read.sql import whole_sql      # late: it needs lark

                sql = whole_sql(sql)
            self._sql = sql
        if queues is not None:
            if isinstance(queues, (str, bytes)) or not hasattr(queues, "__iter__"):
                queues = [queues]
            ids = sorted({checked_int("queues", q, INT32_MIN, INT32_MAX) for q in queues})
            self._queues = <int32_t*>malloc(<size_t>(len(ids) + 1) * sizeof(int32_t))
            if self._queues == NULL:
                raise MemoryError
            for i in range(len(ids)):
                self._queues[i] = ids[i]
            self._queue_count = <int>len(ids)
        self._begin = ms_of("begin", begin, INT64_MIN)
        self._end = ms_of("end", end, INT64_MAX)
        if offsets is not None:
            self._take_offsets(dict(offsets))
        self._ask = len(self._patterns) > 0
        self._all = (
            self._topics is None and self._tags is None and self._keys is None and self._sql is None
            and self._queue_count < 0 and begin is None and end is None and self._ranged is None
        )

    def __dealloc__(self):
        free(self._queues)
        free(self._offsets)

    cdef int _take_offsets(self, dict offsets) except -1:
        """Set the offsets: {topic: {queue id, or None for all others: (begin, end), None for no bound}}."""
        cdef Offsets* one
        cdef bytes utf8
        cdef size_t at = 0
        cdef dict sized = {
            str(topic): {
                id if id is None else checked_int("offsets: queue id", id, INT32_MIN, INT32_MAX): bounds
                for id, bounds in dict(queues).items()
            }
            for topic, queues in offsets.items()
        }
        self._ranged = TextTable()
        self._offsets = <Offsets*>calloc(sum([len(queues) for queues in sized.values()]) + len(sized), sizeof(Offsets))
        if self._offsets == NULL:
            raise MemoryError
        for topic, queues in sized.items():
            utf8 = topic.encode()
            self._ranged.put(utf8, <int>len(utf8), FIRST_RANGE + <int>at)
            for queue_id in sorted(queues, key=lambda id: (id is None, id)):
                begin, end = queues[queue_id]
                one = &self._offsets[at]
                at += 1
                one.others = queue_id is None
                one.queue_id = 0 if queue_id is None else queue_id
                one.begin = INT64_MIN if begin is None else checked_int("offsets: begin", begin, INT64_MIN, INT64_MAX)
                one.end = INT64_MAX if end is None else checked_int("offsets: end", end, INT64_MIN, INT64_MAX)
            if queues:
                self._offsets[at - 1].last = True
            else:                           # no queue passes
                self._offsets[at].others = self._offsets[at].last = True
                at += 1
        return 0

    cdef int verdict(self, const Record* r) noexcept nogil:
        """Return SKIP, KEEP or UNKNOWN; after UNKNOWN call judge(), then call verdict() again."""
        cdef int64_t when
        cdef int32_t queue_id
        cdef int i, code
        if self._all:
            return KEEP
        when = rc_get_i64(r.tail + RC_MSG_STORE_TIMESTAMP_PAST)
        if when < self._begin or (when >= self._end and self._end != INT64_MAX):
            return SKIP
        if self._queue_count >= 0:
            queue_id = rc_get_i32(r.at + RC_MSG_QUEUE_ID_AT)
            for i in range(self._queue_count):
                if self._queues[i] == queue_id:
                    break
            else:
                return SKIP
        if self._topics is not None:
            code = self._topics.get(r.topic, r.topic_len)
            if code != KEEP:
                return code if self._ask else SKIP
        if self._unwrap and is_to_unwrap(r):
            return KEEP
        return self.verdict_of_content(r)

    cdef int verdict_of_content(self, const Record* r) noexcept nogil:
        """Return SKIP or KEEP by queue offset and properties; r may be a message of an inner batch."""
        cdef int at = 0, n
        if self._ranged is not None and not self._has_offset(r):
            return SKIP
        if self._tags is not None:
            n = rc_find_property(r.props, r.props_len, RC_PROPERTY_TAGS, &at)
            if n < 0 or self._tags.get(r.props + at, n) != KEEP:
                return SKIP
        if self._keys is not None and not self._has_key(r):
            return SKIP
        if self._sql is not None:
            if not sql_matches(&self._sql.program, <const char*>r.props, <size_t>r.props_len):
                return SKIP
        return KEEP

    cdef bint _has_key(self, const Record* r) noexcept nogil:
        cdef int at = 0, n, end
        cdef const void* blank
        n = rc_find_property(r.props, r.props_len, RC_PROPERTY_UNIQUE_KEY, &at)
        if n >= 0 and self._keys.get(r.props + at, n) == KEEP:
            return True
        n = rc_find_property(r.props, r.props_len, RC_PROPERTY_KEYS, &at)
        end = at + n
        while n >= 0 and at < end:
            blank = memchr(r.props + at, c" ", <size_t>(end - at))
            n = <int>(<const uint8_t*>blank - (r.props + at)) if blank != NULL else end - at
            if n > 0 and self._keys.get(r.props + at, n) == KEEP:
                return True
            at += n + 1
        return False

    cdef bint _has_offset(self, const Record* r) noexcept nogil:
        cdef int code = self._ranged.get(r.topic, r.topic_len)
        cdef int32_t queue_id = rc_get_i32(r.at + RC_MSG_QUEUE_ID_AT)
        cdef const Offsets* one
        if code == UNKNOWN:
            return True
        one = &self._offsets[code - FIRST_RANGE]
        while True:
            if one.others or one.queue_id == queue_id:
                return one.begin <= r.queue_offset < one.end
            if one.last:
                return False
            one += 1

    cdef int judge(self, const Record* r) except -1:
        """Match the topic of r with the patterns, and cache the verdict."""
        name = (<const char*>r.topic)[:r.topic_len].decode("utf-8", "replace")
        keep = any([limited(pattern.fullmatch, name) is not None for pattern in self._patterns])
        if self._topics.count >= TABLE_MAX:
            self._topics = table_of("topics", self._names)
        self._topics.put(r.topic, r.topic_len, <int>KEEP if keep else <int>SKIP)
        return 0
