# cython: language_level=3
"""All consume queues of a store: brought up to the log, flushed, deleted. How they are found: _queue_loader.

They are derived from the log. When a store is opened, units are written again from some point of the log on; a unit
that is there already is compared, and what the files have behind the last one is cleared, so that they say what the log
says whatever they said before. Source: RocketMQ ConsumeQueueStore.
"""
import os
from array import array

from libc.errno cimport EBUSY, ENOENT, ENOSYS
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from posix.unistd cimport usleep

from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.layout cimport RC_CQ_UNIT_BYTES, RC_MSG_MIN_BYTES
from rocketc.c.service cimport pthread_mutex_unlock
from rocketc.c.status cimport RC_END, RC_MORE, RC_OK
from rocketc.c.vm cimport rc_sync_all
from rocketc.derived._consume_queue cimport correct_min, cq_begin, cq_delete_expired, cq_finish, cq_flush
from rocketc.derived._consume_queue_units cimport (
    ConsumeQueue, cq_min_offset, cq_read, cq_tags_code, drop_files, last_of, units_before,
)
from rocketc.derived._queue_loader cimport QueueLoader, check_queue, name_of
from rocketc.derived._queue_table cimport key_of
from rocketc.files._append_file cimport file_shutdown
from rocketc.files._file_queue cimport queue_start, queue_unmap
from rocketc.format._queue_units cimport Unit, is_blank, is_valid
from rocketc.log._queue_offsets cimport QueueOffsets, QueueSlot, Stripe

from rocketc.files.durable import sync_folder

cdef enum:
    MANY_NAMES = 64             # queues with new files: one order to the disk is cheaper than one for each
    LONGEST_READ_MS = 1000
    READ_UNITS = 64

cdef int64_t FARTHEST = 1 << 40     # bytes of the log between two records of a queue; more is no gap, but rubbish


cdef class ConsumeQueues(QueueLoader):
    """All consume queues of a store.

    root             the store's folder
    file_size        bytes of a simple queue's file; rounded up to whole units
    batch_file_size  bytes of a batch queue's
    batch_topics     topics whose queues are batch queues (queue.type BatchCQ)
    ext_file_size    bytes of a file of the extensions (enableConsumeQueueExt); 0: none are written
    read_only        somebody else writes them
    load() finds what is there; then nothing is believed before begin() says from where the log is dispatched again.
    """

    def end_before(self, int64_t phy_offset, QueueOffsets offsets=None):
        """Physical offset behind the last record before phy_offset that a queue knows; 0 if none knows any.

        offsets  raised to what the queues hold before it
        """
        cdef ConsumeQueue* q
        cdef Unit u
        cdef int64_t units, end = 0
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            if q.files.count == 0:
                continue
            check_queue(q, units_before(q, phy_offset, q.files.files[0].start // q.unit_bytes, &units))
            check_queue(q, last_of(q, units, &u))
            end = max(end, u.phy_offset + u.size)
            if offsets is not None:
                if q.unit_bytes != RC_CQ_UNIT_BYTES:
                    units = u.queue_offset + u.count
                if offsets.raise_to(q.topic, q.topic_len, q.queue_id, units) != RC_OK:
                    raise MemoryError
        return end

    def begin(self, int64_t phy_offset):
        """Believe what the queues say of records before a physical offset; the log is dispatched again from there."""
        cdef int i
        self.in_doubt = False
        for i in range(self._count):
            check_queue(self._all[i], cq_begin(self._all[i], phy_offset))

    def finish(self, int64_t min_phy_offset, damage=()):
        """The log was dispatched to its end: clear what the files have behind it. Returns what was mended: text.

        damage  (start, stop) of what is damaged in the log: messages that were there keep their queue offsets
        """
        cdef ConsumeQueue* q
        cdef list mended = []
        cdef int i, rc
        cdef const int64_t[::1] offsets = array("q", [offset for pair in damage for offset in pair])
        cdef int count = <int>(offsets.shape[0] // 2)
        cdef const int64_t* ranges = &offsets[0] if count > 0 else NULL
        for i in range(self._count):
            q = self._all[i]
            rc = cq_finish(q, ranges, count)
            if rc == RC_MORE:
                self.in_doubt = True
            else:
                check_queue(q, rc)
            if q.repaired:
                units = "unit was" if q.repaired == 1 else "units were"
                mended.append(f"{name_of(q)}: {q.repaired} {units} not what the log says")
                q.repaired = 0
            check_queue(q, correct_min(q, min_phy_offset))
        return mended

    def claim(self, str topic, int32_t queue_id, int64_t phy_offset, int64_t queue_offset):
        """Say with which record a queue begins; what it has is dropped. The log is to be dispatched again."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        check_queue(q, drop_files(q))
        q.claim_phy = phy_offset
        q.claim_offset = queue_offset

    def disbelieve(self, str topic, int32_t queue_id):
        """The first record of a queue's files is not there: all records are of this queue."""
        self.look(topic, queue_id).claim_phy = -1

    def raise_offsets(self, QueueOffsets offsets not None, int64_t end):
        """Let the next message of each queue come behind the last one that is in it, with a number that fits there.

        end   physical offset where the log goes on; all that is before it is in the queues
        A record may say a number that is damage: its queue has refused it, and would refuse the numbers behind it.
        """
        cdef ConsumeQueue* q
        cdef QueueSlot* slot
        cdef Stripe* stripe
        cdef int64_t room
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            slot = offsets.lock(q.topic, q.topic_len, q.queue_id, &stripe)
            if slot == NULL:
                raise MemoryError
            # Records that were left out have numbers of the topic that was deleted, and damaged ones any number.
            if q.left_out > 0 or q.confirmed:
                slot.next_offset = max(q.max_offset + q.refused, q.kept)    # a damaged record had a number, too
            else:
                slot.next_offset = max(slot.next_offset, max(q.max_offset, q.kept))
            room = max(end - q.max_phy_offset, <int64_t>0) // RC_MSG_MIN_BYTES
            if q.unit_bytes == RC_CQ_UNIT_BYTES and q.units > 0 and slot.next_offset - q.units > room:
                slot.next_offset = q.units + min(room, <int64_t>1)
            pthread_mutex_unlock(&stripe.mutex)

    def summed(self):
        """(how many queues there are, the sum of the units that their files begin at, that of their last offsets)"""
        cdef int i = 0
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef int64_t count = 0, starts = 0, ends = 0
        while q != NULL:
            count += 1
            ends += rc_load_i64(&q.max_offset)
            starts += max(queue_start(&q.files, 1), <int64_t>0) // q.unit_bytes
            q = self.next_there(&i)
        return count, starts, ends

    def broken_off(self):
        """Folders of the queues that end where a file does, or have none: more may have been behind that is gone."""
        cdef int i = 0
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef int64_t start
        cdef list found = []
        while q != NULL:
            start = queue_start(&q.files, 1)
            if start < 0 or (q.units * q.unit_bytes - start) % q.files.file_size == 0:
                found.append(name_of(q))
            q = self.next_there(&i)
        return found

    # running

    cdef int flush(self, int64_t least_pages, const char** path) noexcept nogil:
        """Make durable what is written in each queue, if that is at least so many pages; one thread at a time.

        path  set to the file that failed
        """
        cdef int i = 0, rc = self._sync_many_names(path)
        cdef ConsumeQueue* q = self.next_there(&i)
        while rc == RC_OK and q != NULL:
            rc = cq_flush(q, least_pages, path)
            q = self.next_there(&i)
        return rc

    cdef int _sync_many_names(self, const char** path) noexcept nogil:
        """Make the names of new files durable all at once, where the files are many; of few cq_flush() sees to it."""
        cdef ConsumeQueue* q
        cdef int i, rc, count = 0
        for i in range(INT32_MAX):
            q = self.nth(i)
            if q == NULL or count == MANY_NAMES:
                break
            count += rc_load_i64(&q.files.names) > 0
        if count < MANY_NAMES:
            return RC_OK
        self._set_names(0)      # one that comes from here on is for the next time
        path[0] = self._above[0]
        rc = rc_sync_all(self._above[0])
        if rc == ENOENT or rc == ENOSYS:
            self._set_names(4)
            rc = RC_OK
        return rc

    def delete_expired(self, int64_t min_phy_offset, pause=None):
        """Delete files whose records are all gone, and let queues begin behind; returns {folder: how many}.

        pause  called behind each queue that lost files; what it returns, if true, ends it
        """
        cdef int i = 0, deleted
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef dict found = {}
        while q != NULL:
            deleted = 0
            check_queue(q, cq_delete_expired(q, min_phy_offset, &deleted))
            if deleted:
                found[name_of(q)] = deleted
                if pause is not None and pause():
                    break
            q = self.next_there(&i)
        return found

    def behind(self, int64_t phy_offset):
        """(how many units lead to a physical offset or behind it, the end of the last record that they name), as they
        were loaded. In each queue they count as far as they are in the log's order, so that rubbish does not."""
        cdef ConsumeQueue* q
        cdef Unit units[READ_UNITS]
        cdef int64_t number, at, count = 0, end = phy_offset
        cdef int i, k, got
        for i in range(self._count):
            q = self._all[i]
            if q.files.count == 0:
                continue
            check_queue(q, units_before(q, phy_offset, q.files.files[0].start // q.unit_bytes, &number))
            at, got = phy_offset, 1
            while got > 0:
                check_queue(q, cq_read(q, number, READ_UNITS, units, &got))
                number += got
                for k in range(got):
                    if is_blank(&units[k]):
                        continue
                    if not is_valid(&units[k]) or not 0 <= units[k].phy_offset - at < FARTHEST:
                        got = 0
                        break
                    at = units[k].phy_offset + units[k].size
                    count += 1
            end = max(end, at)
        return count, end

    def unmap(self):
        """Give back the maps of files that nobody reads, but the last ones."""
        cdef ConsumeQueue* q = self.nth(0)
        cdef int i = 0
        while q != NULL:
            queue_unmap(&q.files, 1)
            if q.ext != NULL:
                queue_unmap(&q.ext.files, 1)
            i += 1
            q = self.nth(i)

    def close(self):
        """Unmap all files; what views hold stays until their end. Nothing is synced. Twice is fine."""
        cdef int i, n
        for i in range(self._count):
            for n in range(self._all[i].files.count):
                file_shutdown(self._all[i].files.files[n])
            for n in range(self._all[i].ext.files.count if self._all[i].ext != NULL else 0):
                file_shutdown(self._all[i].ext.files.files[n])

    # deleting

    def standing(self, dict ends):
        """Topics of {name: physical offset}, that have a queue whose files begin with a record before the offset, as
        they were loaded: {name: whether one of these goes on with records behind it}."""
        cdef ConsumeQueue* q
        cdef dict found = {}
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            topic, _ = key_of(q)
            if topic in ends and q.files.count > 0 and 0 <= q.claim_phy < ends[topic]:
                found[topic] = found.get(topic, False) or goes_on_from(q, ends[topic])
        return found

    def without_units(self, topics):
        """Those of the topics that have a queue whose files hold no unit, as they were loaded."""
        cdef ConsumeQueue* q
        cdef set found = set()
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            topic, _ = key_of(q)
            if topic in topics and q.files.count > 0 and q.units == q.files.files[0].start // q.unit_bytes:
                found.add(topic)
        return found

    def delete(self, dict ends):
        """Delete queues, with their files; who reads in one finds nothing more there. Nothing is dispatched meanwhile.

        ends  {topic, or (topic, queue id): physical offset}: a queue whose first record is behind it is a later one
        Returns the set of (topic, queue id) that there were. Raises StoreIOError; then the next call goes on.
        """
        cdef set found = set()
        cdef ConsumeQueue* q
        cdef Unit u
        cdef int64_t first
        cdef int i, got = 0
        for i in range(self._count):
            q = self._all[i]
            topic, _ = key = key_of(q)
            end = ends.get(topic, ends.get(key))
            if end is None or (q.dead != 0 and q.files.count == 0):
                continue
            first = q.claim_phy
            if first < 0:
                check_queue(q, cq_read(q, q.min_unit, 1, &u, &got))
                first = u.phy_offset if got == 1 and not is_blank(&u) else -1
            if first >= <int64_t>end:
                continue
            rc_store_i64(&q.dead, 1)
            found.add(key)
        for topic in ends:
            if isinstance(topic, str):
                self.add_batch_topic(topic, is_one=False)
        for i in range(self._count):
            if self._all[i].dead != 0 and key_of(self._all[i]) in found:
                self._delete(self._all[i])
        return found

    cdef int _delete(self, ConsumeQueue* q) except -1:
        """Delete the files of a queue that nobody finds any more, and the folders that are empty then."""
        cdef int rc = EBUSY, tries = 0
        with nogil:
            while rc == EBUSY and tries < LONGEST_READ_MS:      # who reads a unit has the file for that long
                rc = drop_files(q)
                if rc == EBUSY:
                    usleep(1000)
                    tries += 1
        check_queue(q, rc)
        q.extends = False
        q.repaired = 0
        for folder in (name_of(q), *([os.fsdecode(q.ext.folder)] if q.ext != NULL else ())):
            above = os.path.dirname(folder)
            try:
                os.rmdir(folder)
                os.rmdir(above)         # other queues of the topic may be there
                above = os.path.dirname(above)
            except OSError:
                pass
            if os.path.isdir(above):
                sync_folder(above)      # else a power cut may bring them back: queues without files
        return 0

    # for tests and tools

    def units(self, str topic, int32_t queue_id=0, int64_t first=0, int count=INT32_MAX):
        """(number, phy_offset, size, tags_code, queue_offset, messages, store_timestamp) of units, as stored."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef Unit u
        cdef int got = 0
        cdef list found = []
        while q != NULL and len(found) < count:
            check_queue(q, cq_read(q, first, 1, &u, &got))
            if got == 0:
                break
            found.append((first, u.phy_offset, u.size, u.tags_code, u.queue_offset, u.count, u.store_timestamp))
            first += 1
        return found

    def tags_code(self, str topic, int32_t queue_id, int64_t number):
        """The tags code of a unit, from the extension if it is there; None if there is none."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef Unit u
        cdef int64_t code
        cdef int rc, got = 0
        if q == NULL:
            return None
        check_queue(q, cq_read(q, number, 1, &u, &got))
        if got == 0:
            return None
        rc = cq_tags_code(q, &u, &code)
        if rc == RC_END:
            return None
        check_queue(q, rc)
        return code

    def range(self, str topic, int32_t queue_id=0):
        """(minimum, maximum) queue offset: those of the first message, and behind the last one; None: no such queue."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef int64_t low
        if q == NULL:
            return None
        check_queue(q, cq_min_offset(q, &low))
        return low, rc_load_i64(&q.max_offset)

    def messages(self, str topic, int32_t queue_id=0):
        """How many messages a queue leads to: units that stand for a lost record lead to none. Reads all its units."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef Unit units[READ_UNITS]
        cdef int64_t number, count = 0
        cdef int i, rc = RC_OK, got = 1
        if q == NULL:
            return 0
        with nogil:
            number = rc_load_i64(&q.min_unit)
            while got > 0 and rc == RC_OK:
                rc = cq_read(q, number, READ_UNITS, units, &got)
                for i in range(got):
                    if is_valid(&units[i]) and not is_blank(&units[i]):
                        count += units[i].count
                number += got
        check_queue(q, rc)
        return count


cdef bint goes_on_from(ConsumeQueue* q, int64_t phy_offset) except -1:
    """Whether a queue has a unit of a record at phy_offset or behind. What a power cut has left in the place of others
    is of none."""
    cdef Unit units[READ_UNITS]
    cdef int64_t number = 0
    cdef int got = 1, i
    check_queue(q, units_before(q, phy_offset, q.files.files[0].start // q.unit_bytes, &number))
    while got > 0 and number < q.units:
        check_queue(q, cq_read(q, number, READ_UNITS, units, &got))
        for i in range(got):
            if is_valid(&units[i]) and units[i].phy_offset >= phy_offset:
                return True
        number += got
    return False
