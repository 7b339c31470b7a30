# cython: language_level=3
"""MessageStore: a store that is open. How it takes messages is in _puts, how it hands them out in _gets, and the bytes
of its log in _raw."""
import atexit
import contextlib
import os
import threading
import warnings
import weakref
from functools import partial

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t
from posix.unistd cimport usleep

from rocketc.c.atomic cimport rc_load_i64, rc_store_i64
from rocketc.c.service cimport rc_clock_ns
from rocketc.c.status cimport RC_CLOSED, RC_FLUSH_TIMEOUT, RC_MORE, RC_OK, RC_OUT_OF_ORDER
from rocketc.derived._reput cimport ReputService
from rocketc.format._text_table cimport TextTable
from rocketc.log._flusher cimport flusher_flush
from rocketc.log._message_args cimport MessageArgsEncoder
from rocketc.log._put_result cimport closed, failure
from rocketc.store._lookups cimport Lookups
from rocketc.store._queue_reader cimport QueueReader
from rocketc.store._raw cimport RawAccess

from rocketc.errors import PhyOffsetError
from rocketc.files.lock_file import close_all
from rocketc.rendering import html_of
from rocketc.status import PutStatus
from rocketc.store.cleaning import expired_queues, unused_topics
from rocketc.tables.offsets import ConsumerOffsets

cdef enum:
    SLICE_NS = 50000000             # how long a wait goes on before signals are looked after

_open = weakref.WeakSet()


@contextlib.contextmanager
def _held(offsets, topics):
    """Puts to these topics wait."""
    offsets.hold({topic.encode("utf-8", "surrogateescape") for topic in topics})
    try:
        yield
    finally:
        offsets.release()


@contextlib.contextmanager
def _still(keeper, path, stepper):
    """Pause and return what keeps the offsets of groups: the GroupOffsets of a Queue, or the table."""
    positions = None if keeper is None else keeper()
    if positions is None:
        yield ConsumerOffsets(path) if stepper is None else ConsumerOffsets(path, clock=stepper.last)
    else:
        with positions.paused():
            yield positions


def _forked():
    """In a forked child the stores of its parent are dead: no thread of theirs is here, and the files are not ours."""
    for store in list(_open):
        store._abandon()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_all, _open)  # what was acknowledged goes to the disk


cdef int done(step, list errors) except -1:
    """A step of close() that is Python, where what a signal's handler raises arrives: errors take it, and the step is
    done anew, which each can be. So is one that fails, once; an interrupt is no failure, however often it comes."""
    cdef int failures = 0
    while failures < 2:
        try:
            step()
            return 0
        except Exception as error:
            errors.append(error)
            failures += 1
        except BaseException as error:
            errors.append(error)
    return 0


cdef class MessageStore(RawAccess):
    """A store that is open: rocketc.open() makes it, close() or `with` ends it.

    Any number of threads may use it. It belongs to the process that opened it: a forked child can't write.
    """

    @staticmethod
    def _make(
        str path, config, root, QueueReader reader not None, Lookups lookups not None, ReputService dispatcher, waiters,
        maintenance=None, tell=None, stepper=None,
    ):
        """For rocketc.open: what reads, what follows the log (None to read only), and the classes of who waits.

        maintenance  makes a Maintenance of what is called when a disk is full
        tell       called with `failed` when there is something for the log of the library
        stepper    a Stepper: there are no threads, step() does their work
        """
        cdef MessageStore store = MessageStore.__new__(MessageStore)
        store.closed = True             # until it is whole
        store.path = path
        store.config = config
        store.dispatcher = dispatcher
        store.log = dispatcher.log if dispatcher is not None else None
        store._root = root
        store.reader = reader
        store.lookups = lookups
        store._future, store._event_loops_class, store._followers_class = waiters
        store._encoder = MessageArgsEncoder(config)
        store._known = TextTable()
        store._numbering = threading.Lock()
        store._timeout_ns = config.sync_flush_timeout * 1_000_000
        store._sync = config.flush == "sync"
        store._slave = config.broker_role == "SLAVE"
        if dispatcher is not None:
            me = weakref.ref(store)
            store._maintenance = maintenance(lambda full: me() is None or me()._set_full(full))
            store._keeps_topics = store._maintenance.keeps_topics
            store._tell = tell
            store._stepper = stepper
            if stepper is not None:
                store._timeout_ns = INT64_MAX // 2      # it waits for itself alone: a timeout would be chance
            _open.add(store)
        store.closed = False
        return store

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __reduce__(self):
        raise TypeError("a MessageStore belongs to its process: open it in the other one")

    def __del__(self):
        if self.log is not None and not self.closed and self._is_ours():
            try:
                warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self)
            finally:                    # a warning may be an error
                self.close()

    def __repr__(self):
        state = "closed" if self.closed else "read-only" if self.log is None else self.config.flush
        if self.log is not None and rc_load_i64(&self.log.fl.failed) != 0:
            state = f"{state}, failed"
        return f"<rocketc.MessageStore {self.path!r}, {state}>"

    def _repr_html_(self):
        return html_of(self)

    # durability and the end

    def flush(self):
        """Make durable all that was put before; return the flushed physical offset. Raises StoreFailedError.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.flush() == store.put("orders", b"hello").phy_offset
        True
        """
        cdef int rc
        self._enter()
        try:
            with nogil:
                rc = flusher_flush(&self.log.fl, 0)
            self._tell_news()
            if rc != RC_OK:
                raise failure(self.log, self.path)
            return rc_load_i64(&self.log.q.flushed)
        finally:
            self._leave()

    def wait_flushed(self, int64_t end, timeout=None):
        """Wait until all before a physical offset is durable: True, or False if it is not after timeout seconds.

        Raises StoreFailedError.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.wait_flushed(store.put("orders", b"hello").end, timeout=5)
        True
        """
        cdef int64_t until = INT64_MAX if timeout is None else rc_clock_ns() + <int64_t>(timeout * 1e9)
        self._enter()
        try:
            return self._wait(end, until) is PutStatus.PUT_OK
        finally:
            self._leave()

    def confirm(self, int64_t phy_offset):
        """All before a physical offset is where it has to be, on the replicas perhaps: move confirmed_phy_offset there.

        It never goes back: a lower one than before does nothing. Threads in wait_confirmed() are woken, and with
        hold_readers the messages before it can be read. Raises PhyOffsetError if the log ends before it, ClosedError;
        nothing is changed then.
        Source: RocketMQ DefaultMessageStore.setConfirmOffset.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), hold_readers=True, mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"hello")
        ...     store.confirmed_phy_offset, len(store.get("orders"))
        ...     store.confirm(r.end)
        ...     store.confirmed_phy_offset == r.end, len(store.get("orders"))
        (0, 0)
        (True, 1)
        """
        cdef int rc
        self._enter()
        try:
            rc = self.log.confirm(phy_offset)
            if rc == RC_OUT_OF_ORDER:
                end = rc_load_i64(&self.log.q.wrote)
                raise PhyOffsetError(
                    f"{self.path}: physical offset {phy_offset} can't be confirmed: the log ends at {end}", phy_offset
                )
        finally:
            self._leave()

    def wait_confirmed(self, int64_t end, timeout=None):
        """Wait until all before a physical offset is confirmed: True, or False if it is not after timeout seconds.

        Any number of threads may wait; one is woken when its own offset is reached. Raises StoreFailedError, and
        ClosedError if the store is closed meanwhile.
        Source: RocketMQ GroupTransferService.

        >>> import rocketc, tempfile, threading
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     end = store.put("orders", b"hello").end
        ...     threading.Timer(0.01, store.confirm, [end]).start()
        ...     store.wait_confirmed(end, timeout=5), store.wait_confirmed(end + 1, timeout=0)
        (True, False)
        """
        cdef int64_t until = INT64_MAX
        cdef int rc = RC_MORE
        if timeout is not None:
            until = rc_clock_ns() + <int64_t>(min(max(float(timeout), 0.0), 1e9) * 1e9)
        self._enter()
        try:
            while rc == RC_MORE:
                PyErr_CheckSignals()
                with nogil:
                    rc = self.log.confirmed_position.wait(end, until, SLICE_NS)
            if rc == RC_CLOSED:
                raise closed(f"{self.path}: the store was closed meanwhile")
            if rc != RC_OK and rc != RC_FLUSH_TIMEOUT:
                raise failure(self.log, self.path)
            return rc == RC_OK
        finally:
            self._leave()

    def step(self):
        """Do what the threads of a store would do by now, in this thread; only with open(background=False).

        The clock is read once. Then, always in this order:
        1. with the transient pool, messages go from its buffers into the files: each commit_interval_commit_log
        2. the log is flushed: each flush_interval_commit_log, in sync mode at each step; then the checkpoint is written
        3. messages come into queues and index, and subscribers are told; in sync mode those that are durable
        4. queues and index are made durable: each flush_interval_consume_queue; then the checkpoint is written
        5. the next file and the next pages of the log are made
        6. the table of topics is written, each second; what is too old is deleted, each clean_resource_interval
        7. futures of put_async are finished, in sync mode those whose messages are durable
        Intervals are those of the clock, and begin when the store is opened; where it goes back they begin anew.
        Returns whether it did anything: as long as it does, the next step may find more. Raises StoreFailedError if the
        store has failed, RuntimeError if it has threads of its own, ClosedError, and what the clock raises.

        >>> import rocketc, tempfile
        >>> now = 1_700_000_000_000
        >>> store = rocketc.open(
        ...     tempfile.mkdtemp(), clock=lambda: now, background=False, mapped_file_size_commit_log=1 << 20
        ... )
        >>> with store:
        ...     r = store.put_many("orders", [b"hello"] * 1000)
        ...     r.store_timestamp, store.flushed_phy_offset
        ...     now += 500
        ...     store.step(), store.flushed_phy_offset == r.end, store.step()
        (1700000000000, 0)
        (True, True, False)
        """
        cdef bint did
        self._enter()
        try:
            if self._stepper is None:
                raise RuntimeError(f"{self.path}: the store has threads: step() is for open(background=False)")
            did = self._stepper.step(self._maintenance)
            self._tell_news()
            if self._finisher is not None:
                self._finisher.finish()
            if rc_load_i64(&self.log.fl.failed) != 0:
                raise failure(self.log, self.path)
            return did
        finally:
            self._leave()

    @property
    def background(self):
        """Whether the store has threads of its own; False: step() does their work."""
        return self._stepper is None

    cdef int _enter_now(self) except -1:
        """_enter() for what goes by the time: a store without threads reads its clock."""
        self._enter()
        if self._stepper is not None:
            try:
                self._stepper.read_clock()
                self.log.stamp_files()
            except BaseException:
                self._leave()
                raise
        return 0

    def close(self):
        """Let the calls under way end, flush, and give the store up; does nothing the second time.

        Puts of other threads that come later get ClosedError. Raises StoreFailedError if the store has failed; it is
        closed then too, and the next open() recovers it. A KeyboardInterrupt, and whatever else a signal's handler
        raises meanwhile, comes when the store is closed. A handler that calls it while its thread is in a call of the
        store gets ClosedError, which ends that call; the store is open then.

        >>> import rocketc, tempfile
        >>> store = rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20)
        >>> store.close()
        >>> store.put("orders", b"hello")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        rocketc.errors.ClosedError: ...: the store is closed
        """
        cdef int rc = RC_OK
        cdef list errors = []
        if self.closed:
            return
        if not self._is_ours():
            self.closed = True
            return
        self._refuse_inside()
        if self._closing:
            if self._closer != threading.get_ident():   # else a signal's handler calls it, in the midst of it
                self._wait_closed(None)
            return
        self._closer = threading.get_ident()
        self._closing = True
        if self.dispatcher is not None:
            self.dispatcher.end_waits()
            self.log.confirmed_position.end()
        while rc_load_i64(&self._calls) > 0:
            with nogil:
                usleep(200)
        try:
            if self.log is not None:
                rc = self._end_writing(errors)
            else:
                self.reader.queues.close()
                if self.lookups.index is not None:
                    self.lookups.index.close()
        finally:
            self.closed = True
        if self._followers is not None:
            done(self._followers.detach, errors)
            self._followers = None
        self._tell_news()
        if errors:
            raise errors[0]
        if rc != RC_OK:
            raise failure(self.log, self.path)

    def _refuse_inside(self, bint also=False):
        """Raise ClosedError where close() would wait for its own caller.

        also  whoever has the store knows that it would
        """
        if also or self._is_inside():
            raise closed(
                f"{self.path}: close() inside a call of the same thread, by a signal's handler perhaps: this ends the "
                "call, and the store is still open"
            )

    cdef int _end_writing(self, list errors) except? -1:
        """All that gives the store up; what is raised goes to errors. RC_OK, or why not all is on the disk."""
        cdef int rc
        done(self._maintenance.stop, errors)
        with nogil:
            rc = flusher_flush(&self.log.fl, 0)     # in sync mode the rest can be dispatched then
        whole = self.dispatcher.stop()
        rc = self.log.stop()
        done(partial(_open.discard, self), errors)
        if self._event_loops is not None:
            done(self._event_loops.detach, errors)
            self._event_loops = None
        if self._finisher is not None and self._stepper is not None:
            done(self._finisher.finish, errors)
        done(partial(self._root.end, rc == RC_OK and whole), errors)
        done(self._root.release, errors)
        return rc

    def _set_full(self, bint full):
        """From the cleaner: whether a disk is too full for more messages."""
        self._full = full

    def _wait_closed(self, timeout):
        """Until the close() under way in another thread has ended, or for so many seconds."""
        cdef int64_t until = INT64_MAX if timeout is None else rc_clock_ns() + <int64_t>(timeout * 1e9)
        while not self.closed and rc_clock_ns() < until:
            with nogil:
                usleep(200)
            PyErr_CheckSignals()

    def _abandon(self):
        """In a forked child: nothing of the store is ours."""
        self.closed = True
        self.dispatcher.forget()
        self.log.forget()

    # what it is doing

    @property
    def read_only(self):
        return self.log is None

    @property
    def failed(self):
        """The StoreFailedError that a put would raise, or None."""
        if self.log is None or rc_load_i64(&self.log.fl.failed) == 0:
            return None
        return failure(self.log, self.path)

    @property
    def max_phy_offset(self):
        """The end of the log: where the next record goes, or a blank one before it."""
        return self._root.max_phy_offset if self.log is None else rc_load_i64(&self.log.q.wrote)

    @property
    def min_phy_offset(self):
        """Physical offset that the first file begins at; 0 for an empty log."""
        return self._root.min_phy_offset if self.log is None else max(self.log.queue.min_offset, 0)

    @property
    def flushed_phy_offset(self):
        """All records before it are durable."""
        return self.max_phy_offset if self.log is None else rc_load_i64(&self.log.q.flushed)

    @property
    def confirmed_phy_offset(self):
        """All records before it are confirmed: by confirm(), or because the log had them when it was opened."""
        return self.max_phy_offset if self.log is None else rc_load_i64(&self.log.confirmed_position.at)

    @property
    def flushed_position(self):
        """The Position of flushed_phy_offset, for callers in C; None if the store is open for reading only."""
        return None if self.log is None else self.log.flushed_position

    @property
    def confirmed_position(self):
        """The Position of confirmed_phy_offset, for callers in C; None if the store is open for reading only."""
        return None if self.log is None else self.log.confirmed_position

    @property
    def dispatched_phy_offset(self):
        """All records before it are in queues and index; of a store that is open for reading, the end of the log."""
        return self.max_phy_offset if self.dispatcher is None else self.dispatcher.dispatched_phy_offset

    # topics, and what is too old

    def topics(self):
        """The table of topics, config/topics.json: {name: TopicConfig}. Topics without an entry are not in it.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.create_topic("orders", queues=2).perm, store.topics()["orders"].read_queue_nums
        (6, 2)
        """
        self._enter_reading()
        try:
            if self._maintenance is None:
                return dict(self._root.topics())
            return dict(self._maintenance.topics)
        finally:
            self._leave()

    def create_topic(self, str name not None, **fields):
        """Make a topic, or change one that is there; return its TopicConfig. It is on the disk then.

        queues                             of both kinds, where the next two do not say; 4
        read_queue_nums, write_queue_nums  queues that consumers read, and that producers write to
        perm                               bits: 4 read, 2 write, 1 inherit
        order                              its messages are ordered
        queue_type                         "SimpleCQ" or "BatchCQ"; it never changes
        message_type                       "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED" or "UNSPECIFIED"
        attributes                         others; `+name` says the same as `name`, `-name` takes it away
        From the first one on the store keeps its table of topics: a put to another topic makes it, too, or is refused
        if auto_create_topic_enable is off. Raises IllegalMessageError for a name that no topic can have, ValueError for
        other values that RocketMQ has not; StoreIOError, StoreFullError.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.create_topic("orders", message_type="FIFO").message_type
        'FIFO'
        """
        self._enter_now()
        try:
            topic = self._maintenance.create(name, **fields)
            if not self._keeps_topics:
                self._keeps_topics = True
                self._met = None
                self._known = TextTable()       # others were met without a look into the table of topics
            return topic
        finally:
            self._leave()

    def delete_topics(self, names):
        """Delete topics: their consume queues, and their entries in the table of topics; return how many there were.

        names  a name, or several; RocketMQ's own topics too, if you say so
        What was put to them before is in no queue from then on, and stays so whatever happens: a note in the store
        tells (config/deletedTopics.json). The next message of such a topic gets queue offset 0. The old ones stay in
        the log until its files are deleted: scan() and query() find them. How far groups have consumed them is
        forgotten (config/consumerOffset.json), before all else: a crash in between costs no message, but some may come
        twice. Puts of other threads to these topics, or to queues that are new, wait meanwhile. Raises StoreIOError,
        StoreFullError, StoreFailedError; then it may be done in part, and the next call goes on.
        Source: RocketMQ DefaultMessageStore.deleteTopics.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one"), store.put("audit", b"two")
        ...     store.delete_topics(["orders", "no such topic"]), store.queues()
        ...     store.put("orders", b"new").queue_offset
        (1, [('audit', 0)])
        0
        """
        return len(self._delete({names} if isinstance(names, str) else set(names)))

    def clean_unused_topics(self, retain):
        """Delete all topics but some: delete_topics() of those that have queues; return the names, sorted.

        retain  the names of those that stay; RocketMQ's own topics and light queues do, too
        Source: RocketMQ DefaultMessageStore.cleanUnusedTopic.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = [store.put(topic, b"hello") for topic in ("orders", "audit", "TBW102")]
        ...     store.wait_dispatched(), store.clean_unused_topics(retain=["orders"]), store.queues()
        (True, ['audit'], [('TBW102', 0), ('orders', 0)])
        """
        retain = {retain} if isinstance(retain, str) else set(retain)
        return sorted(self._delete(set(unused_topics({topic for topic, _ in self.queues()}, retain))))

    def clean_expired_queues(self):
        """Delete queues that had messages once, and have none in the log any more; return their (topic, queue id).

        The next message of such a queue gets queue offset 0, and how far groups have consumed it is forgotten. Entries
        in the table of topics stay, and so do the queues of RocketMQ's own topics. Raises as delete_topics() does.
        Source: RocketMQ DefaultMessageStore.cleanExpiredConsumerQueue.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 12) as store:
        ...     r = store.put("old", b"hello"), store.put_many("orders", [bytes(1000)] * 10)
        ...     store.wait_dispatched(), store.clean(expired_ms=-1).log_files > 0
        ...     store.clean_expired_queues(), store.queues()
        (True, True)
        ([('old', 0)], [('orders', 0)])
        """
        self._enter_now()
        try:
            with _still(self._positions, self.path, self._stepper) as positions, self._numbering:
                expired = set(expired_queues(self.reader.queues.phy_ends(), self.min_phy_offset))
                with _held(self.log.offsets, {topic for topic, _ in expired}):
                    self.flush()
                    self.wait_dispatched()      # now no message comes any more; some may have come meanwhile
                    expired &= set(expired_queues(self.reader.queues.phy_ends(), self.min_phy_offset))
                    positions.drop(expired)
                    return sorted(self._maintenance.delete_queues(dict.fromkeys(expired, INT64_MAX), self._drop))
        finally:
            self._leave()

    def _delete(self, set names):
        """Delete topics; the set of those that there were."""
        self._enter_now()
        try:
            self.flush()
            self.wait_dispatched()          # so that the puts to these topics wait for little else
            with (
                _still(self._positions, self.path, self._stepper) as positions, self._numbering,
                _held(self.log.offsets, names),
            ):
                end = self.max_phy_offset
                self.flush()                # what is before `end` can be dispatched then
                self.wait_dispatched()
                positions.drop(names)
                gone = self._maintenance.delete_topics(names, end, self._drop)
            self._forget(names)
            return gone
        finally:
            self._leave()

    def _drop(self, dict ends):
        """Delete queues as ReputService.delete_queues() does; those that there were begin at offset 0 again."""
        try:
            return self.dispatcher.delete_queues(ends)
        finally:
            left = set(self.reader.queues.items())
            self.log.offsets.begin_anew({
                (topic.encode("utf-8", "surrogateescape"), queue_id)
                for (topic, queue_id), _ in self.log.offsets.items()
                if (topic in ends or (topic, queue_id) in ends) and (topic, queue_id) not in left
            })

    def clean(self, *, asked=True, expired_ms=None, now=None):
        """Delete log files that are too old, and what of queues and index tells of nothing else; return a CleanReport.

        asked       at any hour of the day; False: only at those of delete_when, or where the disk is too full
        expired_ms  a file that was not changed for so long goes; None: file_reserved_time hours
        now         ms since the epoch; None: the clock's
        The last file always stays, and so does one that a view holds, with those behind it. delete_file_batch_max files
        go in one call. A store does it by itself every clean_resource_interval ms, if that is not 0.
        Raises StoreIOError; what was deleted before that is.
        Source: RocketMQ CleanCommitLogService.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 12) as store:
        ...     r = store.put_many("orders", [bytes(1000)] * 10)
        ...     store.wait_dispatched(), store.clean(expired_ms=-1).log_files > 0, store.min_offset("orders") > 0
        (True, True, True)
        """
        self._enter_now()
        try:
            return self._maintenance.clean(asked=asked, expired_ms=expired_ms, now=now)
        finally:
            self._leave()

    def attach_offsets(self, positions):
        """Let an object that keeps the offsets of consumer groups take part when queues are deleted.

        positions  has paused(), a context manager in which no offset moves, and drop(topics); a weak reference is kept.
                   rocketc.Queue attaches its own; without one, config/consumerOffset.json is changed

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as queue:
        ...     queue.store.attach_offsets(queue)
        """
        self._positions = weakref.ref(positions)

    def delete_before(self, int64_t phy_offset):
        """Delete the log files that end at or before a physical offset, whatever their age; return a CleanReport.

        The caller knows that nobody needs their messages; rocketc.Queue does, of those that all groups have acked.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 12) as store:
        ...     r = store.put_many("orders", [bytes(1000)] * 10)
        ...     store.wait_dispatched(), store.delete_before(r.end).log_files, store.min_offset("orders")
        (True, 3, 9)
        """
        self._enter_now()
        try:
            return self._maintenance.delete_before(phy_offset)
        finally:
            self._leave()

    def stats(self):
        """Counters since the store was opened, and how long things took.

        Times are in ns: {"count", "p50", "p99", "p999", "max", "sum"} of every 16th put, each flush, each roll to a new
        file, and each wait for the put lock that was not free. `calls` and `waiting_readers` are those of now. A store
        that is open for reading only has none of it. rocketc.metrics has these numbers, and more, for monitoring.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), flush="sync", mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"hello")
        ...     store.stats()["records"], store.stats()["flush_time"]["count"]
        (1, 1)
        """
        if self.log is None:
            return {}
        return self.log.stats() | self.dispatcher.stats() | {
            "refused": rc_load_i64(&self._refused), "calls": rc_load_i64(&self._calls),
        }

    def measurements(self):
        """The numbers that rocketc.metrics makes metrics of, as of now: a dict. Raises ClosedError.

        by_queue        as QueueTable.counts() has them
        log_bytes       of the log's files; index_files: their paths
        log_files       only if it is open for reading: each a LogFile
        The others only if it is open for writing: all of stats(), and
        histograms      as CommitLog.histograms() has them
        sizes           as ReputService.sizes_of_records() has them
        dispatched_phy_offset, disk_full, appending_since

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"hello")
        ...     store.measurements()["log_bytes"]
        1048576
        """
        self._enter_reading()
        try:
            self._tell_news()
            self._look_around()
            self.reader.queues.look_at_all()
            index = self.lookups.index
            found = {
                "by_queue": self.reader.queues.counts(),
                "log_bytes": self.reader.log.size,
                "index_files": index.files if index is not None else [],
            }
            if self.log is None:
                found["log_files"] = self._root.log_files()
            else:
                found |= self.stats()
                found["histograms"] = self.log.histograms()
                found["sizes"] = self.dispatcher.sizes_of_records()
                found["dispatched_phy_offset"] = self.dispatcher.dispatched_phy_offset
                found["appending_since"] = self.log.appending_since
                found["disk_full"] = bool(self._full)
            return found
        finally:
            self._leave()

    # test hooks

    def _set_clock(self, timestamp):
        self.log.set_clock(timestamp)

    def _roll(self):
        self.log.roll()

    def _hook(self, str name, value):
        """As CommitLog.hook() has them, and
        most_behind   bytes that may not be dispatched before it is told of
        feed_entries  as ChangeFeed.set_entries() has them
        clock         ms: of store timestamps as _set_clock() takes it, and of index files
        """
        if name == "most_behind":
            rc_store_i64(&self.dispatcher.most_behind, value)
        elif name == "feed_entries":
            self.dispatcher.feed.set_entries(value)
        elif name == "clock":
            self.dispatcher.set_clock(value)
        else:
            self.log.hook(name, value)
