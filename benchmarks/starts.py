"""What a user waits for at a command: whole commands, each in a new process, with compiled kernels there.

`python -m benchmarks.starts [--before PATH] [NAME...]` times this tree, and a checkout of another state of the sources
at PATH in turn with it: medians of ten starts, seconds of wall clock and of CPU. Names are those of the table. Sources
are compiled to bytecode in the start before the first that counts, as they are when a package is installed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import console, machine
from benchmarks.online import table

STARTS = 10
RUN = "from dfrs.cli.main import main; main()"
CAMPAIGN = """
name = "starts"
policies = ["FCFS", "EASY", "Greedy*/OPT=MIN", "GreedyP*/OPT=MIN", "GreedyPM*/OPT=MIN", "Greedy*/per/OPT=MIN",
    "GreedyPM*/per/OPT=MIN", "GreedyPM*/per/OPT=MIN/MVT=600"]

[[workloads]]
model = "lublin"
seeds = "1-12"
jobs = 30
"""
"""96 runs."""


@dataclass(frozen=True)
class Command:
    """What is started, after what once for each tree, and which cluster it asks."""

    words: Sequence[str]
    goal: str
    before: Sequence[Sequence[str]] = ()
    live: bool = False


COMMANDS = {
    "queue --help": Command(("queue", "--help"), ""),
    "queue": Command(("queue",), "0.3 s", live=True),
    "nodes": Command(("nodes",), "0.3 s", live=True),
    "show": Command(("show", "1"), "0.3 s", live=True),
    "history": Command(("history",), "0.3 s", live=True),
    "submit": Command(("submit", "--memory", "64M", "true"), "0.3 s", live=True),
    "allocate, 7 tasks": Command(
        ("allocate", "s.json"),
        "1 s",
        before=[("generate", "services", "--nodes", "4", "--services", "7", "--seed", "1", "-o", "s.json")],
    ),
    "simulate, 10 jobs": Command(
        ("simulate", "t.swf", "-o", "runs"),
        "1 s of CPU",
        before=[("generate", "lublin", "--jobs", "10", "--seed", "1", "-o", "t.swf")],
    ),
    "campaign results, 96 runs": Command(
        ("campaign", "results", "c.toml"), "2 s", before=[("campaign", "run", "c.toml")]
    ),
}


@dataclass(frozen=True)
class Tree:
    """A checkout, and the directory that its commands run in."""

    root: Path
    directory: Path

    def start(self, words: Sequence[str]) -> tuple[float, float]:
        """Seconds of wall clock and of CPU of one command. Ends the benchmark with what it said where it fails."""
        with (self.directory / "said").open("wb") as said:
            started_s = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-c", RUN, *words],
                cwd=self.directory,
                env=self._environment(),
                stdout=said,
                stderr=said,
            )
            _, status, used = os.wait4(process.pid, 0)
            spent_s = time.perf_counter() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"dfrs {' '.join(words)}: {(self.directory / 'said').read_text()}")
        return spent_s, used.ru_utime + used.ru_stime

    def _environment(self) -> dict[str, str]:
        sources = os.pathsep.join(str(self.root / each) for each in ("src", "reproduction/src"))
        own = {"PYTHONPATH": sources, "PYTHONPYCACHEPREFIX": str(self.directory / "bytecode")}
        own |= {"DFRS_STATE": str(self.directory / "state"), "DFRS_PORT": "0"}
        return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | own


def medians(trees: Sequence[Tree], command: Command) -> list[tuple[float, float]]:
    """Of each tree. The trees take turns, so that what else the machine does meets all of them."""
    for tree in trees:
        for words in (*command.before, command.words):
            tree.start(words)
    times = [[tree.start(command.words) for tree in trees] for _ in range(STARTS)]
    return [tuple(map(statistics.median, zip(*of_tree, strict=True))) for of_tree in zip(*times, strict=True)]


def main(arguments: Sequence[str] = ()) -> None:
    """The commands named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts")
    parser.add_argument("--before", type=Path, help="checkout of another state of the sources")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}; default: all")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - COMMANDS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: no such command")
    chosen = {name: COMMANDS[name] for name in given.names or COMMANDS}
    roots = [Path(__file__).parents[1], *([] if given.before is None else [given.before.resolve()])]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees: list[Tree] = []
        for k, root in enumerate(roots):
            (folder / f"tree{k}").mkdir()
            (folder / f"tree{k}" / "c.toml").write_text(CAMPAIGN)
            trees.append(Tree(root, folder / f"tree{k}"))
        if any(command.live for command in chosen.values()):
            for tree in trees:
                # Each has a cluster of its own: verbs and controller are of one version.
                tree.start(("up", "--nodes", "2", "--detach"))
                stack.callback(tree.start, ("down",))
                tree.start(("submit", "--memory", "64M", "--directory", "/", "--wait", "true"))
        _show(chosen, trees)


def _show(chosen: dict[str, Command], trees: Sequence[Tree]) -> None:
    columns = ["command", "goal", "wall", "CPU"] + (["wall before", "CPU before"] if len(trees) > 1 else [])
    made = table(f"Medians of {STARTS} starts, seconds. {machine().removeprefix('One core of ')}", *columns)
    for name, command in chosen.items():
        found = medians(trees, command)
        made.add_row(name, command.goal, *(f"{seconds:.2f}" for pair in found for seconds in pair))
    console.print(made)


if __name__ == "__main__":
    main(sys.argv[1:])
