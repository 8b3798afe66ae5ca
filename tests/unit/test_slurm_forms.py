"""Jobs are the same whether squeue prints them by formats, as dfrs has it print them, or as JSON."""

import json
from dataclasses import asdict, dataclass

from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.backends.slurm.reading import STATES, JobReader
from dfrs.live.backends.slurm.records import GONE, PLACED
from tests.slurm_json import NO_VALUE, assert_same, read_json

NOW_S = 1_795_710_000
INFINITE = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Record:
    """A job as slurmctld sends it to its commands (`job_info_t` of 22.05), as far as these fields go."""

    job_id: int
    array_job_id: int
    array_task_id: int | None
    array_task_string: str
    array_max_tasks: int
    het_job_id: int
    partition: str
    job_state: str
    priority: int
    cpus: int
    node_count: int
    memory_per_node: int | None
    memory_per_cpu: int | None
    time_limit: int
    restart_cnt: int
    requeue: bool
    required_nodes: str
    nodes: str
    submit_time: int
    eligible_time: int
    start_time: int
    end_time: int
    suspend_time: int
    ran_s: int
    exit_code: int
    user_id: int
    user_name: str
    resv_name: str
    dependency: str
    name: str
    command: str
    comment: str
    admin_comment: str
    account: str
    state_reason: str = "None"


def as_json(records):
    """As `squeue --json` does it (`dump_job_info`): no limit is null, and texts that are not set are empty."""
    rows = [asdict(each) for each in records]
    for row in rows:
        row["time_limit"] = None if row["time_limit"] == INFINITE else row["time_limit"]
    return json.dumps({"jobs": rows}).encode()


def as_printed(records, form):
    """As `squeue --noconvert` prints the fields of a format (`print.c`)."""
    fields = [field.partition(":0")[::2] for field in form.split(",")]
    return "".join("".join(f"{words(each)[name]}{end}" for name, end in fields) + "\n" for each in records).encode()


def words(record):
    memory = record.memory_per_node or (record.memory_per_cpu or 0) * record.cpus
    limits = {INFINITE: "UNLIMITED", NO_VALUE: "NOT_SET"}
    return {
        "JobID": record.job_id,
        "ArrayJobID": record.array_job_id or record.job_id,
        "ArrayTaskID": record.array_task_string
        or ("N/A" if record.array_task_id is None else str(record.array_task_id)),
        "HetJobID": record.het_job_id or "N/A",
        "Partition": record.partition,
        "State": record.job_state,
        "Reason": record.state_reason,
        "PriorityLong": record.priority,
        "NumCPUs": record.cpus,
        "NumNodes": record.node_count,
        "MinMemory": f"{record.memory_per_node or record.memory_per_cpu}M" if memory else "0",
        "tres-alloc": f"cpu={record.cpus},mem={memory * record.node_count or 4000}M,node={record.node_count},billing=2",
        "TimeLimit": limits.get(record.time_limit) or clock(60 * record.time_limit),
        "RestartCnt": record.restart_cnt,
        "Requeue": int(record.requeue),
        "ReqNodes": record.required_nodes,
        "NodeList": record.nodes,
        "SubmitTime": record.submit_time or "N/A",
        "EligibleTime": record.eligible_time or "N/A",
        "StartTime": record.start_time or "N/A",
        "EndTime": "NONE" if record.end_time > NOW_S and record.time_limit == INFINITE else record.end_time or "N/A",
        "exit_code": record.exit_code,
        "UserID": record.user_id,
        "UserName": record.user_name,
        "Reservation": record.resv_name or "(null)",
        "Dependency": record.dependency or "(null)",
        "Name": record.name or "(null)",
        "Command": record.command or "(null)",
        "Comment": record.comment or "(null)",
        "admin_comment": record.admin_comment or "(null)",
        "Account": record.account or "(null)",
        "TimeUsed": clock(record.ran_s),
    }


def clock(seconds):
    """As Slurm's `secs2time_str`."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20).filter(
    lambda text: text not in {"(null)", "N/A", "NONE", "UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit"}
)
SPANS = st.sampled_from(["", "", "", "7", "1-3", "1-9:2,20", "0,2,4-5%2", "1-4%1"])
MOMENTS = st.integers(NOW_S - 200_000, NOW_S)


@st.composite
def jobs(draw, number):
    state = draw(st.sampled_from([*STATES, *sorted(GONE), "PENDING", "RUNNING", "RUNNING", "SUSPENDED", "COMPLETING"]))
    by_cpu, memory = draw(st.booleans()), draw(st.none() | st.integers(1, 9999))
    span = draw(SPANS) if state == "PENDING" else ""
    task = draw(st.none() | st.integers(0, 30)) if not span else None
    is_there = STATES.get(state, state) in PLACED
    began = draw(MOMENTS)
    ran = draw(st.integers(0, NOW_S - began)) if state == "SUSPENDED" else NOW_S - began
    return Record(
        job_id=number,
        array_job_id=number if span or task is not None else 0,
        array_task_id=task,
        array_task_string=span,
        array_max_tasks=int(span.partition("%")[2] or 0),
        het_job_id=draw(st.sampled_from([0, 0, number])),
        partition=draw(st.sampled_from(["p", "q", "p,q"])),
        job_state=state,
        priority=draw(st.sampled_from([0, 1, 4294901755])),
        cpus=draw(st.integers(1, 64)),
        node_count=1,
        memory_per_node=None if by_cpu else memory,
        memory_per_cpu=memory if by_cpu else None,
        time_limit=draw(st.sampled_from([INFINITE, NO_VALUE, 1, 59, 60, 1500, 14400])),
        restart_cnt=draw(st.integers(0, 3)),
        requeue=draw(st.booleans()),
        required_nodes=draw(st.sampled_from(["", "n1"])),
        nodes="n2" if is_there else draw(st.sampled_from(["", "n2"])),
        submit_time=began,
        eligible_time=draw(st.just(0) | MOMENTS),
        start_time=began if is_there else draw(st.just(0) | MOMENTS),
        end_time=NOW_S + 600 if is_there else draw(st.just(0) | MOMENTS),
        suspend_time=began + ran if state == "SUSPENDED" else 0,
        ran_s=ran if is_there else 0,
        exit_code=draw(st.integers(0, 65535)),
        user_id=1000,
        user_name=draw(st.sampled_from(["eve", "mal.lory", "a-b"])),
        resv_name=draw(st.sampled_from(["", "maintenance"])),
        dependency=draw(st.sampled_from(["", "afterok:7(unfulfilled),singleton(unfulfilled)"])),
        name=draw(TEXTS),
        command=draw(TEXTS),
        comment=draw(TEXTS),
        admin_comment=draw(TEXTS),
        account=draw(TEXTS),
    )


RECORDS = st.integers(0, 5).flatmap(lambda n: st.tuples(*(jobs(100 * (k + 1)) for k in range(n))))


@given(records=RECORDS)
def test_both_forms_give_the_same_jobs(records):
    reader = JobReader("p")
    text = as_printed(records, reader.environ["SQUEUE_FORMAT2"])
    assert_same(reader.read(text, NOW_S), read_json(as_json(records), "p"))


@given(looks=st.lists(RECORDS, min_size=2, max_size=4))
def test_what_was_read_before_changes_nothing(looks):
    reader = JobReader("p")
    for records in looks:
        text = as_printed(records, reader.environ["SQUEUE_FORMAT2"])
        assert_same(reader.read(text, NOW_S), read_json(as_json(records), "p"))
