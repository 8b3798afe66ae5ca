/* Rates of one CPU: what an event costs there ([Atif2011] section 7.3.1). Prints, a line each, a name and a number:
 *
 *   hertz    cycles a second, by a chain of multiplications of three cycles each (x86-64)
 *   flops    floating-point operations a second, in about the mix of MFLOPS(3): of 29, 15 are additions, 13 are
 *            multiplications, one (3.4 %) is a division
 *   l1_s     seconds that a read takes longer where it misses the first level of cache and hits the second
 *   l2_s     seconds that it takes longer still where it has to go to memory
 *
 * All by CPU time, not by the clock, the best of several repetitions: other programs must not count.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define REPEAT 7
#define LINE 64

static double cpu_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double hertz(void) {
#if defined(__x86_64__)
  double best = 0;
  for (int k = 0; k < REPEAT; k++) {
    uint64_t value = 3;
    long rounds = 3000000;
    double from = cpu_s();
    for (long r = 0; r < rounds; r++)
      __asm__ volatile(
          "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\t"
          "imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0"
          : "+r"(value));
    double found = 30.0 * (double)rounds / (cpu_s() - from);
    if (found > best) best = found;
  }
  return best;
#else
  return 1e9; /* a scale only: costs are times multiplied by it */
#endif
}

static volatile double kept;

static double flops(void) {
  double best = 0;
  for (int k = 0; k < REPEAT; k++) {
    long rounds = 2000000;
    double x = 0.0, sum = 0.0, step = 1.0 / (double)rounds, from = cpu_s();
    for (long r = 0; r < rounds; r++) {
      double p = 0.01;
      x += step;
      for (int term = 0; term < 12; term++) p = p * x + 0.125;
      sum += (p * x) / (1.0 + p * x);
    }
    kept = sum;
    double found = 29.0 * (double)rounds / (cpu_s() - from);
    if (found > best) best = found;
  }
  return best;
}

static double read_s(size_t bytes, long reads) {
  size_t lines = bytes / LINE;
  size_t *order = malloc(lines * sizeof *order);
  char *data = NULL;
  if (!order || posix_memalign((void **)&data, 4096, lines * LINE)) return 0;
  for (size_t k = 0; k < lines; k++) order[k] = k;
  uint64_t state = 88172645463325252ull;
  for (size_t k = lines - 1; k > 0; k--) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    size_t other = state % (k + 1), was = order[k];
    order[k] = order[other], order[other] = was;
  }
  for (size_t k = 0; k < lines; k++) *(void **)(data + order[k] * LINE) = data + order[(k + 1) % lines] * LINE;
  free(order);
  double best = 1;
  void **at = (void **)data;
  for (int k = 0; k < REPEAT; k++) {
    double from = cpu_s();
    for (long r = 0; r < reads; r++) at = *(void ***)at;
    double found = (cpu_s() - from) / (double)reads;
    if (found < best) best = found;
  }
  kept = (double)(uintptr_t)at;
  free(data);
  return best;
}

static size_t cache(int level, size_t otherwise) {
  long found = sysconf(level);
  return found > 0 ? (size_t)found : otherwise;
}

int main(void) {
  size_t l1 = cache(_SC_LEVEL1_DCACHE_SIZE, 32 << 10), l2 = cache(_SC_LEVEL2_CACHE_SIZE, 512 << 10);
  size_t l3 = cache(_SC_LEVEL3_CACHE_SIZE, 32 << 20), most = (size_t)256 << 20;
  size_t large = 4 * l3 > most ? most : 4 * l3;
  double near = read_s(l1 / 2, 2000000), middle = read_s(l2 / 2 > 2 * l1 ? l2 / 2 : 2 * l1, 1000000);
  double far = read_s(large < 8 * l2 ? 8 * l2 : large, 300000);
  printf("hertz %.6e\nflops %.6e\nl1_s %.6e\nl2_s %.6e\n", hertz(), flops(), middle > near ? middle - near : 0,
         far > middle ? far - middle : 0);
  return 0;
}
