"""Storms: a controller and four nodes to which anything may happen, told by a seed on a loop without real time.

`python -m tests.storms 0:1000` tells these stories and says which went wrong; `python -m tests.storms 8 --trace 7.0.0`
tells one of them, and what became of a task; `python -m tests.storms 8 --shrink` finds the fewest acts that go wrong.
"""

from tests.storms.log import read_log
from tests.storms.run import storm, tell
from tests.storms.story import Storm

__all__ = ["Storm", "read_log", "storm", "tell"]
