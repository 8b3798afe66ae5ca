"""Memory that was needed once goes back, though small blocks between the large ones stay."""

import platform
import subprocess
import sys

import pytest

LARGE = """
import sys
from pathlib import Path
from dfrs.live.allocator import give_memory_back

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / (1 << 20)

if sys.argv[1] == "yes":
    give_memory_back()
before, kept = resident_mib(), []
for _ in range(3):
    large = []
    for _ in range(500):
        large.append(bytearray(b"x" * (200 << 10)))
        kept.append(bytearray(1000))
    del large
print(resident_mib() - before)
"""


def grown_mib(called):
    ran = subprocess.run([sys.executable, "-c", LARGE, called], capture_output=True, text=True, check=True)
    return float(ran.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such parameters")
def test_what_large_blocks_needed_goes_back_to_the_system():
    assert grown_mib("no") > 40, "else this shows nothing"
    assert grown_mib("yes") < 20
