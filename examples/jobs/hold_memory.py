"""Work that needs memory more than CPU: hold_memory.py MEBIBYTES SECONDS; it takes longer where it has to wait."""

import sys
import time

held = bytearray(int(sys.argv[1]) << 20)
for _ in range(round(float(sys.argv[2]) / 0.5)):
    for page in range(0, len(held), 4096):
        held[page] = (held[page] + 1) % 256
    time.sleep(0.5)
print(f"held {len(held) >> 20} MiB")
