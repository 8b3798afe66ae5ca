"""A plan as commands of the tools that run the machines, to be read, and run by hand or by a shell."""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from dfrs.model.text import visible
from dfrs.rebalancing.mover import Migration
from dfrs.rebalancing.virsh_mover import OPTIONS, migrate_options
from dfrs.workloads.clusters.state import ClusterState

Tool = Literal["virsh", "proxmox", "openstack"]
TOOLS: tuple[Tool, ...] = ("virsh", "proxmox", "openstack")


def command_lines(
    moves: Sequence[Migration], state: ClusterState, tool: Tool, options: Sequence[str] = (), left: Sequence[str] = ()
) -> list[str]:
    """A shell script that stops at the first failure: a line for each move, in an order that is always possible.

    Moves that may run side by side are one below the other; `options` go to each command. Comments at the top say what
    is `left` to do after it.
    """
    # libvirt knows domains by name; what another tool calls them is not its.
    id_of = {} if tool == "virsh" else {m.name: m.id or m.name for m in state.machines}
    address_of = {h.name: h.address for h in state.hosts}
    transient = {m.name for m in state.machines if not m.persistent}
    make = _MAKERS[tool]
    lines = ["#!/bin/sh", "set -eu", *(_comment(line) for line in left)]
    for k, move in enumerate(in_order(moves), start=1):
        lines.append(_comment(f"{k}: {move.machine}: {move.source} to {move.target}"))
        given = options
        if tool == "virsh":
            given = migrate_options(options or OPTIONS, move.target, persistent=move.machine not in transient)
        words = make(move, id_of.get(move.machine, move.machine), address_of, given)
        lines.append(shlex.join(words))
    return lines


def _comment(text: str) -> str:
    """One line of a script: what comes after the end of a line in a name would be run."""
    return f"# {visible(text)}"


def in_order(moves: Iterable[Migration]) -> list[Migration]:
    """Moves one after another, such that each begins after all that must have ended before it."""
    # Whoever ends first goes first: all that end before another begins come before it.
    return sorted(moves, key=lambda m: (m.start_s, m.end_s))


def _virsh(move: Migration, name: str, address: Mapping[str, str], options: Sequence[str]) -> list[str]:
    source, target = (address.get(h) or f"qemu+ssh://{h}/system" for h in (move.source, move.target))
    return ["virsh", "-c", source, "migrate", *options, name, target]


def _proxmox(move: Migration, vmid: str, address: Mapping[str, str], options: Sequence[str]) -> list[str]:
    # Without -n ssh would read the rest of a script that comes to the shell by a pipe.
    host = address.get(move.source) or move.source
    return ["ssh", "-n", host, "qm", "migrate", vmid, move.target, "--online", *options]


def _openstack(move: Migration, server: str, address: Mapping[str, str], options: Sequence[str]) -> list[str]:
    # The client's own version of the API, 2.1, has no target of a live migration.
    client = ["openstack", "--os-compute-api-version", "2.30", "server", "migrate", "--live-migration"]
    return [*client, "--host", move.target, "--wait", *options, server]


_MAKERS: Mapping[Tool, Callable[[Migration, str, Mapping[str, str], Sequence[str]], list[str]]] = {
    "virsh": _virsh,
    "proxmox": _proxmox,
    "openstack": _openstack,
}
