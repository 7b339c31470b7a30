/* Loaded before libc (LD_PRELOAD): records what happens to the files below a folder, for tests/crash/disk.py.
 *
 * Each call that changes names there or makes bytes durable is noted in order. Before each such note, the pages that
 * have changed since the previous one are noted. A write into a map is not a call, so each file is compared with its
 * content at the last comparison. The calls themselves run unchanged.
 *
 * A program uses the notes through disk_watch(), disk_note() and disk_take(). Before disk_watch() nothing is noted.
 */
#include "../support/preload.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_FILES = 4096, MAX_MAPS = 4096 };
enum { PAGE_IS = 1, SIZE_IS, NAMED, UNNAMED, RENAMED, FOLDER_MADE, FOLDER_GONE, SYNCED, NAMES_SYNCED, NOTE, ALL_SYNCED };

/* The header before each note's text. The text: paths below the folder, separated by a NUL; or the bytes of a page. */
typedef struct {
    uint32_t kind, length;
    int64_t file, a, b; /* number of the file; SIZE_IS: a is its size; PAGE_IS: a its number; SYNCED: bytes a to b */
} Event;

typedef struct {
    ino_t inode;
    int fd;
    int64_t size, room;
    char *seen;
} File;

typedef struct {
    char *base;
    size_t length;
    int64_t file, at;
} Map;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length; /* 0: nothing is noted */
static dev_t device;
static File files[MAX_FILES];
static Map maps[MAX_MAPS];
static int file_count, map_count;
static char *events;
static size_t used, room;
static int percent; /* the disk usage that is reported; 0: the real one */

static void stop(const char *why)
{
    fprintf(stderr, "disk.c: %s\n", why);
    abort();
}

static void tell(uint32_t kind, int64_t file, int64_t a, int64_t b, const void *text, size_t length)
{
    Event event = {kind, (uint32_t)length, file, a, b};
    if (used + sizeof event + length > room) {
        room = 2 * room + sizeof event + length + (1 << 20);
        events = realloc(events, room);
        if (events == NULL)
            stop("no memory");
    }
    memcpy(events + used, &event, sizeof event);
    memcpy(events + used + sizeof event, text, length);
    used += sizeof event + length;
}

/* The path relative to the folder, without the leading slash; NULL: the path is outside the folder. */
static const char *below(const char *path)
{
    if (root_length == 0 || path == NULL || strncmp(path, root, root_length) != 0)
        return NULL;
    return path[root_length] == '/' ? path + root_length + 1 : path[root_length] == 0 ? path + root_length : NULL;
}

static const char *path_of(int fd, char *path)
{
    char link[32];
    ssize_t n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

/* The path that a call of the *at family refers to. */
static const char *path_at(int fd, const char *name, char *path)
{
    size_t n;
    if (name[0] == '/' || fd == AT_FDCWD)
        return name;
    path_of(fd, path);
    n = strlen(path);
    snprintf(path + n, PATH_MAX - n, "/%s", name);
    return path;
}

static void look(int64_t number)
{
    File *f = &files[number];
    struct stat info;
    static char page[PAGE];
    int64_t at, n;
    if (fstat(f->fd, &info) != 0)
        stop("fstat");
    if (info.st_size != f->size) {
        if (info.st_size > f->room) {
            int64_t more = (info.st_size + PAGE - 1) / PAGE * PAGE;
            f->seen = realloc(f->seen, (size_t)more);
            if (f->seen == NULL)
                stop("no memory");
            memset(f->seen + f->room, 0, (size_t)(more - f->room));
            f->room = more;
        }
        tell(SIZE_IS, number, info.st_size, 0, "", 0);
        f->size = info.st_size;
    }
    for (at = 0; at < f->room; at += PAGE) {
        memset(page, 0, PAGE);
        n = at < f->size ? pread(f->fd, page, PAGE, at) : 0;
        if (n < 0)
            stop("pread");
        if (memcmp(page, f->seen + at, PAGE) != 0) {
            memcpy(f->seen + at, page, PAGE);
            tell(PAGE_IS, number, at / PAGE, 0, page, PAGE);
        }
    }
}

static void look_at_all(void)
{
    for (int i = 0; i < file_count; i++)
        look(i);
}

/* The number of a file; a new one if `make` is set; -1: the file is not watched. */
static int64_t number_of(int fd, int make)
{
    struct stat info;
    char link[32];
    if (fstat(fd, &info) != 0 || info.st_dev != device || !S_ISREG(info.st_mode))
        return -1;
    for (int i = 0; i < file_count; i++)
        if (files[i].inode == info.st_ino)
            return i;
    if (!make)
        return -1;
    if (file_count == MAX_FILES)
        stop("too many files");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    memset(&files[file_count], 0, sizeof(File));
    files[file_count].inode = info.st_ino;
    files[file_count].fd = open(link, O_RDONLY | O_CLOEXEC); /* kept open, so that no other file gets its number */
    if (files[file_count].fd < 0)
        stop("open");
    return file_count++;
}

/* ---------------------------------------------------------------- for the program */
void disk_stop(void)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < file_count; i++) {
        close(files[i].fd);
        free(files[i].seen);
    }
    file_count = map_count = 0;
    root_length = used = 0;
    pthread_mutex_unlock(&mutex);
}

/* Start noting what happens below a folder. */
void disk_watch(const char *folder)
{
    struct stat info;
    disk_stop();
    if (stat(folder, &info) != 0)
        stop("no such folder");
    pthread_mutex_lock(&mutex);
    device = info.st_dev;
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    pthread_mutex_unlock(&mutex);
}

/* Add a file or folder that exists already, by its full path. */
void disk_know(const char *path)
{
    struct stat info;
    int fd;
    if (stat(path, &info) != 0)
        stop(path);
    if (S_ISDIR(info.st_mode)) {
        pthread_mutex_lock(&mutex);
        tell(FOLDER_MADE, -1, 0, 0, below(path), strlen(below(path)));
        pthread_mutex_unlock(&mutex);
        return;
    }
    fd = NEXT(open, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        stop(path);
    pthread_mutex_lock(&mutex);
    tell(NAMED, number_of(fd, 1), 0, 0, below(path), strlen(below(path)));
    look_at_all();
    pthread_mutex_unlock(&mutex);
    close(fd);
}

void disk_note(int64_t what)
{
    pthread_mutex_lock(&mutex);
    look_at_all();
    tell(NOTE, what, 0, 0, "", 0);
    pthread_mutex_unlock(&mutex);
}

/* All notes so far; they stay until disk_stop() or disk_watch(). */
size_t disk_take(char **out)
{
    pthread_mutex_lock(&mutex);
    look_at_all();
    *out = events;
    pthread_mutex_unlock(&mutex);
    return used;
}

/* From now on statvfs() reports that `to` percent of each disk are in use; 0: the real value. */
void disk_fill(int to)
{
    percent = to;
}

/* ---------------------------------------------------------------- disk usage */
#define STATVFS(name)                                                                   \
    int name(const char *path, struct name *out)                                        \
    {                                                                                   \
        int rc = NEXT(name, path, out);                                                 \
        if (rc == 0 && percent > 0)                                                     \
            out->f_bfree = out->f_bavail = out->f_blocks * (unsigned)(100 - percent) / 100; \
        return rc;                                                                      \
    }
STATVFS(statvfs)
STATVFS(statvfs64)

/* ---------------------------------------------------------------- names */
static void tell_name(uint32_t kind, int64_t file, const char *path)
{
    const char *name = below(path);
    if (name != NULL) {
        look_at_all();
        tell(kind, file, 0, 0, name, strlen(name));
    }
}

static int opened(int at, const char *path, int flags, int mode)
{
    char buffer[PATH_MAX];
    struct stat info;
    int fd, is_new;
    path = path_at(at, path, buffer);
    if (below(path) == NULL || !(flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE))
        return NEXT(openat, AT_FDCWD, path, flags, mode);
    pthread_mutex_lock(&mutex);
    is_new = flags & O_CREAT && lstat(path, &info) != 0;
    fd = NEXT(openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0) {
        int64_t number = number_of(fd, 1);
        if (is_new)
            tell_name(NAMED, number, path);
    }
    pthread_mutex_unlock(&mutex);
    return fd;
}

OPEN_ALL

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    char buffer[PATH_MAX];
    int rc, fd;
    pthread_mutex_lock(&mutex);
    rc = NEXT(linkat, from_fd, from, to_fd, to, flags);
    if (rc == 0 && below(path_at(to_fd, to, buffer)) != NULL) {
        fd = NEXT(open, path_at(to_fd, to, buffer), O_RDONLY | O_CLOEXEC);
        tell_name(NAMED, number_of(fd, 1), path_at(to_fd, to, buffer));
        close(fd);
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int gone(uint32_t kind, int at, const char *path, int flags)
{
    char buffer[PATH_MAX];
    int rc;
    pthread_mutex_lock(&mutex);
    path = path_at(at, path, buffer);
    rc = NEXT(unlinkat, AT_FDCWD, path, flags);
    if (rc == 0)
        tell_name(kind, -1, path);
    pthread_mutex_unlock(&mutex);
    return rc;
}

int unlinkat(int at, const char *path, int flags)
{
    return gone(flags & AT_REMOVEDIR ? FOLDER_GONE : UNNAMED, at, path, flags);
}

int unlink(const char *path)
{
    return gone(UNNAMED, AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return gone(FOLDER_GONE, AT_FDCWD, path, AT_REMOVEDIR);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    char from_buffer[PATH_MAX], to_buffer[PATH_MAX], names[2 * PATH_MAX];
    const char *old, *new;
    struct stat info;
    int rc;
    pthread_mutex_lock(&mutex);
    from = path_at(from_fd, from, from_buffer);
    to = path_at(to_fd, to, to_buffer);
    old = below(from);
    new = below(to);
    if (old != NULL && lstat(from, &info) == 0 && S_ISDIR(info.st_mode))
        stop("a folder is renamed, and nobody has thought of that here");
    rc = NEXT(renameat, AT_FDCWD, from, AT_FDCWD, to);
    if (rc == 0 && old != NULL && new != NULL) {
        look_at_all();
        int n = snprintf(names, sizeof names, "%s%c%s", old, 0, new);
        tell(RENAMED, -1, 0, 0, names, (size_t)n);
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    char buffer[PATH_MAX];
    int rc;
    pthread_mutex_lock(&mutex);
    path = path_at(at, path, buffer);
    rc = NEXT(mkdirat, AT_FDCWD, path, mode);
    if (rc == 0)
        tell_name(FOLDER_MADE, -1, path);
    pthread_mutex_unlock(&mutex);
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

/* ---------------------------------------------------------------- maps, and calls that make bytes durable */
void *mmap64(void *where, size_t length, int protection, int flags, int fd, off64_t at)
{
    void *base = NEXT(mmap64, where, length, protection, flags, fd, at);
    if (base != MAP_FAILED && fd >= 0 && flags & MAP_SHARED && protection & PROT_WRITE && root_length > 0) {
        pthread_mutex_lock(&mutex);
        int64_t number = number_of(fd, 0);
        if (number >= 0) {
            if (map_count == MAX_MAPS)
                stop("too many maps");
            maps[map_count++] = (Map){base, length, number, at};
        }
        pthread_mutex_unlock(&mutex);
    }
    return base;
}

void *mmap(void *where, size_t length, int protection, int flags, int fd, off_t at)
{
    return mmap64(where, length, protection, flags, fd, at);
}

int munmap(void *base, size_t length)
{
    if (root_length > 0) {
        pthread_mutex_lock(&mutex);
        for (int i = 0; i < map_count; i++)
            if (maps[i].base == base)
                maps[i] = maps[--map_count];
        pthread_mutex_unlock(&mutex);
    }
    return NEXT(munmap, base, length);
}

int msync(void *from, size_t length, int flags)
{
    if (root_length > 0 && flags & MS_SYNC) {
        pthread_mutex_lock(&mutex);
        for (int i = 0; i < map_count; i++) {
            int64_t pos = (char *)from - maps[i].base;
            if (pos >= 0 && (size_t)pos < maps[i].length) {
                look_at_all();
                tell(SYNCED, maps[i].file, maps[i].at + pos, maps[i].at + pos + (int64_t)length, "", 0);
            }
        }
        pthread_mutex_unlock(&mutex);
    }
    return NEXT(msync, from, length, flags);
}

static void synced(int fd)
{
    char path[PATH_MAX];
    struct stat info;
    if (root_length == 0 || fstat(fd, &info) != 0)
        return;
    pthread_mutex_lock(&mutex);
    if (S_ISDIR(info.st_mode)) {
        tell_name(NAMES_SYNCED, -1, path_of(fd, path));
    } else {
        int64_t number = number_of(fd, 0);
        if (number >= 0) {
            look_at_all();
            tell(SYNCED, number, 0, INT64_MAX, "", 0);
        }
    }
    pthread_mutex_unlock(&mutex);
}

int fdatasync(int fd)
{
    synced(fd);
    return NEXT(fdatasync, fd);
}

int fsync(int fd)
{
    synced(fd);
    return NEXT(fsync, fd);
}

int syncfs(int fd)
{
    if (root_length != 0) {
        pthread_mutex_lock(&mutex);
        look_at_all();
        tell(ALL_SYNCED, 0, 0, 0, "", 0);
        pthread_mutex_unlock(&mutex);
    }
    return NEXT(syncfs, fd);
}

/* A moment at which the power may fail, although the call makes nothing durable. */
static void moment(int fd)
{
    if (root_length == 0)
        return;
    pthread_mutex_lock(&mutex);
    if (number_of(fd, 0) >= 0)
        look_at_all();
    pthread_mutex_unlock(&mutex);
}

#define WRITE(name, offset)                                             \
    ssize_t name(int fd, const void *data, size_t length, offset at)    \
    {                                                                   \
        ssize_t n;                                                      \
        moment(fd);                                                     \
        n = NEXT(name, fd, data, length, at);                           \
        moment(fd);                                                     \
        return n;                                                       \
    }
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

#define RESIZE(name, offset)               \
    int name(int fd, offset length)        \
    {                                      \
        int rc;                            \
        moment(fd);                        \
        rc = NEXT(name, fd, length);       \
        moment(fd);                        \
        return rc;                         \
    }
RESIZE(ftruncate, off_t)
RESIZE(ftruncate64, off64_t)
