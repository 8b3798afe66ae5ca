/* Writes the figures of one rank: see recorder.h. Knows nothing of MPI. */
#define _GNU_SOURCE
#include "recorder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define SETS 8192
#define WAYS 8
#define SAMPLE 16

typedef struct {
  uint64_t handle[WAYS], what[WAYS];
} set_t;

shared_t *dfrs_shared;
static int concurrent_calls;
static set_t sets[SETS];

uint64_t dfrs_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t dfrs_ticks(void) {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return dfrs_now_ns();
#endif
}

static inline void add(uint64_t *word, uint64_t value) {
  if (__builtin_expect(concurrent_calls, 0))
    __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
  else
    __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + value, __ATOMIC_RELAXED);
}

static inline void begin(uint64_t *begun) {
  add(begun, 1);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void end(uint64_t *ended) {
  __atomic_thread_fence(__ATOMIC_RELEASE);
  add(ended, 1);
}

static void usage(void) {
  struct rusage used;
  if (getrusage(RUSAGE_SELF, &used)) return;
  shared_t *s = dfrs_shared;
  s->minor_faults = (uint64_t)used.ru_minflt;
  s->major_faults = (uint64_t)used.ru_majflt;
  s->voluntary = (uint64_t)used.ru_nvcsw;
  s->involuntary = (uint64_t)used.ru_nivcsw;
  s->peak_rss_kb = (uint64_t)used.ru_maxrss;
}

static uint64_t cpu_ns(void) {
  struct timespec used;
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used)) return 0;
  return (uint64_t)used.tv_sec * 1000000000ull + (uint64_t)used.tv_nsec;
}

void dfrs_open(int rank, int size, int concurrent, uint64_t before_ns, uint64_t before_ticks) {
  const char *directory = getenv("DFRS_PROFILE_DIR");
  char made[4096], name[4096];
  if (!directory || !*directory || dfrs_shared) return;
  if (snprintf(made, sizeof made, "%s/.%d-%d-%lx.new", directory, rank, (int)getpid(), (long)before_ns) >=
          (int)sizeof made ||
      snprintf(name, sizeof name, "%s/%d-%d-%lx.rank", directory, rank, (int)getpid(), (long)before_ns) >=
          (int)sizeof name)
    return;
  int file = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  /* Blocks are reserved at once: a full /dev/shm must be an error here, not a bus error in the program later. */
  if (file < 0 || posix_fallocate(file, 0, sizeof(shared_t))) {
    fprintf(stderr, "dfrs: rank %d: no room to profile in %s\n", rank, directory);
    if (file >= 0) close(file), unlink(made);
    return;
  }
  shared_t *s = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (s == MAP_FAILED) {
    fprintf(stderr, "dfrs: rank %d: cannot map a file in %s\n", rank, directory);
    unlink(made);
    return;
  }
  struct stat namespace;
  s->network_namespace = stat("/proc/self/ns/net", &namespace) ? 0 : (uint64_t)namespace.st_ino;
  gethostname(s->host, sizeof s->host - 1);
  s->rank = (uint64_t)rank;
  s->size = (uint64_t)size;
  s->pid = (uint64_t)getpid();
  s->start_ns = dfrs_now_ns();
  s->start_ticks = dfrs_ticks();
  s->start_cpu_ns = cpu_ns();
  s->tick_ns = s->start_ticks > before_ticks && s->start_ns > before_ns
                   ? (double)(s->start_ns - before_ns) / (double)(s->start_ticks - before_ticks)
                   : 1.0;
  s->state = 1;
  concurrent_calls = concurrent;
  __atomic_store_n(&s->magic, DFRS_MAGIC, __ATOMIC_RELEASE);
  if (rename(made, name)) {
    munmap(s, sizeof *s);
    unlink(made);
    return;
  }
  dfrs_shared = s;
}

void dfrs_close(void) {
  shared_t *s = dfrs_shared;
  if (!s || s->state != 1) return;
  s->end_ticks = dfrs_ticks();
  s->end_ns = dfrs_now_ns();
  if (s->end_ticks > s->start_ticks)
    s->tick_ns = (double)(s->end_ns - s->start_ns) / (double)(s->end_ticks - s->start_ticks);
  s->cpu_ns = cpu_ns();
  usage();
  __atomic_store_n(&s->state, 2, __ATOMIC_RELEASE);
}

int dfrs_sampled(uint64_t bytes) {
  static __thread uint32_t chance __attribute__((tls_model("initial-exec"))) = 2463534242u;
  if (dfrs_long(bytes)) return 1;
  /* By chance, not every sixteenth: a program's own rhythm must not choose which ones are taken. */
  chance ^= chance << 13;
  chance ^= chance >> 17;
  chance ^= chance << 5;
  return (chance >> 8) % SAMPLE ? 0 : SAMPLE;
}

void dfrs_in_mpi(uint64_t ticks) { add(&dfrs_shared->mpi_ticks, ticks); }

static inline uint64_t mixed(uint64_t value) { return (value * 0x9E3779B97F4A7C15ull) >> 32; }

static inline int power(uint64_t value) { return value ? 63 - __builtin_clzll(value) : 0; }

/* The place of `key` in a table of entries that begin with their key; NULL where PROBES places are taken by others. */
#define PLACE(table, places, wanted, found)                                                          \
  do {                                                                                               \
    uint64_t at = mixed(wanted);                                                                     \
    found = NULL;                                                                                    \
    for (int probe = 0; probe < PROBES; probe++, at++) {                                             \
      uint64_t *slot = &(table)[at & ((places) - 1)].key, seen = __atomic_load_n(slot, __ATOMIC_RELAXED); \
      if (seen == 0 && __atomic_compare_exchange_n(slot, &seen, wanted, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
        seen = wanted;                                                                               \
      if (seen == wanted) {                                                                          \
        found = &(table)[at & ((places) - 1)];                                                       \
        break;                                                                                       \
      }                                                                                              \
    }                                                                                                \
  } while (0)

static message_t *message(uint64_t bytes) {
  message_t *entry;
  PLACE(dfrs_shared->messages, MESSAGES, bytes + 1, entry);
  return entry;
}

void dfrs_message(int side, uint64_t bytes) {
  message_t *entry = message(bytes);
  if (__builtin_expect(entry != NULL, 1)) {
    add(side == SEND_SIDE ? &entry->sent : &entry->received, 1);
    return;
  }
  entry = &dfrs_shared->more_messages[power(bytes)];
  begin(&entry->begun);
  add(&entry->key, bytes);
  add(side == SEND_SIDE ? &entry->sent : &entry->received, 1);
  end(&entry->ended);
}

void dfrs_completed(int side, uint64_t bytes, uint64_t ticks) {
  message_t *entry = message(bytes);
  int room = entry != NULL;
  if (!room) entry = &dfrs_shared->more_messages[power(bytes)];
  begin(&entry->begun);
  if (!room) add(&entry->key, bytes);
  add(side == SEND_SIDE ? &entry->isent : &entry->ireceived, 1);
  add(&entry->waited, ticks);
  end(&entry->ended);
}

void dfrs_call(int kind, uint64_t bytes, int processes, uint64_t ticks) {
  uint64_t short_of = bytes < 1ull << 40 ? bytes : (1ull << 40) - 1;
  uint64_t key = (uint64_t)kind << 60 | ((uint64_t)processes & 0xFFFFF) << 40 | short_of;
  call_t *entry;
  PLACE(dfrs_shared->calls, CALLS, key, entry);
  int room = entry != NULL;
  if (!room) entry = &dfrs_shared->more_calls[kind];
  begin(&entry->begun);
  if (!room) add(&entry->key, bytes), add(&entry->processes, (uint64_t)processes);
  add(&entry->count, 1);
  add(&entry->ticks, ticks);
  end(&entry->ended);
  dfrs_in_mpi(ticks);
}

int dfrs_request(uint64_t handle, int side, uint64_t bytes) {
  set_t *set = &sets[mixed(handle >> 4) & (SETS - 1)];
  int place = -1;
  for (int way = 0; way < WAYS; way++) {
    uint64_t seen = __atomic_load_n(&set->handle[way], __ATOMIC_RELAXED);
    /* One handle for two messages: the library gives it to those that are complete when the call returns. */
    if (seen == handle) return 0;
    if (seen == 0 && place < 0) place = way;
  }
  for (; place >= 0 && place < WAYS; place++) {
    uint64_t nobody = 0;
    if (!concurrent_calls && set->handle[place] == 0)
      set->handle[place] = handle;
    else if (!__atomic_compare_exchange_n(&set->handle[place], &nobody, handle, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    set->what[place] = bytes << 1 | (uint64_t)side;
    return 1;
  }
  add(&dfrs_shared->untracked, 1);
  return 0;
}

int dfrs_take(uint64_t handle, int *side, uint64_t *bytes) {
  set_t *set = &sets[mixed(handle >> 4) & (SETS - 1)];
  for (int way = 0; way < WAYS; way++) {
    if (__atomic_load_n(&set->handle[way], __ATOMIC_ACQUIRE) != handle) continue;
    *side = (int)(set->what[way] & 1);
    *bytes = set->what[way] >> 1;
    __atomic_store_n(&set->handle[way], 0, __ATOMIC_RELEASE);
    return 1;
  }
  return 0;
}
