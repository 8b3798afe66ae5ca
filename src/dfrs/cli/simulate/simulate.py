"""`dfrs simulate`: replay traces under policies."""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfrs.cli.console import out, print_json, tell_annotation, tell_missing, tell_odd, tell_unfitted, warn
from dfrs.cli.progress import progress
from dfrs.cli.refusals import refuse_beside
from dfrs.cli.simulate.clouds import CutOff, FromCloud, Machine, Window, check_cloud_options, read_cloud
from dfrs.cli.simulate.compare import BESIDE_TRUTH, COLUMNS, Columns, show_runs
from dfrs.cli.simulate.policies import complete
from dfrs.cli.simulate.slurm import SlurmSource, write_truth
from dfrs.cli.stopping import INTERRUPTED, stoppable
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.experiments.simulations import SimulationTask
    from dfrs.model.jobs import Workload
    from dfrs.simulator.simulation import SimulationSettings

GB = 1e9
NODE_BYTES = 8 * GB
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"
ANNOTATE, OVERRUN = "dfrs", "keep"
PAUSES, MOVES, ORDER = "free", "anywhere", "completions-first"
OUTPUT = Path("out/runs")

TRACES = "SWF or CWF files, .gz or plain, or Batsim's JSON workloads."
Traces = Annotated[list[Path], typer.Argument(help=TRACES, show_default=False)]
Nodes = Annotated[int | None, typer.Option(help="Number of nodes; default: what the trace's header says.", min=1)]
Annotate = Annotated[
    str, typer.Option(help="Where CPU needs and memory come from: dfrs, hpc2n, smp:CORES:GIB, none, unit:N.")
]
Estimates = Annotated[
    str | None,
    typer.Option(
        help="What batch policies know: perfect, user, raised, none, or a factor; with --from-sacct user.",
        show_default="perfect",
    ),
]
Overrun = Annotated[str, typer.Option(help="Jobs longer than requested: keep, or cut at the request.")]
Seed = Annotated[int, typer.Option(help="Same seed, same bytes.", min=0)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def simulate(
    traces: Annotated[list[Path] | None, typer.Argument(help=TRACES, show_default=False)] = None,
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
    from_log: Annotated[
        Path | None,
        typer.Option(help="Instead of traces: an export. Without --policy its decisions are made again and compared."),
    ] = None,
    from_sacct: Annotated[
        Path | None, typer.Option(help="Instead of traces: what sacct --parsable2 or sacct --json printed.")
    ] = None,
    from_sinfo: Annotated[
        Path | None,
        typer.Option(help="With --from-sacct: nodes, as scontrol show nodes or sinfo -N -o '%N|%c|%m' printed them."),
    ] = None,
    nodes: Nodes = None,
    cores: Annotated[
        int | None, typer.Option(help="With --from-sacct: CPUs of the reference node, as Slurm counts them.", min=1)
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="With --from-sacct: a task is a job's part of a node, or a core; then nodes are cores, too.",
            show_default="node",
        ),
    ] = None,
    cpu_from: Annotated[
        str | None,
        typer.Option(help="With --from-sacct: CPU needs are measured, or allocated.", show_default="measured"),
    ] = None,
    memory_from: Annotated[
        str | None, typer.Option(help="With --from-sacct: memory is measured, or requested.", show_default="measured")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="With --from-sacct: YYYY-MM-DDTHH:MM:SS; jobs that were there then are submitted then."),
    ] = None,
    node_file: Annotated[
        Path | None,
        typer.Option(help="CSV with columns cpu,memory: one row a node, 1 on the reference node; perhaps host."),
    ] = None,
    annotate: Annotate = ANNOTATE,
    estimates: Estimates = None,
    overrun: Overrun = OVERRUN,
    penalty: Annotated[
        float | None,
        typer.Option(
            help="Seconds without progress after a resume or a migration; with --from-log 0.", min=0, show_default="300"
        ),
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="GB/s at which memory is copied, in addition to --penalty.", min=0)
    ] = None,
    node_memory: Annotated[
        float | None,
        typer.Option(
            help="GB (10^9 bytes) of memory of the reference node, for --bandwidth and GB/s.",
            min=0,
            show_default="that of the annotation, else 8",
        ),
    ] = None,
    pauses: Annotated[
        str, typer.Option(help="Memory of a paused job: free for others, or keep (then nobody is paused).")
    ] = PAUSES,
    moves: Annotated[
        str,
        typer.Option(help="Where jobs that have started may go: anywhere, host, host:K (K nodes on each host), none."),
    ] = MOVES,
    order: Annotated[
        str,
        typer.Option(
            help="At one instant: completions-first, or submissions-first, -by-start, -by-estimate or "
            "-by-start-and-estimate behind it."
        ),
    ] = ORDER,
    node_events: Annotated[
        Path | None, typer.Option(help="CSV with columns time_s,node,condition (down, drain, up).")
    ] = None,
    job_values: Annotated[
        Path | None,
        typer.Option(
            "--job-values",
            "--weights",
            help="CSV with columns job_id or user, and weight (for policies with /WEIGHT), min_yield or checkpoint_s.",
        ),
    ] = None,
    command_limit: Annotated[
        int | None, typer.Option(help="Most users' commands granted on one job (CWF, elastic policies).", min=0)
    ] = None,
    seed: Seed = 0,
    bound: Annotated[bool, typer.Option(help="State how far from the best possible each run is.")] = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a trace with a bad line instead of dropping the line.")
    ] = False,
    from_cloud: FromCloud = None,
    window: Window = None,
    cut_off: CutOff = None,
    machine: Machine = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep complete runs; continue interrupted ones.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory for the run directories.", show_default=str(OUTPUT)),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay traces under policies; one run directory for each pair: jobs.csv, events.csv, summary.json.

    Ctrl-C stops between two events and leaves a valid partial run, which --resume continues to the same bytes.

    Examples:

        dfrs simulate trace.swf.gz --nodes 128 -p FCFS -p EASY -p 'GreedyPM*/per/OPT=MIN/MVT=600' -o out/runs

        dfrs simulate trace.swf.gz --penalty 20 --bandwidth 10 --json

        dfrs simulate trace.swf.gz --pauses keep --moves none

        dfrs simulate --from-cloud packing_trace_zone_a_v1.sqlite --window 0:3600 --nodes 500

        dfrs simulate x.cwf --annotate unit:32 -p EASY-DE -p LOS-DE -p Hybrid-LOS-E

        dfrs simulate --from-log day -p EASY -p FCFS

        dfrs simulate --from-sacct day.txt --from-sinfo nodes.txt --since 2026-11-24T00:00:00 -p EASY
    """
    from dfrs.policies.names import find_policy
    from dfrs.workloads.job_values import with_job_values

    if [bool(traces), *(given is not None for given in (from_log, from_sacct, from_cloud))].count(True) != 1:
        raise InputError("TRACES, --from-log, --from-sacct or --from-cloud: one of them must be given, and only one")
    check_cloud_options(from_cloud, window, cut_off, machine)
    slurm = SlurmSource(
        sinfo=from_sinfo,
        nodes=nodes,
        cores=cores,
        node_memory=node_memory,
        tasks=tasks,
        cpu_from=cpu_from,
        memory_from=memory_from,
        since=since,
    )
    if from_sacct is None:
        slurm.refuse()
    if node_file is not None:
        refuse_beside("--node-file", {"--nodes": nodes is not None}, "has a row for each node")
    of_traces = {"--annotate": annotate != ANNOTATE, "--overrun": overrun != OVERRUN, "--strict": strict}
    for option, is_given in {"--from-cloud": from_cloud is not None, "--from-sacct": from_sacct is not None}.items():
        if is_given:
            refuse_beside(option, of_traces, "says itself what its jobs need and how long they ran")
    if from_log is not None:
        refuse_beside("--from-log", {"--nodes": nodes is not None} | of_traces, "has the jobs and nodes as they were")
    if from_log is not None and not policies:
        of_runs = {
            "--output": output is not None,
            "--resume": resume,
            "--node-file": node_file is not None,
            "--node-events": node_events is not None,
            "--job-values": job_values is not None,
            "--penalty": penalty is not None,
            "--bandwidth": bandwidth is not None,
            "--node-memory": node_memory is not None,
            "--estimates": estimates is not None,
            "--command-limit": command_limit is not None,
            "--pauses": pauses != PAUSES,
            "--moves": moves != MOVES,
            "--order": order != ORDER,
            "--seed": seed != 0,
            "--no-bound": not bound,
        }
        refuse_beside("--from-log without --policy", of_runs, "makes the recorded decisions again, and no run")
        _decide_again(from_log, as_json=as_json)
        return
    names = policies or [POLICY]
    for name in names:
        find_policy(name)
    output = output or OUTPUT
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: must be a directory, and is a file: name another with -o")
    penalty = penalty if penalty is not None else 300.0 if from_log is None else 0.0
    estimates = estimates or ("perfect" if from_sacct is None else "user")
    given = {"annotate": annotate, "estimates": estimates, "overrun": overrun}
    node_bytes = _node_bytes(node_memory, annotate if traces else None)
    settings = _settings(
        penalty, bandwidth, node_bytes, order, node_file, node_events, command_limit, seed, pauses=pauses, moves=moves
    )
    count = nodes if settings.capacity is None else len(settings.capacity)
    truth: str | None = None
    if from_sacct is not None:
        workload, settings, truth = slurm.read(from_sacct, settings, estimates, names)
        workloads = [workload]
    elif from_log is not None:
        repeat_events = node_file is None and node_events is None
        workload, settings = _read_log(from_log, settings, estimates, names, repeat_events=repeat_events)
        workloads = [workload]
    elif from_cloud is not None:
        workloads = [read_cloud(from_cloud, count, estimates, window, cut_off, machine)]
        settings = replace(settings, notes=given | {"annotate": "requests of the trace"})
    else:
        workloads = _workloads(traces or (), count, given, seed=seed, strict=strict)
        settings = replace(settings, notes=given)
    if job_values is not None:
        workloads = [with_job_values(workload, job_values) for workload in workloads]
    if traces:
        tell_annotation(annotate, node_bytes)
    try:
        rows, interrupted = _replay(workloads, names, output, settings, bound=bound, resume=resume)
    except InputError:
        # Runs that are there, made with other settings, keep their truth beside them.
        truth = None
        raise
    finally:
        if truth is not None:
            write_truth(output, truth)
    if as_json:
        print_json({"runs": rows, "interrupted": interrupted})
    else:
        _show(rows, COLUMNS if from_sacct is None else BESIDE_TRUTH)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _node_bytes(given_gb: float | None, annotate: str | None) -> float:
    """Memory of the reference node: as given, or as the annotation says, or 8 GB ([Stillwell2010] section 6.1)."""
    from dfrs.workloads.annotate import Annotation

    if given_gb is not None:
        return given_gb * GB
    stated = None if annotate is None else Annotation.parse(annotate).node_bytes
    return NODE_BYTES if stated is None else stated


def _workloads(
    traces: Iterable[Path], nodes: int | None, given: Mapping[str, str], *, seed: int, strict: bool
) -> "list[Workload]":
    """Jobs of traces; `given` says what they are given: annotate, estimates and overrun of `load_workload`."""
    from dfrs.workloads.load import load_workload

    workloads: list[Workload] = []
    for trace in traces:
        workload, report = load_workload(trace, nodes=nodes, **given, seed=seed, strict=strict)
        tell_odd(trace, report)
        workloads.append(workload)
    return workloads


def _decide_again(path: Path, *, as_json: bool) -> None:
    """Make the recorded decisions again, and say whether they are the same."""
    from dfrs.policies.names import find_recorded
    from dfrs.simulator.recorded_log import decide_again
    from dfrs.workloads.live_log import read_live_log

    log = read_live_log(path)
    recorded = decide_again(log, find_recorded(()))
    tell_missing(recorded.missing)
    differs = recorded.mismatch
    if as_json:
        found = None if differs is None else {"event": differs.index + 1, "time_s": differs.now_s}
        print_json(
            {"policy": log.policy, "events": len(log.entries), "decisions": recorded.decisions, "mismatch": found}
        )
    else:
        same = "all as recorded" if differs is None else f"event {differs.index + 1} at {differs.now_s:.3f} s differs"
        events, decisions = f"{len(log.entries):,} events", f"{recorded.decisions:,} decisions"
        out.print(f"{log.policy}: {events}, {decisions}: {same}", markup=False, soft_wrap=True)
    if differs is not None:
        raise typer.Exit(1)


def _read_log(
    path: Path, settings: "SimulationSettings", estimates: str, named: Sequence[str], *, repeat_events: bool
) -> "tuple[Workload, SimulationSettings]":
    """The jobs of a live log that ran and ended, on the nodes that it had. `named`: policies, by the user.

    With `repeat_events` what happened to these nodes happens again, instead of what `settings` says.
    """
    import numpy as np

    from dfrs.policies.names import find_recorded
    from dfrs.simulator.recorded_log import decide_again
    from dfrs.workloads.annotate import choose_estimates
    from dfrs.workloads.live_log import read_live_log

    log = read_live_log(path)
    recorded = decide_again(log, find_recorded(named), path.resolve().name)
    tell_missing(recorded.missing)
    tell_unfitted(recorded)
    work = recorded.run.workload
    if not len(work):
        raise InputError(f"{path}: no job in it ran and ended")
    if recorded.left_out:
        warn(f"{path}: left out because they did not end on nodes: {recorded.left_out}")
    given = np.where(np.isnan(work.estimate_s), work.run_s, work.estimate_s)
    chosen = choose_estimates(estimates, work.run_s, given, np.maximum(np.maximum(given, work.run_s), 1.0))
    capacity = recorded.run.capacity if settings.capacity is None else settings.capacity
    return work.with_columns(estimate_s=chosen), replace(
        settings,
        capacity=capacity,
        node_events=recorded.node_events if repeat_events else settings.node_events,
        notes={"estimates": estimates},
    )


def _settings(
    penalty: float,
    bandwidth: float | None,
    node_bytes: float,
    order: str,
    node_file: Path | None,
    node_events: Path | None,
    command_limit: int | None,
    seed: int,
    *,
    pauses: str,
    moves: str,
) -> "SimulationSettings":
    from dfrs.model.run import Penalty
    from dfrs.simulator.clock import known_order
    from dfrs.simulator.limits import node_limits
    from dfrs.simulator.simulation import SimulationSettings
    from dfrs.workloads.cluster import read_node_events, read_nodes

    capacity, hosts = (None, None) if node_file is None else read_nodes(node_file)
    try:
        node_limits(pauses, moves, 1, None if hosts is None else hosts[:1])
        named = known_order(order)
    except InputError as error:
        raise InputError(f"--{error}") from None
    given = {"--penalty": penalty, "--bandwidth": bandwidth, "--node-memory": node_bytes / GB}
    for option, value in given.items():
        if value is not None and not math.isfinite(value):
            raise InputError(f"{option} {value:g}: must be finite")
    if bandwidth == 0:
        raise InputError("--bandwidth 0: must be above 0")
    rate = None if bandwidth is None else bandwidth * GB
    return SimulationSettings(
        capacity=capacity,
        penalty=Penalty(seconds=penalty, bytes_per_s=rate, node_bytes=node_bytes),
        order=named,
        node_events=() if node_events is None else read_node_events(node_events),
        command_limit=command_limit,
        pauses="keep" if pauses == "keep" else "free",
        moves=moves,
        hosts=hosts,
        seed=seed,
    )


def _replay(
    workloads: "list[Workload]",
    names: list[str],
    output: Path,
    settings: "SimulationSettings",
    *,
    bound: bool,
    resume: bool,
) -> tuple[list[dict[str, Any]], bool]:
    """Replay each workload under each policy into directories of `output`: summaries, and whether it was stopped."""
    from dfrs.experiments.simulations import SimulationTask, directories, saved_summary
    from dfrs.model.writing import require_directory

    places = directories([workload.name for workload in workloads], names, output)
    with stoppable("stopping; what is done so far is written (once more: at once, with only what was saved)") as stop:
        tasks = [
            SimulationTask(workload=workload, policy=name, directory=places[w, p], bound=bound, settings=settings)
            for w, workload in enumerate(workloads)
            for p, name in enumerate(names)
        ]
        for task in tasks:
            if not resume or saved_summary(task) is None:
                require_directory(task.directory)
        rows = _run_all(tasks, sum(map(len, workloads)) * len(names), stop, resume)
    return rows, stop.is_set()


def _run_all(tasks: "Iterable[SimulationTask]", jobs: int, stop: threading.Event, resume: bool) -> list[dict[str, Any]]:
    from dfrs.experiments.simulations import perform, saved_summary

    rows: list[dict[str, Any]] = []
    with progress(jobs) as (bar, shown):
        finished = 0
        for task in tasks:
            if stop.is_set():
                break
            label = f"{task.workload.name} {task.policy}"
            bar.update(shown, description=label)
            document = saved_summary(task) if resume else None
            if document is None:
                base = finished

                def watch(done: int, base: int = base) -> bool:
                    bar.update(shown, completed=base + done)
                    return not stop.is_set()

                _, document = perform(task, resume=resume, watch=watch, tell=warn)
            finished += len(task.workload)
            bar.update(shown, completed=finished)
            rows.append({"directory": str(task.directory), **document})
    return rows


def _show(rows: list[dict[str, Any]], columns: Columns) -> None:
    for row in rows:
        if row["refused"]:
            warn(f"{row['directory']}: refused because larger than the cluster: {len(row['refused'])}")
        if not row["complete"]:
            warn(f"{row['directory']}: interrupted; continue it with --resume")
    show_runs(rows, columns)


VERBS = (Verb(simulate),)
