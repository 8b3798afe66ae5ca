"""Another engine that runs jobs, in memory, and a backend over it: no agents, no connections, no processes.

`BatchEngine` stands for a batch system with nodes, a queue and jobs of its own, which outlives controllers.
`BatchBackend` is all that a controller needs to schedule it: an example to begin with for a backend of yours.
"""

from dfrs.testing.batch.backend import BatchBackend
from dfrs.testing.batch.engine import BatchEngine, EngineJob, EngineNode

__all__ = ["BatchBackend", "BatchEngine", "EngineJob", "EngineNode"]
