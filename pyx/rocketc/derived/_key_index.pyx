# cython: language_level=3
"""The index of a running store: maps the hash of a topic and key to the physical offsets of the records.

While a store is being opened, check_put() compares existing units with the log. The first file that differs and the
files after it are deleted and rebuilt from the log. Source: RocketMQ IndexService
"""
import os
import re
import stat
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
    IndexUnit, MappedIndexFile, part_begin, part_check, part_free, part_free_rest, part_get, part_is_full,
    part_map, part_new, part_read_header, part_search, part_unmap, time_diff, unit_times,
)

from rocketc.derived._index_reader import IndexFile
from rocketc.errors import StoreIOError
from rocketc.files.durable import errors_named

cdef enum:
    FOUND_ROOM = 64     # offsets that offsets() reads at once
    DOUBLED_ROOM = 64
    AHEAD = 16          # prefetch distance of the benchmarks

_NAME = re.compile(r"\d{1,18}")


cdef class KeyIndex(IndexFileQueue):
    """The index of one store. load() reads existing files; new files are created for keys.

    folder     str or os.PathLike
    slots      hash slots of a file (maxHashSlotNum)
    units      units of a file (maxIndexNum); RocketMQ does not use the first one
    read_only  another process writes: nothing is written or deleted here; refresh() reads what is new
    """

    def __cinit__(self, *_args, **_fields):
        self._checked_phy = -1
        self._problems = []
        self._refreshing = threading.Lock()
        self.dropped = []

    # ------------------------------------------------------------------------------------ comparing with the log

    cdef int start_checking(self, int64_t phy_offset) noexcept nogil:
        """Make check_put() compare, beginning at this physical offset, where a record of the log begins.

        Units of earlier records are kept. Returns RC_OK or the error of mapping a file.
        """
        cdef IndexUnit u
        cdef MappedIndexFile* p
        cdef int64_t low, high, middle
        cdef int i, rc
        self._at = NULL
        self._has_mismatch = False
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
        """Put a key, unless the next existing unit is equal, as it should be.

        RocketMQ puts some records again when it starts. Duplicate units are kept. Returns RC_BAD_CHAIN if the next unit
        differs: `mismatch` describes it, repair() removes it. Otherwise returns what put() returns.
        """
        while self._at != NULL and not self._fits(hashed, phy_offset, store_timestamp):
            if not self._is_doubled():
                return self._set_mismatch(phy_offset)
            self._step()
        self._checked_phy = phy_offset
        if self._at == NULL:
            return self.put(hashed, phy_offset, store_timestamp)
        self._step()
        return RC_OK

    cdef int stop_checking(self) noexcept nogil:
        """End the comparison. Returns RC_BAD_CHAIN, and sets a mismatch, if units without a record are left."""
        while self._at != NULL and self._is_doubled():
            self._step()
        return RC_OK if self._at == NULL else self._set_mismatch(-1)

    cdef void _step(self) noexcept nogil:
        """Advance to the next unit to compare."""
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
        """Whether the next unit is of a record that was compared before, and equal to an older unit."""
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
                return u.time_diff == (older.time_diff if n > 1 else 0)     # unit 1 has the begin timestamp
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
        """Whether the next unit is equal, and the header agrees if it is the first or last unit of a file."""
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
            # RocketMQ counts from the end of the file before. If that is deleted, the time can't be checked.
            if i > 0 and u.time_diff != time_diff(self._parts[i - 1].end_timestamp, store_timestamp):
                return False
        return self._unit < p.count - 1 or (p.end_timestamp == store_timestamp and p.end_phy == phy_offset)

    cdef int _set_mismatch(self, int64_t phy_offset) noexcept nogil:
        self._has_mismatch = True
        self._mismatch_phy = phy_offset
        return RC_BAD_CHAIN

    @property
    def mismatch(self):
        """The difference that check_put() found, as text, or None."""
        if not self._has_mismatch:
            return None
        path = os.fsdecode(self._at.path)
        log = f"the record at physical offset {self._mismatch_phy}" if self._mismatch_phy >= 0 else "no more records"
        return f"{path}: unit {self._unit} is different from the log, which has {log} there"

    def repair(self):
        """Delete the first file that is damaged or differs from the log, and all files after it.

        Returns the physical offset of the record from which the log must be dispatched again; -1: from the beginning.
        Call start_check() with this number, then put_keys(..., compare=True).
        """
        cdef list names = list(self._problems)
        self._check_writable()
        if self._has_mismatch:
            names.append(self._at.name)
        self._at = NULL
        self._has_mismatch = False
        self._unread = -1
        self._problems.clear()
        if names:
            self._destroy_from(min(names))
        self._open_last()
        return self.end_phy()

    def _destroy_from(self, int64_t name):
        """Delete the file with this name and all later ones."""
        while self._count > 0 and self._parts[self._count - 1].name >= name:
            if not self._remove(self._count - 1):
                path = os.fsdecode(self._parts[self._count - 1].path)
                raise StoreIOError(EBUSY, "the file is still in use by a reader: try again", path)
        for number, path in self._list():
            if number >= name:
                self._unlink(path)

    def _open_last(self):
        """Make the last file writable if it is not full."""
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
        """Return a sorted list of (number, path) of the files whose names are numbers."""
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
        """Find the files and check their headers. Files whose names are not numbers are ignored.

        clean                the store was closed. Otherwise the first file that ends after index_msg_timestamp is
                             deleted, and all files after it, as in RocketMQ; see `dropped`. No other file is deleted
        index_msg_timestamp  ms, of the checkpoint
        queued               the same as a physical offset, if known: the clock may have gone back
        Returns the problems, a text for each file. If there are any, find() raises until repair() was called.
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
                    continue            # deleted after it was listed
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
        """Delete files by RocketMQ's rule after an unclean exit: files newer than the checkpoint may be incomplete.

        Returns the remaining problems.
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
            # A killed process may have written part of a unit that is not counted.
            what = self._check_part(self._parts[self._count - 1])
            if what is not None:
                problems.append((self._parts[self._count - 1].name, what))
        return problems

    def _take(self, int64_t name, str path):
        """Add a file to the queue. Returns None, or its problem as text."""
        cdef MappedIndexFile* p
        cdef MappedIndexFile* before = self._parts[self._count - 1] if self._count > 0 else NULL
        cdef int64_t slots = self.slots, units = self.units, size
        cdef int rc
        if not self.read_only and not stat.S_ISREG(os.lstat(path).st_mode):
            return "not a regular file"
        size = os.path.getsize(path)
        wanted = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES + units * RC_INDEX_UNIT_BYTES
        if size != wanted and self.read_only:
            with IndexFile(path) as file:
                if file.slots is not None:
                    slots = file.slots
                    units = (size - RC_INDEX_HEADER_BYTES - slots * RC_INDEX_SLOT_BYTES) // RC_INDEX_UNIT_BYTES
                    wanted = RC_INDEX_HEADER_BYTES + slots * RC_INDEX_SLOT_BYTES + units * RC_INDEX_UNIT_BYTES
        if size != wanted or units < 2:
            return f"it has {size} bytes; with these settings, a file of the index has {wanted}"
        if before != NULL and before.name == name:
            return "another file has the same number as its name"
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
        """Find files that the writing process has created and deleted. Does nothing in the writing process."""
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
                except (OSError, ValueError):   # it is being created or was just deleted
                    continue
                if what is not None:
                    self._problems.append(name)
        rc_store_i64(&self._unread, <int64_t>min(self._problems, default=-1))

    # ------------------------------------------------------------------------------------ flush, expire, close

    def flush(self, bint active=True):
        """Call flush_files(). Returns the time for the checkpoint; 0: there is none yet. Raises StoreIOError."""
        cdef int64_t timestamp = 0
        cdef int rc
        self._check_open()
        with nogil:
            rc = self.flush_files(active, &timestamp)
        check_file(rc, self.folder)
        return timestamp

    def delete_expired(self, int64_t min_phy_offset):
        """Delete the first files whose records are all before an offset, but not the last file; return their number.

        Stops at a file with a reader. Source: RocketMQ IndexService.deleteExpiredFile.
        """
        cdef int deleted = 0
        self._check_writable()
        while (
            self._part(1) != NULL and rc_load_i64(&self._part(0).end_phy) < min_phy_offset and self._remove(0)
        ):
            deleted += 1
        return deleted

    def destroy(self):
        """Delete all files. Raises StoreIOError if a file has a reader."""
        self._check_writable()
        self._problems.clear()
        self._at = NULL
        self._has_mismatch = False
        self._unread = -1
        self._full_timestamp = 0
        self._destroy_from(-1)

    def free_rest(self):
        """Free the disk space of the last file that was never written. No more units are put, and all are durable."""
        if self._last != NULL:
            with nogil:
                part_free_rest(self._last)

    def close(self):
        """Unmap the files. No other thread may put. Syncs nothing: call flush() before. May be called twice."""
        cdef int i
        pthread_mutex_lock(&self._mutex)
        self._closed = True
        self._last = self._at = NULL
        for i in range(self._count - 1, -1, -1):
            if rc_load_i64(&self._parts[i].holds) == 1:     # otherwise __dealloc__ unmaps it
                part_unmap(self._parts[i])
        pthread_mutex_unlock(&self._mutex)

    # ------------------------------------------------------------------------------------ Python

    @property
    def end_phy_offset(self):
        """Physical offset of the last record with a key; -1 if there is none."""
        return self.end_phy()

    @property
    def last_file(self):
        """Number in the name of the last file; -1 if there is none."""
        cdef int64_t name
        pthread_mutex_lock(&self._mutex)
        name = self._parts[self._count - 1].name if self._count > 0 else -1
        pthread_mutex_unlock(&self._mutex)
        return name

    @property
    def last_error(self):
        """Result of the last put: 0, an errno, or a code below 0."""
        return self.error

    def start_check(self, int64_t phy_offset):
        """Call start_checking()."""
        self._check_open()
        check_file(self.start_checking(phy_offset), self.folder)

    def end_check(self):
        """Call stop_checking(). Returns False if units are left: `mismatch` is about the first, repair() removes it."""
        self._check_open()
        return self.stop_checking() == RC_OK

    def put_keys(self, str topic, int64_t phy_offset, int64_t store_timestamp, unique_key=None, keys=None, *,
                 bint compare=False):
        """Put the keys of a record, as record_hashes() finds them. The dispatcher does the same without Python.

        compare  compare with existing units, see start_check(); returns False if one differs, otherwise True
        Raises StoreIOError; some keys may be in the index then. To retry, call start_check(end_phy_offset) first.
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
            raise ValueError("a record may have at most 1024 keys")
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
        """Yield physical offsets of records that may have this key, newest first. The caller compares key and time.

        begin, end  store timestamps in ms, both included
        java        RocketMQ's rules for times: milliseconds are cut off, and records after a clock change may be missed
        Raises CorruptRecordError for a damaged chain, StoreIOError, ClosedError.
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
        """Read all files, and return a list of inconsistencies as text; then call repair(). No thread may put.

        go_on  called before each file; a false result ends the check
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
        """Check one file. Returns None, or text that names the file and its damage."""
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
        """For tests: "clock" in ms sets the names of new files."""
        if name != "clock":
            raise ValueError(name)
        self._clock = value

    def _put_some(self, int64_t count, uint64_t seed, int64_t phy_offset=0, int64_t store_timestamp=1):
        """For benchmarks: put `count` keys with hashes derived from seed, with prefetching as in the dispatcher."""
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
        """For benchmarks: look up the first `count` keys of _put_some(); return the number of offsets, up to 4 each."""
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
    """Check a header against its first and last unit and the file before. Returns the problem as text, or None.

    The order of files can't be checked: some may consist of records that RocketMQ put twice.
    """
    cdef IndexUnit first, last
    if p.count > p.units:
        return f"its header counts {p.count - 1} units, but the file has room for {p.units - 1}"
    if before != NULL and not part_is_full(before) and not p.foreign:
        return "the file before it is not full"
    if not part_get(p, 1, &first) or not part_get(p, p.count - 1 if p.count > 1 else 1, &last):
        return "the file became shorter, or unreadable"
    if p.count > 1 and p.begin_phy != first.phy_offset:
        return "its header does not agree with its first unit"
    if p.foreign:
        return None     # a put may be in progress, and RocketMQ writes the header only from time to time
    if p.count <= 1:
        return "its header counts no units, but the file has some" if first.key_hash or first.phy_offset else None
    if p.end_phy != last.phy_offset:
        return "its header does not agree with its last unit"
    if p.begin_phy < 0 or p.end_phy < 0 or not 0 < p.used_slots < p.count:
        return "its header is not valid"
    return None
