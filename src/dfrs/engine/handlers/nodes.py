"""Nodes come, go, and have another capacity, or less of it left; what they can do, and what that costs."""

import math
from dataclasses import asdict

import numpy as np

from dfrs.engine.commands import NOTHING, Commands, joined, one, without_nodes
from dfrs.engine.events import Permitted
from dfrs.engine.handlers.handler import ON_NODES, Handler, Steps, refuse_counts
from dfrs.engine.node_constraints import NONE
from dfrs.engine.state import State
from dfrs.kernels import ledger
from dfrs.model import tolerances
from dfrs.model.decisions import PAUSED, Prices, Reason
from dfrs.model.errors import InputError
from dfrs.model.named_resources import NodeResources
from dfrs.model.nodes import Capacity, CapacityLeft, Condition, IslandsJoined, Join, NodeChange, PauseAbility
from dfrs.model.run import Action

_ACTION_OF = {Condition.DOWN: Action.DOWN, Condition.DRAIN: Action.DRAIN, Condition.UP: Action.UP}


def _known(state: State, event: NodeChange | CapacityLeft | PauseAbility) -> int:
    state.cluster.refuse(event)
    return -1


def change(state: State, event: NodeChange, _row: int) -> Steps:
    """A node is opened or closed; jobs on one that failed begin anew, or where they made their last check-point."""
    state.cluster.change(event)
    state.event_log.note(state.now_s, _ACTION_OF[event.condition], -1, nodes=np.array([event.node]))
    lost = (_lose(state, event.node),) if event.condition == Condition.DOWN else ()
    return (*lost, *ON_NODES) if event.last else lost


def _lose(state: State, node: int) -> Commands:
    rows, held = state.rows, state.held.lose_node(node)
    lost = np.empty(rows.count, np.int64)
    count = ledger.lose_node(rows.jobs, rows.first, rows.nodes, rows.count, node, lost)
    rows.jobs["since_s"][lost[:count]] = state.now_s
    for row in lost[:count].tolist():
        rows.jobs["virtual_s"][row] = state.kept_progress.of(*rows.jobs[["serial", "virtual_s"]][row].item())
    for job in held:
        job["virtual_s"] = state.kept_progress.of(int(job["serial"]), float(job["virtual_s"]))
    gone = rows.jobs[lost[:count]]
    serials = np.concatenate([gone["serial"], np.array([job["serial"] for job in held], np.int64)])
    names = np.concatenate([gone["id"], np.array([job["id"] for job in held], np.int64)])
    rows.jobs["speed"][lost[:count]] = 1.0
    for serial in serials.tolist():
        state.speeds.leaves(serial)
        state.event_log.note(state.now_s, Action.LOST, serial, Reason.NODE_LOST)
    return without_nodes(Action.LOST, serials, names, Reason.NODE_LOST)


def _joinable(state: State, event: Join) -> int:
    state.cluster.refuse(event)
    nodes, most = len(state.cluster), state.speeds.most_nodes
    if nodes >= most:
        raise InputError(f"node {nodes}: the farm has {most} nodes, and all have joined")
    return -1


def join(state: State, event: Join, _row: int) -> Steps:
    """A node more. As long as it is closed nobody is asked."""
    cluster = state.cluster
    if not cluster.empty and not cluster.several and event.island != cluster.island[0]:
        # So far there was one island: whoever is paused was there.
        jobs = state.rows.views()[0]
        for job in (*jobs[jobs["state"] == PAUSED], *state.held):
            if job["state"] == PAUSED:
                state.last_islands.note(int(job["serial"]), np.full(int(job["tasks"]), cluster.island[0]))
    cluster.join(event)
    condition = Condition.UP if event.open else Condition.DRAIN
    state.event_log.note(state.now_s, _ACTION_OF[condition], -1, nodes=np.array([len(cluster) - 1]))
    return ON_NODES if event.open else ()


def _resizable(state: State, event: Capacity) -> int:
    state.cluster.refuse(event)
    jobs, first, nodes = state.rows.views()
    here = np.flatnonzero(nodes == event.node)
    if len(here):
        job = jobs["id"][np.searchsorted(first, here[0], side="right") - 1]
        raise InputError(f"node {event.node}: job {job} is on it: its capacity can change only when it is empty")
    if state.held.on(len(state.cluster))[event.node]:
        raise InputError(f"node {event.node}: held jobs are on it: its capacity can change only when it is empty")
    return -1


def resize(state: State, event: Capacity, _row: int) -> Steps:
    """Nobody is asked: the node is closed."""
    state.cluster.resize(event)
    return ()


def leave(state: State, event: CapacityLeft, _row: int) -> Steps:
    """Jobs there have no more together than is left, whether or not the policy changes that."""
    state.cluster.leave(event)
    if state.traits.exclusive:
        return ()
    less = _fit(state, event.node)
    return (less, *ON_NODES) if event.last else (less,)


def _fit(state: State, node: int) -> Commands:
    """Lower the yields of a node's jobs to what is left: what is beyond promises first, then promises; each in parts.

    Promised is the minimum yield, and all of its need to a job that has it for its requested start.
    """
    jobs, first, nodes = state.rows.views()
    room = float(state.cluster.left[node])
    owner = np.searchsorted(first, np.flatnonzero(nodes == node), side="right") - 1
    rows, tasks = np.unique(owner, return_counts=True)
    need, yields = tasks * jobs["need"][rows], jobs["yield_"][rows].copy()
    given = float(need @ yields)
    if given <= room + tolerances.CAPACITY / 2:
        return NOTHING
    whole = state.traits.dedicated & ~np.isnan(jobs["requested_start_s"][rows]) & (yields == 1.0)
    promised = np.where(whole, 1.0, np.minimum(jobs["minimum"][rows], yields))
    kept = float(need @ promised)
    if kept >= room:
        after = promised * (room / kept)
    else:
        after = promised + (yields - promised) * ((room - kept) / (given - kept))
    commands = NOTHING
    for row, yield_ in zip(rows[after < yields].tolist(), after[after < yields].tolist(), strict=True):
        job = state.rows.jobs[int(row)]
        job["yield_"] = yield_
        commands = joined(commands, one(Action.SHARE, job, yield_, Reason.LESS_LEFT))
    state.event_log.append(state.now_s, commands)
    return commands


def set_pauses(state: State, event: PauseAbility, _row: int) -> Steps:
    """Nobody is asked: who is paused there stays so."""
    state.cluster.set_pauses(event)
    return ()


def _countable(state: State, event: NodeResources) -> int:
    if not 0 <= event.node < len(state.cluster):
        raise InputError(f"node {event.node}: there are {len(state.cluster)}")
    refuse_counts(f"node {event.node}", event.counts)
    return -1


def set_resources(state: State, event: NodeResources, _row: int) -> Steps:
    """Who waits for them may come: the policy is asked where anybody may."""
    state.resources.set_node(event.node, event.counts)
    return ON_NODES if state.resources else ()


def _islands(state: State, event: IslandsJoined) -> int:
    if not np.isin([event.island, event.into], state.cluster.island).all() or event.island == event.into:
        raise InputError(f"islands {event.island} and {event.into}: must be two in which there are nodes")
    return -1


def join_islands(state: State, event: IslandsJoined, _row: int) -> Steps:
    """There are more ways than before: the policy is asked."""
    state.cluster.join_islands(event)
    state.last_islands.joined(event.island, event.into)
    return ON_NODES


def _payable(_state: State, event: Prices) -> int:
    for name, seconds in asdict(event).items():
        if not 0.0 <= seconds < math.inf:
            raise InputError(f"{name} = {seconds}: must be a finite number of at least 0")
    return -1


def set_prices(state: State, event: Prices, _row: int) -> Steps:
    """Nobody is asked: they count from the next decision on."""
    state.prices = event
    return ()


def _permissible(state: State, event: Permitted) -> int:
    nodes = event.nodes
    if event.constraint == NONE:
        raise InputError(f"constraint {NONE}: is that of jobs that may use all nodes")
    if not ((nodes >= 0) & (nodes < len(state.cluster))).all() or (nodes[1:] <= nodes[:-1]).any():
        raise InputError(f"nodes {nodes.tolist()}: must be some of {len(state.cluster)} nodes, in ascending order")
    return -1


def permit(state: State, event: Permitted, _row: int) -> Steps:
    """Whoever is on a node stays; others may have more nodes to come to now."""
    state.constraints.permit(event.constraint, event.nodes)
    return ON_NODES if state.constraints.is_used(event.constraint) else ()


HANDLERS = {
    NodeChange: Handler(_known, change),
    Join: Handler(_joinable, join),
    Capacity: Handler(_resizable, resize),
    CapacityLeft: Handler(_known, leave),
    PauseAbility: Handler(_known, set_pauses),
    IslandsJoined: Handler(_islands, join_islands),
    NodeResources: Handler(_countable, set_resources),
    Prices: Handler(_payable, set_prices),
    Permitted: Handler(_permissible, permit),
}
"""By the event."""
