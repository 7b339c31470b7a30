/* Big-endian numbers at any address, as Java's ByteBuffer reads and writes them.
 * The caller must check that the bytes exist. Never cast a byte pointer: copy, then swap. */
#ifndef ROCKETC_BYTES_H
#define ROCKETC_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "rocketc needs a little-endian host"
#endif

/* p: 2 bytes, any alignment */
static inline int16_t rc_get_i16(const uint8_t *p)
{
    uint16_t be;
    memcpy(&be, p, sizeof be);
    return (int16_t)__builtin_bswap16(be);
}

/* p: 4 bytes, any alignment */
static inline int32_t rc_get_i32(const uint8_t *p)
{
    uint32_t be;
    memcpy(&be, p, sizeof be);
    return (int32_t)__builtin_bswap32(be);
}

/* p: 8 bytes, any alignment */
static inline int64_t rc_get_i64(const uint8_t *p)
{
    uint64_t be;
    memcpy(&be, p, sizeof be);
    return (int64_t)__builtin_bswap64(be);
}

/* p: 2 bytes, writable, any alignment */
static inline void rc_put_i16(uint8_t *p, int16_t v)
{
    uint16_t be = __builtin_bswap16((uint16_t)v);
    memcpy(p, &be, sizeof be);
}

/* p: 4 bytes, writable, any alignment */
static inline void rc_put_i32(uint8_t *p, int32_t v)
{
    uint32_t be = __builtin_bswap32((uint32_t)v);
    memcpy(p, &be, sizeof be);
}

/* p: 8 bytes, writable, any alignment */
static inline void rc_put_i64(uint8_t *p, int64_t v)
{
    uint64_t be = __builtin_bswap64((uint64_t)v);
    memcpy(p, &be, sizeof be);
}

/* Return how many leading bytes of p[0..n) are zero; n if all are. */
static inline size_t rc_zero_prefix(const uint8_t *p, size_t n)
{
    size_t i = 0;
    uint64_t a[4];
    for (; i + sizeof a <= n; i += sizeof a) {
        memcpy(a, p + i, sizeof a);
        if ((a[0] | a[1] | a[2] | a[3]) != 0)
            break;
    }
    while (i < n && p[i] == 0)
        i++;
    return i;
}

/* Return the length of p[0..n) without the zero bytes at its end. */
static inline size_t rc_trim_zeros(const uint8_t *p, size_t n)
{
    uint64_t a[4];
    while (n >= sizeof a) {
        memcpy(a, p + n - sizeof a, sizeof a);
        if ((a[0] | a[1] | a[2] | a[3]) != 0)
            break;
        n -= sizeof a;
    }
    while (n > 0 && p[n - 1] == 0)
        n--;
    return n;
}

/* Return the index of the first byte of p[0..n) that is a or b; n if there is none. */
static inline size_t rc_find_either(const uint8_t *p, size_t n, uint8_t a, uint8_t b)
{
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i va = _mm_set1_epi8((char)a), vb = _mm_set1_epi8((char)b);
    for (; i + 16 <= n; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(p + i));
        int hits = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(v, va), _mm_cmpeq_epi8(v, vb)));
        if (hits != 0)
            return i + (size_t)__builtin_ctz((unsigned)hits);
    }
#endif
    while (i < n && p[i] != a && p[i] != b)
        i++;
    return i;
}

#endif
