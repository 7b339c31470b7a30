/* The properties string of a record: name 0x01 value 0x02, repeated; the last 0x02 may be missing.
 * Source: MessageDecoder.string2messageProperties since 4.9.1, which reads the strings of all releases. */
#ifndef ROCKETC_PROPERTIES_H
#define ROCKETC_PROPERTIES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The positions of a pair in the string, in bytes; neither part is empty. */
typedef struct rc_pair {
    int32_t name;       /* [name, name_end) */
    int32_t name_end;
    int32_t value;      /* [value, value_end) */
    int32_t value_end;
} rc_pair;

enum {
    RC_PAIR_MIN_BYTES = 4, /* n 1 v 2; so a string of 32767 bytes holds at most 8192 pairs */
    RC_PAIRS_MAX = 8194,  /* plus two for incomplete pairs */
    RC_PAIRS_SEEN = 16384,
};

/* Return a mask for 64 bytes at p; bit i: p[i] == c. */
static inline uint64_t rc_equal_mask(const uint8_t *p, uint8_t c)
{
    uint64_t mask = 0;
#if defined(__SSE2__)
    const __m128i v = _mm_set1_epi8((char)c);
    for (int i = 0; i < 4; i++) {
        __m128i equal = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), v);
        mask |= (uint64_t)(unsigned)_mm_movemask_epi8(equal) << 16 * i;
    }
#else
    for (int i = 0; i < 64; i++)
        mask |= (uint64_t)(p[i] == c) << i;
#endif
    return mask;
}

/* Return a mask for the up to 64 bytes of [base, n); bit i: a pair ends at p[base + i]. Also reads up to 64 bytes before
 * p + n: those before the string belong to the header of its record, which is longer. */
static inline uint64_t rc_separators(const uint8_t *p, int n, int base)
{
    return n - base >= 64 ? rc_equal_mask(p + base, 2) : rc_equal_mask(p + n - 64, 2) >> (64 - (n - base));
}

/* Split n bytes (at most 32767) at p into pairs, without those with an empty name or value.
 * end: p is readable up to here, at least n bytes. pairs: room for n / 4 + 2 pairs.
 * Returns their number. The pairs have the order of the string, and may have duplicate names. */
static inline int rc_split_properties(const uint8_t *p, int n, const uint8_t *end, rc_pair *pairs)
{
    rc_pair *pair = pairs;
    int start = 0, middle = -1; /* of this piece: its first byte, its first 0x01 */
    for (int base = 0; base < n; base += 64) {
        const uint8_t *bytes = p + base;
        uint8_t last[64];
        uint64_t inside = n - base >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << (n - base)) - 1, ones, twos;
        if (end - bytes < 64) {
            memset(last, 0, sizeof last);
            memcpy(last, bytes, (size_t)(n - base < 64 ? n - base : 64));
            bytes = last;
        }
        ones = rc_equal_mask(bytes, 1) & inside;
        twos = rc_equal_mask(bytes, 2) & inside;
        for (; twos != 0; twos &= twos - 1) {
            int bit = __builtin_ctzll(twos), stop = base + bit;
            if (middle < 0 && ones != 0)
                middle = base + __builtin_ctzll(ones);
            pair->name = start;
            pair->name_end = middle;
            pair->value = middle + 1;
            pair->value_end = stop;
            pair += middle > start && middle < stop - 1;
            start = stop + 1;
            middle = -1;
            ones &= ~(uint64_t)0 << bit;
        }
        if (middle < 0 && ones != 0)
            middle = base + __builtin_ctzll(ones);
    }
    pair->name = start; /* the last separator may be missing */
    pair->name_end = middle;
    pair->value = middle + 1;
    pair->value_end = n;
    pair += start < n && middle > start && middle < n - 1;
    return (int)(pair - pairs);
}

static inline int rc_same_name(const uint8_t *p, const rc_pair *a, const rc_pair *b)
{
    int n = a->name_end - a->name;
    return n == b->name_end - b->name && memcmp(p + a->name, p + b->name, (size_t)n) == 0;
}

/* Keep one pair of each name, at the place of the first one and with the value of the last one, as a Python dict does.
 * seen: scratch space of RC_PAIRS_SEEN numbers, only used for many pairs. Returns the new number of pairs. */
static inline int rc_drop_duplicates(const uint8_t *p, rc_pair *pairs, int count, uint16_t *seen)
{
    uint64_t marks = 0;
    int kept = 0, i, j, twins = 0;
    for (i = 0; i < count; i++) {
        /* most names differ in length or first letter */
        unsigned mark = (p[pairs[i].name] + 8u * (unsigned)(pairs[i].name_end - pairs[i].name)) & 63u;
        twins |= (int)(marks >> mark & 1);
        marks |= (uint64_t)1 << mark;
    }
    if (!twins)
        return count; /* the most frequent case */
    if (count > 32)
        memset(seen, 0, RC_PAIRS_SEEN * sizeof *seen);
    for (i = 0; i < count; i++) {
        if (count <= 32) {
            for (j = 0; j < kept && !rc_same_name(p, pairs + j, pairs + i); j++)
                ;
        } else {
            uint32_t h = 2166136261u;
            for (j = pairs[i].name; j < pairs[i].name_end; j++)
                h = (h ^ p[j]) * 16777619u;
            h = (h ^ h >> 15) & (RC_PAIRS_SEEN - 1);
            while (seen[h] != 0 && !rc_same_name(p, pairs + seen[h] - 1, pairs + i))
                h = (h + 1) & (RC_PAIRS_SEEN - 1);
            j = seen[h] != 0 ? seen[h] - 1 : kept;
            seen[h] = (uint16_t)(j + 1);
        }
        if (j == kept) {
            pairs[kept++] = pairs[i];
        } else {
            pairs[j].value = pairs[i].value;
            pairs[j].value_end = pairs[i].value_end;
        }
    }
    return kept;
}

/* Return where the value begins in a piece of the string (the n bytes between two 0x02) if it has this name; 0 if not.
 * name: a literal, so that the compiler knows its length. */
static inline int rc_value_at(const uint8_t *p, int n, const char *name)
{
    int at = (int)strlen(name) + 1;
    return n > at && p[at - 1] == 1 && memcmp(p, name, (size_t)at - 1) == 0 ? at : 0;
}

/* Do rc_find_property() for a name of name_len bytes. */
static inline int rc_find_name(const uint8_t *p, int n, const char *name, int name_len, int *value_at)
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

/* Find the last value of a name (which must not contain 0x01) without splitting the string. Return its length, or -1.
 * name: a literal, as for rc_value_at(). *value_at: set to the position of the value. */
static inline int rc_find_property(const uint8_t *p, int n, const char *name, int *value_at)
{
    return rc_find_name(p, n, name, (int)strlen(name), value_at);
}

#endif
