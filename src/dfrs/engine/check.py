"""Trust no plan: whether a policy's target can be performed, in one line if not."""

from collections import Counter
from numbers import Real

import numpy as np

from dfrs.kernels import reconcile as kernels
from dfrs.model import tolerances
from dfrs.model.decisions import PolicyError, Reason, Snapshot, Target
from dfrs.model.named_resources import NamedResources

_ROW_RULES = {
    kernels.BAD_YIELD: "would have yield {yield_}: must be in [0, 1]",
    kernels.BAD_NODE: "would run on node {node}: there are {nodes}",
    kernels.PARTLY_PLACED: "would have only some of its tasks on nodes: all or none",
    kernels.IDLE_YIELD: "would have yield {yield_} without nodes",
    kernels.BAD_REASON: "has a reason out of 0 to {last_reason}",
}
_NODE_RULES = {
    kernels.MEMORY_OVER: "node {node} would hold more memory than it has",
    kernels.CPU_OVER: "node {node} would give out more CPU than it has",
}

_LAST_REASON = int(max(Reason))


def check(snapshot: Snapshot, target: object) -> None:
    """Raise PolicyError where `target` has the wrong shape or is not admissible for `snapshot`."""
    if not isinstance(target, Target):
        raise PolicyError(None, f"gave {type(target).__name__}: must be a Target")
    _check_shape("task_nodes", target.task_nodes, snapshot.task_nodes)
    _check_shape("yields", target.yields, snapshot.jobs["yield_"])
    if np.size(target.reasons):
        _check_shape("reasons", target.reasons, snapshot.jobs["id"])
    wake_at_s = target.wake_at_s
    if wake_at_s is not None and not (isinstance(wake_at_s, Real) and wake_at_s > snapshot.now_s):
        raise PolicyError(None, f"wants to be woken at {target.wake_at_s}, which is not after {snapshot.now_s}")
    code, row, node = kernels.admissible(
        snapshot.jobs,
        snapshot.first,
        target.task_nodes,
        target.yields,
        target.reasons,
        _LAST_REASON,
        snapshot.capacity,
        tolerances.CAPACITY,
    )
    if code == kernels.OK:
        return
    if code in _ROW_RULES:
        rule = _ROW_RULES[code].format(
            yield_=target.yields[row], node=node, nodes=len(snapshot.capacity), last_reason=_LAST_REASON
        )
        raise PolicyError(int(snapshot.jobs["id"][row]), rule)
    on_it = [
        r for r in range(len(snapshot.jobs)) if node in target.task_nodes[snapshot.first[r] : snapshot.first[r + 1]]
    ]
    raise PolicyError(int(snapshot.jobs["id"][on_it[-1]]), f"is one too many: {_NODE_RULES[code].format(node=node)}")


def check_permitted(snapshot: Snapshot, target: Target) -> None:
    """Raise PolicyError where a task of an admissible `target` would come to a node that its job may not use."""
    if snapshot.permitted is None:
        return
    slots = target.task_nodes
    rows = np.repeat(np.arange(len(snapshot.jobs)), snapshot.jobs["tasks"])
    outside = (slots >= 0) & ~snapshot.permitted[rows, slots]
    for row in dict.fromkeys(rows[outside].tolist()):
        begin, end = snapshot.first[row], snapshot.first[row + 1]
        stay, be = Counter(snapshot.task_nodes[begin:end].tolist()), Counter(slots[begin:end].tolist())
        node = next((each for each in be - stay if not snapshot.permitted[row, each]), None)
        if node is not None:
            raise PolicyError(int(snapshot.jobs["id"][row]), f"would come to node {node}, which it may not use")


def check_resources(snapshot: Snapshot, target: Target) -> None:
    """Raise PolicyError where tasks would have more of a named resource than a node has, or come to a job alone there.

    What was so before is no fault of the target.
    """
    named = None if snapshot.abilities is None else snapshot.abilities.named
    if named is None:
        return
    before, after = _tenants(snapshot, snapshot.task_nodes), _tenants(snapshot, target.task_nodes)
    for node, rows in enumerate(after):
        had, has = _users(named, before[node]), _users(named, rows)
        for k, name in enumerate(named.names):
            if has[k] > max(named.counts[node, k] - named.held[node, k], had[k]):
                raise PolicyError(None, f"would use {has[k]} {name} of node {node}, which has {named.counts[node, k]}")
        come = set(rows) - set(before[node])
        lone = {row for row in rows if named.alone[row]}
        mixed = named.shut[node] or (lone and len(set(rows)) > 1) or (come & lone and named.inhabited[node])
        if come and mixed:
            raise PolicyError(
                int(snapshot.jobs["id"][min(come)]), f"would be on node {node} with one that is alone there"
            )


def _tenants(snapshot: Snapshot, slots: np.ndarray) -> list[list[int]]:
    """By node, the row of each task there."""
    there: list[list[int]] = [[] for _ in snapshot.capacity]
    for row in range(len(snapshot.jobs)):
        for node in slots[snapshot.first[row] : snapshot.first[row + 1]].tolist():
            if node >= 0:
                there[node].append(row)
    return there


def _users(named: NamedResources, rows: list[int]) -> list[int]:
    """(K,) what tasks of these rows have together."""
    return [sum(int(named.claims[row, k]) for row in rows) for k in range(len(named.names))]


def _check_shape(label: str, given: object, wanted: np.ndarray) -> None:
    if not isinstance(given, np.ndarray) or given.shape != wanted.shape or given.dtype != wanted.dtype:
        described = f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise PolicyError(None, f"gave {label} as {described}: must be an array {wanted.dtype} {wanted.shape}")
