/* Fortran's calls of MPI, from mpif.h and `use mpi`, as calls of C's: pmpi.c counts them there.
 *
 * Only for Open MPI, whose own ones go past PMPI's C names, and for names in lower case with one underscore, as gfortran
 * and most others make them. Those of `use mpi_f08` have other names and are not seen.
 */
#define _GNU_SOURCE
#include <mpi.h>

#ifdef OPEN_MPI
#include <dlfcn.h>
#include <stdlib.h>

#pragma weak PMPI_Comm_f2c
#pragma weak PMPI_Op_f2c
#pragma weak PMPI_Request_c2f
#pragma weak PMPI_Request_f2c
#pragma weak PMPI_Status_c2f
#pragma weak PMPI_Type_f2c

#define ON_STACK 64

typedef MPI_Fint fint;

/* Fortran names what is special by the addresses of these common blocks. */
static const void *bottom, *in_place, *no_status, *no_statuses;

static void find_blocks(void) {
  bottom = dlsym(RTLD_DEFAULT, "mpi_fortran_bottom_");
  in_place = dlsym(RTLD_DEFAULT, "mpi_fortran_in_place_");
  no_status = dlsym(RTLD_DEFAULT, "mpi_fortran_status_ignore_");
  no_statuses = dlsym(RTLD_DEFAULT, "mpi_fortran_statuses_ignore_");
}

static inline void *at(void *data) {
  if (data && data == bottom) return MPI_BOTTOM;
  if (data && data == in_place) return MPI_IN_PLACE;
  return data;
}

#define TYPE(type) PMPI_Type_f2c(*(type))
#define COMM(comm) PMPI_Comm_f2c(*(comm))
#define STATUS_WORDS (sizeof(MPI_Status) / sizeof(fint))

static void give(int result, const MPI_Status *status, fint *out) {
  if (result == MPI_SUCCESS && out != no_status) PMPI_Status_c2f(status, out);
}

void mpi_init_(fint *error) {
  find_blocks();
  *error = MPI_Init(NULL, NULL);
}

void mpi_init_thread_(fint *required, fint *provided, fint *error) {
  int got = MPI_THREAD_SINGLE;
  find_blocks();
  *error = MPI_Init_thread(NULL, NULL, *required, &got);
  *provided = got;
}

void mpi_finalize_(fint *error) { *error = MPI_Finalize(); }

#define SENDING(name, Name)                                                                                \
  void mpi_##name##_(void *data, fint *count, fint *type, fint *to, fint *tag, fint *comm, fint *error) {   \
    *error = MPI_##Name(at(data), *count, TYPE(type), *to, *tag, COMM(comm));                              \
  }
SENDING(send, Send)
SENDING(ssend, Ssend)
SENDING(bsend, Bsend)
SENDING(rsend, Rsend)

void mpi_recv_(void *data, fint *count, fint *type, fint *from, fint *tag, fint *comm, fint *status, fint *error) {
  MPI_Status own;
  *error = MPI_Recv(at(data), *count, TYPE(type), *from, *tag, COMM(comm), &own);
  give(*error, &own, status);
}

void mpi_sendrecv_(void *data, fint *count, fint *type, fint *to, fint *tag, void *into, fint *room, fint *into_type,
                   fint *from, fint *from_tag, fint *comm, fint *status, fint *error) {
  MPI_Status own;
  *error = MPI_Sendrecv(at(data), *count, TYPE(type), *to, *tag, at(into), *room, TYPE(into_type), *from, *from_tag,
                        COMM(comm), &own);
  give(*error, &own, status);
}

void mpi_sendrecv_replace_(void *data, fint *count, fint *type, fint *to, fint *tag, fint *from, fint *from_tag, fint *comm,
                           fint *status, fint *error) {
  MPI_Status own;
  *error = MPI_Sendrecv_replace(at(data), *count, TYPE(type), *to, *tag, *from, *from_tag, COMM(comm), &own);
  give(*error, &own, status);
}

#define POSTING(name, Name)                                                                                   \
  void mpi_##name##_(void *data, fint *count, fint *type, fint *partner, fint *tag, fint *comm, fint *request, \
                     fint *error) {                                                                           \
    MPI_Request own;                                                                                          \
    *error = MPI_##Name(at(data), *count, TYPE(type), *partner, *tag, COMM(comm), &own);                       \
    if (*error == MPI_SUCCESS) *request = PMPI_Request_c2f(own);                                              \
  }
POSTING(isend, Isend)
POSTING(issend, Issend)
POSTING(ibsend, Ibsend)
POSTING(irsend, Irsend)
POSTING(irecv, Irecv)

void mpi_wait_(fint *request, fint *status, fint *error) {
  MPI_Request own = PMPI_Request_f2c(*request);
  MPI_Status seen;
  *error = MPI_Wait(&own, &seen);
  if (*error == MPI_SUCCESS) *request = PMPI_Request_c2f(own);
  give(*error, &seen, status);
}

void mpi_test_(fint *request, fint *flag, fint *status, fint *error) {
  MPI_Request own = PMPI_Request_f2c(*request);
  MPI_Status seen;
  int is_done = 0;
  *error = MPI_Test(&own, &is_done, &seen);
  *flag = is_done;
  if (*error == MPI_SUCCESS && is_done) *request = PMPI_Request_c2f(own);
  if (is_done) give(*error, &seen, status);
}

void mpi_request_free_(fint *request, fint *error) {
  MPI_Request own = PMPI_Request_f2c(*request);
  *error = MPI_Request_free(&own);
  if (*error == MPI_SUCCESS) *request = PMPI_Request_c2f(own);
}

/* C's requests and statuses for Fortran's. */
typedef struct {
  MPI_Request requests_here[ON_STACK], *requests;
  MPI_Status statuses_here[ON_STACK], *statuses;
} several_t;

static int begin(several_t *s, int count, const fint *requests) {
  s->requests = s->requests_here;
  s->statuses = s->statuses_here;
  if (count > ON_STACK) {
    s->requests = malloc((size_t)count * sizeof *s->requests);
    s->statuses = malloc((size_t)count * sizeof *s->statuses);
    if (!s->requests || !s->statuses) {
      free(s->requests);
      free(s->statuses);
      return 0;
    }
  }
  for (int k = 0; k < count; k++) s->requests[k] = PMPI_Request_f2c(requests[k]);
  return 1;
}

/* Requests that are complete are null now; `statuses` NULL: nobody asks for them. */
static void end(several_t *s, int count, fint *requests, int given, fint *statuses) {
  for (int k = 0; k < count; k++) requests[k] = PMPI_Request_c2f(s->requests[k]);
  for (int k = 0; k < given && statuses && statuses != no_statuses; k++)
    PMPI_Status_c2f(&s->statuses[k], statuses + (size_t)k * STATUS_WORDS);
  if (s->requests != s->requests_here) {
    free(s->requests);
    free(s->statuses);
  }
}

void mpi_waitall_(fint *count, fint *requests, fint *statuses, fint *error) {
  several_t s;
  if (!begin(&s, *count, requests)) {
    *error = MPI_ERR_NO_MEM;
    return;
  }
  *error = MPI_Waitall(*count, s.requests, s.statuses);
  end(&s, *count, requests, *count, statuses);
}

void mpi_testall_(fint *count, fint *requests, fint *flag, fint *statuses, fint *error) {
  several_t s;
  int is_done = 0;
  if (!begin(&s, *count, requests)) {
    *error = MPI_ERR_NO_MEM;
    return;
  }
  *error = MPI_Testall(*count, s.requests, &is_done, s.statuses);
  *flag = is_done;
  end(&s, *count, requests, is_done ? *count : 0, statuses);
}

void mpi_waitany_(fint *count, fint *requests, fint *index, fint *status, fint *error) {
  several_t s;
  int which = MPI_UNDEFINED;
  if (!begin(&s, *count, requests)) {
    *error = MPI_ERR_NO_MEM;
    return;
  }
  *error = MPI_Waitany(*count, s.requests, &which, &s.statuses[0]);
  give(*error, &s.statuses[0], status);
  end(&s, *count, requests, 0, NULL);
  *index = which == MPI_UNDEFINED ? which : which + 1;
}

void mpi_testany_(fint *count, fint *requests, fint *index, fint *flag, fint *status, fint *error) {
  several_t s;
  int which = MPI_UNDEFINED, is_done = 0;
  if (!begin(&s, *count, requests)) {
    *error = MPI_ERR_NO_MEM;
    return;
  }
  *error = MPI_Testany(*count, s.requests, &which, &is_done, &s.statuses[0]);
  *flag = is_done;
  if (is_done) give(*error, &s.statuses[0], status);
  end(&s, *count, requests, 0, NULL);
  *index = which == MPI_UNDEFINED ? which : which + 1;
}

#define SOME(name, Name)                                                                                \
  void mpi_##name##_(fint *count, fint *requests, fint *complete, fint *indices, fint *statuses, fint *error) { \
    several_t s;                                                                                        \
    int number = MPI_UNDEFINED;                                                                         \
    if (!begin(&s, *count, requests)) {                                                                 \
      *error = MPI_ERR_NO_MEM;                                                                          \
      return;                                                                                           \
    }                                                                                                   \
    *error = MPI_##Name(*count, s.requests, &number, indices, s.statuses);                              \
    *complete = number;                                                                                 \
    if (number == MPI_UNDEFINED) number = 0;                                                            \
    for (int k = 0; k < number; k++) indices[k]++;                                                      \
    end(&s, *count, requests, number, statuses);                                                        \
  }
SOME(waitsome, Waitsome)
SOME(testsome, Testsome)

void mpi_alltoall_(void *data, fint *count, fint *type, void *into, fint *room, fint *into_type, fint *comm, fint *error) {
  *error = MPI_Alltoall(at(data), *count, TYPE(type), at(into), *room, TYPE(into_type), COMM(comm));
}

void mpi_allgather_(void *data, fint *count, fint *type, void *into, fint *room, fint *into_type, fint *comm, fint *error) {
  *error = MPI_Allgather(at(data), *count, TYPE(type), at(into), *room, TYPE(into_type), COMM(comm));
}

void mpi_alltoallv_(void *data, fint *counts, fint *from, fint *type, void *into, fint *rooms, fint *into_from,
                    fint *into_type, fint *comm, fint *error) {
  *error = MPI_Alltoallv(at(data), counts, from, TYPE(type), at(into), rooms, into_from, TYPE(into_type), COMM(comm));
}

void mpi_bcast_(void *data, fint *count, fint *type, fint *root, fint *comm, fint *error) {
  *error = MPI_Bcast(at(data), *count, TYPE(type), *root, COMM(comm));
}

void mpi_reduce_(void *data, void *into, fint *count, fint *type, fint *op, fint *root, fint *comm, fint *error) {
  *error = MPI_Reduce(at(data), at(into), *count, TYPE(type), PMPI_Op_f2c(*op), *root, COMM(comm));
}

void mpi_allreduce_(void *data, void *into, fint *count, fint *type, fint *op, fint *comm, fint *error) {
  *error = MPI_Allreduce(at(data), at(into), *count, TYPE(type), PMPI_Op_f2c(*op), COMM(comm));
}

void mpi_barrier_(fint *comm, fint *error) { *error = MPI_Barrier(COMM(comm)); }
#endif
