/* Prefetching of cache lines. Any address is allowed: addresses that are not mapped are ignored. */
#ifndef ROCKETC_PREFETCH_H
#define ROCKETC_PREFETCH_H

static inline void rc_prefetch(const void *p)
{
    __builtin_prefetch(p, 0);
}

static inline void rc_prefetch_for_writing(const void *p)
{
    __builtin_prefetch(p, 1);
}

#endif
