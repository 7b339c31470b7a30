/* Cache lines asked for before they are needed. Any address will do: what is not mapped is not asked for. */
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
