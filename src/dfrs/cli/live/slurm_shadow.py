"""`dfrs slurm shadow`: what policies would have made of a running Slurm's jobs, beside what Slurm made of them."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dfrs.cli.console import err, out, warn
from dfrs.cli.quantities import parse_seconds
from dfrs.cli.simulate.policies import complete
from dfrs.cli.simulate.simulate import POLICY, simulate
from dfrs.cli.stopping import INTERRUPTED, stoppable
from dfrs.model.errors import DfrsError, InputError

TICK_S = 0.2
"""After so long a request to stop is noticed."""
PAUSES, MOVES = "keep", "none"
"""What dfrs can do to jobs of Slurm: suspended ones keep their memory, and none goes elsewhere."""


def shadow(
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy; several times for several. See dfrs policies.",
            show_default=POLICY,
            autocompletion=complete,
        ),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Its jobs and nodes; default: those of all partitions.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="YYYY-MM-DDTHH:MM:SS",
            help="Begin there, in UTC, from what accounting still knows; default: now.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[str, typer.Option(help="How often to ask Slurm, and to say what came of it.")] = "1h",
    end_after: Annotated[
        str | None, typer.Option("--for", help="End after this; default: with Ctrl-C.", show_default=False)
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for what Slurm said, and the run directories.")
    ] = Path("out/shadow"),
    as_json: Annotated[bool, typer.Option("--json", help="At the end, one JSON document on standard output.")] = False,
) -> None:
    """Say what policies would have made of the jobs of a running Slurm, beside what Slurm makes of them.

    Slurm is only asked, by sacct and sinfo, and decides on as before. Now and then, and at the end, the jobs that have
    ended since the beginning are replayed under each policy, with what they needed, and their waits and stretches stand
    below what they were. Suspended jobs keep their memory and none is moved, as with dfrs serve --backend slurm. What
    Slurm said is kept beside the runs, for dfrs simulate --from-sacct with other options.

    Ctrl-C, or a plain kill, asks Slurm a last time and ends.

    Examples:

        dfrs slurm shadow --partition main --for 7d -o week

        dfrs slurm shadow -p EASY -p 'GreedyPM*/per/OPT=MIN/MVT=600' --since 2026-11-24T00:00:00 --for 1m
    """
    from dfrs.experiments.simulations import directories
    from dfrs.policies.names import find_policy

    names = policies or [POLICY]
    for name in names:
        find_policy(name)
    every_s = parse_seconds(every, "--every")
    for_s = None if end_after is None else parse_seconds(end_after, "--for")
    end_s = None if for_s is None else time.monotonic() + for_s
    watch = _Watch(names, partition, _begin(since), output, as_json)
    # What cannot be replayed or asked at all is said at once, and not after an hour.
    directories([watch.jobs.name], names, output)
    watch.ask()
    with stoppable("asking Slurm a last time (once more: at once)") as stop:
        while True:
            due_s = time.monotonic() + every_s
            wait_s = due_s if end_s is None else min(due_s, end_s)
            while not stop.is_set() and time.monotonic() < wait_s:
                time.sleep(TICK_S)
            if stop.is_set() or (end_s is not None and time.monotonic() >= end_s):
                break
            try:
                watch.look()
            except DfrsError as error:
                # It may be right with the next look: Slurm was away, or no job has ended yet.
                warn(str(error))
            except typer.Exit as left:
                if left.exit_code != INTERRUPTED:
                    raise
                # It was told to stop while policies were replayed.
                break
    watch.end()


def _begin(since: str | None) -> float:
    """Seconds since 1970, whole. Raises InputError."""
    from dfrs.workloads.slurm.values import instant

    now = float(int(time.time()))
    if since is None:
        return now
    try:
        begin = instant(since)
    except ValueError as error:
        raise InputError(f'--since "{since}": {error}') from None
    if begin is None or begin > now:
        raise InputError(f'--since "{since}": must be an instant that was, in UTC')
    return begin


@dataclass(frozen=True, slots=True)
class _Watch:
    """What is watched, and where what was seen is kept."""

    policies: Sequence[str]
    partition: str | None
    begin: float
    output: Path
    as_json: bool

    @property
    def jobs(self) -> Path:
        """What sacct printed."""
        return self.output / "sacct.txt"

    @property
    def nodes(self) -> Path:
        """What sinfo printed."""
        return self.output / "nodes.txt"

    def ask(self) -> None:
        """Ask Slurm, and keep what it says. Raises DfrsError."""
        from dfrs.model.writing import make_directory, write_text
        from dfrs.workloads.slurm.asking import ask_accounting, ask_nodes

        nodes = ask_nodes(self.partition)
        if self.partition is not None and nodes.count("\n") < 2:
            raise InputError(f"--partition {self.partition}: Slurm has no node in it")
        jobs = ask_accounting(self.begin, time.time(), self.partition)
        make_directory(self.output)
        write_text(self.nodes, nodes)
        write_text(self.jobs, jobs)

    def look(self) -> None:
        """Ask Slurm, and say what came of it. Raises DfrsError."""
        self.ask()
        if not self.as_json:
            self._replay()

    def end(self) -> None:
        """The last look. Raises DfrsError."""
        self.ask()
        self._replay()
        words = ["dfrs", "simulate", "--from-sacct", str(self.jobs), "--from-sinfo", str(self.nodes)]
        words += ["--since", self._since, "--pauses", PAUSES, "--moves", MOVES]
        err.print(f"with other options: {shlex.join(words)} -p ...", markup=False, style="dim", soft_wrap=True)

    @property
    def _since(self) -> str:
        from dfrs.workloads.slurm.asking import written

        return written(self.begin)

    def _replay(self) -> None:
        from dfrs.workloads.slurm.asking import written

        if not self.as_json:
            out.print(f"from {self._since} to {written(time.time())} UTC", markup=False)
        simulate(
            from_sacct=self.jobs,
            from_sinfo=self.nodes,
            since=self._since,
            policies=list(self.policies),
            output=self.output,
            as_json=self.as_json,
            pauses=PAUSES,
            moves=MOVES,
        )
