/* The named points of a build with ROCKETC_POINTS: passes are counted, and the process ends when it reaches a chosen
 * point for the n-th time. Loaded before libc, so that every extension module finds it; see preload.py.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAMES 64

static atomic_flag busy = ATOMIC_FLAG_INIT;
static struct {
    const char *name;
    long times;
} met[NAMES];
static char wanted[100];
static long left;

/* End the process when it reaches a point for the n-th time. */
void points_arm(const char *name, long n)
{
    snprintf(wanted, sizeof(wanted), "%s", name);
    left = n;
}

/* One line for each point that was reached: its name, a tab, the count. Returns the bytes of all lines. */
int points_met(char *text, int room)
{
    int used = 0;
    for (int i = 0; i < NAMES && met[i].name && used < room; i++)
        used += snprintf(text + used, (size_t)(room - used), "%s\t%ld\n", met[i].name, met[i].times);
    return used;
}

void rc_point_reached(const char *name)
{
    int i = 0;
    while (atomic_flag_test_and_set(&busy))
        ;
    while (i < NAMES - 1 && met[i].name && strcmp(met[i].name, name) != 0)
        i++;
    met[i].name = name;
    met[i].times++;
    if (left > 0 && strcmp(name, wanted) == 0 && --left == 0) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    atomic_flag_clear(&busy);
}
