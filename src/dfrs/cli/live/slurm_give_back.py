"""`dfrs slurm give-back`: jobs that dfrs held or paused go on under Slurm alone."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err, out
from dfrs.cli.quantities import quoted, show_count
from dfrs.model.errors import InputError
from dfrs.model.text import visible

if TYPE_CHECKING:
    from dfrs.live.backends.slurm.port import Slurm


def give_back(
    partition: Annotated[str, typer.Option("--partition", help="For which dfrs decided.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Resume and release the jobs.")] = False,
) -> None:
    """Hand the jobs of a partition back to Slurm: what is paused goes on, and what waits may start.

    Jobs that wait and that their users hold, by sbatch --hold or scontrol hold, stay held. A hold by dfrs hold ends:
    dfrs alone knows of it. Stop dfrs serve first, run dfrs slurm uninstall, and restart slurmctld. Without --yes jobs
    are only counted.

    Example:

        sudo dfrs slurm give-back --partition main --yes
    """
    from dfrs.live.backends.slurm.port import SlurmCommands

    refused = asyncio.run(_give_back(SlurmCommands(partition), partition, yes=yes))
    for why in refused:
        err.print(f"dfrs: {visible(why)}", markup=False, soft_wrap=True)
    if refused:
        raise typer.Exit(1)


async def _give_back(slurm: "Slurm", partition: str, *, yes: bool) -> list[str]:
    """What Slurm refuses."""
    from dfrs.live.backends.slurm.handing_back import hand_back, left_jobs

    found = await slurm.look()
    if not found.nodes and not found.jobs:
        raise InputError(f"--partition {quoted(partition)}: Slurm has no node and no job there")
    left = left_jobs(found.jobs)
    refused = await hand_back(slurm, left) if yes else {}
    for jobs, done, to_do in ((left.paused, "resumed", "to resume"), (left.waiting, "released", "to release")):
        count = sum(job not in refused for job in jobs)
        out.print(f"{done if yes else to_do}: {show_count(count, 'job')}")
    out.print(f"left held: {show_count(len(left.held), 'job')}")
    if not yes:
        out.print("Nothing is done: --yes does it")
    return list(refused.values())
