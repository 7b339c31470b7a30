/* Loaded before libc (LD_PRELOAD): one call of the disk fails, as tests ask for it. Used by tests/unit/test_failure.py.
 *
 * FAIL_CALL   msync, fdatasync, fsync, pwrite, fallocate or ftruncate
 * FAIL_AT     which call of that name fails, counted from 1 since FAIL_ARMED was made; 0: none
 * FAIL_COUNT  how many fail from there on; default: all
 * FAIL_SIZE   only calls about so many bytes or more count; msync and pwrite
 * FAIL_PATH   only calls about a file whose path has this text in it count; not msync
 * FAIL_ERRNO  with what; default EIO
 * FAIL_ARMED  path of a file: calls count while it exists
 * FAIL_LOG    path of a file that gets a line with the name of each call that failed
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static int calls;

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

static int fails(const char *name, int fd, size_t size)
{
    const char *call = getenv("FAIL_CALL"), *armed = getenv("FAIL_ARMED"), *log = getenv("FAIL_LOG");
    int at = number("FAIL_AT", 0), count = number("FAIL_COUNT", 1 << 30), n, told;
    if (call == NULL || strcmp(call, name) != 0 || size < (size_t)number("FAIL_SIZE", 0) || !is_meant(fd) ||
        (armed != NULL && access(armed, F_OK) != 0))
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

#define NEXT(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

int msync(void *p, size_t len, int flags)
{
    return fails("msync", -1, len) ? -1 : NEXT(msync, p, len, flags);
}

int fdatasync(int fd)
{
    return fails("fdatasync", fd, SIZE_MAX) ? -1 : NEXT(fdatasync, fd);
}

int fsync(int fd)
{
    return fails("fsync", fd, SIZE_MAX) ? -1 : NEXT(fsync, fd);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return fails("pwrite", fd, n) ? -1 : NEXT(pwrite, fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    return fails("pwrite", fd, n) ? -1 : NEXT(pwrite64, fd, p, n, at);
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
    return fails("fallocate", fd, SIZE_MAX) ? -1 : NEXT(fallocate, fd, mode, at, len);
}

int fallocate64(int fd, int mode, off64_t at, off64_t len)
{
    return fails("fallocate", fd, SIZE_MAX) ? -1 : NEXT(fallocate64, fd, mode, at, len);
}
