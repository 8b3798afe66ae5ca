"""Snapshots of clusters in the forms that others write: what is read, and what is said of bad ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.document import add_rules_file, cluster_document
from dfrs.workloads.clusters.libvirt import HostSample, host_of, machines_of, parse_stats
from dfrs.workloads.clusters.reading import read_cluster
from dfrs.workloads.clusters.state import Host, Machine, NeedRule, cluster_state
from dfrs.workloads.clusters.virsh import Virsh, VirshError, last_line, split_uris

EXAMPLES = Path(__file__).parents[2] / "examples" / "rebalance"
USED, ALLOCATED = NeedRule(), NeedRule(by="allocated")
GIB = 2**30


def read(*names, need=USED):
    return read_cluster([EXAMPLES / name for name in names], need)


def machine(state, name):
    """Index of a machine."""
    return state.instance.services.index(name)


def host_name(state, name):
    return state.instance.nodes[state.present[machine(state, name)]]


def test_csv_gives_fractions_of_the_largest_host():
    state = read("hosts.csv", "machines.csv")
    instance = state.instance
    assert [r.name for r in instance.resources] == ["memory", "cpu"]
    assert instance.capacity.tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 1], [0.5, 0.5]]
    i = machine(state, "web-1")
    assert instance.need[i] == pytest.approx([8 / 128, min(4, 3.6 * 1.2) / 32])
    assert instance.task_bytes[i] == 8 * GIB
    assert host_name(state, "ci-2") == "gamma"
    assert instance.labels[2]["rack"] == "r2"
    assert state.notes == ("CPU of alpha is used up: machines there may need more than they use",)


def test_what_is_allocated_can_be_the_need():
    state = read("hosts.csv", "machines.csv", need=ALLOCATED)
    assert state.instance.need[machine(state, "wiki"), 1] == pytest.approx(2 / 32)


def test_one_file_with_both_sections_says_the_same(tmp_path):
    whole = tmp_path / "all.csv"
    hosts, machines = ((EXAMPLES / f"{name}.csv").read_text() for name in ("hosts", "machines"))
    whole.write_text(f"[hosts],,,\n{hosts}\n[machines],,,,\n{machines}")
    one, two = read_cluster([whole], USED), read("hosts.csv", "machines.csv")
    assert one.instance.services == two.instance.services
    assert (one.instance.need == two.instance.need).all()
    assert (one.present == two.present).all()


def test_columns_have_the_names_and_units_that_spreadsheets_have(tmp_path):
    (tmp_path / "h.csv").write_text("Host;CPUs;Memory (GB)\nh1;8;32\nh2;8;32,5\n")
    (tmp_path / "m.csv").write_text(
        "VM;Host;vCPUs;Memory MB;CPU used %;Powerstate;owner\na;h1;4;4096;50;poweredOn;x\n"
        "b;h2;2;2048;10%;poweredOff;y\nc;;1;1024;;;\n"
    )
    state = read_cluster([tmp_path / "m.csv", tmp_path / "h.csv"], USED)
    assert state.instance.services == ("a", "c")
    assert state.present.tolist() == [0, -1]
    assert state.machines[0].used_cores == 2.0
    assert state.machines[0].memory_bytes == 4 * GIB
    assert state.machines[0].labels == {"owner": "x"}
    assert state.hosts[1].memory_bytes == 32.5 * GIB
    assert any("1 of 3 machines are off" in note for note in state.notes)
    assert any("not known" in note for note in state.notes)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("CPU share", "0.25"),
        ("CPU share", "25%"),
        ("CPU share (%)", "25"),
        ("used share percent", "25"),
        ("CPU used %", "25"),
        ("cpu_used", "25 %"),
        ("cpu_used", "1"),
    ],
)
def test_what_a_machine_uses_is_cores_or_a_share_or_a_percentage(tmp_path, column, cell):
    (tmp_path / "h.csv").write_text("name,cpu,memory\nh,8,32G\n")
    (tmp_path / "m.csv").write_text(f"name,host,cpu,memory,{column}\na,h,4,1G,{cell}\n")
    assert read_cluster([tmp_path / "m.csv", tmp_path / "h.csv"], USED).machines[0].used_cores == 1.0


@pytest.mark.parametrize(
    ("hosts", "machines", "words"),
    [
        ("name,cpu,memory\nh,8,32G\n", "name,host,cpu,memory\na,x,1,1G\n", ["m.csv", '"a"', '"x"', "must be a host"]),
        ("name,cpu,memory\nh,-1,32G\n", "name,host,cpu,memory\na,h,1,1G\n", ["h.csv:2", "cpu", '"-1"', "above 0"]),
        ("name,cpu,memory\nh,8,32\n", "name,host,cpu,memory\na,h,1,1G\n", ["h.csv:2", "memory", "with a unit"]),
        ("name,cpu,memory\nh,8,32G\n", "name,host,cpu\na,h,1\n", ["m.csv:1", "no column memory"]),
        ("name,cpu,memory\nh,8,32G\n", "name,host,cpu,memory\na,h,1\n", ["m.csv:2", "3 cells", "must be 4"]),
        ("name,cpu,memory\nh,8,32G\n", "name,cpu,memory\na,1,1G\n", ["2 tables of hosts", "one of each"]),
        ("name,cpu,memory\nh,8,32G\nh,8,32G\n", "name,host,cpu,memory\na,h,1,1G\n", ['"h"', "stands twice"]),
        ("name,cpu,memory\nh,8,32G\n", "name,host,cpu,memory\na,h,1,1G\na,h,1,1G\n", ['"a"', "stands twice"]),
        ("name,cpu,memory,cpu\nh,8,32G,1\n", "name,host,cpu,memory\na,h,1,1G\n", ["h.csv:1", "cpu", "twice"]),
        ("name,cpu,memory\n", "name,host,cpu,memory\na,h,1,1G\n", ["h.csv:1", "without rows"]),
        ("name,cpu,Memory (%)\nh,8,50\n", "name,host,cpu,memory\na,h,1,1G\n", ["h.csv:1", '"Memory (%)"', "K, M, G"]),
        ("name,cpu,memory\nh,8,32G\n", "name,host,CPU %,memory\na,h,35,1G\n", ["m.csv:1", '"CPU %"', "not be"]),
        ("name,cpu,memory\nh,8,32G\n", "name,host,cpu,memory,cpu_used\na,h,1,1G,many\n", ["cpu_used", '"many"']),
    ],
)
def test_bad_csv_is_refused_in_one_line(tmp_path, hosts, machines, words):
    (tmp_path / "h.csv").write_text(hosts)
    (tmp_path / "m.csv").write_text(machines)
    with pytest.raises(InputError) as caught:
        read_cluster([tmp_path / "h.csv", tmp_path / "m.csv"], USED)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_proxmox_guests_that_run():
    state = read("proxmox.json")
    assert state.instance.nodes == ("pve1", "pve2", "pve3")
    i = machine(state, "web-a")
    assert state.machines[i].used_cores == pytest.approx(0.92 * 4)
    assert state.machines[i].id == "100"
    assert state.machines[i].labels == {"pool": "front", "tag:web": "yes"}
    assert "old" not in state.instance.services
    assert any("1 of 10 guests do not run" in note for note in state.notes)
    assert any("containers do not move" in note and "dns" in note for note in state.notes)


def test_a_container_stays_where_it_is():
    state = read("proxmox.json")
    rules = state.instance.rules
    moved = state.present.copy()
    moved[machine(state, "dns")] = 0
    assert rules.problems(state.present) == []
    assert "dns stays" in rules.problems(moved)[0]


def test_the_answer_of_the_proxmox_api_is_the_same(tmp_path):
    entries = json.loads((EXAMPLES / "proxmox.json").read_text())
    (tmp_path / "api.json").write_text(json.dumps({"data": entries}))
    assert (read_cluster([tmp_path / "api.json"], USED).instance.need == read("proxmox.json").instance.need).all()


def test_proxmox_guests_of_one_name_are_told_apart_and_offline_nodes_left_out(tmp_path):
    entries = json.loads((EXAMPLES / "proxmox.json").read_text())
    guests = {e.get("name"): e for e in entries}
    guests["web-b"]["name"] = "web-a"
    next(e for e in entries if e["id"] == "node/pve3")["status"] = "offline"
    (tmp_path / "p.json").write_text(json.dumps(entries))
    state = read_cluster([tmp_path / "p.json"], USED)
    assert {"web-a (100)", "web-a (101)"} <= set(state.instance.services)
    assert state.instance.nodes == ("pve1", "pve2")
    assert any("pve3" in note for note in state.notes)


def test_bad_proxmox_entries_are_named(tmp_path):
    entries = json.loads((EXAMPLES / "proxmox.json").read_text())
    entries[4]["maxcpu"] = "four"
    (tmp_path / "p.json").write_text(json.dumps(entries))
    with pytest.raises(InputError, match=r'p\.json: \[4\]: maxcpu = "four": must be a number above 0'):
        read_cluster([tmp_path / "p.json"], USED)


def test_openstack_lists_of_the_client():
    state = read("openstack-hypervisors.json", "openstack-servers.json", "openstack-flavors.json")
    assert state.instance.nodes == ("compute1.example", "compute2.example", "compute3.example")
    assert host_name(state, "cron") == "compute3.example"
    assert state.instance.need[machine(state, "api-1")] == pytest.approx([16 / 64, 8 / 16])
    assert any("not known" in note for note in state.notes)


def test_openstack_answers_of_the_api(tmp_path):
    hypervisors = [
        {"hypervisor_hostname": "c1", "vcpus": 8, "memory_mb": 8192, "state": "up", "status": "enabled", "service": {}},
        {"hypervisor_hostname": "c2", "vcpus": 8, "memory_mb": 8192, "state": "up", "status": "disabled"},
        {"hypervisor_hostname": "c3", "vcpus": 8, "memory_mb": 8192, "state": "down", "status": "enabled"},
    ]
    server = {"status": "ACTIVE", "OS-EXT-SRV-ATTR:hypervisor_hostname": "c1", "metadata": {"tier": "1"}}
    servers = [
        server | {"id": "a", "name": "a", "flavor": {"vcpus": 2, "ram": 1024, "original_name": "s"}},
        server | {"id": "b", "name": "b", "flavor": {"id": "7"}},
        server | {"id": "c", "name": "c", "flavor": {"id": "7"}, "status": "SHUTOFF"},
        server | {"id": "d", "name": "d", "flavor": {"id": "7"}, "OS-EXT-SRV-ATTR:hypervisor_hostname": "c3"},
    ]
    flavors = [{"id": "7", "name": "m", "vcpus": 4, "ram": 2048}]
    for name, entries in (("hypervisors", hypervisors), ("servers", servers), ("flavors", flavors)):
        (tmp_path / f"{name}.json").write_text(json.dumps({name: entries}))
    paths = [tmp_path / f"{name}.json" for name in ("servers", "flavors", "hypervisors")]
    state = read_cluster(paths, USED)
    assert state.instance.services == ("a", "b")
    assert state.instance.need[:, 1].tolist() == [2 / 8, 4 / 8]
    assert state.machines[0].labels == {"tier": "1"}
    rules = state.instance.rules
    assert rules.problems(np.array([0, 0])) == []
    assert "c2 gets nothing more" in rules.problems(np.array([0, 1]))[0]
    with pytest.raises(InputError, match=r'servers\.json: servers\[1\]: flavor = "7": must be a flavor'):
        read_cluster([paths[0], paths[2]], USED)
    with pytest.raises(InputError, match="hypervisors are missing"):
        read_cluster(paths[:2], USED)


def test_our_own_document_is_read_back(tmp_path):
    state = read("hosts.csv", "machines.csv")
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster_document(state)))
    again = read_cluster([path], USED)
    assert again.instance.services == state.instance.services
    assert again.instance.need == pytest.approx(state.instance.need)
    assert (again.present == state.present).all()
    document = json.loads(path.read_text())
    document["placement"]["mail"] = ["nowhere"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r'placement\."mail"\[0\] = "nowhere": no such node'):
        read_cluster([path], USED)


def test_what_is_no_snapshot_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[1, 2]")
    with pytest.raises(InputError, match=r"x\.json: not a snapshot that is known"):
        read_cluster([tmp_path / "x.json"], USED)
    (tmp_path / "i.json").write_text('{"format": "dfrs-instance/1"}')
    with pytest.raises(InputError, match="dfrs-allocation/1 for what runs where"):
        read_cluster([tmp_path / "i.json"], USED)
    with pytest.raises(InputError, match="cannot go with"):
        read_cluster([EXAMPLES / "hosts.csv", tmp_path / "i.json"], USED)
    with pytest.raises(InputError, match="cannot read"):
        read_cluster([tmp_path / "none.json"], USED)


STATS = """Domain: 'busy'
  state.state=1
  state.reason=1
  cpu.time={busy}
  balloon.current=1048576
  balloon.maximum=1048576
  vcpu.current=2
  vcpu.maximum=2
  vcpu.0.state=1
  vcpu.0.time=0
  vcpu.0.delay={waited}
  vcpu.1.state=1
  vcpu.1.delay=0

Domain: 'still'
  state.state=3
  cpu.time=5000000000
  balloon.current=524288
  vcpu.current=1
"""
NODE_INFO = "CPU model:           x86_64\nCPU(s):              4\nMemory size:         16777216 KiB\n"


def sample(xml=None):
    first = parse_stats(STATS.format(busy=10_000_000_000, waited=1_000_000_000))
    second = parse_stats(STATS.format(busy=11_000_000_000, waited=2_000_000_000))
    return HostSample(Virsh("qemu:///system"), "h1", NODE_INFO, first, second, 2.0, xml or {})


def test_a_domain_asks_for_what_it_used_and_what_it_waited_for():
    assert host_of(sample()) == Host(name="h1", cores=4, memory_bytes=16 * GIB, address="qemu:///system")
    busy, still = machines_of(sample())
    assert busy == Machine(
        name="busy", host="h1", cores=2, memory_bytes=GIB, used_cores=pytest.approx(1.0), waits_counted=True
    )
    assert still.fixed == "paused"
    assert still.used_cores == 0.0


def test_a_domain_with_a_device_of_its_host_stays():
    xml = "<domain><devices><hostdev mode='subsystem' type='pci'/></devices></domain>"
    assert machines_of(sample({"busy": xml}))[0].fixed == "uses a device of its host"
    assert machines_of(sample({"busy": "<domain><devices/></domain>"}))[0].fixed == ""


def test_a_host_that_hides_demand_is_named():
    hosts = [Host(name="h", cores=2, memory_bytes=8 * GIB)]
    full = Machine(name="m", host="h", cores=2, memory_bytes=GIB, used_cores=1.95)
    assert any("used up" in note for note in cluster_state(hosts, [full], USED, "x").notes)
    assert not cluster_state(hosts, [full], ALLOCATED, "x").notes


def test_virsh_is_called_with_its_uri_and_speaks_in_one_line(tmp_path):
    tool = tmp_path / "virsh"
    tool.write_text(
        '#!/bin/sh\n[ "$3" = good ] && { echo "$@"; exit 0; }\n[ "$3" = slow ] && exec sleep 5\n'
        'echo "error: first" >&2; echo "error: no such domain" >&2; exit 1\n'
    )
    tool.chmod(0o755)
    virsh = Virsh("test:///x", 0.5, (str(tool),))
    assert virsh("good") == "-c test:///x good\n"
    with pytest.raises(VirshError, match=r"^test:///x: virsh bad: no such domain$"):
        virsh("bad")
    with pytest.raises(VirshError, match="no answer within"):
        virsh("slow")
    with pytest.raises(InputError, match="is not installed"):
        Virsh("test:///x", 1.0, ("no-such-virsh",))("list")
    assert last_line("") == "failed and did not say why"


def test_uris_are_checked():
    assert split_uris("qemu:///system, qemu+ssh://h/system") == ["qemu:///system", "qemu+ssh://h/system"]
    for bad in ("", "host2"):
        with pytest.raises(InputError, match="--libvirt"):
            split_uris(bad)


def test_rules_of_a_file_are_added(tmp_path):
    state = read("hosts.csv", "machines.csv")
    instance = add_rules_file(state.instance, EXAMPLES / "rules.json")
    # shop-db-1 on alpha and shop-db-2 on beta share rack r1; alpha has three web servers.
    broken = instance.rules.problems(state.present)
    assert [line.partition(" ")[0] for line in broken] == ["rules[0]", "rules[1]"]
    bad = tmp_path / "rules.json"
    bad.write_text('{"format": "dfrs-rules/1", "rules": [{"kind": "never", "services": ["mali"], "nodes": ["beta"]}]}')
    with pytest.raises(InputError, match=r'rules\.json: rules\[0\]\.services: "mali" matches no service'):
        add_rules_file(state.instance, bad)
    proxmox = read("proxmox.json").instance
    with pytest.raises(InputError, match=r"rules\.json: rules\[0\]\.nodes"):
        add_rules_file(proxmox, bad)
