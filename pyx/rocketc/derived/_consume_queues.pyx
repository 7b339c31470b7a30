# cython: language_level=3
"""All consume queues of a store: dispatch them again at an opening, flush and delete them. _queue_loader finds them.

Consume queues are derived from the log. When a store is opened, units are written again from some point of the log.
Existing units are compared with the log, and bytes after the last unit are cleared. So the files agree with the log,
whatever they held before. Source: RocketMQ ConsumeQueueStore.
"""
import os
from array import array

from libc.errno cimport EBUSY, ENOENT, ENOSYS
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport usleep

from rocketc.c.atomic cimport rc_load_i64, rc_load_u8, rc_raise_i64, rc_store_i64, rc_store_u8
from rocketc.c.layout cimport RC_CQ_UNIT_BYTES, RC_MSG_MIN_BYTES
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_END, RC_MORE, RC_OK
from rocketc.c.vm cimport rc_sync_all
from rocketc.derived._consume_queue cimport correct_min, cq_begin, cq_delete_expired, cq_finish, cq_flush
from rocketc.derived._consume_queue_units cimport (
    cq_min_offset, cq_read, cq_tags_code, drop_files, last_of, units_before,
)
from rocketc.derived._queue_files cimport (
    ConsumeQueue, QueueShared, files_close_all, files_free_rest, is_idle, wait_for_flush,
)
from rocketc.derived._queue_loader cimport QueueLoader, check_queue, name_of
from rocketc.derived._queue_table cimport key_of
from rocketc.files._append_file cimport RC_OS_PAGE_BYTES, file_shutdown
from rocketc.files._file_queue cimport FOLDERS_OF_QUEUE
from rocketc.format._queue_units cimport Unit, is_blank, is_valid
from rocketc.log._queue_offsets cimport QueueOffsets, QueueSlot, Stripe

from rocketc.files.durable import sync_folder

cdef enum:
    MANY_NAMES = 64             # from this number of queues with new files, one sync of all is cheaper
    MANY_IDLE = 1024            # the same for idle queues with new units
    LONGEST_READ_MS = 1000
    READ_UNITS = 64

cdef int64_t FARTHEST = 1 << 40     # bytes of the log between two records of a queue; a larger gap means damage


cdef class ConsumeQueues(QueueLoader):
    """All consume queues of a store.

    root             folder of the store
    file_size        bytes of a file of a simple queue; rounded up to whole units
    batch_file_size  bytes of a file of a batch queue
    batch_topics     topics whose queues are batch queues (queue.type BatchCQ)
    ext_file_size    bytes of a file of the extensions (enableConsumeQueueExt); 0: none are written
    open_queues      queues whose files may be mapped at a time; others are read and written with system calls
    read_only        another process writes the queues
    load() finds the existing queues. Their units are not trusted until begin() gives the physical offset from which
    the log is dispatched again.
    """

    def end_before(self, int64_t phy_offset, QueueOffsets offsets=None):
        """Return the physical offset after the last record before phy_offset that a queue has; 0 if there is none.

        offsets  raised to the queue offsets that the queues have before it
        """
        cdef ConsumeQueue* q
        cdef Unit u
        cdef int64_t units, end = 0
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            if q.file_count == 0:
                continue
            check_queue(q, units_before(q, phy_offset, q.start // q.unit_bytes, &units))
            if units == q.units and q.unit_bytes == RC_CQ_UNIT_BYTES:
                end = max(end, q.max_phy_offset)        # nothing has to be read
            else:
                check_queue(q, last_of(q, units, &u))
                end = max(end, u.phy_offset + u.size)
            if offsets is not None:
                if q.unit_bytes != RC_CQ_UNIT_BYTES:
                    units = u.queue_offset + u.count
                if offsets.raise_to(q.topic, q.topic_len, q.queue_id, units) != RC_OK:
                    raise MemoryError
        return end

    def begin(self, int64_t phy_offset):
        """Trust the units of records before a physical offset. The log is dispatched again from there."""
        cdef int i
        self.has_mismatch = False
        for i in range(self._count):
            check_queue(self._all[i], cq_begin(self._all[i], phy_offset))

    def finish(self, int64_t min_phy_offset, damage=()):
        """End the dispatch of the log: clear the files after their last unit. Returns a list of repairs, as text.

        damage  (start, stop) of each damaged range of the log: its messages keep their queue offsets
        """
        cdef ConsumeQueue* q
        cdef list repairs = []
        cdef int i, rc
        cdef const int64_t[::1] offsets = array("q", [offset for pair in damage for offset in pair])
        cdef int count = <int>(offsets.shape[0] // 2)
        cdef const int64_t* ranges = &offsets[0] if count > 0 else NULL
        for i in range(self._count):
            q = self._all[i]
            rc = cq_finish(q, ranges, count)
            if rc == RC_MORE:
                self.has_mismatch = True
            else:
                check_queue(q, rc)
            if q.opening.repaired:
                units = "unit was" if q.opening.repaired == 1 else "units were"
                repairs.append(f"{name_of(q)}: {q.opening.repaired} {units} different from the log")
                q.opening.repaired = 0
            check_queue(q, correct_min(q, min_phy_offset))
        return repairs

    def claim(self, str topic, int32_t queue_id, int64_t phy_offset, int64_t queue_offset):
        """Set the record with which a queue begins, and drop its units. The caller dispatches the log again."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        check_queue(q, drop_files(q))
        q.opening.claim_phy = phy_offset
        q.opening.claim_offset = queue_offset

    def drop_claim(self, str topic, int32_t queue_id):
        """Forget the first record of a queue's files: it is not in the log, so all records are of this queue."""
        self.look(topic, queue_id).opening.claim_phy = -1

    def raise_offsets(self, QueueOffsets offsets not None, int64_t end):
        """Set the next queue offset of each queue to the one after its last message, limited to a plausible value.

        It ends the opening: call it once, after finish().

        end   physical offset where the log continues; all records before it are in the queues
        A damaged record may have any queue offset. Its queue has refused it and would also refuse the offsets after it.
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
            # Records that were left out have queue offsets of the deleted topic; damaged records may have any.
            if q.opening.left_out > 0 or q.confirmed:
                slot.next_offset = max(q.max_offset + q.refused, q.opening.kept)    # a damaged record used one too
            else:
                slot.next_offset = max(slot.next_offset, max(q.max_offset, q.opening.kept))
            room = max(end - q.max_phy_offset, <int64_t>0) // RC_MSG_MIN_BYTES
            if q.unit_bytes == RC_CQ_UNIT_BYTES and q.units > 0 and slot.next_offset - q.units > room:
                slot.next_offset = q.units + min(room, <int64_t>1)
            pthread_mutex_unlock(&stripe.mutex)
        self._end_opening()

    def summed(self):
        """Return (number of queues, sum of the units at which their files begin, sum of their last queue offsets)."""
        cdef int i = 0
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef int64_t count = 0, starts = 0, ends = 0
        while q != NULL:
            count += 1
            ends += rc_load_i64(&q.max_offset)
            starts += max(rc_load_i64(&q.start), <int64_t>0) // q.unit_bytes
            q = self.next_there(&i)
        return count, starts, ends

    def broken_off(self):
        """Return the folders of the queues that end at the end of a file or are empty: later files may be missing."""
        cdef int i = 0
        cdef ConsumeQueue* q = self.next_there(&i)
        cdef int64_t start
        cdef list found = []
        while q != NULL:
            start = q.start
            if start < 0 or (q.units * q.unit_bytes - start) % q.file_size == 0:
                found.append(name_of(q))
            q = self.next_there(&i)
        return found

    # running

    cdef int flush(self, int64_t least_pages, const char** path) noexcept nogil:
        """Make the written units of queues durable. One thread at a time.

        least_pages  0: of all queues; otherwise of the queues that have units in that many pages since their last flush
        path         set to the file that failed
        """
        cdef int i = 0, rc = self._sync_many_names(path)
        cdef ConsumeQueue* q
        if rc != RC_OK or least_pages > 0:
            return self._flush_waiting(least_pages, path) if rc == RC_OK else rc
        self._take_waiting()
        rc = self._sync_many_idle(path)
        q = self.next_there(&i)
        while rc == RC_OK and q != NULL:
            rc = cq_flush(q, 0, path)
            q = self.next_there(&i)
        return rc

    cdef int _take_waiting(self) noexcept nogil:
        """Move the list of queues with pages to flush to _flushing. Returns their number."""
        cdef QueueShared* s = self._shared
        cdef ConsumeQueue** waiting
        cdef int room, i
        pthread_mutex_lock(&s.mutex)
        waiting, room = s.waiting, s.waiting_room
        s.waiting, s.waiting_room = self._flushing, self._flushing_room
        self._flushing, self._flushing_room = waiting, room
        room = s.waiting_count
        s.waiting_count = 0
        for i in range(room):
            rc_store_u8(&self._flushing[i].is_waiting, 0)   # a unit that is written from now on adds the queue again
        pthread_mutex_unlock(&s.mutex)
        return room

    cdef int _flush_waiting(self, int64_t least_pages, const char** path) noexcept nogil:
        cdef ConsumeQueue* q
        cdef int i, count = self._take_waiting(), rc = RC_OK
        for i in range(count):
            q = self._flushing[i]
            if rc == RC_OK and rc_load_u8(&q.dead) == 0:
                rc = cq_flush(q, least_pages, path)
            if rc != RC_OK or rc_load_i64(&q.units) * q.unit_bytes - rc_load_i64(&q.flushed) > RC_OS_PAGE_BYTES:
                wait_for_flush(q)       # for more pages
        return rc

    cdef int _sync_many_idle(self, const char** path) noexcept nogil:
        """Make the units of idle queues durable with one sync if many have some; otherwise cq_flush() does it."""
        cdef ConsumeQueue* q
        cdef ConsumeQueue** queues = NULL
        cdef int64_t* upto = NULL
        cdef int64_t end
        cdef int i = 0, n, count = 0, room = 0, rc = RC_OK
        q = self.next_there(&i)
        while q != NULL:
            end = rc_load_i64(&q.units) * q.unit_bytes
            if end > rc_load_i64(&q.flushed) and not q.extends and rc_load_i64(&q.start) >= 0 and is_idle(q):
                if count == room:
                    room = 2 * room + 1024
                    queues = <ConsumeQueue**>realloc(queues, <size_t>room * sizeof(ConsumeQueue*))
                    upto = <int64_t*>realloc(upto, <size_t>room * sizeof(int64_t))
                    if queues == NULL or upto == NULL:
                        count = 0
                        break
                queues[count], upto[count] = q, end
                count += 1
            q = self.next_there(&i)
        if count >= MANY_IDLE:
            path[0] = self._shared.above[0]
            rc = rc_sync_all(self._shared.above[0])
            for n in range(count if rc == RC_OK else 0):
                rc_raise_i64(&queues[n].flushed, upto[n])
            if rc == ENOENT or rc == ENOSYS:
                rc = RC_OK
        free(queues)
        free(upto)
        return rc

    cdef int _sync_many_names(self, const char** path) noexcept nogil:
        """Make the names of new files durable with one sync if many queues have some; otherwise cq_flush() does it."""
        cdef int rc
        if rc_load_i64(&self._shared.new_names) < MANY_NAMES:
            return RC_OK
        rc_store_i64(&self._shared.new_names, 0)
        self._set_names(0)      # a name that is added from now on is made durable by the next flush
        path[0] = self._shared.above[0]
        rc = rc_sync_all(self._shared.above[0])
        if rc == ENOENT or rc == ENOSYS:
            self._set_names(FOLDERS_OF_QUEUE)
            rc = RC_OK
        return rc

    def delete_expired(self, int64_t min_phy_offset, pause=None):
        """Delete files without existing records, and move the start of their queues; return {folder: number of files}.

        pause  called after each queue that lost files; a true result stops the deletion
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
        """Count the units of records at or after a physical offset, as loaded; return (count, end of the last record).

        In each queue, the count ends at the first unit that is not valid or not in log order: damage does not count.
        """
        cdef ConsumeQueue* q
        cdef Unit units[READ_UNITS]
        cdef int64_t number, at, count = 0, end = phy_offset
        cdef int i, k, got
        for i in range(self._count):
            q = self._all[i]
            if q.file_count == 0:
                continue
            check_queue(q, units_before(q, phy_offset, q.start // q.unit_bytes, &number))
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

    def free_rest(self):
        """Free the disk space after the last unit of each open queue. No more units are put, and all are durable."""
        with nogil:
            files_free_rest(self._shared)

    def close(self):
        """Unmap all files; views keep their memory until they are released. Syncs nothing. May be called twice."""
        cdef int i, n
        files_close_all(self._shared)
        for i in range(self._count if self._extended else 0):
            for n in range(self._all[i].ext.files.count if self._all[i].ext != NULL else 0):
                file_shutdown(self._all[i].ext.files.files[n])

    # deleting

    def remaining(self, dict ends):
        """Find topics with a queue whose files begin with a record before the topic's offset, as loaded.

        ends  {topic: physical offset}
        Returns {topic: whether such a queue also has units of records at or after the offset}.
        """
        cdef ConsumeQueue* q
        cdef dict found = {}
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            topic, _ = key_of(q)
            if topic in ends and q.file_count > 0 and 0 <= q.opening.claim_phy < ends[topic]:
                found[topic] = found.get(topic, False) or goes_on_from(q, ends[topic])
        return found

    def without_units(self, topics):
        """Return the set of the given topics that have a queue whose files hold no unit, as loaded."""
        cdef ConsumeQueue* q
        cdef set found = set()
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            topic, _ = key_of(q)
            if topic in topics and q.file_count > 0 and q.units == q.start // q.unit_bytes:
                found.add(topic)
        return found

    def delete(self, dict ends):
        """Delete queues and their files. Readers then find these queues empty. Do not dispatch records meanwhile.

        ends  {topic or (topic, queue id): physical offset}; a queue whose first record is at or after it is kept
        Returns the set of (topic, queue id) of the deleted queues. Raises StoreIOError; the next call continues.
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
            if end is None or (q.dead != 0 and q.file_count == 0):
                continue
            first = q.opening.claim_phy if q.opening != NULL else q.first_phy
            if first < 0:
                check_queue(q, cq_read(q, q.min_unit, 1, &u, &got))
                first = u.phy_offset if got == 1 and not is_blank(&u) else -1
            if first >= <int64_t>end:
                continue
            rc_store_u8(&q.dead, 1)
            found.add(key)
        for topic in ends:
            if isinstance(topic, str):
                self.add_batch_topic(topic, is_one=False)
        for i in range(self._count):
            if self._all[i].dead != 0 and key_of(self._all[i]) in found:
                self._delete(self._all[i])
        return found

    cdef int _delete(self, ConsumeQueue* q) except -1:
        """Delete the files of a queue that find() no longer returns, and the folders that are then empty."""
        cdef int rc = EBUSY, tries = 0
        with nogil:
            while rc == EBUSY and tries < LONGEST_READ_MS:      # a reader holds the file while it reads a unit
                rc = drop_files(q)
                if rc == EBUSY:
                    usleep(1000)
                    tries += 1
        check_queue(q, rc)
        q.extends = False
        if q.opening != NULL:
            q.opening.repaired = 0
        for folder in (name_of(q), *([os.fsdecode(q.ext.folder)] if q.ext != NULL else ())):
            above = os.path.dirname(folder)
            try:
                os.rmdir(folder)
                os.rmdir(above)         # other queues of the topic may be there
                above = os.path.dirname(above)
            except OSError:
                pass
            if os.path.isdir(above):
                sync_folder(above)      # otherwise the folders may exist again after a power cut: queues without files
        return 0

    # for tests and tools

    def units(self, str topic, int32_t queue_id=0, int64_t first=0, int count=INT32_MAX):
        """Return units as stored: (number, phy_offset, size, tags_code, queue_offset, messages, store_timestamp)."""
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
        """Return the tags code of a unit, from the extension if it is there; None if there is no such unit or code."""
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
        """Return (first queue offset, queue offset after the last message), or None if there is no such queue."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef int64_t low
        if q == NULL:
            return None
        check_queue(q, cq_min_offset(q, &low))
        return low, rc_load_i64(&q.max_offset)

    def messages(self, str topic, int32_t queue_id=0):
        """Count the messages of a queue. Units in place of lost records do not count. Reads all units of the queue."""
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
    """Return whether a queue has a unit of a record at or after phy_offset.

    Units that a power cut left invalid do not count.
    """
    cdef Unit units[READ_UNITS]
    cdef int64_t number = 0
    cdef int got = 1, i
    check_queue(q, units_before(q, phy_offset, q.start // q.unit_bytes, &number))
    while got > 0 and number < q.units:
        check_queue(q, cq_read(q, number, READ_UNITS, units, &got))
        for i in range(got):
            if is_valid(&units[i]) and units[i].phy_offset >= phy_offset:
                return True
        number += got
    return False
