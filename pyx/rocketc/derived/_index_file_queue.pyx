# cython: language_level=3
"""The files of an index in order. One thread puts keys; any thread may look up keys meanwhile.

Each file is named by its creation time. The mutex is only locked to find and hold a file, or to add one.
Source: RocketMQ IndexService
"""
import os

from libc.errno cimport EEXIST, ENAMETOOLONG, ENOMEM, EROFS
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memmove

from rocketc._status cimport check, check_file, error_of
from rocketc.c.atomic cimport rc_add_i64, rc_load_i64, rc_store_i64
from rocketc.c.jhash cimport rc_jhash_from
from rocketc.c.layout cimport RC_INDEX_HEADER_BYTES, RC_INDEX_SLOT_BYTES, RC_INDEX_UNIT_BYTES
from rocketc.c.prefetch cimport rc_prefetch_for_writing
from rocketc.c.service cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, rc_clock_ms,
)
from rocketc.c.status cimport RC_BAD_CHAIN, RC_CLOSED, RC_NO_FILE, RC_NO_ROOM, RC_OK
from rocketc.c.vm cimport rc_sync_folder
from rocketc.derived._mapped_index_file cimport (
    MappedIndexFile, part_create, part_free, part_is_full, part_map, part_new, part_put, part_read_header, part_seal,
    part_search, part_sync, slot_of,
)
from rocketc.files._guard cimport install

from rocketc.derived._index_reader import IndexHeader
from rocketc.errors import ClosedError, StoreIOError

cdef extern from *:
    """
    #include <time.h>

    /* RocketMQ's name of an index file that is made now: local time as yyyyMMddHHmmssSSS. */
    static int64_t rc_index_name(int64_t ms)
    {
        time_t seconds = (time_t)(ms / 1000);
        struct tm t;
        if (localtime_r(&seconds, &t) == NULL)
            return 0;
        return ((((((int64_t)(t.tm_year + 1900) * 100 + t.tm_mon + 1) * 100 + t.tm_mday) * 100 + t.tm_hour) * 100 +
                 t.tm_min) * 100 + t.tm_sec) * 1000 + ms % 1000;
    }
    """
    int64_t rc_index_name(int64_t ms) noexcept nogil

cdef enum:
    PATH_BYTES = 4096
    ATTEMPTS = 1000     # most names that are tried for a new file

_ADVICE = "the offset is a byte of this file; the file is rebuilt from the log when the store is opened for writing"


cdef int32_t key_hash(int32_t java_hash) noexcept nogil:
    """Return RocketMQ's |hash|; 0 for -2**31, which does not have an absolute value."""
    return java_hash if java_hash >= 0 else (-java_hash if java_hash > -INT32_MAX - 1 else 0)


cdef int record_hashes(
    int32_t topic_hash, const uint8_t* unique_key, int32_t unique_key_len, const uint8_t* keys, int32_t keys_len,
    int32_t* out, int room,
) noexcept nogil:
    """Compute the hashes of a record's keys: its UNIQ_KEY, then each nonempty part of KEYS between single spaces.

    topic_hash  Java's hash of "topic#"
    Texts are as stored, in UTF-8; a length of 0 or less: missing. Returns the number of hashes, or RC_NO_ROOM.
    """
    cdef const uint8_t* stop
    cdef size_t n
    cdef int count = 0
    if unique_key_len > 0:
        if count == room:
            return RC_NO_ROOM
        out[count] = key_hash(rc_jhash_from(topic_hash, unique_key, <size_t>unique_key_len))
        count += 1
    while keys_len > 0:
        stop = <const uint8_t*>memchr(keys, c" ", <size_t>keys_len)
        n = <size_t>(stop - keys) if stop != NULL else <size_t>keys_len
        if n > 0:
            if count == room:
                return RC_NO_ROOM
            out[count] = key_hash(rc_jhash_from(topic_hash, keys, n))
            count += 1
        keys += n + 1
        keys_len -= <int32_t>n + 1
    return count


cdef void index_cursor(IndexCursor* cursor, bint java) noexcept nogil:
    """Set a cursor to the newest file."""
    cursor.file = INT64_MAX
    cursor.unit = 0
    cursor.java = java
    cursor.last_timestamp = cursor.last_phy_offset = 0
    cursor.damage = 0
    cursor.error = 0


cdef class IndexFileQueue:
    """The files of one index. KeyIndex adds loading and checking.

    folder     str or os.PathLike
    slots      hash slots of a file (maxHashSlotNum)
    units      units of a file (maxIndexNum); RocketMQ does not use the first one
    read_only  another process writes
    """

    def __cinit__(self, folder, int64_t slots=5_000_000, int64_t units=20_000_000, *, bint read_only=False):
        self.folder = os.fspath(folder)
        if not 1 <= slots <= INT32_MAX:
            raise ValueError(f"slots={slots}: allowed are 1 to {INT32_MAX}")
        if not 2 <= units <= INT32_MAX:
            raise ValueError(f"units={units}: allowed are 2 to {INT32_MAX}")
        size = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES + units * RC_INDEX_UNIT_BYTES
        if size > INT32_MAX:
            raise ValueError(f"slots={slots}, units={units}: a file has {size} bytes; RocketMQ maps {INT32_MAX}")
        install()
        check(pthread_mutex_init(&self._mutex, NULL))
        self._ready = True
        self.slots = slots
        self.units = units
        self.read_only = read_only
        self._encoded = os.fsencode(self.folder)
        self._folder = self._encoded
        self._clock = -1
        self._unread = -1

    def __dealloc__(self):
        cdef int i
        if self._ready:
            for i in range(self._count):
                part_free(self._parts[i])
            free(self._parts)
            pthread_mutex_destroy(&self._mutex)

    cdef int _push(self, MappedIndexFile* p) noexcept nogil:
        """Add a file in the order of names. The queue then owns it. Returns RC_OK or ENOMEM."""
        cdef MappedIndexFile** parts
        cdef int room, i, rc = RC_OK
        pthread_mutex_lock(&self._mutex)
        if self._count == self._room:
            room = 2 * self._room + 16
            parts = <MappedIndexFile**>realloc(self._parts, <size_t>room * sizeof(MappedIndexFile*))
            if parts == NULL:
                rc = ENOMEM
            else:
                self._parts = parts
                self._room = room
        if rc == RC_OK:
            i = self._find_part(p.name) + 1
            memmove(&self._parts[i + 1], &self._parts[i], <size_t>(self._count - i) * sizeof(MappedIndexFile*))
            self._parts[i] = p
            self._count += 1
        pthread_mutex_unlock(&self._mutex)
        return rc

    cdef int _find_part(self, int64_t name) noexcept nogil:
        """Find the last file with this name or an older one; -1: there is none. The mutex is locked."""
        cdef int low = -1, high = self._count, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self._parts[middle].name <= name:
                low = middle
            else:
                high = middle
        return low

    cdef MappedIndexFile* _part(self, int i) noexcept nogil:
        """Return file i, or NULL if there are fewer. It stays valid while only the calling thread deletes files."""
        cdef MappedIndexFile* p = NULL
        pthread_mutex_lock(&self._mutex)
        if i < self._count:
            p = self._parts[i]
        pthread_mutex_unlock(&self._mutex)
        return p

    cdef MappedIndexFile* _hold(self, int64_t name, bint exact, int* rc) noexcept nogil:
        """Map and hold the last file with this name, or an older one unless exact. NULL: none, or an error in *rc."""
        cdef MappedIndexFile* p = NULL
        cdef int i
        rc[0] = RC_OK
        pthread_mutex_lock(&self._mutex)
        if self._closed:
            rc[0] = RC_CLOSED
        else:
            i = self._count - 1
            if i >= 0 and self._parts[i].name > name:
                i = self._find_part(name)
            if i >= 0 and (not exact or self._parts[i].name == name):
                p = self._parts[i]
                rc[0] = part_map(p, False)
                if rc[0] == RC_OK and p.foreign:
                    rc[0] = part_read_header(p)
                if rc[0] == RC_OK:
                    rc_add_i64(&p.holds, 1)
                else:
                    p = NULL
        pthread_mutex_unlock(&self._mutex)
        return p

    cdef int _remove(self, int i) except -1:
        """Delete file i and remove it from the queue. Returns 0 if it has a reader."""
        cdef MappedIndexFile* p = self._part(i)
        path = os.fsdecode(p.path)
        if not self._take_out(i):
            return 0
        self._unlink(path)
        return 1

    cdef bint _take_out(self, int i) noexcept:
        """Remove file i from the queue. Returns False if it has a reader."""
        cdef MappedIndexFile* p
        cdef bint newest
        pthread_mutex_lock(&self._mutex)
        p = self._parts[i]
        newest = i == self._count - 1
        if rc_load_i64(&p.holds) > 1:       # holds are only added with the mutex locked
            pthread_mutex_unlock(&self._mutex)
            return False
        memmove(&self._parts[i], &self._parts[i + 1], <size_t>(self._count - 1 - i) * sizeof(MappedIndexFile*))
        self._count -= 1
        pthread_mutex_unlock(&self._mutex)
        if newest and p == self._last:
            self._last = NULL
        part_free(p)
        return True

    def _unlink(self, path):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreIOError(error.errno, error.strerror, path) from None
        check_file(rc_sync_folder(self._folder), self.folder)

    cdef int _check_open(self) except -1:
        if self._closed:
            raise ClosedError(f"{self.folder}: the index is closed")
        return 0

    cdef int put(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """Add a key of a record after all others. One thread at a time.

        key_hash  from key_hash(), 0 or more
        Creates the next file if the last one is full. Returns RC_OK, an errno (a full disk: try again), RC_FILE_CUT, or
        RC_BAD_ARGUMENT. After an error nothing was added, and `error` has it until a put succeeds.
        """
        cdef int rc = RC_OK
        if self._last == NULL or part_is_full(self._last):
            rc = self._next_file()
        if rc == RC_OK:
            rc = part_put(self._last, key_hash, phy_offset, store_timestamp)
        self.error = rc
        return rc

    cdef void prefetch(self, int32_t key_hash) noexcept nogil:
        """Prefetch the slot that a put some records later needs. Only for the thread that puts."""
        if self._last != NULL and key_hash >= 0:
            rc_prefetch_for_writing(slot_of(self._last, key_hash))

    cdef int _next_file(self) noexcept nogil:
        """Create the file after the last one. Its name is the current time, but more than the last name."""
        cdef MappedIndexFile* before = NULL
        cdef int64_t name = rc_index_name(self._clock if self._clock >= 0 else rc_clock_ms())
        cdef int rc
        if self.read_only:
            return EROFS
        pthread_mutex_lock(&self._mutex)
        if self._count > 0:
            before = self._parts[self._count - 1]
            rc_add_i64(&before.holds, 1)    # once the next file is added, this one may be deleted
        pthread_mutex_unlock(&self._mutex)
        if before != NULL and name <= before.name:
            name = before.name + 1
        rc = self._make_file(name, before)
        if before != NULL:
            rc_add_i64(&before.holds, -1)
        return rc

    cdef int _make_file(self, int64_t name, MappedIndexFile* before) noexcept nogil:
        """Create the last file, with this name or the next free one. before: the file before it, or NULL."""
        cdef char path[PATH_BYTES]
        cdef MappedIndexFile* p
        cdef int n, _, rc = EEXIST
        if before != NULL:
            rc = rc_sync_folder(self._folder)   # first make earlier names durable: no file may be missing
            if rc != RC_OK:
                return rc
        for _ in range(ATTEMPTS):
            n = snprintf(path, PATH_BYTES, b"%s/%017lld", self._folder, <long long>name)
            if n < 0 or n >= PATH_BYTES:
                return ENAMETOOLONG
            p = part_new(path, name, self.slots, self.units)
            if p == NULL:
                return ENOMEM
            rc = part_create(p, self._folder, before)
            if rc == RC_OK:
                rc = self._push(p)
            if rc == RC_OK:
                if before != NULL:
                    part_seal(before)
                self._last = p
                rc_store_i64(&self._names, 1)
                return RC_OK
            part_free(p)
            if rc != EEXIST:
                return rc
            name += 1
        return rc

    cdef int64_t end_phy(self) noexcept nogil:
        """Physical offset of the last record with a key; -1: none."""
        cdef int64_t end = -1
        cdef MappedIndexFile* p
        pthread_mutex_lock(&self._mutex)
        if self._count > 0:
            p = self._parts[self._count - 1]
            if rc_load_i64(&p.count) > 1 or self._count > 1:
                end = rc_load_i64(&p.end_phy)
        pthread_mutex_unlock(&self._mutex)
        return end

    cdef int find(
        self, int32_t key_hash, int64_t begin, int64_t end, int64_t* out, int room, IndexCursor* cursor,
    ) noexcept nogil:
        """Find physical offsets of records by the hash of a key, newest first. Any thread may call it at any time.

        begin, end  ms, both included; part_search() says how exact they are
        out         room of them
        cursor      from index_cursor(). Call again with it for more; a result below room is the end
        Returns the number of offsets, or a code for failure(): RC_BAD_CHAIN (cursor.file and cursor.damage say where),
        RC_FILE_CUT, RC_CLOSED, or RC_NO_FILE (cursor.error says why a file can't be mapped).
        """
        cdef MappedIndexFile* p
        cdef int64_t name, unread = rc_load_i64(&self._unread)
        cdef int found = 0, n, rc
        cdef bint is_last
        if key_hash < 0:
            cursor.file = -1
        if unread >= 0 and cursor.file >= 0:
            cursor.file = unread
            cursor.damage = 0
            return RC_BAD_CHAIN
        while found < room and cursor.file >= 0:
            p = self._hold(cursor.file, cursor.unit != 0, &rc)
            if p == NULL:
                if rc > 0:
                    cursor.error = rc
                    return RC_NO_FILE
                if rc != RC_OK:
                    return rc
                if cursor.unit == 0:
                    cursor.file = -1
                    break
                cursor.unit = 0     # the file was deleted meanwhile, and so were older ones
                cursor.file -= 1
                continue
            name = p.name
            if cursor.file == INT64_MAX:
                cursor.last_timestamp = rc_load_i64(&p.end_timestamp)
                cursor.last_phy_offset = rc_load_i64(&p.end_phy)
            cursor.file = name
            n = part_search(
                p, key_hash, begin, end, cursor.java, out + found, room - found, &cursor.unit, &cursor.damage,
            )
            is_last = cursor.java and rc_load_i64(&p.begin_timestamp) < begin
            rc_add_i64(&p.holds, -1)
            if n < 0:
                return n
            found += n
            if cursor.unit == 0:
                cursor.file = -1 if is_last else name - 1
        return found

    cdef int flush_files(self, bint active, int64_t* timestamp) noexcept nogil:
        """Make units durable. Any thread may call it, one at a time.

        active     also sync the file that is written, not only full ones
        timestamp  set to ms: the end of the newest full file, for the checkpoint (indexMsgTimestamp); 0: there is none
        Returns RC_OK or an errno, and the same errno from then on: after a failed sync, written data may be lost.
        """
        cdef MappedIndexFile* p
        cdef int64_t name = -1
        cdef int i, rc = RC_OK
        cdef bint full
        timestamp[0] = self._full_timestamp
        if self._lost != RC_OK:
            return self._lost
        while rc == RC_OK:
            p = NULL
            pthread_mutex_lock(&self._mutex)
            i = self._find_part(name) + 1
            while i < self._count and rc_load_i64(&self._parts[i].dirty) == 0:
                i += 1
            if i < self._count:
                p = self._parts[i]
                rc_add_i64(&p.holds, 1)
            pthread_mutex_unlock(&self._mutex)
            if p == NULL:
                break
            name = p.name
            full = rc_load_i64(&p.count) >= p.units
            if full or active:
                rc_store_i64(&p.dirty, 0)
                rc = part_sync(p)
                if rc == RC_OK and full:
                    self._full_timestamp = rc_load_i64(&p.end_timestamp)
            rc_add_i64(&p.holds, -1)
        if rc == RC_OK and rc_load_i64(&self._names) != 0:
            rc_store_i64(&self._names, 0)
            rc = rc_sync_folder(self._folder)
        self._lost = rc
        timestamp[0] = self._full_timestamp
        return rc

    cdef object failure(self, int rc, IndexCursor* cursor):
        """Return the exception for a code of find()."""
        if rc == RC_CLOSED:
            return ClosedError(f"{self.folder}: the index is closed")
        path = self.folder
        for file, _ in self.headers():
            if int(os.path.basename(file)) == cursor.file:
                path = file
        if rc == RC_BAD_CHAIN and cursor.file == self._unread:
            path = os.path.join(self.folder, f"{cursor.file:017d}")
        return error_of(cursor.error if rc == RC_NO_FILE else rc, path, cursor.damage, _ADVICE)

    @property
    def files(self):
        """Paths of the files, oldest first."""
        return [path for path, _ in self.headers()]

    def headers(self):
        """Return (path, IndexHeader) of each file, oldest first."""
        cdef char path[PATH_BYTES]
        cdef MappedIndexFile copy
        cdef list out = []
        copy.name = -1
        while self._after(&copy, path):     # run no Python code while the mutex is locked
            out.append((
                os.fsdecode(path),
                IndexHeader(
                    copy.begin_timestamp, copy.end_timestamp, copy.begin_phy, copy.end_phy, copy.used_slots, copy.count,
                ),
            ))
        return out

    cdef bint _after(self, MappedIndexFile* copy, char* path) noexcept nogil:
        """Copy the header and path of the first file after copy.name. Returns False if there is none."""
        cdef MappedIndexFile* p
        cdef int i
        pthread_mutex_lock(&self._mutex)
        i = self._find_part(copy.name) + 1
        if i < self._count:
            p = self._parts[i]
            copy.name = p.name
            copy.count = rc_load_i64(&p.count)
            copy.begin_timestamp = rc_load_i64(&p.begin_timestamp)
            copy.end_timestamp = rc_load_i64(&p.end_timestamp)
            copy.begin_phy = rc_load_i64(&p.begin_phy)
            copy.end_phy = rc_load_i64(&p.end_phy)
            copy.used_slots = rc_load_i64(&p.used_slots)
            snprintf(path, PATH_BYTES, b"%s", p.path)
        i = i < self._count
        pthread_mutex_unlock(&self._mutex)
        return i
