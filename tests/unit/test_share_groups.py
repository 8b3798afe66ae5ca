"""Weights of Slurm's control groups, on plain files in place of the kernel's; real ones are in tests/slurm."""

import asyncio
import functools
import json
import os
import shutil

import httpx
import pytest

from dfrs.live.agent.connection import Server
from dfrs.live.share_agent.agent import ShareAgent
from dfrs.live.share_agent.groups import JobGroupsV1, JobGroupsV2, find_groups
from dfrs.model.errors import InputError


def group(path, **files):
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def v1(root, jobs, controllers=("freezer", "cpuacct", "memory")):
    """Jobs by number, with their users."""
    for number, user in jobs.items():
        for one in controllers:
            job = group(root / one / "slurm" / f"uid_{user}" / f"job_{number}")
            group(job / "step_batch", cgroup__procs=f"{os.getpid()}\n")
            group(job, cpuacct__usage="2500000000", memory__usage_in_bytes="4096", cgroup__procs="")
    group(root / "cpu")
    return JobGroupsV1("n1", root)


def shares(root):
    return {path.parent.name: int(path.read_text()) for path in root.rglob("cpu.shares")}


def test_where_cpu_is_mounted_alone_there_are_groups_of_our_own(tmp_path):
    groups = v1(tmp_path, {7: 0, 8: 1000, 9: 1000})
    assert groups.numbers() == [7, 8, 9]
    for number in (7, 8):
        group(tmp_path / "cpu" / "dfrs_n1" / f"job_{number}", cgroup__procs="")
    groups.set_shares({7: 1.5, 8: 0.5, 77: 1.0}, 2.0)
    assert shares(tmp_path) == {"job_7": 49152, "job_8": 16384}
    assert (tmp_path / "cpu/dfrs_n1/job_7/cgroup.procs").read_text() == str(os.getpid())


def test_where_cpu_is_mounted_with_cpuacct_users_have_what_their_jobs_have(tmp_path):
    groups = v1(tmp_path, {7: 0, 8: 1000, 9: 1000}, ("freezer", "cpuacct", "memory", "cpu"))
    groups.set_shares({7: 1.0, 8: 0.5, 9: 0.25}, 2.0)
    found = {"job_7": 32768, "uid_0": 32768, "job_8": 16384, "job_9": 8192, "uid_1000": 24576}
    assert shares(tmp_path) == found


def test_several_slurmd_on_a_host_keep_apart(tmp_path):
    group(tmp_path / "freezer/slurm_n1/uid_0/job_5")
    group(tmp_path / "freezer/slurm_n2/uid_0/job_6")
    assert JobGroupsV1("n1", tmp_path).numbers() == [5]


@pytest.mark.parametrize(("cores", "value"), [(0.0, 2), (1e9, 262_144)])
def test_shares_stay_within_what_the_kernel_takes(tmp_path, cores, value):
    groups = v1(tmp_path, {7: 0}, ("freezer", "cpu"))
    groups.set_shares({7: cores}, 2.0)
    assert shares(tmp_path)["job_7"] == value


def test_what_is_counted(tmp_path):
    groups = v1(tmp_path, {7: 0})
    found = groups.count(7)
    assert (found.cpu_s, found.memory_bytes) == (2.5, 4096)
    assert os.getpid() in found.threads
    assert groups.count(8) is None


def test_a_job_of_which_nothing_is_counted(tmp_path):
    assert v1(tmp_path, {7: 0}, ("freezer",)).count(7) is None


def test_version_2(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    for scope, number in (("slurmstepd.scope", 7), ("n1_slurmstepd.scope", 8), ("n2_slurmstepd.scope", 9)):
        job = group(
            tmp_path / "system.slice" / scope / f"job_{number}",
            cpu__weight="100\n",
            cpu__stat="usage_usec 1500000\nuser_usec 1\n",
            memory__current="8192",
        )
        group(job / "step_0" / "user", cgroup__procs=f"{os.getpid()}\n")
    groups = find_groups("n1", tmp_path)
    assert isinstance(groups, JobGroupsV2)
    assert groups.numbers() == [7, 8]
    groups.set_shares({7: 1.0, 8: 0.0}, 4.0)
    assert (tmp_path / "system.slice/slurmstepd.scope/job_7/cpu.weight").read_text() == "2500"
    assert (tmp_path / "system.slice/n1_slurmstepd.scope/job_8/cpu.weight").read_text() == "1"
    found = groups.count(7)
    assert (found.cpu_s, found.memory_bytes) == (1.5, 8192)
    assert os.getpid() in found.threads


def test_a_host_without_control_groups(tmp_path):
    with pytest.raises(InputError, match="must have control groups"):
        find_groups("n1", tmp_path)


def test_a_group_may_go_while_it_is_looked_at(tmp_path, monkeypatch):
    groups = v1(tmp_path, {7: 0, 8: 0})
    scan = os.scandir

    def late(path="."):
        # What is about to be listed has just been removed: the job has ended.
        if str(path).endswith(("job_7/step_batch", "uid_0/job_7")):
            shutil.rmtree(path, ignore_errors=True)
        return scan(path)

    monkeypatch.setattr(os, "scandir", late)
    assert groups.count(8) is not None
    groups.count(7)
    groups.set_shares({7: 1.0, 8: 1.0}, 2.0)
    assert 8 in groups.numbers()


@pytest.mark.parametrize(("files", "written"), [(("cgroup.controllers",), ""), (("freezer/tasks", "cpu/tasks"), "cpu")])
def test_who_may_not_write_control_groups_is_told_at_once(tmp_path, monkeypatch, files, written):
    for name in files:
        group((tmp_path / name).parent)
        (tmp_path / name).touch()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / written and may(path, mode))
    with pytest.raises(InputError, match="must be writable: shares need root"):
        find_groups("n1", tmp_path)


def blocked(file):
    """What can be neither read nor written, also by root."""
    file.unlink(missing_ok=True)
    file.mkdir(parents=True)


def test_what_keeps_a_job_from_its_share_is_told_and_others_have_theirs(tmp_path):
    scope = tmp_path / "system.slice/slurmstepd.scope"
    for number in (7, 8):
        group(scope / f"job_{number}", cpu__weight="100\n")
    groups = JobGroupsV2("n1", tmp_path)
    assert groups.set_shares({7: 1.0, 8: 1.0}, 4.0) is None
    blocked(scope / "job_7/cpu.weight")
    assert "job_7/cpu.weight" in str(groups.set_shares({7: 2.0, 8: 2.0}, 4.0))
    assert (scope / "job_8/cpu.weight").read_text() == "5000"


def test_what_keeps_a_job_of_version_1_from_its_share_is_told(tmp_path):
    groups = v1(tmp_path / "joint", {7: 0}, ("freezer", "cpu"))
    blocked(tmp_path / "joint/cpu/slurm/uid_0/cpu.shares")
    assert "uid_0/cpu.shares" in str(groups.set_shares({7: 1.0}, 2.0))
    groups = v1(tmp_path / "own", {7: 0, 8: 0})
    group(tmp_path / "own/cpu/dfrs_n1", job_7="")
    group(tmp_path / "own/cpu/dfrs_n1/job_8", cgroup__procs="")
    assert "dfrs_n1/job_7" in str(groups.set_shares({7: 1.0, 8: 1.0}, 2.0))
    assert shares(tmp_path / "own") == {"job_8": 32768}


def test_an_agent_that_cannot_write_shares_says_that_it_gives_none(tmp_path, monkeypatch):
    job = group(tmp_path / "system.slice/slurmstepd.scope/job_7")
    kinds = []

    async def answer(request):
        kinds.append(json.loads(request.content)["kind"])
        await asyncio.sleep(0.01)
        return httpx.Response(200, json={"version": "1", "node_cores": 2.0, "jobs": [{"number": 7, "cores": 1.0}]})

    async def comes(kind):
        async with asyncio.timeout(30):
            while kinds[-1:] != [kind]:
                await asyncio.sleep(0.01)

    async def story():
        agent = ShareAgent("n1", Server(url="http://127.0.0.1:7070", token="secret"), JobGroupsV2("n1", tmp_path))
        running = asyncio.create_task(agent.run())
        await comes("")
        assert kinds[0] == "cgroup-v2"
        (job / "cpu.weight").rmdir()
        await comes("cgroup-v2")
        running.cancel()

    blocked(job / "cpu.weight")
    transport = httpx.MockTransport(answer)
    monkeypatch.setattr(httpx, "AsyncClient", functools.partial(httpx.AsyncClient, transport=transport))
    asyncio.run(story())
