# cython: language_level=3
"""Compare consume queues and index with the log, record by record. Nothing is written.

Queues and index are in log order, so one scan of the log compares all of them. Each queue and the index have a position
up to which they were compared. Findings are stored as ranges of numbers, up to a maximum number of ranges.
"""
import os

cimport cython
from libc.errno cimport ENOENT
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from rocketc.c.atomic cimport rc_load_i64
from rocketc.c.layout cimport RC_CQ_UNIT_BYTES, RC_MSG_MIN_BYTES
from rocketc.c.status cimport RC_END, RC_FILE_CUT, RC_OK, RC_UNFIT_TOPIC
from rocketc.derived._consume_queue cimport is_fit, is_of_another
from rocketc.derived._consume_queue_ext cimport is_ext_address
from rocketc.derived._consume_queue_units cimport cq_read, cq_tags_code, is_named
from rocketc.derived._dispatch_worker cimport DispatchRequest
from rocketc.derived._dispatcher cimport Dispatcher, RECENT_QUEUES
from rocketc.derived._mapped_index_file cimport (
    IndexUnit, MappedIndexFile, part_get, part_get_some, part_is_full, part_map, time_diff,
)
from rocketc.derived._queue_files cimport ConsumeQueue, failed_folder
from rocketc.derived._queue_loader cimport check_queue
from rocketc.format._queue_units cimport Unit, is_blank, is_schedule_topic
from rocketc.log._queue_offsets cimport cq_hash
from rocketc.read._log_audit cimport Audit, STEP_BLOCKS
from rocketc.read._walk cimport Walker

cdef enum:
    FINDINGS_MAX = 10000
    NEAR = 64                   # latest findings that a new one may extend
    LOOK_AHEAD = 64             # units of the index
    SOME = 64                   # units that are read at once
    NEXT = 32                   # units that are read ahead: of a queue up to this number, of the index always

cdef enum What:
    LACKS = 0                   # in LACKS to NO_RECORD, numbers are queue offsets
    ELSEWHERE = 1
    BAD_SIZE = 2
    BAD_TAGS = 3
    NO_RECORD = 4
    NO_QUEUE = 5                # in NO_QUEUE and KEY_LACKS, numbers are physical offsets
    KEY_LACKS = 6
    KEY_NO_RECORD = 7           # in the others, numbers are units of an index file
    KEY_BAD_TIME = 8
    KEY_BAD_HEADER = 9
    KINDS = 10

# In the order of What.
WHAT = (
    "lacks", "elsewhere", "bad_size", "bad_tags_code", "no_record", "no_queue", "key_lacks", "key_no_record",
    "key_bad_time", "key_bad_header",
)

ctypedef struct Finding:
    int what
    ConsumeQueue* q             # NULL: about the index, or about a missing queue
    MappedIndexFile* part
    int64_t first               # first and last number, both included
    int64_t last
    int64_t count               # number of findings; less than last - first + 1 for physical offsets
    int64_t phy_offset          # of the first finding
    bint tail                   # not dispatched yet: after the last unit of the queue, and not before `dispatched`

# Units of a queue that are read ahead: most queues are compared one unit after the other.
ctypedef struct Near:
    ConsumeQueue* q
    int64_t first               # number of the first unit
    int count                   # number of units; mostly, the unit after the last one is read next
    Unit units[NEXT]


@cython.final
@cython.no_gc_clear      # for the same reason as the base class
cdef class DerivedAudit(Dispatcher):
    """Compare the log with existing queues and index. The arguments are those of Dispatcher; all files are read-only.

    Call begin(); for each file of the log, step() until it returns False, or step_beside(); then end().
    """

    cdef:
        Finding _room[FINDINGS_MAX]
        int _count
        int _part               # number of the index file; _unit is the next unit in it
        int64_t _unit
        IndexUnit _keys[NEXT]   # units that are read ahead: _key_count from number _first_key of _key_part
        MappedIndexFile* _key_part
        int64_t _first_key
        int _key_count
        Near _near[RECENT_QUEUES]       # cache of queues by hash
        ConsumeQueue* _last     # the queue of the last record
        int64_t _log_start
        int64_t _log_stop
        int64_t _log_now
        int64_t _dispatched     # physical offset: records that end before it must be in their queues
        int64_t _counts[2][KINDS]       # of findings; [1]: of those of the tail
        int _first_open         # number of the first finding that may still be extended
        int64_t _last_phy       # physical offset of the last record; more rows with it belong to that record
        bint _settled           # the store did not have a writer when the index was loaded
    cdef readonly:
        int64_t records
        int64_t units           # units of queues that agree with the log
        int64_t keys            # units of the index that agree with the log
        int64_t key_tail        # physical offset of the first record that the index does not have yet; -1: it has all
        int64_t upto            # physical offset: step_beside() has compared the records before it

    def last_dispatched(self, int64_t now):
        """Return the largest physical offset at which a record with a unit ends; 0 if there is none.

        now  the end of the log; queues whose last unit is after it do not count: they are damaged
        """
        cdef int i
        cdef int64_t last = 0
        for i in range(self.queues._count):
            if self.queues._all[i].dead == 0 and self.queues._all[i].max_phy_offset <= now:
                last = max(last, self.queues._all[i].max_phy_offset)
        return last

    def begin(
        self, int64_t start, int64_t stop, *, int64_t now, bint queues, bint index, bint settled,
        int64_t dispatched=INT64_MAX,
    ):
        """Set what is compared, and the range of the log.

        now         the current end of the log, if it grew since queues and index were loaded; units of records from
                    stop to now are not checked
        settled     no process wrote to the index when it was loaded: the header of its last file is up to date
        dispatched  a result of last_dispatched() from before the last reading of the queues: a writer had dispatched
                    all records that end before it. If other records are missing at the end of their queues, they are
                    not dispatched yet: counts() and findings() return them with tail=True only
        """
        cdef int i
        cdef ConsumeQueue* q
        self._log_start = start
        self._log_stop = stop
        self._log_now = now
        self._settled = settled
        self.queues_from = start if queues else INT64_MAX
        self.index_from = start if index else INT64_MAX
        self.whole = True
        self.catching_up = False
        self._dispatched = dispatched
        self._last_phy = self.key_tail = -1
        self._first_open = 0
        self._part = 0
        self._unit = 1
        memset(self.recent, 0, sizeof(self.recent))
        memset(self._near, 0, sizeof(self._near))
        self._last = NULL
        self._key_part = NULL
        for i in range(self.queues._count):
            q = self.queues._all[i]
            q.opening.left_out = 0
            q.opening.repaired = q.min_unit     # reused: the number of the next unit to compare

    def begin_file(self):
        """Begin a file of the log: a finding in it does not extend a finding in an earlier file."""
        self._first_open = self._count

    def skip_to(self, int64_t phy_offset):
        """Skip the log up to an offset: its owner has deleted these files. Units of their records are not checked."""
        self._log_start = max(self._log_start, phy_offset)

    def step(self, Walker walker not None):
        """Compare the next blocks of a walker. Returns False if there are no more blocks.

        Raises StoreIOError for files of queues and index, and the errors of the walker.
        """
        cdef int _, rc
        for _ in range(STEP_BLOCKS):
            if not walker.next_block():
                return False
            with nogil:
                rc = self._take_block(walker)
            if rc != RC_OK:
                return self._end_rows(rc)
            walker.cut_in_block(0)
        return True

    def step_beside(self, Audit audit not None):
        """Call audit.step() and compare each block while it is in the cache. Returns False when it must not be called
        again.

        This is at the end of the file or at damage: audit checks CRCs and so continues after damage in another way than
        a walker. Then call audit.step() alone, and step() from `upto`. Raises StoreIOError for queues and index.
        """
        cdef Walker w = audit.walker
        cdef bint more
        cdef int _, rc
        for _ in range(STEP_BLOCKS):
            self.upto = w.position
            more = audit.next()
            if w.damage:
                return False
            self.upto = w.position
            if not more:
                return False
            with nogil:
                rc = self._take_block(w)
            if rc != RC_OK:
                return self._end_rows(rc)
        return True

    cdef ConsumeQueue* _queue_of(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, int* rc,
    ) noexcept nogil:
        cdef uint32_t h
        cdef ConsumeQueue* q = self._last
        cdef const Unit* unit = &self.rows[self.row_count].unit
        rc[0] = RC_OK
        if (
            q != NULL and q.queue_id == queue_id and q.topic_len == topic_len
            and memcmp(q.topic, topic, <size_t>topic_len) == 0
        ):
            return q
        h = cq_hash(topic, topic_len, queue_id)
        q = self.recent[h % RECENT_QUEUES]
        if q == NULL or not is_named(q, topic, topic_len, queue_id, h):
            q = self.queues.find(topic, topic_len, queue_id)
        if q != NULL:
            self.recent[h % RECENT_QUEUES] = self._last = q
        elif not is_fit(topic, topic_len) or queue_id < 0:
            rc[0] = RC_UNFIT_TOPIC
        else:
            self._find(
                NO_QUEUE, NULL, NULL, unit.phy_offset, unit.phy_offset, unit.phy_offset + unit.size >= self._dispatched,
            )
        return q

    cdef bint _has_unit(self, const uint8_t* topic, int32_t n, int64_t number, int64_t phy_offset) noexcept nogil:
        cdef const Unit* u = NULL
        cdef ConsumeQueue* q = self.queues.find(topic, n, 0)
        return q != NULL and self._unit_of(q, number, &u) == RC_OK and u != NULL and u.phy_offset == phy_offset

    cdef int _put_rows(self) noexcept nogil:
        cdef DispatchRequest* row
        cdef int i, rc = RC_OK
        for i in range(self.row_count):
            row = &self.rows[i]
            if row.unit.phy_offset != self._last_phy:
                self.records += 1
                self._last_phy = row.unit.phy_offset
            if row.q != NULL and row.q.opening.claim_phy >= row.unit.phy_offset and is_of_another(row.q, &row.unit):
                row.q = NULL
            if row.q != NULL:
                rc = self._compare_batch(row) if row.q.unit_bytes != RC_CQ_UNIT_BYTES else self._compare_unit(row)
                if rc != RC_OK:
                    self.error_path = failed_folder(row.q)
            if rc == RC_OK and row.hash_count > 0:
                rc = self._compare_keys(row)
            if rc != RC_OK:
                break
        self.row_count = self.hash_count = 0
        return rc

    cdef void _find(
        self, int what, ConsumeQueue* q, MappedIndexFile* part, int64_t number, int64_t phy_offset, bint tail=False,
    ) noexcept nogil:
        """Record a finding. It extends the range that ends before its number, if that is one of the latest ranges."""
        cdef Finding* f
        cdef int i = self._count - 1
        self._counts[<int>tail][what] += 1
        while i >= self._first_open and i >= self._count - NEAR:
            f = &self._room[i]
            if f.what == what and f.q == q and f.part == part and f.tail == tail:
                if f.last + 1 == number or what == NO_QUEUE or what == KEY_LACKS:
                    f.last = number
                    f.count += 1
                    return
                break
            i -= 1
        if self._count == FINDINGS_MAX:
            return
        f = &self._room[self._count]
        self._count += 1
        f.what = what
        f.q = q
        f.part = part
        f.first = f.last = number
        f.count = 1
        f.phy_offset = phy_offset
        f.tail = tail

    cdef bint _is_outside_log(self, int64_t phy_offset) noexcept nogil:
        """Whether a record of this offset is in a file that was deleted, or created after the log was listed."""
        return 0 <= phy_offset < self._log_start or self._log_stop <= phy_offset < self._log_now

    # queues

    cdef int _extra(self, ConsumeQueue* q, int64_t stop) noexcept nogil:
        """Record the units from the queue's position up to `stop` as NO_RECORD, except those of deleted log files."""
        cdef Unit some[SOME]
        cdef int got = 0, i, rc
        stop = min(stop, rc_load_i64(&q.units))
        while q.opening.repaired < stop:
            rc = cq_read(q, q.opening.repaired, <int>min(<int64_t>SOME, stop - q.opening.repaired), some, &got)
            if rc != RC_OK:
                return rc
            if got == 0:
                break
            for i in range(got):
                if not is_blank(&some[i]) and not self._is_outside_log(some[i].phy_offset):
                    self._find(
                        NO_RECORD, q, NULL,
                        some[i].queue_offset if q.unit_bytes != RC_CQ_UNIT_BYTES else q.opening.repaired + i,
                        some[i].phy_offset,
                    )
            q.opening.repaired += got
        q.opening.repaired = max(q.opening.repaired, stop)
        return RC_OK

    cdef int _unit_of(self, ConsumeQueue* q, int64_t number, const Unit** unit) noexcept nogil:
        """Get the unit with a number, or NULL if there is none; returns RC_OK, an errno, or RC_FILE_CUT."""
        cdef Near* near = &self._near[q.hash % RECENT_QUEUES]
        cdef int64_t i = number - near.first
        cdef int n = 1, rc
        unit[0] = NULL
        if near.q == q:
            if 0 <= i < near.count:
                unit[0] = &near.units[i]
                return RC_OK
            if i == near.count:
                n = <int>max(1, min(2 * near.count, NEXT))  # units are read in order so far
        near.q = q
        near.first = number
        near.count = 0
        rc = cq_read(q, number, n, near.units, &near.count)
        if rc == RC_OK and near.count > 0:
            unit[0] = near.units
        return rc

    cdef int _compare_unit(self, DispatchRequest* row) noexcept nogil:
        cdef ConsumeQueue* q = row.q
        cdef const Unit* u = NULL
        cdef int64_t number = row.unit.queue_offset, code
        cdef int rc = RC_OK
        if q.opening.repaired < number < rc_load_i64(&q.units):
            rc = self._extra(q, number)
        if rc == RC_OK:
            rc = self._unit_of(q, number, &u)
        if rc != RC_OK:
            return rc
        if u == NULL and (number < 0 or number - q.units > (self._log_stop - self._log_start) // RC_MSG_MIN_BYTES):
            self.unqueued_count += 1        # the log is too small for this queue offset: the dispatcher refuses it too
            return RC_OK
        if u == NULL or is_blank(u):
            self._lacks(row, number >= rc_load_i64(&q.units))
            return RC_OK
        if number == q.opening.repaired:
            q.opening.repaired = number + 1
        if u.phy_offset != row.unit.phy_offset:
            self._find(ELSEWHERE, q, NULL, number, row.unit.phy_offset)
            return RC_OK
        if u.size != row.unit.size:
            self._find(BAD_SIZE, q, NULL, number, row.unit.phy_offset)
            return RC_OK
        code = u.tags_code
        if is_ext_address(code):
            rc = cq_tags_code(q, u, &code)
        if rc != RC_OK and rc != RC_END:
            return rc
        if (rc == RC_END or code != row.unit.tags_code) and not is_schedule(q):
            self._find(BAD_TAGS, q, NULL, number, row.unit.phy_offset)
        else:
            self.units += 1
        return RC_OK

    cdef int _compare_batch(self, DispatchRequest* row) noexcept nogil:
        """Compare like _compare_unit(), but by physical offset: unit numbers of batch queues are not queue offsets."""
        cdef ConsumeQueue* q = row.q
        cdef Unit u
        cdef int got = 1, rc
        while True:
            rc = cq_read(q, q.opening.repaired, 1, &u, &got)
            if rc != RC_OK:
                return rc
            if got == 0 or self._log_stop > u.phy_offset > row.unit.phy_offset:
                self._lacks(row, q.opening.repaired >= rc_load_i64(&q.units))
                return RC_OK
            if u.phy_offset == row.unit.phy_offset:
                break
            rc = self._extra(q, q.opening.repaired + 1)
            if rc != RC_OK:
                return rc
        q.opening.repaired += 1
        if u.size != row.unit.size:
            self._find(BAD_SIZE, q, NULL, row.unit.queue_offset, row.unit.phy_offset)
        elif u.queue_offset != row.unit.queue_offset or u.count != row.unit.count:
            self._find(ELSEWHERE, q, NULL, row.unit.queue_offset, row.unit.phy_offset)
        elif u.tags_code != row.unit.tags_code:
            self._find(BAD_TAGS, q, NULL, row.unit.queue_offset, row.unit.phy_offset)
        else:
            self.units += 1
        return RC_OK

    cdef void _lacks(self, DispatchRequest* row, bint at_end) noexcept nogil:
        """Record a missing unit. at_end: it is after the last unit of the queue."""
        cdef bint tail = at_end and row.unit.phy_offset + row.unit.size >= self._dispatched
        self._find(LACKS, row.q, NULL, row.unit.queue_offset, row.unit.phy_offset, tail)

    # the index

    cdef int _peek(self, const IndexUnit** unit, MappedIndexFile** part) noexcept nogil:
        """Get the next unit of the index. part is set to NULL after the last one."""
        cdef MappedIndexFile* p
        cdef int64_t units
        cdef int rc
        if self._key_part != NULL and self._unit - self._first_key < self._key_count:
            unit[0] = &self._keys[self._unit - self._first_key]
            part[0] = self._key_part
            return RC_OK
        part[0] = self._key_part = NULL
        while self._part < self.index._count:
            p = self.index._parts[self._part]
            units = min(p.count, p.units)
            if self._unit < units:
                self._first_key = self._unit
                self._key_count = <int>min(units - self._unit, <int64_t>NEXT)
                rc = part_map(p, False)
                if rc == ENOENT:            # deleted with the records of its keys
                    self._part += 1
                    self._unit = 1
                    continue
                if rc == RC_OK and not part_get_some(p, self._unit, self._key_count, self._keys):
                    rc = RC_FILE_CUT
                if rc != RC_OK:
                    self.error_path = p.path
                    return rc
                self._key_part = part[0] = p
                unit[0] = self._keys
                return RC_OK
            self._part += 1
            self._unit = 1
        return RC_OK

    cdef int64_t _ahead(self, MappedIndexFile* p, int32_t hashed, int64_t phy_offset) noexcept nogil:
        """Return how many units ahead a key of a record is; 0 if it is not among the next units."""
        cdef IndexUnit u
        cdef int64_t n
        for n in range(self._unit + 1, min(min(p.count, p.units), self._unit + LOOK_AHEAD)):
            if part_get(p, n, &u) and u.key_hash == hashed and u.phy_offset == phy_offset:
                return n - self._unit
        return 0

    cdef void _extra_key(self, MappedIndexFile* p, const IndexUnit* u) noexcept nogil:
        """Record the next unit of the index as KEY_NO_RECORD, unless its record was deleted or it is a duplicate.

        RocketMQ may put a key twice.
        """
        self.index._at = p
        self.index._unit = self._unit
        self.index._checked_phy = INT64_MAX - 1
        if not self._is_outside_log(u.phy_offset) and not self.index._is_doubled():
            self._find(KEY_NO_RECORD, NULL, p, self._unit, u.phy_offset)
        self.index._at = NULL
        self._unit += 1

    cdef int _compare_keys(self, DispatchRequest* row) noexcept nogil:
        cdef MappedIndexFile* p = NULL
        cdef const IndexUnit* u = NULL
        cdef int64_t phy = row.unit.phy_offset
        cdef int32_t hashed
        cdef int i, rc
        for i in range(row.hash_count):
            hashed = self.hashes[row.first_hash + i]
            while True:
                rc = self._peek(&u, &p)
                if rc != RC_OK:
                    return rc
                if p == NULL:
                    break
                if u.phy_offset == phy and u.key_hash == hashed:
                    break
                if phy < u.phy_offset < self._log_stop and self._ahead(p, hashed, phy) == 0:
                    p = NULL
                    break
                self._extra_key(p, u)
            if p == NULL:
                self._find(KEY_LACKS, NULL, NULL, phy, phy)
                if self.key_tail < 0:
                    self.key_tail = phy
                continue
            self.key_tail = -1
            if not self._has_time(p, u, row.unit.store_timestamp):
                self._find(KEY_BAD_TIME, NULL, p, self._unit, phy)
            elif not self._has_header(p, phy, row.unit.store_timestamp):
                self._find(KEY_BAD_HEADER, NULL, p, self._unit, phy)
            else:
                self.keys += 1
            self._unit += 1
        return RC_OK

    cdef bint _has_time(self, const MappedIndexFile* p, const IndexUnit* u, int64_t timestamp) noexcept nogil:
        """Whether the time of the next unit is the time of its record."""
        cdef const MappedIndexFile* before
        if self._unit > 1:
            return u.time_diff == time_diff(p.begin_timestamp, timestamp)
        # RocketMQ counts from the end of the file before. If that is deleted, the time can't be checked.
        before = self.index._parts[self._part - 1] if self._part > 0 else NULL
        return before == NULL or not part_is_full(before) or u.time_diff == time_diff(before.end_timestamp, timestamp)

    cdef bint _has_header(self, const MappedIndexFile* p, int64_t phy_offset, int64_t timestamp) noexcept nogil:
        """Whether the header agrees with the next unit, if this is the first or last unit of its file."""
        if self._unit == 1 and p.begin_timestamp != timestamp:  # load() has compared the offset already
            return False
        if self._unit != p.count - 1 or not (self._settled or part_is_full(p)):
            return True
        return p.end_phy == phy_offset and p.end_timestamp == timestamp

    def end(self):
        """End the comparison: all units that were not compared belong to no record."""
        cdef ConsumeQueue* q
        cdef MappedIndexFile* p = NULL
        cdef const IndexUnit* u = NULL
        cdef int i, rc
        if self.queues_from < INT64_MAX:
            for i in range(self.queues._count):
                q = self.queues._all[i]
                if q.dead == 0:         # otherwise deleted, or loaded again
                    check_queue(q, self._extra(q, INT64_MAX))
        while self.index is not None and self.index_from < INT64_MAX:
            rc = self._peek(&u, &p)
            if rc != RC_OK:
                raise self.dispatch_error(rc)
            if p == NULL:
                break
            self._extra_key(p, u)

    def counts(self, bint tail=False):
        """Return the number of findings of each kind in WHAT; findings() returns only the first ones."""
        cdef int i
        return {WHAT[i]: self._counts[<int>tail][i] for i in range(<int>KINDS) if self._counts[<int>tail][i]}

    def findings(self, bint tail=False):
        """Return (what, topic, queue id, index file, first, last, count, physical offset) of each range of findings."""
        cdef Finding* f
        cdef int i
        cdef list out = []
        for i in range(self._count):
            f = &self._room[i]
            if f.tail != tail:
                continue
            topic = queue_id = file = None
            if f.q != NULL:
                topic = f.q.topic[:f.q.topic_len].decode("utf-8", "replace")
                queue_id = f.q.queue_id
            if f.part != NULL:
                file = os.fsdecode(f.part.path)
            out.append((WHAT[f.what], topic, queue_id, file, f.first, f.last, f.count, f.phy_offset))
        return out


cdef bint is_schedule(const ConsumeQueue* q) noexcept nogil:
    """Whether the tags codes of a queue are times, which depend on a setting of the broker."""
    return is_schedule_topic(q.topic, q.topic_len)
