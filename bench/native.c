/* Loops that are too slow in Python, and client requests of valgrind. bench/native.py compiles this file.
 * Each loop returns the seconds of `times` calls, one after the other over the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "rocketc/crc32.h"

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif

typedef unsigned long (*zlib_crc32_fn)(unsigned long, const uint8_t *, unsigned);

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* way: one of RC_CRC32_WAYS; -1: the best. *out: the CRC-32. Returns a negative number if the processor lacks it. */
double bench_crc32(int way, const uint8_t *p, size_t n, long times, uint32_t *out)
{
    rc_crc32_fn fn = rc_crc32_way(way < 0 ? rc_crc32_best() : way);
    double start = seconds();
    if (fn == NULL)
        return -1;
    for (long i = 0; i < times; i++)
        *out = fn(0, p, n);
    return seconds() - start;
}

/* fn: the function crc32() of a zlib that the caller has loaded. */
double bench_zlib(zlib_crc32_fn fn, const uint8_t *p, size_t n, long times, uint32_t *out)
{
    double start = seconds();
    for (long i = 0; i < times; i++)
        *out = (uint32_t)fn(0, p, (unsigned)n);
    return seconds() - start;
}

double bench_memcpy(uint8_t *dst, const uint8_t *p, size_t n, long times)
{
    double start = seconds();
    for (long i = 0; i < times; i++) {
        memcpy(dst, p, n);
        __asm__ volatile("" : : "r"(dst) : "memory"); /* each copy counts */
    }
    return seconds() - start;
}

/* Under callgrind: start counting, or write the counts since the start or the last write under a name.
 * Return 0 if this file was compiled without valgrind's headers. Outside of callgrind they do nothing. */
int bench_count(void)
{
#ifdef CALLGRIND_START_INSTRUMENTATION
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    return 1;
#else
    return 0;
#endif
}

int bench_counted(const char *name)
{
#ifdef CALLGRIND_START_INSTRUMENTATION
    CALLGRIND_DUMP_STATS_AT(name);
    return 1;
#else
    (void)name;
    return 0;
#endif
}
