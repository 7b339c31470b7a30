/* The shape of a properties string, kept for those that come: most have the names and lengths of an earlier one, and then
 * one comparison does for splitting, looking for names that come twice, and checking for UTF-8. */
#ifndef ROCKETC_SHAPE_H
#define ROCKETC_SHAPE_H

#include "layout.h"
#include "properties.h"

enum {
    RC_SHAPES = 8, /* kept at a time, each at its string's length modulo this */
    RC_SHAPE_BYTES = 256, /* longer strings, and such of more pairs, are not kept */
    RC_SHAPE_PAIRS = 16,
    RC_SHAPE_STEP = 16, /* a string is looked at in pieces of so many bytes */
};

typedef struct rc_shape {
    int32_t len; /* of the string; -1: there is none */
    int32_t count; /* pairs, no name twice */
    int32_t keys, tags; /* which of them are KEYS and TAGS; -1: none */
    rc_pair pairs[RC_SHAPE_PAIRS]; /* positions in the string */
    int32_t names_len;
    int32_t name_ends[RC_SHAPE_PAIRS]; /* positions in names */
    uint8_t names[RC_SHAPE_BYTES]; /* one behind the other */
    uint8_t bytes[RC_SHAPE_BYTES]; /* the string */
    uint8_t fixed[RC_SHAPE_BYTES]; /* 0xFF: this byte must be the same (names, separators) */
    uint8_t value[RC_SHAPE_BYTES]; /* 0xFF: this one may be any ASCII character but 0x02 */
} rc_shape;

/* 1 if the n bytes at p, readable up to end, are split like the string of this shape, and ASCII. */
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

/* Keep how the n bytes at p were split; count pairs, no name twice. ascii: all of them are. */
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
