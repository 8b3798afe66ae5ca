"""`dfrs generate`: random instances and traces as the documents draw them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, print_json
from dfrs.cli.simulate.generate_cwf import cwf
from dfrs.cli.simulate.generate_lublin import lublin
from dfrs.cli.verbs import Verb
from dfrs.model.errors import InputError
from dfrs.model.writing import require_writable, write_text

if TYPE_CHECKING:
    from dfrs.model.instance import Instance

app = typer.Typer(help="Make random instances and traces.", no_args_is_help=True, rich_markup_mode="rich")
app.command("lublin")(lublin)
app.command("cwf")(cwf)

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write, .json or .csv; standard output if absent.")
]
Seed = Annotated[int, typer.Option(help="Same seed, same instance.", min=0)]


@app.command("services")
def services(
    nodes: Annotated[int, typer.Option(help="Number of equal nodes.")] = 64,
    services: Annotated[int, typer.Option(help="Number of services.")] = 200,
    resources: Annotated[int, typer.Option(help="Number of resources: half rigid, half fluid.")] = 4,
    slack: Annotated[float, typer.Option(help="Fraction of each rigid resource left free.")] = 0.5,
    sigma: Annotated[float, typer.Option(help="Standard deviation of needs.")] = 0.5,
    rho: Annotated[float, typer.Option(help="Probability that a service has a minimum yield.")] = 0.25,
    qos: Annotated[float, typer.Option(help="That minimum yield.")] = 0.5,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Services as in the dissertation's chapter 4.3.

    Example: dfrs generate services --nodes 64 --services 200 --slack 0.3 --seed 1 -o services.json
    """
    from dfrs.api import generate_services

    _check(output)
    instance = generate_services(
        nodes=nodes, services=services, resources=resources, slack=slack, sigma=sigma, rho=rho, qos=qos, seed=seed
    )
    _write(instance, output)


@app.command("virtual-clusters")
def virtual_clusters(
    nodes: Annotated[int, typer.Option(help="Number of equal nodes.")] = 64,
    tasks: Annotated[int, typer.Option(help="Number of tasks in all.")] = 250,
    slack: Annotated[float, typer.Option(help="Fraction of the memory left free.")] = 0.5,
    memory_cov: Annotated[float, typer.Option(help="Coefficient of variation of memory.")] = 0.25,
    cpu_cov: Annotated[float, typer.Option(help="Coefficient of variation of CPU needs.")] = 0.25,
    parallel: Annotated[bool, typer.Option(help="Jobs of 1 to 64 tasks instead of single tasks.")] = False,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Virtual clusters as in the report's section 4.1: memory rigid, CPU fluid.

    Example: dfrs generate virtual-clusters --tasks 500 --slack 0.2 --parallel --seed 1 -o clusters.json
    """
    from dfrs.api import generate_virtual_clusters

    _check(output)
    instance = generate_virtual_clusters(
        nodes=nodes, tasks=tasks, slack=slack, memory_cov=memory_cov, cpu_cov=cpu_cov, parallel=parallel, seed=seed
    )
    _write(instance, output)


@app.command("machines")
def machines(
    present: Annotated[
        Path, typer.Option("--present", "-p", help="File for where machines run now, .json.", show_default=False)
    ],
    nodes: Annotated[int, typer.Option(help="Number of hosts, of three types.")] = 200,
    machines: Annotated[int, typer.Option(help="Number of machines.")] = 5_000,
    memory: Annotated[float, typer.Option(help="Their memory over that of all hosts.")] = 0.75,
    cpu: Annotated[float, typer.Option(help="Their CPU needs over the CPU of all hosts.")] = 1.2,
    imbalance: Annotated[float, typer.Option(help="How unevenly hosts attract machines; 0 is evenly.")] = 0.5,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Virtual machines that run on hosts already, unbalanced in CPU: for ADAPT.

    Example: dfrs generate machines --nodes 20 --machines 400 --seed 1 -o machines.json --present now.json
    """
    from dfrs.api import generate_machines
    from dfrs.placement.outcome import found
    from dfrs.report.documents import allocation_file

    if present.suffix.lower() != ".json":
        raise InputError(f"{present}: the ending must be .json")
    require_writable(present)
    _check(output)
    if output is not None and output.resolve() == present.resolve():
        raise InputError(f"--output and --present: {present}: must be two files")
    instance, place = generate_machines(
        nodes=nodes, machines=machines, memory=memory, cpu=cpu, imbalance=imbalance, seed=seed
    )
    outcome = found(instance, place).named("present", 0.0)
    placed = allocation_file(instance, outcome, source=str(output) if output else "-")
    _write(instance, output)
    write_text(present, placed)


def _check(output: Path | None) -> None:
    """Raise InputError for an output that `_write` could not write."""
    if output is not None:
        if output.suffix.lower() not in {".json", ".csv"}:
            raise InputError(f"{output}: the ending must be .json or .csv")
        require_writable(output)


def _write(instance: "Instance", output: Path | None) -> None:
    from dfrs.workloads.files import instance_csv, instance_document

    if output is None:
        print_json(instance_document(instance))
        return
    csv = output.suffix.lower() == ".csv"
    text = instance_csv(instance) if csv else json.dumps(instance_document(instance), indent=1) + "\n"
    write_text(output, text)
    note = f"; read it with --nodes {len(instance.nodes)}" if csv else ""
    err.print(
        f"{output}: {len(instance.services)} services ({len(instance.need)} tasks), {len(instance.nodes)} nodes{note}",
        markup=False,
        style="dim",
    )


VERBS = (Verb(app, name="generate"),)
