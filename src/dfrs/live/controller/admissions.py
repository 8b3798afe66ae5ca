"""Which node a token admits, and with how much CPU and memory and how many named resources.

A token is bound to the first node that uses it: its name, its host, and what it offers. From then on it admits nothing
else, so who steals it can be that node only. Until then it can be any node that is not known, and of the known ones the
one for whose name it was made. A token for the controller's machine (`agent.token`) admits any node there and none
elsewhere. Tokens from before this rule admit nodes there too, and elsewhere the nodes that were known by then.

Refusals do not say on which host a node is: who has stolen a token could say that he is there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

from dfrs.live.errors import NotAdmittedError
from dfrs.live.protocol.observed import NodeFacts
from dfrs.live.protocol.ports import Facts
from dfrs.live.protocol.resources import TokenInfo

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a node has, at most."""

    cpus: float
    memory_bytes: int
    resources: Mapping[str, int]

    def __str__(self) -> str:
        counts = [f"{count} {name}" for name, count in sorted(self.resources.items())]
        return " and ".join([f"{self.cpus:g} cores", f"{self.memory_bytes / GIB:.1f} GiB", *counts])


@dataclass(frozen=True, slots=True)
class Admission(Generic[Facts]):
    """How a node may take part."""

    facts: Facts
    """With no more than it was admitted with."""
    bound: TokenInfo | None = None
    """The token as it is to be recorded first; None: as it is."""


def admit(
    token: TokenInfo, others: Iterable[TokenInfo], facts: Facts, known: NodeFacts | None, *, here: bool
) -> Admission[Facts]:
    """What the node that comes with `token` and says `facts` may be. Raises NotAdmittedError.

    `others` are all tokens that are in force, `known` is what is on record under that name, and `here` says that it is
    on the controller's machine.
    """
    name = facts.node
    owner = next((other for other in others if other.node == name and other.id != token.id), None)
    if owner is not None:
        raise NotAdmittedError(f"node {name}: is admitted with token {owner.id}, and this is token {token.id}")
    if here and token.local is not False:
        return Admission(facts)
    if token.local:
        raise NotAdmittedError(
            f"token {token.id}: is for nodes on the controller's machine; make one for this node: "
            f"dfrs token create {name} --role agent"
        )
    if token.node == name and token.host is not None:
        counts = token.resources
        if counts is None:
            # It was bound before named resources were recorded, or may be bound anew.
            counts = known.resources if known is not None and known.host == facts.host else facts.resources
        limited = token.model_copy(update={"resources": dict(counts)})
        return Admission(_as_before(limited, facts), None if limited == token else limited)
    if token.node is None and token.local is None and known is not None and known.host == facts.host:
        most = Limits(known.cpus, known.memory_bytes, known.resources)
        return Admission(_within(facts, most, f"dfrs token create {name} --role agent"))
    if token.node not in {None, name}:
        raise NotAdmittedError(
            f"token {token.id}: is bound to node {token.node}, and this is node {name}; make one for it: "
            f"dfrs token create {name} --role agent"
        )
    if token.node is None and known is not None and token.user != name:
        raise NotAdmittedError(
            f"node {name}: is known, and token {token.id} was made for {token.user}; make one for this node: "
            f"dfrs token create {name} --role agent"
        )
    return Admission(facts, _bound(token, facts))


def _as_before(token: TokenInfo, facts: Facts) -> Facts:
    """Of a node to which the token is bound. Raises NotAdmittedError for another host."""
    assert token.cpus is not None
    assert token.memory_bytes is not None
    assert token.resources is not None
    again = f"dfrs token rebind {token.id}"
    if token.host != facts.host:
        raise NotAdmittedError(
            f"token {token.id}: is bound to node {facts.node} on another host than this, {facts.host}; "
            f"if the node has moved: {again}"
        )
    return _within(facts, Limits(token.cpus, token.memory_bytes, token.resources), again)


def _bound(token: TokenInfo, facts: NodeFacts) -> TokenInfo:
    return token.model_copy(
        update={
            "node": facts.node,
            "host": facts.host,
            "cpus": facts.cpus,
            "memory_bytes": facts.memory_bytes,
            "resources": dict(facts.resources),
        }
    )


def _within(facts: Facts, most: Limits, remedy: str) -> Facts:
    """The same with no more than this, and a note where it offered more."""
    offered = Limits(facts.cpus, facts.memory_bytes, facts.resources)
    counts = {name: min(count, most.resources.get(name, 0)) for name, count in facts.resources.items()}
    if facts.cpus <= most.cpus and facts.memory_bytes <= most.memory_bytes and counts == facts.resources:
        return facts
    note = f"offers {offered}, and is admitted with {most}; to admit more: {remedy}"
    abilities = facts.abilities.model_copy(update={"notes": (*facts.abilities.notes, note)})
    least = {
        "cpus": min(facts.cpus, most.cpus),
        "memory_bytes": min(facts.memory_bytes, most.memory_bytes),
        "resources": {name: count for name, count in counts.items() if count},
    }
    return facts.model_copy(update={**least, "abilities": abilities})
