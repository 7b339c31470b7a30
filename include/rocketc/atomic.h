/* Numbers that several threads read and write without a lock. */
#ifndef ROCKETC_ATOMIC_H
#define ROCKETC_ATOMIC_H

#include <stdint.h>

/* Read *p. All writes before the rc_store_i64 that stored the value are visible afterwards. */
static inline int64_t rc_load_i64(const int64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Write *p. A thread that reads it with rc_load_i64 sees all writes before this one. */
static inline void rc_store_i64(int64_t *p, int64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* The same for a byte, and for a pointer. */
static inline uint8_t rc_load_u8(const uint8_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void rc_store_u8(uint8_t *p, uint8_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline void *rc_load_pointer(void *const *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void rc_store_pointer(void **p, void *v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Read a big-endian number of a map that another thread or process may write; p is aligned to 4. Acquire. */
static inline int32_t rc_load_be32(const uint8_t *p)
{
    return (int32_t)__builtin_bswap32(__atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_ACQUIRE));
}

/* Write such a number. A thread that reads it with rc_load_be32 sees all writes before this one. */
static inline void rc_store_be32(uint8_t *p, int32_t v)
{
    __atomic_store_n((uint32_t *)(void *)p, __builtin_bswap32((uint32_t)v), __ATOMIC_RELEASE);
}

/* *p += v; return the new value. */
static inline int64_t rc_add_i64(int64_t *p, int64_t v)
{
    return __atomic_add_fetch(p, v, __ATOMIC_ACQ_REL);
}

/* *p += v, for a counter that does not order other accesses. */
static inline void rc_count_i64(int64_t *p, int64_t v)
{
    (void)__atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

/* *p = v if v is greater. */
static inline void rc_raise_i64(int64_t *p, int64_t v)
{
    int64_t now = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (now < v && !__atomic_compare_exchange_n(p, &now, v, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

/* *p = v if it is 0; return the previous value. */
static inline int64_t rc_set_once_i64(int64_t *p, int64_t v)
{
    int64_t now = 0;
    (void)__atomic_compare_exchange_n(p, &now, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return now;
}

/* Increment the count *p unless it is 0; return 1 if it was incremented. */
static inline int rc_hold_i64(int64_t *p)
{
    int64_t now = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (now > 0)
        if (__atomic_compare_exchange_n(p, &now, now + 1, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return 1;
    return 0;
}

/* No write before this line becomes visible after a write after it. */
static inline void rc_fence_release(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* All writes before this line are visible to other threads before any read after it. For two threads that each set a flag
 * and then read the other's flag. */
static inline void rc_fence_full(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Read and write one byte without changing it: the page becomes writable, and no write of another thread is lost. */
static inline void rc_touch_for_writing(uint8_t *p)
{
    (void)__atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
}

#endif
