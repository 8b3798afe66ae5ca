/* A link between two network namespaces with a delay: what netem does, for kernels that are built without it.
 *
 * Usage: relay NAMESPACE_A NAMESPACE_B INTERFACE DELAY_US. Makes a TUN interface in each namespace, prints "ready", and
 * carries packets from each to the other after the delay, until it is killed or its parent ends. The interfaces end with
 * it. The rate is limited by `tc tbf` on the interfaces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PACKETS 4096
#define ROOM 2048

typedef struct {
  int from, to;
  unsigned head, tail;
  long long due_ns[PACKETS];
  int length[PACKETS];
  char data[PACKETS][ROOM];
} way_t;

static way_t ways[2];

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static int interface(const char *namespace, const char *name) {
  char path[300];
  snprintf(path, sizeof path, "/run/netns/%s", namespace);
  int place = open(path, O_RDONLY | O_CLOEXEC);
  if (place < 0 || setns(place, CLONE_NEWNET)) return -1;
  close(place);
  int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  struct ifreq request;
  memset(&request, 0, sizeof request);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return tun < 0 || ioctl(tun, TUNSETIFF, &request) ? -1 : tun;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  long long delay_ns = atoll(argv[4]) * 1000;
  int a = interface(argv[1], argv[3]), b = interface(argv[2], argv[3]);
  if (a < 0 || b < 0) {
    fprintf(stderr, "relay: %s\n", strerror(errno));
    return 1;
  }
  /* What it does is short, and being late would be taken for the link's delay. */
  struct sched_param priority = {.sched_priority = 10};
  if (sched_setscheduler(0, SCHED_FIFO, &priority)) fprintf(stderr, "relay: without priority\n");
  ways[0].from = ways[1].to = a;
  ways[0].to = ways[1].from = b;
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    long long next = -1, now = now_ns();
    for (int k = 0; k < 2; k++) {
      way_t *way = &ways[k];
      for (; way->head != way->tail && way->due_ns[way->head % PACKETS] <= now; way->head++)
        if (write(way->to, way->data[way->head % PACKETS], (size_t)way->length[way->head % PACKETS]) < 0 && errno == EBADF)
          return 1;
      if (way->head != way->tail && (next < 0 || way->due_ns[way->head % PACKETS] < next))
        next = way->due_ns[way->head % PACKETS];
    }
    struct pollfd files[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    long long left = next < 0 ? 1000000000ll : next > now ? next - now : 0;
    struct timespec wait = {left / 1000000000ll, left % 1000000000ll};
    if (ppoll(files, 2, &wait, NULL) < 0 && errno != EINTR) return 1;
    for (int k = 0; k < 2; k++) {
      way_t *way = &ways[k];
      while (way->tail - way->head < PACKETS) {
        ssize_t length = read(way->from, way->data[way->tail % PACKETS], ROOM);
        if (length <= 0) break;
        way->length[way->tail % PACKETS] = (int)length;
        way->due_ns[way->tail % PACKETS] = now_ns() + delay_ns;
        way->tail++;
      }
    }
  }
}
