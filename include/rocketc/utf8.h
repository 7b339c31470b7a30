/* UTF-8 from a disk: check it, and replace invalid bytes as Java does.
 * Java's String(bytes, UTF_8) and Python's errors="replace" write one U+FFFD for each maximal
 * part of a sequence that can't be completed (Unicode 15, section 3.9). */
#ifndef ROCKETC_UTF8_H
#define ROCKETC_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Return the length of the valid sequence at p (n > 0 bytes), or minus the length of its maximal invalid part. */
static inline int rc_utf8_step(const uint8_t *p, size_t n)
{
    uint8_t c = p[0], lo = 0x80, hi = 0xBF;
    int need;
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)
        return -1;
    if (c < 0xE0) {
        need = 1;
    } else if (c < 0xF0) {
        need = 2;
        if (c == 0xE0)
            lo = 0xA0;
        if (c == 0xED)
            hi = 0x9F;
    } else {
        need = 3;
        if (c == 0xF0)
            lo = 0x90;
        if (c == 0xF4)
            hi = 0x8F;
    }
    for (int i = 1; i <= need; i++) {
        if ((size_t)i >= n || p[i] < lo || p[i] > hi)
            return -i;
        lo = 0x80;
        hi = 0xBF;
    }
    return need + 1;
}

/* Return 1 if all n bytes at p are ASCII. */
static inline int rc_is_ascii(const uint8_t *p, size_t n)
{
    uint64_t a, b, any = 0;
    size_t i = 0;
    if (n >= 8) {
        for (; i + 16 <= n; i += 16) {
            memcpy(&a, p + i, 8);
            memcpy(&b, p + i + 8, 8);
            any |= a | b;
        }
        if (i + 8 <= n) {
            memcpy(&a, p + i, 8);
            any |= a;
        }
        memcpy(&a, p + n - 8, 8);
        return ((any | a) & 0x8080808080808080u) == 0;
    }
    for (; i < n; i++)
        any |= p[i];
    return (any & 0x80u) == 0;
}

/* Return 1 if the n bytes at p are valid UTF-8. */
static inline int rc_utf8_valid(const uint8_t *p, size_t n)
{
    size_t i = 0;
    if (rc_is_ascii(p, n))
        return 1;
    while (i < n) {
        int step = rc_utf8_step(p + i, n - i);
        if (step < 0)
            return 0;
        i += (size_t)step;
    }
    return 1;
}

/* Copy n bytes at src as valid UTF-8, with U+FFFD for invalid bytes; return the bytes written.
 * dst: 3 * n bytes, or NULL to count only. */
static inline size_t rc_utf8_repair(uint8_t *dst, const uint8_t *src, size_t n)
{
    size_t i = 0, out = 0;
    while (i < n) {
        int step = rc_utf8_step(src + i, n - i);
        size_t took = (size_t)(step < 0 ? -step : step);
        if (step < 0) {
            if (dst != NULL)
                memcpy(dst + out, "\xEF\xBF\xBD", 3);
            out += 3;
        } else {
            if (dst != NULL)
                memcpy(dst + out, src + i, took);
            out += took;
        }
        i += took;
    }
    return out;
}

#endif
