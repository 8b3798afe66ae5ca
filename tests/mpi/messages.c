/* As many messages as it can: messages blocking|nonblocking NUMBER BYTES WORK. Two ranks send to and fro, and do WORK
 * multiplications (about a nanosecond each) a message, none by default. They do so in batches of BATCH; rank 0 prints the seconds in all, and those of a message in a quiet moment: in the batch that only
 * a tenth of the batches was faster than. Where more programs than CPUs are running, most batches are interrupted. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 250

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void work(long amount) {
  volatile unsigned long value = 3;
  unsigned long product = value;
  for (long k = 0; k < amount; k++) product = product * product + 1;
  value = product;
}

static void blocking(char *data, int bytes, int rank) {
  if (rank == 0) {
    MPI_Send(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(data, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(data, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

static void nonblocking(char *data, int bytes, int rank) {
  MPI_Request requests[2];
  MPI_Irecv(data, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(data + bytes, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, number = argc > 2 ? atoi(argv[2]) : 100000, bytes = argc > 3 ? atoi(argv[3]) : 1024;
  long amount = argc > 4 ? atol(argv[4]) : 0;
  int wait = argc > 1 && !strcmp(argv[1], "nonblocking"), batches = number / 2 / BATCH + 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char *data = calloc(2, (size_t)bytes + 1);
  double *took = calloc((size_t)batches, sizeof *took), all = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int batch = 0; batch < batches; batch++) {
    double from = MPI_Wtime();
    for (int k = 0; k < BATCH; k++, work(2 * amount)) wait ? nonblocking(data, bytes, rank) : blocking(data, bytes, rank);
    took[batch] = MPI_Wtime() - from;
    all += took[batch];
  }
  qsort(took, (size_t)batches, sizeof *took, by_size);
  if (rank == 0) printf("%.9f %.12f\n", all, took[batches / 10] / (2 * BATCH));
  MPI_Finalize();
  return 0;
}
