# cython: language_level=3
"""The index of a running store: from the hash of a topic and key to the physical offsets of their records.

While a store opens, what there is is compared with the log (check_put): the file in doubt and those behind it are
deleted, and built again from the log. Source: RocketMQ IndexService
"""
import os
import re
import threading

from libc.errno cimport EBUSY, ENOENT, EROFS
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from rocketc._status cimport check_file, error_of
from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.jhash cimport rc_jhash
from rocketc.c.layout cimport RC_INDEX_HEADER_BYTES, RC_INDEX_SLOT_BYTES, RC_INDEX_UNIT_BYTES
from rocketc.c.service cimport pthread_mutex_lock, pthread_mutex_unlock
from rocketc.c.status cimport RC_BAD_CHAIN, RC_OK
from rocketc.derived._index_file_queue cimport IndexCursor, IndexFileQueue, index_cursor, key_hash, record_hashes
from rocketc.derived._mapped_index_file cimport (
    IndexUnit, MappedIndexFile, part_begin, part_check, part_free, part_get, part_is_full, part_map, part_new,
    part_read_header, part_search, part_unmap, time_diff, unit_times,
)

from rocketc.derived._index_reader import IndexFile
from rocketc.errors import StoreIOError
from rocketc.files.durable import errors_named

cdef enum:
    FOUND_ROOM = 64     # offsets that offsets() asks for at a time
    DOUBLED_ROOM = 64
    AHEAD = 16          # of the benches

_NAME = re.compile(r"\d{1,18}")


cdef class KeyIndex(IndexFileQueue):
    """The index of one store; load() reads what there is. Files are made when keys come.

    folder     str or os.PathLike
    slots      hash slots of a file (maxHashSlotNum)
    units      units of a file (maxIndexNum); RocketMQ never uses one of them
    read_only  another process writes: nothing is written or deleted here, refresh() follows it
    """

    def __cinit__(self, *_args, **_fields):
        self._checked_phy = -1
        self._problems = []
        self._refreshing = threading.Lock()
        self.dropped = []

    # ------------------------------------------------------------------------------------ comparing with the log

    cdef int start_checking(self, int64_t phy_offset) noexcept nogil:
        """From here on check_put() compares: the log is walked from this physical offset, the begin of a record.

        Units of records before it are taken as they are. Returns RC_OK or what mapping a file said.
        """
        cdef IndexUnit u
        cdef MappedIndexFile* p
        cdef int64_t low, high, middle
        cdef int i, rc
        self._at = NULL
        self._doubted = False
        self._checked_phy = -1
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

    cdef int check_put(self, int32_t hashed, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """put(), unless the next unit is this one already: the log says that it has to be.

        RocketMQ puts some records once more when it starts; units that are there twice are left as they are.
        Returns RC_BAD_CHAIN if that unit says something else: `doubt` tells what, repair() goes on. Else as put().
        """
        while self._at != NULL and not self._fits(hashed, phy_offset, store_timestamp):
            if not self._is_doubled():
                return self._doubt(phy_offset)
            self._step()
        self._checked_phy = phy_offset
        if self._at == NULL:
            return self.put(hashed, phy_offset, store_timestamp)
        self._step()
        return RC_OK

    cdef int stop_checking(self) noexcept nogil:
        """The log is walked to its end. RC_BAD_CHAIN, and a doubt, if units are left that it has no records for."""
        while self._at != NULL and self._is_doubled():
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

    cdef bint _is_doubled(self) noexcept nogil:
        """Whether the next unit is of a record that was compared before, and an older unit says the same."""
        cdef IndexUnit u, older
        cdef MappedIndexFile* p = self._at
        cdef int64_t out[DOUBLED_ROOM]
        cdef int64_t first, last, n, unit = 0, damage = 0
        cdef int i, found
        if p.base == NULL or not part_get(p, self._unit, &u) or u.phy_offset > self._checked_phy or u.key_hash < 0:
            return False
        n = self._unit
        older = u
        while 0 < older.previous < n:
            n = older.previous
            if not part_get(p, n, &older):
                return False
            if older.key_hash == u.key_hash and older.phy_offset == u.phy_offset:
                return u.time_diff == (older.time_diff if n > 1 else 0)     # of one record: the first one is the begin
        unit_times(p.begin_timestamp, self._unit, u.time_diff, &first, &last)
        for i in range(self._find_part(p.name) - 1, -1, -1):
            unit = 0
            found = DOUBLED_ROOM if part_map(self._parts[i], False) == RC_OK else 0
            while found == DOUBLED_ROOM:
                found = part_search(self._parts[i], u.key_hash, first, last, False, out, DOUBLED_ROOM, &unit, &damage)
                for n in range(found):
                    if out[n] == u.phy_offset:
                        return True
                if unit == 0:
                    break
        return False

    cdef bint _fits(self, int32_t hashed, int64_t phy_offset, int64_t store_timestamp) noexcept nogil:
        """Whether the next unit is this one, and at the ends of a file its header says so."""
        cdef IndexUnit u
        cdef MappedIndexFile* p = self._at
        cdef int i
        if p.base == NULL or not part_get(p, self._unit, &u):
            return False
        if u.key_hash != hashed or u.phy_offset != phy_offset:
            return False
        if self._unit > 1:
            if u.time_diff != time_diff(p.begin_timestamp, store_timestamp):
                return False
        else:
            i = self._find_part(p.name)
            if p.begin_timestamp != store_timestamp or p.begin_phy != phy_offset or u.time_diff < 0:
                return False
            # RocketMQ counts from the end of the file before; if that is gone, nobody knows.
            if i > 0 and u.time_diff != time_diff(self._parts[i - 1].end_timestamp, store_timestamp):
                return False
        return self._unit < p.count - 1 or (p.end_timestamp == store_timestamp and p.end_phy == phy_offset)

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
        return f"{path}: unit {self._unit} is different from the log, which has {log} there"

    def repair(self):
        """Delete the first file that is amiss or in doubt, and all behind it.

        Returns the physical offset of the record that the log has to be walked from again, start_check() with the same
        number, put_keys(..., compare=True); -1: from the log's first record.
        """
        cdef list names = list(self._problems)
        self._check_writable()
        if self._doubted:
            names.append(self._at.name)
        self._at = NULL
        self._doubted = False
        self._unread = -1
        self._problems.clear()
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
        cdef MappedIndexFile* p = self._parts[self._count - 1] if self._count > 0 else NULL
        self._last = NULL
        if p == NULL or part_is_full(p) or self.read_only:
            return
        if not p.writable:
            part_unmap(p)
        check_file(part_map(p, True), os.fsdecode(p.path))
        if p.count <= 1:
            check_file(part_begin(p, self._parts[self._count - 2] if self._count > 1 else NULL), os.fsdecode(p.path))
        self._last = p

    def _check_writable(self):
        self._check_open()
        if self.read_only:
            check_file(EROFS, self.folder)

    # ------------------------------------------------------------------------------------ opening

    def _list(self):
        """(number, path) of each file with a number for a name, by number."""
        cdef list found = []
        with errors_named(self.folder):
            try:
                names = os.listdir(self.folder)
            except FileNotFoundError:
                return found
        for name in names:
            path = os.path.join(self.folder, name)
            if _NAME.fullmatch(name) and not os.path.isdir(path):
                found.append((int(name), path))
        return sorted(found)

    def load(self, bint clean=True, int64_t index_msg_timestamp=0, int64_t queued=-1):
        """Find the files, and check their headers; others than numbers for names are left alone. Nothing is deleted
        but what RocketMQ deletes, see `dropped`.

        clean                the last exit was: else files that end behind index_msg_timestamp go, and those behind them
        index_msg_timestamp  ms, of the checkpoint
        queued               the same as a physical offset, if it is known: the clock may have gone back
        Returns what is amiss, a text for each file. Then repair() is due; find() raises until then.
        """
        cdef list problems = []
        self._check_open()
        if not self.read_only:
            try:
                os.makedirs(self.folder, exist_ok=True)
            except OSError as error:
                raise StoreIOError(error.errno, error.strerror, self.folder) from None
        for name, path in self._list():
            try:
                what = self._take(name, path)
            except OSError as error:
                if self.read_only and error.errno == ENOENT:
                    continue            # deleted since it was listed
                raise
            if what is not None:
                problems.append((name, f"{path}: {what}"))
        if not clean and not self.read_only:
            problems = self._drop(index_msg_timestamp, queued, problems)
        self._problems.extend(name for name, _ in problems)
        if self._problems:
            self._unread = min(self._problems)
        elif self._count > 0:
            self._open_last()
        if self._count > 0 and clean:
            self._full_timestamp = self._end_of_full()
        return [what for _, what in problems]

    cdef int64_t _end_of_full(self):
        cdef int i
        for i in range(self._count - 1, -1, -1):
            if part_is_full(self._parts[i]):
                return self._parts[i].end_timestamp
        return 0

    def _drop(self, int64_t index_msg_timestamp, int64_t queued, list problems):
        """RocketMQ's rule after an unclean exit: what is newer than the checkpoint is not known to be whole.

        Returns what is still amiss then.
        """
        cdef int i
        cdef MappedIndexFile* p
        for i in range(self._count):
            p = self._parts[i]
            if p.end_timestamp > index_msg_timestamp or 0 <= queued <= p.end_phy:
                name = p.name
                self.dropped = [path for number, path in self._list() if number >= name]
                self._destroy_from(name)
                return [(number, what) for number, what in problems if number < name]
        if self._count > 0 and not part_is_full(self._parts[self._count - 1]):
            # What a killed process had begun to put may be there, and not be counted.
            what = self._check_part(self._parts[self._count - 1])
            if what is not None:
                problems.append((self._parts[self._count - 1].name, what))
        return problems

    def _take(self, int64_t name, str path):
        """Take a file into the row; None, or what is amiss with it."""
        cdef MappedIndexFile* p
        cdef MappedIndexFile* before = self._parts[self._count - 1] if self._count > 0 else NULL
        cdef int64_t slots = self.slots, units = self.units, size = os.path.getsize(path)
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
            raise error_of(rc, path)
        what = problem_of(p, before)
        if what is not None:
            part_free(p)
            return what
        if self._push(p) != RC_OK:
            part_free(p)
            raise MemoryError
        return None

    def refresh(self):
        """Notice what the writer, another process, has made and deleted; does nothing in the writer itself."""
        self._check_open()
        if self.read_only:
            with self._refreshing:
                self._refresh()

    def _refresh(self):
        cdef int i
        found = self._list()
        names = {name for name, _ in found}
        for i in range(self._count - 1, -1, -1):
            if self._parts[i].name not in names:
                self._take_out(i)
        known = {self._parts[i].name for i in range(self._count)}
        self._problems.clear()
        for name, path in found:
            if name not in known:
                try:
                    what = self._take(name, path)
                except (OSError, ValueError):   # it is being made, or has just been deleted
                    continue
                if what is not None:
                    self._problems.append(name)
        rc_store_i64(&self._unread, <int64_t>min(self._problems, default=-1))

    # ------------------------------------------------------------------------------------ flush, expire, close

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
        self._check_writable()
        while (
            self._part(1) != NULL and rc_load_i64(&self._part(0).end_phy) < min_phy_offset and self._remove(0)
        ):
            deleted += 1
        return deleted

    def destroy(self):
        """Delete all files; the index is empty then. Raises StoreIOError if somebody reads one."""
        self._check_writable()
        self._problems.clear()
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
    def end_phy_offset(self):
        """Physical offset of the last record with a key, -1 if there is none."""
        return self.end_phy()

    @property
    def last_file(self):
        """The number that the last file is named by, -1 if there is none."""
        cdef int64_t name
        pthread_mutex_lock(&self._mutex)
        name = self._parts[self._count - 1].name if self._count > 0 else -1
        pthread_mutex_unlock(&self._mutex)
        return name

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

    def check(self, go_on=None):
        """Read all of each file: texts of what does not agree within one; then repair() is due. Nobody may put.

        go_on  is called before each file: False ends it there
        """
        cdef int i
        cdef list out = []
        self._check_open()
        for i in range(self._count):
            if go_on is not None and not go_on():
                break
            what = self._check_part(self._parts[i])
            if what is not None:
                out.append(what)
                self._problems.append(self._parts[i].name)
        return out

    cdef object _check_part(self, MappedIndexFile* p):
        """What does not agree within a file, a text that names it, or None."""
        cdef int64_t damage = 0
        cdef int rc
        path = os.fsdecode(p.path)
        check_file(part_map(p, False), path)
        with nogil:
            rc = part_check(p, &damage)
        if rc == RC_BAD_CHAIN:
            return f"{path}: bad_chain at byte {damage}"
        check_file(rc, path)
        return None

    def _hook(self, name, value):
        """Tests: "clock" in ms names the files that are made."""
        if name != "clock":
            raise ValueError(name)
        self._clock = value

    def _put_some(self, int64_t count, uint64_t seed, int64_t phy_offset=0, int64_t store_timestamp=1):
        """Benches: put `count` keys whose hashes follow from seed; the dispatcher's way, some ahead being asked for."""
        cdef int32_t ahead[AHEAD]
        cdef int64_t i
        cdef int rc = RC_OK
        with nogil:
            for i in range(AHEAD):
                ahead[i] = next_hash(&seed)
            for i in range(count):
                rc = self.put(ahead[i % AHEAD], phy_offset + i, store_timestamp)
                if rc != RC_OK:
                    break
                ahead[i % AHEAD] = next_hash(&seed)
                self.prefetch(ahead[i % AHEAD])
        check_file(rc, self.folder)

    def _find_some(self, int64_t count, uint64_t seed):
        """Benches: look up the first `count` keys of _put_some; how many offsets were found, up to 4 of each."""
        cdef IndexCursor cursor
        cdef int64_t out[4]
        cdef int64_t _, found = 0
        cdef int n = 0
        with nogil:
            for _ in range(count):
                index_cursor(&cursor, False)
                n = self.find(next_hash(&seed), 0, INT64_MAX, out, 4, &cursor)
                if n < 0:
                    break
                found += n
        if n < 0:
            raise self.failure(n, &cursor)
        return found


cdef inline int32_t next_hash(uint64_t* seed) noexcept nogil:
    seed[0] = seed[0] * 6364136223846793005ULL + 1442695040888963407ULL
    return <int32_t>(seed[0] >> 33)


cdef object problem_of(MappedIndexFile* p, const MappedIndexFile* before):
    """What is wrong with a file's header, by its first and last unit and the file before it; None: nothing.

    Nothing can be said of the order of files: records that RocketMQ put twice may fill some of them.
    """
    cdef IndexUnit first, last
    if p.count > p.units:
        return f"its header counts {p.count - 1} units, and it has room for {p.units - 1}"
    if before != NULL and not part_is_full(before) and not p.foreign:
        return "the file before it is not full"
    if not part_get(p, 1, &first) or not part_get(p, p.count - 1 if p.count > 1 else 1, &last):
        return "it became shorter, or unreadable"
    if p.count > 1 and p.begin_phy != first.phy_offset:
        return "its header does not agree with its first unit"
    if p.foreign:
        return None     # who writes it may be in the middle of it; RocketMQ writes the header now and then only
    if p.count <= 1:
        return "its header counts no units, and there are some" if first.key_hash or first.phy_offset else None
    if p.end_phy != last.phy_offset:
        return "its header does not agree with its last unit"
    if p.begin_phy < 0 or p.end_phy < 0 or not 0 < p.used_slots < p.count:
        return "its header is none"
    return None
