"""What Slurm prints, and what users ask for, as jobs and requests; marks that are stored with jobs."""

import json

import pytest

from dfrs.live.backends.slurm.marks import Mark, reason
from dfrs.live.backends.slurm.needs import is_held, read_comment, request_of, user_of
from dfrs.live.backends.slurm.outcomes import exit_of
from dfrs.live.backends.slurm.reading import read_jobs, read_nodes
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.drivers.base import ExitKind, TaskId, TaskState
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import Restart
from dfrs.model.errors import InputError

MIB = 1 << 20
# As squeue --json of Slurm 22.05 has it, without what is not read.
ROW = {
    "admin_comment": "",
    "array_job_id": 0,
    "array_task_id": None,
    "array_max_tasks": 0,
    "array_task_string": "",
    "command": "/tmp/burn.sh 300",
    "comment": "dfrs: cpu=0.5",
    "cpus": 2,
    "dependency": "",
    "eligible_time": 0,
    "end_time": 0,
    "exit_code": 0,
    "het_job_id": 0,
    "job_id": 12,
    "job_state": "PENDING",
    "memory_per_cpu": None,
    "memory_per_node": 100,
    "name": "burn.sh",
    "node_count": 1,
    "nodes": "",
    "partition": "p",
    "priority": 0,
    "requeue": False,
    "required_nodes": "",
    "restart_cnt": 0,
    "resv_name": "",
    "start_time": 0,
    "state_reason": "JobHeldUser",
    "submit_time": 1795704435,
    "suspend_time": 0,
    "time_limit": None,
    "user_id": 0,
    "user_name": "eve",
}
NODE = {
    "name": "n1",
    "address": "10.0.0.1",
    "cpus": 2,
    "real_memory": 4000,
    "partitions": ["p"],
    "reason": "",
    "state": "idle",
    "state_flags": [],
}


def jobs(*rows, partition="p"):
    return read_jobs(json.dumps({"jobs": [ROW | row for row in rows]}).encode(), partition)


def test_a_job_that_is_held():
    ((job,), others) = jobs({})
    assert (job.id, job.number, job.state, job.held) == ("12", 12, "PENDING", True)
    assert (job.user, job.cpus, job.memory_bytes) == ("eve", 2, 100 * MIB)
    assert job.time_limit_s is None
    assert not others


def test_a_job_that_is_suspended_has_been_so_since_then():
    ((job,), _) = jobs({"job_state": "SUSPENDED", "start_time": 100, "suspend_time": 150, "nodes": "n1"})
    assert (job.placed, job.node, job.since_s) == (True, "n1", 150.0)


def test_tasks_of_an_array_that_nobody_has_touched_are_in_one_row():
    found, _ = jobs(
        {"job_id": 20, "array_job_id": 20, "array_task_string": "1-2,4-8:2,11%3", "array_max_tasks": 3},
        {"job_id": 23, "array_job_id": 20, "array_task_id": 3, "job_state": "RUNNING", "nodes": "n1"},
    )
    assert [job.id for job in found] == ["20_1", "20_2", "20_4", "20_6", "20_8", "20_11", "20_3"]
    assert [job.number for job in found] == [0, 0, 0, 0, 0, 0, 23]
    assert found[0].window == 3
    assert found[0].array == "20"


def test_memory_for_each_cpu():
    ((job,), _) = jobs({"memory_per_node": None, "memory_per_cpu": 10})
    assert job.memory_bytes == 20 * MIB


def test_jobs_of_other_partitions_count_where_they_run():
    found, others = jobs({"partition": "q", "job_state": "RUNNING", "nodes": "n1"}, {"partition": "q"}, {})
    assert len(found) == len(others) == 1
    assert others[0].node == "n1"


def test_later_versions_write_numbers_and_states_otherwise():
    def number(value):
        return {"set": True, "infinite": False, "number": value}

    row = {
        "job_state": ["FAILED", "COMPLETING"],
        "priority": number(7),
        "time_limit": number(10),
        "cpus": number(2),
        "exit_code": {"return_code": number(3), "signal": {"id": {"set": False, "number": 0}}},
        "array_task_id": {"set": False, "infinite": False, "number": 0},
    }
    ((job,), _) = jobs(row)
    assert (job.state, job.held, job.time_limit_s, job.exit_status) == ("COMPLETING", False, 600.0, 3 << 8)
    ((job,), _) = jobs(row | {"time_limit": {"set": True, "infinite": True, "number": 0}})
    assert job.time_limit_s is None


@pytest.mark.parametrize("text", [b"", b"slurm_load_jobs error", b'{"errors": []}', b"[1]"])
def test_what_is_no_answer_is_said_to_be_none(text):
    with pytest.raises(UnavailableError, match="no list jobs"):
        read_jobs(text, "p")


@pytest.mark.parametrize(
    ("fields", "down", "problem"),
    [
        ({}, False, ""),
        ({"state": "mixed", "state_flags": ["DRAIN"], "reason": "fan"}, False, "is drained in Slurm: fan"),
        ({"state": "idle", "state_flags": ["NOT_RESPONDING"]}, False, "does not respond to Slurm"),
        ({"state": "down", "state_flags": ["NOT_RESPONDING"]}, True, "does not respond to Slurm"),
        ({"state": "unknown"}, False, "has not registered with Slurm yet"),
        ({"state": ["IDLE", "RESERVED"]}, False, "is reserved in Slurm"),
    ],
)
def test_nodes(fields, down, problem):
    text = json.dumps({"nodes": [NODE | fields, NODE | {"name": "n2", "partitions": ["q"]}]}).encode()
    (node,) = read_nodes(text, "p")
    assert (node.name, node.cpus, node.memory_bytes) == ("n1", 2, 4000 * MIB)
    assert (node.down, node.problem) == (down, problem)


def test_an_empty_list_without_slurmctld_is_no_list():
    """As squeue --json prints it then, with status 0."""
    text = json.dumps({"errors": [{"error": "Unspecified error", "source": "slurm_load_jobs"}], "jobs": []}).encode()
    with pytest.raises(UnavailableError, match="Unspecified error"):
        read_jobs(text, "p")


def job(**fields):
    return SlurmJob(id="12", user="eve", name="work", command="/work.sh", cpus=2, **fields)


def test_a_request():
    found = request_of(job(comment="dfrs: cpu=0.5, min-yield=.2", memory_bytes=64 * MIB, time_limit_s=60.0), 1 << 30)
    assert (found.cpu_cores, found.minimum_yield, found.memory_bytes) == (0.5, 0.2, 64 * MIB)
    assert (found.estimate_s, found.time_limit_s, found.restart) == (60.0, 60.0, Restart.NEVER)


def test_without_a_word_a_job_needs_its_cpus_and_a_whole_node_of_memory():
    found = request_of(job(requeue=True, comment="mine"), 1 << 30)
    assert (found.cpu_cores, found.memory_bytes, found.restart) == (2.0, 1 << 30, Restart.ON_NODE_LOSS)


def test_what_comes_after_a_semicolon_is_the_users_own():
    assert read_comment("dfrs: cpu=1 held; see cpu=9", 2) == {"cpu": 1.0, "held": 1.0}
    assert is_held("dfrs: held")
    assert not is_held("dfrs: cpu=1; held")
    assert not is_held("held")


@pytest.mark.parametrize("text", ["cpu=0", "cpu=3", "cpu=nan", "cpu=", "min-yield=1.1", "memory=3", "cpu", "held=1"])
def test_comments_that_cannot_be_read(text):
    with pytest.raises(InputError, match=f"--comment: {text}: must be"):
        read_comment(f"dfrs: {text}", 2)


@pytest.mark.parametrize(("name", "user"), [("eve", "eve"), ("uid1000", "uid1000"), ("a@b", "_a_b"), ("9x", "_9x")])
def test_users(name, user):
    assert user_of(SlurmJob(id="1", user=name)) == user


def test_marks_are_read_as_they_were_written():
    task = TaskId(job=12, rank=0, attempt=3, generation="1a2b3c4d")
    for state in (TaskState.RUNNING, TaskState.PAUSED):
        mark = Mark(task, state, 4711, 2)
        assert Mark.parse(str(mark)) == mark
    for text in ("", "mine", reason("waits: no node"), f"{Mark(task, TaskState.RUNNING, 1, 0)} and more"):
        assert Mark.parse(text) is None


def test_reasons_are_one_short_line():
    assert reason('waits:\n"x"' + "y" * 999) == ("dfrs: waits: 'x'" + "y" * 999)[:206]


@pytest.mark.parametrize(
    ("state", "status", "kind"),
    [
        ("COMPLETED", 0, ExitKind.CODE),
        ("FAILED", 3 << 8, ExitKind.CODE),
        ("FAILED", 9, ExitKind.SIGNAL),
        ("TIMEOUT", 0, ExitKind.TIME_LIMIT),
        ("OUT_OF_MEMORY", 9, ExitKind.OUT_OF_MEMORY),
        ("NODE_FAIL", 15, ExitKind.LOST),
        ("PREEMPTED", 0, ExitKind.STOPPED),
    ],
)
def test_ends(state, status, kind):
    found = exit_of(job(state=state, exit_status=status))
    assert found.kind is kind
    assert found.code == (status >> 8 if kind is ExitKind.CODE else None)
