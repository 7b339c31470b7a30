/* Memory maps of files. Each function returns 0 or an errno, and does not change its results on failure. */
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
#if defined(__linux__)
#include <sys/vfs.h>
#endif
#include <unistd.h>

#include "atomic.h"

enum {
    RC_LARGE_BYTES = 4 << 20, /* private memory of this size requests large pages */
    RC_TMPFS = 0x01021994,    /* f_type of a file system in memory */
};

/* Map the first len bytes (> 0) of fd for reading. The caller unmaps *base, and may close fd before. */
static inline int rc_map_read(int fd, size_t len, uint8_t **base)
{
    void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    *base = (uint8_t *)p;
    return 0;
}

/* Map len zero bytes (> 0) of private memory. The caller unmaps *base. Only touched pages use memory. */
static inline int rc_map_own(size_t len, uint8_t **base)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return errno;
#ifdef MADV_HUGEPAGE
    if (len >= RC_LARGE_BYTES)
        (void)madvise(p, len, MADV_HUGEPAGE); /* a hint */
#endif
    *base = (uint8_t *)p;
    return 0;
}

/* Enlarge private memory. It may move; its content stays. On failure nothing changes.
 * Memory that becomes large is mapped again, so that it consists of large pages from the start. */
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

/* Tell the kernel that the map is read sequentially. This is a hint: failure is not an error. */
static inline void rc_map_sequential(uint8_t *base, size_t len)
{
    (void)madvise(base, len, MADV_SEQUENTIAL);
}

/* Tell the kernel that the map is read in random order, so that it does not read ahead. A hint. */
static inline void rc_map_random(uint8_t *base, size_t len)
{
    (void)madvise(base, len, MADV_RANDOM);
}

/* Release the whole pages of a file map in [from, to). The page cache keeps them. */
static inline void rc_map_release(uint8_t *base, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (from < to)
        (void)madvise(base + from, to - from, MADV_DONTNEED);
}

/* Write len bytes at a position of fd, with several calls if necessary. */
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

/* Write zeros over [from, to) of fd, in blocks of `block` bytes, at most RC_ZERO_BLOCK_MAX. The page cache keeps each
 * block as one folio, and a sync of any byte writes its whole folio: the block size determines the cost of a sync. */
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

/* Make fd len bytes long (> 0), with disk space for all bytes, so that a later write into a map can't run out of space.
 * The content stays; new bytes are zeros. If the file system can't reserve space, zeros are written.
 * A file that was long enough keeps its modification time, because its content does not change. */
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

/* Allocate disk space for [from, to) of fd, which must be within the file; the content stays. If the file system can't
 * reserve space, the first byte of each page is written again: the caller must be the only writer. */
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

/* Return where the last part of fd that is not a hole ends, or -errno. */
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

/* Clear [from, size) of fd. The disk space of whole pages is freed where the file system supports it. */
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

/* Open an existing file of a store with open(2)'s flags. Whatever has taken the file's place, this does not wait, and a
 * writer does not follow a symbolic link. Returns a descriptor of a regular file, which the caller closes; or -1 with an
 * errno: ELOOP for a link, EISDIR for a folder, ENXIO for a FIFO, a socket or a device, or one of open(2). */
static inline int rc_open_file(const char *path, int flags)
{
    struct stat info;
    int fd, rc = 0;
    if ((flags & O_ACCMODE) != O_RDONLY)
        flags |= O_NOFOLLOW;
    fd = open(path, flags | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) != 0)
        rc = errno;
    else if (!S_ISREG(info.st_mode))
        rc = S_ISDIR(info.st_mode) ? EISDIR : ENXIO;
    if (rc == 0)
        return fd;
    (void)close(fd);
    errno = rc;
    return -1;
}

/* Free the disk space of [from, to) of fd: its whole pages, which must contain zeros. `to` may be the length of the file.
 * The length stays, and so does the modification time: the content does not change. A hint: failure is not an error.
 * Nothing is freed on tmpfs: there, reading a hole takes memory, and fails if there is none. */
static inline void rc_free_space(int fd, int64_t from, int64_t to)
{
#if defined(__linux__) && defined(FALLOC_FL_PUNCH_HOLE)
    int64_t page = (int64_t)sysconf(_SC_PAGESIZE), whole = (from + page - 1) / page * page;
    struct stat before;
    struct statfs system;
    if (fstat(fd, &before) != 0 || fstatfs(fd, &system) != 0 || system.f_type == RC_TMPFS)
        return;
    to = to >= (int64_t)before.st_size ? (to + page - 1) / page * page : to / page * page;
    if (whole < to &&
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)whole, (off_t)(to - whole)) == 0) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, before.st_mtim};
        (void)futimens(fd, times);
    }
#else
    (void)fd;
    (void)from;
    (void)to;
#endif
}

/* Free the disk space of the pages in [from, to) of fd that were never written; see rc_free_space(). */
static inline void rc_free_unwritten(int fd, int64_t from, int64_t to)
{
#if defined(SEEK_DATA)
    while (from < to) {
        int64_t data = (int64_t)lseek(fd, (off_t)from, SEEK_DATA), hole;
        if (data < 0 && errno != ENXIO)
            return;
        if (data < 0 || data > to)
            data = to;
        if (data > from)
            rc_free_space(fd, from, data);
        hole = data < to ? (int64_t)lseek(fd, (off_t)data, SEEK_HOLE) : to;
        if (hole <= data)
            return;
        from = hole;
    }
#else
    (void)fd;
    (void)from;
    (void)to;
#endif
}

/* Open a new file without a name for writing; the caller closes *fd. rc_name_file gives it its name. So other
 * processes, also after a crash, never see the file before it has its length. Where unnamed files are not supported,
 * it gets its name here. Returns 0 or an errno: EEXIST if the name is taken. */
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

/* Map the first len bytes (> 0) of fd for reading and writing. The caller unmaps *base. */
static inline int rc_map_write(int fd, size_t len, uint8_t **base)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno;
    *base = (uint8_t *)p;
    return 0;
}

/* Prepare the pages of [from, to) of a writable map, so that a write there does not wait. Their bytes stay, including
 * those that another thread writes meanwhile. Touches the pages one by one if the kernel lacks a call for it. */
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

/* Read one byte of each page of len bytes of a map, so that later reads of them do not wait for a disk. */
static inline void rc_touch(const uint8_t *p, size_t len)
{
    size_t i;
    for (i = 0; i < len; i += 4096)
        (void)*(volatile const uint8_t *)(p + i);
    if (len > 0)
        (void)*(volatile const uint8_t *)(p + len - 1);
}

/* Whether all pages of [from, to) of a map are in memory, so that reading them does not wait for a disk. 1: they are, or
 * the system does not say; 0: not all. Only the first RC_RESIDENT_PAGES pages are checked. */
#define RC_RESIDENT_PAGES 64
static inline int rc_is_resident(uint8_t *base, size_t from, size_t to)
{
#if defined(__linux__)
    unsigned char pages[RC_RESIDENT_PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count, i;
    from = from / page * page;
    if (from >= to)
        return 1;
    count = (to - from + page - 1) / page;
    if (count > RC_RESIDENT_PAGES)
        count = RC_RESIDENT_PAGES;
    if (mincore(base + from, count * page, pages) != 0)
        return 1;
    for (i = 0; i < count; i++)
        if (!(pages[i] & 1))
            return 0;
#else
    (void)base;
    (void)from;
    (void)to;
#endif
    return 1;
}

/* Make the pages of [from, to) of a map durable: when this returns, they are on the disk. */
static inline int rc_sync_map(uint8_t *base, size_t from, size_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    from = from / page * page;
    if (from >= to)
        return 0;
    return msync(base + from, to - from, MS_SYNC) == 0 ? 0 : errno;
}

/* Drop the clean pages that the page cache has of fd from a position on. A hint. */
static inline void rc_forget_cache(int fd, size_t from)
{
#if defined(POSIX_FADV_DONTNEED)
    (void)posix_fadvise(fd, (off_t)from, 0, POSIX_FADV_DONTNEED);
#else
    (void)fd;
    (void)from;
#endif
}

/* Make all bytes that were written to fd durable, but not its times. */
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

/* Make everything durable that was written to the file system of a path, with one flush of the disk instead of one for
 * each of thousands of folders. Returns ENOSYS if the system lacks such a call. */
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

/* Keep the pages of a map in memory until rc_map_unlock() or the end of the map. Returns 0 or an errno, and then none of
 * them is locked: ENOMEM or EPERM if the process may not lock as much memory (RLIMIT_MEMLOCK). */
static inline int rc_map_lock(uint8_t *base, size_t len)
{
    int rc = mlock(base, len) == 0 ? 0 : errno;
    if (rc != 0)
        (void)munlock(base, len); /* it may have failed after a part */
    (void)madvise(base, len, MADV_WILLNEED);
    return rc;
}

/* The kernel may write the pages of a map out again, and give their memory to others. */
static inline void rc_map_unlock(uint8_t *base, size_t len)
{
    (void)munlock(base, len);
}

/* A guard of a file map against missing pages: files/_guard.pyx. Each reader has one on its stack. */
typedef struct rc_guard {
    const uint8_t *base;    /* the map, page-aligned */
    size_t len;             /* its length in bytes */
    volatile int *cut;      /* set to 1 if a page was missing; zeros replace it */
    int protection;         /* of the pages that replace missing ones: PROT_READ, PROT_WRITE */
    struct rc_guard *outer; /* the guards of one thread form a stack */
} rc_guard;

#endif
