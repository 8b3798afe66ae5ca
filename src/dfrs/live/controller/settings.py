"""How a controller is set up."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dfrs.live.protocol.quotas import Quotas


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """What an operator chooses. Names of policies are only told to users: the objects are given beside them."""

    database: str = field(repr=False)
    """URL as SQLAlchemy takes it; it may hold a password."""
    standby: bool = False
    """Whether it waits as long as another controller leads."""
    cluster: str = "dfrs"
    policy: str = ""
    discovery: str = "NONE"
    discovery_settings: Mapping[str, float] = field(default_factory=dict[str, float])
    shadow: str | None = None
    default_memory_bytes: int = 256 << 20
    """Requirement of a task whose user gave none."""
    report_s: float = 1.0
    """Between two reports of an agent."""
    silent_s: float = 15.0
    """Without a report for so long, a node gets nothing new."""
    lost_s: float = 180.0
    """Without a report for so long, a node's jobs are lost."""
    start_s: float = 60.0
    """A task that a node has not started after so long is started elsewhere, and the node gets no jobs for a while."""
    reference_cores: float | None = None
    """CPU of the reference node; None: of those that joined first, the largest."""
    reference_bytes: int | None = None
    command_limit: int | None = None
    checkpoint_events: int = 5000
    """The state is stored after so many events, and every `checkpoint_s`."""
    checkpoint_s: float = 300.0
    keep_s: float | None = None
    """Events, activity, points of history and ended jobs that are older are pruned; None: nothing is."""
    archive: Path | None = None
    """Directory to which what is pruned is written before; None: it is only deleted."""
    quotas: Quotas | None = None
    """What users may have; None: no limits."""
    fair_share_s: float | None = None
    """Half-life of what was used, where weights depend on that; None: they do not."""
    notify: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = field(default_factory=dict, repr=False)
    """Ways in which users are told of their jobs, by name, each as `outbox.Send`; none: they are not."""
    clock: Callable[[], float] = time.time
    """Wall clock: what users are told. It may be set, forward and back."""
    steady: Callable[[], float] = time.monotonic
    """Seconds that only pass: by these the core's time goes on, and silence is measured."""
