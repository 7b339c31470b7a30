/* A histogram of latencies. Any thread may add while any thread reads. Zero bytes are an empty histogram.
 * Each power of two is divided into 8 buckets, so a value is read at most 12.5 % too large. */
#ifndef ROCKETC_HISTOGRAM_H
#define ROCKETC_HISTOGRAM_H

#include <stdint.h>

enum {
    RC_HISTOGRAM_CUT = 3, /* a power of two has 2 ** 3 buckets; each number below 2 ** 3 has its own */
    RC_HISTOGRAM_BUCKETS = 321, /* up to 2 ** 42 ns, 73 minutes; the last bucket has all greater numbers */
};

/* All accesses are relaxed: a reader may miss numbers that are being added, but sees all others. */
typedef struct rc_histogram {
    uint64_t added[RC_HISTOGRAM_BUCKETS]; /* how many numbers, by bucket */
    uint64_t max; /* the exact maximum */
    uint64_t sum; /* of all numbers */
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

/* Return the greatest number of a bucket. */
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

/* Return how many numbers were added. */
static inline uint64_t rc_histogram_count(const rc_histogram *h)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < RC_HISTOGRAM_BUCKETS; i++)
        count += __atomic_load_n(&h->added[i], __ATOMIC_RELAXED);
    return count;
}

/* Return the exact maximum of the added numbers; 0 if there are none. */
static inline uint64_t rc_histogram_max(const rc_histogram *h)
{
    return __atomic_load_n(&h->max, __ATOMIC_RELAXED);
}

/* Return the sum of all added numbers, in 64 bits. */
static inline uint64_t rc_histogram_sum(const rc_histogram *h)
{
    return __atomic_load_n(&h->sum, __ATOMIC_RELAXED);
}

/* Return how many of the numbers are less than a power of two, at most 2 ** 41 ns. */
static inline uint64_t rc_histogram_below(const rc_histogram *h, uint64_t power_of_two)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < rc_histogram_bucket(power_of_two); i++)
        count += __atomic_load_n(&h->added[i], __ATOMIC_RELAXED);
    return count;
}

/* Return the number that `percent` of the numbers (0 to 100) do not exceed, at most 12.5 % too large and never above max;
 * 0 if there are none. Above 73 minutes it is max. */
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

/* Return the least n with size <= 2 ** n; size: 1 or more. */
static inline uint32_t rc_size_class(uint32_t size)
{
    return size > 1 ? 32 - (uint32_t)__builtin_clz(size - 1) : 0;
}

#endif
