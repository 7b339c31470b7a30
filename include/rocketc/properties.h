/* The properties string of a record: name 0x01 value 0x02, repeated; the last 0x02 may be missing.
 * Source: MessageDecoder.string2messageProperties since 4.9.1, which reads what all releases wrote. */
#ifndef ROCKETC_PROPERTIES_H
#define ROCKETC_PROPERTIES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Where a pair stands in the string; positions and lengths in bytes. */
typedef struct rc_pair {
    uint16_t name_at;
    uint16_t name_len;  /* > 0 */
    uint16_t value_at;
    uint16_t value_len; /* > 0 */
} rc_pair;

enum {
    RC_PAIR_MIN_BYTES = 4, /* n 1 v 2; so a string of 32767 bytes holds at most 8192 pairs */
    RC_PAIRS_MAX = 8192,
};

/* The walk over the separators, one call for each in order. */
typedef struct rc_splitter {
    rc_pair *pairs;
    int count;
    int start;  /* of this piece */
    int middle; /* the first 0x01 of this piece, -1 before it */
} rc_splitter;

static inline void rc_split_end(rc_splitter *s, int end)
{
    if (s->middle > s->start && s->middle < end - 1) {
        rc_pair *pair = s->pairs + s->count++;
        pair->name_at = (uint16_t)s->start;
        pair->name_len = (uint16_t)(s->middle - s->start);
        pair->value_at = (uint16_t)(s->middle + 1);
        pair->value_len = (uint16_t)(end - s->middle - 1);
    }
    s->start = end + 1;
    s->middle = -1;
}

static inline void rc_split_at(rc_splitter *s, int at, uint8_t separator)
{
    if (separator == 2)
        rc_split_end(s, at);
    else if (s->middle < 0)
        s->middle = at;
}

/* Split n bytes (at most 32767) at p; pairs with an empty name or value are left out.
 * pairs: room for n / 4 + 1 pairs. Returns their number, in the order of the string, duplicates included. */
static inline int rc_split_properties(const uint8_t *p, int n, rc_pair *pairs)
{
    rc_splitter s = {pairs, 0, 0, -1};
    int i = 0;
#if defined(__SSE2__)
    const __m128i one = _mm_set1_epi8(1), two = _mm_set1_epi8(2);
    for (; i + 16 <= n; i += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(p + i));
        unsigned hits = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(v, one), _mm_cmpeq_epi8(v, two)));
        for (; hits != 0; hits &= hits - 1) {
            int at = i + __builtin_ctz(hits);
            rc_split_at(&s, at, p[at]);
        }
    }
#endif
    for (; i < n; i++) {
        if (p[i] == 1 || p[i] == 2)
            rc_split_at(&s, i, p[i]);
    }
    if (s.start < n)
        rc_split_end(&s, n);
    return s.count;
}

static inline int rc_same_name(const uint8_t *p, const rc_pair *a, const rc_pair *b)
{
    return a->name_len == b->name_len && memcmp(p + a->name_at, p + b->name_at, a->name_len) == 0;
}

/* Keep one pair of each name, at the place of its first and with the value of its last, as a Python dict does.
 * seen: 2 * RC_PAIRS_MAX numbers of scratch, used only where there are many pairs. Returns the new number. */
static inline int rc_drop_duplicates(const uint8_t *p, rc_pair *pairs, int count, uint16_t *seen)
{
    uint64_t marks = 0;
    int kept = 0, i, j, twins = 0;
    for (i = 0; i < count; i++) {
        const uint8_t *name = p + pairs[i].name_at;
        unsigned mark = (name[0] * 5u + name[pairs[i].name_len - 1] * 3u + pairs[i].name_len * 7u) & 63u;
        twins |= (int)(marks >> mark & 1);
        marks |= (uint64_t)1 << mark;
    }
    if (!twins)
        return count; /* nearly always */
    if (count > 32)
        memset(seen, 0, 2 * RC_PAIRS_MAX * sizeof *seen);
    for (i = 0; i < count; i++) {
        if (count <= 32) {
            for (j = 0; j < kept && !rc_same_name(p, pairs + j, pairs + i); j++)
                ;
        } else {
            uint32_t h = 2166136261u;
            for (j = 0; j < pairs[i].name_len; j++)
                h = (h ^ p[pairs[i].name_at + j]) * 16777619u;
            h = (h ^ h >> 15) & (2 * RC_PAIRS_MAX - 1);
            while (seen[h] != 0 && !rc_same_name(p, pairs + seen[h] - 1, pairs + i))
                h = (h + 1) & (2 * RC_PAIRS_MAX - 1);
            j = seen[h] != 0 ? seen[h] - 1 : kept;
            seen[h] = (uint16_t)(j + 1);
        }
        if (j == kept) {
            pairs[kept++] = pairs[i];
        } else {
            pairs[j].value_at = pairs[i].value_at;
            pairs[j].value_len = pairs[i].value_len;
        }
    }
    return kept;
}

/* The last value of a name (one without 0x01 in it), without splitting all; returns its length, or -1 if the name is not there.
 * *value_at: set to its position. */
static inline int rc_find_property(const uint8_t *p, int n, const char *name, int name_len, int *value_at)
{
    int found = -1, start = 0;
    while (start < n) {
        const uint8_t *two = (const uint8_t *)memchr(p + start, 2, (size_t)(n - start));
        int end = two != NULL ? (int)(two - p) : n;
        if (end - start > name_len + 1 && p[start + name_len] == 1 && memcmp(p + start, name, (size_t)name_len) == 0) {
            *value_at = start + name_len + 1;
            found = end - *value_at;
        }
        start = end + 1;
    }
    return found;
}

#endif
