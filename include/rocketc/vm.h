/* Memory maps of files. Each function returns 0 or an errno and leaves its results alone on failure. */
#ifndef ROCKETC_VM_H
#define ROCKETC_VM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RC_LARGE_BYTES = 4 << 20, /* own memory of this size asks for large pages */
};

/* Map the first len bytes (> 0) of fd for reading; *base is the caller's to unmap. The file may be closed then. */
static inline int rc_map_read(int fd, size_t len, uint8_t **base)
{
    void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    *base = (uint8_t *)p;
    return 0;
}

/* len zero bytes (> 0) of our own memory; *base is the caller's to unmap. Touched pages count, not len. */
static inline int rc_map_own(size_t len, uint8_t **base)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return errno;
#ifdef MADV_HUGEPAGE
    if (len >= RC_LARGE_BYTES)
        (void)madvise(p, len, MADV_HUGEPAGE); /* a wish */
#endif
    *base = (uint8_t *)p;
    return 0;
}

/* Make own memory longer; it may move, and what it held stays. On failure it is as it was.
 * Memory that becomes large is mapped anew, so that it consists of large pages from the start. */
static inline int rc_map_grow(uint8_t **base, size_t len, size_t new_len)
{
    uint8_t *p = NULL;
    int rc;
#ifdef MREMAP_MAYMOVE
    if (len >= RC_LARGE_BYTES || new_len < RC_LARGE_BYTES) {
        void *moved = mremap(*base, len, new_len, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED)
            return errno;
        *base = (uint8_t *)moved;
        return 0;
    }
#endif
    rc = rc_map_own(new_len, &p);
    if (rc != 0)
        return rc;
    memcpy(p, *base, len);
    (void)munmap(*base, len);
    *base = p;
    return 0;
}

static inline int rc_unmap(uint8_t *base, size_t len)
{
    return munmap(base, len) == 0 ? 0 : errno;
}

/* Tell the kernel that the map is read front to back. A wish: failure is no error. */
static inline void rc_map_sequential(uint8_t *base, size_t len)
{
    (void)madvise(base, len, MADV_SEQUENTIAL);
}

/* Tell the kernel that the map is read here and there, so that it reads no page but the asked ones. A wish. */
static inline void rc_map_random(uint8_t *base, size_t len)
{
    (void)madvise(base, len, MADV_RANDOM);
}

/* Let go of the pages of a file map in [from, to); whole pages only. The page cache keeps them. */
static inline void rc_map_let_go(uint8_t *base, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (from < to)
        (void)madvise(base + from, to - from, MADV_DONTNEED);
}

/* A file map that its owner guards against missing pages (pyx/rocketc/_guard.pyx); one on the stack of each reader. */
typedef struct rc_guard {
    const uint8_t *base;    /* the map, page-aligned */
    size_t len;             /* bytes of it */
    volatile int *cut;      /* set to 1 when a page was missing: zeros stand there now */
    struct rc_guard *outer; /* the guards of one thread form a stack */
} rc_guard;

#endif
