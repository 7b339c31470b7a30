/* Named points inside a write into a map. A build with ROCKETC_POINTS, for tests, tells rc_point_reached() of them, which
 * a library that is loaded first may have, to end the process there: tests/crash/points.c. Else they are nothing. */
#ifndef ROCKETC_POINTS_H
#define ROCKETC_POINTS_H

#ifdef ROCKETC_POINTS
extern void rc_point_reached(const char *name) __attribute__((weak));
#endif

static inline void rc_point(const char *name)
{
#ifdef ROCKETC_POINTS
    if (rc_point_reached)
        rc_point_reached(name);
#else
    (void)name;
#endif
}

#endif
