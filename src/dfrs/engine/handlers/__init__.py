"""A handler for each kind of event: whether it can be true, what it changes, and what the policy is asked then."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dfrs.engine.handlers import amendments, commands, holds, jobs, nodes, pauses
from dfrs.engine.handlers.handler import Handler

HANDLERS: Mapping[type[Any], Handler] = MappingProxyType(
    {**jobs.HANDLERS, **amendments.HANDLERS, **holds.HANDLERS, **commands.HANDLERS, **nodes.HANDLERS, **pauses.HANDLERS}
)
"""By the event's type. A new kind of event is a line in its module's table."""
