# cython: language_level=3
"""All consume queues of a store: found on the disk, made, brought up to the log, flushed.

They are derived from the log. When a store is opened, units are written again from some point of the log on; a unit
that is there already is compared, and what the files have behind the last one is cleared, so that they say what the log
says whatever they said before. Source: RocketMQ ConsumeQueueStore.
"""
import os
import threading

from libc.errno cimport ENAMETOOLONG, ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc

from rocketc._append_file cimport FILE_READ, FILE_SPARSE, file_shutdown
from rocketc._atomic cimport rc_load_i64, rc_store_i64
from rocketc._consume_queue cimport (
    ConsumeQueue,
    Unit,
    correct_min,
    cq_begin,
    cq_delete_expired,
    cq_finish,
    cq_flush,
    cq_free,
    cq_measure,
    cq_min_offset,
    cq_new,
    cq_read,
    cq_tags_code,
    drop_files,
    is_fit,
    is_named,
    is_valid,
    last_of,
    make_folders,
    units_before,
)
from rocketc._consume_queue_ext cimport ExtQueue, ext_clear, ext_load, ext_new
from rocketc._filter cimport KEEP, TextTable
from rocketc._guard cimport install
from rocketc._layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES
from rocketc._mapped_file_queue cimport queue_known, queue_start, queue_unmap
from rocketc._queue_folders cimport QueueFolder, QueueFolders, files_in, folders_in, in_threads, rc_found, unlink_files
from rocketc._queue_offsets cimport QueueOffsets, QueueSlot, Stripe, cq_hash
from rocketc._queue_units cimport is_light
from rocketc._service cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock
from rocketc._status cimport RC_END, RC_MORE, RC_OK, RC_UNFIT_TOPIC, check, check_file, io_error

from rocketc.running import naming

cdef enum:
    FIRST_BUCKETS = 64
    PATH_BYTES = 4096


cdef class ConsumeQueues:
    """All consume queues of a store.

    root             the store's folder
    file_size        bytes of a simple queue's file; rounded up to whole units
    batch_file_size  bytes of a batch queue's
    batch_topics     topics whose queues are batch queues (queue.type BatchCQ)
    ext_file_size    bytes of a file of the extensions (enableConsumeQueueExt); 0: none are written
    read_only        somebody else writes them
    load() finds what is there; then nothing is believed before begin() says from where the log is dispatched again.
    """

    def __cinit__(
        self, str root not None, int64_t file_size=6_000_000, int64_t batch_file_size=13_800_000, *, batch_topics=(),
        int64_t ext_file_size=0, bint read_only=False,
    ):
        self._folder = os.fsencode(os.path.join(root, "consumequeue"))
        self._batch_folder = os.fsencode(os.path.join(root, "batchconsumequeue"))
        self._above[0] = self._folder
        self._above[1] = self._batch_folder
        self._file_size = -(-file_size // RC_CQ_UNIT_BYTES) * RC_CQ_UNIT_BYTES
        self._batch_file_size = batch_file_size // RC_BCQ_UNIT_BYTES * RC_BCQ_UNIT_BYTES
        for name, size in (("consume_queue", self._file_size), ("batch_consume_queue", self._batch_file_size)):
            if not RC_BCQ_UNIT_BYTES <= size <= INT32_MAX:
                raise ValueError(f"mapped_file_size_{name}: at least one unit, and at most {INT32_MAX} bytes")
        self._ext_folder = os.fsencode(os.path.join(root, "consumequeue_ext"))
        self._ext_above = self._ext_folder
        self._ext_file_size = ext_file_size
        self._extends = ext_file_size > 0 and not read_only
        self._extended = self._extends
        self._read_only = read_only
        self._refreshing = threading.Lock()
        self._batch_topics = TextTable()
        for topic in batch_topics:
            self.add_batch_topic(topic)
        self.amiss = []
        install()
        check(pthread_mutex_init(&self._mutex, NULL))
        self._ready = True
        self._mask = FIRST_BUCKETS - 1
        self._buckets = <ConsumeQueue**>calloc(FIRST_BUCKETS, sizeof(ConsumeQueue*))
        if self._buckets == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef ConsumeQueue* q = self._unmade
        cdef ConsumeQueue* following
        cdef int i
        while q != NULL:
            following = q.next
            cq_free(q)
            q = following
        for i in range(self._count):
            cq_free(self._all[i])
        free(self._all)
        free(self._buckets)
        if self._ready:
            pthread_mutex_destroy(&self._mutex)

    # which there are

    cdef ConsumeQueue* _known(self, const uint8_t* topic, int32_t n, int32_t queue_id, uint32_t h) noexcept nogil:
        cdef ConsumeQueue* q = self._buckets[h & self._mask]
        while q != NULL:
            if is_named(q, topic, n, queue_id, h) and q.dead == 0:
                return q
            q = q.next
        return NULL

    cdef ConsumeQueue* find(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
        """The queue, or NULL. It stays in memory as long as this object."""
        cdef ConsumeQueue* q
        pthread_mutex_lock(&self._mutex)
        q = self._known(topic, topic_len, queue_id, cq_hash(topic, topic_len, queue_id))
        pthread_mutex_unlock(&self._mutex)
        return q

    cdef ConsumeQueue* _nth(self, int i) noexcept nogil:
        """The queue that came as number i, or NULL if there are not so many; more may come meanwhile."""
        cdef ConsumeQueue* q = NULL
        pthread_mutex_lock(&self._mutex)
        if i < self._count:
            q = self._all[i]
        pthread_mutex_unlock(&self._mutex)
        return q

    cdef ConsumeQueue* look(self, str topic, int32_t queue_id) except? NULL:
        """The queue of a topic, or NULL; what another process has written meanwhile is taken in."""
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        if not self._read_only:
            return self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        with self._refreshing:
            return self._look_around(name, queue_id)

    cdef ConsumeQueue* _look_around(self, bytes name, int32_t queue_id) except? NULL:
        cdef ConsumeQueue* q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        if q == NULL:
            self._load_one(name, queue_id)
            q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        else:
            self._refresh(q)
        if q != NULL:
            _check(q, correct_min(q, self.min_phy_offset))
        return q

    cdef int make(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch, ConsumeQueue** queue,
    ) noexcept nogil:
        """Find a queue, or make an empty one: RC_OK, RC_UNFIT_TOPIC, or an errno. The dispatcher only.

        batch  the record is an inner batch; a topic's first record decides unless its type is known
        queue  is set, too, if it is the folder that can't be made: the path is in it
        """
        cdef ConsumeQueue* q = self.find(topic, topic_len, queue_id)
        cdef int rc
        if q == NULL:
            if not is_fit(topic, topic_len) or queue_id < 0:
                return RC_UNFIT_TOPIC
            pthread_mutex_lock(&self._mutex)
            batch = batch or self._batch_topics.get(topic, topic_len) == KEEP
            pthread_mutex_unlock(&self._mutex)
            q = self._unmade
            if q == NULL or not is_named(q, topic, topic_len, queue_id, cq_hash(topic, topic_len, queue_id)):
                q = self._new(topic, topic_len, queue_id, batch)
                if q == NULL:
                    return ENOMEM
                q.next = self._unmade
                self._unmade = q
            queue[0] = q
            rc = make_folders(q)
            if rc == RC_OK and self._extends and not batch and not is_light(topic, topic_len):
                q.ext = self._new_ext(topic, topic_len, queue_id)
                q.extends = True
                rc = RC_OK if q.ext != NULL else ENOMEM
            if rc != RC_OK:
                return rc
            self._unmade = q.next
            if not self._add(q):
                cq_free(q)
                return ENOMEM
        queue[0] = q
        return RC_OK

    cdef ConsumeQueue* _new(
        self, const uint8_t* topic, int32_t topic_len, int32_t queue_id, bint batch,
    ) noexcept nogil:
        return cq_new(
            self._above[1 if batch else 0], topic, topic_len, queue_id,
            RC_BCQ_UNIT_BYTES if batch else RC_CQ_UNIT_BYTES, self._batch_file_size if batch else self._file_size,
            FILE_READ if self._read_only else FILE_SPARSE,
        )

    cdef ExtQueue* _new_ext(self, const uint8_t* topic, int32_t topic_len, int32_t queue_id) noexcept nogil:
        cdef int kind = FILE_READ if self._read_only else FILE_SPARSE
        return ext_new(self._ext_above, topic, topic_len, queue_id, self._ext_file_size, kind)

    cdef bint _add(self, ConsumeQueue* q) noexcept nogil:
        """Take a queue into the table; False without memory."""
        cdef bint fits
        pthread_mutex_lock(&self._mutex)
        fits = self._make_room()
        if fits:
            self._all[self._count] = q
            q.next = self._buckets[q.hash & self._mask]
            self._buckets[q.hash & self._mask] = q
            self._count += 1
        pthread_mutex_unlock(&self._mutex)
        return fits

    cdef bint _make_room(self) noexcept nogil:
        """Let one more queue fit into the list and the table; the mutex is held."""
        cdef ConsumeQueue** all
        cdef ConsumeQueue** buckets
        cdef int room = 2 * self._room + FIRST_BUCKETS, i
        cdef uint32_t mask = self._mask
        if self._count < self._room:
            return True
        all = <ConsumeQueue**>realloc(self._all, <size_t>room * sizeof(ConsumeQueue*))
        if all == NULL:
            return False
        self._all = all
        while mask < <uint32_t>room:
            mask = 2 * mask + 1
        buckets = <ConsumeQueue**>calloc(<size_t>mask + 1, sizeof(ConsumeQueue*))
        if buckets == NULL:
            return False
        for i in range(self._count):
            self._all[i].next = buckets[self._all[i].hash & mask]
            buckets[self._all[i].hash & mask] = self._all[i]
        free(self._buckets)
        self._buckets = buckets
        self._mask = mask
        self._room = room
        return True

    def add_batch_topic(self, str topic):
        """From now on a new queue of this topic is a batch queue."""
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        pthread_mutex_lock(&self._mutex)
        try:
            self._batch_topics.put(<const uint8_t*><const char*>name, <int>len(name), KEEP)
        finally:
            pthread_mutex_unlock(&self._mutex)

    def __len__(self):
        cdef int count
        pthread_mutex_lock(&self._mutex)
        count = self._count
        pthread_mutex_unlock(&self._mutex)
        return count

    def items(self):
        """(topic, queue id) of each queue."""
        cdef ConsumeQueue* q
        cdef int i = 0
        cdef list found = []
        while True:
            q = self._nth(i)
            if q == NULL:
                return found
            if rc_load_i64(&q.dead) == 0:
                found.append((q.topic[:q.topic_len].decode("utf-8", "surrogateescape"), q.queue_id))
            i += 1

    # opening

    def load(self):
        """Find the queues and how many units each has. What is wrong with the files is listed in `amiss`.

        A file of another size than most, or one that does not follow the one before, is deleted, and those behind it:
        their units are in the log.
        """
        cdef QueueFolders found = QueueFolders()
        for batch, above in ((False, self._folder), (True, self._batch_folder)):
            for topic in folders_in(above):
                for queue_id in folders_in(above + b"/" + topic):
                    if queue_id.isdigit() and int(queue_id) <= INT32_MAX:
                        found.add(topic, int(queue_id), batch, above + b"/" + topic + b"/" + queue_id)
        if os.path.isdir(os.fsdecode(self._ext_folder)):
            self._extended = True
        found.find()
        self._file_size = found.usual_size(False, RC_CQ_UNIT_BYTES, self._file_size)
        self._batch_file_size = found.usual_size(True, RC_BCQ_UNIT_BYTES, self._batch_file_size)
        self._load_queues(found)
        if self._extends:
            known = {(topic, b"%d" % queue_id) for topic, queue_id, batch in found.queues if not batch}
            self._drop_lost_extensions(known)

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
                if file.size != q.files.file_size or file.start % file.size or (end >= 0 and file.start != end):
                    if good and not self._read_only:
                        wanted = f"where a file of {q.files.file_size} should be at {end}"
                        self.amiss.append(f"{os.fsdecode(path)}: {file.size} bytes, {wanted}")
                    good = False
                if good:
                    rc = queue_known(&q.files, path, file.start, file.size)
                    end = file.start + file.size
                elif not self._read_only:
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

    def finish(self, int64_t min_phy_offset):
        """The log was dispatched to its end: clear what the files have behind it. Returns what was mended: text."""
        cdef ConsumeQueue* q
        cdef list mended = []
        cdef int i, rc
        for i in range(self._count):
            q = self._all[i]
            rc = cq_finish(q)
            if rc == RC_MORE:
                self.in_doubt = True
            else:
                _check(q, rc)
            if q.repaired:
                mended.append(f"{_name(q)}: {q.repaired} units were not what the log says")
                q.repaired = 0
            _check(q, correct_min(q, min_phy_offset))
        return mended

    def raise_offsets(self, QueueOffsets offsets not None):
        """Let the next message of each queue come behind the last one that is in it."""
        cdef ConsumeQueue* q
        cdef QueueSlot* slot
        cdef Stripe* stripe
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            slot = offsets.lock(q.topic, q.topic_len, q.queue_id, &stripe)
            if slot == NULL:
                raise MemoryError
            # A record that was left out has a number of the topic that was deleted.
            slot.next_offset = q.max_offset if q.left_out > 0 else max(slot.next_offset, q.max_offset)
            pthread_mutex_unlock(&stripe.mutex)

    def ends(self):
        """The queue offset behind the last message of each queue, in the order of items()."""
        cdef int i
        return [self._all[i].max_offset for i in range(self._count) if self._all[i].dead == 0]

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
            start = queue_start(&q.files, 1)
            if start < 0 or (q.units * q.unit_bytes - start) % q.files.file_size == 0:
                found.append(_name(q))
            i += 1

    # running

    cdef int flush(self, int64_t least_pages, const char** path) noexcept nogil:
        """Make durable what is written in each queue, if that is at least so many pages; one thread at a time.

        path  set to the file that failed
        """
        cdef ConsumeQueue* q
        cdef int i = 0, rc = RC_OK
        while rc == RC_OK:
            q = self._nth(i)
            if q == NULL:
                break
            if q.dead == 0:
                rc = cq_flush(q, least_pages, path)
            i += 1
        return rc

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

    def delete(self, str topic, int32_t queue_id):
        """Delete a queue and its files; False if there is none. The dispatcher must not run, or not know the topic."""
        cdef ConsumeQueue* q = self.look(topic, queue_id)
        if q == NULL:
            return False
        rc_store_i64(&q.dead, 1)
        _check(q, drop_files(q))
        try:
            os.rmdir(_name(q))
            os.rmdir(os.path.dirname(_name(q)))
        except OSError:
            pass
        return True

    # what another process writes

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
                if start >= end and start % q.files.file_size == 0:
                    if size != q.files.file_size or queue_known(&q.files, os.fsencode(path), start, size) != RC_OK:
                        return 0
                    if q.files.count == 1:
                        _check(q, cq_measure(q))
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


cdef str _name(ConsumeQueue* q):
    """The folder of a queue."""
    return os.fsdecode(q.folder)


cdef inline int _check(ConsumeQueue* q, int rc) except -1:
    """check_file() of a queue's folder, whose name is made only if it is needed."""
    return check_file(rc, _name(q)) if rc != RC_OK else 0
