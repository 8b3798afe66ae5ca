/* Two ranks take steps together; rank 0 prints the seconds from MPI_Init to MPI_Finalize.
 *
 * Usage: steps latency|bandwidth|nonblocking|alltoall|allreduce STEPS PAUSE_US. A step is a pause, which stands for
 * work that the network does not change, and messages:
 *   latency      512 bytes there and back
 *   bandwidth    256 KB there and back
 *   nonblocking  48 KB each way at once, posted before the pause and waited for after it
 *   alltoall     64 KB to each
 *   allreduce    8 bytes
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LARGEST (256 * 1024)

static char out[2 * LARGEST], in[2 * LARGEST];

static void rest(long us) {
  struct timespec pause = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&pause, NULL);
}

static void both_ways(int rank, int bytes) {
  if (rank == 0) {
    MPI_Send(out, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(in, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(out, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, steps = argc > 2 ? atoi(argv[2]) : 100;
  long pause_us = argc > 3 ? atol(argv[3]) : 1000;
  const char *mode = argc > 1 ? argv[1] : "latency";
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double from = MPI_Wtime();
  for (int step = 0; step < steps; step++) {
    MPI_Request requests[2];
    if (!strcmp(mode, "nonblocking")) {
      MPI_Irecv(in, 49152, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
      MPI_Isend(out, 49152, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
    }
    rest(pause_us);
    if (!strcmp(mode, "nonblocking"))
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    else if (!strcmp(mode, "alltoall"))
      MPI_Alltoall(out, 65536, MPI_BYTE, in, 65536, MPI_BYTE, MPI_COMM_WORLD);
    else if (!strcmp(mode, "allreduce"))
      MPI_Allreduce(out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else
      both_ways(rank, strcmp(mode, "bandwidth") ? 512 : LARGEST);
  }
  if (rank == 0) printf("%.6f\n", MPI_Wtime() - from);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
