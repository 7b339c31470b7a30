# cython: language_level=3
"""Find consume queues on the disk: at an opening, and again while another process writes them.

Only names, sizes and the number of units are trusted here.
"""
import os
import threading

from libc.errno cimport ENOENT
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from rocketc._status cimport check_file
from rocketc.c.atomic cimport rc_store_i64, rc_store_u8
from rocketc.c.layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_OK
from rocketc.c.vm cimport rc_sync_all
from rocketc.derived._consume_queue cimport correct_min, cq_free, cq_measure, is_fit
from rocketc.derived._consume_queue_ext cimport ext_clear, ext_load
from rocketc.derived._consume_queue_units cimport cq_read
from rocketc.derived._queue_files cimport (
    ConsumeQueue, QueueCounters, add_file, counters_of, ext_rest, queue_folder, raise_names,
    set_file_size, sync_names,
)
from rocketc.derived._queue_table cimport QueueTable
from rocketc.files._file_queue cimport FOLDERS_OF_QUEUE
from rocketc.files._queue_folders cimport (
    QueueFolder, QueueFolders, files_in, folders_in, in_threads, rc_found, unlink_files,
)
from rocketc.format._queue_units cimport Unit, is_light, is_valid

from rocketc.files.durable import errors_named, sync_file

cdef enum:
    PATH_BYTES = 4096
    MANY = 64
    AT_ONCE = 8192              # folders that are listed before their queues are loaded


cdef class QueueLoader(QueueTable):
    """The queues of a ConsumeQueues, found on the disk. It takes the same arguments."""

    def __cinit__(self, *_, **__):
        self.errors = []
        self._refreshing = threading.Lock()

    def load(self, *, bint crashed=False):
        """Find the queues and their numbers of units. Problems with the files are listed in `errors`.

        crashed  a killed process wrote the files: neither they nor their names are durable yet; flush() syncs them

        A file is deleted if its size differs from most files, or if it does not follow the file before it. The files
        after it are deleted too: their units are in the log. A symbolic link in place of a queue's folder is deleted,
        but not its target.
        """
        self._shared.is_durable = 0 if crashed else 1
        rc_store_i64(&self._shared.is_loading, 1)
        for batch, above in ((False, self._folder), (True, self._batch_folder)):
            self._load_kind(batch, above)
        rc_store_i64(&self._shared.is_loading, 0)
        if os.path.isdir(os.fsdecode(self._ext_folder)):
            self._extended = True
            for topic in self._folders_in(self._ext_folder):
                self._folders_in(self._ext_folder + b"/" + topic)
        if self._extended:
            self._load_extensions()
        if self._extends:
            self._drop_lost_extensions()
        if crashed:
            self._set_names(FOLDERS_OF_QUEUE)
            self._sync_begun()

    def _load_kind(self, bint batch, bytes above):
        """Load the simple or the batch queues, some thousand at a time: the list of their files takes much memory."""
        cdef QueueFolders found = QueueFolders()
        cdef bint first = True
        for topic in self._folders_in(above):
            for queue_id in self._folders_in(above + b"/" + topic):
                if queue_id.isdigit() and int(queue_id) <= INT32_MAX:
                    found.add(topic, int(queue_id), batch, above + b"/" + topic + b"/" + queue_id)
            if found.count >= AT_ONCE:
                self._load_found(found, batch, first)
                found, first = QueueFolders(), False
        self._load_found(found, batch, first)

    def _load_found(self, QueueFolders found, bint batch, bint first):
        found.find()
        if first and batch:
            self._batch_file_size = found.usual_size(True, RC_BCQ_UNIT_BYTES, self._batch_file_size)
        elif first:
            self._file_size = found.usual_size(False, RC_CQ_UNIT_BYTES, self._file_size)
        self._load_queues(found)

    cdef int _sync_begun(self) except -1:
        """Make durable the last files without units: flush() has nothing to flush there, and their lengths are not."""
        cdef ConsumeQueue* q
        cdef list begun = []
        cdef int64_t start
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            start = q.start + <int64_t>(q.file_count - 1) * q.file_size
            if q.file_count > 0 and q.units * q.unit_bytes <= start:
                begun.append(i)
                if len(begun) <= MANY:
                    sync_file(os.path.join(name_of(q), f"{start:020d}"))
                    check_queue(q, sync_names(q))
        if len(begun) > MANY:           # one sync of all is cheaper
            check_file(rc_sync_all(self._folder), os.fsdecode(self._folder))
            self._set_names(0)
        return 0

    cdef void _set_names(self, int64_t folders) noexcept nogil:
        """Set for each queue how many folders' names are not durable."""
        cdef ConsumeQueue* q = NULL
        cdef int i
        for i in range(INT32_MAX):
            q = self.nth(i)
            if q == NULL:
                break
            rc_store_u8(&q.names, <uint8_t>folders)
            if q.ext != NULL:
                rc_store_i64(&q.ext.files.names, folders)
        rc_store_i64(&self._shared.new_names, i if folders > 0 else 0)

    def _folders_in(self, bytes above):
        """List the folders that a store made in a folder. A writer removes symbolic links and does not follow them."""
        cdef list links = []
        names = folders_in(above, None if self.read_only else links)
        for path in map(os.fsdecode, links):
            with errors_named(path):
                self.errors.append(f"{path}: a link to {os.readlink(path)}, not a folder of the store; it is deleted")
                os.unlink(path)
        return names

    def _load_extensions(self):
        cdef ConsumeQueue* q
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            if q.ext == NULL and q.dead == 0:
                self._load_ext(q)

    def _load_extensions_of(self, QueueFolders found):
        cdef int i
        for i in range(found.count):
            if found.folders[i].queue != NULL:
                self._load_ext(<ConsumeQueue*>found.folders[i].queue)

    def _drop_lost_extensions(self):
        """Delete the extensions of queues that no longer exist: queues that are created later must not use them."""
        for topic in folders_in(self._ext_folder):
            for queue_id in folders_in(self._ext_folder + b"/" + topic):
                folder = os.fsdecode(self._ext_folder + b"/" + topic + b"/" + queue_id)
                files = files_in(folder)
                if files and not self._has_simple(topic, queue_id):
                    self.errors.append(
                        f"{folder}: an extension without a consume queue; its {len(files)} files are deleted"
                    )
                    unlink_files(files)

    def _has_simple(self, bytes topic, bytes queue_id):
        """Whether there is a simple queue whose folder has these names."""
        cdef ConsumeQueue* q
        if not queue_id.isdigit() or int(queue_id) > INT32_MAX or queue_id != b"%d" % int(queue_id):
            return False
        q = self.find(<const uint8_t*><const char*>topic, <int32_t>len(topic), int(queue_id))
        return q != NULL and q.unit_bytes == RC_CQ_UNIT_BYTES

    cdef int _load_queues(self, QueueFolders found) except -1:
        cdef ConsumeQueue* q
        cdef int i
        for i in range(found.count):
            topic, queue_id, batch = found.queues[i]
            self._load_queue(topic, queue_id, batch, &found.folders[i])
        if found.count == 1:
            measure(found.folders, 1, 0, 1)        # with the GIL: no reader may see a queue before it is measured
        else:
            in_threads(_measure, found.count, found)
        for i in range(found.count):
            q = <ConsumeQueue*>found.folders[i].queue
            if q != NULL and self.read_only and found.folders[i].error == ENOENT:
                rc_store_u8(&q.dead, 1)        # deleted since it was listed
                continue
            if q != NULL:
                check_queue(q, found.folders[i].error)
        return 0

    cdef int _load_queue(self, bytes topic, int32_t queue_id, bint batch, QueueFolder* folder) except -1:
        cdef ConsumeQueue* q
        cdef const rc_found* file
        cdef int64_t end = -1
        cdef int i
        cdef bint good = True
        if self.find(<const uint8_t*><const char*>topic, <int32_t>len(topic), queue_id) != NULL:
            name = os.fsdecode(folder.path)
            self.errors.append(f"{name}: ignored: the queue also exists as the other kind, simple or batch")
            return 0
        q = self._new(<const uint8_t*><const char*>topic, <int32_t>len(topic), queue_id, batch)
        if q == NULL:
            raise MemoryError
        if not self._add(q):
            cq_free(q)
            raise MemoryError
        for i in range(folder.count):
            file = &folder.files[i]
            if file.odd == 1 or (file.odd and not self.read_only):      # a writer does not follow links
                self._set_aside(path_of(folder, file))
                continue
            if (
                file.size != q.file_size or file.start % file.size or (end >= 0 and file.start != end)
                or file.start > INT64_MAX - file.size
            ):
                if good and not self.read_only:
                    wanted = f"expected {q.file_size} bytes at {end}; deleted, with the files after it"
                    self.errors.append(f"{path_of(folder, file)}: {file.size} bytes, {wanted}")
                good = False
            if good:
                end = file.start + file.size
                q.file_count += 1
                if q.start < 0:
                    rc_store_i64(&q.start, file.start)
                q.inode = file.inode
            elif not self.read_only:
                raise_names(q, 1)       # until the deletion is durable
                with errors_named(path_of(folder, file)):
                    os.unlink(path_of(folder, file))
        folder.queue = q
        return 0

    def _set_aside(self, str path):
        """Rename an entry that has the name of a file but is not one."""
        if not self.read_only:
            self.errors.append(f"{path}: not a regular file; renamed to {path}.odd")
            with errors_named(path):
                os.rename(path, f"{path}.odd")

    cdef int _load_ext(self, ConsumeQueue* q) except -1:
        """Find the extension of a queue that was just loaded. The queue gets an extension if new queues do."""
        cdef int problems = 0
        cdef list odd = None if self.read_only else []
        if q.unit_bytes != RC_CQ_UNIT_BYTES or is_light(q.topic, q.topic_len):
            return 0
        topic = os.fsdecode(q.topic[:q.topic_len])
        folder = os.path.join(os.fsdecode(self._ext_folder), topic, str(q.queue_id))
        sizes = [size for _, _, size in files_in(folder, odd) if size > 0]
        for path in odd or ():
            self._set_aside(path)
        if not sizes and not self._extends:
            return 0
        if self._ext_file_size == 0:
            self._ext_file_size = sizes[0]
        q.ext = self._new_ext(q.topic, q.topic_len, q.queue_id)
        if q.ext == NULL:
            raise MemoryError
        check_file(ext_load(q.ext, &problems), folder)
        q.extends = 1 if self._extends else 0
        if problems and self._extends:
            self.errors.append(f"{folder}: {problems} files do not match the settings of the extension; it is rebuilt")
            check_file(ext_clear(q.ext), folder)
            unlink_files(files_in(folder))
        ext_rest(q)
        return 0

    # what another process writes

    cdef ConsumeQueue* look(self, str topic, int32_t queue_id) except? NULL:
        """Return the queue of a topic, or NULL. If another process writes, its new units are read first."""
        cdef bytes name = topic.encode("utf-8", "surrogateescape")
        if not self.read_only:
            return self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        with self._refreshing:
            return self._look_around(name, queue_id)

    cdef ConsumeQueue* _look_around(self, bytes name, int32_t queue_id) except? NULL:
        cdef ConsumeQueue* q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        if q != NULL and self._is_replaced(q):
            rc_store_u8(&q.dead, 1)
            q = NULL
        if q == NULL:
            self._load_one(name, queue_id)
            q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        else:
            self._refresh(q)
            if q.dead != 0:                     # it must be loaded again
                self._load_one(name, queue_id)
                q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        if q != NULL:
            check_queue(q, correct_min(q, self.min_phy_offset))
        return q

    def look_at_all(self):
        """Read the new units of all queues, and find new queues, if another process writes."""
        if not self.read_only:
            return
        known = set(self.items())
        for above in (self._folder, self._batch_folder):
            for topic in folders_in(above):
                for queue_id in folders_in(above + b"/" + topic):
                    if queue_id.isdigit() and int(queue_id) <= INT32_MAX:
                        known.add((topic.decode("utf-8", "surrogateescape"), int(queue_id)))
        for name, number in known:
            self.look(name, number)

    cdef int _load_one(self, bytes topic, int32_t queue_id) except -1:
        """Load a queue if another process has created it."""
        cdef QueueFolders found = QueueFolders()
        self._extended = os.path.isdir(os.fsdecode(self._ext_folder))
        for batch, above in ((False, self._folder), (True, self._batch_folder)):
            folder = above + b"/" + topic + b"/%d" % queue_id
            if is_fit(<const uint8_t*><const char*>topic, <int32_t>len(topic)) and os.path.isdir(folder):
                found.add(topic, queue_id, batch, folder)
                found.find()
                if batch:
                    self._batch_file_size = found.usual_size(True, RC_BCQ_UNIT_BYTES, self._batch_file_size)
                else:
                    self._file_size = found.usual_size(False, RC_CQ_UNIT_BYTES, self._file_size)
                self._load_queues(found)
                if self._extended:
                    self._load_extensions_of(found)
                break
        return 0

    cdef bint _is_replaced(self, ConsumeQueue* q) except -1:
        """Whether the last known file is gone: its topic was deleted, or its records were deleted by age.

        Also if its last unit is gone: its writer was killed, and the next writer has cut the log before that unit.
        """
        cdef Unit u
        cdef int got = 0
        if q.file_count > 0 and inode_of(last_file(q)) != q.inode:
            return True
        if q.units > q.min_unit and cq_read(q, q.units - 1, 1, &u, &got) == RC_OK and got == 1:
            return not is_valid(&u)
        return False

    cdef int _refresh(self, ConsumeQueue* q) except -1:
        """Read the units that another process has written since the last call."""
        cdef Unit u
        cdef QueueCounters* counters
        cdef int problems = 0
        cdef int got = 1, rc
        cdef int64_t units = q.units, end
        if q.ext != NULL:
            check_queue(q, ext_load(q.ext, &problems))
            ext_rest(q)
        while True:
            end = q.start + <int64_t>q.file_count * q.file_size if q.file_count > 0 else 0
            while units * q.unit_bytes < end:
                pthread_mutex_lock(&self._mutex)
                rc_store_i64(&q.units, units + 1)       # so that it can be read
                rc = cq_read(q, units, 1, &u, &got)
                if rc == RC_OK and got == 1 and is_valid(&u):
                    q.max_offset = u.queue_offset + u.count
                    q.max_phy_offset = u.phy_offset + u.size
                    counters = counters_of(q)
                    if counters != NULL:
                        counters.came += u.count
                        counters.came_bytes += u.size
                    units += 1
                rc_store_i64(&q.units, units)
                pthread_mutex_unlock(&self._mutex)
                check_queue(q, rc)
                if got == 0 or q.units != units or not is_valid(&u):
                    return 0
            more = False
            for start, path, size in files_in(name_of(q)):
                if q.file_count == 0 and 0 < size <= INT32_MAX and size % q.unit_bytes == 0:
                    set_file_size(q, <int32_t>size)     # the writing process may use another size
                if start > INT64_MAX - q.file_size:
                    break                               # no queue reaches this offset
                if start >= end and start % q.file_size == 0:
                    if size != q.file_size:
                        return 0
                    if q.file_count > 0 and start > end:    # the known files and those in between were deleted
                        rc_store_u8(&q.dead, 1)
                        return 0
                    if add_file(q, start, os.fsencode(path)) != RC_OK:
                        raise MemoryError
                    q.inode = inode_of(os.fsencode(path))
                    if q.file_count == 1:
                        rc = cq_measure(q)
                        if rc == ENOENT:                # deleted since it was listed
                            rc_store_u8(&q.dead, 1)
                            return 0
                        check_queue(q, rc)
                        units = q.units
                    more = True
                    break
            if not more:
                return 0


cdef void measure(QueueFolder* folders, int count, int first, int step) noexcept nogil:
    """Call cq_measure() for each step-th queue."""
    cdef int i = first
    while i < count:
        if folders[i].queue != NULL:
            folders[i].error = cq_measure(<ConsumeQueue*>folders[i].queue)
        i += step


def _measure(int first, int step, QueueFolders found):
    with nogil:
        measure(found.folders, found.count, first, step)


cdef uint64_t inode_of(const char* path) except? 0:
    """Return the inode of a file, or 0 if it does not exist. The inode of a mapped file is not reused."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


cdef bytes last_file(ConsumeQueue* q):
    """Return the path of the last file of a queue that has files."""
    return os.fsencode(os.path.join(name_of(q), f"{q.start + <int64_t>(q.file_count - 1) * q.file_size:020d}"))


cdef str path_of(QueueFolder* folder, const rc_found* file):
    return os.fsdecode(folder.path + b"/" + file.name)


cdef str name_of(ConsumeQueue* q):
    """Return the folder of a queue."""
    cdef char path[PATH_BYTES]
    queue_folder(q, path)
    return os.fsdecode(path)


cdef int check_queue(ConsumeQueue* q, int rc) except -1:
    """Call check_file() with a queue's folder; the name is decoded only for an error."""
    return check_file(rc, name_of(q)) if rc != RC_OK else 0
