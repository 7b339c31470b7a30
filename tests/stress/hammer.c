/* Many threads use lock.h and histogram.h at once; test_locks.py compiles this with the thread sanitizer.
 *
 * hammer WHAT THREADS ROUNDS: exits 0 if every count is right, 1 if a count is wrong, 2 if the arguments are wrong.
 */
#include "rocketc/histogram.h"
#include "rocketc/lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_THREADS = 64,
    DEPTH = 3
};

static const char *what;
static long rounds;
static rc_spin spin;
static rc_reentrant reentrant;
static rc_histogram histogram;
static long count, twin; /* not atomic: a lock guards them */

static void inside(void)
{
    if (count != twin)
        abort();
    count++;
    twin++;
}

static void round_of(long n)
{
    if (strcmp(what, "spin") == 0) {
        if (n % 4 != 0 || !rc_spin_try_lock(&spin))
            rc_spin_lock(&spin);
        inside();
        rc_spin_unlock(&spin);
    } else if (strcmp(what, "spin-held") == 0) { /* held long enough that waiters yield their cores */
        struct timespec ns = {0, n % 64 == 0 ? 2 * RC_MUTEX_PATIENCE_NS : 0};
        rc_spin_lock(&spin);
        inside();
        if (ns.tv_nsec != 0)
            (void)nanosleep(&ns, NULL);
        rc_spin_unlock(&spin);
    } else if (strcmp(what, "reentrant") == 0) {
        for (int i = 0; i < DEPTH; i++) {
            if (n % 4 != 0 || !rc_reentrant_try_lock(&reentrant))
                rc_reentrant_lock(&reentrant);
        }
        if (rc_reentrant_depth(&reentrant) != DEPTH)
            abort();
        inside();
        for (int i = 0; i < DEPTH; i++) {
            if (rc_reentrant_unlock(&reentrant) != 0)
                abort();
        }
        if (n % 8 == 0 && rc_reentrant_unlock(&reentrant) != EPERM) /* released already: another thread may own it */
            abort();
    } else if (strcmp(what, "reentrant-held") == 0) { /* held long enough that waiters reserve the lock */
        struct timespec ns = {0, n % 64 == 0 ? 2 * RC_MUTEX_PATIENCE_NS : 0};
        rc_reentrant_lock(&reentrant);
        inside();
        if (ns.tv_nsec != 0)
            (void)nanosleep(&ns, NULL);
        (void)rc_reentrant_unlock(&reentrant);
    } else if (strcmp(what, "histogram") == 0) {
        rc_histogram_add(&histogram, (uint64_t)n);
        if (n % 256 == 0 && rc_histogram_percentile(&histogram, 50) > rc_histogram_max(&histogram))
            abort();
    } else { /* "nothing": without a lock the sanitizer must report a race */
        count++;
        twin++;
    }
}

static void *hammer(void *unused)
{
    for (long n = 1; n <= rounds; n++)
        round_of(n);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_THREADS];
    long total;
    int many = argc == 4 ? atoi(argv[2]) : 0;
    if (many < 1 || many > MOST_THREADS)
        return 2;
    what = argv[1];
    rounds = atol(argv[3]);
    total = rounds * many;
    rc_reentrant_init(&reentrant);
    for (int i = 0; i < many; i++) {
        if (pthread_create(&threads[i], NULL, hammer, NULL) != 0)
            return 2;
    }
    for (int i = 0; i < many; i++)
        (void)pthread_join(threads[i], NULL);
    if (strcmp(what, "histogram") == 0)
        return rc_histogram_count(&histogram) == (uint64_t)total && rc_histogram_max(&histogram) == (uint64_t)rounds
                   ? 0
                   : 1;
    return count == total && twin == total ? 0 : 1;
}
