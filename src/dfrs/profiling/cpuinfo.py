"""Which kind of CPU this is. Agents know it, which load nothing that computes."""

from pathlib import Path


def cpuinfo() -> str:
    """What the kernel says about the CPUs; empty where it says nothing."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""


def cpu_fields(text: str) -> dict[str, str]:
    """The fields of the first CPU in /proc/cpuinfo, by name."""
    lines = text.split("\n\n", 1)[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
