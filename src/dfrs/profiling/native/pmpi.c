/* The profiling interface of MPI (PMPI): counts what a rank sends, receives and waits for ([Atif2011] 5.3, 6).
 *
 * Preloaded, it stands before the MPI library; every call goes on to the library under its PMPI name, with the same
 * arguments but for a status of our own where the program ignores it (the size of what came is read from it). Without
 * DFRS_PROFILE_DIR nothing is counted. It is not linked with MPI, so that a launcher or a shell that inherits
 * LD_PRELOAD does not load MPI for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "recorder.h"
#include "weak.h"

#define ON_STACK 64

static MPI_Request nothing;
static MPI_Datatype byte;

static inline uint64_t handle(MPI_Request request) { return (uint64_t)(uintptr_t)request; }

static inline uint64_t bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  if (PMPI_Type_size(type, &size) != MPI_SUCCESS || count < 0 || size < 0) return 0;
  return (uint64_t)count * (uint64_t)size;
}

static uint64_t bytes_come(MPI_Status *status, uint64_t otherwise) {
  int count = MPI_UNDEFINED;
  if (PMPI_Get_count(status, byte, &count) != MPI_SUCCESS || count == MPI_UNDEFINED) return otherwise;
  return (uint64_t)count;
}

static int processes_of(MPI_Comm comm) {
  int size = 1;
  PMPI_Comm_size(comm, &size);
  return size;
}

/* ---- beginning and end ---- */

static int promote(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size, (void)data;
  /* Loaded privately, as an extension of Python is, MPI would not be found by its names. */
  if (info->dlpi_name && strstr(info->dlpi_name, "/libmpi")) dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_GLOBAL | RTLD_LAZY);
  return 0;
}

static void handles(void) {
#ifdef OPEN_MPI
  nothing = (MPI_Request)dlsym(RTLD_DEFAULT, "ompi_request_null");
  byte = (MPI_Datatype)dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
#else
  nothing = MPI_REQUEST_NULL;
  byte = MPI_BYTE;
#endif
}

static MPI_Comm world(void) {
#ifdef OPEN_MPI
  return (MPI_Comm)dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
#else
  return MPI_COMM_WORLD;
#endif
}

static void started(uint64_t ns, uint64_t ticks) {
  int rank = 0, level = MPI_THREAD_SINGLE;
  handles();
  if (PMPI_Comm_rank(world(), &rank) != MPI_SUCCESS) return;
  PMPI_Query_thread(&level);
  dfrs_open(rank, processes_of(world()), level == MPI_THREAD_MULTIPLE, ns, ticks);
}

int MPI_Init(int *argc, char ***argv) {
  uint64_t ns = dfrs_now_ns(), ticks = dfrs_ticks();
  dl_iterate_phdr(promote, NULL);
  int result = PMPI_Init(argc, argv);
  if (result == MPI_SUCCESS) started(ns, ticks);
  return result;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  uint64_t ns = dfrs_now_ns(), ticks = dfrs_ticks();
  dl_iterate_phdr(promote, NULL);
  int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) started(ns, ticks);
  return result;
}

int MPI_Finalize(void) {
  dfrs_close();
  dfrs_shared = NULL;
  return PMPI_Finalize();
}

/* ---- blocking messages ---- */

/* The call, its time if it is one of those whose time is taken. */
#define TIMED(bytes, call)                                       \
  do {                                                           \
    int weight = dfrs_sampled(bytes);                            \
    uint64_t from = weight ? dfrs_ticks() : 0;                   \
    result = call;                                               \
    if (weight) dfrs_in_mpi((dfrs_ticks() - from) * (uint64_t)weight); \
  } while (0)

#define SENDING(Name)                                                                                       \
  int MPI_##Name(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {          \
    if (!dfrs_shared || to == MPI_PROC_NULL) return PMPI_##Name(data, count, type, to, tag, comm);          \
    uint64_t bytes = bytes_of(count, type);                                                                 \
    int result;                                                                                             \
    TIMED(bytes, PMPI_##Name(data, count, type, to, tag, comm));                                            \
    if (result == MPI_SUCCESS) dfrs_message(SEND_SIDE, bytes);                                              \
    return result;                                                                                          \
  }
SENDING(Send)
SENDING(Ssend)
SENDING(Bsend)
SENDING(Rsend)

int MPI_Recv(void *data, int count, MPI_Datatype type, int from_rank, int tag, MPI_Comm comm, MPI_Status *status) {
  if (!dfrs_shared || from_rank == MPI_PROC_NULL) return PMPI_Recv(data, count, type, from_rank, tag, comm, status);
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  uint64_t bytes = bytes_of(count, type);
  int result;
  TIMED(bytes, PMPI_Recv(data, count, type, from_rank, tag, comm, mine));
  if (result == MPI_SUCCESS) dfrs_message(RECEIVE_SIDE, bytes_come(mine, bytes));
  return result;
}

int MPI_Sendrecv(const void *data, int count, MPI_Datatype type, int to, int tag, void *into, int room,
                 MPI_Datatype into_type, int from_rank, int from_tag, MPI_Comm comm, MPI_Status *status) {
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  if (!dfrs_shared)
    return PMPI_Sendrecv(data, count, type, to, tag, into, room, into_type, from_rank, from_tag, comm, status);
  uint64_t bytes = bytes_of(count, type);
  int result;
  TIMED(bytes, PMPI_Sendrecv(data, count, type, to, tag, into, room, into_type, from_rank, from_tag, comm, mine));
  if (result != MPI_SUCCESS) return result;
  if (to != MPI_PROC_NULL) dfrs_message(SEND_SIDE, bytes);
  if (from_rank != MPI_PROC_NULL) dfrs_message(RECEIVE_SIDE, bytes_come(mine, bytes_of(room, into_type)));
  return result;
}

int MPI_Sendrecv_replace(void *data, int count, MPI_Datatype type, int to, int tag, int from_rank, int from_tag,
                         MPI_Comm comm, MPI_Status *status) {
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  if (!dfrs_shared) return PMPI_Sendrecv_replace(data, count, type, to, tag, from_rank, from_tag, comm, status);
  uint64_t bytes = bytes_of(count, type);
  int result;
  TIMED(bytes, PMPI_Sendrecv_replace(data, count, type, to, tag, from_rank, from_tag, comm, mine));
  if (result != MPI_SUCCESS) return result;
  if (to != MPI_PROC_NULL) dfrs_message(SEND_SIDE, bytes);
  if (from_rank != MPI_PROC_NULL) dfrs_message(RECEIVE_SIDE, bytes_come(mine, bytes));
  return result;
}

/* ---- non-blocking messages ---- */

/* To post a short one takes less time than to take that time. */
#define POSTED(bytes, call)                              \
  do {                                                   \
    uint64_t from = dfrs_long(bytes) ? dfrs_ticks() : 0; \
    result = call;                                       \
    if (from) dfrs_in_mpi(dfrs_ticks() - from);          \
  } while (0)

static void posted(MPI_Request request, int side, uint64_t bytes, int partner) {
  if (partner == MPI_PROC_NULL || request == nothing) return;
  if (!dfrs_request(handle(request), side, bytes)) dfrs_completed(side, bytes, 0);
}

#define POSTING_SEND(Name)                                                                                         \
  int MPI_##Name(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) { \
    if (!dfrs_shared) return PMPI_##Name(data, count, type, to, tag, comm, request);                               \
    uint64_t bytes = bytes_of(count, type);                                                                        \
    int result;                                                                                                    \
    POSTED(bytes, PMPI_##Name(data, count, type, to, tag, comm, request));                                          \
    if (result == MPI_SUCCESS) posted(*request, SEND_SIDE, bytes, to);                                             \
    return result;                                                                                                 \
  }
POSTING_SEND(Isend)
POSTING_SEND(Issend)
POSTING_SEND(Ibsend)
POSTING_SEND(Irsend)

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from_rank, int tag, MPI_Comm comm, MPI_Request *request) {
  if (!dfrs_shared) return PMPI_Irecv(data, count, type, from_rank, tag, comm, request);
  uint64_t bytes = bytes_of(count, type);
  int result;
  POSTED(bytes, PMPI_Irecv(data, count, type, from_rank, tag, comm, request));
  if (result == MPI_SUCCESS) posted(*request, RECEIVE_SIDE, bytes, from_rank);
  return result;
}

static void completed(int side, uint64_t bytes, MPI_Status *status, uint64_t ticks) {
  dfrs_completed(side, side == RECEIVE_SIDE && status ? bytes_come(status, bytes) : bytes, ticks);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
  if (!dfrs_shared) return PMPI_Wait(request, status);
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  int side;
  uint64_t bytes;
  int known = *request != nothing && dfrs_take(handle(*request), &side, &bytes);
  uint64_t from = dfrs_ticks();
  int result = PMPI_Wait(request, mine);
  uint64_t ticks = dfrs_ticks() - from;
  dfrs_in_mpi(ticks);
  if (known && result == MPI_SUCCESS) completed(side, bytes, mine, ticks);
  return result;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
  if (!dfrs_shared) return PMPI_Test(request, flag, status);
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  MPI_Request asked = *request;
  int side;
  uint64_t bytes, from = dfrs_ticks();
  int result = PMPI_Test(request, flag, mine);
  uint64_t ticks = dfrs_ticks() - from;
  dfrs_in_mpi(ticks);
  if (result == MPI_SUCCESS && *flag && asked != nothing && dfrs_take(handle(asked), &side, &bytes))
    completed(side, bytes, mine, ticks);
  return result;
}

/* Calls about several requests: what they were, and statuses of our own where the program ignores them.
 *
 * What is known of a request is taken after the call. Where another thread got its handle meanwhile, that one's message
 * was counted when it was posted (see dfrs_request): numbers stay right.
 */
typedef struct {
  uint64_t asked_here[ON_STACK], *asked;
  MPI_Status statuses_here[ON_STACK], *statuses, *own;
} several_t;

static int several(several_t *s, int count, MPI_Request *requests, MPI_Status *statuses, int ignored) {
  s->asked = s->asked_here;
  s->own = NULL;
  s->statuses = ignored ? s->statuses_here : statuses;
  if (count > ON_STACK) {
    s->asked = malloc((size_t)count * sizeof *s->asked);
    if (ignored) s->statuses = s->own = malloc((size_t)count * sizeof(MPI_Status));
    if (!s->asked || !s->statuses) {
      free(s->asked);
      free(s->own);
      return 0;
    }
  }
  for (int k = 0; k < count; k++) s->asked[k] = requests[k] == nothing ? 0 : handle(requests[k]);
  return 1;
}

static void done(several_t *s) {
  if (s->asked != s->asked_here) free(s->asked);
  free(s->own);
}

/* These of them are complete (`which` NULL: all): the time is divided equally among those that are known. */
static void several_completed(several_t *s, int count, const int *which, uint64_t ticks) {
  uint64_t known = 0, bytes;
  int side;
  for (int k = 0; k < count; k++) {
    uint64_t asked = s->asked[which ? which[k] : k];
    if (!asked || !dfrs_take(asked, &side, &bytes)) continue;
    if (side == RECEIVE_SIDE) bytes = bytes_come(&s->statuses[k], bytes);
    if (!which)
      s->asked[known] = bytes << 1 | (uint64_t)side;
    else
      dfrs_completed(side, bytes, ticks / (uint64_t)count);
    known++;
  }
  for (uint64_t k = 0; !which && k < known; k++)
    dfrs_completed((int)(s->asked[k] & 1), s->asked[k] >> 1, ticks / known);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses) {
  several_t s;
  if (!dfrs_shared || !several(&s, count, requests, statuses, statuses == MPI_STATUSES_IGNORE))
    return PMPI_Waitall(count, requests, statuses);
  uint64_t from = dfrs_ticks();
  int result = PMPI_Waitall(count, requests, s.statuses);
  uint64_t ticks = dfrs_ticks() - from;
  dfrs_in_mpi(ticks);
  if (result == MPI_SUCCESS) several_completed(&s, count, NULL, ticks);
  done(&s);
  return result;
}

int MPI_Testall(int count, MPI_Request *requests, int *flag, MPI_Status *statuses) {
  several_t s;
  if (!dfrs_shared || !several(&s, count, requests, statuses, statuses == MPI_STATUSES_IGNORE))
    return PMPI_Testall(count, requests, flag, statuses);
  uint64_t from = dfrs_ticks();
  int result = PMPI_Testall(count, requests, flag, s.statuses);
  uint64_t ticks = dfrs_ticks() - from;
  dfrs_in_mpi(ticks);
  if (result == MPI_SUCCESS && *flag) several_completed(&s, count, NULL, ticks);
  done(&s);
  return result;
}

int MPI_Waitany(int count, MPI_Request *requests, int *index, MPI_Status *status) {
  several_t s;
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  if (!dfrs_shared || !several(&s, count, requests, mine, 0)) return PMPI_Waitany(count, requests, index, status);
  uint64_t from = dfrs_ticks();
  int result = PMPI_Waitany(count, requests, index, mine);
  uint64_t ticks = dfrs_ticks() - from;
  dfrs_in_mpi(ticks);
  if (result == MPI_SUCCESS && *index != MPI_UNDEFINED) several_completed(&s, 1, index, ticks);
  done(&s);
  return result;
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status) {
  several_t s;
  MPI_Status own, *mine = status == MPI_STATUS_IGNORE ? &own : status;
  if (!dfrs_shared || !several(&s, count, requests, mine, 0)) return PMPI_Testany(count, requests, index, flag, status);
  uint64_t from = dfrs_ticks();
  int result = PMPI_Testany(count, requests, index, flag, mine);
  uint64_t ticks = dfrs_ticks() - from;
  dfrs_in_mpi(ticks);
  if (result == MPI_SUCCESS && *flag && *index != MPI_UNDEFINED) several_completed(&s, 1, index, ticks);
  done(&s);
  return result;
}

#define SOME(Name)                                                                                               \
  int MPI_##Name(int count, MPI_Request *requests, int *complete, int *indices, MPI_Status *statuses) {          \
    several_t s;                                                                                                 \
    if (!dfrs_shared || !several(&s, count, requests, statuses, statuses == MPI_STATUSES_IGNORE))                \
      return PMPI_##Name(count, requests, complete, indices, statuses);                                          \
    uint64_t from = dfrs_ticks();                                                                                \
    int result = PMPI_##Name(count, requests, complete, indices, s.statuses);                                    \
    uint64_t ticks = dfrs_ticks() - from;                                                                        \
    dfrs_in_mpi(ticks);                                                                                          \
    if (result == MPI_SUCCESS && *complete != MPI_UNDEFINED) several_completed(&s, *complete, indices, ticks);   \
    done(&s);                                                                                                    \
    return result;                                                                                               \
  }
SOME(Waitsome)
SOME(Testsome)

int MPI_Request_free(MPI_Request *request) {
  int side;
  uint64_t bytes;
  /* Nobody waits for it any more: it counts, with no time. */
  if (dfrs_shared && *request != nothing && dfrs_take(handle(*request), &side, &bytes)) dfrs_completed(side, bytes, 0);
  return PMPI_Request_free(request);
}

/* ---- collectives: what they are made of is worked out by the reader ---- */

#define COLLECTIVE(kind, bytes, call)                                                                    \
  do {                                                                                                   \
    uint64_t from = dfrs_ticks();                                                                        \
    int result = call;                                                                                   \
    if (result == MPI_SUCCESS) dfrs_call(kind, bytes, processes_of(comm), dfrs_ticks() - from);          \
    return result;                                                                                       \
  } while (0)

int MPI_Alltoall(const void *data, int count, MPI_Datatype type, void *into, int room, MPI_Datatype into_type,
                 MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Alltoall(data, count, type, into, room, into_type, comm);
  /* Of the receiving side: the sending one means nothing where data are exchanged in place. */
  COLLECTIVE(ALLTOALL, bytes_of(room, into_type), PMPI_Alltoall(data, count, type, into, room, into_type, comm));
}

int MPI_Allgather(const void *data, int count, MPI_Datatype type, void *into, int room, MPI_Datatype into_type,
                  MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Allgather(data, count, type, into, room, into_type, comm);
  COLLECTIVE(ALLGATHER, bytes_of(room, into_type), PMPI_Allgather(data, count, type, into, room, into_type, comm));
}

int MPI_Alltoallv(const void *data, const int *counts, const int *at, MPI_Datatype type, void *into, const int *rooms,
                  const int *into_at, MPI_Datatype into_type, MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Alltoallv(data, counts, at, type, into, rooms, into_at, into_type, comm);
  uint64_t together = 0;
  int processes = processes_of(comm);
  for (int k = 0; k < processes; k++) together += bytes_of(rooms[k], into_type);
  COLLECTIVE(ALLTOALL, together / (uint64_t)(processes > 0 ? processes : 1),
             PMPI_Alltoallv(data, counts, at, type, into, rooms, into_at, into_type, comm));
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Bcast(data, count, type, root, comm);
  COLLECTIVE(BCAST, bytes_of(count, type), PMPI_Bcast(data, count, type, root, comm));
}

int MPI_Reduce(const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Reduce(data, into, count, type, op, root, comm);
  COLLECTIVE(REDUCE, bytes_of(count, type), PMPI_Reduce(data, into, count, type, op, root, comm));
}

int MPI_Allreduce(const void *data, void *into, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Allreduce(data, into, count, type, op, comm);
  COLLECTIVE(ALLREDUCE, bytes_of(count, type), PMPI_Allreduce(data, into, count, type, op, comm));
}

int MPI_Barrier(MPI_Comm comm) {
  if (!dfrs_shared) return PMPI_Barrier(comm);
  COLLECTIVE(BARRIER, 0, PMPI_Barrier(comm));
}
