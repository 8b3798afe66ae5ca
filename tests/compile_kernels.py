"""Compile the inner loops that most commands use, before tests start many commands at once that would each do it."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TRACE = ("generate", "lublin", "--jobs", "60", "--nodes", "8", "--seed", "7", "-o", "t.swf")
SERVICES = ("generate", "services", "--nodes", "8", "--services", "20", "--slack", "0.3", "--seed", "1", "-o", "s.json")
FRACTIONAL = (
    "FCFS",
    "GreedyPM*/per/OPT=MIN/MVT=600",
    "GreedyPM*/per/OPT=MIN/MVT=600/REBALANCE",
    "GreedyPM*/due/OPT=MIN/MVT=600",
    "MCB*/per/OPT=AVG",
    "/stretch-per/OPT=MAX",
    "/stretch-per/OPT=AVG",
)
RUNNING = (
    "generate",
    "machines",
    "--nodes",
    "4",
    "--machines",
    "40",
    "--seed",
    "1",
    "-o",
    "m.json",
    "--present",
    "now.json",
)
ADAPTED = ("allocate", "m.json", "-a", "ADAPT", "--from", "now.json", "--budget-moves", "2")
BATCH = ("EASY", "CONSERVATIVE", "EQUIPARTITION", "LOS-DE", "Hybrid-LOS-E")
ALGORITHMS = "VP_CPSUM,GREEDY,BEST,MCB8,SGB,GA,RRNZ"


DRAINED = "time_s,node,condition\n0,0,drain\n1000000,0,up\n"
"""With a closed node runs are not plain: they take the kernels one by one, not those with a loop around them."""


def simulate(policies: tuple[str, ...], *options: str) -> tuple[str, ...]:
    chosen = (word for name in policies for word in ("-p", name))
    return ("simulate", "t.swf", *chosen, "-o", f"runs-{policies[0]}{len(options)}", *options)


LIVE = "from dfrs.cli.live.serve import *; decide_once([POLICY], DISCOVERY)"
"""What a controller decides with by default."""
CHAINS = (
    (("-c", LIVE), TRACE, simulate(FRACTIONAL), simulate(FRACTIONAL, "--node-events", "drained.csv")),
    (
        SERVICES,
        ("allocate", "s.json", "-a", ALGORITHMS),
        RUNNING,
        ADAPTED,
        simulate(BATCH),
        simulate(BATCH, "--node-events", "drained.csv"),
        ("farm", "simulate", "--experiment", "3", "-p", "FARM-EASY", "-p", "DFRS-FARM"),
    ),
)
"""Beside each other; the second finds the trace there long before it needs it."""


def _words(command: tuple[str, ...]) -> tuple[str, ...]:
    return command if command[0] == "-c" else ("-m", "dfrs.cli.main", *command)


def main() -> None:
    with TemporaryDirectory() as folder:
        Path(folder, "drained.csv").write_text(DRAINED)
        shells = []
        for chain in CHAINS:
            words = [[sys.executable, *_words(command)] for command in chain]
            code = f"import subprocess; [subprocess.run(words, check=True) for words in {words!r}]"
            shells.append(
                subprocess.Popen(
                    [sys.executable, "-c", code], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        # What does not work is for the tests to say.
        for shell in shells:
            shell.wait()


if __name__ == "__main__":
    main()
