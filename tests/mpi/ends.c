/* Ends as it is told: ends status N (MPI_Finalize, then exit status N), ends kill (rank 0 kills itself),
 * ends wait (sends messages until somebody ends it; rank 0 prints "going"). */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size, token = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int k = 0; k < 10; k++) MPI_Bcast(&token, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (argc > 1 && !strcmp(argv[1], "kill") && rank == 0) {
    sleep(1); /* long enough to be seen */
    raise(SIGKILL);
  }
  if (argc > 1 && !strcmp(argv[1], "wait") && rank == 0) {
    printf("going\n");
    fflush(stdout);
  }
  while (argc > 1 && strcmp(argv[1], "status")) {
    MPI_Barrier(MPI_COMM_WORLD);
    usleep(1000);
  }
  MPI_Finalize();
  return argc > 2 ? atoi(argv[2]) : 0;
}
