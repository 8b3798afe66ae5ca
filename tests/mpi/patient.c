/* Preloaded into test programs: a rank that waits sleeps for a moment instead of giving its CPU away for one turn.
 *
 * Open MPI waits busily. Where more processes than CPUs are running, a rank that gives way comes back when all others
 * had their turn, which takes longer than a message; what is measured then is the machine's load. A rank that sleeps
 * is woken at once, the more so as it runs before others from then on (root only), which its sleeping makes harmless.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

int sched_yield(void) {
  static __thread int known;
  if (!known) {
    struct sched_param priority = {.sched_priority = 5};
    known = sched_setscheduler(0, SCHED_RR, &priority) == 0 ? 1 : 2;
  }
  struct timespec moment = {0, 50000};
  return nanosleep(&moment, NULL);
}
