/* Sends a random mix of messages, and writes what each rank did, by its own counting, to PREFIX.RANK:
 *   RANK sent|received|isent|ireceived BYTES NUMBER
 *   RANK alltoall|bcast|allreduce|barrier BYTES NUMBER
 * Usage: mix SEED ROUNDS PREFIX
 *
 * In each round all ranks draw the same numbers: kind, size, and shift, the distance of the partner in the ring.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST 200000
#define KINDS 8
#define DRAWN 40

static long done[KINDS + 4][DRAWN];
static int sizes[DRAWN];
static unsigned long state;

static unsigned draw(unsigned below) {
  state = state * 6364136223846793005ul + 1442695040888963407ul;
  return (unsigned)(state >> 33) % below;
}

enum { SENT, RECEIVED, ISENT, IRECEIVED, ALLTOALL, BCAST, ALLREDUCE, BARRIER, NAMES };
static const char *names[] = {"sent", "received", "isent", "ireceived", "alltoall", "bcast", "allreduce", "barrier"};

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size, rounds = argc > 2 ? atoi(argv[2]) : 500;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  state = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
  /* Doubles, so that sizes are multiples of 8 and every collective can have them; one is empty. */
  for (int k = 0; k < DRAWN; k++) sizes[k] = k == 0 ? 0 : 8 * (1 + (int)draw(k < 30 ? 200 : LARGEST / 8));
  for (int k = 0; k < DRAWN; k++)
    for (int before = 0; before < k; before++)
      if (sizes[before] == sizes[k]) sizes[k] += 8, before = -1;
  double *out = calloc((size_t)size * (LARGEST / 8 + 100), 8), *in = calloc((size_t)size * (LARGEST / 8 + 100), 8);
  double *more = calloc(LARGEST / 8 + 100, 8);
  char name[4096];
  snprintf(name, sizeof name, "%s.%d", argc > 3 ? argv[3] : "mix", rank);
  FILE *file = fopen(name, "w");
  if (!file) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int round = 0; round < rounds; round++) {
    int kind = (int)draw(10), which = (int)draw(DRAWN), count = sizes[which] / 8, shift = 1 + (int)draw((unsigned)(size > 1 ? size - 1 : 1));
    int to = (rank + shift) % size, from = (rank - shift + size) % size, given, test = (int)draw(3);
    MPI_Request requests[3];
    MPI_Status statuses[3];
    switch (kind) {
      case 0: /* blocking, longer room than what comes */
      case 1:
        if (size < 2) break;
        if (rank % 2 == 0 || size % 2) MPI_Irecv(in, count + 50, MPI_DOUBLE, from, round, MPI_COMM_WORLD, &requests[0]);
        if (rank % 2 == 0 || size % 2) {
          MPI_Send(out, count, MPI_DOUBLE, to, round, MPI_COMM_WORLD);
          MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
          done[ISENT + 1][which]++;
        } else if (shift % 2) {
          MPI_Recv(in, count + 50, MPI_DOUBLE, from, round, MPI_COMM_WORLD, test ? MPI_STATUS_IGNORE : statuses);
          MPI_Send(out, count, MPI_DOUBLE, to, round, MPI_COMM_WORLD);
          done[RECEIVED][which]++;
        } else {
          MPI_Sendrecv(out, count, MPI_DOUBLE, to, round, in, count + 50, MPI_DOUBLE, from, round, MPI_COMM_WORLD,
                       test ? MPI_STATUS_IGNORE : statuses);
          done[RECEIVED][which]++;
        }
        done[SENT][which]++;
        break;
      case 2: /* non-blocking, waited for together */
      case 3:
        MPI_Irecv(in, count + 7, MPI_DOUBLE, from, round, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, count, MPI_DOUBLE, to, round, MPI_COMM_WORLD, &requests[1]);
        requests[2] = MPI_REQUEST_NULL;
        MPI_Waitall(3, requests, test ? MPI_STATUSES_IGNORE : statuses);
        done[ISENT][which]++, done[IRECEIVED][which]++;
        break;
      case 4: /* waited for one by one, in any order */
        MPI_Irecv(in, count, MPI_DOUBLE, from, 2 * round, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(more, 1, MPI_DOUBLE, from, 2 * round + 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Send(out, count, MPI_DOUBLE, to, 2 * round, MPI_COMM_WORLD);
        MPI_Isend(out, 0, MPI_DOUBLE, to, 2 * round + 1, MPI_COMM_WORLD, &requests[2]);
        if (test == 0) {
          for (int k = 0; k < 3; k++) MPI_Waitany(3, requests, &given, MPI_STATUS_IGNORE);
        } else if (test == 1) {
          for (int left = 3, indices[3]; left > 0; left -= given)
            MPI_Waitsome(3, requests, &given, indices, MPI_STATUSES_IGNORE);
        } else {
          for (int k = 0; k < 3; k++)
            do MPI_Test(&requests[k], &given, statuses);
            while (!given);
        }
        done[IRECEIVED][which]++, done[SENT][which]++, done[IRECEIVED][0]++, done[ISENT][0]++;
        break;
      case 5:
        MPI_Send(out, count, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD); /* goes nowhere */
        MPI_Isend(out, count, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        done[BARRIER][0]++;
        break;
      case 6:
        MPI_Alltoall(out, count, MPI_DOUBLE, in, count, MPI_DOUBLE, MPI_COMM_WORLD);
        done[ALLTOALL][which]++;
        break;
      case 7:
        MPI_Bcast(out, count, MPI_DOUBLE, shift % size, MPI_COMM_WORLD);
        done[BCAST][which]++;
        break;
      case 8:
        MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        done[ALLREDUCE][which]++;
        break;
      default: /* many requests open at once */
        for (int part = 0; part < 100; part++) {
          MPI_Request many[20];
          for (int k = 0; k < 10; k++) MPI_Irecv(in + 4 * k, 4, MPI_DOUBLE, from, k, MPI_COMM_WORLD, &many[k]);
          for (int k = 0; k < 10; k++) MPI_Isend(out, (k + part) % 5, MPI_DOUBLE, to, k, MPI_COMM_WORLD, &many[10 + k]);
          MPI_Waitall(20, many, MPI_STATUSES_IGNORE);
        }
        for (int k = 0; k < 5; k++)
          fprintf(file, "%d isent %d 200\n%d ireceived %d 200\n", rank, 8 * k, rank, 8 * k);
    }
  }
  for (int what = 0; what < NAMES; what++)
    for (int k = 0; k < DRAWN; k++)
      if (done[what][k]) fprintf(file, "%d %s %d %ld\n", rank, names[what], sizes[k], done[what][k]);
  fclose(file);
  MPI_Finalize();
  return 0;
}
