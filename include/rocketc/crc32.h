/* CRC-32 (IEEE 802.3, reflected 0xEDB88320), as zlib's crc32() and java.util.zip.CRC32 compute it.
 *
 * There are five implementations, each a function of its own, so that tests can call it; rc_crc32_best() returns
 * the fastest on this processor. rc_crc32_fn takes the CRC of the bytes so far (0 at the start) and returns
 * the new one, so the data may come in parts. p: n bytes, any alignment, may be NULL if n is 0.
 *
 * The folding follows V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction" (Intel, 2009). RC_FOLD_LO(d) is x^(d+32) mod P, RC_FOLD_HI(d) is
 * x^(d-32) mod P, both reflected and shifted left by one: the factors that carry 128 bits forward over d bits.
 * A body CRC of RocketMQ is this value with the top bit cleared: rc_body_crc. */
#ifndef ROCKETC_CRC32_H
#define ROCKETC_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

typedef uint32_t (*rc_crc32_fn)(uint32_t crc, const uint8_t *p, size_t n);

enum {
    RC_CRC32_TABLE = 0,
    RC_CRC32_PCLMUL = 1,
    RC_CRC32_VPCLMUL256 = 2,
    RC_CRC32_VPCLMUL512 = 3,
    RC_CRC32_ARM64 = 4,
    RC_CRC32_WAYS = 5,
};

/* ---- table: eight bytes per step. The CRC is linear, so each table follows from its eight powers of two. */
#define RC_CRC_T_(i, a, b, c, d, e, f, g, h)                                                              \
    (((i) & 1 ? a : 0) ^ ((i) & 2 ? b : 0) ^ ((i) & 4 ? c : 0) ^ ((i) & 8 ? d : 0) ^ ((i) & 16 ? e : 0) ^ \
     ((i) & 32 ? f : 0) ^ ((i) & 64 ? g : 0) ^ ((i) & 128 ? h : 0))
#define RC_CRC_T4_(i, ...)                                                                       \
    RC_CRC_T_(i, __VA_ARGS__), RC_CRC_T_((i) + 1, __VA_ARGS__), RC_CRC_T_((i) + 2, __VA_ARGS__), \
        RC_CRC_T_((i) + 3, __VA_ARGS__)
#define RC_CRC_T16_(i, ...)                                                                         \
    RC_CRC_T4_(i, __VA_ARGS__), RC_CRC_T4_((i) + 4, __VA_ARGS__), RC_CRC_T4_((i) + 8, __VA_ARGS__), \
        RC_CRC_T4_((i) + 12, __VA_ARGS__)
#define RC_CRC_T64_(i, ...)                                                                              \
    RC_CRC_T16_(i, __VA_ARGS__), RC_CRC_T16_((i) + 16, __VA_ARGS__), RC_CRC_T16_((i) + 32, __VA_ARGS__), \
        RC_CRC_T16_((i) + 48, __VA_ARGS__)
#define RC_CRC_T256_(...)                                                                      \
    {RC_CRC_T64_(0, __VA_ARGS__), RC_CRC_T64_(64, __VA_ARGS__), RC_CRC_T64_(128, __VA_ARGS__), \
     RC_CRC_T64_(192, __VA_ARGS__)}

static const uint32_t rc_crc32_table[8][256] = {
    RC_CRC_T256_(0x77073096u, 0xEE0E612Cu, 0x076DC419u, 0x0EDB8832u, 0x1DB71064u, 0x3B6E20C8u, 0x76DC4190u,
                 0xEDB88320u),
    RC_CRC_T256_(0x191B3141u, 0x32366282u, 0x646CC504u, 0xC8D98A08u, 0x4AC21251u, 0x958424A2u, 0xF0794F05u,
                 0x3B83984Bu),
    RC_CRC_T256_(0x01C26A37u, 0x0384D46Eu, 0x0709A8DCu, 0x0E1351B8u, 0x1C26A370u, 0x384D46E0u, 0x709A8DC0u,
                 0xE1351B80u),
    RC_CRC_T256_(0xB8BC6765u, 0xAA09C88Bu, 0x8F629757u, 0xC5B428EFu, 0x5019579Fu, 0xA032AF3Eu, 0x9B14583Du,
                 0xED59B63Bu),
    RC_CRC_T256_(0x3D6029B0u, 0x7AC05360u, 0xF580A6C0u, 0x30704BC1u, 0x60E09782u, 0xC1C12F04u, 0x58F35849u,
                 0xB1E6B092u),
    RC_CRC_T256_(0xCB5CD3A5u, 0x4DC8A10Bu, 0x9B914216u, 0xEC53826Du, 0x03D6029Bu, 0x07AC0536u, 0x0F580A6Cu,
                 0x1EB014D8u),
    RC_CRC_T256_(0xA6770BB4u, 0x979F1129u, 0xF44F2413u, 0x33EF4E67u, 0x67DE9CCEu, 0xCFBD399Cu, 0x440B7579u,
                 0x8816EAF2u),
    RC_CRC_T256_(0xCCAA009Eu, 0x4225077Du, 0x844A0EFAu, 0xD3E51BB5u, 0x7CBB312Bu, 0xF9766256u, 0x299DC2EDu,
                 0x533B85DAu),
};

static inline uint32_t rc_crc32_by_table(uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t c = ~crc;
    while (n >= 8) {
        uint32_t lo, hi;
        memcpy(&lo, p, 4);
        memcpy(&hi, p + 4, 4);
        lo ^= c;
        c = rc_crc32_table[7][lo & 0xFF] ^ rc_crc32_table[6][lo >> 8 & 0xFF] ^ rc_crc32_table[5][lo >> 16 & 0xFF] ^
            rc_crc32_table[4][lo >> 24] ^ rc_crc32_table[3][hi & 0xFF] ^ rc_crc32_table[2][hi >> 8 & 0xFF] ^
            rc_crc32_table[1][hi >> 16 & 0xFF] ^ rc_crc32_table[0][hi >> 24];
        p += 8;
        n -= 8;
    }
    while (n-- > 0)
        c = rc_crc32_table[0][(c ^ *p++) & 0xFF] ^ (c >> 8);
    return ~c;
}

#if defined(__x86_64__)

#define RC_FOLD_LO_128 0x1751997D0
#define RC_FOLD_HI_128 0x0CCAA009E
#define RC_FOLD_LO_256 0x0F1DA05AA
#define RC_FOLD_HI_256 0x15A546366
#define RC_FOLD_LO_384 0x03DB1ECDC
#define RC_FOLD_HI_384 0x174359406
#define RC_FOLD_LO_512 0x154442BD4
#define RC_FOLD_HI_512 0x1C6E41596
#define RC_FOLD_LO_1024 0x1E88EF372
#define RC_FOLD_HI_1024 0x14A7FE880
#define RC_FOLD_LO_2048 0x11542778A
#define RC_FOLD_HI_2048 0x1322D1430
#define RC_BARRETT_MU 0xB4E5B025F7011641 /* x^95 / P, 64 bits */
#define RC_BARRETT_P 0x1DB710640          /* P without x^32, one to the left */

#define RC_TARGET_PCLMUL __attribute__((target("sse4.1,pclmul")))
#define RC_TARGET_VPCLMUL256 __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define RC_TARGET_VPCLMUL512 __attribute__((target("avx512f,avx512bw,avx512vl,pclmul,vpclmulqdq")))

/* Carry x forward over the distance of k, and add the data there. */
RC_TARGET_PCLMUL static inline __m128i rc_fold128(__m128i x, __m128i k, __m128i next)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

/* The remainder of the 16 bytes in x: a fold from 128 bits to 96, then Barrett reduction with a 64-bit quotient. */
RC_TARGET_PCLMUL static inline uint32_t rc_fold_end(__m128i x)
{
    const __m128i k128 = _mm_set_epi64x(RC_FOLD_HI_128, RC_FOLD_LO_128);
    const __m128i barrett = _mm_set_epi64x(RC_BARRETT_P, (int64_t)RC_BARRETT_MU);
    __m128i t;
    x = _mm_xor_si128(_mm_clmulepi64_si128(x, k128, 0x10), _mm_srli_si128(x, 8));
    t = _mm_clmulepi64_si128(x, barrett, 0x00);
    t = _mm_clmulepi64_si128(t, barrett, 0x10);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, t), 2);
}

/* Add the last n bytes at p to x, which covers all bytes before them; n may be any number. The 16 bytes
 * before p must belong to the data too. */
RC_TARGET_PCLMUL static inline uint32_t rc_fold_rest(__m128i x, const uint8_t *p, size_t n)
{
    static const uint8_t shift[48] = {
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
        0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    };
    const __m128i k128 = _mm_set_epi64x(RC_FOLD_HI_128, RC_FOLD_LO_128);
    for (; n >= 16; p += 16, n -= 16)
        x = rc_fold128(x, k128, _mm_loadu_si128((const __m128i *)p));
    if (n > 0) {
        /* x and the rest are 16 + n bytes: the first n bytes of x move after zeros, the others before the rest. */
        __m128i first = _mm_shuffle_epi8(x, _mm_loadu_si128((const __m128i *)(shift + n)));
        __m128i away = _mm_loadu_si128((const __m128i *)(shift + 16 + n));
        __m128i rest = _mm_loadu_si128((const __m128i *)(p + n - 16));
        x = rc_fold128(first, k128, _mm_blendv_epi8(_mm_shuffle_epi8(x, away), rest, away));
    }
    return rc_fold_end(x);
}

RC_TARGET_PCLMUL static inline uint32_t rc_crc32_by_pclmul(uint32_t crc, const uint8_t *p, size_t n)
{
    __m128i x;
    if (n < 16)
        return rc_crc32_by_table(crc, p, n);
    x = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128((int)~crc));
    p += 16;
    n -= 16;
    if (n >= 112) {
        const __m128i k512 = _mm_set_epi64x(RC_FOLD_HI_512, RC_FOLD_LO_512);
        const __m128i k128 = _mm_set_epi64x(RC_FOLD_HI_128, RC_FOLD_LO_128);
        __m128i y = _mm_loadu_si128((const __m128i *)p);
        __m128i z = _mm_loadu_si128((const __m128i *)(p + 16));
        __m128i w = _mm_loadu_si128((const __m128i *)(p + 32));
        p += 48;
        n -= 48;
        for (; n >= 64; p += 64, n -= 64) {
            x = rc_fold128(x, k512, _mm_loadu_si128((const __m128i *)p));
            y = rc_fold128(y, k512, _mm_loadu_si128((const __m128i *)(p + 16)));
            z = rc_fold128(z, k512, _mm_loadu_si128((const __m128i *)(p + 32)));
            w = rc_fold128(w, k512, _mm_loadu_si128((const __m128i *)(p + 48)));
        }
        x = rc_fold128(x, k128, y);
        x = rc_fold128(x, k128, z);
        x = rc_fold128(x, k128, w);
    }
    return ~rc_fold_rest(x, p, n);
}

RC_TARGET_VPCLMUL256 static inline __m256i rc_fold256(__m256i x, __m256i k, __m256i next)
{
    return _mm256_xor_si256(
        _mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11)), next);
}

RC_TARGET_VPCLMUL256 static inline uint32_t rc_crc32_by_vpclmul256(uint32_t crc, const uint8_t *p, size_t n)
{
    const __m128i k128 = _mm_set_epi64x(RC_FOLD_HI_128, RC_FOLD_LO_128);
    const __m256i k256 = _mm256_set_epi64x(RC_FOLD_HI_256, RC_FOLD_LO_256, RC_FOLD_HI_256, RC_FOLD_LO_256);
    __m256i x;
    if (n < 64)
        return rc_crc32_by_pclmul(crc, p, n);
    x = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
    p += 32;
    n -= 32;
    if (n >= 224) {
        const __m256i k1024 = _mm256_set_epi64x(RC_FOLD_HI_1024, RC_FOLD_LO_1024, RC_FOLD_HI_1024, RC_FOLD_LO_1024);
        __m256i y = _mm256_loadu_si256((const __m256i *)p);
        __m256i z = _mm256_loadu_si256((const __m256i *)(p + 32));
        __m256i w = _mm256_loadu_si256((const __m256i *)(p + 64));
        p += 96;
        n -= 96;
        for (; n >= 128; p += 128, n -= 128) {
            x = rc_fold256(x, k1024, _mm256_loadu_si256((const __m256i *)p));
            y = rc_fold256(y, k1024, _mm256_loadu_si256((const __m256i *)(p + 32)));
            z = rc_fold256(z, k1024, _mm256_loadu_si256((const __m256i *)(p + 64)));
            w = rc_fold256(w, k1024, _mm256_loadu_si256((const __m256i *)(p + 96)));
        }
        x = rc_fold256(x, k256, y);
        x = rc_fold256(x, k256, z);
        x = rc_fold256(x, k256, w);
    }
    for (; n >= 32; p += 32, n -= 32)
        x = rc_fold256(x, k256, _mm256_loadu_si256((const __m256i *)p));
    return ~rc_fold_rest(rc_fold128(_mm256_castsi256_si128(x), k128, _mm256_extracti128_si256(x, 1)), p, n);
}

RC_TARGET_VPCLMUL512 static inline __m512i rc_fold512(__m512i x, __m512i k, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next,
                                     0x96); /* a ^ b ^ c */
}

/* Zeros before the data do not change its remainder. So the first block is filled with zeros at its start,
 * all others are whole, and no rest is left. */
RC_TARGET_VPCLMUL512 static inline uint32_t rc_crc32_by_vpclmul512(uint32_t crc, const uint8_t *p, size_t n)
{
    const __m512i k512 = _mm512_broadcast_i32x4(_mm_set_epi64x(RC_FOLD_HI_512, RC_FOLD_LO_512));
    const __m512i ends = _mm512_set_epi64(0, 0, RC_FOLD_HI_128, RC_FOLD_LO_128, RC_FOLD_HI_256, RC_FOLD_LO_256,
                                          RC_FOLD_HI_384, RC_FOLD_LO_384);
    unsigned lead, bits;
    size_t blocks;
    __m512i x, start;
    __m256i half;
    if (n < 4)
        return rc_crc32_by_table(crc, p, n);
    lead = (unsigned)(-n & 63); /* zeros before the data */
    bits = 8 * (lead & 3);
    crc = ~crc;
    start = _mm512_set1_epi32((int)(crc << bits | (uint32_t)((uint64_t)crc >> (32 - bits))));
    blocks = (n + 63) / 64 - 1;
    x = _mm512_maskz_loadu_epi8(~(uint64_t)0 << lead, (const void *)((uintptr_t)p - lead));
    x = _mm512_xor_si512(x, _mm512_maskz_mov_epi8((uint64_t)0xF << lead, start));
    p += 64 - lead;
    if (lead > 60) { /* the initial value extends into the second block */
        x = rc_fold512(
            x, k512,
            _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_maskz_mov_epi8((uint64_t)0xF >> (64 - lead), start)));
        p += 64;
        blocks--;
    }
    if (blocks >= 7) {
        const __m512i k2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(RC_FOLD_HI_2048, RC_FOLD_LO_2048));
        const __m512i k1024 = _mm512_broadcast_i32x4(_mm_set_epi64x(RC_FOLD_HI_1024, RC_FOLD_LO_1024));
        __m512i y = _mm512_loadu_si512(p);
        __m512i z = _mm512_loadu_si512(p + 64);
        __m512i w = _mm512_loadu_si512(p + 128);
        p += 192;
        blocks -= 3;
        for (; blocks >= 4; p += 256, blocks -= 4) {
            x = rc_fold512(x, k2048, _mm512_loadu_si512(p));
            y = rc_fold512(y, k2048, _mm512_loadu_si512(p + 64));
            z = rc_fold512(z, k2048, _mm512_loadu_si512(p + 128));
            w = rc_fold512(w, k2048, _mm512_loadu_si512(p + 192));
        }
        z = rc_fold512(x, k1024, z);
        w = rc_fold512(y, k1024, w);
        x = rc_fold512(z, k512, w);
    }
    for (; blocks > 0; p += 64, blocks--)
        x = rc_fold512(x, k512, _mm512_loadu_si512(p));
    start = _mm512_xor_si512(_mm512_clmulepi64_epi128(x, ends, 0x00), _mm512_clmulepi64_epi128(x, ends, 0x11));
    start = _mm512_mask_xor_epi64(start, 0xC0, start, x); /* the last 16 bytes are not folded here */
    half = _mm256_xor_si256(_mm512_castsi512_si256(start), _mm512_extracti64x4_epi64(start, 1));
    return ~rc_fold_end(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))

#if defined(__clang__)
#define RC_TARGET_ARM64 __attribute__((target("crc")))
#else
#define RC_TARGET_ARM64 __attribute__((target("+crc")))
#endif

RC_TARGET_ARM64 static inline uint32_t rc_crc32_by_arm64(uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t c = ~crc;
    uint64_t v[4];
    for (; n >= sizeof v; p += sizeof v, n -= sizeof v) {
        memcpy(v, p, sizeof v);
        c = __crc32d(__crc32d(__crc32d(__crc32d(c, v[0]), v[1]), v[2]), v[3]);
    }
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(v, p, 8);
        c = __crc32d(c, v[0]);
    }
    while (n-- > 0)
        c = __crc32b(c, *p++);
    return ~c;
}

#endif

/* Return the implementation with a number, or NULL if this processor does not support it. */
static inline rc_crc32_fn rc_crc32_way(int way)
{
    if (way == RC_CRC32_TABLE)
        return rc_crc32_by_table;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (way == RC_CRC32_PCLMUL && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        return rc_crc32_by_pclmul;
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("vpclmulqdq")) {
        if (way == RC_CRC32_VPCLMUL256 && __builtin_cpu_supports("avx2"))
            return rc_crc32_by_vpclmul256;
        if (way == RC_CRC32_VPCLMUL512 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            return rc_crc32_by_vpclmul512;
    }
#elif defined(__aarch64__) && defined(__linux__)
    if (way == RC_CRC32_ARM64 && (getauxval(AT_HWCAP) & 1UL << 7)) /* HWCAP_CRC32 */
        return rc_crc32_by_arm64;
#elif defined(__aarch64__) && defined(__APPLE__)
    if (way == RC_CRC32_ARM64)
        return rc_crc32_by_arm64;
#endif
    return NULL;
}

/* Return the number of the fastest implementation. Call it once and keep the result. */
static inline int rc_crc32_best(void)
{
    int way = RC_CRC32_WAYS - 1;
    while (rc_crc32_way(way) == NULL)
        way--;
    return way;
}

/* The BODYCRC or __CRC32# of a message: the CRC without its top bit. */
static inline int32_t rc_body_crc(rc_crc32_fn crc32, const uint8_t *p, size_t n)
{
    return (int32_t)(crc32(0, p, n) & 0x7FFFFFFFu);
}

#endif
