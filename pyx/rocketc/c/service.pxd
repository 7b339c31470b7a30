"""service.h: threads that sleep, are woken, and stop; clocks; timed waits on a condition."""
from libc.stdint cimport int64_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes) noexcept
    int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept
    int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept
    int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept
    int pthread_mutex_destroy(pthread_mutex_t* mutex) noexcept
    int pthread_cond_broadcast(pthread_cond_t* cond) noexcept
    int pthread_cond_signal(pthread_cond_t* cond) noexcept
    int pthread_cond_destroy(pthread_cond_t* cond) noexcept


cdef extern from "rocketc/service.h" nogil:
    ctypedef struct rc_service:
        int running
        int woken
    ctypedef void* (*rc_service_run)(void*) noexcept nogil
    int64_t rc_clock_ns() noexcept
    int64_t rc_clock_ms() noexcept
    int rc_cond_init(pthread_cond_t* cond) noexcept
    void rc_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex, int64_t ns) noexcept
    int rc_service_init(rc_service* s) noexcept
    int rc_service_start(rc_service* s, rc_service_run run, void* argument) noexcept
    void rc_service_wake(rc_service* s) noexcept
    int rc_service_wait(rc_service* s, int64_t ns) noexcept
    void rc_service_stop(rc_service* s) noexcept
    void rc_service_destroy(rc_service* s) noexcept
