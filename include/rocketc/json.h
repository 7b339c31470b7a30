/* Pieces of JSON text, as Python's json.dumps(..., ensure_ascii=False) writes them. Each returns the bytes written. */
#ifndef ROCKETC_JSON_H
#define ROCKETC_JSON_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "utf8.h"

enum {
    RC_JSON_GROWTH = 6,  /* most bytes that one byte of text becomes: \u001f */
    RC_JSON_I64_MAX = 20 /* bytes of a number */
};

/* Whether one of the 8 bytes of v is less than 0x20, a quotation mark or a backslash. */
static inline int rc_json_must_escape(uint64_t v)
{
    const uint64_t one = 0x0101010101010101u, top = 0x8080808080808080u;
    uint64_t quote = v ^ 0x22 * one, slash = v ^ 0x5C * one;
    return (((v - 0x20 * one) & ~v) | ((quote - one) & ~quote) | ((slash - one) & ~slash)) & top ? 1 : 0;
}

/* Write one character below U+0080. dst: RC_JSON_GROWTH bytes. */
static inline size_t rc_json_char(uint8_t *dst, uint8_t c)
{
    static const char letters[0x5D] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                       ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    char letter = c < sizeof letters ? letters[c] : 0;
    if (letter == 0 && c >= 0x20) {
        dst[0] = c;
        return 1;
    }
    dst[0] = '\\';
    if (letter != 0) {
        dst[1] = (uint8_t)letter;
        return 2;
    }
    memcpy(dst + 1, "u00", 3);
    dst[4] = (uint8_t)('0' + (c >> 4));
    dst[5] = (uint8_t)"0123456789abcdef"[c & 15];
    return 6;
}

/* Write n bytes of text in quotation marks, with U+FFFD for invalid UTF-8. dst: RC_JSON_GROWTH * n + 2 bytes. */
static inline size_t rc_json_text(uint8_t *dst, const uint8_t *src, size_t n)
{
    uint8_t *out = dst;
    size_t i = 0;
    int valid = rc_utf8_valid(src, n);
    *out++ = '"';
    while (i < n) {
        uint64_t v;
        if (valid && n - i >= 8) {
            memcpy(&v, src + i, 8);
            if (!rc_json_must_escape(v)) {
                memcpy(out, &v, 8);
                out += 8;
                i += 8;
                continue;
            }
        }
        /* up to 8 bytes one by one, or a whole sequence if the text has invalid bytes */
        for (size_t stop = n - i < 8 ? n : i + 8; i < stop;) {
            int step = valid ? 1 : rc_utf8_step(src + i, n - i);
            if (step == 1) {
                out += rc_json_char(out, src[i]);
            } else if (step < 0) {
                memcpy(out, "\xEF\xBF\xBD", 3);
                out += 3;
            } else {
                memcpy(out, src + i, (size_t)step);
                out += step;
            }
            i += (size_t)(step < 0 ? -step : step);
        }
    }
    *out++ = '"';
    return (size_t)(out - dst);
}

/* Write n bytes as base64 in quotation marks. dst: (n + 2) / 3 * 4 + 2 bytes. */
static inline size_t rc_json_base64(uint8_t *dst, const uint8_t *src, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *out = dst;
    *out++ = '"';
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned v = (unsigned)src[i] << 16 | (left > 1 ? (unsigned)src[i + 1] << 8 : 0) | (left > 2 ? src[i + 2] : 0);
        out[0] = (uint8_t)digits[v >> 18];
        out[1] = (uint8_t)digits[v >> 12 & 63];
        out[2] = (uint8_t)(left > 1 ? digits[v >> 6 & 63] : '=');
        out[3] = (uint8_t)(left > 2 ? digits[v & 63] : '=');
        out += 4;
    }
    *out++ = '"';
    return (size_t)(out - dst);
}

/* Write a number in decimal. dst: RC_JSON_I64_MAX bytes. */
static inline size_t rc_json_i64(uint8_t *dst, int64_t v)
{
    uint8_t digits[RC_JSON_I64_MAX];
    uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t n = 0, at = 0;
    do {
        digits[n++] = (uint8_t)('0' + left % 10);
        left /= 10;
    } while (left != 0);
    if (v < 0)
        dst[at++] = '-';
    while (n > 0)
        dst[at++] = digits[--n];
    return at;
}

#endif
