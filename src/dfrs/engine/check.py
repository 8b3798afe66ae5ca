"""Trust no plan: whether a policy's target can be performed, in one line if not."""

from collections import Counter
from numbers import Real

import numpy as np

from dfrs.kernels import reconcile as kernels
from dfrs.model import tolerances
from dfrs.model.decisions import PolicyError, Reason, Snapshot, Target

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


def _check_shape(label: str, given: object, wanted: np.ndarray) -> None:
    if not isinstance(given, np.ndarray) or given.shape != wanted.shape or given.dtype != wanted.dtype:
        described = f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise PolicyError(None, f"gave {label} as {described}: must be an array {wanted.dtype} {wanted.shape}")
