/* Loaded before libc (LD_PRELOAD): makes one call fail, as a test asks for.
 *
 * Through the environment, for tests/unit/store/test_failure.py:
 * FAIL_CALL   the name of a call, one of those below
 * FAIL_AT     the first call of that name that fails, counted from 1 since FAIL_ARMED was created; 0: no call fails
 * FAIL_COUNT  the number of calls that fail from there on; default: all
 * FAIL_SIZE   count only calls for at least this number of bytes; msync and pwrite
 * FAIL_PATH   count only calls for a file whose path contains this text; not msync
 * FAIL_ERRNO  the error; default EIO
 * FAIL_ARMED  path of a file: calls are counted while it exists
 * FAIL_LOG    path of a file that gets a line with the name of each call that failed
 * From the program itself, for tests/crash/faults.py: failing_arm(), failing_disarm().
 */
#include "preload.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int calls;
static struct {
    int on, at, count, error, failed;
    char call[32], root[PATH_MAX];
} armed;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != 0 ? atoi(text) : otherwise;
}

static int is_meant(int fd)
{
    const char *part = getenv("FAIL_PATH");
    char link[32], path[4096];
    ssize_t n;
    if (part == NULL || fd < 0)
        return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return strstr(path, part) != NULL;
}

static int failed_by_program(const char *name, const char *path)
{
    int n;
    if (strcmp(armed.call, name) != 0 || (path != NULL && strstr(path, armed.root) == NULL))
        return 0;
    n = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (armed.at == 0 || n < armed.at || n - armed.at >= armed.count)
        return 0;
    __atomic_add_fetch(&armed.failed, 1, __ATOMIC_SEQ_CST);
    errno = armed.error;
    return 1;
}

static int fails(const char *name, int fd, size_t size)
{
    const char *call = getenv("FAIL_CALL"), *file = getenv("FAIL_ARMED"), *log = getenv("FAIL_LOG");
    int at = number("FAIL_AT", 0), count = number("FAIL_COUNT", 1 << 30), n, told;
    if (armed.on) {
        char link[32], path[PATH_MAX];
        ssize_t length = 0;
        if (strcmp(armed.call, name) != 0)
            return 0;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (fd >= 0)
            length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        return failed_by_program(name, fd >= 0 ? path : NULL);
    }
    if (call == NULL || strcmp(call, name) != 0 || size < (size_t)number("FAIL_SIZE", 0) || !is_meant(fd) ||
        (file != NULL && access(file, F_OK) != 0))
        return 0;
    n = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (at == 0 || n < at || n - at >= count)
        return 0;
    if (log != NULL && (told = open(log, O_WRONLY | O_APPEND | O_CREAT, 0644)) >= 0) {
        if (write(told, name, strlen(name)) < 0 || write(told, "\n", 1) < 0)
            abort();
        close(told);
    }
    errno = number("FAIL_ERRNO", EIO);
    return 1;
}

/* A call with a path: only tests that use failing_arm() fail these. */
static int fails_at(const char *name, const char *path)
{
    return armed.on && failed_by_program(name, path);
}

/* Make the at-th call of a name from now on fail with an errno, and the next count - 1; at 0: only count the calls.
 * Only calls for files whose path contains `root` are counted. An errno of 0: half of the bytes are read or written.
 */
void failing_arm(const char *call, int at, int count, int error, const char *root)
{
    calls = armed.failed = 0;
    armed.at = at;
    armed.count = count;
    armed.error = error;
    snprintf(armed.call, sizeof armed.call, "%s", call);
    snprintf(armed.root, sizeof armed.root, "%s", root);
    __atomic_store_n(&armed.on, 1, __ATOMIC_SEQ_CST);
}

/* Stop failing calls; return how many calls were counted, and in *failed how many of them failed. */
int failing_disarm(int *failed)
{
    __atomic_store_n(&armed.on, 0, __ATOMIC_SEQ_CST);
    *failed = armed.failed;
    return calls;
}

#define CALL(result, name, parameters, arguments, fd, size)  \
    result name parameters                                   \
    {                                                        \
        return fails(#name, fd, size) ? -1 : NEXT(name, arguments); \
    }
#define WITH(...) __VA_ARGS__

CALL(int, msync, (void *p, size_t len, int flags), WITH(p, len, flags), -1, len)
CALL(int, fdatasync, (int fd), fd, fd, SIZE_MAX)
CALL(int, fsync, (int fd), fd, fd, SIZE_MAX)
CALL(int, madvise, (void *p, size_t len, int advice), WITH(p, len, advice), -1, len)

/* Counts the names of a call with a 32-bit and with a 64-bit offset as the first. */
#define CALL64(result, name, parameters, parameters64, arguments, fd, size)     \
    CALL(result, name, parameters, WITH(arguments), fd, size)                   \
    result name##64 parameters64                                                \
    {                                                                           \
        return fails(#name, fd, size) ? -1 : NEXT(name##64, arguments);         \
    }

CALL64(int, fallocate, (int fd, int mode, off_t at, off_t len), (int fd, int mode, off64_t at, off64_t len),
       WITH(fd, mode, at, len), fd, SIZE_MAX)
CALL64(int, ftruncate, (int fd, off_t len), (int fd, off64_t len), WITH(fd, len), fd, SIZE_MAX)
CALL64(off_t, lseek, (int fd, off_t at, int whence), (int fd, off64_t at, int whence), WITH(fd, at, whence), fd, SIZE_MAX)

/* Reads and writes may also be partial. */
#define MOVE(name, parameters, arguments)                              \
    ssize_t name parameters                                                  \
    {                                                                        \
        const char *known = #name;                                           \
        char call[16];                                                       \
        snprintf(call, sizeof call, "%.*s", (int)strcspn(known, "6"), known); \
        if (fails(call, fd, n)) {                                            \
            if (!armed.on || armed.error != 0)                               \
                return -1;                                                   \
            n = n > 1 ? n / 2 : n;                                           \
        }                                                                    \
        return NEXT(name, arguments);                                        \
    }

MOVE(read, (int fd, void *p, size_t n), WITH(fd, p, n))
MOVE(write, (int fd, const void *p, size_t n), WITH(fd, p, n))
MOVE(pread, (int fd, void *p, size_t n, off_t at), WITH(fd, p, n, at))
MOVE(pread64, (int fd, void *p, size_t n, off64_t at), WITH(fd, p, n, at))
MOVE(pwrite, (int fd, const void *p, size_t n, off_t at), WITH(fd, p, n, at))
MOVE(pwrite64, (int fd, const void *p, size_t n, off64_t at), WITH(fd, p, n, at))

void *mmap64(void *where, size_t len, int protection, int flags, int fd, off64_t at)
{
    if (fd >= 0 && armed.on && fails("mmap", fd, len))
        return MAP_FAILED;
    return NEXT(mmap64, where, len, protection, flags, fd, at);
}

void *mmap(void *where, size_t len, int protection, int flags, int fd, off_t at)
{
    return mmap64(where, len, protection, flags, fd, at);
}

static int opened(int at, const char *path, int flags, int mode)
{
    return fails_at("open", path) ? -1 : NEXT(openat, at, path, flags, mode);
}

OPEN_ALL

int fcntl64(int fd, int command, ...)
{
    va_list rest;
    void *argument;
    va_start(rest, command);
    argument = va_arg(rest, void *);
    va_end(rest);
    return command == F_OFD_SETLK && fails("fcntl", fd, SIZE_MAX) ? -1 : NEXT(fcntl64, fd, command, argument);
}

int rename(const char *from, const char *to)
{
    return fails_at("rename", to) ? -1 : NEXT(rename, from, to);
}

int unlink(const char *path)
{
    return fails_at("unlink", path) ? -1 : NEXT(unlink, path);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    return fails_at("linkat", to) ? -1 : NEXT(linkat, from_fd, from, to_fd, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return fails_at("mkdir", path) ? -1 : NEXT(mkdir, path, mode);
}

int rmdir(const char *path)
{
    return fails_at("rmdir", path) ? -1 : NEXT(rmdir, path);
}

/* ---------------------------------------------------------------- memory that the extension modules allocate */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *p, size_t n);

static int is_ours(struct dl_phdr_info *info, size_t size, void *at)
{
    (void)size;
    if (strstr(info->dlpi_name, "/rocketc/_") == NULL)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)at - info->dlpi_addr - part->p_vaddr < part->p_memsz)
            return 1;
    }
    return 0;
}

static int no_memory(void *caller)
{
    return armed.on && strcmp(armed.call, "malloc") == 0 && dl_iterate_phdr(is_ours, caller) != 0 &&
           failed_by_program("malloc", NULL);
}

void *malloc(size_t n)
{
    return no_memory(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t count, size_t n)
{
    return no_memory(__builtin_return_address(0)) ? NULL : __libc_calloc(count, n);
}

void *realloc(void *p, size_t n)
{
    return no_memory(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = no_memory(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
    return copy == NULL ? NULL : memcpy(copy, text, n);
}
