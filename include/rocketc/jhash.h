/* Java's String.hashCode over the UTF-16 units of a UTF-8 text: tags codes and index keys. */
#ifndef ROCKETC_JHASH_H
#define ROCKETC_JHASH_H

#include "utf8.h"

/* Extend the hash by eight ASCII characters, the first one in the lowest byte. Neighbors are combined to pairs, pairs to
 * fours, fours to eight: computed in sequence, each multiplication would wait for the one before it. */
static inline uint32_t rc_jhash_eight(uint32_t h, uint64_t w)
{
    w = (w & 0x00FF00FF00FF00FFu) * 31u + (w >> 8 & 0x00FF00FF00FF00FFu);
    w = (w & 0x0000FFFF0000FFFFu) * 961u + (w >> 16 & 0x0000FFFF0000FFFFu);                /* 31^2 */
    return h * 2487512833u + (uint32_t)w * 923521u + (uint32_t)(w >> 32);                  /* 31^8, 31^4 */
}

/* Extend the hash by four ASCII characters. */
static inline uint32_t rc_jhash_four(uint32_t h, uint32_t w)
{
    w = (w & 0x00FF00FFu) * 31u + (w >> 8 & 0x00FF00FFu);
    return h * 923521u + (w & 0xFFFFu) * 961u + (w >> 16);
}

/* h = 31 * h + unit, wrapped to 32 bits, from a start value (0 for a whole string).
 * p: n bytes of UTF-8; invalid bytes count as U+FFFD, as Java reads them. */
static inline int32_t rc_jhash_from(int32_t start, const uint8_t *p, size_t n)
{
    uint32_t h = (uint32_t)start;
    uint64_t eight;
    uint32_t four;
    size_t i = 0;
    while (i < n) {
        int step;
        while (n - i >= 8) {
            memcpy(&eight, p + i, 8);
            if (eight & 0x8080808080808080u)
                break;
            h = rc_jhash_eight(h, eight);
            i += 8;
        }
        if (i == n)
            break;
        if (n - i >= 4) {
            memcpy(&four, p + i, 4);
            if ((four & 0x80808080u) == 0) {
                h = rc_jhash_four(h, four);
                i += 4;
                continue;
            }
        }
        uint32_t c = p[i];
        if (c < 0x80) {
            h = 31u * h + c;
            i++;
            continue;
        }
        step = rc_utf8_step(p + i, n - i);
        if (step < 0) {
            h = 31u * h + 0xFFFDu;
            i += (size_t)-step;
            continue;
        }
        if (step == 2) {
            c = (c & 0x1Fu) << 6 | (p[i + 1] & 0x3Fu);
        } else if (step == 3) {
            c = (c & 0x0Fu) << 12 | (p[i + 1] & 0x3Fu) << 6 | (p[i + 2] & 0x3Fu);
        } else {
            c = (c & 0x07u) << 18 | (p[i + 1] & 0x3Fu) << 12 | (p[i + 2] & 0x3Fu) << 6 | (p[i + 3] & 0x3Fu);
            c -= 0x10000u;
            h = 31u * h + (0xD800u + (c >> 10));
            c = 0xDC00u + (c & 0x3FFu);
        }
        h = 31u * h + c;
        i += (size_t)step;
    }
    return (int32_t)h;
}

/* The hash of a whole string. */
static inline int32_t rc_jhash(const uint8_t *p, size_t n)
{
    return rc_jhash_from(0, p, n);
}

#endif
