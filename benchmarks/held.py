"""A program with real memory: it holds so many MiB, touches all of them as it computes, and ends after its CPU time.

Arguments: MiB, seconds of CPU time.
"""

import sys
import time

PAGE = 4096
EVERY_S = 0.25
"""Of its CPU time: so often it touches all of its memory."""


def main() -> None:
    size, work_s = int(sys.argv[1]) << 20, float(sys.argv[2])
    held = bytearray()
    block = bytes(range(256)) * PAGE
    while len(held) < size:
        held += block
    touched_s = 0.0
    while (used_s := time.process_time()) < work_s:
        if used_s >= touched_s:
            touched_s = used_s + EVERY_S
            held[::PAGE] = bytes(len(held[::PAGE]))
        sum(range(10_000))


if __name__ == "__main__":
    main()
