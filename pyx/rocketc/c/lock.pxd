"""lock.h: a spin lock and a reentrant lock; zero bytes are a free lock, but see rc_reentrant_init."""
from libc.stdint cimport int32_t, uint32_t, uintptr_t


cdef extern from "rocketc/lock.h" nogil:
    ctypedef struct rc_spin:
        pass
    ctypedef struct rc_spin_wait:
        int32_t yields
        int32_t promised
    ctypedef struct rc_reentrant:
        pass
    enum:
        RC_MUTEX_PATIENCE_NS
    void rc_spin_pause() noexcept
    int rc_spin_try_lock(rc_spin* lock) noexcept
    int rc_spin_turn(rc_spin* lock, rc_spin_wait* wait, int32_t tries, int32_t pauses) noexcept
    void rc_spin_lock(rc_spin* lock) noexcept
    void rc_spin_unlock(rc_spin* lock) noexcept
    uintptr_t rc_this_thread() noexcept
    void rc_reentrant_init(rc_reentrant* lock) noexcept
    int rc_reentrant_try_lock(rc_reentrant* lock) noexcept
    void rc_reentrant_lock(rc_reentrant* lock) noexcept
    int rc_reentrant_unlock(rc_reentrant* lock) noexcept
    uint32_t rc_reentrant_depth(const rc_reentrant* lock) noexcept
