# cython: language_level=3
"""MessageStore: an open store. It inherits putting from _puts, getting from _gets and the raw bytes of the log from
_raw.
"""
import atexit
import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Container
from functools import partial

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from posix.unistd cimport usleep

from rocketc._arguments cimport checked_int, checked_until
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
from rocketc.store.cleaning import expired_queues, refuse_fixed, unused_topics
from rocketc.tables.offsets import ConsumerOffsets

cdef enum:
    SLICE_NS = 50000000             # how long a wait runs before it checks for signals

_open = weakref.WeakSet()


def _kept(retain):
    """Return what is in a name or in several; a table is not copied, because it may change."""
    if isinstance(retain, str):
        return {retain}
    return retain if isinstance(retain, Container) else set(retain)


@contextlib.contextmanager
def _held(offsets, topics):
    """While the context is open, puts to these topics wait."""
    offsets.hold({topic.encode("utf-8", "surrogateescape") for topic in topics})
    try:
        yield
    finally:
        offsets.release()


@contextlib.contextmanager
def _still(keeper, path, stepper):
    """Yield the object that keeps the consumer offsets: the GroupOffsets of a Queue, paused, or the table."""
    positions = None if keeper is None else keeper()
    if positions is None:
        yield ConsumerOffsets(path) if stepper is None else ConsumerOffsets(path, clock=stepper.last)
    else:
        with positions.paused():
            yield positions


def _forked():
    """Abandon all stores in a forked child: their threads do not exist there, and the files belong to the parent."""
    for store in list(_open):
        store._abandon()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_all, _open)  # acknowledged messages are flushed at exit


cdef int done(step, list errors) except -1:
    """Run one Python step of close(); append the exceptions of the step and of signal handlers to errors.

    A step that is interrupted or fails runs again, which is safe for each step. After its second failure it is given
    up; interrupts are not counted.
    """
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
    """An open store. rocketc.open() returns it; close() or the end of its `with` (or `async with`) block closes it.

    Any number of threads may use it, but only in the process that opened it: a forked child must open its own.
    """

    @staticmethod
    def _make(
        str path, config, root, QueueReader reader not None, Lookups lookups not None, ReputService dispatcher, waiters,
        maintenance=None, report=None, stepper=None,
    ):
        """Make a store from its parts; for rocketc.open().

        dispatcher  None: the store is open for reading only
        waiters     the classes of futures, event loops and followers
        maintenance  function that creates a Maintenance; its argument is called when a disk becomes full, or has space
                   again
        report     called with `failed` when there is news for the log of the library
        stepper    a Stepper: there are no threads, step() does their work
        """
        cdef MessageStore store = MessageStore.__new__(MessageStore)
        store.closed = True             # until all fields are set
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
            store._report = report
            store._stepper = stepper
            if stepper is not None:
                store._timeout_ns = INT64_MAX // 2      # only its own steps end the wait: no timeout by chance
            _open.add(store)
        store.closed = False
        return store

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        if self.background:
            from rocketc.store.futures import close_in_thread

            await close_in_thread(self.close)
        else:
            self.close()                # step() runs on the caller's thread, and so does this

    def __reduce__(self):
        raise TypeError("a MessageStore can't be pickled: it belongs to its process; open it in the other process")

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

    # durability and closing

    def flush(self):
        """Make all messages put so far durable; return the flushed physical offset. Raises StoreFailedError.

        If queues and index lack more than 64 MiB of the log on the disk, they are made durable too. Then a recovery
        reads less.

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
                if rc == RC_OK:
                    self.dispatcher.settle_if_far()
            self._report_news()
            if rc != RC_OK:
                raise failure(self.log, self.path)
            return rc_load_i64(&self.log.q.flushed)
        finally:
            self._leave()

    def wait_flushed(self, end, timeout=None):
        """Wait until all bytes before a physical offset are durable; return False if timeout seconds pass before that.

        Raises StoreFailedError.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.wait_flushed(store.put("orders", b"hello").end, timeout=5)
        True
        """
        cdef int64_t position = checked_int("end", end, INT64_MIN, INT64_MAX), until = checked_until("timeout", timeout)
        self._enter()
        try:
            return self._wait(position, until) is PutStatus.PUT_OK
        finally:
            self._leave()

    def confirm(self, phy_offset):
        """Set confirmed_phy_offset: all bytes before it are where they must be, for example on the replicas.

        A value lower than the current one is ignored. The call wakes threads in wait_confirmed(). With
        hold_readers, the messages before the offset become readable.
        Raises PhyOffsetError if the log ends before phy_offset, ClosedError; then nothing changes.
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
        cdef int64_t position = checked_int("phy_offset", phy_offset, INT64_MIN, INT64_MAX)
        cdef int rc
        self._enter()
        try:
            rc = self.log.confirm(position)
            if rc == RC_OUT_OF_ORDER:
                end = rc_load_i64(&self.log.q.wrote)
                raise PhyOffsetError(
                    f"{self.path}: physical offset {phy_offset} can't be confirmed: the log ends at {end}", phy_offset
                )
        finally:
            self._leave()

    def wait_confirmed(self, end, timeout=None):
        """Wait until all bytes before a physical offset are confirmed; return False if timeout seconds pass first.

        Any number of threads may wait; each wakes when its own offset is reached. Raises StoreFailedError, and
        ClosedError if the store is closed in the meantime.
        Source: RocketMQ GroupTransferService.

        >>> import rocketc, tempfile, threading
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     end = store.put("orders", b"hello").end
        ...     threading.Timer(0.01, store.confirm, [end]).start()
        ...     store.wait_confirmed(end, timeout=5), store.wait_confirmed(end + 1, timeout=0)
        (True, False)
        """
        cdef int64_t position = checked_int("end", end, INT64_MIN, INT64_MAX), until = checked_until("timeout", timeout)
        cdef int rc = RC_MORE
        self._enter()
        try:
            while rc == RC_MORE:
                PyErr_CheckSignals()
                with nogil:
                    rc = self.log.confirmed_position.wait(position, until, SLICE_NS)
            if rc == RC_CLOSED:
                raise closed(f"{self.path}: the store was closed during this call")
            if rc != RC_OK and rc != RC_FLUSH_TIMEOUT:
                raise failure(self.log, self.path)
            return rc == RC_OK
        finally:
            self._leave()

    def step(self):
        """Do the work of the store's background threads, in this thread; only with open(background=False).

        A step reads the clock once. Then it does, always in this order:
        1. with the transient pool: write messages from its buffers to the files, every commit_interval_commit_log
        2. flush the log every flush_interval_commit_log, in sync mode in each step; then write the checkpoint
        3. dispatch messages to queues and index, and notify subscribers; in sync mode only durable messages
        4. flush queues and index every flush_interval_consume_queue; then write the checkpoint
        5. create the next file and prepare the next pages of the log
        6. write the table of topics every second; delete expired files every clean_resource_interval
        7. finish futures of put_async; in sync mode only those of durable messages
        Intervals are measured with the store's clock from open() on. They restart when the clock goes back.
        Returns True if it did something: then the next step may find more. Raises StoreFailedError if the store has
        failed, RuntimeError if the store has threads of its own, ClosedError, and errors of the clock.

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
            self._report_news()
            if self._finisher is not None:
                self._finisher.finish()
            if rc_load_i64(&self.log.fl.failed) != 0:
                raise failure(self.log, self.path)
            return did
        finally:
            self._leave()

    @property
    def background(self):
        """True if the store has threads of its own; False: step() does their work."""
        return self._stepper is None

    cdef int _enter_now(self) except -1:
        """_enter() for calls that depend on the time: a store without threads reads its clock."""
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
        """Wait for running calls, flush, and close the store. A second call does nothing.

        Later puts of other threads raise ClosedError. Raises StoreFailedError if the store has failed: it is closed
        then too, and the next open() recovers it. KeyboardInterrupt and other exceptions of signal handlers are raised
        after the store is closed. If a signal handler calls close() while its thread is in a call of the store, close()
        raises ClosedError: the error ends that call, and the store is still open.

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
            if self._closer != threading.get_ident():   # otherwise a signal handler calls it during close()
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
        self._report_news()
        if errors:
            raise errors[0]
        if rc != RC_OK:
            raise failure(self.log, self.path)

    def _refuse_inside(self, bint also=False):
        """Raise ClosedError where close() would wait for its own caller.

        also  True: the caller has found that it would wait
        """
        if also or self._is_inside():
            raise closed(
                f"{self.path}: close() was called inside a call of the same thread, for example by a signal handler; "
                "that call ends with this error, and the store is still open"
            )

    cdef int _end_writing(self, list errors) except? -1:
        """Run all steps that close a writer; exceptions go to errors. RC_OK, or why not all bytes are durable."""
        cdef int rc
        done(self._maintenance.stop, errors)
        with nogil:
            rc = flusher_flush(&self.log.fl, 0)     # in sync mode the remaining messages can be dispatched after this
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
        """The cleaner calls it: a disk is too full for more messages, or has space again."""
        self._full = full

    def _wait_closed(self, timeout):
        """Wait until close() in another thread ends, or for this many seconds."""
        cdef int64_t until = checked_until("timeout", timeout)
        while not self.closed and rc_clock_ns() < until:
            with nogil:
                usleep(200)
            PyErr_CheckSignals()

    def _abandon(self):
        """Release the store in a forked child: its files belong to the parent."""
        self.closed = True
        self.dispatcher.forget()
        self.log.forget()

    # state

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
        """The end of the log: the next record, or the blank record before it, begins here."""
        return self._root.max_phy_offset if self.log is None else rc_load_i64(&self.log.q.wrote)

    @property
    def min_phy_offset(self):
        """Physical offset of the start of the first file; 0 for an empty log."""
        return self._root.min_phy_offset if self.log is None else max(self.log.queue.min_offset, 0)

    @property
    def flushed_phy_offset(self):
        """All records before this physical offset are durable."""
        return self.max_phy_offset if self.log is None else rc_load_i64(&self.log.q.flushed)

    @property
    def confirmed_phy_offset(self):
        """All records before it are confirmed: by confirm(), or because the log had them at open()."""
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
    def written_position(self):
        """The Position up to which read_log() returns bytes, for callers in C; None if the store is open for reading
        only."""
        return None if self.log is None else self.log.written_position

    @property
    def dispatched_phy_offset(self):
        """All records before this offset are in queues and index; of a read-only store, the end of the log."""
        return self.max_phy_offset if self.dispatcher is None else self.dispatcher.dispatched_phy_offset

    # topics, and deletion of expired files

    def topics(self):
        """Return the table of topics, config/topics.json, as {name: TopicConfig}.

        A topic that has messages, but is not in the file, is not in the result.

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
        """Create a topic, or change an existing one; return its TopicConfig. The table is durable when it returns.

        queues                             number of read and write queues, if the next two are not given; default 4
        read_queue_nums, write_queue_nums  number of queues that consumers read, and that producers write to
        perm                               bits: 4 read, 2 write, 1 inherit
        order                              True: messages of the topic are ordered
        queue_type                         "SimpleCQ" or "BatchCQ"; it can't be changed later
        message_type                       "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED" or "UNSPECIFIED"
        attributes                         other attributes; `+name` is the same as `name`, `-name` removes it
        check_name                         False: allow each name that a folder can have; brokers refuse some of them
        After the first call the store keeps its table of topics. Then a put to a new topic creates the topic, or is
        refused if auto_create_topic_enable is off. Raises IllegalMessageError for an invalid topic name, ValueError for
        other values that RocketMQ does not allow; StoreIOError, StoreFullError.

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
                self._last_topic = None
                self._known = TextTable()       # earlier topics were accepted without the table
            return topic
        finally:
            self._leave()

    def keep_topics(self):
        """Keep the table of topics from now on, as create_topic() does; return it, a Topics.

        The broker changes it: it creates topics by its own rules, in memory first. It is written once a second, and by
        persist().

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.keep_topics().create("orders", persist=False).write_queue_nums
        4
        """
        self._enter_now()
        try:
            self._maintenance.keep()
            if not self._keeps_topics:
                self._keeps_topics = True
                self._last_topic = None
                self._known = TextTable()       # earlier topics were accepted without the table
            return self._maintenance.topics
        finally:
            self._leave()

    def configure(self, **fields):
        """Change settings of the open store: those for cleaning, and for new topics. See StoreConfig.

        fields  of rocketc.store.cleaning.CHANGEABLE
        Waits for a run of the cleaner. Raises TypeError for another field, ValueError for a wrong value; then nothing
        is changed.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     store.configure(file_reserved_time=48)
        ...     store.config.file_reserved_time
        48
        """
        self._enter_now()
        try:
            refuse_fixed(fields)
            config = self.config.replace(**fields)
            self._maintenance.configure(config)
            self.config = config
        finally:
            self._leave()

    def delete_topics(self, names, *, retain=()):
        """Delete topics: their consume queues and entries in the table of topics; return how many existed.

        names   a name, or several; RocketMQ's own topics too if you name them
        retain  a name, or several, of topics to keep after all. It is read while puts to the topics wait: a table of
                topics that is given here keeps each topic that a put has created meanwhile
        Earlier messages of the topics are removed from all queues. The file config/deletedTopics.json records this, so
        that a crash or a rebuild does not restore them. The next message of such a topic gets queue offset 0. Old
        messages stay in the log until its files are deleted: scan() and query() find them. Consumer offsets of the
        topics (config/consumerOffset.json) are deleted first: after a crash in between no message is lost, but some may
        be delivered twice. During the call, puts of other threads to these topics or to new queues wait. Raises
        StoreIOError, StoreFullError, StoreFailedError; the deletion may then be incomplete, and the next call completes
        it.
        Source: RocketMQ DefaultMessageStore.deleteTopics.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"one"), store.put("audit", b"two")
        ...     store.delete_topics(["orders", "no such topic"]), store.queues()
        ...     store.put("orders", b"new").queue_offset
        (1, [('audit', 0)])
        0
        """
        return len(self._delete({names} if isinstance(names, str) else set(names), _kept(retain)))

    def clean_unused_topics(self, retain):
        """Delete all topics that have queues, except some; return the sorted names of the deleted topics.

        retain  names of the topics to keep, see delete_topics(); RocketMQ's own topics and light queues are kept too
        Source: RocketMQ DefaultMessageStore.cleanUnusedTopic.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = [store.put(topic, b"hello") for topic in ("orders", "audit", "TBW102")]
        ...     store.wait_dispatched(), store.clean_unused_topics(retain=["orders"]), store.queues()
        (True, ['audit'], [('TBW102', 0), ('orders', 0)])
        """
        retain = _kept(retain)
        return sorted(self._delete(set(unused_topics({topic for topic, _ in self.queues()}, retain)), retain))

    def clean_expired_queues(self):
        """Delete queues whose messages are all gone from the log; return their (topic, queue id).

        The next message of such a queue gets queue offset 0, and its consumer offsets are deleted. Entries in the table
        of topics are kept, and so are the queues of RocketMQ's own topics. Raises the errors of delete_topics().
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
                    self.wait_dispatched()      # puts are held now; some of the queues may have new messages
                    expired &= set(expired_queues(self.reader.queues.phy_ends(), self.min_phy_offset))
                    positions.drop(expired)
                    return sorted(self._maintenance.delete_queues(dict.fromkeys(expired, INT64_MAX), self._drop))
        finally:
            self._leave()

    def _delete(self, set names, retain):
        """Delete topics, but those that `retain` has while puts to them wait; return the set of those that existed."""
        self._enter_now()
        try:
            self.flush()
            self.wait_dispatched()          # shortens the time for which puts to these topics wait
            with (
                _still(self._positions, self.path, self._stepper) as positions, self._numbering,
                _held(self.log.offsets, names),
            ):
                names = {name for name in names if name not in retain}
                end = self.max_phy_offset
                self.flush()                # in sync mode dispatch needs durable records
                self.wait_dispatched()
                positions.drop(names)
                deleted = self._maintenance.delete_topics(names, end, self._drop)
            self._forget(names)
            return deleted
        finally:
            self._leave()

    def _drop(self, dict ends):
        """Delete queues, see ReputService.delete_queues(); deleted queues begin at queue offset 0 again."""
        try:
            return self.dispatcher.delete_queues(ends)
        finally:
            left = set(self.reader.queues.items())
            self.log.offsets.reset({
                (topic.encode("utf-8", "surrogateescape"), queue_id)
                for (topic, queue_id), _ in self.log.offsets.items()
                if (topic in ends or (topic, queue_id) in ends) and (topic, queue_id) not in left
            })

    def clean(self, *, asked=True, expired_ms=None, now=None):
        """Delete expired log files, and the parts of queues and index for them; return a CleanReport.

        asked       True: at any hour; False: only at the hours of delete_when, or if the disk is too full
        expired_ms  minimum age: ms since the last change of the file; None: file_reserved_time hours
        now         ms since the epoch; None: the clock's time
        The last file is always kept. A file that a view holds is kept, and so are all files after it. One call deletes
        at most delete_file_batch_max files. The store calls it every clean_resource_interval ms, if that is not 0.
        Raises StoreIOError; files deleted before the error stay deleted.
        Source: RocketMQ CleanCommitLogService.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 12) as store:
        ...     r = store.put_many("orders", [bytes(1000)] * 10)
        ...     store.wait_dispatched(), store.clean(expired_ms=-1).log_files > 0, store.min_offset("orders") > 0
        (True, True, True)
        """
        if expired_ms is not None:
            expired_ms = checked_int("expired_ms", expired_ms, INT64_MIN, INT64_MAX)
        if now is not None:
            now = checked_int("now", now, INT64_MIN, INT64_MAX)
        self._enter_now()
        try:
            return self._maintenance.clean(asked=asked, expired_ms=expired_ms, now=now)
        finally:
            self._leave()

    def attach_offsets(self, positions):
        """Attach the object that keeps the consumer offsets of groups; it takes part when queues are deleted.

        positions  has paused(), a context manager in which no offset moves, and drop(topics). A weak reference is kept.
                   rocketc.Queue attaches its own; without one, config/consumerOffset.json is changed

        >>> import rocketc, tempfile
        >>> with rocketc.Queue(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as queue:
        ...     queue.store.attach_offsets(queue)
        """
        self._positions = weakref.ref(positions)

    def delete_before(self, phy_offset):
        """Delete the log files that end at or before a physical offset, regardless of age; return a CleanReport.

        The caller makes sure that their messages are not needed. rocketc.Queue deletes files that all groups have
        acked.

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 12) as store:
        ...     r = store.put_many("orders", [bytes(1000)] * 10)
        ...     store.wait_dispatched(), store.delete_before(r.end).log_files, store.min_offset("orders")
        (True, 3, 9)
        """
        cdef int64_t end = checked_int("phy_offset", phy_offset, INT64_MIN, INT64_MAX)
        self._enter_now()
        try:
            return self._maintenance.delete_before(end)
        finally:
            self._leave()

    def stats(self):
        """Return counters and durations since the store was opened, as a dict; empty for a read-only store.

        Durations are dicts in ns: {"count", "p50", "p99", "p999", "max", "sum"}. They are of every 16th put, each
        flush, each roll to a new file, and each wait for the put lock. `calls`, `waiting_readers` and `mlocked_bytes`
        are current values. What took more than 0.5 s is counted in `slow_flushes`, `slow_commits` (of the transient
        store pool) and `slow_holds` (of the put lock). rocketc.metrics has these numbers, and more, for monitoring.

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
        """Return the current values that rocketc.metrics exports, as a dict. Raises ClosedError.

        by_queue        see QueueTable.counts()
        log_bytes       size of the log's files
        index_files     paths of the index files
        log_files       a LogFile each; only if the store is read-only
        The other keys only if the store is open for writing: those of stats(), and
        histograms      see CommitLog.histograms()
        sizes           see ReputService.sizes_of_records()
        dispatched_phy_offset, disk_full, appending_since

        >>> import rocketc, tempfile
        >>> with rocketc.open(tempfile.mkdtemp(), mapped_file_size_commit_log=1 << 20) as store:
        ...     r = store.put("orders", b"hello")
        ...     store.measurements()["log_bytes"]
        1048576
        """
        self._enter_reading()
        try:
            self._report_news()
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
        """The hooks of CommitLog.hook(), and
        most_behind   bytes that may wait for dispatch before this is logged
        feed_entries  see ChangeFeed.set_entries()
        clock         ms: for store timestamps, see _set_clock(), and for index files
        """
        if name == "most_behind":
            rc_store_i64(&self.dispatcher.most_behind, value)
        elif name == "feed_entries":
            self.dispatcher.feed.set_entries(value)
        elif name == "clock":
            self.dispatcher.set_clock(value)
        else:
            self.log.hook(name, value)
