/* Latency by message size, as OSU's multi-pair latency test: rank k answers to rank k + pairs ([Atif2011] 7.3.1).
 *
 * Usage: mpirun -n 2*PAIRS pingpong LARGEST_BYTES SECONDS_A_SIZE. Prints a line "BYTES SECONDS" for 1, 2, 4, ... bytes:
 * half of a round trip, the median over rounds (one that the operating system disturbed must not count), the mean over
 * pairs. The first round of a size is not counted.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_ROUNDS 3
#define MOST_ROUNDS 1000

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double round_trip(char *data, int bytes, int partner, int first) {
  double from = MPI_Wtime();
  if (first) {
    MPI_Send(data, bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
    MPI_Recv(data, bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(data, bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(data, bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
  }
  return MPI_Wtime() - from;
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  long largest = argc > 1 ? atol(argv[1]) : 4194304;
  double seconds = argc > 2 ? atof(argv[2]) : 0.3;
  int pairs = size / 2, first = rank < pairs, partner = first ? rank + pairs : rank - pairs;
  char *data = calloc(1, (size_t)largest + 1);
  double *took = malloc(MOST_ROUNDS * sizeof *took);
  if (size % 2 || largest < 1 || largest > 1 << 30 || !data || !took) {
    if (rank == 0) fprintf(stderr, "pingpong: an even number of processes, sizes of 1 byte to 1 GiB\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  memset(data, 1, (size_t)largest);
  for (int k = 0; k < 20; k++) round_trip(data, 1, partner, first);
  for (long bytes = 1; bytes <= largest; bytes *= 2) {
    double once = round_trip(data, (int)bytes, partner, first), slowest;
    MPI_Allreduce(&once, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int rounds = slowest > 0 ? (int)(seconds / slowest < MOST_ROUNDS ? seconds / slowest : MOST_ROUNDS) : MOST_ROUNDS;
    if (rounds < LEAST_ROUNDS) rounds = LEAST_ROUNDS;
    for (int k = 0; k < rounds; k++) took[k] = round_trip(data, (int)bytes, partner, first);
    qsort(took, (size_t)rounds, sizeof *took, by_size);
    double half = first ? (took[(rounds - 1) / 2] + took[rounds / 2]) / 4 : 0, all = 0;
    MPI_Reduce(&half, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      printf("%ld %.9e\n", bytes, all / pairs);
      fflush(stdout);
    }
  }
  MPI_Finalize();
  return 0;
}
