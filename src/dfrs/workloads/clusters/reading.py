"""Reading a snapshot: the files that are given say by their content what they are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.document import FORMAT, read_cluster_document, read_instance_and_allocation
from dfrs.workloads.clusters.openstack import Part, part_of, read_openstack
from dfrs.workloads.clusters.proxmox import is_proxmox, read_proxmox
from dfrs.workloads.clusters.sheets import read_sheets
from dfrs.workloads.clusters.state import ClusterState, NeedRule
from dfrs.workloads.files import read_json

FORMS = (
    f"a {FORMAT} file, an instance and an allocation, CSV files of hosts and machines, a Proxmox list of resources, "
    "or OpenStack lists of hypervisors, servers and flavors"
)


def read_cluster(paths: Sequence[Path], need: NeedRule) -> ClusterState:
    """The state of the cluster that these files describe. Raises InputError, naming file, field, value and rule."""
    if not paths:
        raise InputError(f"no snapshot: give {FORMS}")
    sheets = [path for path in paths if path.suffix.lower() in {".csv", ".tsv"}]
    if sheets:
        _alike(paths, sheets, "a CSV file")
        return read_sheets(paths, need)
    documents = [(path, read_json(path)) for path in paths]
    path, document = documents[0]
    if is_proxmox(document):
        _alike(paths, paths[:1], "a Proxmox list")
        return read_proxmox(document, str(path), need)
    if isinstance(document, dict) and document.get("format") == FORMAT:
        _alike(paths, paths[:1], f"a {FORMAT} file")
        return read_cluster_document(cast("dict[str, object]", document), str(path))
    formats = {str(d.get("format")): p for p, d in documents if isinstance(d, Mapping) and "format" in d}
    if formats:
        return _pair(paths, formats)
    return read_openstack(_parts(documents), need)


def _pair(paths: Sequence[Path], formats: Mapping[str, Path]) -> ClusterState:
    wanted = ("dfrs-instance/1", "dfrs-allocation/1")
    for name, path in formats.items():
        if name not in (*wanted, FORMAT):
            raise InputError(f'{path}: format = "{name}": must be {FORMAT}, or {wanted[0]} and {wanted[1]}')
    if set(formats) != set(wanted) or len(paths) != 2:
        files = ", ".join(map(str, paths))
        raise InputError(
            f"{files}: must be one {FORMAT} file, or two: {wanted[0]}, and {wanted[1]} for what runs where"
        )
    return read_instance_and_allocation(formats[wanted[0]], formats[wanted[1]])


def _parts(documents: Sequence[tuple[Path, object]]) -> Mapping[Part, tuple[str, object]]:
    found: dict[Part, tuple[str, object]] = {}
    for path, document in documents:
        part = part_of(document)
        if part is None:
            raise InputError(f"{path}: not a snapshot that is known: must be {FORMS}")
        if part in found:
            raise InputError(f"{path}: {part} stand in {found[part][0]} too: give them once")
        found[part] = (str(path), document)
    return found


def _alike(paths: Sequence[Path], expected: Sequence[Path], what: str) -> None:
    for path in paths:
        if path not in expected:
            raise InputError(f"{path}: cannot go with {expected[0]}, which is {what}")
