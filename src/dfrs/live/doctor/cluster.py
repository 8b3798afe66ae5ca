"""The controller as this machine reaches it: does it answer, is the token good, do clocks and versions agree?"""

import time
from collections.abc import Iterator

from dfrs.live.client import Client, DeniedError, Endpoint
from dfrs.live.doctor.findings import Finding, ok, warning, wrong
from dfrs.live.protocol.resources import Cluster, Node, NodeState, TokenInfo
from dfrs.live.protocol.wire import PROTOCOL
from dfrs.model.errors import DfrsError
from dfrs.version import __version__

NEAR_S, FAR_S = 2.0, 60.0
"""Clocks that are further apart are a warning; than the second, wrong."""
SOON_S = 30 * 86400.0
"""Tokens of nodes that are good for less are a warning."""
TIMEOUT_S = 10.0
_AGENTS = "role agent: "
"""So the answer begins that refuses an agent's token what is for others."""


def controller(endpoint: Endpoint) -> Iterator[Finding]:
    """All that its answers tell."""
    with Client(endpoint, timeout_s=TIMEOUT_S) as client:
        try:
            begun = time.time()
            cluster = client.cluster()
            ended = time.time()
        except DeniedError as error:
            yield ok("controller", f"{endpoint.url} answers")
            yield from _health(client)
            if str(error).startswith(_AGENTS):
                yield ok("token", "is good: role agent, which reads nothing: nodes and versions are not checked")
                return
            yield wrong("token", str(error), "ask an admin for another: dfrs token create USER")
            return
        except DfrsError as error:
            yield wrong("controller", str(error), "start it (dfrs up, dfrs serve), or name another with --server")
            return
        yield ok("controller", f"{endpoint.url} answers: cluster {cluster.name}")
        yield from _health(client)
        me = client.me()
        yield ok("token", f"is good: {me['user']}, role {me['role']}")
        yield from _clock(cluster, begun, ended)
        yield from _versions(cluster, client.nodes())
        if me["role"] == "admin":
            yield from _tokens(client.tokens(), cluster.now)


def _health(client: Client) -> Iterator[Finding]:
    wrong_with_it = client.health()
    if wrong_with_it is None:
        yield ok("controller's health", "well")
    else:
        yield wrong("controller's health", wrong_with_it, "see its log; where it names the database, free its disk")


def _clock(cluster: Cluster, begun: float, ended: float) -> Iterator[Finding]:
    """The clocks' difference is known to within the time that the answer took."""
    apart_s = max(0.0, begun - cluster.now, cluster.now - ended)
    found = f"{apart_s:.1f} s from the controller's, to within {ended - begun:.1f} s"
    mend = "let both machines set their clocks (chrony, systemd-timesyncd)"
    if apart_s > FAR_S:
        yield wrong("clock", found, mend)
    elif apart_s > NEAR_S:
        yield warning("clock", found, mend)
    else:
        yield ok("clock", found)


def _versions(cluster: Cluster, nodes: list[Node]) -> Iterator[Finding]:
    if cluster.version == __version__:
        yield ok("versions", f"dfrs {__version__} here and there; protocol {PROTOCOL} of agents")
    else:
        found = f"dfrs {__version__} here, {cluster.version} there"
        yield warning("versions", found, "install the controller's version here")
    others = [node for node in nodes if node.connected and node.version not in {"", cluster.version}]
    if others:
        names = ", ".join(f"{node.name} ({node.version})" for node in others[:5])
        yield wrong("agents", f"{names}: not of the controller's version", f"install dfrs {cluster.version} there")
    away = [node for node in nodes if node.state not in {NodeState.UP, NodeState.DRAINING}]
    for node in away[:10]:
        found = f"{node.name}: {node.state.value}{': ' if node.problem else ''}{node.problem}"
        yield warning("nodes", found, "see the agent's log there, or run dfrs doctor on it")
    if not others and not away:
        yield ok("nodes", f"{len(nodes)} connected, none of another version" if nodes else "none has joined")


def _tokens(tokens: list[TokenInfo], now: float) -> Iterator[Finding]:
    """Nodes that will be lost since what admits them expires."""
    check = "tokens of nodes"
    in_use = [token for token in tokens if token.node is not None and not token.revoked and token.expires_at > now]
    soon = sorted((token for token in in_use if token.expires_at < now + SOON_S), key=lambda token: token.expires_at)
    for token in soon[:10]:
        until = time.strftime("%Y-%m-%d", time.localtime(token.expires_at))
        found = f"{token.node}: token {token.id} expires on {until}, and its node is lost then"
        another = f"dfrs token create {token.node} --role agent --lasts 3650d"
        yield warning(check, found, f"{another}; then revoke token {token.id}, and start the agent with the new one")
    if not soon:
        yield ok(check, f"{len(in_use)} in use, none expires within 30 days" if in_use else "none is in use")
