"""What a controller decides with is compiled when it is used for the first time, which takes a minute or two.

So a controller that begins uses all of it once, on a cluster that is nobody's, before a job has to wait for that.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np
import structlog

from dfrs.engine.core import Core
from dfrs.engine.events import Complete, Event, Hold, Progressed, Ready, Revise, Submit, Unhold, Wake
from dfrs.model.decisions import CPU, Policy
from dfrs.model.needs import USAGE, Discovery, new_tasks
from dfrs.model.nodes import Condition, NodeChange, NodeLimits

NODES = 2
STEPS = 4
LIMITS = (None, NodeLimits(np.ones(NODES, np.bool_), np.arange(NODES)))
"""Nodes that can do everything, and such that neither free memory nor exchange tasks."""
JOBS = (
    Submit(1, 1, 1.0, 0.3, estimate_s=60.0),
    Submit(2, 2, 0.5, 0.3, estimate_s=60.0),
    Submit(3, 1, 0.5, 0.6, estimate_s=60.0, minimum=0.2),
)
EVENTS: tuple[Event, ...] = (
    *JOBS,
    Ready(np.array([0, 1]), np.array([2.0, 2.0])),
    Progressed(np.array([0]), np.array([1.0])),
    Revise(1, 0.9),
    NodeChange(1, Condition.DOWN),
    NodeChange(1, Condition.UP),
    Hold(1),
    Unhold(1),
    Complete(2),
    Wake(),
)
"""One a second."""

log = structlog.get_logger(__name__)


def use_once(policies: Iterable[Policy], discovery: Discovery) -> None:
    """Have these policies and this discovery decide. What fails here is for their real decisions to say."""
    uses = [partial(_decide, policy, limits) for policy in policies for limits in LIMITS]
    for use in (*uses, partial(_watch, discovery)):
        try:
            use()
        except Exception:
            log.exception("what decides cannot be used in advance")


def _decide(policy: Policy, limits: NodeLimits | None) -> None:
    core = Core(policy, np.ones((NODES, 2)), limits=limits)
    for second, event in enumerate(EVENTS):
        core.handle(event, float(second))


def _watch(discovery: Discovery) -> None:
    # As the controller has it: a column of all that nodes have.
    capacity = np.ones((NODES, 2))[:, CPU]
    capacity.flags.writeable = False
    table = np.concatenate([new_tasks(1, [0]), new_tasks(2, [0, 1]), new_tasks(3, [1], 0.5)])
    usage = np.zeros(len(table), USAGE)
    for name, value in (("seconds", 1.0), ("used_s", 0.5), ("share", 0.5), ("waiting_s", 0.5), ("delayed_s", 0.5)):
        usage[name] = value
    now_s = 0.0
    for _ in range(STEPS):
        revision = discovery.step(now_s, table, usage, capacity)
        table, now_s = revision.table, now_s + 1.0
