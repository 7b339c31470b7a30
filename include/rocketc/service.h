/* A thread of the store, which sleeps, is woken, and stops. Source: RocketMQ ServiceThread.
 * It does not run Python, and blocks all signals except those of invalid memory accesses and instructions. */
#ifndef ROCKETC_SERVICE_H
#define ROCKETC_SERVICE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

typedef struct rc_service {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    pthread_t thread;
    int running; /* 1 from start to the end of stop; only the owner's thread reads it */
    int woken;   /* 1: a wake-up that the thread has not seen yet; several count as one */
    int stop;
} rc_service;

typedef void *(*rc_service_run)(void *);

enum {
    RC_SERVICE_STACK_BYTES = 256 << 10,
};

static inline int64_t rc_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Milliseconds since the epoch: the clock of the store's timestamps. */
static inline int64_t rc_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline int rc_cond_init(pthread_cond_t *cond)
{
#if defined(__APPLE__)
    return pthread_cond_init(cond, NULL);
#else
    pthread_condattr_t attributes;
    int rc = pthread_condattr_init(&attributes);
    if (rc != 0)
        return rc;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    rc = pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return rc;
#endif
}

/* Wait on cond (of rc_cond_init) for at most ns (>= 0), with the mutex held. May return early, as pthread_cond_wait. */
static inline void rc_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns)
{
    struct timespec until;
#if defined(__APPLE__)
    clock_gettime(CLOCK_REALTIME, &until);
#else
    clock_gettime(CLOCK_MONOTONIC, &until);
#endif
    ns += until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    (void)pthread_cond_timedwait(cond, mutex, &until);
}

/* Initialize s; return 0 or an errno. rc_service_destroy undoes it. */
static inline int rc_service_init(rc_service *s)
{
    int rc = pthread_mutex_init(&s->mutex, NULL);
    s->running = s->woken = s->stop = 0;
    if (rc != 0)
        return rc;
    rc = rc_cond_init(&s->cond);
    if (rc != 0)
        (void)pthread_mutex_destroy(&s->mutex);
    return rc;
}

/* Start run(argument) in a thread; return 0 or an errno. */
static inline int rc_service_start(rc_service *s, rc_service_run run, void *argument)
{
    pthread_attr_t attributes;
    sigset_t most, before;
    int rc = pthread_attr_init(&attributes);
    if (rc != 0)
        return rc;
    (void)pthread_attr_setstacksize(&attributes, RC_SERVICE_STACK_BYTES);
    sigfillset(&most);
    sigdelset(&most, SIGBUS);
    sigdelset(&most, SIGSEGV);
    sigdelset(&most, SIGFPE);
    sigdelset(&most, SIGILL);
    (void)pthread_sigmask(SIG_SETMASK, &most, &before);
    rc = pthread_create(&s->thread, &attributes, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    s->running = rc == 0;
    return rc;
}

static inline void rc_service_wake(rc_service *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->woken = 1;
    (void)pthread_cond_signal(&s->cond);
    (void)pthread_mutex_unlock(&s->mutex);
}

/* Called by the thread: sleep until woken or ns have passed; do not sleep if woken before. Return 1 to stop. */
static inline int rc_service_wait(rc_service *s, int64_t ns)
{
    int64_t until = rc_clock_ns() + ns, now;
    int stop;
    (void)pthread_mutex_lock(&s->mutex);
    while (!s->woken && !s->stop && (now = rc_clock_ns()) < until)
        rc_cond_wait(&s->cond, &s->mutex, until - now);
    s->woken = 0;
    stop = s->stop;
    (void)pthread_mutex_unlock(&s->mutex);
    return stop;
}

/* Ask the thread to stop, and wait for its end. Do nothing if it does not run. */
static inline void rc_service_stop(rc_service *s)
{
    if (!s->running)
        return;
    (void)pthread_mutex_lock(&s->mutex);
    s->stop = 1;
    (void)pthread_cond_signal(&s->cond);
    (void)pthread_mutex_unlock(&s->mutex);
    (void)pthread_join(s->thread, NULL);
    s->running = s->woken = s->stop = 0;
}

static inline void rc_service_destroy(rc_service *s)
{
    (void)pthread_cond_destroy(&s->cond);
    (void)pthread_mutex_destroy(&s->mutex);
}

#endif
