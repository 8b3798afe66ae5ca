"""`dfrs down`: end what `dfrs up` started, and what was run on it."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dfrs.cli.cluster import Json
from dfrs.cli.console import err, out, print_json
from dfrs.cli.up import State
from dfrs.model.errors import DfrsError

if TYPE_CHECKING:
    from dfrs.cli.local import Choice

END_S = 40.0
_PAUSE_S = 0.05


def down(state: State = None, as_json: Json = False) -> None:
    """End the jobs, the agents and the controller of `dfrs up`; no process and no control group is left behind.

    What the cluster knows of its jobs stays in the state directory, and so does their output.

    Example: dfrs down
    """
    from dfrs.cli.local import Choice
    from dfrs.live.client import state_directory

    place = (state or state_directory()).absolute()
    choice = Choice.of(place)
    if choice is None or choice.ended:
        if as_json:
            print_json({"state": str(place), "jobs": 0})
        else:
            out.print(f"nothing runs in {place}", markup=False, soft_wrap=True)
        return
    with err.status("ending the jobs") as status:
        ended = _end(place, choice, status.update)
    if as_json:
        print_json({"state": str(place), "jobs": ended})
    else:
        out.print(f"ended: {ended} jobs, {choice.nodes} agents, the controller", markup=False, soft_wrap=True)


def _end(place: Path, choice: "Choice", tell: Callable[[str], None]) -> int:
    """End all; how many jobs there were. A controller that is away is started to be told of it."""
    from dfrs.cli.local import Choice, LocalCluster, holder, locked
    from dfrs.live.client import UnreachableError

    ended: int | None = None
    if (process := holder(place)) is not None:
        try:
            with suppress(UnreachableError):
                ended = _end_jobs(place, tell)
        finally:
            _end_process(process, place)
    with locked(place):
        choice = Choice.of(place) or choice
        cluster = LocalCluster(place, choice, tell)
        if ended is None:
            try:
                cluster.start(tell)
                ended = _end_jobs(place, tell)
            finally:
                cluster.stop()
        cluster.sweep()
        choice.model_copy(update={"ended": True}).keep(place)
    return ended


def _end_jobs(place: Path, tell: Callable[[str], None]) -> int:
    from dfrs.cli.local import end_jobs
    from dfrs.live.client import Client, read_client_file

    endpoint = read_client_file(place)
    if endpoint is None:
        raise DfrsError(f"{place}: has no client file; the controller cannot be told")
    with Client(endpoint) as client:
        return end_jobs(client, tell)


def _end_process(process: int, place: Path) -> None:
    """Ask it to end, and wait until it has let go of the state directory. Raises DfrsError."""
    from dfrs.cli.local import holder

    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    end_s = time.monotonic() + END_S
    while holder(place) is not None:
        if time.monotonic() > end_s:
            raise DfrsError(f"process {process} does not end; see {place / 'log'}")
        time.sleep(_PAUSE_S)
