"""What `dfrs simulate --from-sacct` reads: the accounting of a Slurm cluster, and the size of the cluster."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dfrs.cli.console import err, tell_odd, warn
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.model.jobs import Workload
    from dfrs.simulator.simulation import SimulationSettings
    from dfrs.workloads.slurm.nodes import SlurmNodes
    from dfrs.workloads.slurm.records import Accounting
    from dfrs.workloads.slurm.replay import Replay, ReplayOptions

TRUTH_FILE = "as-it-was.csv"
"""Beside the run directories: when jobs began and ended in truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSource:
    """The options of `dfrs simulate` that say where the jobs and nodes of a Slurm cluster come from."""

    sinfo: Path | None
    nodes: int | None
    cores: int | None
    node_memory: float | None
    """GB."""
    tasks: str | None
    cpu_from: str | None
    memory_from: str | None
    since: str | None

    def refuse(self) -> None:
        """Raises InputError for the first option that is of no use without --from-sacct."""
        names = ("from-sinfo", "cores", "tasks", "cpu-from", "memory-from", "since")
        values = (self.sinfo, self.cores, self.tasks, self.cpu_from, self.memory_from, self.since)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                raise InputError(f"--{name}: only with --from-sacct")

    def read(
        self, path: Path, settings: "SimulationSettings", estimates: str, policies: Iterable[str]
    ) -> "tuple[Workload, SimulationSettings, str]":
        """The jobs of the accounting in `path`, the settings with the nodes that they ran on, and `truth_table`.

        Says on standard error what was taken and what was left out.
        """
        from dfrs.runs.metrics.schedule import TAU_S
        from dfrs.runs.metrics.truth import truth_metrics, truth_table
        from dfrs.workloads.slurm.reading import read_accounting
        from dfrs.workloads.slurm.replay import replay

        nodes = self._nodes(settings)
        accounting = read_accounting(path)
        options = self._options(accounting, estimates)
        found = replay(accounting, nodes, options)
        if options.tasks == "core" and (settings.node_events or settings.hosts):
            raise InputError("--tasks core: a node is one CPU: cannot go with --node-events or a column host")
        tell_odd(path, found.report)
        _tell_taken(path, accounting, found, nodes, options)
        _tell_whole_nodes(found, options, policies)
        truth = truth_metrics(found.workload, found.start_s, found.end_s, found.capacity, tau_s=TAU_S)
        notes = {
            "tasks": options.tasks,
            "cpu_from": options.cpu_from,
            "memory_from": options.memory_from,
            "estimates": estimates,
            "as_it_was": truth,
        }
        penalty = replace(settings.penalty, node_bytes=found.node_bytes)
        table = truth_table(found.workload, found.start_s, found.end_s)
        return found.workload, replace(settings, capacity=found.capacity, penalty=penalty, notes=notes), table

    def _nodes(self, settings: "SimulationSettings") -> "SlurmNodes":
        from dfrs.workloads.slurm.nodes import SlurmNodes, read_nodes

        capacity = settings.capacity
        given = {
            "--nodes": self.nodes if capacity is None else len(capacity),
            "--cores": self.cores,
            "--node-memory": self.node_memory,
        }
        if self.sinfo is not None:
            twice = [name for name, value in given.items() if value is not None]
            if twice:
                raise InputError(f"{', '.join(twice)}: cannot go with --from-sinfo, which says how large the nodes are")
            return read_nodes(self.sinfo)
        missing = [name for name, value in given.items() if value is None]
        if self.cores is None or self.node_memory is None or given["--nodes"] is None:
            raise InputError(
                f"--from-sacct: accounting does not say how large the cluster is: give {', '.join(missing)}, or "
                "--from-sinfo with what scontrol show nodes prints"
            )
        node_bytes = self.node_memory * 1e9
        if capacity is None:
            return SlurmNodes.equal(int(given["--nodes"]), self.cores, node_bytes)
        return SlurmNodes(cpus=capacity[:, 0] * self.cores, memory=capacity[:, 1] * node_bytes)

    def _options(self, accounting: "Accounting", estimates: str) -> "ReplayOptions":
        from dfrs.workloads.slurm.replay import ReplayOptions
        from dfrs.workloads.slurm.values import instant

        since = None
        if self.since is not None:
            try:
                since = instant(self.since, local=accounting.unix)
            except ValueError as error:
                raise InputError(f'--since "{self.since}": {error}') from None
        return ReplayOptions(
            tasks=self.tasks or "node",
            cpu_from=self.cpu_from or "measured",
            memory_from=self.memory_from or "measured",
            estimates=estimates,
            since=since,
        )


def write_truth(output: Path, table: str) -> None:
    """Write what became of the jobs in truth beside the run directories. Raises InputError."""
    from dfrs.model.writing import make_directory, write_text

    make_directory(output)
    write_text(output / TRUTH_FILE, table)


def _tell_taken(
    path: Path, accounting: "Accounting", found: "Replay", nodes: "SlurmNodes", options: "ReplayOptions"
) -> None:
    jobs = len(found.workload)
    zone = None if accounting.unix else UTC
    begin = datetime.fromtimestamp(found.origin, zone).strftime("%Y-%m-%dT%H:%M:%S")
    empty = "" if options.since is not None else ", with no jobs before (--since says otherwise)"
    cpu = f"measured in {found.measured_cpu}" if options.cpu_from == "measured" else "as allocated"
    memory = f"measured in {found.measured_memory}" if options.memory_from == "measured" else "as requested"
    taken = f"{path}: {jobs} jobs of {len(accounting.records)} records, from {begin} on{empty}"
    size = f"{len(nodes.cpus)} nodes of {nodes.reference_cpus:g} CPUs and {nodes.reference_memory / 1e9:.4g} GB"
    err.print(f"{taken}; CPU needs {cpu}, memory {memory}; {size}", markup=False, style="dim", soft_wrap=True)


def _tell_whole_nodes(found: "Replay", options: "ReplayOptions", policies: Iterable[str]) -> None:
    """Batch policies give whole nodes to jobs, which few clusters with large nodes do."""
    from dfrs.model.decisions import traits_of
    from dfrs.policies.names import find_policy

    whole = [name for name in policies if traits_of(find_policy(name)).exclusive]
    if whole and found.parts and options.tasks == "node":
        jobs = f"{found.parts} of {len(found.workload)} jobs had only parts of their nodes"
        warn(f"{', '.join(whole)}: gives whole nodes to jobs, and {jobs}: --tasks core lets it give out CPUs")
