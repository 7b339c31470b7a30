# cython: language_level=3
"""Find consume queues on the disk: at an opening, and again while another process writes them.

Only names, sizes and the number of units are trusted here.
"""
import os
import threading

from libc.errno cimport ENAMETOOLONG, ENOENT, ENOMEM
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf

from rocketc._status cimport check_file, error_of
from rocketc.c.atomic cimport rc_store_i64
from rocketc.c.layout cimport RC_BCQ_UNIT_BYTES, RC_CQ_UNIT_BYTES
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_OK
from rocketc.derived._consume_queue cimport correct_min, cq_free, cq_measure, is_fit
from rocketc.derived._consume_queue_ext cimport ext_clear, ext_load
from rocketc.derived._consume_queue_units cimport ConsumeQueue, cq_read
from rocketc.derived._queue_table cimport QueueTable
from rocketc.files._append_file cimport FileState
from rocketc.files._file_queue cimport queue_known, queue_last, queue_sync_names
from rocketc.files._queue_folders cimport (
    QueueFolder, QueueFolders, files_in, folders_in, in_threads, rc_found, unlink_files,
)
from rocketc.format._queue_units cimport Unit, is_light, is_valid

from rocketc.files.durable import errors_named, sync_file

cdef enum:
    PATH_BYTES = 4096


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
            self._sync_begun()

    cdef int _sync_begun(self) except -1:
        """Make durable the last files without units: flush() has nothing to flush there, and their lengths are not."""
        cdef ConsumeQueue* q
        cdef FileState* f
        cdef int i
        for i in range(self._count):
            q = self._all[i]
            f = queue_last(&q.files)
            if f != NULL and q.units * q.unit_bytes <= f.start:
                sync_file(os.fsdecode(f.path))
                check_queue(q, queue_sync_names(&q.files))
        return 0

    cdef void _set_names(self, int64_t folders) noexcept nogil:
        """Set for each queue how many folders' names are not durable."""
        cdef ConsumeQueue* q = NULL
        cdef int i
        for i in range(INT32_MAX):
            q = self.nth(i)
            if q == NULL:
                break
            rc_store_i64(&q.files.names, folders)
            if q.ext != NULL:
                rc_store_i64(&q.ext.files.names, folders)

    def _folders_in(self, bytes above):
        """List the folders that a store made in a folder. A writer removes symbolic links and does not follow them."""
        cdef list links = []
        names = folders_in(above, None if self.read_only else links)
        for path in map(os.fsdecode, links):
            with errors_named(path):
                self.errors.append(f"{path}: a link to {os.readlink(path)}, not a folder of the store; it is deleted")
                os.unlink(path)
        return names

    def _drop_lost_extensions(self, set queues):
        """Delete the extensions of queues that no longer exist: queues that are created later must not use them."""
        for topic in folders_in(self._ext_folder):
            for queue_id in folders_in(self._ext_folder + b"/" + topic):
                folder = os.fsdecode(self._ext_folder + b"/" + topic + b"/" + queue_id)
                files = files_in(folder)
                if files and (topic, queue_id) not in queues:
                    self.errors.append(
                        f"{folder}: an extension without a consume queue; its {len(files)} files are deleted"
                    )
                    unlink_files(files)

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
                rc_store_i64(&q.dead, 1)        # deleted since it was listed
                continue
            if q != NULL:
                check_queue(q, found.folders[i].error)
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
            self.errors.append(f"{name}: ignored: the queue also exists as the other kind, simple or batch")
            return 0
        q = self._new(<const uint8_t*><const char*>topic, <int32_t>len(topic), queue_id, batch)
        if q == NULL:
            raise MemoryError
        for i in range(folder.count):
            file = &folder.files[i]
            n = snprintf(path, PATH_BYTES, b"%s/%s", folder.path, file.name)
            if n >= PATH_BYTES:
                rc = ENAMETOOLONG
            elif file.odd == 1 or (file.odd and not self.read_only):      # a writer does not follow links
                self._set_aside(os.fsdecode(path))
            else:
                if (
                    file.size != q.files.file_size or file.start % file.size or (end >= 0 and file.start != end)
                    or file.start > INT64_MAX - file.size
                ):
                    if good and not self.read_only:
                        wanted = f"expected {q.files.file_size} bytes at {end}; deleted, with the files after it"
                        self.errors.append(f"{os.fsdecode(path)}: {file.size} bytes, {wanted}")
                    good = False
                if good:
                    rc = queue_known(&q.files, path, file.start, file.size)
                    end = file.start + file.size
                    if self.read_only:
                        q.inode = inode_of(path)
                elif not self.read_only:
                    q.files.names = 1       # until the deletion is durable
                    with errors_named(os.fsdecode(path)):
                        os.unlink(path)
            if rc != RC_OK:
                break
        if rc == RC_OK and not self._add(q):
            rc = ENOMEM
        if rc != RC_OK:
            cq_free(q)
            if rc == ENOMEM:
                raise MemoryError
            raise error_of(rc, os.fsdecode(folder.path))
        folder.queue = q
        return 0

    def _set_aside(self, str path):
        """Rename an entry that has the name of a file but is not one."""
        if not self.read_only:
            self.errors.append(f"{path}: not a regular file; renamed to {path}.odd")
            with errors_named(path):
                os.rename(path, f"{path}.odd")

    cdef int _load_ext(self, ConsumeQueue* q, str folder) except -1:
        """Find the extension of a queue that was just loaded. The queue gets an extension if new queues do."""
        cdef int problems = 0
        cdef list odd = None if self.read_only else []
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
        q.extends = self._extends
        if problems and self._extends:
            self.errors.append(f"{folder}: {problems} files do not match the settings of the extension; it is rebuilt")
            check_file(ext_clear(q.ext), folder)
            unlink_files(files_in(folder))
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
            rc_store_i64(&q.dead, 1)
            q = NULL
        if q == NULL:
            self._load_one(name, queue_id)
            q = self.find(<const uint8_t*><const char*>name, <int32_t>len(name), queue_id)
        else:
            self._refresh(q)
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
                break
        return 0

    cdef bint _is_replaced(self, ConsumeQueue* q) except -1:
        """Whether the last known file is gone: its topic was deleted, or its records were deleted by age.

        Also if its last unit is gone: its writer was killed, and the next writer has cut the log before that unit.
        """
        cdef Unit u
        cdef int got = 0
        if q.files.count > 0 and inode_of(q.files.files[q.files.count - 1].path) != q.inode:
            return True
        if q.units > q.min_unit and cq_read(q, q.units - 1, 1, &u, &got) == RC_OK and got == 1:
            return not is_valid(&u)
        return False

    cdef int _refresh(self, ConsumeQueue* q) except -1:
        """Read the units that another process has written since the last call."""
        cdef Unit u
        cdef int problems = 0
        cdef int got = 1, rc
        cdef int64_t units = q.units, end
        if q.ext != NULL:
            check_queue(q, ext_load(q.ext, &problems))
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
                    q.came += u.count
                    q.came_bytes += u.size
                    units += 1
                rc_store_i64(&q.units, units)
                pthread_mutex_unlock(&self._mutex)
                check_queue(q, rc)
                if got == 0 or q.units != units or not is_valid(&u):
                    return 0
            more = False
            for start, path, size in files_in(name_of(q)):
                if q.files.count == 0 and size > 0 and size % q.unit_bytes == 0:
                    q.files.file_size = size            # the writing process may use another size
                if start > INT64_MAX - q.files.file_size:
                    break                               # no queue reaches this offset
                if start >= end and start % q.files.file_size == 0:
                    if size != q.files.file_size or queue_known(&q.files, os.fsencode(path), start, size) != RC_OK:
                        return 0
                    q.inode = inode_of(os.fsencode(path))
                    if q.files.count == 1:
                        rc = cq_measure(q)
                        if rc == ENOENT:                # deleted since it was listed
                            rc_store_i64(&q.dead, 1)
                            return 0
                        check_queue(q, rc)
                        units = q.units
                    elif start > end:       # the files in between were created and deleted, and the known ones deleted
                        units = start // q.unit_bytes
                        rc_store_i64(&q.min_unit, units)
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


cdef str name_of(ConsumeQueue* q):
    """Return the folder of a queue."""
    return os.fsdecode(q.folder)


cdef int check_queue(ConsumeQueue* q, int rc) except -1:
    """Call check_file() with a queue's folder; the name is decoded only for an error."""
    return check_file(rc, name_of(q)) if rc != RC_OK else 0
