/* Locks on C atomics: a spin lock, a mutex, and a lock that its owner may take again. Zero bytes are a free lock.
 * Each word of a lock is atomic; what the lock guards is ordered by these rules:
 *   taking a lock     acquire: sees all that the holders before wrote
 *   releasing it      release: shows all that was written while it was held
 *   everything else   relaxed: it only decides who waits how
 * No waiter starves: one that has waited for a millisecond is promised the lock, and newcomers keep back until it has it. */
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
    RC_SPIN_TRIES = 32,            /* looks at a held spin lock before the thread yields */
    RC_SPIN_PAUSES = 16,           /* pauses between two looks, at most */
    RC_SPIN_YIELDS = 512,         /* yields after which it sleeps between its looks */
    RC_SPIN_SLEEP_NS = 50000,      /* that long */
    RC_MUTEX_TRIES = 32,           /* looks at a held mutex before the thread sleeps */
    RC_MUTEX_PATIENCE_NS = 1000000, /* of waiting, after which a waiter asks for a promise */
    RC_MUTEX_HELD = 1,             /* bits of the mutex word */
    RC_MUTEX_WAITERS = 2,          /* somebody may sleep: the holder wakes one as it leaves */
    RC_MUTEX_PROMISED = 4,         /* the holder hands over to the one who asked, and does not release */
};

/* ---------------------------------------------------------------- spin lock */
typedef struct rc_spin {
    int32_t held;     /* 0 or 1 */
    int32_t promised; /* 1 while one of the waiters has a promise */
} rc_spin;

/* One waiter's wait; zero bytes to begin with, on its stack. */
typedef struct rc_spin_wait {
    int32_t yields;
    int32_t promised; /* 1 if the promise is ours */
} rc_spin_wait;

static inline void rc_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* 1 if the lock was free and is ours now, 0 if it is held or promised to a waiter. Order: acquire. */
static inline int rc_spin_try_lock(rc_spin *lock)
{
    int32_t is = 0;
    return __atomic_load_n(&lock->promised, __ATOMIC_RELAXED) == 0 &&
           __atomic_compare_exchange_n(&lock->held, &is, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* One turn of waiting: look up to `tries` times, with up to `pauses` pauses between two looks, and take the lock when it
 * is free; then give the core away once. 1 if the lock is ours, 0 if the caller should come again with the same wait. */
static inline int rc_spin_turn(rc_spin *lock, rc_spin_wait *wait, int32_t tries, int32_t pauses)
{
    int32_t pause = 1, none = 0;
    for (int32_t i = 0; i < tries; i++) {
        int32_t is = 0;
        /* only look at first: a failed exchange would take the line away from the holder */
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
        return 0; /* look once more before yielding, which may cost us a slice of the scheduler's */
    }
    if (wait->yields < RC_SPIN_YIELDS) {
        wait->yields++;
        (void)sched_yield();
    } else { /* held for long: do not burn the core, and let in a holder of lower priority */
        struct timespec ns = {0, RC_SPIN_SLEEP_NS};
        (void)nanosleep(&ns, NULL);
    }
    return 0;
}

/* Take the lock; waits by spinning and yielding. Not recursive. Order: acquire. */
static inline void rc_spin_lock(rc_spin *lock)
{
    if (__builtin_expect(!rc_spin_try_lock(lock), 0)) {
        rc_spin_wait wait = {0, 0};
        while (!rc_spin_turn(lock, &wait, RC_SPIN_TRIES, RC_SPIN_PAUSES))
            ;
    }
}

/* Release the lock, whoever holds it; a free one stays free. Order: release. */
static inline void rc_spin_unlock(rc_spin *lock)
{
    __atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}

/* ---------------------------------------------------------------- mutex: waiters sleep */
#if defined(__linux__)
typedef struct rc_mutex {
    uint32_t word;   /* RC_MUTEX_ bits, or 0 */
    uint32_t handed; /* 1 from the holder's handing over until the one it was promised to has seen it */
} rc_mutex;

static inline int64_t rc_mutex_now(void)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Sleep while *word is `is`, until somebody wakes us; may also return just so. */
static inline void rc_futex_wait(uint32_t *word, uint32_t is)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, is, NULL, NULL, 0);
}

static inline void rc_futex_wake_one(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* 1 if the mutex was free and is ours now, else 0. Order: acquire. */
static inline int rc_mutex_try_lock(rc_mutex *mutex)
{
    uint32_t is = 0;
    return __atomic_compare_exchange_n(&mutex->word, &is, RC_MUTEX_HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Wait for a held mutex. The word says that somebody may sleep from before our first sleep until we hold the mutex, or
 * the wake-up of another is ours to pass on: then we hold it and say so again. */
static inline void rc_mutex_wait(rc_mutex *mutex)
{
    uint32_t slept = 0; /* RC_MUTEX_WAITERS once we have: others may sleep still */
    int64_t since = 0;
    int asks = 0; /* 1 once we have waited for too long */
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
        if ((want & ~is & RC_MUTEX_PROMISED) != 0) { /* ours: the word stays held until it is us who hold it */
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

/* Take the mutex: one exchange if it is free, otherwise spins a while and sleeps. Not recursive. Order: acquire. */
static inline void rc_mutex_lock(rc_mutex *mutex)
{
    if (__builtin_expect(!rc_mutex_try_lock(mutex), 0))
        rc_mutex_wait(mutex);
}

/* Release a mutex that the caller holds: one exchange if nobody waits. Order: release. */
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
/* No thread may end while it holds one: a new thread may get the number of an old one. */
typedef struct rc_reentrant {
    rc_mutex mutex;
    uintptr_t owner; /* the holder, or 0; a thread only asks whether it is itself */
    uint32_t again;  /* how often the holder has taken it again; the holder's */
} rc_reentrant;

/* Another number in each thread, never 0; pthread_self() without the call where that is known. */
static inline uintptr_t rc_this_thread(void)
{
#if defined(__linux__) && defined(__x86_64__)
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self)); /* the thread's own control block, says the ABI */
    return self;
#elif defined(__linux__) && defined(__aarch64__)
    uintptr_t self;
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
    return self;
#else
    return (uintptr_t)pthread_self();
#endif
}

/* Make a free lock of any bytes. */
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

/* 1 if the lock was free, or ours already, and is ours now (once more), else 0. Order: acquire. */
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

/* Take the lock, once more if it is ours. Order: acquire. */
static inline void rc_reentrant_lock(rc_reentrant *lock)
{
    if (__builtin_expect(!rc_reentrant_try_lock(lock), 0)) {
        rc_mutex_lock(&lock->mutex);
        __atomic_store_n(&lock->owner, rc_this_thread(), __ATOMIC_RELAXED);
    }
}

/* Undo one taking; the last one releases the lock. 0, or EPERM if it is not ours: then nothing happens. Order: release. */
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

/* How often the calling thread holds the lock. */
static inline uint32_t rc_reentrant_depth(const rc_reentrant *lock)
{
    return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == rc_this_thread() ? lock->again + 1 : 0;
}

#endif
