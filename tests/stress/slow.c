/* Loaded before libc (LD_PRELOAD): makes disk calls slow. Used by tests/stress/test_slow_disks.py.
 *
 * SLOW_CALLS  names separated by commas: msync, fdatasync, pwrite, fallocate
 * SLOW_MS     the least duration of each call
 * SLOW_ARMED  path of a file: calls are slow while it exists
 */
#include "../support/preload.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void wait_for(const char *name)
{
    const char *calls = getenv("SLOW_CALLS"), *ms = getenv("SLOW_MS"), *armed = getenv("SLOW_ARMED");
    struct timespec left;
    if (calls == NULL || ms == NULL || armed == NULL || strstr(calls, name) == NULL || access(armed, F_OK) != 0)
        return;
    left.tv_sec = atoi(ms) / 1000;
    left.tv_nsec = atoi(ms) % 1000 * 1000000L;
    while (nanosleep(&left, &left) != 0)
        ;
}

int msync(void *start, size_t size, int flags)
{
    wait_for("msync");
    return NEXT(msync, start, size, flags);
}

int fdatasync(int fd)
{
    wait_for("fdatasync");
    return NEXT(fdatasync, fd);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    wait_for("pwrite");
    return NEXT(pwrite, fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    wait_for("pwrite");
    return NEXT(pwrite64, fd, data, size, at);
}

int fallocate(int fd, int mode, off_t from, off_t size)
{
    wait_for("fallocate");
    return NEXT(fallocate, fd, mode, from, size);
}

int fallocate64(int fd, int mode, off64_t from, off64_t size)
{
    wait_for("fallocate");
    return NEXT(fallocate64, fd, mode, from, size);
}

int posix_fallocate(int fd, off_t from, off_t size)
{
    wait_for("fallocate");
    return NEXT(posix_fallocate, fd, from, size);
}

int posix_fallocate64(int fd, off64_t from, off64_t size)
{
    wait_for("fallocate");
    return NEXT(posix_fallocate64, fd, from, size);
}
