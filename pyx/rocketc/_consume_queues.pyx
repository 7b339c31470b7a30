# cython: language_level=3
"""All consume queues of a store: found on the disk, made, brought up to the log, flushed.

They are derived from the log. When a store is opened, units are written again from some point of the log on; a unit
that is there already is compared, and what the files have behind the last one is cleared, so that they say what the log
says whatever they said before. Source: RocketMQ ConsumeQueueStore.
"""
import os
import threading
from array import array

from libc.errno cimport EBUSY, ENAMETOOLONG, ENOENT, ENOMEM, ENOSYS
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from posix.unistd cimport usleep

from rocketc._append_file cimport file_shutdown
from rocketc._atomic cimport rc_load_i64, rc_store_i64
from rocketc._consume_queue cimport (
    correct_min,
    cq_begin,
    cq_delete_expired,
    cq_finish,
    cq_flush,
    cq_free,
    cq_measure,
    is_fit,
)
from rocketc._consume_queue_ext cimport ext_clear, ext_load
from rocketc._consume_queue_read cimport ConsumeQueue, cq_min_offset, cq_read, cq_tags_code, last_of, units_before
from rocketc._consume_queue_write cimport drop_files
from rocketc._layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES, RC_MSG_MIN_BYTES
from rocketc._mapped_file_queue cimport queue_known, queue_start, queue_unmap
from rocketc._queue_folders cimport QueueFolder, QueueFolders, files_in, folders_in, in_threads, rc_found, unlink_files
from rocketc._queue_offsets cimport QueueOffsets, QueueSlot, Stripe
from rocketc._queue_table cimport QueueTable, key_of
from rocketc._queue_units cimport Unit, is_blank, is_light, is_valid
from rocketc._service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc._status cimport RC_END, RC_MORE, RC_OK, check_file, io_error
from rocketc._vm cimport rc_sync_all

from rocketc.running import naming

cdef enum:
    MANY_NAMES = 64             # queues with new files: one order to the disk is cheaper than one for each
    PATH_BYTES = 4096
    LONGEST_READ_MS = 1000


cdef class ConsumeQueues(QueueTable):
    """All consume queues of a store.

    root             the store's folder
    file_size        bytes of a simple queue's file; rounded up to whole units
    batch_file_size  bytes of a batch queue's
    batch_topics     topics whose queues are batch queues (queue.type BatchCQ)
    ext_file_size    bytes of a file of the extensions (enableConsumeQueueExt); 0: none are written
    read_only        somebody else writes them
    load() finds what is there; then nothing is believed before begin() says from where the log is dispatched again.
    """

    def __cinit__(self, *_, **__):
        self.amiss = []
        self._refreshing = threading.Lock()

    # opening

    def load(self, *, bint crashed=False):
        """Find the queues and how many units each has. What is wrong with the files is listed in `amiss`.

        crashed  what a killed process has left there is not on the disk yet, by name either: flush() sees to it

        A file of another size than most, or one that does not follow the one before, is deleted, and those behind it:
        their units are in the log. So is a link to a folder, where the queue's own should be, but nothing behind it.
        """
        cdef QueueFolders found = QueueFolders()
        for batch, above in ((False, self._folder), (True, self._batch_folder)):
            for topic in self._folders_in(above):
                for queue_id in self._folders_in(above + b"/" + topic):
                    if queue_id.isdigit() and int(queue_id) <= INT32_MAX:
                        found.add(topic, int(queue_id), batch, above + b"/" + topic + b"/" + queue_id)
        if os.path.isdir(os.fsdecode(self._ext_folder)):
            self._extended = True
            for topic in self._folders_in(self._ext_folder):
                self._folders_in(self._ext_folder + b"/" + topic)
        found.find()
        self._file_size = found.usual_size(False, RC_CQ_UNIT_BYTES, self._file_size)
        self._batch_file_size = found.usual_size(True, RC_BCQ_UNIT_BYTES, self._batch_file_size)
        self._load_queues(found)
        if self._extends:
            known = {(topic, b"%d" % queue_id) for topic, queue_id, batch in found.queues if not batch}
            self._drop_lost_extensions(known)
        if crashed:
            self._set_names(4)

    def _folders_in(self, bytes above):
        """folders_in() of a folder that only stores make folders in: who writes follows no links out of the store."""
        cdef list links = []
        names = folders_in(above, None if self._read_only else links)
        for path in map(os.fsdecode, links):
            with naming(path):
                self.amiss.append(f"{path}: a link to {os.readlink(path)}, not a folder of the store; it is taken away")
                os.unlink(path)
        return names

    def _drop_lost_extensions(self, set queues):
        """Delete the extensions of queues that are gone: their units are of no use to those that come instead."""
        for topic in folders_in(self._ext_folder):
            for queue_id in folders_in(self._ext_folder + b"/" + topic):
                folder = os.fsdecode(self._ext_folder + b"/" + topic + b"/" + queue_id)
                files = files_in(folder)
                if files and (topic, queue_id) not in queues:
                    self.amiss.append(f"{folder}: the queue that it extends is gone; so are its {len(files)} files now")
                    unlink_files(files)

    cdef int _load_queues(self, QueueFolders found) except -1:
        cdef ConsumeQueue* q
        cdef int i
        for i in range(found.count):
            topic, queue_id, batch = found.queues[i]
            self._load_queue(topic, queue_id, batch, &found._all[i])
        if found.count == 1:
            measure(found._all, 1, 0, 1)        # with the GIL: no reader meets a queue that is not measured yet
        else:
            in_threads(_measure, found.count, found)
        for i in range(found.count):
            q = <ConsumeQueue*>found._all[i].queue
            if q != NULL and self._read_only and found._all[i].error == ENOENT:
                rc_store_i64(&q.dead, 1)        # deleted since it was listed
                continue
            if q != NULL:
                _check(q, found._all[i].error)
            if self._extended and q != NULL and q.unit_bytes == RC_CQ_UNIT_BYTES and not is_light(q.topic, q.topic_len):
                topic = os.fsdecode(found.queues[i][0])
                self._load_ext(q, os.path.join(os.fsdecode(self._ext_folder), topic, str(q.queue_id)))
        return 0

    cdef int _load_queue(self, bytes topic, int32_t queue_id, bint batch, QueueFolder* folder) except -1:
        cdef ConsumeQueue* q
        cdef const rc_found* file
        cdef char path[PATH_BYTES]
        cdef int64_t end = -1
        cdef int i, n, rc = RC_OK
        cdef bint good = True
        if self.find(<const uint8_t*><const char*>topic, <int32_t>len(topic), queue_id) != NULL:
            name = os.fsdecode(folder.path)
            self.amiss.append(f"{name}: there is a queue of the other kind, too; this one is not used")
            return 0
        q = self._new(<const uint8_t*><const char*>topic, <int32_t>len(topic), queue_id, batch)
        if q == NULL:
            raise MemoryError
        for i in range(folder.count):
            file = &folder.files[i]
            n = snprintf(path, PATH_BYTES, b"%s/%s", folder.path, file.name)
            if n >= PATH_BYTES:
                rc = ENAMETOOLONG
            elif file.odd:
                self._set_aside(os.fsdecode(path))
            else:
                if (
                    file.size != q.files.file_size or file.start % file.size or (end >= 0 and file.start != end)
                    or file.start > INT64_MAX - file.size
                ):
                    if good and not self._read_only:
                        wanted = f"where a file of {q.files.file_size} should be at {end}"
                        self.amiss.append(f"{os.fsdecode(path)}: {file.size} bytes, {wanted}")
                    good = False
                if good:
                    rc = queue_known(&q.files, path, file.start, file.size)
                    end = file.start + file.size
                    if self._read_only:
                        q.inode = inode_of(path)
                elif not self._read_only:
                    q.files.names = 1       # until it is durable that this one is gone
                    with naming(os.fsdecode(path)):
                        os.unlink(path)
            if rc != RC_OK:
                break
        if rc == RC_OK and not self._add(q):
            rc = ENOMEM
        if rc != RC_OK:
            cq_free(q)
            if rc == ENOMEM:
                raise MemoryError
            raise io_error(rc, os.fsdecode(folder.path))
        folder.queue = q
        return 0

    def _set_aside(self, str path):
        """Something that is no file has the name of one."""
        if not self._read_only:
            self.amiss.append(f"{path}: no file; set aside")
            with naming(path):
                os.rename(path, f"{path}.odd")

    cdef int _load_ext(self, ConsumeQueue* q, str folder) except -1:
        """Find the extension of a queue that was just loaded; it gets one if new ones do."""
        cdef int amiss = 0
        sizes = [size for _, _, size in files_in(folder) if size > 0]
        if not sizes and not self._extends:
            return 0
        if self._ext_file_size == 0:
            self._ext_file_size = sizes[0]
        q.ext = self._new_ext(q.topic, q.topic_len, q.queue_id)
        if q.ext == NULL:
            raise MemoryError
        check_file(ext_load(q.ext, &amiss), folder)
        q.extends = self._extends
        if amiss and self._extends:
            self.amiss.append(f"{folder}: {amiss} files are no extension with these settings; it is made anew")
            check_file(ext_clear(q.ext), folder)
            unlink_files(files_in(folder))
        return 0

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
            _check(q, units_before(q, phy_offset, q.files.files[0].start // q.unit_bytes, &units))
            _check(q, last_of(q, units, &u))
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
            _check(self._all[i], cq_begin(self._all[i], phy_offset))

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
                _check(q, rc)
            if q.repaired:
                mended.append(f"{_name(q)}: {q.repaired} units were not what the log says")
                q.repaired = 0
            _check(q, correct_min(q, min_phy_offset))
        return mended

    def claim(self, str topic, int32_t queue_id, int64_t phy_offset, int64_t queue_offset):
        """Say with which record a queue begins; what it has is dropped. The log is to be dispatched again."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        _check(q, drop_files(q))
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
        cdef ConsumeQueue* q
        cdef int64_t count = 0, starts = 0, ends = 0
        cdef int i = 0
        while True:
            q = self._nth(i)
            if q == NULL:
                return count, starts, ends
            if rc_load_i64(&q.dead) == 0:
                count += 1
                ends += rc_load_i64(&q.max_offset)
                starts += max(queue_start(&q.files, 1), <int64_t>0) // q.unit_bytes
            i += 1

    def broken_off(self):
        """Folders of the queues that end where a file does, or have none: more may have been behind that is gone."""
        cdef ConsumeQueue* q
        cdef int64_t start
        cdef int i = 0
        cdef list found = []
        while True:
            q = self._nth(i)
            if q == NULL:
                return found
            i += 1
            start = queue_start(&q.files, 1)
            if q.dead == 0 and (start < 0 or (q.units * q.unit_bytes - start) % q.files.file_size == 0):
                found.append(_name(q))

    # running

    cdef int flush(self, int64_t least_pages, const char** path) noexcept nogil:
        """Make durable what is written in each queue, if that is at least so many pages; one thread at a time.

        path  set to the file that failed
        """
        cdef ConsumeQueue* q
        cdef int i = 0, rc = self._sync_many_names(path)
        while rc == RC_OK:
            q = self._nth(i)
            if q == NULL:
                break
            if q.dead == 0:
                rc = cq_flush(q, least_pages, path)
            i += 1
        return rc

    cdef int _sync_many_names(self, const char** path) noexcept nogil:
        """Make the names of new files durable all at once, where the files are many; of few cq_flush() sees to it."""
        cdef ConsumeQueue* q
        cdef int i, rc, count = 0
        for i in range(INT32_MAX):
            q = self._nth(i)
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

    cdef void _set_names(self, int64_t folders) noexcept nogil:
        """Say of each queue how many folders' names are not durable."""
        cdef ConsumeQueue* q = NULL
        cdef int i
        for i in range(INT32_MAX):
            q = self._nth(i)
            if q == NULL:
                break
            rc_store_i64(&q.files.names, folders)
            if q.ext != NULL:
                rc_store_i64(&q.ext.files.names, folders)

    def delete_expired(self, int64_t min_phy_offset, pause=None):
        """Delete files whose records are all gone, and let queues begin behind; returns {folder: how many}.

        pause  called behind each queue that lost files; what it returns, if true, ends it
        """
        cdef ConsumeQueue* q
        cdef dict found = {}
        cdef int i = 0, deleted
        while True:
            q = self._nth(i)
            if q == NULL:
                return found
            i += 1
            deleted = 0
            if rc_load_i64(&q.dead) == 0:
                _check(q, cq_delete_expired(q, min_phy_offset, &deleted))
            if deleted:
                found[_name(q)] = deleted
                if pause is not None and pause():
                    return found

    def unmap(self):
        """Give back the maps of files that nobody reads, but the last ones."""
        cdef ConsumeQueue* q = self._nth(0)
        cdef int i = 0
        while q != NULL:
            queue_unmap(&q.files, 1)
            if q.ext != NULL:
                queue_unmap(&q.ext.files, 1)
            i += 1
            q = self._nth(i)

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
        cdef int64_t units
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            topic, _ = key_of(q)
            if topic in ends and q.files.count > 0 and 0 <= q.claim_phy < ends[topic]:
                _check(q, units_before(q, ends[topic], q.files.files[0].start // q.unit_bytes, &units))
                found[topic] = found.get(topic, False) or units < q.units
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
                _check(q, cq_read(q, q.min_unit, 1, &u, &got))
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
        _check(q, rc)
        q.extends = False
        q.repaired = 0
        for folder in (_name(q), *([os.fsdecode(q.ext.folder)] if q.ext != NULL else ())):
            try:
                os.rmdir(folder)
                os.rmdir(os.path.dirname(folder))       # other queues of the topic may be there
            except OSError:
                pass
        return 0

    # what another process writes

    cdef ConsumeQueue* look(self, str topic, int32_t queue_id) except? NULL:
        """The queue of a topic, or NULL; what another process has written meanwhile is taken in."""
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        if not self._read_only:
            return self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        with self._refreshing:
            return self._look_around(name, queue_id)

    cdef ConsumeQueue* _look_around(self, bytes name, int32_t queue_id) except? NULL:
        cdef ConsumeQueue* q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        if q != NULL and self._is_replaced(q):
            rc_store_i64(&q.dead, 1)
            q = NULL
        if q == NULL:
            self._load_one(name, queue_id)
            q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        else:
            self._refresh(q)
        if q != NULL:
            _check(q, correct_min(q, self.min_phy_offset))
        return q

    cdef int _load_one(self, bytes topic, int32_t queue_id) except -1:
        """Look whether another process has made this queue."""
        cdef QueueFolders found = QueueFolders()
        self._extended = os.path.isdir(os.fsdecode(self._ext_folder))
        for batch, above in ((False, self._folder), (True, self._batch_folder)):
            folder = above + b"/" + topic + b"/%d" % queue_id
            if is_fit(<const uint8_t*><const char*>topic, <int32_t>len(topic)) and os.path.isdir(folder):
                found.add(topic, queue_id, batch, folder)
                found.find()
                self._load_queues(found)
                break
        return 0

    cdef bint _is_replaced(self, ConsumeQueue* q) except -1:
        """Whether the last file that is known is gone: its topic was deleted, or it is far behind the queue's end.

        Or its last unit is: the process that wrote it was killed, and the next one has cut the log before that.
        """
        cdef Unit u
        cdef int got = 0
        if q.files.count > 0 and inode_of(q.files.files[q.files.count - 1].path) != q.inode:
            return True
        if q.units > q.min_unit and cq_read(q, q.units - 1, 1, &u, &got) == RC_OK and got == 1:
            return not is_valid(&u)
        return False

    cdef int _refresh(self, ConsumeQueue* q) except -1:
        """Take in the units that another process has written since."""
        cdef Unit u
        cdef int amiss = 0
        cdef int got = 1, rc
        cdef int64_t units = q.units, end
        if q.ext != NULL:
            _check(q, ext_load(q.ext, &amiss))
        while True:
            end = 0
            if q.files.count > 0:
                end = q.files.files[q.files.count - 1].start + q.files.file_size
            while units * q.unit_bytes < end:
                pthread_mutex_lock(&self._mutex)
                rc_store_i64(&q.units, units + 1)       # so that it can be read
                rc = cq_read(q, units, 1, &u, &got)
                if rc == RC_OK and got == 1 and is_valid(&u):
                    q.max_offset = u.queue_offset + u.count
                    q.max_phy_offset = u.phy_offset + u.size
                    units += 1
                rc_store_i64(&q.units, units)
                pthread_mutex_unlock(&self._mutex)
                _check(q, rc)
                if got == 0 or q.units != units or not is_valid(&u):
                    return 0
            more = False
            for start, path, size in files_in(_name(q)):
                if start > INT64_MAX - q.files.file_size:
                    break                               # no queue comes so far
                if start >= end and start % q.files.file_size == 0:
                    if size != q.files.file_size or queue_known(&q.files, os.fsencode(path), start, size) != RC_OK:
                        return 0
                    q.inode = inode_of(os.fsencode(path))
                    if q.files.count == 1:
                        rc = cq_measure(q)
                        if rc == ENOENT:                # deleted since it was listed
                            rc_store_i64(&q.dead, 1)
                            return 0
                        _check(q, rc)
                        units = q.units
                    elif start > end:       # those between came and went, and so did those before
                        units = start // q.unit_bytes
                        rc_store_i64(&q.min_unit, units)
                    more = True
                    break
            if not more:
                return 0

    # for tests and tools

    def units(self, str topic, int32_t queue_id=0, int64_t first=0, int count=INT32_MAX):
        """(number, phy_offset, size, tags_code, queue_offset, messages, store_timestamp) of units, as stored."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef Unit u
        cdef int got = 0
        cdef list found = []
        while q != NULL and len(found) < count:
            _check(q, cq_read(q, first, 1, &u, &got))
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
        _check(q, cq_read(q, number, 1, &u, &got))
        if got == 0:
            return None
        rc = cq_tags_code(q, &u, &code)
        if rc == RC_END:
            return None
        _check(q, rc)
        return code

    def range(self, str topic, int32_t queue_id=0):
        """(minimum, maximum) queue offset: those of the first message, and behind the last one; None: no such queue."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        cdef int64_t low
        if q == NULL:
            return None
        _check(q, cq_min_offset(q, &low))
        return low, rc_load_i64(&q.max_offset)


cdef void measure(QueueFolder* folders, int count, int first, int step) noexcept nogil:
    """cq_measure() of each step-th queue."""
    cdef int i = first
    while i < count:
        if folders[i].queue != NULL:
            folders[i].error = cq_measure(<ConsumeQueue*>folders[i].queue)
        i += step


def _measure(int first, int step, QueueFolders found):
    with nogil:
        measure(found._all, found.count, first, step)


cdef uint64_t inode_of(const char* path) except? 0:
    """Which file has this name; 0: none. A file that is mapped keeps its number to itself, whatever becomes of its
    name."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


cdef str _name(ConsumeQueue* q):
    """The folder of a queue."""
    return os.fsdecode(q.folder)


cdef inline int _check(ConsumeQueue* q, int rc) except -1:
    """check_file() of a queue's folder, whose name is made only if it is needed."""
    return check_file(rc, _name(q)) if rc != RC_OK else 0
