/* Memory maps of files. Each function returns 0 or an errno and leaves its results alone on failure. */
#ifndef ROCKETC_VM_H
#define ROCKETC_VM_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "atomic.h"

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

/* Write len bytes at a position of fd, whatever the kernel takes at a time. */
static inline int rc_write_at(int fd, const uint8_t *p, size_t len, int64_t at)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        p += n;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

enum {
    RC_ZERO_BLOCK_MAX = 64 << 10,
};

/* Write zeros over [from, to) of fd, in blocks of `block` bytes, at most RC_ZERO_BLOCK_MAX. The page cache keeps each block
 * as one folio, and a sync of any byte writes its whole folio: so the block's size decides what a small sync costs. */
static inline int rc_write_zeros(int fd, size_t from, size_t to, size_t block)
{
    static const uint8_t zeros[RC_ZERO_BLOCK_MAX];
    while (from < to) {
        size_t step = block - from % block < to - from ? block - from % block : to - from;
        int rc = rc_write_at(fd, zeros, step, (int64_t)from);
        if (rc != 0)
            return rc;
        from += step;
    }
    return 0;
}

/* Make fd len bytes long (> 0), with room on the disk for each of them: a later write into a map can't lack it.
 * What the file holds stays; the rest reads as zeros. Where the file system can't reserve room, zeros are written.
 * A file that was so long already keeps the time of its last change, for what is in it did not change. */
static inline int rc_allocate(int fd, size_t len)
{
    off_t size = lseek(fd, 0, SEEK_END);
#if defined(__linux__)
    struct stat before;
    if (size < 0 || fstat(fd, &before) != 0)
        return errno;
    while (fallocate(fd, 0, 0, (off_t)len) != 0)
        if (errno != EINTR) {
            if (errno != EOPNOTSUPP && errno != ENOSYS)
                return errno;
            break;
        }
    if (size >= (off_t)len) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, before.st_mtim};
        (void)futimens(fd, times);
    }
    if (lseek(fd, 0, SEEK_END) >= (off_t)len)
        return 0;
#else
    if (size < 0)
        return errno;
#endif
    return (size_t)size < len ? rc_write_zeros(fd, (size_t)size, len, 4096) : 0;
}

/* Make room on the disk for [from, to) of fd, which lies within the file; what it holds stays. Where the file system can't
 * reserve room, each page's first byte is written as it is: the caller is the only one who writes. */
static inline int rc_allocate_range(int fd, int64_t from, int64_t to)
{
#if defined(__linux__)
    int rc;
    do
        rc = fallocate(fd, 0, (off_t)from, (off_t)(to - from)) == 0 ? 0 : errno;
    while (rc == EINTR);
    if (rc != EOPNOTSUPP && rc != ENOSYS)
        return rc;
#endif
    for (; from < to; from += 4096) {
        uint8_t byte = 0;
        int wrote;
        if (pread(fd, &byte, 1, (off_t)from) < 0)
            return errno;
        wrote = rc_write_at(fd, &byte, 1, from);
        if (wrote != 0)
            return wrote;
    }
    return 0;
}

/* Where the last part of fd ends that is no hole, or -errno. */
static inline int64_t rc_data_end(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END), at = 0, end = 0;
    if (size < 0)
        return -errno;
#ifdef SEEK_DATA
    while (at < size && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
        end = lseek(fd, at, SEEK_HOLE);
        if (end < 0)
            return -errno;
        at = end;
    }
    if (at >= 0 || errno == ENXIO)
        return end;
    return errno == EINVAL ? size : -errno;
#else
    (void)at;
    (void)end;
    return size;
#endif
}

/* Let nothing but zeros stand in [from, size) of fd. Room of whole pages is given back where that can be done. */
static inline int rc_clear_from(int fd, int64_t from, int64_t size)
{
    int64_t page = (int64_t)sysconf(_SC_PAGESIZE), whole = (from + page - 1) / page * page, end = rc_data_end(fd);
    int rc = 0;
    if (end < 0)
        return (int)-end;
    if (end <= from)
        return 0;
    if (from < whole)
        rc = rc_write_zeros(fd, (size_t)from, (size_t)(whole < size ? whole : size), RC_ZERO_BLOCK_MAX);
    if (rc != 0 || whole >= end)
        return rc;
#if defined(__linux__) && defined(FALLOC_FL_PUNCH_HOLE)
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)whole, (off_t)(size - whole)) == 0)
        return 0;
#endif
    return rc_write_zeros(fd, (size_t)whole, (size_t)(end < size ? end : size), RC_ZERO_BLOCK_MAX);
}

/* Open a new file for writing that has no name yet; *fd is the caller's to close. It gets its name from rc_name_file, so
 * that nobody, also after a crash, sees it before it has its length. Where there are no such files, it has its name now.
 * Returns 0 or an errno: EEXIST if the name is taken. */
static inline int rc_new_file(const char *folder, const char *path, int *fd)
{
#if defined(O_TMPFILE)
    if (access("/proc/self/fd", F_OK) == 0 && access(path, F_OK) != 0) {
        *fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
        if (*fd >= 0)
            return 0;
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
            return errno;
    }
#endif
    (void)folder;
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return *fd >= 0 ? 0 : errno;
}

/* Give a file of rc_new_file its name. */
static inline int rc_name_file(int fd, const char *path)
{
#if defined(O_TMPFILE)
    char link[64];
    struct stat named, open_file;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno != EEXIST || fstat(fd, &open_file) != 0 || stat(path, &named) != 0)
        return errno;
    return named.st_ino == open_file.st_ino && named.st_dev == open_file.st_dev ? 0 : EEXIST;
#else
    (void)fd;
    (void)path;
    return 0;
#endif
}

/* Map the first len bytes (> 0) of fd for reading and writing; *base is the caller's to unmap. */
static inline int rc_map_write(int fd, size_t len, uint8_t **base)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    *base = (uint8_t *)p;
    return 0;
}

/* Make the pages of [from, to) of a map for writing ready, so that a write there waits for nothing. Their bytes stay,
 * also those that another thread writes meanwhile. Touches them one by one where the kernel has no way to do it. */
static inline int rc_populate(uint8_t *base, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = from / page * page;
    to = (to + page - 1) / page * page;
    if (from >= to)
        return 0;
#if defined(__linux__)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
    if (madvise(base + from, to - from, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL)
        return errno;
#endif
    for (; from < to; from += page)
        rc_touch_for_writing(base + from);
    return 0;
}

/* Make the pages of [from, to) of a map durable; on return they are on the disk. */
static inline int rc_sync_map(uint8_t *base, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = from / page * page;
    if (from >= to)
        return 0;
    return msync(base + from, to - from, MS_SYNC) == 0 ? 0 : errno;
}

/* Let go of what the page cache has of fd from a position on, unless it waits to be written. A wish. */
static inline void rc_forget_cache(int fd, size_t from)
{
#if defined(POSIX_FADV_DONTNEED)
    (void)posix_fadvise(fd, (off_t)from, 0, POSIX_FADV_DONTNEED);
#else
    (void)fd;
    (void)from;
#endif
}

/* Make all that was written to fd durable, its times aside. */
static inline int rc_sync_file(int fd)
{
#if defined(__APPLE__)
    return fcntl(fd, F_FULLFSYNC) == 0 ? 0 : errno;
#else
    return fdatasync(fd) == 0 ? 0 : errno;
#endif
}

/* Make the names in a folder durable. */
static inline int rc_sync_folder(const char *path)
{
    int rc, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    rc = fsync(fd) == 0 ? 0 : errno;
    (void)close(fd);
    return rc;
}

/* Make all durable that was written to the file system a path is on: one order to the disk, where thousands of folders
 * would each have had their own. ENOSYS where the system has no such call. */
static inline int rc_sync_all(const char *path)
{
#ifdef __linux__
    int rc, fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    rc = syncfs(fd) == 0 ? 0 : errno;
    (void)close(fd);
    return rc;
#else
    (void)path;
    return ENOSYS;
#endif
}

/* Keep the pages of a map in memory. A wish: most users may lock little. */
static inline void rc_map_lock(uint8_t *base, size_t len)
{
    (void)mlock(base, len);
    (void)madvise(base, len, MADV_WILLNEED);
}

/* A file map that its owner guards against missing pages: files/_guard.pyx. One on the stack of each reader. */
typedef struct rc_guard {
    const uint8_t *base;    /* the map, page-aligned */
    size_t len;             /* bytes of it */
    volatile int *cut;      /* set to 1 when a page was missing: zeros stand there now */
    int protection;         /* of the pages that stand in for missing ones: PROT_READ, PROT_WRITE */
    struct rc_guard *outer; /* the guards of one thread form a stack */
} rc_guard;

#endif
