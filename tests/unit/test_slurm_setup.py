"""`dfrs slurm install`, `check`, `uninstall` and `give-back`: what is read of Slurm's files, what hinders, what is
changed, and which jobs go on.
"""

import json

import pytest

from dfrs.live.backends.slurm import port
from dfrs.live.backends.slurm.setup.conf_file import expand, read_conf
from dfrs.live.backends.slurm.setup.edits import restored
from dfrs.model.errors import InputError
from tests.slurm_fake import FakeSlurm

SITE = """# A site's own
ClusterName=c1
slurmctldhost = head   # in any case, with spaces
SelectType=select/linear
TaskPlugin=task/affinity,task/cgroup
JobSubmitPlugins=require_timelimit
NodeName=DEFAULT CPUs=4 \\
  RealMemory=8000
NodeName=n[1-3],gpu1
Include parts.conf
MailProg="/usr/bin/my mail"
"""
PARTS = """PartitionName=DEFAULT State=UP OverSubscribe=EXCLUSIVE
PartitionName=main Nodes=n[1-3] \\
   Default=YES \\
   MaxTime=INFINITE
PartitionName=gpu Nodes=gpu1
selecttype=select/cons_res
"""
CGROUP = "ConstrainCores=yes\nConstrainRAMSpace=yes\n"


@pytest.fixture
def site(tmp_path):
    (tmp_path / "slurm.conf").write_text(SITE)
    (tmp_path / "parts.conf").write_text(PARTS)
    (tmp_path / "cgroup.conf").write_text(CGROUP)
    return tmp_path


@pytest.fixture
def slurm(dfrs, site):
    """A verb on the site's files."""
    return lambda verb, *words: dfrs("slurm", verb, "--conf", site / "slurm.conf", *words)


def texts(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if ".before-dfrs" not in path.name}


def test_a_file_is_read_as_slurm_reads_it(site):
    conf = read_conf(site / "slurm.conf")
    assert conf.get("SlurmctldHost") == "head"
    assert conf.get("MailProg") == "/usr/bin/my mail"
    value, line = conf.setting("SelectType")
    assert (value, line.file.name, line.first) == ("select/cons_res", "parts.conf", 6)
    main = conf.managed(None)
    assert (main.name, main.get("Shared", "OverSubscribe")) == ("main", "EXCLUSIVE")
    assert (main.line.first, main.line.last) == (2, 4)
    assert conf.nodes(main) == {"n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Prolog=/a # \\\nEpilog=/b\n", "/a"),
        ("Prolog=/a\\#b\n", "/a#b"),
        ("Prolog=\\\n/a\n", "/a"),
        ("Prolog=/a \\  \nEpilog=/b", "/a"),
        ("PROLOG=/a\nProlog=/b\n", "/b"),
        ("#Prolog=/a\n", ""),
        ("Epilog=/b Prolog=/a", "/a"),
        ("NodeName=n1 Prolog=/a", ""),
    ],
)
def test_continuations_comments_and_doubles(tmp_path, text, value):
    (tmp_path / "slurm.conf").write_text(text)
    assert read_conf(tmp_path / "slurm.conf").get("Prolog") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ClusterName=c\n=x\n", ':2: "=x": must be KEY=VALUE'),
        ("Some words\n", ':1: "Some words": must be KEY=VALUE'),
        ("Include slurm.conf\n", ":1: Include: must not be 21 deep"),
        ("Include none.conf\n", "none.conf: cannot read: No such file or directory"),
        ("PartitionName=a Nodes=n1\nPartitionName=b Nodes=n2\n", "must have one partition, or a default one"),
        ("PartitionName=a Nodes=n[1-\nSlurmUser=root", 'nodes "n[1-": must be such as n[1-4,7]'),
        ('PartitionName="a\'b" Nodes=n1\nSlurmUser=root', 'partition "a\'b": must be letters'),
        ("PartitionName=a Nodes=n1\nSlurmUser=nobody-there", 'user "nobody-there": must be an account'),
    ],
)
def test_what_cannot_be_read_is_one_line(dfrs, tmp_path, text, message):
    (tmp_path / "slurm.conf").write_text(text)
    status, shown, error = dfrs("slurm", "check", "--conf", tmp_path / "slurm.conf")
    assert (status, shown, error.count("\n")) == (2, "", 1)
    assert message in error


def test_names_of_nodes():
    assert expand("n[1-3,07],gpu,r[1-2]c[8-9]") == ["n1", "n2", "n3", "n07", "gpu", "r1c8", "r1c9", "r2c8", "r2c9"]
    assert expand("n[08-10]") == ["n08", "n09", "n10"]
    with pytest.raises(InputError, match="must be such as"):
        expand("n[3-x]")


def found(slurm, *words):
    status, shown, _ = slurm("check", "--json", *words)
    answer = json.loads(shown)
    assert status == (1 if answer["wrong"] else 0)
    return {each["check"]: each for each in answer["findings"]}


def test_what_hinders_is_named_with_its_line_and_what_to_do(slurm):
    each = found(slurm)
    wrong = {check for check, one in each.items() if one["verdict"] == "wrong"}
    assert wrong == {
        "slurm.conf: SelectType",
        "slurm.conf: TaskPlugin",
        "cgroup.conf: ConstrainCores",
        "slurm.conf: JobSubmitPlugins",
        "partition main: OverSubscribe",
        "dfrs.lua",
        "job_submit.lua",
    }
    assert each["slurm.conf: SelectType"]["found"].endswith("parts.conf:6)")
    assert each["slurm.conf: TaskPlugin"]["mend"].startswith("TaskPlugin=task/cgroup: ")
    assert each["slurm.conf: JobSubmitPlugins"]["mend"].startswith("JobSubmitPlugins=require_timelimit,lua: ")


@pytest.mark.parametrize(
    ("line", "check", "verdict"),
    [
        ("PreemptMode=SUSPEND,GANG", "slurm.conf: PreemptMode", "wrong"),
        ("PreemptMode=REQUEUE PreemptType=preempt/qos", "slurm.conf: PreemptMode", "wrong"),
        ("PartitionName=all Nodes=ALL", "partition main: Nodes", "wrong"),
        ("NodeSet=some Nodes=n2\nPartitionName=sets Nodes=some", "partition main: Nodes", "wrong"),
        ("PartitionName=rest Nodes=n4", "partition main: Nodes", "ok"),
        ("DefMemPerCPU=100", "partition main: memory", "ok"),
        ("NodeName=DEFAULT MemSpecLimit=500\nNodeName=n2", "partition main: MemSpecLimit", "wrong"),
        ("ClusterName=x", "partition main: memory", "warning"),
        ("SchedulerParameters=bf_continue,defer", "slurm.conf: SchedulerParameters", "warning"),
        ("SuspendProgram=/off", "slurm.conf: SuspendProgram", "warning"),
        ("MinJobAge=10", "slurm.conf: MinJobAge", "warning"),
        ("ProctrackType=proctrack/linuxproc", "slurm.conf: ProctrackType", "wrong"),
        ("SelectTypeParameters=CR_Core", "slurm.conf: SelectTypeParameters", "wrong"),
        ("SelectTypeParameters=CR_Core_Memory", "slurm.conf: SelectTypeParameters", "warning"),
        ("JobRequeue=0", "slurm.conf: JobRequeue", "ok"),
    ],
)
def test_a_line_that_hinders(slurm, site, line, check, verdict):
    with (site / "slurm.conf").open("a") as file:
        file.write(f"{line}\n")
    assert found(slurm)[check]["verdict"] == verdict


FEATURES = """NodeName=n0
NodeName=DEFAULT Features=big,fast
NodeName=DEFAULT RealMemory=8000
NodeName=n[1-2]
NodeName=n3 Feature=slow
NodeSet=quick Feature=fast
NodeSet=rest Feature=slow Nodes=n0
PartitionName=main Nodes=quick
PartitionName=rest Nodes=rest
"""


def test_a_set_of_nodes_has_those_with_its_feature(slurm, site):
    """One of the partition is no reason to call it empty, and one of another partition no reason to call it alone."""
    (site / "slurm.conf").write_text(FEATURES)
    conf = read_conf(site / "slurm.conf")
    assert conf.nodes(conf.managed("main")) == {"n1", "n2"}
    assert conf.nodes(conf.managed("rest")) == {"n0", "n3"}
    assert found(slurm, "--partition", "main")["partition main: Nodes"]["verdict"] == "ok"
    (site / "slurm.conf").write_text(FEATURES.replace("slow", "big"))
    assert found(slurm, "--partition", "main")["partition main: Nodes"]["found"] == "shared with rest"


def test_memory_that_slurm_keeps_is_named_by_its_nodes(slurm, site):
    with (site / "slurm.conf").open("a") as file:
        file.write("NodeName=n[1-3] MemSpecLimit=0\nNodeName=gpu1 MemSpecLimit=500\n")
    assert "partition main: MemSpecLimit" not in found(slurm)
    each = found(slurm, "--partition", "gpu")["partition gpu: MemSpecLimit"]
    assert (each["verdict"], each["found"]) == ("wrong", "on gpu1")
    (site / "slurm.conf").write_text("NodeName=n[1-9] MemSpecLimit=500\nPartitionName=main Nodes=ALL\n")
    assert found(slurm)["partition main: MemSpecLimit"]["found"] == "on n1, n2, n3, n4, n5 and 4 more"


def test_nothing_is_changed_unasked(slurm, site):
    before = texts(site)
    status, shown, _ = slurm("install")
    assert status == 0
    assert "Nothing is written" in shown
    assert texts(site) == before
    assert slurm("check")[0] == 1
    assert texts(site) == before
    slurm("uninstall")
    assert texts(site) == before


def test_what_is_installed_is_well_and_goes_again(slurm, site):
    before = texts(site)
    status, shown, _ = slurm("install", "--yes")
    assert status == 0
    assert "was copied to slurm.conf.before-dfrs" in shown
    assert (site / "slurm.conf.before-dfrs").read_text() == SITE
    assert not {check for check, one in found(slurm).items() if one["verdict"] == "wrong"}
    conf = read_conf(site / "slurm.conf")
    assert conf.get("SelectType") == "select/cons_tres"
    assert conf.get("JobSubmitPlugins") == "require_timelimit,lua"
    assert conf.managed("main").get("OverSubscribe") == "FORCE:64"
    assert conf.managed("main").get("MaxTime") == "INFINITE"
    assert conf.managed("gpu").get("OverSubscribe") == "EXCLUSIVE"

    installed = texts(site)
    assert "nothing has to change" in slurm("install", "--yes")[1]
    assert texts(site) == installed

    # What others have changed meanwhile stays.
    (site / "slurm.conf").write_text("MinJobAge=400\n" + installed["slurm.conf"])
    assert "dfrs slurm give-back --partition main --yes\n" in slurm("uninstall", "--yes")[1]
    assert texts(site) == before | {"slurm.conf": "MinJobAge=400\n" + SITE}
    assert "has nothing of dfrs" in slurm("uninstall", "--yes")[1]


def test_a_second_partition_is_refused_as_the_first_ones_jobs_would_no_longer_be_held(slurm, site):
    assert slurm("install", "--partition", "main", "--yes")[0] == 0
    installed = texts(site)
    for more in ((), ("--yes",)):
        status, _, said = slurm("install", "--partition", "gpu", *more)
        assert status == 2
        assert f"{site}/job_submit.lua: is for partition main: dfrs decides for one" in said
    assert slurm("check", "--partition", "gpu")[0] == 1
    assert texts(site) == installed
    assert slurm("uninstall", "--yes")[0] == 0
    assert slurm("install", "--partition", "gpu", "--yes")[0] == 0
    assert 'partition = "gpu"' in (site / "job_submit.lua").read_text()


def test_what_is_taken_back_is_handed_back_in_the_partition_that_was_installed(slurm, site):
    """Jobs of the default partition, which dfrs never had, are none of its business."""
    assert slurm("install", "--partition", "gpu", "--yes")[0] == 0
    installed = texts(site)
    status, _, error = slurm("uninstall", "--partition", "main", "--yes")
    assert (status, error) == (2, f"dfrs: {site}/job_submit.lua: is for partition gpu, not for main\n")
    assert texts(site) == installed
    status, shown, _ = slurm("uninstall", "--yes")
    assert status == 0
    assert shown.endswith("  dfrs slurm give-back --partition gpu --yes\n")


def test_a_script_of_the_site_does_not_say_which_partition_is_handed_back(slurm, site):
    (site / "job_submit.lua").write_text("return slurm.SUCCESS\n")
    assert slurm("install", "--partition", "gpu", "--yes")[0] == 0
    installed = texts(site)
    status, _, error = slurm("uninstall", "--yes")
    assert status == 2
    assert "does not say for which partition dfrs decided: name it with --partition" in error
    assert texts(site) == installed
    status, shown, _ = slurm("uninstall", "--partition", "gpu", "--yes")
    assert (status, "give-back --partition gpu " in shown) == (0, True)


def test_files_are_written_elsewhere(slurm, site, tmp_path_factory):
    before, there = texts(site), tmp_path_factory.mktemp("new") / "files"
    assert slurm("install", "--write", there)[0] == 0
    assert texts(site) == before
    assert set(texts(there)) == {"slurm.conf", "parts.conf", "cgroup.conf", "dfrs.lua", "job_submit.lua"}
    assert restored((there / "slurm.conf").read_text()) == SITE
    assert f'loadfile("{site}/dfrs.lua")' in (there / "job_submit.lua").read_text()
    assert "must not be with" in slurm("install", "--write", there, "--yes")[2]


def test_a_script_of_the_site_is_left_alone(slurm, site):
    own = "function slurm_job_submit(job, partitions, user)\n  return slurm.SUCCESS\nend\n"
    (site / "job_submit.lua").write_text(own)
    shown = slurm("install", "--yes")[1]
    assert "does not call dfrs.lua; add `local dfrs = assert(loadfile(" in shown
    assert (site / "job_submit.lua").read_text() == own
    assert found(slurm)["job_submit.lua"]["verdict"] == "wrong"

    load = shown.partition("add `")[2].partition("`")[0]
    calls = "dfrs.submit(job, partitions) dfrs.modify(job, record, user)"
    (site / "job_submit.lua").write_text(f"{load}\n{calls}\n{own}")
    assert found(slurm)["job_submit.lua"]["verdict"] == "ok"
    status, _, error = slurm("uninstall", "--yes")
    assert status == 2
    assert "calls dfrs.lua: take these lines out of it first" in error
    assert (site / "dfrs.lua").exists()


def test_a_site_without_cgroup_conf_gets_one_and_loses_it(slurm, site):
    (site / "cgroup.conf").unlink()
    before = texts(site)
    assert found(slurm)["cgroup.conf: ConstrainCores"]["verdict"] == "ok"
    slurm("install", "--yes")
    assert read_conf(site / "cgroup.conf").get("ConstrainRAMSpace") == "yes"
    slurm("uninstall", "--yes")
    assert texts(site) == before


def test_a_link_stays_one(slurm, site, tmp_path_factory):
    real = tmp_path_factory.mktemp("real") / "cgroup.conf"
    real.write_text(CGROUP)
    (site / "cgroup.conf").unlink()
    (site / "cgroup.conf").symlink_to(real)
    slurm("install", "--yes")
    assert (site / "cgroup.conf").is_symlink()
    assert "ConstrainCores=no" in real.read_text()


GIVE_BACK = ("slurm", "give-back", "--partition", "main")


@pytest.fixture
def left(monkeypatch):
    """A Slurm with the jobs of a partition for which dfrs decides no longer."""
    slurm = FakeSlurm()
    monkeypatch.setattr(port, "SlurmCommands", lambda _: slurm)
    slurm.sbatch(id="10")
    slurm.sbatch(id="11", comment="x\n4711")
    slurm.sbatch(id="12_1", comment="it's mine")
    slurm.sbatch(id="12_3", comment="dfrs: cpu=1 held; it's mine")
    slurm.sbatch(id="13", special=True)
    slurm.sbatch(id="14", state="SUSPENDED", node="n1")
    slurm.sbatch(id="15", state="RUNNING", held=False, node="n1")
    slurm.sbatch(id="16", held=False)
    slurm.sbatch(id="4711", comment="dfrs: held")
    slurm.slow = set(slurm.rows)
    return slurm


def test_jobs_are_handed_back_but_for_those_that_their_users_hold(dfrs, left):
    """Each task of an array by itself, and whatever stands in a comment."""
    counted = "to resume: 1 job\nto release: 3 jobs\nleft held: 3 jobs\nNothing is done: --yes does it\n"
    assert dfrs(*GIVE_BACK) == (0, counted, "")
    assert not left.asked
    assert dfrs(*GIVE_BACK, "--yes") == (0, "resumed: 1 job\nreleased: 3 jobs\nleft held: 3 jobs\n", "")
    assert left.asked == [("resume", "14"), ("release", "10"), ("release", "11"), ("release", "12_1")]
    assert dfrs(*GIVE_BACK, "--yes")[1] == "resumed: 0 jobs\nreleased: 0 jobs\nleft held: 3 jobs\n"


def test_what_slurm_refuses_to_take_back_is_named(dfrs, left):
    left.refusing.add("release")
    status, shown, error = dfrs(*GIVE_BACK, "--yes")
    assert (status, shown) == (1, "resumed: 1 job\nreleased: 0 jobs\nleft held: 3 jobs\n")
    assert error == 3 * "dfrs: Slurm: release: Invalid job id specified\n"
    left.rows.clear()
    left.nodes.clear()
    assert dfrs(*GIVE_BACK) == (2, "", 'dfrs: --partition "main": Slurm has no node and no job there\n')
