"""`dfrs generate cwf`: a synthetic trace of batch and dedicated jobs, and of commands that change them."""

from pathlib import Path
from typing import Annotated

import typer

from dfrs.cli.console import err
from dfrs.model.errors import InputError

DEFAULT_LOAD = 0.9


def cwf(
    jobs: Annotated[int, typer.Option(help="Number of jobs.")] = 500,
    procs: Annotated[
        int, typer.Option(help="Processors of the machine: at least 10 times --unit, and a multiple of it.")
    ] = 320,
    unit: Annotated[int, typer.Option(help="Processors are given out in groups of so many.")] = 32,
    ps: Annotated[float, typer.Option(help="Probability of a small job: up to 30 % of the machine.")] = 0.5,
    load: Annotated[
        float | None,
        typer.Option(help="Offered load: processors * run time over --procs * span.", show_default="0.9"),
    ] = None,
    beta_arr: Annotated[
        float | None, typer.Option(help="Scale of the gaps, instead of the one that gives --load.")
    ] = None,
    pd: Annotated[float, typer.Option(help="Probability of a dedicated job, which has a requested start.")] = 0.0,
    pe: Annotated[float, typer.Option(help="Probability that a job's time is extended.")] = 0.0,
    pr: Annotated[float, typer.Option(help="Probability that a job's time is reduced.")] = 0.0,
    pep: Annotated[float, typer.Option(help="Probability that a job's processors are extended.")] = 0.0,
    prp: Annotated[float, typer.Option(help="Probability that a job's processors are reduced.")] = 0.0,
    start_mean: Annotated[float, typer.Option(help="Mean seconds from submission to requested start.")] = 3_600.0,
    amount_mean: Annotated[float, typer.Option(help="Mean seconds by which a command changes a time.")] = 1_800.0,
    amount_mean_units: Annotated[
        float, typer.Option(help="Mean number of groups by which a command changes processors.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.", min=0)] = 1,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, .cwf or .cwf.gz; standard output if absent.")
    ] = None,
) -> None:
    """Batch and dedicated jobs in the Cloud Workload Format, with commands for more or less time and processors.

    Gaps between submissions are such that this very trace offers --load. Other probabilities of dedicated jobs and of
    commands leave the jobs as they are.

    Example: dfrs generate cwf --ps 0.2 --load 0.9 --pd 0.5 --pe 0.2 --pr 0.1 --seed 1 -o x.cwf
    """
    from dfrs.workloads.cwf import cwf_text, write_cwf
    from dfrs.workloads.elastic_model import ElasticModel, generate
    from dfrs.workloads.load import CWF, check_ending

    check_ending(output, CWF)
    if load is not None and beta_arr is not None:
        raise InputError("--beta-arr and --load: give one of them, as each follows from the other")
    scale = {} if beta_arr is None else {"arrival_scale": beta_arr}
    offered = None if beta_arr is not None else DEFAULT_LOAD if load is None else load
    model = ElasticModel(
        jobs=jobs,
        procs=procs,
        unit=unit,
        ps=ps,
        load=offered,
        pd=pd,
        pe=pe,
        pr=pr,
        pep=pep,
        prp=prp,
        start_mean_s=start_mean,
        amount_mean_s=amount_mean,
        amount_mean_units=amount_mean_units,
        **scale,
    )
    trace = generate(model, seed=seed)
    if output is None:
        print(cwf_text(trace), end="")
    else:
        write_cwf(output, trace)
    header = trace.jobs.header
    load, beta_arr = float(header["OfferedLoad"]), float(header["BetaArr"])
    err.print(
        f"{output or 'standard output'}: {jobs} jobs, {trace.dedicated} of them dedicated, {len(trace.commands)} "
        f"commands, load {load:.4g}, beta_arr {beta_arr:.4g}, {procs} processors",
        markup=False,
        style="dim",
        soft_wrap=True,
    )
