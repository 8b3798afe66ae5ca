"""`dfrs farm profile-job`: what a job of the live cluster, submitted with --profile, sends, waits for and uses."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dfrs.cli.console import print_json
from dfrs.cli.heterogeneous.profile_output import (
    ClusterName,
    Farm,
    Output,
    Picture,
    check_files,
    partition_of,
    show,
    store,
)
from dfrs.cli.live.cluster import JobId, Json, live
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client

PIECE_BYTES = 1 << 18


@live
def profile_job(
    client: "Client",
    job: JobId,
    rank: Annotated[int, typer.Option(help="Number of the task, from 0.", min=0)] = 0,
    output: Output = None,
    farm: Farm = None,
    cluster: ClusterName = None,
    picture: Picture = None,
    as_json: Json = False,
) -> None:
    """Print what an MPI job of the live cluster sends, waits for and uses, while it runs or afterwards.

    The job must have been submitted with --profile. The file of -o is a profile of the whole run so
    far. Times include those in which the job was paused. For dfrs farm predict, say with --farm and
    --cluster where it runs. Without these options the profile is of a cluster "here", and CPU
    seconds are not scaled.

    Examples:

        dfrs submit --profile -- mpirun -n 2 ./lu.B.2

        dfrs farm profile-job 17 --farm farm.json --cluster A -o lu.json --picture lu.png
    """
    from dfrs.live.protocol.resources import ENDED
    from dfrs.model.hardware_files import profile_document, profile_of
    from dfrs.profiling.reader import taken_on

    check_files(output, picture, farm)
    where = partition_of(farm, cluster)
    if not client.job(job).profile:
        raise InputError(f"job {job}: was not submitted with --profile")
    seen = _document(client, job, rank)
    if seen is None or seen["profile"] is None:
        state = client.job(job).state
        raise DfrsError(f"job {job}: no MPI rank was seen" + ("" if state in ENDED else f" yet: it is {state.value}"))
    whole = profile_of(seen["profile"], f"job {job}")
    if where is not None:
        whole = taken_on(whole, where)
    show(seen, whole, "", running=client.job(job).state not in ENDED)
    store(seen, whole, output, picture)
    if as_json:
        print_json({"job": job, "rank": rank} | seen | {"profile": profile_document(whole)})


def _document(client: "Client", job: int, rank: int) -> dict[str, Any] | None:
    """None before the task has been started. Raises DfrsError."""
    text, offset = "", 0
    while True:
        part = client.output(job, rank=rank, stream="profile", offset=offset, limit=PIECE_BYTES)
        text += part.text
        if part.next_offset >= part.end_offset or part.next_offset <= offset:
            break
        offset = part.next_offset
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise DfrsError(f"job {job}: its profile changed while it was read: try again") from None
