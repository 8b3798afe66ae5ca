"""A Proxmox VE cluster: what `pvesh get /cluster/resources --output-format json` lists, or its API's `data`.

`cpu` of a guest is what it uses as a fraction of its `maxcpu`; memory is `maxmem`, what it may take. Containers and
guests that are locked stay where they are: a container has no live migration.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.records import Record, shown
from dfrs.workloads.clusters.state import ClusterState, Host, Machine, NeedRule, cluster_state

GUESTS = ("qemu", "lxc")


def is_proxmox(document: object) -> bool:
    """Whether a JSON document is such a list."""
    entries = _entries(document)
    return bool(entries) and all(isinstance(e, Mapping) and "type" in e and "id" in e for e in entries)


def read_proxmox(document: object, source: str, need: NeedRule) -> ClusterState:
    """Online nodes and running guests. Raises InputError, naming entry, field, value and rule."""
    records = [Record(e, f"{source}: [{k}]") for k, e in enumerate(_entries(document))]
    nodes = [record for record in records if record.text("type") == "node"]
    online = [record for record in nodes if record.text("status") == "online"]
    hosts = [
        Host(
            name=record.text("node"),
            cores=record.number("maxcpu", above=0),
            memory_bytes=record.number("maxmem", above=0),
            open=record.text("hastate", "") != "maintenance",
        )
        for record in online
    ]
    known = {host.name for host in hosts}
    guests = [r for r in records if r.text("type") in GUESTS and not r.number("template", 0.0)]
    running = [r for r in guests if r.text("status") == "running"]
    for record in running:
        if record.text("node") not in {node.text("node") for node in nodes}:
            raise InputError(f"{record.where}: node = {shown(record.raw('node'))}: must be a node of the list")
    notes: list[str] = []
    if len(online) < len(nodes):
        gone = ", ".join(r.text("node") for r in nodes if r not in online)
        notes.append(f"left out with what they run, since they are not online: {gone}")
    stopped = len(guests) - len(running)
    if stopped:
        notes.append(f"{stopped} of {len(guests)} guests do not run: left out")
    return cluster_state(hosts, [_guest(r) for r in running if r.text("node") in known], need, source, notes)


def _guest(record: Record) -> Machine:
    cores = record.number("maxcpu", above=0)
    vmid = record.text("vmid")
    kind = record.text("type")
    lock = record.text("lock", "")
    labels = {"pool": record.text("pool", "")}
    # Tags are separated by semicolons, in older versions by commas or spaces.
    tags = record.text("tags", "").replace(",", ";").replace(" ", ";")
    labels |= {f"tag:{tag}": "yes" for tag in tags.split(";") if tag}
    return Machine(
        name=record.text("name", f"{kind}/{vmid}"),
        id=vmid,
        host=record.text("node"),
        cores=cores,
        memory_bytes=record.number("maxmem", above=0),
        used_cores=record.number("cpu") * cores if "cpu" in record else None,
        fixed="containers do not move while they run" if kind == "lxc" else f"locked: {lock}" if lock else "",
        labels={name: value for name, value in labels.items() if value},
    )


def _entries(document: object) -> Sequence[object]:
    inner = document.get("data") if isinstance(document, Mapping) else document
    return cast("Sequence[object]", inner) if isinstance(inner, list) else ()
