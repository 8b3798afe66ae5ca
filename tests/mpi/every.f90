! Every call that the profiler knows, from Fortran, with what is special there. Rank 0 prints "right" if all data and
! statuses came as they should. Two ranks.
program every
  implicit none
  include 'mpif.h'
  integer, parameter :: many = 100
  integer :: rank, size_, other, error, index, number, k, request, requests(many), indices(many), left
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, many)
  integer :: data(many), into(many), whole(2), counts(2), places(2)
  logical :: flag
  integer :: wrong, all_wrong, provided

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size_, error)
  other = 1 - rank
  wrong = 0
  data = (/ (1000 * rank + k, k = 1, many) /)

  ! Blocking: 10 numbers there, of 20 that there is room for; the status says how many.
  if (rank == 0) then
    call MPI_Send(data, 10, MPI_INTEGER, other, 1, MPI_COMM_WORLD, error)
    call MPI_Ssend(data, 11, MPI_INTEGER, other, 2, MPI_COMM_WORLD, error)
  else
    call MPI_Recv(into, 20, MPI_INTEGER, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, status, error)
    call MPI_Get_count(status, MPI_INTEGER, number, error)
    if (number /= 10 .or. status(MPI_SOURCE) /= 0 .or. into(10) /= 10) wrong = wrong + 1
    call MPI_Recv(into, 11, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    if (into(11) /= 11) wrong = wrong + 1
  end if
  call MPI_Sendrecv(data, 12, MPI_INTEGER, other, 3, into, 12, MPI_INTEGER, other, 3, MPI_COMM_WORLD, status, error)
  if (into(12) /= 1000 * other + 12 .or. status(MPI_TAG) /= 3) wrong = wrong + 1

  ! Non-blocking, each way of waiting.
  call MPI_Irecv(into, 13, MPI_INTEGER, other, 4, MPI_COMM_WORLD, request, error)
  call MPI_Send(data, 13, MPI_INTEGER, other, 4, MPI_COMM_WORLD, error)
  call MPI_Wait(request, status, error)
  if (request /= MPI_REQUEST_NULL .or. into(13) /= 1000 * other + 13) wrong = wrong + 1
  do k = 1, many
    if (mod(k, 2) == 0) then
      call MPI_Isend(data(k), 1, MPI_INTEGER, other, k, MPI_COMM_WORLD, requests(k), error)
    else
      call MPI_Irecv(into(k + 1), 1, MPI_INTEGER, other, k + 1, MPI_COMM_WORLD, requests(k), error)
    end if
  end do
  call MPI_Waitall(many, requests, statuses, error)
  if (any(requests /= MPI_REQUEST_NULL) .or. statuses(MPI_TAG, 99) /= 100) wrong = wrong + 1
  do k = 2, many, 2
    if (into(k) /= 1000 * other + k) wrong = wrong + 1
  end do
  call MPI_Irecv(into, 14, MPI_INTEGER, other, 5, MPI_COMM_WORLD, requests(1), error)
  call MPI_Isend(data, 14, MPI_INTEGER, other, 5, MPI_COMM_WORLD, requests(2), error)
  call MPI_Waitany(2, requests, index, MPI_STATUS_IGNORE, error)
  if (index < 1 .or. index > 2) wrong = wrong + 1
  if (requests(index) /= MPI_REQUEST_NULL) wrong = wrong + 1
  call MPI_Waitany(2, requests, index, status, error)
  call MPI_Waitany(2, requests, index, status, error)
  if (index /= MPI_UNDEFINED) wrong = wrong + 1
  call MPI_Irecv(into, 15, MPI_INTEGER, other, 6, MPI_COMM_WORLD, requests(1), error)
  call MPI_Isend(data, 15, MPI_INTEGER, other, 6, MPI_COMM_WORLD, requests(2), error)
  left = 2
  do while (left > 0)
    call MPI_Waitsome(2, requests, number, indices, MPI_STATUSES_IGNORE, error)
    if (minval(indices(1:number)) < 1 .or. maxval(indices(1:number)) > 2) wrong = wrong + 1
    left = left - number
  end do
  call MPI_Irecv(into, 16, MPI_INTEGER, other, 7, MPI_COMM_WORLD, request, error)
  call MPI_Send(data, 16, MPI_INTEGER, other, 7, MPI_COMM_WORLD, error)
  flag = .false.
  do while (.not. flag)
    call MPI_Test(request, flag, status, error)
  end do
  if (into(16) /= 1000 * other + 16 .or. request /= MPI_REQUEST_NULL) wrong = wrong + 1

  ! Collectives, also in place.
  data(1:17) = 5 + 5 * rank
  call MPI_Bcast(data, 17, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  if (data(17) /= 5) wrong = wrong + 1
  data(1:18) = rank + 1
  call MPI_Allreduce(MPI_IN_PLACE, data, 18, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (data(18) /= 3) wrong = wrong + 1
  call MPI_Reduce(data, into, 19, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD, error)
  data(1:2) = (/ 10 * rank, 10 * rank + 1 /)
  call MPI_Alltoall(data, 1, MPI_INTEGER, whole, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
  if (whole(1) /= rank .or. whole(2) /= 10 + rank) wrong = wrong + 1
  call MPI_Allgather(rank, 1, MPI_INTEGER, whole, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
  if (whole(1) /= 0 .or. whole(2) /= 1) wrong = wrong + 1
  counts = 1
  places = (/ 0, 1 /)
  call MPI_Alltoallv(data, counts, places, MPI_INTEGER, whole, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
  if (whole(2) /= 10 + rank) wrong = wrong + 1
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Reduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0 .and. all_wrong == 0) print '(a)', 'right'
  call MPI_Finalize(error)
end program every
