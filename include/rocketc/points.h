/* Named points in a write to a map. In a build with ROCKETC_POINTS, for tests, each calls rc_point_reached(), if a
 * preloaded library defines it: it can end the process there (tests/crash/points.c). In other builds they do nothing. */
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
