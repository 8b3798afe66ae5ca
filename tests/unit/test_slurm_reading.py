"""What Slurm prints, and what users ask for, as jobs and requests; marks that are stored with jobs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.backends.slurm.marks import Mark, reason
from dfrs.live.backends.slurm.needs import is_held, read_comment, request_of, user_of
from dfrs.live.backends.slurm.outcomes import exit_of
from dfrs.live.backends.slurm.reading import NODE_FORMAT, JobReader, read_nodes
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.drivers.base import ExitKind, TaskId, TaskState
from dfrs.live.errors import UnavailableError
from dfrs.live.protocol.resources import Restart
from dfrs.model.errors import InputError

MIB = 1 << 20
NOW_S = 1_795_710_000.0
# As squeue of Slurm 22.05 prints it.
ROW = {
    "JobID": "12",
    "ArrayJobID": "12",
    "ArrayTaskID": "N/A",
    "HetJobID": "N/A",
    "Partition": "p",
    "State": "PENDING",
    "Reason": "JobHeldUser",
    "PriorityLong": "0",
    "NumCPUs": "2",
    "NumNodes": "1",
    "MinMemory": "100M",
    "tres-alloc": "cpu=2,mem=100M,node=1,billing=2",
    "TimeLimit": "UNLIMITED",
    "RestartCnt": "0",
    "Requeue": "0",
    "ReqNodes": "",
    "NodeList": "",
    "SubmitTime": "1795704435",
    "EligibleTime": "N/A",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "exit_code": "0",
    "UserID": "1000",
    "UserName": "eve",
    "Reservation": "(null)",
    "Dependency": "(null)",
    "Name": "burn.sh",
    "Command": "/tmp/burn.sh 300",
    "Comment": "dfrs: cpu=0.5",
    "admin_comment": "(null)",
    "Account": "physics",
    "TimeUsed": "0:00",
}
NODE = {
    "NodeList": "n1",
    "NodeAddr": "10.0.0.1",
    "CPUs": "2",
    "Memory": "4000",
    "StateComplete": "idle",
    "Reason": "none",
}
ANYTHING = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)


def printed(form, *rows):
    """What squeue and sinfo print of rows: each field, and what was asked to be after it."""
    fields = [field.partition(":0")[::2] for field in form.split(",")]
    return "".join("".join(f"{row[name]}{end}" for name, end in fields) + "\n" for row in rows).encode()


def jobs(*rows, reader=None, now_s=NOW_S):
    reader = reader or JobReader("p")
    return reader.read(printed(reader.environ["SQUEUE_FORMAT2"], *(ROW | row for row in rows)), now_s)


def test_a_job_that_is_held():
    ((job,), others) = jobs({})
    assert (job.id, job.number, job.state, job.held) == ("12", 12, "PENDING", True)
    assert (job.user, job.cpus, job.memory_bytes) == ("eve", 2, 100 * MIB)
    assert (job.name, job.command, job.comment) == ("burn.sh", "/tmp/burn.sh 300", "dfrs: cpu=0.5")
    assert job.account == "physics"
    assert (job.time_limit_s, job.admin_comment, job.reservation, job.dependency) == (None, "", "", "")
    assert not others


@given(names=st.lists(st.tuples(*[ANYTHING] * 5), max_size=5))
def test_what_users_choose_is_read_as_it_is(names):
    texts = ("Name", "Command", "Comment", "admin_comment", "Account")
    found, _ = jobs(*({"JobID": str(k), **dict(zip(texts, row, strict=True))} for k, row in enumerate(names, 1)))
    none = ("", "(null)", "N/A", "NONE", "UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit")
    assert [(job.name, job.command, job.comment, job.admin_comment, job.account) for job in found] == [
        tuple("" if text in none else text for text in row) for row in names
    ]


def test_no_user_can_know_what_ends_a_field():
    one, other = JobReader("p"), JobReader("p")
    known = one.environ["SQUEUE_FORMAT2"].rpartition(":0")[2]
    name = f"x{known};y{known};z{known};dfrs:running:1.0.0.a:v1:r0{known};0:00{known}\n"
    ((job,), _) = jobs({"Name": name}, reader=other)
    assert job.name == name


def test_the_fields_that_are_asked_for_are_whole():
    """Without a size squeue cuts each off at 20 characters; a size is what comes before the first other character."""
    for field in (*JobReader("p").environ["SQUEUE_FORMAT2"].split(","), *NODE_FORMAT.split(",")):
        assert re.fullmatch(r"[A-Za-z_-]+:0[^0-9].*", field, re.DOTALL)


def test_a_record_that_has_not_changed_is_not_read_again():
    reader = JobReader("p")
    row = {"State": "RUNNING", "NodeList": "n1", "StartTime": "1795709990", "TimeUsed": "0:10"}
    ((first,), _) = jobs(row, reader=reader)
    ((second,), _) = jobs(row | {"TimeUsed": "0:11"}, reader=reader, now_s=NOW_S + 1)
    assert second is first
    ((third,), _) = jobs(row | {"Comment": "other"}, reader=reader)
    assert (third.comment, third.state) == ("other", "RUNNING")


@pytest.mark.parametrize(
    ("state", "used", "since_s"),
    [
        ("RUNNING", "0:10", NOW_S - 10),
        # To a second it has run since it began.
        ("RUNNING", "0:09", NOW_S - 10),
        ("SUSPENDED", "0:04", NOW_S - 6),
        ("RUNNING", "0:04", NOW_S - 4),
        ("COMPLETED", "0:04", NOW_S - 3),
    ],
)
def test_since_when(state, used, since_s):
    times = {"StartTime": f"{NOW_S - 10:.0f}", "EndTime": f"{NOW_S - 3:.0f}", "TimeUsed": used}
    ((job,), _) = jobs({"State": state, "NodeList": "n1", **times})
    assert (job.node, job.since_s) == ("n1", since_s)


@pytest.mark.parametrize(
    ("printed_state", "is_pending", "is_placed", "special"),
    [
        ("PENDING", True, False, False),
        ("RESV_DEL_HOLD", True, False, False),
        ("REQUEUE_HOLD", True, False, True),
        ("SPECIAL_EXIT", True, False, True),
        ("RUNNING", False, True, False),
        ("SUSPENDED", False, True, False),
        ("CONFIGURING", False, True, False),
        ("RESIZING", False, True, False),
        ("SIGNALING", False, True, False),
        ("STOPPED", False, True, False),
        ("COMPLETING", False, False, False),
        ("REQUEUED", False, False, False),
        ("STAGE_OUT", False, False, False),
    ],
)
def test_states(printed_state, is_pending, is_placed, special):
    """squeue prints a flag, where a job has one, in the place of its state."""
    ((job,), _) = jobs({"State": printed_state, "ReqNodes": "n2", "NodeList": "n1"})
    assert (job.pending, job.placed, job.special, job.ended) == (is_pending, is_placed, special, False)
    assert job.node == ("n2" if is_pending else "n1")
    assert request_of(job, 1 << 30).held is special


def test_tasks_of_an_array_that_nobody_has_touched_are_in_one_row():
    found, _ = jobs(
        {"JobID": "20", "ArrayJobID": "20", "ArrayTaskID": "1-2,4-8:2,11%3"},
        {"JobID": "23", "ArrayJobID": "20", "ArrayTaskID": "3", "State": "RUNNING", "NodeList": "n1"},
    )
    assert [job.id for job in found] == ["20_1", "20_2", "20_4", "20_6", "20_8", "20_11", "20_3"]
    assert [job.number for job in found] == [0, 0, 0, 0, 0, 0, 23]
    assert found[0].window == 3
    assert found[0].array == "20"


@pytest.mark.parametrize(
    ("least", "sums", "nodes", "mib"),
    [
        # For each CPU: what it comes to is in the sum.
        ("10M", "cpu=2,mem=20M,node=1", "1", 20),
        ("10M", "cpu=2,mem=20M,node=2", "2", 10),
        ("1.50G", "cpu=2,mem=1536M", "1", 1536),
        ("2G", "cpu=2,mem=2G", "1", 2048),
        # Nothing was asked for: a node's, all of it.
        ("0", "cpu=2,mem=4000M,node=1", "1", 0),
        ("10M", "cpu=2", "1", 0),
    ],
)
def test_memory(least, sums, nodes, mib):
    ((job,), _) = jobs({"MinMemory": least, "tres-alloc": sums, "NumNodes": nodes})
    assert job.memory_bytes == mib * MIB


def test_jobs_of_other_partitions_count_where_they_run():
    found, others = jobs(
        {"Partition": "q", "State": "RUNNING", "NodeList": "n1"}, {"Partition": "q"}, {}, {"Partition": "q,p"}
    )
    assert len(found) == 2
    assert [job.node for job in others] == ["n1"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("0:05", 5),
        ("1:30:00", 5400),
        ("1-01:03:00", 90180),
        ("10-00:00:00", 864000),
    ],
)
def test_times(text, seconds):
    ((job,), _) = jobs({"TimeLimit": text})
    assert job.time_limit_s == seconds


def test_heterogeneous_jobs_and_codes():
    ((job,), _) = jobs({"HetJobID": "12", "State": "FAILED", "exit_code": "1792", "UserName": "", "Requeue": "1"})
    assert (job.parts, job.exit_status, job.user, job.requeue, job.ended) == (True, 7 << 8, "uid1000", True, True)


@pytest.mark.parametrize("text", [b"slurm_load_jobs error", b"12\x1fp"])
def test_what_is_no_answer_is_said_to_be_none(text):
    with pytest.raises(UnavailableError, match="does not end"):
        JobReader("p").read(text, NOW_S)


def test_a_record_with_other_fields_is_said_to_be_none():
    reader = JobReader("p")
    form = reader.environ["SQUEUE_FORMAT2"].partition(",")[2]
    with pytest.raises(UnavailableError, match="not the fields"):
        reader.read(printed(form, ROW), NOW_S)
    with pytest.raises(UnavailableError, match="not the fields"):
        read_nodes(printed(NODE_FORMAT.partition(",")[2], NODE))


@pytest.mark.parametrize(
    ("fields", "down", "problem"),
    [
        ({}, False, ""),
        ({"StateComplete": "idle+planned"}, False, ""),
        ({"StateComplete": "mixed+drain", "Reason": "fan\n2"}, False, "is drained in Slurm: fan\n2"),
        ({"StateComplete": "idle+not_responding"}, False, "does not respond to Slurm"),
        ({"StateComplete": "down+not_responding"}, True, "does not respond to Slurm"),
        ({"StateComplete": "down*"}, True, "does not respond to Slurm"),
        ({"StateComplete": "unknown"}, False, "has not registered with Slurm yet"),
        ({"StateComplete": "idle+reserved"}, False, "is reserved in Slurm"),
    ],
)
def test_nodes(fields, down, problem):
    (node,) = read_nodes(printed(NODE_FORMAT, NODE | fields))
    assert (node.name, node.address, node.cpus, node.memory_bytes) == ("n1", "10.0.0.1", 2, 4000 * MIB)
    assert (node.down, node.problem) == (down, problem)


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


@pytest.mark.parametrize(
    ("name", "account"),
    [("", None), ("physics", "physics"), ("9.a-b", "9.a-b"), ("a\nb", "_a_b"), ("x" * 65, "_" + "x" * 63)],
)
def test_accounts(name, account):
    assert request_of(job(account=name), 1 << 30).account == account


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
