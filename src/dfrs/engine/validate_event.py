"""Events that cannot be true: found out before anything changes, so that a refused event leaves no trace."""

import numpy as np

from dfrs.engine.cluster import Cluster
from dfrs.engine.events import Complete, Event, Hold, Predicted, Revise, Submit, Unhold
from dfrs.engine.held_jobs import Held
from dfrs.engine.predictions import Predictions
from dfrs.engine.rows import Rows
from dfrs.model.errors import InputError
from dfrs.model.nodes import Capacity, Join, NodeChange

_OF_NODES = NodeChange | Join | Capacity
_OF_JOBS = Revise | Hold | Unhold | Predicted


def refuse(event: Event, rows: Rows, held: Held, cluster: Cluster, farm: Predictions | None) -> int:
    """Raise InputError where `event` cannot be true; the row of the job it is about, -1 if it has none."""
    if isinstance(event, Complete):
        row = rows.find(event.job_id)
        if row < 0 and event.job_id not in held:
            raise InputError(f"job {event.job_id} is done, but is not in the system")
        return row
    if isinstance(event, Submit):
        _refuse_submission(event, rows, held)
    elif isinstance(event, _OF_JOBS):
        return _refuse_change(event, rows, held, farm)
    elif isinstance(event, _OF_NODES):
        cluster.refuse(event)
        if isinstance(event, Join) and farm is not None and len(cluster) >= len(farm):
            raise InputError(f"node {len(cluster)}: the farm has {len(farm)} nodes, and all have joined")
        if isinstance(event, Capacity):
            _refuse_capacity(event, rows, held, cluster)
    return -1


def _refuse_submission(event: Submit, rows: Rows, held: Held) -> None:
    if event.tasks < 1 or not 0 < event.need <= 1 or not 0 <= event.memory <= 1:
        raise InputError(
            f"job {event.job_id}: {event.tasks} tasks of need {event.need} and memory {event.memory}: must be at "
            "least 1, above 0 and at most 1, and from 0 to 1"
        )
    if not 0 <= event.minimum <= 1:
        raise InputError(f"job {event.job_id}: minimum = {event.minimum}: must be from 0 to 1")
    if rows.find(event.job_id) >= 0 or event.job_id in held:
        raise InputError(f"job {event.job_id}: is in the system already")


def _refuse_change(event: Revise | Hold | Unhold | Predicted, rows: Rows, held: Held, farm: Predictions | None) -> int:
    row, is_held = rows.find(event.job_id), event.job_id in held
    if row < 0 and not is_held:
        raise InputError(f"job {event.job_id}: is not in the system")
    if isinstance(event, Revise):
        if not 0 < event.need <= 1:
            raise InputError(f"job {event.job_id}: need = {event.need}: must be above 0 and at most 1")
    elif isinstance(event, Predicted):
        if farm is None:
            raise InputError(f"job {event.job_id}: predicted on sub-clusters, but the cluster is no farm")
        farm.refuse(event)
    elif is_held == isinstance(event, Hold):
        raise InputError(f"job {event.job_id}: is {'held already' if is_held else 'not held'}")
    return row


def _refuse_capacity(event: Capacity, rows: Rows, held: Held, cluster: Cluster) -> None:
    jobs, first, nodes = rows.views()
    here = np.flatnonzero(nodes == event.node)
    if len(here):
        job = jobs["id"][np.searchsorted(first, here[0], side="right") - 1]
        raise InputError(f"node {event.node}: job {job} is on it: its capacity can change only when it is empty")
    if held.on(len(cluster))[event.node]:
        raise InputError(f"node {event.node}: held jobs are on it: its capacity can change only when it is empty")
