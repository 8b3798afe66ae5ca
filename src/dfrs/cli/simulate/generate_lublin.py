"""`dfrs generate lublin`: a synthetic trace of parallel jobs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dfrs.cli.console import err
from dfrs.model.errors import InputError

RandomNumbers = Literal["drand48", "numpy"]


def lublin(
    jobs: Annotated[int, typer.Option(help="Number of jobs.")] = 1_000,
    nodes: Annotated[int, typer.Option(help="Number of nodes of the machine; a job has 1 to that many.")] = 128,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.", min=0)] = 1,
    rng: Annotated[
        RandomNumbers, typer.Option(help="drand48, as the authors' program with srand48(SEED), or numpy.")
    ] = "drand48",
    typeless: Annotated[
        bool, typer.Option("--typeless", help="One kind of jobs instead of interactive and batch ones.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, .swf or .swf.gz; standard output if absent.")
    ] = None,
) -> None:
    """Parallel jobs by the Lublin-Feitelson model, as the dissertation's chapter 5.3 uses them.

    With 128 nodes and drand48 the trace is that of the authors' program, job by job. It has neither memory nor
    estimates: the verbs that read it add them (--annotate).

    Example: dfrs generate lublin --jobs 1000 --nodes 128 --seed 1 -o x.swf.gz
    """
    from dfrs.workloads.lublin import Lublin, generate
    from dfrs.workloads.swf import swf_text, write_swf

    if output is not None and not output.name.lower().endswith((".swf", ".swf.gz")):
        raise InputError(f"{output}: the ending must be .swf or .swf.gz")
    swf = generate(Lublin.of(jobs=jobs, nodes=nodes, typed=not typeless), seed=seed, rng=rng)
    if output is None:
        print(swf_text(swf), end="")
        return
    write_swf(output, swf)
    days = (swf.submit_s[-1] - swf.submit_s[0]) / 86_400
    err.print(f"{output}: {len(swf)} jobs over {days:.2f} days, {nodes} nodes", markup=False, style="dim")
