"""Work that could use a whole CPU, until it has used so many seconds of one: crunch.py SECONDS."""

import sys
import time

seconds = float(sys.argv[1])
steps = 0
while time.process_time() < seconds:
    sum(number * number for number in range(10_000))
    steps += 1
print(f"{steps} steps in {time.process_time():.1f} s of CPU")
