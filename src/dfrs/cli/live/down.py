"""`dfrs down`: end what `dfrs up` started, and what was run on it."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dfrs.cli.console import err, out, print_json
from dfrs.cli.live.cluster import Json
from dfrs.cli.live.up import State
from dfrs.cli.quantities import show_count
from dfrs.cli.verbs import Verb
from dfrs.model.errors import DfrsError

END_S = 40.0
_PAUSE_S = 0.05


def down(state: State = None, as_json: Json = False) -> None:
    """End the jobs, the agents and the controller of `dfrs up`; no process and no control group is left behind.

    What the cluster knows of its jobs stays in the state directory, and so does their output. An agent that was started
    by hand and keeps its tasks there, too, is named and left alone.

    Example: dfrs down
    """
    from dfrs.live.client import state_directory
    from dfrs.live.local.cluster import begun

    place = (state or state_directory()).absolute()
    if not begun(place):
        if as_json:
            print_json({"state": str(place), "jobs": 0, "tasks": 0})
        else:
            out.print(f"nothing runs in {place}", markup=False, soft_wrap=True)
        return
    with err.status("ending the jobs") as status:
        end = _end(place, status.update)
    if as_json:
        print_json({"state": str(place), "jobs": end.jobs, "tasks": end.tasks})
    elif end.jobs is not None:
        parts = [show_count(end.jobs, "job"), show_count(end.agents, "agent"), "the controller"]
        parts += [show_count(end.hosts, "host")] if end.hosts else []
        out.print(f"ended: {', '.join(parts)}", markup=False, soft_wrap=True)
    if end.problems:
        tasks = f"killed {show_count(end.tasks, 'task')} and " if end.tasks else ""
        raise DfrsError(f"{tasks}ended agents and controller, but: {'; '.join(end.problems)}; then again: dfrs down")


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """What was ended."""

    jobs: int | None
    """None: the controller could not be told."""
    tasks: int
    """That ran on, and were killed without it."""
    agents: int
    hosts: int
    """That `dfrs up` had made."""
    problems: list[str]


def _end(place: Path, tell: Callable[[str], None]) -> _End:
    """End all. A controller that is away is started to be told of it; if it cannot be told, tasks are ended yet."""
    from dfrs.live.client import CLIENT_FILE, UnreachableError
    from dfrs.live.local.cluster import Choice, LocalCluster, finish, free_port, holder, locked, sweep
    from dfrs.live.local.hosts import hosts_left

    jobs: int | None = None
    why = ""
    if (process := holder(place)) is not None:
        try:
            jobs = _end_jobs(place, tell)
        except UnreachableError:
            process = None
        except DfrsError as error:
            why = str(error)
        finally:
            _end_process(place)
    with locked(place):
        choice = Choice.of(place) or Choice(port=free_port(None, None))
        if not (place / CLIENT_FILE).exists():
            jobs = 0
        if jobs is None and process is None:
            cluster = LocalCluster(place, choice, tell)
            try:
                cluster.make_hosts()
                cluster.start(tell)
                jobs = _end_jobs(place, tell)
            except (DfrsError, OSError) as error:
                why = str(error)
            finally:
                cluster.stop()
        hosts = hosts_left(place)
        tasks, problems = sweep(place)
        if jobs is None:
            problems.insert(0, f"the controller does not know it and would start the jobs anew ({why}): put that right")
        if not problems:
            finish(place)
    return _End(jobs=jobs, tasks=tasks, agents=choice.nodes, hosts=hosts, problems=problems)


def _end_jobs(place: Path, tell: Callable[[str], None]) -> int:
    from dfrs.live.client import Client, read_client_file
    from dfrs.live.local.cluster import end_jobs

    endpoint = read_client_file(place)
    if endpoint is None:
        raise DfrsError(f"{place}: has no client file; the controller cannot be told")
    with Client(endpoint) as client:
        return end_jobs(client, tell)


def _end_process(place: Path) -> None:
    """Ask the one that holds the state directory to end, and wait until it has let go of it. Raises DfrsError."""
    from dfrs.live.local.cluster import holder

    end_s = time.monotonic() + END_S
    process = holder(place)
    if process is not None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    while holder(place) is not None:
        if time.monotonic() > end_s:
            raise DfrsError(f"process {process} does not end; see {place / 'log'}")
        time.sleep(_PAUSE_S)


VERBS = (Verb(down),)
