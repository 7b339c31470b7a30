/* Shared by the libraries that tests load before libc: see preload.py. Include it first. */
#ifndef ROCKETC_TESTS_PRELOAD_H
#define ROCKETC_TESTS_PRELOAD_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

/* Call libc's own function. */
#define NEXT(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

/* Four names of one call; all of them call opened(folder, path, flags, mode). */
#define OPEN(name, at, ...)                     \
    int name(__VA_ARGS__, int flags, ...)       \
    {                                           \
        va_list rest;                           \
        int mode;                               \
        va_start(rest, flags);                  \
        mode = va_arg(rest, int);               \
        va_end(rest);                           \
        return opened(at, path, flags, mode);   \
    }
#define OPEN_ALL                              \
    OPEN(open, AT_FDCWD, const char *path)    \
    OPEN(open64, AT_FDCWD, const char *path)  \
    OPEN(openat, at, int at, const char *path) \
    OPEN(openat64, at, int at, const char *path)

#endif
