"""`dfrs bound`: what no schedule of a trace can do better than."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dfrs.cli.console import out, print_json, tell_odd, warn
from dfrs.cli.progress import progress
from dfrs.cli.refusals import refuse_beside
from dfrs.cli.simulate.simulate import Annotate, AsJson, Nodes, Overrun, Seed, Traces
from dfrs.cli.verbs import Verb
from dfrs.kernels.compiling import compilation

if TYPE_CHECKING:
    from dfrs.bounds.stretch import StretchBound
    from dfrs.model.jobs import Workload

NAMED = 20
"""So many critical jobs are listed."""


def bound(
    traces: Traces,
    nodes: Nodes = None,
    node_file: Annotated[
        Path | None, typer.Option(help="CSV with columns cpu,memory: one row a node, 1 on the reference node.")
    ] = None,
    annotate: Annotate = "dfrs",
    overrun: Overrun = "keep",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Lower bound on the maximum stretch of each trace: what a clairvoyant scheduler with fluid CPU would reach.

    No schedule can do better, whatever it knows; memory, penalties and packing can only make it worse. The critical
    jobs are the proof: at any smaller stretch they lack CPU by themselves.

    Examples:

        dfrs bound trace.swf.gz --nodes 128 --annotate dfrs --seed 1

        dfrs bound week-*.swf.gz --annotate hpc2n --json
    """
    from dfrs.workloads.cluster import read_capacity
    from dfrs.workloads.load import load_workload

    if node_file is not None:
        refuse_beside("--node-file", {"--nodes": nodes is not None}, "has a row for each node")
    capacity = None if node_file is None else read_capacity(node_file)
    count = nodes if capacity is None else len(capacity)
    total = None if capacity is None else float(capacity[:, 0].sum())
    answers: list[_Answer] = []
    with progress(len(traces)) as (bar, task):
        for trace in traces:
            bar.update(task, description=trace.name)
            workload, report = load_workload(trace, nodes=count, annotate=annotate, overrun=overrun, seed=seed)
            tell_odd(trace, report)
            if len(workload.commands):
                warn(f"{trace}: {len(workload.commands)} commands on jobs: the bound is of jobs as they are submitted")
            answers.append(_answer(trace, workload, total))
            bar.advance(task)
    if as_json:
        documents = [answer.document() for answer in answers]
        print_json(documents[0] if len(documents) == 1 else {"results": documents})
    else:
        _show(answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    trace: Path
    workload: "Workload"
    capacity: float
    bound: "StretchBound"
    runtime_s: float

    @property
    def critical(self) -> list[int]:
        return self.workload.job_id[self.bound.certificate.jobs].tolist()

    def document(self) -> dict[str, object]:
        """The answer in JSON's types."""
        return {
            "trace": str(self.trace),
            "jobs": len(self.workload),
            "nodes": self.workload.nodes,
            "capacity": self.capacity,
            "stretch_bound": self.bound.value,
            "critical_jobs": self.critical,
            "shortfall": self.bound.certificate.shortfall,
            "iterations": self.bound.iterations,
            "runtime_s": self.runtime_s,
        }


def _answer(trace: Path, workload: "Workload", capacity: float | None) -> _Answer:
    from dfrs.bounds.stretch import stretch_bound

    started_s = compilation.clock_s()
    found = stretch_bound(workload, capacity=capacity)
    spent_s = compilation.clock_s() - started_s
    total = float(workload.nodes) if capacity is None else capacity
    return _Answer(trace=trace, workload=workload, capacity=total, bound=found, runtime_s=spent_s)


def _show(answers: list[_Answer]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("trace", overflow="fold")
    for title in ("jobs", "nodes", "load", "stretch bound", "critical jobs", "time"):
        table.add_column(title, justify="right")
    for answer in answers:
        table.add_row(
            answer.trace.name,
            f"{len(answer.workload):,}",
            f"{answer.workload.nodes:,}",
            f"{answer.workload.load:.2f}",
            f"{answer.bound.value:.6f}",
            f"{len(answer.critical):,}",
            f"{answer.runtime_s:.3f} s",
        )
    out.print(table)
    if len(answers) == 1 and answers[0].critical:
        ids = answers[0].critical
        more = f" and {len(ids) - NAMED:,} more; --json has all" if len(ids) > NAMED else ""
        out.print("critical jobs: " + " ".join(map(str, ids[:NAMED])) + more, markup=False)


VERBS = (Verb(bound),)
