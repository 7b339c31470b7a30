/* Texts made from bytes: hex, hosts, and copies of short strings. */
#ifndef ROCKETC_TEXT_H
#define ROCKETC_TEXT_H

#include "bytes.h"

enum {
    RC_HOST_TEXT_MAX = 64, /* "[" 39 "]:" 11, rounded up */
    RC_STREAM_BYTES = 256, /* shorter copies go through the cache */
    RC_COPY_SLACK = 32,    /* bytes after a copy that rc_copy_short may overwrite */
};

/* Copy n bytes; a short text is one move of 32 bytes. dst: n + RC_COPY_SLACK bytes; src: readable for as many. */
static inline void rc_copy_slack(uint8_t *dst, const uint8_t *src, size_t n)
{
    memcpy(dst, src, RC_COPY_SLACK);
    if (n > RC_COPY_SLACK)
        memcpy(dst + RC_COPY_SLACK, src + RC_COPY_SLACK, n - RC_COPY_SLACK);
}

/* Do the same if src is readable only up to end, at least n bytes. */
static inline void rc_copy_short(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *end)
{
    if (n <= RC_COPY_SLACK && (uintptr_t)end >= (uintptr_t)src + RC_COPY_SLACK)
        memcpy(dst, src, RC_COPY_SLACK);
    else
        memcpy(dst, src, n);
}

/* Append n bytes to a large buffer that is filled sequentially and read later, bypassing the cache. Ordinary stores would
 * first fetch every line that they overwrite. */
static inline void rc_copy_stream(uint8_t *dst, const uint8_t *src, size_t n)
{
#if defined(__SSE2__)
    size_t head = (size_t)(-(uintptr_t)dst & 63u);
    if (n < RC_STREAM_BYTES) {
        memcpy(dst, src, n);
        return;
    }
    memcpy(dst, src, head);
    for (dst += head, src += head, n -= head; n >= 64; dst += 64, src += 64, n -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)src), b = _mm_loadu_si128((const __m128i *)(src + 16)),
                c = _mm_loadu_si128((const __m128i *)(src + 32)), d = _mm_loadu_si128((const __m128i *)(src + 48));
        _mm_stream_si128((__m128i *)dst, a);
        _mm_stream_si128((__m128i *)(dst + 16), b);
        _mm_stream_si128((__m128i *)(dst + 32), c);
        _mm_stream_si128((__m128i *)(dst + 48), d);
    }
#endif
    memcpy(dst, src, n);
}

/* Make the bytes of rc_copy_stream visible to the threads that are notified next. */
static inline void rc_stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Write n bytes as 2 * n upper-case hex digits. dst: 2 * n bytes. */
static inline void rc_hex(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i low = _mm_set1_epi8(15), nine = _mm_set1_epi8(9), zero = _mm_set1_epi8('0'),
                  letter = _mm_set1_epi8('A' - '0' - 10);
    for (; i + 8 <= n; i += 8) {
        __m128i v = _mm_loadl_epi64((const __m128i *)(src + i));
        v = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(v, 4), low), _mm_and_si128(v, low));
        v = _mm_add_epi8(_mm_add_epi8(v, zero), _mm_and_si128(_mm_cmpgt_epi8(v, nine), letter));
        _mm_storeu_si128((__m128i *)(dst + 2 * i), v);
    }
#endif
    for (; i < n; i++) {
        unsigned hi = src[i] >> 4, lo = src[i] & 15u;
        dst[2 * i] = (uint8_t)(hi + '0' + (hi > 9 ? 'A' - '0' - 10 : 0));
        dst[2 * i + 1] = (uint8_t)(lo + '0' + (lo > 9 ? 'A' - '0' - 10 : 0));
    }
}

/* Write v in decimal; return the number of digits. dst: 10 bytes. */
static inline int rc_decimal(uint8_t *dst, uint32_t v)
{
    uint8_t digits[10];
    int n = 0;
    do {
        digits[n++] = (uint8_t)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    for (int i = 0; i < n; i++)
        dst[i] = digits[n - 1 - i];
    return n;
}

static inline int rc_ipv4_text(uint8_t *dst, const uint8_t *address)
{
    int n = rc_decimal(dst, address[0]);
    for (int i = 1; i < 4; i++) {
        dst[n++] = '.';
        n += rc_decimal(dst + n, address[i]);
    }
    return n;
}

/* RFC 5952: groups without leading zeros, lower case, "::" for the first longest run of two or more zero groups. */
static inline int rc_ipv6_text(uint8_t *dst, const uint8_t *address)
{
    unsigned group[8];
    int gap = -1, gap_len = 1, n = 0;
    for (int i = 0; i < 8; i++)
        group[i] = (unsigned)address[2 * i] << 8 | address[2 * i + 1];
    for (int i = 0; i < 8; i++) {
        int run = 0;
        while (i + run < 8 && group[i + run] == 0)
            run++;
        if (run > gap_len) {
            gap = i;
            gap_len = run;
        }
    }
    for (int i = 0; i < 8; i++) {
        int shift = 12;
        if (i == gap) {
            dst[n++] = ':';
            dst[n++] = ':';
            i += gap_len - 1;
            continue;
        }
        if (i > 0 && dst[n - 1] != ':')
            dst[n++] = ':';
        while (shift > 0 && group[i] >> shift == 0)
            shift -= 4;
        for (; shift >= 0; shift -= 4)
            dst[n++] = (uint8_t)"0123456789abcdef"[group[i] >> shift & 15u];
    }
    return n;
}

/* Write a stored host of 8 or 20 bytes as `ip:port` or `[v6]:port`; return the length. dst: RC_HOST_TEXT_MAX bytes. */
static inline int rc_host_text(uint8_t *dst, const uint8_t *host, int width)
{
    int n = 0;
    int32_t port = rc_get_i32(host + width - 4);
    if (width == 8) {
        n = rc_ipv4_text(dst, host);
    } else {
        dst[n++] = '[';
        n += rc_ipv6_text(dst + n, host);
        dst[n++] = ']';
    }
    dst[n++] = ':';
    if (port < 0)
        dst[n++] = '-';
    return n + rc_decimal(dst + n, port < 0 ? 0u - (uint32_t)port : (uint32_t)port);
}

#endif
