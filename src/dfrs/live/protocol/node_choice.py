"""On which nodes a job may run: the names and features that it asks for, and whether a node has them."""

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from dfrs.live.protocol.observed import FEATURE, NodeFacts

if TYPE_CHECKING:
    from dfrs.live.protocol.resources import JobRequest

RULE = 'must be features of nodes with "," or "&" between them for all of these, or with "|" for any of these'
_FEATURE = f" *{FEATURE.strip('^$')} *"
CONSTRAINT = rf"^({_FEATURE}([,&]{_FEATURE})*|{_FEATURE}([|]{_FEATURE})*)?$"
"""What `features` reads, or nothing."""


def features(constraint: str) -> tuple[Sequence[str], bool]:
    """The features of `a,b`, `a&b` (all of these) or `a|b` (any of these), and whether all are needed.

    Raises ValueError for anything else: what both together mean differs from system to system.
    """
    if not constraint or not re.fullmatch(CONSTRAINT, constraint):
        raise ValueError(RULE)
    every = "|" not in constraint
    return [word.strip(" ") for word in re.split("[,&|]", constraint)], every


def asks(request: "JobRequest") -> bool:
    """Whether the job may not run everywhere."""
    return bool(request.nodelist or request.exclude or request.constraint)


def number(request: "JobRequest") -> int:
    """By which the core knows what the job says of nodes: 0 for nothing, the same for jobs that say the same."""
    if not asks(request):
        return 0
    words, every = features(request.constraint) if request.constraint else ((), True)
    said = json.dumps([sorted(set(request.nodelist)), sorted(set(request.exclude)), sorted(set(words)), every])
    return 1 + (int.from_bytes(blake2b(said.encode(), digest_size=8).digest(), "little") >> 2)


def permits(request: "JobRequest", facts: NodeFacts) -> bool:
    """Whether the job may run on that node."""
    if facts.node in request.exclude or (request.nodelist and facts.node not in request.nodelist):
        return False
    if not request.constraint:
        return True
    words, every = features(request.constraint)
    return (all if every else any)(word in facts.features for word in words)


def in_words(request: "JobRequest") -> str:
    """What it says of nodes, as options of `dfrs submit`."""
    parts = [f"--{name} {','.join(names)}" for name in ("nodelist", "exclude") if (names := getattr(request, name))]
    return " ".join([*parts, *([f"--constraint {request.constraint}"] if request.constraint else [])])
