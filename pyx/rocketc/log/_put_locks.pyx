# cython: language_level=3
"""The lock that guards the end of the commit log: three kinds with one interface."""
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.time cimport time
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, nanosleep, timespec

from rocketc.c.lock cimport (
    rc_reentrant_depth, rc_reentrant_init, rc_reentrant_lock, rc_reentrant_try_lock, rc_reentrant_unlock, rc_spin_lock,
    rc_spin_try_lock, rc_spin_turn, rc_spin_unlock, rc_spin_wait, rc_this_thread,
)

from collections import namedtuple

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass
    enum:
        PTHREAD_MUTEX_RECURSIVE
    int pthread_mutexattr_init(pthread_mutexattr_t* kind)
    int pthread_mutexattr_settype(pthread_mutexattr_t* kind, int type)
    int pthread_mutexattr_destroy(pthread_mutexattr_t* kind)
    int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* kind)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_trylock(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from * nogil:
    enum:
        RELAXED "__ATOMIC_RELAXED"
        ORDERED "__ATOMIC_SEQ_CST"
    int64_t load "__atomic_load_n"(const int64_t* p, int order) noexcept
    void store "__atomic_store_n"(int64_t* p, int64_t v, int order) noexcept
    int64_t add "__atomic_add_fetch"(int64_t* p, int64_t v, int order) noexcept
    int64_t swap "__atomic_exchange_n"(int64_t* p, int64_t v, int order) noexcept
    uintptr_t load_thread "__atomic_load_n"(const uintptr_t* p, int order) noexcept
    void store_thread "__atomic_store_n"(uintptr_t* p, uintptr_t v, int order) noexcept
    bint cas_thread "__atomic_compare_exchange_n"(
        uintptr_t* p, uintptr_t* was, uintptr_t v, bint weak, int order, int failed) noexcept

# RocketMQ's numbers, AdaptiveBackOffSpinLockImpl and BackOffSpinLock.
cdef enum:
    MOST_DEGREE = 10000         # largest degree of the spin lock; beyond it the mutex is better
    DEGREE_STEP = 1000
    RETREAT_WEIGHT = 320        # one retreat in this many calls or fewer: spinning does not pay at this degree
    QUIET_WEIGHT = 4 * 320      # one retreat in this many calls or more: a lower degree is enough
    CALM_PARTS = 8              # tenths of the critical load: below them the spin lock is good enough again


cdef void slot_add_thread(Slot* slot, uintptr_t thread) noexcept nogil:
    """Add a thread to a slot's set. Do nothing if the thread is in the set, or the set is full."""
    cdef uintptr_t there
    cdef uint64_t at = (<uint64_t>thread * <uint64_t>0x9E3779B97F4A7C15) >> 32
    cdef int _i
    for _i in range(SLOT_THREADS):
        at &= SLOT_THREADS - 1
        there = load_thread(&slot.seen[at], RELAXED)
        if there == 0 and cas_thread(&slot.seen[at], &there, thread, False, RELAXED, RELAXED):
            add(&slot.threads, 1, RELAXED)
            return
        if there == thread:
            return
        at += 1


cdef void slot_clear_threads(Slot* slot) noexcept nogil:
    cdef int i
    for i in range(SLOT_THREADS):
        store_thread(&slot.seen[i], 0, RELAXED)
    store(&slot.threads, 0, RELAXED)


cdef class PutMessageLock:
    def __cinit__(self):
        if type(self) is PutMessageLock:
            raise TypeError("PutMessageLock is the base class of the put locks; use one of LOCKS")

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} can't be pickled: it belongs to its process")

    cdef bint try_lock(self) noexcept nogil:
        """Take the lock if this is possible without waiting. Return whether it is taken."""
        return False

    cdef void lock(self) noexcept nogil:
        """Take the lock; wait as long as necessary."""

    cdef void unlock(self) noexcept nogil:
        """Release the lock."""


cdef class SpinLock(PutMessageLock):
    """Waiters spin, then yield their core. Best when the lock is held for less than a microsecond.

    Not recursive: a thread that takes it twice deadlocks. Any thread may release it; releasing a free lock does
    nothing.
    Source: RocketMQ PutMessageSpinLock.
    """

    cdef bint try_lock(self) noexcept nogil:
        return rc_spin_try_lock(&self._lock)

    cdef void lock(self) noexcept nogil:
        rc_spin_lock(&self._lock)

    cdef void unlock(self) noexcept nogil:
        rc_spin_unlock(&self._lock)


cdef class ReentrantLock(PutMessageLock):
    """Waiters sleep. The holder may take it again, and must release it as many times; no other thread can release it.

    Source: RocketMQ PutMessageReentrantLock.
    """

    def __cinit__(self):
        rc_reentrant_init(&self._lock)

    cdef bint try_lock(self) noexcept nogil:
        return rc_reentrant_try_lock(&self._lock)

    cdef void lock(self) noexcept nogil:
        rc_reentrant_lock(&self._lock)

    cdef void unlock(self) noexcept nogil:
        rc_reentrant_unlock(&self._lock)        # EPERM: the thread does not hold it, and nothing happens


cdef class AdaptiveLock(PutMessageLock):
    """A spin lock that becomes a mutex under contention, and a spin lock again when the contention has ended.

    Calls are counted per second, in two slots. The first release in a second evaluates the slot of the other second.
    Waiters of the spin lock check it `degree` times before they yield their core (a retreat). If retreats are frequent,
    the degree is raised. If it can't be raised any more, the mutex is used, until the load falls to 8/10 of what it was
    at the switch. The load is the calls in a second times the threads that made them.

    RocketMQ closes a gate and waits until no thread is inside. Here the holder switches to the other lock before it
    releases its own. A thread that gets a lock that is no longer in use releases it and takes the other one.

    Not recursive. A thread that does not hold it may release it only while it is a spin lock.

    optimal_degree  initial number of checks of the held spin lock, at least 1

    Source: RocketMQ AdaptiveBackOffSpinLockImpl.
    """

    def __cinit__(self, optimal_degree=1000):
        if not 1 <= optimal_degree <= 0x7FFFFFFF:
            raise ValueError(f"optimal_degree is 1 to {0x7FFFFFFF}, not {optimal_degree}")
        rc_reentrant_init(&self._mutex)
        self._degree = optimal_degree
        self._second = -1
        self._slots[0].count = self._slots[1].count = -1

    cdef int64_t _now(self) noexcept nogil:
        cdef int64_t second = load(&self._second, RELAXED)
        return second if second >= 0 else <int64_t>time(NULL)

    cdef void _arrive(self) noexcept nogil:
        """Count a call of lock() and remember its thread."""
        cdef Slot* slot = &self._slots[self._now() & 1]
        slot_add_thread(slot, rc_this_thread())
        add(&slot.count, 1, RELAXED)

    cdef void _retreat(self) noexcept nogil:
        add(&self._slots[self._now() & 1].retreats, 1, RELAXED)

    cdef bint try_lock(self) noexcept nogil:
        """Only a call that takes the lock is counted."""
        while True:
            if load(&self._sleeping, RELAXED):
                if not rc_reentrant_try_lock(&self._mutex):
                    return False
                if load(&self._sleeping, RELAXED):
                    break
                rc_reentrant_unlock(&self._mutex)
            else:
                if not rc_spin_try_lock(&self._spin):
                    return False
                if not load(&self._sleeping, RELAXED):
                    break
                rc_spin_unlock(&self._spin)
        self._arrive()
        return True

    cdef void lock(self) noexcept nogil:
        cdef rc_spin_wait wait
        self._arrive()
        while True:
            if load(&self._sleeping, RELAXED):
                rc_reentrant_lock(&self._mutex)
                if load(&self._sleeping, RELAXED):
                    return
                rc_reentrant_unlock(&self._mutex)
            else:
                if not rc_spin_try_lock(&self._spin):
                    wait.yields = wait.promised = 0
                    while not rc_spin_turn(&self._spin, &wait, <int32_t>load(&self._degree, RELAXED), 1):
                        self._retreat()
                if not load(&self._sleeping, RELAXED):
                    return
                rc_spin_unlock(&self._spin)

    cdef void unlock(self) noexcept nogil:
        cdef Slot* other
        if load(&self._sleeping, RELAXED) and rc_reentrant_depth(&self._mutex) != 1:
            rc_reentrant_unlock(&self._mutex)
            return
        other = &self._slots[1 - (self._now() & 1)]
        self._release(load(&other.count, RELAXED) >= 0 and self._swap_wanted(other))

    cdef void _release(self, bint swapping) noexcept nogil:
        """Release the lock. If swapping, use the other lock from now on. Only the holder may call it."""
        cdef bint sleeping = load(&self._sleeping, RELAXED) != 0
        if swapping:
            store(&self._sleeping, not sleeping, RELAXED)       # ordered by the release of the lock
        if sleeping:
            rc_reentrant_unlock(&self._mutex)
        else:
            rc_spin_unlock(&self._spin)

    cdef bint _swap_wanted(self, Slot* slot) noexcept nogil:
        """Evaluate and clear the slot of the other second, and adapt the degree. Return whether the other lock is
        better.

        Only the holder calls it.
        """
        cdef int64_t degree = self._degree
        cdef int64_t calls = swap(&slot.count, -1, RELAXED) + 1
        cdef int64_t load_now = calls * load(&slot.threads, RELAXED)
        cdef int64_t retreats
        cdef bint wanted = False
        slot_clear_threads(slot)
        if calls == 0:
            return False
        if self._sleeping:
            if 10 * load_now <= CALM_PARTS * self._critical:
                wanted = True
                if degree >= 2 * DEGREE_STEP:
                    degree -= DEGREE_STEP
        else:
            retreats = swap(&slot.retreats, 0, RELAXED)
            if retreats * RETREAT_WEIGHT >= calls:
                if degree >= MOST_DEGREE:
                    self._critical = load_now
                    wanted = True
                elif 2 * degree <= MOST_DEGREE:
                    degree *= 2
                else:
                    degree = min(degree + DEGREE_STEP, <int64_t>MOST_DEGREE)
            elif retreats * QUIET_WEIGHT <= calls and degree >= 2 * DEGREE_STEP:
                degree -= DEGREE_STEP
        store(&self._degree, degree, RELAXED)
        return wanted


LOCKS = {"spin": SpinLock, "reentrant": ReentrantLock, "adaptive": AdaptiveLock}


# for tests and benchmarks
AdaptiveState = namedtuple("AdaptiveState", "kind degree critical calls threads retreats", module=__name__)


def try_lock(PutMessageLock lock not None):
    """Take the lock if this is possible without waiting. Return whether it is taken."""
    cdef bint taken
    with nogil:
        taken = lock.try_lock()
    return taken


def lock(PutMessageLock lock not None):
    with nogil:
        lock.lock()


def unlock(PutMessageLock lock not None):
    with nogil:
        lock.unlock()


def depth(ReentrantLock lock not None):
    """How many times the calling thread holds the lock."""
    return rc_reentrant_depth(&lock._lock)


def hold(PutMessageLock lock not None, int64_t ns):
    """Take the lock, sleep for ns, release it. Return the ns of waiting for the lock. All without the GIL."""
    cdef timespec sleep
    cdef int64_t began, taken
    sleep.tv_sec, sleep.tv_nsec = ns // 1000000000, ns % 1000000000
    with nogil:
        began = now_ns()
        lock.lock()
        taken = now_ns()
        nanosleep(&sleep, NULL)
        lock.unlock()
    return taken - began


def adaptive_state(AdaptiveLock lock not None):
    """The state of the lock. calls, threads and retreats are pairs: of even seconds, of odd seconds."""
    return AdaptiveState(
        "reentrant" if lock._sleeping else "spin",
        lock._degree,
        lock._critical,
        (load(&lock._slots[0].count, RELAXED) + 1, load(&lock._slots[1].count, RELAXED) + 1),
        (load(&lock._slots[0].threads, RELAXED), load(&lock._slots[1].threads, RELAXED)),
        (load(&lock._slots[0].retreats, RELAXED), load(&lock._slots[1].retreats, RELAXED)),
    )


def set_second(AdaptiveLock lock not None, second):
    """Set the second that the lock uses; None: use the clock again."""
    store(&lock._second, -1 if second is None else second, RELAXED)


def set_slot(AdaptiveLock lock not None, second, *, calls, threads, retreats):
    """Set the counters of a second."""
    cdef Slot* slot = &lock._slots[second & 1]
    slot.count, slot.threads, slot.retreats = calls - 1, threads, retreats


def swap_now(AdaptiveLock lock not None):
    """Take the lock, and switch to the other kind when releasing it."""
    with nogil:
        lock.lock()
        lock._release(True)


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef class PthreadLock(PutMessageLock):
    """A mutex of the operating system, for comparison."""
    cdef pthread_mutex_t _mutex

    def __cinit__(self, bint recursive=False):
        cdef pthread_mutexattr_t kind
        pthread_mutexattr_init(&kind)
        if recursive:
            pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE)
        pthread_mutex_init(&self._mutex, &kind)
        pthread_mutexattr_destroy(&kind)

    def __dealloc__(self):
        pthread_mutex_destroy(&self._mutex)

    cdef bint try_lock(self) noexcept nogil:
        return pthread_mutex_trylock(&self._mutex) == 0

    cdef void lock(self) noexcept nogil:
        pthread_mutex_lock(&self._mutex)

    cdef void unlock(self) noexcept nogil:
        pthread_mutex_unlock(&self._mutex)


cdef uint64_t work(uint64_t x, int64_t steps) noexcept nogil:
    """Arithmetic that can't be computed in advance: about 1 ns a step."""
    cdef int64_t _i
    for _i in range(steps):
        x = x * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407
    return x


cdef enum:
    MOST_THREADS = 64


cdef struct Runner:
    int64_t taken               # how many times it had the lock
    int64_t passed              # with watch: the most acquisitions by other threads during one wait
    int64_t[6] apart            # pad to 64 bytes: a cache line for each


cdef class Contest:
    """Several threads take one lock again and again, until it was taken `total` times by all of them together.

    threads  this many threads call run(), each with its own number, counted from 0; they begin together
    inside   steps of arithmetic (about 1 ns each) while the lock is held; outside: while it is not held
    watch    count how many other acquisitions pass a waiter; this reads the count before each acquisition
    tries    take the lock with try_lock() only, and yield the core after a failure
    again    nested acquisitions by one thread; more than 1 needs a reentrant lock
    """
    cdef:
        readonly PutMessageLock lock
        readonly int threads
        readonly int64_t total
        int64_t _inside, _outside
        bint _watch, _tries
        int _again
        int64_t _arrived            # atomic
        int64_t _began, _ended      # ns; set by the last thread to arrive, and by the last to leave
        int64_t _wrong              # how many times two threads were inside at once
        char[64] _apart
        int64_t _count              # acquisitions; changed inside only, by plain instructions
        int64_t _twin               # the same, changed before the holder leaves
        uint64_t _work
        Runner[MOST_THREADS] _runners

    def __cinit__(self, PutMessageLock lock not None, int threads, int64_t total, *, int64_t inside=0,
                  int64_t outside=0, bint watch=False, bint tries=False, int again=1):
        if not 1 <= threads <= MOST_THREADS:
            raise ValueError(f"1 to {MOST_THREADS} threads, not {threads}")
        self.lock, self.threads, self.total = lock, threads, total
        self._inside, self._outside, self._watch, self._tries, self._again = inside, outside, watch, tries, again

    def run(self, int number):
        """Run one of the threads. Return when the contest is over."""
        if not 0 <= number < self.threads:
            raise ValueError(f"thread {number} of {self.threads}")
        with nogil:
            self._run(&self._runners[number])

    cdef void _run(self, Runner* me) noexcept nogil:
        cdef int64_t asked = 0, now
        cdef int _i
        cdef uint64_t outside = 1
        cdef bint over = False
        if add(&self._arrived, 1, ORDERED) == self.threads:
            self._began = now_ns()
            add(&self._arrived, 1, ORDERED)
        while load(&self._arrived, ORDERED) <= self.threads:
            sched_yield()
        while not over:
            if self._watch:
                asked = load(&self._count, RELAXED)
            for _i in range(self._again):
                if not self._tries:
                    self.lock.lock()
                else:
                    while not self.lock.try_lock():
                        sched_yield()
            now = self._count
            over = now >= self.total
            if not over:
                self._wrong += now != self._twin
                store(&self._count, now + 1, RELAXED)     # read by threads that watch
                me.taken += 1
                if self._watch and now - asked > me.passed:
                    me.passed = now - asked
                self._work = work(self._work, self._inside)
                self._twin += 1
            for _i in range(self._again):
                self.lock.unlock()
            outside = work(outside, self._outside)
        if add(&self._arrived, 1, ORDERED) == 2 * self.threads + 1:
            self._ended = now_ns()
        me.apart[0] = <int64_t>outside          # so that the compiler keeps the computation

    @property
    def ns(self):
        """ns from the arrival of the last thread until the last one has left."""
        return self._ended - self._began

    @property
    def wrong(self):
        """How many times another thread was inside at the same time. Not 0: the lock is broken."""
        return self._wrong + (self._count != self.total) + (self._twin != self.total)

    @property
    def taken(self):
        """How many times each thread had the lock."""
        return [self._runners[i].taken for i in range(self.threads)]

    @property
    def passed(self):
        """For each thread the most acquisitions by other threads during one wait; zeros without watch."""
        return [self._runners[i].passed for i in range(self.threads)]
