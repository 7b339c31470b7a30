# cython: language_level=3
"""Guarded access to a mapped file that another process may cut short.

Touching a page of a map after the end of the file, or a page that the disk can't deliver, raises SIGBUS in the thread.
Between enter() and leave() this does not end the process: the handler maps zero pages in place of the missing ones,
sets *cut, and the thread continues. Zeros end a log, so every loop over records terminates. The caller checks *cut
afterwards and raises. A SIGBUS for any other address goes to the handler that was installed before.

The handler does not use longjmp, allocations or locks. It reads a list that its own thread made and calls mmap, which
is a bare system call on every system we know. The state of this module is the only one outside an object, because
signal handlers belong to the process.
"""
from rocketc._status cimport check

cdef extern from *:
    """
    #include <signal.h>
    #include <string.h>

    static __thread rc_guard *rc_guard_top;
    static struct sigaction rc_guard_before;
    static uintptr_t rc_guard_page;

    static void rc_guard_handler(int sig, siginfo_t *info, void *context)
    {
        uintptr_t at = (uintptr_t)info->si_addr;
        for (rc_guard *g = rc_guard_top; g != NULL; g = g->outer) {
            uintptr_t base = (uintptr_t)g->base;
            uintptr_t end = (base + g->len + rc_guard_page - 1) / rc_guard_page * rc_guard_page;
            if (at >= base && at < end) {
                uintptr_t from = at / rc_guard_page * rc_guard_page;
                int before = errno;
                void *p = mmap((void *)from, end - from, g->protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                errno = before;
                if (p == MAP_FAILED)
                    break;
                *g->cut = 1;
                return;
            }
        }
        if (rc_guard_before.sa_flags & SA_SIGINFO) {
            rc_guard_before.sa_sigaction(sig, info, context);
        } else if (rc_guard_before.sa_handler != SIG_DFL && rc_guard_before.sa_handler != SIG_IGN) {
            rc_guard_before.sa_handler(sig);
        } else {
            signal(sig, SIG_DFL); /* the access is repeated and ends the process, as without this handler */
        }
    }

    static int rc_guard_install(void)
    {
        struct sigaction now, ours;
        if (sigaction(SIGBUS, NULL, &now) != 0)
            return errno;
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == rc_guard_handler)
            return 0;
        rc_guard_page = (uintptr_t)sysconf(_SC_PAGESIZE);
        rc_guard_before = now;
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = rc_guard_handler;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&ours.sa_mask);
        return sigaction(SIGBUS, &ours, NULL) == 0 ? 0 : errno;
    }

    static inline void rc_guard_enter(rc_guard *g, const uint8_t *base, size_t len, int *cut, int writing)
    {
        g->base = base;
        g->len = len;
        g->cut = cut;
        g->protection = writing ? PROT_READ | PROT_WRITE : PROT_READ;
        g->outer = rc_guard_top;
        rc_guard_top = g;
    }

    static inline void rc_guard_leave(rc_guard *g)
    {
        rc_guard_top = g->outer;
    }
    """
    int rc_guard_install() noexcept nogil
    void rc_guard_enter(rc_guard* g, const uint8_t* base, size_t len, int* cut, int writing) noexcept nogil
    void rc_guard_leave(rc_guard* g) noexcept nogil


cdef int install() except -1:
    """Install the handler before the current SIGBUS handler, unless it is installed already.

    Call it with the GIL, before a series of enter().
    """
    check(rc_guard_install())
    return 0


cdef void enter(rc_guard* guard, const uint8_t* base, size_t len, int* cut) noexcept nogil:
    """From here to leave() this thread may touch missing pages of the map.

    guard  memory of the caller, on its stack; in use until leave(), which the same thread calls
    base   start of a map that only this library uses; len bytes
    cut    set to 1 if a page was missing: the rest of the map from that page on now reads as zeros
    """
    rc_guard_enter(guard, base, len, cut, 0)


cdef void enter_writing(rc_guard* guard, const uint8_t* base, size_t len, int* cut) noexcept nogil:
    """enter() for a map that any thread writes to. Writes to missing pages are lost; *cut reports this. Readers of such
    a map need it too: after enter() the handler maps read-only pages, and the next write would end the process."""
    rc_guard_enter(guard, base, len, cut, 1)


cdef void leave(rc_guard* guard) noexcept nogil:
    """End the guard of enter() or enter_writing()."""
    rc_guard_leave(guard)
