/* Numbers that several threads read and write without a lock. */
#ifndef ROCKETC_ATOMIC_H
#define ROCKETC_ATOMIC_H

#include <stdint.h>

/* Read *p; what was written before its rc_store_i64 is seen from here on. */
static inline int64_t rc_load_i64(const int64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Write *p; whoever reads it with rc_load_i64 sees what was written before. */
static inline void rc_store_i64(int64_t *p, int64_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* Read a big-endian number of a map that another thread or process may write; p has an alignment of 4. Acquire. */
static inline int32_t rc_load_be32(const uint8_t *p)
{
    return (int32_t)__builtin_bswap32(__atomic_load_n((const uint32_t *)(const void *)p, __ATOMIC_ACQUIRE));
}

/* Write one; whoever reads it with rc_load_be32 sees what was written before. */
static inline void rc_store_be32(uint8_t *p, int32_t v)
{
    __atomic_store_n((uint32_t *)(void *)p, __builtin_bswap32((uint32_t)v), __ATOMIC_RELEASE);
}

/* *p += v; returns the new value. */
static inline int64_t rc_add_i64(int64_t *p, int64_t v)
{
    return __atomic_add_fetch(p, v, __ATOMIC_ACQ_REL);
}

/* *p += v, for a counter that orders nothing. */
static inline void rc_count_i64(int64_t *p, int64_t v)
{
    (void)__atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

/* *p = v if v is larger. */
static inline void rc_raise_i64(int64_t *p, int64_t v)
{
    int64_t now = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (now < v && !__atomic_compare_exchange_n(p, &now, v, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

/* *p = v if it is 0; returns what it was. */
static inline int64_t rc_set_once_i64(int64_t *p, int64_t v)
{
    int64_t now = 0;
    (void)__atomic_compare_exchange_n(p, &now, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return now;
}

/* Take one more of what is counted in *p, unless it has come to 0; returns 1 if taken. */
static inline int rc_hold_i64(int64_t *p)
{
    int64_t now = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (now > 0)
        if (__atomic_compare_exchange_n(p, &now, now + 1, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return 1;
    return 0;
}

/* Nothing written before may become visible after what is written behind this line. */
static inline void rc_fence_release(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* What was written before is seen by others before anything behind this line is read: for two who each tell something and
 * then look at what the other tells. */
static inline void rc_fence_full(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* A read-modify-write of one byte that leaves it as it is: the page is made writable, and nobody's write is lost. */
static inline void rc_touch_for_writing(uint8_t *p)
{
    (void)__atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
}

#endif
