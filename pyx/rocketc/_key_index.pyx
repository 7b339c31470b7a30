# cython: language_level=3
"""The index of a running store: from the hash of a topic and key to the physical offsets of their records.

A row of index files, each named by the time it was made. One thread puts, any may look up meanwhile; the row's mutex is
held for a moment only. While a store opens, what there is is compared with the log (check_put): the file in doubt and
those behind it are deleted, and built again from the log. Source: RocketMQ IndexService; store.md 6.6.
"""
import os
import re

from libc.errno cimport EBUSY, EEXIST, ENAMETOOLONG, ENOMEM
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memmove

from rocketc._atomic cimport rc_add_i64, rc_load_i64, rc_store_i64
from rocketc._guard cimport install
from rocketc._index_part cimport (
    IndexPart,
    IndexUnit,
    part_check,
    part_create,
    part_free,
    part_get,
    part_is_full,
    part_map,
    part_new,
    part_put,
    part_read_header,
    part_seal,
    part_search,
    part_sync,
    part_unmap,
    slot_of,
    time_diff,
)
from rocketc._jhash cimport rc_jhash, rc_jhash_from
from rocketc._layout cimport RC_INDEX_HEADER_BYTES, RC_INDEX_SLOT_BYTES, RC_INDEX_UNIT_BYTES
from rocketc._service cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    rc_clock_ms,
)
from rocketc._status cimport RC_BAD_CHAIN, RC_CLOSED, RC_FILE_CUT, RC_NO_ROOM, RC_OK, check, check_file, io_error
from rocketc._vm cimport rc_sync_folder

from rocketc._index_file import IndexFile, IndexHeader
from rocketc.errors import ClosedError, CorruptRecordError, StoreIOError

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

    static inline void rc_prefetch_for_writing(const void *p)
    {
        __builtin_prefetch(p, 1);
    }
    """
    int64_t rc_index_name(int64_t ms) noexcept nogil
    void rc_prefetch_for_writing(const void* p) noexcept nogil

cdef enum:
    PATH_BYTES = 4096
    FOUND_ROOM = 64     # offsets that find() of Python asks for at a time
    SEEN_ROOM = 64
    ATTEMPTS = 1000     # names that are tried for a new file

_NAME = re.compile(r"\d{1,18}")
_ADVICE = "a byte of this file; it is built again from the log when the store is opened for writing"


cdef int32_t key_hash(int32_t java_hash) noexcept nogil:
    """RocketMQ's |hash|; -2**31 has none, and counts as 0."""
    return java_hash if java_hash >= 0 else (-java_hash if java_hash > -INT32_MAX - 1 else 0)


cdef int record_hashes(
    int32_t topic_hash, const uint8_t* unique_key, int32_t unique_key_len, const uint8_t* keys, int32_t keys_len,
    int32_t* out, int room,
) noexcept nogil:
    """The hashes that a record is put by: its UNIQ_KEY, then each part of KEYS between single blanks that is not empty.

    topic_hash  Java's hash of "topic#"
    Texts as stored, in UTF-8; a length of 0 or less: there is none. Returns how many, or RC_NO_ROOM.
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
    """Begin at the newest file."""
    cursor.file = INT64_MAX
    cursor.unit = 0
    cursor.java = java
    cursor.last_timestamp = cursor.last_phy_offset = 0
    cursor.damage = 0


cdef class KeyIndex:
    """The index of one store; load() reads what there is. Files are made when keys come.

    folder     str or os.PathLike
    slots      hash slots of a file (maxHashSlotNum)
    units      units of a file (maxIndexNum); RocketMQ never uses one of them
    read_only  another process writes: nothing is written or deleted here, refresh() follows it
    """

    def __cinit__(self, folder, int64_t slots=5_000_000, int64_t units=20_000_000, *, bint read_only=False):
        self.folder = os.fspath(folder)
        if not 1 <= slots <= INT32_MAX:
            raise ValueError(f"slots={slots}: from 1 to {INT32_MAX}")
        if not 2 <= units <= INT32_MAX:
            raise ValueError(f"units={units}: from 2 to {INT32_MAX}")
        size = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES + units * RC_INDEX_UNIT_BYTES
        if size > INT32_MAX:
            raise ValueError(f"slots={slots}, units={units}: a file of {size} bytes; RocketMQ maps up to {INT32_MAX}")
        install()
        check(pthread_mutex_init(&self._mutex, NULL))
        self._ready = True
        self.slots = slots
        self.units = units
        self.read_only = read_only
        self.dropped = []
        self._encoded = os.fsencode(self.folder)
        self._folder = self._encoded
        self._amiss = []
        self._clock = -1
        self._checked_phy = self._unread = -1

    def __dealloc__(self):
        cdef int i
        if self._ready:
            for i in range(self._count):
                part_free(self._parts[i])
            free(self._parts)
            pthread_mutex_destroy(&self._mutex)

    # ------------------------------------------------------------------------------------ the row of files

    cdef int _push(self, IndexPart* p) noexcept nogil:
        """Take a file into the row, in the order of names; it belongs to the row then. RC_OK or ENOMEM."""
        cdef IndexPart** parts
        cdef int room, i, rc = RC_OK
        pthread_mutex_lock(&self._mutex)
        if self._count == self._room:
            room = 2 * self._room + 16
            parts = <IndexPart**>realloc(self._parts, <size_t>room * sizeof(IndexPart*))
            if parts == NULL:
                rc = ENOMEM
            else:
                self._parts = parts
                self._room = room
        if rc == RC_OK:
            i = self._find_part(p.name) + 1
            memmove(&self._parts[i + 1], &self._parts[i], <size_t>(self._count - i) * sizeof(IndexPart*))
            self._parts[i] = p
            self._count += 1
        pthread_mutex_unlock(&self._mutex)
        return rc

    cdef int _find_part(self, int64_t name) noexcept nogil:
        """The last file whose name is `name` or older, with the mutex held; -1: there is none."""
        cdef int low = -1, high = self._count, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self._parts[middle].name <= name:
                low = middle
            else:
                high = middle
        return low

    cdef IndexPart* _hold(self, int64_t name, bint exact, int* rc) noexcept nogil:
        """Map and hold the last file whose name is `name`, or older unless exact; NULL: there is none, or *rc."""
        cdef IndexPart* p = NULL
        cdef int i
        rc[0] = RC_OK
        pthread_mutex_lock(&self._mutex)
        if self._closed:
            rc[0] = RC_CLOSED
        else:
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
        """Delete file i and take it out of the row; 0 if somebody reads it."""
        path = os.fsdecode(self._parts[i].path)
        if not self._take_out(i):
            return 0
        self._unlink(path)
        return 1

    cdef bint _take_out(self, int i) noexcept:
        """Take file i out of the row; False if somebody reads it."""
        cdef IndexPart* p = self._parts[i]
        pthread_mutex_lock(&self._mutex)
        if rc_load_i64(&p.holds) > 1:       # no new ones without the mutex
            pthread_mutex_unlock(&self._mutex)
            return False
        memmove(&self._parts[i], &self._parts[i + 1], <size_t>(self._count - 1 - i) * sizeof(IndexPart*))
        self._count -= 1
        pthread_mutex_unlock(&self._mutex)
        if p == self._last:
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

    # ------------------------------------------------------------------------------------ put

    cdef int put(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """Add a key of a record, behind all others; one thread at a time.

        key_hash  of key_hash(), 0 or more
        Makes the next file when this one is full. Returns RC_OK, an errno (a full disk: try again), RC_FILE_CUT, or
        RC_BAD_ARGUMENT; then nothing was added, and `error` keeps it until a put succeeds.
        """
        cdef int rc = RC_OK
        if self._last == NULL or part_is_full(self._last):
            rc = self._next_file()
        if rc == RC_OK:
            rc = part_put(self._last, key_hash, phy_offset, store_timestamp)
        self.error = rc
        return rc

    cdef void prefetch(self, int32_t key_hash) noexcept nogil:
        """Ask for the cache line of a slot that a put some records later needs. Of the thread that puts."""
        if self._last != NULL and key_hash >= 0:
            rc_prefetch_for_writing(slot_of(self._last, key_hash))

    cdef int _next_file(self) noexcept nogil:
        """Make the file behind the last one, named by the clock, and later than the last one's name."""
        cdef char path[PATH_BYTES]
        cdef IndexPart* before = NULL
        cdef IndexPart* p
        cdef int64_t name = rc_index_name(self._clock if self._clock >= 0 else rc_clock_ms())
        cdef int n, _, rc = EEXIST
        pthread_mutex_lock(&self._mutex)
        if self._count > 0:
            before = self._parts[self._count - 1]   # it stays: the last file is never deleted while somebody puts
        pthread_mutex_unlock(&self._mutex)
        if before != NULL and name <= before.name:
            name = before.name + 1
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
        """Physical offset of the last record with a key, -1: none."""
        cdef int64_t end = -1
        cdef IndexPart* p
        pthread_mutex_lock(&self._mutex)
        if self._count > 0:
            p = self._parts[self._count - 1]
            if rc_load_i64(&p.count) > 1 or self._count > 1:
                end = rc_load_i64(&p.end_phy)
        pthread_mutex_unlock(&self._mutex)
        return end

    # ------------------------------------------------------------------------------------ find

    cdef int find(
        self, int32_t key_hash, int64_t begin, int64_t end, int64_t* out, int room, IndexCursor* cursor,
    ) noexcept nogil:
        """Physical offsets of records whose key has this hash, newest first; from any thread, also while others put.

        begin, end  ms, both included; see part_search for how exact they are
        out         room of them
        cursor      of index_cursor(); call again with it for more. It is at its end once it returns less than room
        Returns how many, or a code: RC_BAD_CHAIN (cursor.file and cursor.damage say where), RC_FILE_CUT, RC_CLOSED, or
        -errno of a file that can't be mapped.
        """
        cdef IndexPart* p
        cdef int64_t name
        cdef int found = 0, n, rc
        cdef bint is_last
        if key_hash < 0:
            cursor.file = -1
        if self._unread >= 0 and cursor.file >= 0:
            cursor.file = self._unread
            cursor.damage = 0
            return RC_BAD_CHAIN
        while found < room and cursor.file >= 0:
            p = self._hold(cursor.file, cursor.unit != 0, &rc)
            if p == NULL:
                if rc != RC_OK:
                    return -rc if rc > 0 else rc
                if cursor.unit == 0:
                    cursor.file = -1
                    break
                cursor.unit = 0     # the file was deleted meanwhile; the next older ones, too
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

    # ------------------------------------------------------------------------------------ comparing with the log

    cdef int start_checking(self, int64_t phy_offset) noexcept nogil:
        """From here on check_put() compares: the log is walked from this physical offset, the begin of a record.

        Units of records before it are taken as they are. Returns RC_OK or what mapping a file said.
        """
        cdef IndexUnit u
        cdef IndexPart* p
        cdef int64_t low, high, middle
        cdef int i, rc
        self._at = NULL
        self._doubted = False
        self._checked_phy = -1
        self._seen_count = 0
        for i in range(self._count):
            p = self._parts[i]
            if p.count <= 1 or p.end_phy < phy_offset:
                continue
            rc = part_map(p, False)
            if rc != RC_OK:
                return rc
            low = 0
            high = min(p.count, p.units)
            while high - low > 1:
                middle = (low + high) // 2
                part_get(p, middle, &u)
                if u.phy_offset < phy_offset:
                    low = middle
                else:
                    high = middle
            self._at = p
            self._unit = high
            break
        return RC_OK

    cdef bint is_checking(self) noexcept nogil:
        """Whether there are units that were not compared; else check_put() is put()."""
        return self._at != NULL

    cdef int check_put(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """put(), unless the next unit is this one already: the log says that it has to be.

        Returns RC_BAD_CHAIN if that unit says something else: `doubt` tells what, repair() goes on. Else as put().
        """
        cdef IndexUnit u
        cdef IndexPart* p
        cdef int rc
        if phy_offset != self._checked_phy:
            while self._at != NULL and self._checked_phy >= 0:
                # Java indexes the last record of a file that it keeps once more when it recovers.
                if not part_get(self._at, self._unit, &u):
                    return self._doubt(phy_offset)
                if u.phy_offset != self._checked_phy or not self._is_repeated(u.key_hash):
                    break
                self._step()
            self._seen_count = 0
            self._checked_phy = phy_offset
        if self._seen_count < SEEN_ROOM:
            self._seen[self._seen_count] = key_hash
        self._seen_count += 1
        p = self._at
        if p == NULL:
            return self.put(key_hash, phy_offset, store_timestamp)
        rc = self._fits(key_hash, phy_offset, store_timestamp)
        if rc != RC_OK:
            return rc
        if store_timestamp < p.low:
            p.low = store_timestamp
        if store_timestamp > p.high:
            p.high = store_timestamp
        self._step()
        return RC_OK

    cdef int stop_checking(self) noexcept nogil:
        """The log is walked to its end. RC_BAD_CHAIN, and a doubt, if units are left that it has no records for."""
        cdef IndexUnit u
        while self._at != NULL and self._checked_phy >= 0:
            if not part_get(self._at, self._unit, &u):
                break
            if u.phy_offset != self._checked_phy or not self._is_repeated(u.key_hash):
                break
            self._step()
        return RC_OK if self._at == NULL else self._doubt(-1)

    cdef void _step(self) noexcept nogil:
        """Go to the next unit to compare."""
        cdef int i
        self._unit += 1
        if self._unit < min(self._at.count, self._at.units):
            return
        i = self._find_part(self._at.name) + 1
        while i < self._count and self._parts[i].count <= 1:
            i += 1
        self._at = self._parts[i] if i < self._count else NULL
        self._unit = 1
        if self._at != NULL and part_map(self._at, False) != RC_OK:
            self._at.cut = 1

    cdef bint _is_repeated(self, int32_t key_hash) noexcept nogil:
        cdef int i
        for i in range(min(self._seen_count, SEEN_ROOM)):
            if self._seen[i] == key_hash:
                return True
        return self._seen_count > SEEN_ROOM

    cdef int _fits(self, int32_t key_hash, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """Compare the next unit, and at the ends of a file its header; RC_OK, or RC_BAD_CHAIN and a doubt."""
        cdef IndexUnit u
        cdef IndexPart* p = self._at
        cdef int i
        if p.base == NULL or not part_get(p, self._unit, &u):
            return self._doubt(phy_offset)
        if u.key_hash != key_hash or u.phy_offset != phy_offset:
            return self._doubt(phy_offset)
        if self._unit > 1:
            if u.time_diff != time_diff(p.begin_timestamp, store_timestamp):
                return self._doubt(phy_offset)
        else:
            i = self._find_part(p.name)
            if p.begin_timestamp != store_timestamp or p.begin_phy != phy_offset:
                return self._doubt(phy_offset)
            # RocketMQ counts from the end of the file before; if that is gone, nobody knows.
            if i > 0 and u.time_diff != time_diff(self._parts[i - 1].end_timestamp, store_timestamp):
                return self._doubt(phy_offset)
            if u.time_diff < 0:
                return self._doubt(phy_offset)
        if self._unit == p.count - 1 and (p.end_timestamp != store_timestamp or p.end_phy != phy_offset):
            return self._doubt(phy_offset)
        return RC_OK

    cdef int _doubt(self, int64_t phy_offset) noexcept nogil:
        self._doubted = True
        self._doubted_phy = phy_offset
        return RC_BAD_CHAIN

    @property
    def doubt(self):
        """What check_put() found that is not as the log says, or None."""
        if not self._doubted:
            return None
        path = os.fsdecode(self._at.path)
        log = f"the record at physical offset {self._doubted_phy}" if self._doubted_phy >= 0 else "no more records"
        return f"{path}: unit {self._unit} is not what the log says, which has {log} there"

    def repair(self):
        """Delete the first file that is amiss or in doubt, and all behind it.

        Returns the physical offset of the record that the log has to be walked from again, start_check() with the same
        number, put_keys(..., compare=True); -1: from the log's first record.
        """
        cdef list names = list(self._amiss)
        self._check_open()
        if self._doubted:
            names.append(self._at.name)
        self._at = NULL
        self._doubted = False
        self._amiss.clear()
        if names:
            self._destroy_from(min(names))
        self._open_last()
        return self.end_phy()

    def _destroy_from(self, int64_t name):
        """Delete all files of this name or a later one."""
        while self._count > 0 and self._parts[self._count - 1].name >= name:
            if not self._remove(self._count - 1):
                path = os.fsdecode(self._parts[self._count - 1].path)
                raise StoreIOError(EBUSY, "it is still being read: try again", path)
        for number, path in self._list():
            if number >= name:
                self._unlink(path)

    def _open_last(self):
        """Make the last file ready to be written to, if it is not full."""
        cdef IndexPart* p = self._parts[self._count - 1] if self._count > 0 else NULL
        self._last = NULL
        if p == NULL or part_is_full(p) or self.read_only:
            return
        if not p.writable:
            part_unmap(p)
        check_file(part_map(p, True), os.fsdecode(p.path))
        self._last = p

    # ------------------------------------------------------------------------------------ opening

    def _list(self):
        """(number, path) of each file with a number for a name, by number."""
        cdef list found = []
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StoreIOError(error.errno, error.strerror, self.folder) from None
        for name in names:
            path = os.path.join(self.folder, name)
            if _NAME.fullmatch(name) and not os.path.isdir(path):
                found.append((int(name), path))
        return sorted(found)

    def load(self, bint clean=True, int64_t index_msg_timestamp=0):
        """Find the files, and check their headers; others than numbers for names are left alone. Nothing is deleted
        but what RocketMQ deletes, see `dropped`.

        clean                the last exit was: else files that end behind index_msg_timestamp go, and those behind them
        index_msg_timestamp  ms, of the checkpoint
        Returns what is amiss, a text for each file. Then repair() is due; find() raises until then.
        """
        cdef list amiss = []
        self._check_open()
        if not self.read_only:
            try:
                os.makedirs(self.folder, exist_ok=True)
            except OSError as error:
                raise StoreIOError(error.errno, error.strerror, self.folder) from None
        for name, path in self._list():
            what = self._take(name, path, not clean)
            if what is not None:
                amiss.append(f"{path}: {what}")
                self._amiss.append(name)
        if not clean and not self.read_only:
            self._drop(index_msg_timestamp)
        if self._amiss:
            self._unread = min(self._amiss)
        elif self._count > 0:
            self._open_last()
        if self._count > 0 and clean:
            self._full_timestamp = self._end_of_full()
        return amiss

    cdef int64_t _end_of_full(self):
        cdef int i
        for i in range(self._count - 1, -1, -1):
            if part_is_full(self._parts[i]):
                return self._parts[i].end_timestamp
        return 0

    def _drop(self, int64_t index_msg_timestamp):
        """RocketMQ's rule after an unclean exit: what is newer than the checkpoint is not known to be whole."""
        cdef int i
        for i in range(self._count):
            if self._parts[i].end_timestamp > index_msg_timestamp:
                name = self._parts[i].name
                self.dropped = [path for number, path in self._list() if number >= name]
                self._destroy_from(name)
                self._amiss[:] = [number for number in self._amiss if number < name]
                break

    def _take(self, int64_t name, str path, bint deep):
        """Take a file into the row; None, or what is amiss with it."""
        cdef IndexPart* p
        cdef IndexPart* before = self._parts[self._count - 1] if self._count > 0 else NULL
        cdef int64_t slots = self.slots, units = self.units, size = os.path.getsize(path), damage = 0
        cdef int rc
        wanted = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES + units * RC_INDEX_UNIT_BYTES
        if size != wanted and self.read_only:
            with IndexFile(path) as file:
                if file.slots is not None:
                    slots = file.slots
                    units = (size - RC_INDEX_HEADER_BYTES - slots * RC_INDEX_SLOT_BYTES) // RC_INDEX_UNIT_BYTES
                    wanted = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES + units * RC_INDEX_UNIT_BYTES
        if size != wanted or units < 2:
            return f"it has {size} bytes, and by the settings a file of the index has {wanted}"
        if before != NULL and before.name == name:
            return "there is another file with this number for a name"
        p = part_new(os.fsencode(path), name, slots, units)
        if p == NULL:
            raise MemoryError
        p.foreign = self.read_only
        rc = part_map(p, False)
        if rc == RC_OK:
            rc = part_read_header(p)
        if rc != RC_OK:
            part_free(p)
            raise io_error(rc, path)
        what = what_is_amiss(p, before)
        if what is None and deep and not part_is_full(p):
            if part_check(p, &damage) != RC_OK:
                what = f"bad_chain at byte {damage}"
        if what is not None:
            part_free(p)
            return what
        if self._push(p) != RC_OK:
            part_free(p)
            raise MemoryError
        return None

    def refresh(self):
        """Notice what the writer, another process, has made and deleted; does nothing in the writer itself."""
        cdef int i
        self._check_open()
        if not self.read_only:
            return
        found = self._list()
        names = {name for name, _ in found}
        for i in range(self._count - 1, -1, -1):
            if self._parts[i].name not in names:
                self._take_out(i)
        known = {self._parts[i].name for i in range(self._count)}
        self._amiss.clear()
        for name, path in found:
            if name not in known:
                try:
                    what = self._take(name, path, False)
                except (OSError, ValueError):   # it is being made, or has just been deleted
                    continue
                if what is not None:
                    self._amiss.append(name)
        self._unread = min(self._amiss, default=-1)

    # ------------------------------------------------------------------------------------ flush, expire, close

    cdef int flush_files(self, bint active, int64_t* timestamp) noexcept nogil:
        """Make durable what was put; one thread at a time, any.

        active     the file that is written to as well, not full ones only
        timestamp  out: ms, the end of the newest full file, for the checkpoint (indexMsgTimestamp); 0: there is none
        Returns RC_OK or an errno, and the same again from then on: a failed sync can't be made good.
        """
        cdef IndexPart* p
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

    def flush(self, bint active=True):
        """flush_files(): returns the time for the checkpoint, 0: there is none yet. Raises StoreIOError."""
        cdef int64_t timestamp = 0
        cdef int rc
        self._check_open()
        with nogil:
            rc = self.flush_files(active, &timestamp)
        check_file(rc, self.folder)
        return timestamp

    def delete_expired(self, int64_t min_phy_offset):
        """Delete the first files whose records are all before an offset, never the last; return how many.

        The first one that somebody reads ends it. Source: RocketMQ IndexService.deleteExpiredFile.
        """
        cdef int deleted = 0
        self._check_open()
        while self._count > 1 and rc_load_i64(&self._parts[0].end_phy) < min_phy_offset and self._remove(0):
            deleted += 1
        return deleted

    def destroy(self):
        """Delete all files; the index is empty then. Raises StoreIOError if somebody reads one."""
        self._check_open()
        self._amiss.clear()
        self._at = NULL
        self._doubted = False
        self._unread = -1
        self._full_timestamp = 0
        self._destroy_from(-1)

    def close(self):
        """Let the files go; nobody else may be putting. Nothing is synced: flush() before. Twice is fine."""
        cdef int i
        pthread_mutex_lock(&self._mutex)
        self._closed = True
        self._last = self._at = NULL
        for i in range(self._count - 1, -1, -1):
            if rc_load_i64(&self._parts[i].holds) == 1:     # else __dealloc__ does it
                part_unmap(self._parts[i])
        pthread_mutex_unlock(&self._mutex)

    # ------------------------------------------------------------------------------------ Python

    @property
    def files(self):
        """The paths, oldest first."""
        return [path for path, _ in self.headers()]

    def headers(self):
        """(path, IndexHeader) of each file, oldest first."""
        cdef int i
        cdef IndexPart* p
        cdef list out = []
        pthread_mutex_lock(&self._mutex)
        for i in range(self._count):
            p = self._parts[i]
            out.append((
                os.fsdecode(p.path),
                IndexHeader(p.begin_timestamp, p.end_timestamp, p.begin_phy, p.end_phy, p.used_slots, p.count),
            ))
        pthread_mutex_unlock(&self._mutex)
        return out

    @property
    def end_phy_offset(self):
        """Physical offset of the last record with a key, -1 if there is none."""
        return self.end_phy()

    @property
    def last_error(self):
        """What the last put returned: 0, an errno, or a code below 0."""
        return self.error

    def start_check(self, int64_t phy_offset):
        """start_checking(), for Python."""
        self._check_open()
        check_file(self.start_checking(phy_offset), self.folder)

    def end_check(self):
        """stop_checking(): True if no units are left, else `doubt` says so, and repair() goes on."""
        self._check_open()
        return self.stop_checking() == RC_OK

    def put_keys(self, str topic, int64_t phy_offset, int64_t store_timestamp, unique_key=None, keys=None, *,
                 bint compare=False):
        """Put a record's keys, as record_hashes() finds them; what the dispatcher does without Python.

        compare  with what there is, see start_check(): False is returned in case of doubt, else True
        Raises StoreIOError; then some of the keys may be in, and start_check(end_phy_offset) lets it be done again.
        """
        cdef int32_t hashes[1024]
        cdef bytes topic_bytes = f"{topic}#".encode("utf-8", "surrogatepass")
        cdef bytes unique_bytes = (unique_key or "").encode("utf-8", "surrogatepass")
        cdef bytes keys_bytes = (keys or "").encode("utf-8", "surrogatepass")
        cdef int i, rc, count
        self._check_open()
        count = record_hashes(
            rc_jhash(topic_bytes, <size_t>len(topic_bytes)), unique_bytes, <int32_t>len(unique_bytes), keys_bytes,
            <int32_t>len(keys_bytes), hashes, 1024,
        )
        if count < 0:
            raise ValueError("a record with more than 1024 keys")
        for i in range(count):
            if compare:
                rc = self.check_put(hashes[i], phy_offset, store_timestamp)
                if rc == RC_BAD_CHAIN:
                    return False
            else:
                rc = self.put(hashes[i], phy_offset, store_timestamp)
            check_file(rc, os.fsdecode(self._last.path) if self._last != NULL else self.folder)
        return True

    def offsets(self, str topic, str key, begin=0, end=INT64_MAX, *, bint java=False):
        """Physical offsets of the records that may have this key, newest first: the caller compares the key and time.

        begin, end  store timestamps in ms, both included
        java        RocketMQ's rules for times: seconds are cut off, and a clock that went back hides records
        Raises CorruptRecordError where a chain is damaged, StoreIOError, ClosedError.
        """
        cdef bytes text = f"{topic}#{key}".encode("utf-8", "surrogatepass")
        return self._find(key_hash(rc_jhash(text, <size_t>len(text))), begin, end, java)

    def _find(self, int32_t hash, int64_t begin, int64_t end, bint java):
        cdef int64_t out[FOUND_ROOM]
        cdef IndexCursor cursor
        cdef int n, i
        index_cursor(&cursor, java)
        while cursor.file >= 0:
            with nogil:
                n = self.find(hash, begin, end, out, FOUND_ROOM, &cursor)
            if n < 0:
                raise self.failure(n, &cursor)
            for i in range(n):
                yield out[i]

    cdef object failure(self, int rc, IndexCursor* cursor):
        """The exception for a code of find()."""
        if rc == RC_CLOSED:
            return ClosedError(f"{self.folder}: the index is closed")
        path = self.folder
        for file, _ in self.headers():
            if int(os.path.basename(file)) == cursor.file:
                path = file
        if rc == RC_BAD_CHAIN:
            if cursor.file == self._unread:
                path = os.path.join(self.folder, f"{cursor.file:017d}")
            return CorruptRecordError(path, cursor.damage, "bad_chain", _ADVICE)
        return io_error(rc if rc == RC_FILE_CUT else -rc, path)

    def check(self):
        """Read all files, all of them: texts of what does not agree within one. Nobody may be putting."""
        cdef int64_t damage = 0
        cdef IndexPart* p
        cdef int rc
        cdef int64_t name = -1
        cdef list out = []
        self._check_open()
        for path, _ in self.headers():
            name = int(os.path.basename(path))
            p = self._hold(name, True, &rc)
            if p == NULL:
                raise io_error(rc, path)
            with nogil:
                rc = part_check(p, &damage)
            rc_add_i64(&p.holds, -1)
            if rc == RC_BAD_CHAIN:
                out.append(f"{path}: bad_chain at byte {damage}")
                self._amiss.append(name)
            else:
                check_file(rc, path)
        return out

    def _hook(self, name, value):
        """Tests: "clock" in ms names the files that are made."""
        if name != "clock":
            raise ValueError(name)
        self._clock = value


cdef object what_is_amiss(IndexPart* p, const IndexPart* before):
    """What is wrong with a file's header, by its first and last unit and the file before it; None: nothing."""
    cdef IndexUnit first, last
    if p.count > p.units:
        return f"its header counts {p.count - 1} units, and it has room for {p.units - 1}"
    if before != NULL and not part_is_full(before):
        return "the file before it is not full"
    if not part_get(p, 1, &first) or not part_get(p, p.count - 1 if p.count > 1 else 1, &last):
        return "it became shorter, or unreadable"
    if p.count <= 1:
        return "its header counts no units, and there are some" if first.key_hash or first.phy_offset else None
    if p.begin_phy != first.phy_offset or p.end_phy != last.phy_offset:
        return "its header does not agree with its first and last unit"
    if p.begin_phy < 0 or p.end_phy < p.begin_phy or not 0 < p.used_slots < p.count:
        return "its header is none"
    if before != NULL and p.begin_phy < before.end_phy:
        return "it begins before the end of the file before it"
    return None
