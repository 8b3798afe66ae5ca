"""libvirt hosts, asked by `virsh`: what they are, what runs there, and how much CPU that asks for.

The CPU of a domain is measured between two samples of `domstats`: the time that it ran, and the time that its virtual
CPUs were ready and waited for one. Together they are what it would have used alone, also on an overloaded host.
"""

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.state import ClusterState, Host, Machine, NeedRule, cluster_state
from dfrs.workloads.clusters.virsh import Virsh, VirshError

SAMPLE_S = 2.0
RUNNING, PAUSED = "1", "3"

Stats = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class HostSample:
    """What one host said: itself, its domains' statistics at two times, and their XML."""

    virsh: Virsh
    name: str
    node_info: str
    first: Stats
    second: Stats
    elapsed_s: float
    xml: Mapping[str, str]
    transient: frozenset[str] = frozenset()
    """Domains that are gone once they are shut down."""


def read_libvirt(
    hosts: Sequence[Virsh], need: NeedRule, *, sample_s: float = SAMPLE_S, sizes: Mapping[str, Host] | None = None
) -> ClusterState:
    """The cluster of these hosts, measured for `sample_s` seconds on all of them at once.

    `sizes`: what is known of hosts better than virsh does, by name: how much of them is for machines, their labels, and
    whether they are to be empty. Raises VirshError where a host does not answer; InputError for names that no host has,
    or a machine that runs on two.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        samples = list(pool.map(_sample, hosts, [sample_s] * len(hosts)))
    found = [host_of(s) for s in samples]
    given = sizes or {}
    names = [host.name for host in found]
    if strange := [name for name in given if name not in names]:
        raise InputError(f'host "{strange[0]}": must be the name of a libvirt host: {", ".join(names)}')
    found = [replace(given[host.name], address=host.address) if host.name in given else host for host in found]
    return cluster_state(found, _each_once(samples), need, "libvirt")


def _each_once(samples: Sequence[HostSample]) -> list[Machine]:
    """The machines of all hosts. Both hosts of a migration list its domain: it is where it runs."""
    machines = [(sample, machine) for sample in samples for machine in machines_of(sample)]
    places: dict[str, dict[str, HostSample]] = {}
    for sample, machine in machines:
        places.setdefault(machine.name, {})[sample.name] = sample
    found: list[Machine] = []
    for sample, machine in machines:
        there = places[machine.name]
        if len(there) == 1:
            found.append(machine)
            continue
        running = [s for s in there.values() if s.second[machine.name]["state.state"] == RUNNING]
        if len(running) != 1 or len({_uuid(s.xml.get(machine.name, "")) for s in there.values()}) != 1:
            hosts = " and ".join(there)
            raise InputError(
                f'machine "{machine.name}" is on {hosts}: names must be unique; if it is being migrated, try again'
            )
        if sample is running[0]:
            targets = ", ".join(host for host in there if host != sample.name)
            found.append(replace(machine, fixed=f"is being migrated to {targets}"))
    return found


def _sample(virsh: Virsh, sample_s: float) -> HostSample:
    name = virsh("hostname").strip()
    node_info = virsh("nodeinfo")
    first, began = _stats(virsh)
    xml, failed = _described(virsh, first)
    time.sleep(max(0.0, began + sample_s - time.monotonic()))
    second, ended = _stats(virsh)
    for domain, error in failed.items():
        # One that is gone has ended meanwhile.
        if domain in second:
            raise error
    started, failed = _described(virsh, second.keys() - first.keys())
    second = {domain: stats for domain, stats in second.items() if domain not in failed}
    transient = frozenset(filter(None, map(str.strip, virsh("list", "--name", "--transient").splitlines())))
    return HostSample(virsh, name, node_info, first, second, ended - began, xml | started, transient)


def _described(virsh: Virsh, domains: Iterable[str]) -> tuple[dict[str, str], dict[str, VirshError]]:
    """The XML of each domain, and what was wrong where there is none."""
    xml: dict[str, str] = {}
    failed: dict[str, VirshError] = {}
    for domain in domains:
        try:
            xml[domain] = virsh("dumpxml", domain)
        except VirshError as error:
            failed[domain] = error
    return xml, failed


def _stats(virsh: Virsh) -> tuple[Stats, float]:
    before = time.monotonic()
    text = virsh("domstats", "--state", "--cpu-total", "--vcpu", "--balloon", "--list-active")
    return parse_stats(text), (before + time.monotonic()) / 2


def parse_stats(text: str) -> Stats:
    """Fields by domain, of what `virsh domstats` prints."""
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"Domain: '(.*)'", line.strip()):
            fields = found.setdefault(match[1], {})
        elif "=" in line:
            key, _, value = line.strip().partition("=")
            fields[key] = value
    return found


def host_of(sample: HostSample) -> Host:
    """The host, by what `virsh nodeinfo` prints. Raises VirshError."""
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in sample.node_info.splitlines())}
    cpus = fields.get("CPU(s)", "")
    memory = re.fullmatch(r"(\d+) KiB", fields.get("Memory size", ""))
    if not cpus.isdecimal() or int(cpus) < 1 or memory is None:
        raise VirshError(f"{sample.virsh.uri}: virsh nodeinfo: no CPU(s) and Memory size in its answer")
    return Host(name=sample.name, cores=int(cpus), memory_bytes=int(memory[1]) * 1024.0, address=sample.virsh.uri)


def machines_of(sample: HostSample) -> list[Machine]:
    """The domains that are active; how much CPU one uses that came between the samples is not known."""
    return [
        _machine(sample, name, sample.first.get(name), now)
        for name, now in sample.second.items()
        if now.get("state.state") in {RUNNING, PAUSED}
    ]


def _machine(sample: HostSample, name: str, first: Mapping[str, str] | None, now: Mapping[str, str]) -> Machine:
    before = first or {}

    def grown_s(key: str) -> float:
        return max(0.0, (int(now.get(key, "0")) - int(before.get(key, "0"))) / 1e9)

    vcpus = int(now.get("vcpu.current", "1"))
    waits = [key for key in now if re.fullmatch(r"vcpu\.\d+\.delay", key)]
    asked_s = grown_s("cpu.time") + sum(grown_s(key) for key in waits)
    known = first is not None and "cpu.time" in now and sample.elapsed_s > 0
    memory_kib = float(now.get("balloon.maximum", now.get("balloon.current", "0")))
    return Machine(
        name=name,
        host=sample.name,
        cores=vcpus,
        memory_bytes=memory_kib * 1024.0,
        used_cores=min(float(vcpus), asked_s / sample.elapsed_s) if known else None,
        waits_counted=bool(waits),
        fixed=_fixed(now, sample.xml.get(name, "")),
        persistent=name not in sample.transient,
    )


def _fixed(now: Mapping[str, str], xml: str) -> str:
    if now.get("state.state") == PAUSED:
        return "paused"
    return "uses a device of its host" if _domain(xml).find("devices/hostdev") is not None else ""


def _uuid(xml: str) -> str:
    return _domain(xml).findtext("uuid", "")


def _domain(xml: str) -> ET.Element:
    """What `virsh dumpxml` said, as far as it can be read."""
    try:
        return ET.fromstring(xml)  # noqa: S314 - libvirt wrote it; external entities are never read
    except ET.ParseError:
        return ET.Element("domain")
