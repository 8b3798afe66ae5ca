/* The file that a rank shares with whoever reads its figures while it runs: layout and how it is written.
 *
 * One writer process, any number of readers, no lock. Every figure is one 64-bit word, written atomically. Words that
 * belong together (how many messages, how long was waited for them) stand between two counters: `begun` goes up before
 * they change, `ended` after. A reader that finds begun (read last) equal to ended (read first) has seen no change in
 * between. Tables are of fixed size; what finds no room is added up by powers of two.
 */
#ifndef DFRS_RECORDER_H
#define DFRS_RECORDER_H
#include <stdint.h>

#define DFRS_MAGIC 0x31304D4649524644ull /* "DFRIFM01" */
#define MESSAGES 1024 /* powers of two */
#define CALLS 256
#define CLASSES 64
#define PROBES 32

typedef struct {
  uint64_t key; /* size + 1; 0: free. Of what found no room: bytes together */
  uint64_t begun, ended;
  uint64_t sent, received;   /* by blocking calls */
  uint64_t isent, ireceived; /* non-blocking, counted when they are complete */
  uint64_t waited;           /* ticks, for the non-blocking ones */
} message_t;

typedef struct {
  uint64_t key; /* kind << 60 | processes << 40 | size; 0: free. Of what found no room: bytes together */
  uint64_t begun, ended;
  uint64_t count, ticks, processes;
  uint64_t unused[2];
} call_t;

enum { SEND_SIDE, RECEIVE_SIDE };
enum { ALLTOALL = 1, BCAST, ALLREDUCE, BARRIER, REDUCE, ALLGATHER, KINDS };

typedef struct {
  uint64_t magic, rank, size, pid, state, start_ns, start_ticks, end_ns, end_ticks;
  uint64_t start_cpu_ns, cpu_ns, minor_faults, major_faults, voluntary, involuntary, peak_rss_kb;
  uint64_t untracked, mpi_ticks, network_namespace;
  double tick_ns;
  uint64_t reserved[236];
  char host[256];
  char padding[1792];
  message_t messages[MESSAGES];
  message_t more_messages[CLASSES];
  call_t calls[CALLS];
  call_t more_calls[16];
} shared_t;

#pragma GCC visibility push(hidden)
extern shared_t *dfrs_shared; /* NULL: not profiled */

uint64_t dfrs_ticks(void);
void dfrs_open(int rank, int size, int concurrent, uint64_t before_ns, uint64_t before_ticks);
void dfrs_close(void);
uint64_t dfrs_now_ns(void);
#define ALWAYS_BYTES 8192 /* from here on messages take so long that their time is always taken */
static inline int dfrs_long(uint64_t bytes) { return bytes >= ALWAYS_BYTES; }
int dfrs_sampled(uint64_t bytes); /* weight of the time of this message: 0 not taken, else how many it stands for */
void dfrs_message(int side, uint64_t bytes);
void dfrs_completed(int side, uint64_t bytes, uint64_t ticks);
void dfrs_call(int kind, uint64_t bytes, int processes, uint64_t ticks);
void dfrs_in_mpi(uint64_t ticks);
int dfrs_request(uint64_t handle, int side, uint64_t bytes); /* 0: no room, or the handle is in use: complete already */
int dfrs_take(uint64_t handle, int *side, uint64_t *bytes);  /* 0: not known */
#pragma GCC visibility pop
#endif
