"""Which node an agent's token admits, and with how much CPU and memory.

A token is bound to the first node that uses it: its name, its host, and what it offers. From then on it admits nothing
else, so who steals it can be that node only. A token for the controller's machine (`agent.token`) admits any node there
and none elsewhere. Tokens from before this rule admit nodes there too, and elsewhere the nodes that were known by then.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dfrs.live.protocol.errors import NotAdmittedError
from dfrs.live.protocol.resources import TokenInfo
from dfrs.live.protocol.wire import Hello

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Admission:
    """How a node may take part."""

    hello: Hello
    """With no more than it was admitted with."""
    bound: TokenInfo | None = None
    """The token as it is to be recorded first; None: as it is."""


def admit(token: TokenInfo, others: Iterable[TokenInfo], hello: Hello, known: Hello | None, *, here: bool) -> Admission:
    """What the node that says `hello` with `token` may be. Raises NotAdmittedError.

    `others` are all tokens that are in force, `known` is the last hello on record under that name, and `here` says that
    the agent runs on the controller's machine.
    """
    name = hello.node
    owner = next((other for other in others if other.node == name and other.id != token.id), None)
    if owner is not None:
        raise NotAdmittedError(f"node {name}: is admitted with token {owner.id}, and this is token {token.id}")
    if here and token.local is not False:
        return Admission(hello)
    if token.local:
        raise NotAdmittedError(
            f"token {token.id}: is for nodes on the controller's machine; make one for this node: "
            f"dfrs token create {name} --role agent"
        )
    if token.node == name and token.host is not None:
        return Admission(_as_before(token, hello))
    if token.node is None and token.local is None and known is not None and known.host == hello.host:
        return Admission(_within(hello, known.cpus, known.memory_bytes, f"dfrs token create {name} --role agent"))
    if token.node not in {None, name}:
        raise NotAdmittedError(
            f"token {token.id}: is bound to node {token.node}, and this is node {name}; make one for it: "
            f"dfrs token create {name} --role agent"
        )
    return Admission(hello, _bound(token, hello))


def _as_before(token: TokenInfo, hello: Hello) -> Hello:
    """Of a node to which the token is bound. Raises NotAdmittedError for another host."""
    assert token.cpus is not None
    assert token.memory_bytes is not None
    again = f"dfrs token rebind {token.id}"
    if token.host != hello.host:
        raise NotAdmittedError(
            f"token {token.id}: is bound to node {hello.node} on host {token.host}, and this is host {hello.host}; "
            f"if the node has moved: {again}"
        )
    return _within(hello, token.cpus, token.memory_bytes, again)


def _bound(token: TokenInfo, hello: Hello) -> TokenInfo:
    return token.model_copy(
        update={
            "node": hello.node,
            "host": hello.host,
            "cpus": hello.cpus,
            "memory_bytes": hello.memory_bytes,
        }
    )


def _within(hello: Hello, cpus: float, memory_bytes: int, remedy: str) -> Hello:
    """The hello with no more than this, and a note where it offered more."""
    if hello.cpus <= cpus and hello.memory_bytes <= memory_bytes:
        return hello
    note = (
        f"offers {hello.cpus:g} cores and {hello.memory_bytes / GIB:.1f} GiB, and is admitted with {cpus:g} cores and "
        f"{memory_bytes / GIB:.1f} GiB; to admit more: {remedy}"
    )
    abilities = hello.abilities.model_copy(update={"notes": (*hello.abilities.notes, note)})
    least = {"cpus": min(hello.cpus, cpus), "memory_bytes": min(hello.memory_bytes, memory_bytes)}
    return hello.model_copy(update={**least, "abilities": abilities})
