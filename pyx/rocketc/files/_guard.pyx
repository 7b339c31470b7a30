# cython: language_level=3
"""Reading, or writing, a file map that somebody else may cut short.

A page of a file map that lies behind the file's end, or that the disk can't deliver, raises SIGBUS in the thread that
touches it. Between enter() and leave() such a touch of the guarded map does not end the process: the handler puts zero
pages in the place of the missing ones, sets *cut, and the thread reads on. Zeros end a log, so every loop over records
ends by itself; the caller looks at *cut afterwards and raises. A SIGBUS of any other address goes to the handler that
was there before.

No longjmp, no allocation, no lock: the handler reads a list that its own thread made and calls mmap, which on every
system we know is a bare system call. The state of this module is the only one that lives outside an object: signal
handlers belong to the process.
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
            signal(sig, SIG_DFL); /* the touch is repeated and ends the process, as without us */
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
    """Put the handler before whatever handles SIGBUS now, if it is not there.

    Call it with the GIL, before a row of enter().
    """
    check(rc_guard_install())
    return 0


cdef void enter(rc_guard* guard, const uint8_t* base, size_t len, int* cut) noexcept nogil:
    """From here to leave() this thread may touch missing pages of the map.

    guard  memory of the caller, on its stack; kept until leave(), which the same thread calls
    base   start of a file map that only we use; len bytes
    cut    set to 1 when a page was missing: all of the map from there on reads as zeros now
    """
    rc_guard_enter(guard, base, len, cut, 0)


cdef void enter_writing(rc_guard* guard, const uint8_t* base, size_t len, int* cut) noexcept nogil:
    """enter() for a map that this or another thread writes to: what is written into missing pages is lost, and *cut
    tells of it. Readers of such a map need it as well: behind enter() the next write would end the process."""
    rc_guard_enter(guard, base, len, cut, 1)


cdef void leave(rc_guard* guard) noexcept nogil:
    """The end of what enter() began."""
    rc_guard_leave(guard)
