"""Work that waits as long as it computes, as programs that read and write do: half_idle.py SECONDS."""

import sys
import time

seconds = float(sys.argv[1])
while time.process_time() < seconds:
    before = time.process_time()
    while time.process_time() < before + 0.05:
        sum(range(1_000))
    time.sleep(0.05)
print(f"{time.process_time():.1f} s of CPU")
