"""An OpenStack cloud from two or three JSON documents: hypervisors, servers, and flavors if servers only name theirs.

Each may be what `openstack hypervisor list --long`, `server list --all-projects --long` and `flavor list --all` print
with `-f json`, or what the compute API answers: `/os-hypervisors/detail`, `/servers/detail` and `/flavors/detail`. None
of them says how much CPU servers use: the need is what they were allocated.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.records import Record, shown
from dfrs.workloads.clusters.state import ClusterState, Host, Machine, NeedRule, cluster_state

Part = Literal["hypervisors", "servers", "flavors"]

HOST = ("OS-EXT-SRV-ATTR:hypervisor_hostname", "OS-EXT-SRV-ATTR:host", "Host")


def part_of(document: object) -> Part | None:
    """Which of the three a JSON document is; None if it is none."""
    if isinstance(document, Mapping):
        for part in ("hypervisors", "servers", "flavors"):
            if isinstance(document.get(part), list):
                return part
        return None
    first = document[0] if isinstance(document, list) and document else None
    if not isinstance(first, Mapping):
        return None
    if "Hypervisor Hostname" in first:
        return "hypervisors"
    if "RAM" in first and "VCPUs" in first:
        return "flavors"
    return "servers" if {"ID", "Name", "Status"} <= first.keys() else None


def read_openstack(documents: Mapping[Part, tuple[str, object]], need: NeedRule) -> ClusterState:
    """Hypervisors that are up and active servers; `documents` are (file, content) by part. Raises InputError."""
    for part in ("hypervisors", "servers"):
        if part not in documents:
            given = ", ".join(source for source, _ in documents.values())
            raise InputError(f"{given}: {part} are missing: give the file with them too")
    hosts, down = _hosts(_records(documents, "hypervisors"))
    flavors = {
        name: record
        for record in _records(documents, "flavors")
        for name in (record.text(record.first("id", "ID")), record.text(record.first("name", "Name")))
    }
    servers = _records(documents, "servers")
    source = documents["servers"][0]
    known = {host.name for host in hosts} | set(down)
    active = [r for r in servers if r.text(r.first("status", "Status")) == "ACTIVE"]
    machines = [_server(record, flavors, known) for record in active]
    notes: list[str] = []
    if down:
        notes.append(f"left out with what they run, since they are not up: {', '.join(down)}")
    if len(active) < len(servers):
        notes.append(f"{len(servers) - len(active)} of {len(servers)} servers are not ACTIVE: left out")
    return cluster_state(hosts, [m for m in machines if m.host not in down], need, source, notes)


def _records(documents: Mapping[Part, tuple[str, object]], part: Part) -> list[Record]:
    if part not in documents:
        return []
    source, document = documents[part]
    wrapped = isinstance(document, Mapping)
    entries = cast("Sequence[object]", document[part] if wrapped else document)
    name = part if wrapped else ""
    return [Record(entry, f"{source}: {name}[{k}]") for k, entry in enumerate(entries)]


def _hosts(records: Sequence[Record]) -> tuple[list[Host], list[str]]:
    """Hosts, and names of those that are down."""
    hosts: list[Host] = []
    down: list[str] = []
    for record in records:
        name = record.text(record.first("hypervisor_hostname", "Hypervisor Hostname"))
        if record.text(record.first("state", "State"), "up") != "up":
            down.append(name)
            continue
        service = record.raw("service")
        disabled = record.text("status", "enabled") == "disabled"
        zone = str(service.get("availability_zone", "")) if isinstance(service, Mapping) else ""
        hosts.append(
            Host(
                name=name,
                cores=record.number(record.first("vcpus", "vCPUs"), above=0),
                memory_bytes=record.number(record.first("memory_mb", "Memory MB"), above=0) * (1 << 20),
                open=not disabled,
                labels={"zone": zone} if zone else {},
            )
        )
    return hosts, down


def _server(record: Record, flavors: Mapping[str, Record], hosts: set[str]) -> Machine:
    size = _flavor(record, flavors)
    named = record.text(record.first(*HOST))
    # The service's host is a short name where the hypervisor has its full one.
    host = named if named in hosts else next((h for h in hosts if h.partition(".")[0] == named), named)
    metadata = record.raw(record.first("metadata", "Properties"))
    return Machine(
        name=record.text(record.first("name", "Name")),
        id=record.text(record.first("id", "ID")),
        host=host,
        cores=size.number(size.first("vcpus", "VCPUs"), above=0),
        memory_bytes=size.number(size.first("ram", "RAM"), above=0) * (1 << 20),
        labels={str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, Mapping) else {},
    )


def _flavor(record: Record, flavors: Mapping[str, Record]) -> Record:
    inside = record.raw("flavor")
    if isinstance(inside, Mapping) and "vcpus" in inside:
        return Record(inside, f"{record.where}: flavor")
    names = [inside.get("id"), inside.get("original_name")] if isinstance(inside, Mapping) else []
    names += [record.raw(name) for name in ("Flavor ID", "Flavor", "Flavor Name", "flavor")]
    texts = [name for name in names if isinstance(name, str) and name]
    for name in texts:
        if name in flavors:
            return flavors[name]
    if not texts:
        raise InputError(f"{record.where}: no flavor: must have one")
    raise InputError(f"{record.where}: flavor = {shown(texts[0])}: must be a flavor of a file that you give")
