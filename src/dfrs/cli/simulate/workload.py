"""`dfrs workload`: look at traces, cut parts out of them, change their load, mix them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dfrs.cli.console import err, out, print_json, tell_odd
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.workloads.cwf import Cwf
    from dfrs.workloads.swf import Swf
    from dfrs.workloads.trace_warnings import TraceReport

app = typer.Typer(help="Inspect and transform traces.", no_args_is_help=True, rich_markup_mode="rich")

Trace = Annotated[Path, typer.Argument(help="SWF file, .gz or plain.", show_default=False)]
AnyTrace = Annotated[Path, typer.Argument(help="SWF or CWF file, .gz or plain, or Batsim's JSON.", show_default=False)]
Nodes = Annotated[int | None, typer.Option(help="Number of nodes; default: what the trace's header says.", min=1)]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write, .swf or .swf.gz; standard output if absent.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a file with a bad line instead of dropping the line.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@app.command("info")
def info(
    trace: AnyTrace,
    nodes: Nodes = None,
    annotate: Annotated[
        str, typer.Option(help="Where CPU needs and memory come from: none, dfrs, hpc2n, smp:CORES:GIB, unit:N.")
    ] = "none",
    seed: Annotated[int, typer.Option(help="For what --annotate draws.", min=0)] = 0,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """What a trace holds, and what is odd in it: rule, number of lines, what is done with them, the first lines.

    Example: dfrs workload info HPC2N-2002-2.2-cln.swf.gz --annotate hpc2n
    """
    from dfrs.workloads.annotate import to_workload
    from dfrs.workloads.cwf import Cwf
    from dfrs.workloads.load import read_trace
    from dfrs.workloads.transform import describe

    read = read_trace(trace, strict=strict)
    swf = read.jobs if isinstance(read, Cwf) else read
    workload, report = to_workload(read, nodes=nodes, annotate=annotate, estimates="user", seed=seed)
    document = {
        "file": str(trace),
        "annotate": annotate,
        **describe(workload),
        **(_elastic(read) if isinstance(read, Cwf) else {}),
        "memory_kb_per_processor": _memory_kb(swf),
        "requested_time_fraction": float((swf.requested_s > 0).mean()),
        "header": swf.header,
        **report.document(),
    }
    if as_json:
        print_json(document)
    else:
        _show(document, annotate)
        _show_odd(report)


@app.command("slice")
def slice_(
    trace: Trace,
    week: Annotated[int | None, typer.Option(help="This week of the trace's clock, from 1.")] = None,
    from_s: Annotated[float | None, typer.Option("--from", help="Jobs submitted from this second on.")] = None,
    to_s: Annotated[float | None, typer.Option("--to", help="Jobs submitted before this second.")] = None,
    jobs: Annotated[str | None, typer.Option(help="a:b for jobs a to b - 1 in order of submission, from 0.")] = None,
    output: Output = None,
    strict: Strict = False,
) -> None:
    """A part of a trace: a week, a span of time, or some jobs.

    The clock of a week or a span starts at 0; jobs chosen by number keep their times.

    Example: dfrs workload slice HPC2N-2002-2.2-cln.swf.gz --week 3 -o week3.swf.gz
    """
    from dfrs.workloads import transform

    if [week is not None, from_s is not None or to_s is not None, jobs is not None].count(True) != 1:
        raise InputError("slice: needs either --week, or --from and --to, or --jobs")
    _check_ending(output)
    swf = _read(trace, strict)
    if week is not None:
        part = transform.week(swf, week)
    elif jobs is not None:
        first, end = _range(jobs, len(swf))
        part = transform.slice_jobs(swf, first, end)
    else:
        part = transform.slice_time(swf, from_s or 0.0, to_s if to_s is not None else float("inf"))
    _write(part, output)


@app.command("scale")
def scale(
    trace: Trace,
    load: Annotated[float, typer.Option(help="Offered load: processors * run time over nodes * span.")],
    nodes: Nodes = None,
    output: Output = None,
    strict: Strict = False,
) -> None:
    """The same jobs at another load: all gaps between submissions are multiplied by one computed constant.

    Times of submission are written in full precision, not in whole seconds.

    Example: dfrs workload scale x.swf.gz --load 0.7 -o x-0.7.swf.gz
    """
    from dfrs.workloads.annotate import to_workload
    from dfrs.workloads.transform import gap_factor, scale_gaps

    _check_ending(output)
    swf = _read(trace, strict)
    workload, _ = to_workload(swf, nodes=nodes, annotate="none")
    factor = gap_factor(workload, load)
    _write(scale_gaps(swf, factor), output, f"; gaps times {factor:.6g}, load {workload.load:.4g} before")


@app.command("merge")
def merge(
    traces: Annotated[list[Path], typer.Argument(help="SWF files, .gz or plain.", show_default=False)],
    output: Output = None,
    strict: Strict = False,
) -> None:
    """All jobs of several traces, as if their clocks had been started together on one machine, the largest of theirs.

    Jobs are numbered anew where a number stands in several traces.

    Example: dfrs workload merge a.swf.gz b.swf.gz -o both.swf.gz
    """
    from dfrs.workloads.transform import merge as merge_traces

    _check_ending(output)
    if len(traces) < 2:
        raise InputError("merge: needs at least two traces")
    _write(merge_traces([_read(trace, strict) for trace in traces]), output)


@app.command("convert")
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN", help="SWF or CWF file, .gz or plain, or Batsim's JSON workload.", show_default=False
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="File to write: .swf, .swf.gz, .cwf or .cwf.gz.", show_default=False)
    ],
    strict: Strict = False,
) -> None:
    """A trace in the other format, or packed, by the endings of the names.

    SWF has neither requested starts nor commands: dedicated jobs become batch jobs, and commands are left out. Of a
    workload of Batsim (.json) profiles must be delays, or sequences of delays.

    Example: dfrs workload convert x.cwf x.swf.gz

    Example: dfrs workload convert batsim.json x.swf
    """
    from dfrs.workloads.cwf import Cwf, write_cwf
    from dfrs.workloads.load import BATSIM, CWF, SWF, check_ending, is_cwf, read_trace

    check_ending(source, (*SWF, *CWF, *BATSIM))
    check_ending(target, (*SWF, *CWF))
    read = read_trace(source, strict=strict)
    trace = read if isinstance(read, Cwf) else Cwf(jobs=read)
    tell_odd(source, trace.jobs.report)
    if not is_cwf(target):
        lost = f"; left out: {trace.dedicated} requested starts, {len(trace.commands)} commands"
        _write(trace.jobs, target, lost if is_cwf(source) else "")
        return
    write_cwf(target, trace)
    note = f"{target}: {len(trace)} jobs, {trace.dedicated} of them dedicated, {len(trace.commands)} commands"
    err.print(note, markup=False, style="dim", soft_wrap=True)


def _read(trace: Path, strict: bool) -> "Swf":
    from dfrs.workloads.cwf import Cwf
    from dfrs.workloads.load import is_cwf, read_trace

    if is_cwf(trace):
        raise InputError(
            f"{trace}: CWF, and its requested starts and commands cannot be cut or scaled: "
            "make an SWF file of its jobs first, with dfrs workload convert"
        )
    read = read_trace(trace, strict=strict)
    swf = read.jobs if isinstance(read, Cwf) else read
    tell_odd(trace, swf.report)
    return swf


def _check_ending(output: Path | None) -> None:
    from dfrs.workloads.load import SWF, check_ending

    check_ending(output, SWF)


def _write(swf: "Swf", output: Path | None, note: str = "") -> None:
    from dfrs.workloads.swf import swf_text, write_swf

    if output is None:
        print(swf_text(swf), end="")
        return
    write_swf(output, swf)
    err.print(f"{output}: {len(swf)} jobs{note}", markup=False, style="dim", soft_wrap=True)


def _range(text: str, jobs: int) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return int(first or 0), int(end) if end else jobs
    except ValueError:
        raise InputError(f'--jobs "{text}": must be a:b, two whole numbers') from None


def _elastic(cwf: "Cwf") -> dict[str, object]:
    from dfrs.model.elastic import CommandKind

    kinds = cwf.commands.kind
    return {
        "dedicated_jobs": cwf.dedicated,
        "commands": {kind.name: int((kinds == kind).sum()) for kind in CommandKind},
    }


def _memory_kb(swf: "Swf") -> dict[str, object]:
    import numpy as np

    from dfrs.workloads.transform import distribution

    known = np.maximum(swf.used_kb, swf.requested_kb)
    return {"given_fraction": float((known > 0).mean()), "distribution": distribution(known[known > 0])}


def _show(d: dict[str, Any], annotate: str) -> None:
    load = "none: one time of submission" if d["load"] is None else f"{d['load']:.4g}"
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        ("jobs", f"{d['jobs']:,} of {d['lines']:,} lines, {d['users']:,} users"),
        ("nodes", f"{d['nodes']:,}"),
        ("span", f"{d['span_days']:,.2f} days between submissions"),
        ("load", f"{load} (tasks * run time over nodes * span)"),
        ("one-task jobs", f"{d['one_task_fraction']:.2%}"),
        ("requested time", f"in {d['requested_time_fraction']:.2%} of jobs"),
        ("memory in the file", f"in {d['memory_kb_per_processor']['given_fraction']:.2%} of jobs"),
    ):
        facts.add_row(name, value)
    if "commands" in d:
        facts.add_row("dedicated jobs", f"{d['dedicated_jobs']:,}")
        facts.add_row("commands", ", ".join(f"{number:,} {kind}" for kind, number in d["commands"].items()))
    out.print(facts)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for column in ("min", "25 %", "median", "mean", "75 %", "max"):
        table.add_column(column, justify="right")
    rows = {
        "tasks": d["tasks"],
        "run time (s)": d["run_s"],
        "gap (s)": d["gap_s"],
        "memory (KB)": d["memory_kb_per_processor"]["distribution"],
    }
    if annotate not in {"none", "processors"}:
        rows |= {"need": d["need"], "memory (of a node)": d["memory"]}
    for name, values in rows.items():
        if values is not None:
            table.add_row(name, *(f"{values[k]:,.6g}" for k in ("min", "p25", "median", "mean", "p75", "max")))
    out.print()
    out.print(table)


def _show_odd(report: "TraceReport") -> None:
    lines = [] if report.warnings else ["nothing odd"]
    for o in report.warnings:
        lines.append(f"{o.count:>9,}  {o.rule}: {o.handled}")
        shown = o.examples if o.handled.startswith("dropped") else o.examples[:1]
        lines += [f"           {example}" for example in shown]
    out.print("\n" + "\n".join(lines), markup=False, soft_wrap=True)


VERBS = (Verb(app, name="workload"),)
