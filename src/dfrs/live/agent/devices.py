"""The GPUs of this host, as far as they can be counted without the libraries of their maker."""

import re
import shutil
import subprocess
from pathlib import Path

LIST_S = 10.0
_LISTED = re.compile(r"^GPU \d+:", re.MULTILINE)
_DEVICE = re.compile(r"nvidia\d+")


def count_gpus(devices: Path = Path("/dev")) -> int:
    """As many as `nvidia-smi -L` lists; without that program, as there are devices /dev/nvidia0 and so on."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return sum(_DEVICE.fullmatch(each.name) is not None for each in devices.iterdir())
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=LIST_S, check=True)
    except (OSError, subprocess.SubprocessError):
        # Its driver does not work: neither would the devices.
        return 0
    return len(_LISTED.findall(listed.stdout))
