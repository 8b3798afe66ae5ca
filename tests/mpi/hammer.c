/* Several threads count at once, as fast as they can, by the recorder itself: hammer THREADS SECONDS.
 * Every wait is of 7 ticks. Prints "going", and at the end how many messages of each of 5 sizes each side had. */
#include "recorder.c"

#include <pthread.h>

static volatile int over;
static uint64_t counted[64][5][3];

static void *work(void *given) {
  long number = (long)given;
  for (uint64_t k = 0; !over; k++) {
    uint64_t which = k % 5;
    dfrs_completed(RECEIVE_SIDE, 100 * which, 7);
    dfrs_message(SEND_SIDE, 100 * which);
    dfrs_call(ALLREDUCE, 100 * which, 4, 7);
    counted[number][which][0]++;
  }
  return NULL;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 4;
  pthread_t running[64];
  uint64_t ns = dfrs_now_ns(), ticks = dfrs_ticks();
  usleep(20000);
  dfrs_open(0, 1, threads > 1, ns, ticks);
  if (!dfrs_shared) return 1;
  /* More sizes than the table holds: 200 of them, beyond, in the buckets. */
  for (uint64_t size = 1; argc > 3 && size <= 3000; size++) dfrs_message(RECEIVE_SIDE, 1000 + size);
  printf("going\n");
  fflush(stdout);
  for (long k = 0; k < threads; k++) pthread_create(&running[k], NULL, work, (void *)k);
  usleep((useconds_t)(1e6 * (argc > 2 ? atof(argv[2]) : 1.0)));
  over = 1;
  for (int k = 0; k < threads; k++) pthread_join(running[k], NULL);
  for (int which = 0; which < 5; which++) {
    uint64_t all = 0;
    for (int k = 0; k < threads; k++) all += counted[k][which][0];
    printf("%d %lu\n", 100 * which, (unsigned long)all);
  }
  fflush(stdout);
  dfrs_close();
  return 0;
}
