"""Compile the inner loops that most commands use, before tests start many commands at once that would each do it."""

import subprocess
import sys
from tempfile import TemporaryDirectory

TRACE = ("generate", "lublin", "--jobs", "60", "--nodes", "8", "--seed", "7", "-o", "t.swf")
SERVICES = ("generate", "services", "--nodes", "8", "--services", "20", "--slack", "0.3", "--seed", "1", "-o", "s.json")
POLICIES = (
    "FCFS", "EASY", "CONSERVATIVE", "EQUIPARTITION", "GreedyPM*/per/OPT=MIN/MVT=600", "GreedyPM*/due/OPT=MIN/MVT=600",
    "MCB*/per/OPT=AVG", "/stretch-per/OPT=MAX", "LOS-DE", "Hybrid-LOS-E",
)  # fmt: skip
ALGORITHMS = "VP_CPSUM,GREEDY,BEST,MCB8,SGB,GA,RRNZ"
CHAINS = (
    (TRACE, ("simulate", "t.swf", *(word for name in POLICIES for word in ("-p", name)), "-o", "runs")),
    (SERVICES, ("allocate", "s.json", "-a", ALGORITHMS), ("farm", "simulate", "--experiment", "3")),
)
"""Beside each other."""


def main() -> None:
    with TemporaryDirectory() as folder:
        shells = []
        for chain in CHAINS:
            words = [[sys.executable, "-m", "dfrs.cli.main", *command] for command in chain]
            code = f"import subprocess; [subprocess.run(words, check=True) for words in {words!r}]"
            shells.append(subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL))  # fmt: skip
        # What does not work is for the tests to say.
        for shell in shells:
            shell.wait()


if __name__ == "__main__":
    main()
