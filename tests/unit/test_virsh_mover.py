"""Moves by virsh, with a script in its place that keeps domains in directories, one for each host."""

import os
import subprocess
import threading

import pytest

from dfrs.model.errors import InputError
from dfrs.rebalancing.commands import command_lines
from dfrs.rebalancing.mover import Migration, MigrationError, Stop, carry_out
from dfrs.rebalancing.virsh_mover import VirshMover
from dfrs.workloads.clusters.libvirt import read_libvirt
from dfrs.workloads.clusters.reading import read_cluster
from dfrs.workloads.clusters.state import Host, NeedRule
from dfrs.workloads.clusters.virsh import Virsh, VirshError
from tests.unit.test_cluster_snapshots import EXAMPLES

FAKE = r"""#!/bin/sh
# test://HOST: domains are files in $ROOT/HOST; a domain "hard" refuses, "slow" takes until it is aborted.
root=ROOT; uri=$2; here=$root/${uri#test://}; shift 2
echo "$uri $*" >> $root/log
[ -d "$here" ] || { echo "error: failed to connect" >&2; exit 1; }
case $1 in
hostname) basename $here ;;
nodeinfo) printf 'CPU(s):              4\nMemory size:         8388608 KiB\n' ;;
list) case "$*" in *--transient*) grep -ls 'Persistent: *no' $here/* | xargs -rn 1 basename ;; *) ls $here ;; esac ;;
dominfo) cat $here/$2 ;;
dumpxml) cat $root/xml.${here##*/}.$2 2>/dev/null || echo '<domain/>' ;;
domstats)
  for d in $(ls $here); do
    s=$(cat $root/state.${here##*/}.$d 2>/dev/null || echo 1)
    n=$(cat $root/ticks.${here##*/}.$d 2>/dev/null || echo 0); echo $((n + 5000000)) > $root/ticks.${here##*/}.$d
    printf "Domain: '%s'\n  state.state=%s\n  cpu.time=%s\n" $d $s $n
    printf "  balloon.maximum=1048576\n  vcpu.current=1\n  vcpu.0.delay=0\n"
  done ;;
domjobabort) touch $root/abort.$2 ;;
migrate)
  while [ $# -gt 2 ]; do shift; done
  [ "$1" = hard ] && { echo 'error: internal error: disk is local' >&2; exit 1; }
  if [ "$1" = slow ]; then
    for k in $(seq 1000); do
      [ -e $root/abort.$1 ] && { rm $root/abort.$1; echo 'error: operation aborted' >&2; exit 1; }
      sleep 0.02
    done
  fi
  mv $here/$1 $root/${2#test://}/$1 ;;
esac
"""


@pytest.fixture
def hosts(tmp_path):
    return fake_hosts(tmp_path)


def fake_hosts(tmp_path):
    """Three hosts by name, with a virsh in `tmp_path`."""
    for name, domains in (("h1", ("a", "hard", "slow")), ("h2", ("b",)), ("h3", ())):
        (tmp_path / name).mkdir()
        for domain in domains:
            (tmp_path / name / domain).write_text("Persistent:     yes\n" if domain == "a" else "Persistent:     no\n")
    tool = tmp_path / "virsh"
    tool.write_text(FAKE.replace("ROOT", str(tmp_path)))
    tool.chmod(0o755)
    (tmp_path / "log").touch()
    return {name: Virsh(f"test://{name}", 10.0, (str(tool),)) for name in ("h1", "h2", "h3")}


def calls(tmp_path):
    return (tmp_path / "log").read_text().splitlines()


def move(machine, source, target):
    return Migration(machine=machine, source=source, target=target, start_s=0.0, end_s=1.0)


def test_a_domain_is_migrated_and_stays_persistent_where_it_was(hosts, tmp_path):
    mover = VirshMover(hosts=hosts, options=("--live", "--migrateuri", "tcp://{host}"))
    assert carry_out([move("a", "h1", "h3"), move("b", "h2", "h3")], mover).complete
    assert mover.where() == {"a": "h3", "b": "h3", "hard": "h1", "slow": "h1"}
    sent = [line for line in calls(tmp_path) if " migrate " in line]
    assert "test://h1 migrate --live --migrateuri tcp://h3 --persistent --undefinesource a test://h3" in sent
    assert "test://h2 migrate --live --migrateuri tcp://h3 b test://h3" in sent


def test_shares_are_set_where_domains_are(hosts, tmp_path):
    VirshMover(hosts=hosts).set_shares({"a": 10_000, "b": 2, "gone": 5})
    sent = [line for line in calls(tmp_path) if " schedinfo " in line]
    assert sent == [
        "test://h1 schedinfo a --live --set cpu_shares=10000",
        "test://h2 schedinfo b --live --set cpu_shares=2",
    ]


def test_what_virsh_says_is_what_the_failure_says(hosts):
    ended = carry_out([move("hard", "h1", "h2")], VirshMover(hosts=hosts))
    assert ended.failure == "hard: h1 to h2: internal error: disk is local"
    assert ended.where == {"hard": "h1"}


def test_a_migration_is_aborted_when_asked_or_when_it_takes_too_long(hosts):
    mover, stop, ended = VirshMover(hosts=hosts), Stop(), []
    thread = threading.Thread(target=lambda: ended.append(carry_out([move("slow", "h1", "h2")], mover, stop=stop)))
    thread.start()
    stop.ask()
    stop.ask()
    thread.join(20)
    assert ended[0].where == {"slow": "h1"}
    with pytest.raises(MigrationError, match=r"not done within 0\.1 s: operation aborted"):
        VirshMover(hosts=hosts, timeout_s=0.1).move(move("slow", "h1", "h2"))


def test_a_snapshot_of_hosts_measures_what_domains_use(hosts):
    sizes = {"h2": Host(name="h2", cores=1.0, memory_bytes=2.0**32)}
    state = read_libvirt(list(hosts.values()), NeedRule(margin=0.0), sample_s=0.2, sizes=sizes)
    assert state.instance.nodes == ("h1", "h2", "h3")
    assert [h.cores for h in state.hosts] == [4, 1, 4]
    assert state.instance.services == ("a", "hard", "slow", "b")
    assert 0.0 < state.machines[0].used_cores <= 0.025


def test_printed_commands_move_domains_as_the_mover_does(hosts, tmp_path):
    """Also with options of the user's, and a domain that is not persistent stays so."""
    state = read_libvirt(list(hosts.values()), NeedRule(margin=0.0), sample_s=0.0)
    moves, options = [move("a", "h1", "h3"), move("b", "h2", "h3")], ("--p2p", "--persistent", "{host}")
    assert carry_out(moves, VirshMover(hosts=hosts, options=options)).complete
    sent = [f"virsh -c {line}" for line in calls(tmp_path) if " migrate " in line]
    assert sorted(command_lines(moves, state, "virsh", options)[3::2]) == sorted(sent)
    assert [line.split()[4:-2] for line in sent if "--undefinesource" not in line] == [["--p2p", "--persistent", "h3"]]


def test_hosts_of_a_file_may_be_in_maintenance_and_must_be_there(hosts):
    sizes = {"h2": Host(name="h2", cores=4.0, memory_bytes=2.0**33, empty=True, labels={"rack": "r1"})}
    state = read_libvirt(list(hosts.values()), NeedRule(), sample_s=0.1, sizes=sizes)
    assert state.hosts[1] == Host(
        name="h2", cores=4.0, memory_bytes=2.0**33, empty=True, labels={"rack": "r1"}, address="test://h2"
    )
    assert state.instance.rules.problems(state.present) == ["rules[0] maintenance nodes=h2: b on h2"]
    with pytest.raises(InputError, match='host "h9": must be the name of a libvirt host: h1, h2, h3'):
        read_libvirt(
            list(hosts.values()), NeedRule(), sample_s=0.1, sizes={"h9": Host(name="h9", cores=1, memory_bytes=1)}
        )


def test_a_domain_that_ends_while_it_is_measured_is_left_out(hosts, tmp_path):
    tool = tmp_path / "virsh"
    ends = f"dumpxml) [ $2 = slow ] && rm {tmp_path}/h1/slow && {{ echo 'error: no domain' >&2; exit 1; }};"
    tool.write_text(tool.read_text().replace("dumpxml)", ends))
    state = read_libvirt(list(hosts.values()), NeedRule(), sample_s=0.1)
    assert state.instance.services == ("a", "hard", "b")
    tool.write_text(tool.read_text().replace("= slow ] && rm", "= hard ] && test -e").replace("h1/slow", "h1/hard"))
    with pytest.raises(VirshError, match="test://h1: virsh dumpxml: no domain"):
        read_libvirt(list(hosts.values()), NeedRule(), sample_s=0.1)


def test_a_domain_that_starts_while_it_is_measured_has_its_memory_and_needs_its_cpus(hosts, tmp_path):
    tool = tmp_path / "virsh"
    starts = f"dumpxml) [ $2 = slow ] && echo 'Persistent:     no' > {tmp_path}/h1/new;"
    tool.write_text(tool.read_text().replace("dumpxml)", starts))
    state = read_libvirt(list(hosts.values()), NeedRule(), sample_s=0.1)
    (new,) = [machine for machine in state.machines if machine.name == "new"]
    assert (new.host, new.memory_bytes, new.used_cores, new.cores) == ("h1", 2.0**30, None, 1)
    assert not new.persistent
    # One that starts and ends meanwhile.
    (tmp_path / "h1" / "new").unlink()
    tool.write_text(
        tool.read_text().replace("dumpxml)", "dumpxml) [ $2 = new ] && { echo 'error: no domain' >&2; exit 1; };")
    )
    assert "new" not in read_libvirt(list(hosts.values()), NeedRule(), sample_s=0.1).instance.services


def test_a_domain_that_is_being_migrated_is_where_it_runs(hosts, tmp_path):
    def read():
        return read_libvirt(list(hosts.values()), NeedRule(), sample_s=0.1)

    (tmp_path / "h2" / "a").touch()
    (tmp_path / "state.h2.a").write_text("3")
    state = read()
    assert [(m.name, m.host) for m in state.machines] == [("a", "h1"), ("hard", "h1"), ("slow", "h1"), ("b", "h2")]
    assert state.machines[0].fixed == "is being migrated to h2"
    # Two that only have the same name.
    (tmp_path / "xml.h2.a").write_text("<domain><uuid>1</uuid></domain>")
    with pytest.raises(InputError, match='machine "a" is on h1 and h2: names must be unique; if it is being migrated'):
        read()
    (tmp_path / "xml.h2.a").unlink()
    (tmp_path / "state.h2.a").unlink()
    with pytest.raises(InputError, match='machine "a" is on h1 and h2'):
        read()


def test_commands_of_each_tool():
    state = read_cluster([EXAMPLES / "proxmox.json"], NeedRule())
    moves = [move("web-a", "pve1", "pve2")]
    assert command_lines(moves, state, "proxmox")[2:] == [
        "# 1: web-a: pve1 to pve2",
        "ssh -n pve1 qm migrate 100 pve2 --online",
    ]
    assert command_lines(moves, state, "virsh")[3] == (
        "virsh -c qemu+ssh://pve1/system migrate --live --persistent --undefinesource web-a qemu+ssh://pve2/system"
    )
    names = [EXAMPLES / f"openstack-{part}.json" for part in ("hypervisors", "servers", "flavors")]
    cloud = read_cluster(names, NeedRule())
    line = command_lines([move("db", "compute2.example", "compute3.example")], cloud, "openstack")[3]
    assert line.startswith(
        "openstack --os-compute-api-version 2.30 server migrate --live-migration "
        "--host compute3.example --wait 00000000-"
    )


def test_a_script_that_comes_by_a_pipe_makes_all_moves(tmp_path):
    """This ssh reads its standard input unless it is told not to, where bash leaves the rest of the script."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\n[ "$1" = -n ] || cat > /dev/null\necho "$*" >> {tmp_path}/log\n')
    ssh.chmod(0o755)
    state = read_cluster([EXAMPLES / "proxmox.json"], NeedRule())
    script = command_lines([move("web-a", "pve1", "pve2"), move("web-b", "pve1", "pve3")], state, "proxmox")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash"], input="\n".join(script), text=True, check=True, env=path)
    assert calls(tmp_path) == [
        "-n pve1 qm migrate 100 pve2 --online",
        "-n pve1 qm migrate 101 pve3 --online",
    ]


def test_a_name_with_the_end_of_a_line_stays_a_comment():
    state = read_cluster([EXAMPLES / "proxmox.json"], NeedRule())
    lines = command_lines([], state, "proxmox", left=["not kept: a\nreboot"])
    assert lines == ["#!/bin/sh", "set -eu", r"# not kept: a\nreboot"]
