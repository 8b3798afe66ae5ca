"""What share agents and the controller tell each other of a node that another engine runs jobs on."""

from pydantic import Field

from dfrs.live.protocol.observed import Bytes, Cores, Name, Seconds
from dfrs.live.protocol.resources import ApiModel

MOST_JOBS = 10_000
Number = Field(ge=1, lt=1 << 32)


class JobUse(ApiModel):
    """What one job has used of the node since the agent first saw it. Counters as in `drivers.base.Usage`."""

    number: int = Number
    """The engine's."""
    cpu_s: Seconds
    memory_bytes: Bytes
    watched_s: Seconds
    delayed_s: Seconds
    waiting_s: Seconds


class ShareReport(ApiModel):
    """What an agent says; the answer comes as soon as other shares are wanted than it has, or after a second or so."""

    node: Name
    version: str = Field(default="", max_length=64)
    """Of the shares that it has; empty: none."""
    time_s: Seconds
    """Of the host's monotonic clock."""
    kind: str = Field(max_length=32)
    """By what it gives shares: `cgroup-v1`, `cgroup-v2`; empty: it cannot write them."""
    jobs: tuple[JobUse, ...] = Field(default=(), max_length=MOST_JOBS)


class JobShare(ApiModel):
    """What one job is to have."""

    number: int = Number
    cores: Cores
    """Guaranteed: what is left is for all, in the same proportions."""
    paused: bool = False


class ShareOrders(ApiModel):
    """What all jobs of the node are to have."""

    version: str = Field(max_length=64)
    node_cores: float = Field(gt=0, le=65536)
    jobs: tuple[JobShare, ...] = Field(default=(), max_length=MOST_JOBS)
