/* A histogram of latencies: any thread adds, any thread reads meanwhile. Zero bytes are an empty one.
 * Each power of two is cut in 8 buckets, so what is read is at most 12.5 % more than what was added. */
#ifndef ROCKETC_HISTOGRAM_H
#define ROCKETC_HISTOGRAM_H

#include <stdint.h>

enum {
    RC_HISTOGRAM_CUT = 3, /* a power of two has 2 ** 3 buckets; below the first of them each number has its own */
    RC_HISTOGRAM_BUCKETS = 321, /* up to 2 ** 42 ns, 73 minutes; the last one is for all that is more */
};

/* All accesses are relaxed: a sum read meanwhile may miss what was added just now, and nothing else. */
typedef struct rc_histogram {
    uint64_t added[RC_HISTOGRAM_BUCKETS]; /* how many numbers, by bucket */
    uint64_t max; /* the greatest one, exactly */
    uint64_t sum; /* of all of them */
} rc_histogram;

static inline uint32_t rc_histogram_bucket(uint64_t ns)
{
    uint32_t power, bucket;
    if (ns >> RC_HISTOGRAM_CUT == 0)
        return (uint32_t)ns;
    power = 63 - (uint32_t)__builtin_clzll(ns) - RC_HISTOGRAM_CUT; /* of the bucket's width */
    bucket = (power << RC_HISTOGRAM_CUT) + (uint32_t)(ns >> power);
    return bucket < RC_HISTOGRAM_BUCKETS ? bucket : RC_HISTOGRAM_BUCKETS - 1;
}

/* The greatest number that belongs into a bucket. */
static inline uint64_t rc_histogram_upper(uint32_t bucket)
{
    uint32_t power = bucket >> RC_HISTOGRAM_CUT;
    if (power <= 1)
        return bucket;
    power--;
    return ((uint64_t)(bucket - (power << RC_HISTOGRAM_CUT) + 1) << power) - 1;
}

static inline void rc_histogram_add(rc_histogram *h, uint64_t ns)
{
    uint64_t max = __atomic_load_n(&h->max, __ATOMIC_RELAXED);
    (void)__atomic_fetch_add(&h->added[rc_histogram_bucket(ns)], 1, __ATOMIC_RELAXED);
    (void)__atomic_fetch_add(&h->sum, ns, __ATOMIC_RELAXED);
    while (ns > max && !__atomic_compare_exchange_n(&h->max, &max, ns, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* How many numbers were added. */
static inline uint64_t rc_histogram_count(const rc_histogram *h)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < RC_HISTOGRAM_BUCKETS; i++)
        count += __atomic_load_n(&h->added[i], __ATOMIC_RELAXED);
    return count;
}

/* The greatest number that was added, exactly; 0 if none was. */
static inline uint64_t rc_histogram_max(const rc_histogram *h)
{
    return __atomic_load_n(&h->max, __ATOMIC_RELAXED);
}

/* The sum of all that was added, in 64 bits. */
static inline uint64_t rc_histogram_sum(const rc_histogram *h)
{
    return __atomic_load_n(&h->sum, __ATOMIC_RELAXED);
}

/* How many of the numbers are less than a power of two, 2 ** 41 ns at most. */
static inline uint64_t rc_histogram_below(const rc_histogram *h, uint64_t power_of_two)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < rc_histogram_bucket(power_of_two); i++)
        count += __atomic_load_n(&h->added[i], __ATOMIC_RELAXED);
    return count;
}

/* What `percent` of the numbers (0 to 100) do not exceed, at most 12.5 % too much and never above max; 0 if there are
 * none. Beyond 73 minutes it is max. */
static inline uint64_t rc_histogram_percentile(const rc_histogram *h, double percent)
{
    uint64_t count = rc_histogram_count(h), max = rc_histogram_max(h), seen = 0;
    double rank = percent / 100 * (double)count; /* the smallest whole number >= rank, and >= 1, of them */
    for (uint32_t i = 0; i < RC_HISTOGRAM_BUCKETS - 1; i++) {
        seen += __atomic_load_n(&h->added[i], __ATOMIC_RELAXED);
        if (seen != 0 && (double)seen >= rank) {
            uint64_t upper = rc_histogram_upper(i);
            return upper < max ? upper : max;
        }
    }
    return max;
}

/* The least n with size <= 2 ** n; size: 1 or more. */
static inline uint32_t rc_size_class(uint32_t size)
{
    return size > 1 ? 32 - (uint32_t)__builtin_clz(size - 1) : 0;
}

#endif
