/* The shapes of recent properties strings. Most strings have the same names and lengths as an earlier one. For these, one
 * comparison replaces splitting, the search for duplicate names, and the UTF-8 check. */
#ifndef ROCKETC_SHAPE_H
#define ROCKETC_SHAPE_H

#include "layout.h"
#include "properties.h"

enum {
    RC_SHAPES = 8, /* number of shapes kept; a string's length modulo this selects one */
    RC_SHAPE_BYTES = 256, /* longer strings, and strings with more pairs, are not kept */
    RC_SHAPE_PAIRS = 16,
    RC_SHAPE_STEP = 16, /* a string is compared in blocks of this many bytes */
};

typedef struct rc_shape {
    int32_t len; /* of the string; -1: the shape is empty */
    int32_t count; /* number of pairs, without duplicate names */
    int32_t keys, tags; /* indexes of KEYS and TAGS; -1: none */
    rc_pair pairs[RC_SHAPE_PAIRS]; /* positions in the string */
    int32_t names_len;
    int32_t name_ends[RC_SHAPE_PAIRS]; /* positions in names */
    uint8_t names[RC_SHAPE_BYTES]; /* one after the other */
    uint8_t bytes[RC_SHAPE_BYTES]; /* the string */
    uint8_t fixed[RC_SHAPE_BYTES]; /* 0xFF: this byte must be the same (names, separators) */
    uint8_t value[RC_SHAPE_BYTES]; /* 0xFF: this byte may be any ASCII character except 0x02 */
} rc_shape;

/* Return 1 if the n bytes at p, readable up to end, are ASCII and have this shape. */
static inline int rc_shape_fits(const rc_shape *s, const uint8_t *p, int n, const uint8_t *end)
{
    int whole = (n + RC_SHAPE_STEP - 1) / RC_SHAPE_STEP * RC_SHAPE_STEP;
    uint8_t wrong = 0;
    if (s->len != n || end - p < whole)
        return 0;
    for (int i = 0; i < whole; i++) {
        uint8_t unfit = (uint8_t)((p[i] == 2 ? 0xFF : 0) | (p[i] & 0x80));
        wrong |= (uint8_t)(((p[i] ^ s->bytes[i]) & s->fixed[i]) | (unfit & s->value[i]));
    }
    return wrong == 0;
}

/* Keep the shape of the n bytes at p, split into count pairs without duplicate names. ascii: all bytes are ASCII. */
static inline void rc_shape_keep(rc_shape *s, const uint8_t *p, int n, const rc_pair *pairs, int count, int ascii)
{
    int32_t used = 0;
    s->len = -1;
    s->keys = s->tags = -1;
    if (n > RC_SHAPE_BYTES || count > RC_SHAPE_PAIRS || !ascii)
        return;
    memset(s->fixed, 0, sizeof s->fixed);
    memset(s->value, 0, sizeof s->value);
    memcpy(s->bytes, p, (size_t)n);
    memset(s->fixed, 0xFF, (size_t)n);
    for (int i = 0; i < count; i++) {
        size_t name_len = (size_t)(pairs[i].name_end - pairs[i].name);
        size_t value_len = (size_t)(pairs[i].value_end - pairs[i].value);
        memset(s->fixed + pairs[i].value, 0, value_len);
        memset(s->value + pairs[i].value, 0xFF, value_len);
        if (name_len == strlen(RC_PROPERTY_KEYS) && memcmp(p + pairs[i].name, RC_PROPERTY_KEYS, name_len) == 0)
            s->keys = i;
        if (name_len == strlen(RC_PROPERTY_TAGS) && memcmp(p + pairs[i].name, RC_PROPERTY_TAGS, name_len) == 0)
            s->tags = i;
        memcpy(s->names + used, p + pairs[i].name, name_len);
        used += (int32_t)name_len;
        s->name_ends[i] = used;
        s->pairs[i] = pairs[i];
    }
    s->names_len = used;
    s->count = count;
    s->len = n;
}

#endif
