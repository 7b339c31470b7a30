/* Locks on C atomics: a spin lock, a mutex, and a reentrant lock. Zero bytes are a free lock.
 * Each word of a lock is atomic; these rules order accesses to the data that the lock guards:
 *   taking a lock     acquire: sees all writes of the previous holders
 *   releasing it      release: publishes all writes made while it was held
 *   everything else   relaxed: it only decides which thread waits how
 * No waiter starves: after a millisecond a waiter is promised the lock, and new threads wait until it has the lock. */
#ifndef ROCKETC_LOCK_H
#define ROCKETC_LOCK_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    RC_SPIN_TRIES = 32,            /* checks of a held spin lock before the thread yields */
    RC_SPIN_PAUSES = 16,           /* most pauses between two checks */
    RC_SPIN_YIELDS = 512,         /* yields after which the thread sleeps between checks */
    RC_SPIN_SLEEP_NS = 50000,      /* duration of one sleep */
    RC_MUTEX_TRIES = 32,           /* checks of a held mutex before the thread sleeps */
    RC_MUTEX_PATIENCE_NS = 1000000, /* wait after which a waiter asks for a promise */
    RC_MUTEX_HELD = 1,             /* bits of the mutex word */
    RC_MUTEX_WAITERS = 2,          /* a thread may sleep: the holder wakes one when it releases the lock */
    RC_MUTEX_PROMISED = 4,         /* the holder passes the lock to the thread that asked, instead of releasing it */
};

/* ---------------------------------------------------------------- spin lock */
typedef struct rc_spin {
    int32_t held;     /* 0 or 1 */
    int32_t promised; /* 1 while one of the waiters has a promise */
} rc_spin;

/* The wait of one thread, on its stack; initially zero bytes. */
typedef struct rc_spin_wait {
    int32_t yields;
    int32_t promised; /* 1 if this thread has the promise */
} rc_spin_wait;

static inline void rc_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Return 1 if the lock was free and is taken now, 0 if it is held or promised to a waiter. Order: acquire. */
static inline int rc_spin_try_lock(rc_spin *lock)
{
    int32_t is = 0;
    return __atomic_load_n(&lock->promised, __ATOMIC_RELAXED) == 0 &&
           __atomic_compare_exchange_n(&lock->held, &is, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Wait for one turn: check the lock up to `tries` times, with up to `pauses` pauses between two checks, and take it if
 * it is free; otherwise yield the core once. Return 1 if the lock is taken; if 0, call again with the same wait. */
static inline int rc_spin_turn(rc_spin *lock, rc_spin_wait *wait, int32_t tries, int32_t pauses)
{
    int32_t pause = 1, none = 0;
    for (int32_t i = 0; i < tries; i++) {
        int32_t is = 0;
        /* only read at first: a failed exchange would take the cache line from the holder */
        if (__atomic_load_n(&lock->held, __ATOMIC_RELAXED) == 0 &&
            (wait->promised != 0 || __atomic_load_n(&lock->promised, __ATOMIC_RELAXED) == 0) &&
            __atomic_compare_exchange_n(&lock->held, &is, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            if (wait->promised != 0)
                __atomic_store_n(&lock->promised, 0, __ATOMIC_RELAXED);
            return 1;
        }
        for (int32_t j = 0; j < pause; j++)
            rc_spin_pause();
        pause = pause < pauses ? 2 * pause : pauses;
    }
    if (wait->promised == 0 &&
        __atomic_compare_exchange_n(&lock->promised, &none, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        wait->promised = 1;
        return 0; /* check once before yielding, which may cost a time slice */
    }
    if (wait->yields < RC_SPIN_YIELDS) {
        wait->yields++;
        (void)sched_yield();
    } else { /* held for long: free the core, and let a holder of lower priority run */
        struct timespec ns = {0, RC_SPIN_SLEEP_NS};
        (void)nanosleep(&ns, NULL);
    }
    return 0;
}

/* Take the lock; wait by spinning and yielding. Not recursive. Order: acquire. */
static inline void rc_spin_lock(rc_spin *lock)
{
    if (__builtin_expect(!rc_spin_try_lock(lock), 0)) {
        rc_spin_wait wait = {0, 0};
        while (!rc_spin_turn(lock, &wait, RC_SPIN_TRIES, RC_SPIN_PAUSES))
            ;
    }
}

/* Release the lock, from any thread; a free lock stays free. Order: release. */
static inline void rc_spin_unlock(rc_spin *lock)
{
    __atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}

/* ---------------------------------------------------------------- mutex: waiters sleep */
#if defined(__linux__)
typedef struct rc_mutex {
    uint32_t word;   /* RC_MUTEX_ bits, or 0 */
    uint32_t handed; /* 1 from the time the holder passes the lock until the promised thread has seen it */
} rc_mutex;

static inline int64_t rc_mutex_now(void)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Sleep while *word is `is`, until woken; may also return without a reason. */
static inline void rc_futex_wait(uint32_t *word, uint32_t is)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, is, NULL, NULL, 0);
}

static inline void rc_futex_wake_one(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Return 1 if the mutex was free and is taken now, otherwise 0. Order: acquire. */
static inline int rc_mutex_try_lock(rc_mutex *mutex)
{
    uint32_t is = 0;
    return __atomic_compare_exchange_n(&mutex->word, &is, RC_MUTEX_HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Wait for a held mutex. RC_MUTEX_WAITERS is set from before the first sleep until this thread holds the mutex. After a
 * sleep it sets the bit again when it takes the mutex, because it must pass on the wake-up to other sleeping threads. */
static inline void rc_mutex_wait(rc_mutex *mutex)
{
    uint32_t slept = 0; /* RC_MUTEX_WAITERS after the first sleep: other threads may still sleep */
    int64_t since = 0;
    int asks = 0; /* 1 after waiting for too long */
    for (int i = 0; i < RC_MUTEX_TRIES; i++) {
        if (__atomic_load_n(&mutex->word, __ATOMIC_RELAXED) == 0 && rc_mutex_try_lock(mutex))
            return;
        rc_spin_pause();
    }
    for (;;) {
        uint32_t is = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED), want;
        if ((is & RC_MUTEX_HELD) == 0)
            want = is | RC_MUTEX_HELD | slept;
        else if (asks && (is & RC_MUTEX_PROMISED) == 0)
            want = is | RC_MUTEX_WAITERS | RC_MUTEX_PROMISED;
        else
            want = is | RC_MUTEX_WAITERS;
        if (want != is && !__atomic_compare_exchange_n(&mutex->word, &is, want, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        if ((is & RC_MUTEX_HELD) == 0)
            return;
        if ((want & ~is & RC_MUTEX_PROMISED) != 0) { /* promised to this thread: the word stays held until it gets it */
            while (__atomic_load_n(&mutex->handed, __ATOMIC_ACQUIRE) == 0)
                rc_futex_wait(&mutex->handed, 0);
            __atomic_store_n(&mutex->handed, 0, __ATOMIC_RELAXED);
            (void)__atomic_fetch_and(&mutex->word, ~(uint32_t)RC_MUTEX_PROMISED, __ATOMIC_RELEASE);
            return;
        }
        slept = RC_MUTEX_WAITERS;
        if (since == 0)
            since = rc_mutex_now();
        rc_futex_wait(&mutex->word, want);
        asks = rc_mutex_now() - since >= RC_MUTEX_PATIENCE_NS;
    }
}

/* Take the mutex: one exchange if it is free, otherwise spin for a while, then sleep. Not recursive. Order: acquire. */
static inline void rc_mutex_lock(rc_mutex *mutex)
{
    if (__builtin_expect(!rc_mutex_try_lock(mutex), 0))
        rc_mutex_wait(mutex);
}

/* Release a mutex that the caller holds: one exchange if there are no waiters. Order: release. */
static inline void rc_mutex_unlock(rc_mutex *mutex)
{
    uint32_t is = RC_MUTEX_HELD;
    while (!__atomic_compare_exchange_n(&mutex->word, &is, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        if ((is & RC_MUTEX_PROMISED) != 0) {
            __atomic_store_n(&mutex->handed, 1, __ATOMIC_RELEASE);
            rc_futex_wake_one(&mutex->handed);
            return;
        }
    }
    if ((is & RC_MUTEX_WAITERS) != 0)
        rc_futex_wake_one(&mutex->word);
}
#else
typedef struct rc_mutex {
    pthread_mutex_t pthread; /* PTHREAD_MUTEX_INITIALIZER: see rc_reentrant_init */
} rc_mutex;

static inline int rc_mutex_try_lock(rc_mutex *mutex)
{
    return pthread_mutex_trylock(&mutex->pthread) == 0;
}

static inline void rc_mutex_lock(rc_mutex *mutex)
{
    (void)pthread_mutex_lock(&mutex->pthread);
}

static inline void rc_mutex_unlock(rc_mutex *mutex)
{
    (void)pthread_mutex_unlock(&mutex->pthread);
}
#endif

/* ---------------------------------------------------------------- reentrant lock */
/* A thread must not end while it holds one: a new thread may get the number of an ended one. */
typedef struct rc_reentrant {
    rc_mutex mutex;
    uintptr_t owner; /* the holder, or 0; a thread only compares it with its own number */
    uint32_t again; /* how many more times the holder has taken it; only the holder accesses it */
} rc_reentrant;

/* A number that differs in each thread and is never 0: pthread_self(), without a call where possible. */
static inline uintptr_t rc_this_thread(void)
{
#if defined(__linux__) && defined(__x86_64__)
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self)); /* by the ABI, the address of the thread's control block */
    return self;
#elif defined(__linux__) && defined(__aarch64__)
    uintptr_t self;
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
    return self;
#else
    return (uintptr_t)pthread_self();
#endif
}

/* Initialize a free lock; the memory may have any content. */
static inline void rc_reentrant_init(rc_reentrant *lock)
{
    static const rc_mutex free_mutex =
#if defined(__linux__)
        {0, 0};
#else
        {PTHREAD_MUTEX_INITIALIZER};
#endif
    lock->mutex = free_mutex;
    lock->owner = 0;
    lock->again = 0;
}

/* Return 1 if the lock was free or held by this thread, and is taken now (again); otherwise 0. Order: acquire. */
static inline int rc_reentrant_try_lock(rc_reentrant *lock)
{
    uintptr_t me = rc_this_thread();
    if (__builtin_expect(rc_mutex_try_lock(&lock->mutex), 1)) {
        __atomic_store_n(&lock->owner, me, __ATOMIC_RELAXED);
        return 1;
    }
    if (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) != me)
        return 0;
    lock->again++;
    return 1;
}

/* Take the lock, again if this thread holds it. Order: acquire. */
static inline void rc_reentrant_lock(rc_reentrant *lock)
{
    if (__builtin_expect(!rc_reentrant_try_lock(lock), 0)) {
        rc_mutex_lock(&lock->mutex);
        __atomic_store_n(&lock->owner, rc_this_thread(), __ATOMIC_RELAXED);
    }
}

/* Undo one acquisition; the last one releases the lock. Return 0, or EPERM without any effect if this thread does not
 * hold it. Order: release. */
static inline int rc_reentrant_unlock(rc_reentrant *lock)
{
    if (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) != rc_this_thread())
        return EPERM;
    if (lock->again != 0) {
        lock->again--;
        return 0;
    }
    __atomic_store_n(&lock->owner, 0, __ATOMIC_RELAXED);
    rc_mutex_unlock(&lock->mutex);
    return 0;
}

/* Return how many times the calling thread holds the lock. */
static inline uint32_t rc_reentrant_depth(const rc_reentrant *lock)
{
    return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == rc_this_thread() ? lock->again + 1 : 0;
}

#endif
