"""Accounting of Slurm, as text and as JSON: values, jobs, steps, and what is refused."""

import json
import math
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.workloads.slurm import values
from dfrs.workloads.slurm.nodes import read_nodes
from dfrs.workloads.slurm.reading import read_accounting
from dfrs.workloads.slurm.records import Step, peak_memory
from tests.naive.slurm import naive_amount, naive_duration, printed_amount, printed_duration
from tests.read_once import pipe_of
from tests.slurm_cases import MIDNIGHT, at, in_later_form, job, json_job, json_step, printed, step, written

GIB = 2.0**30


@given(st.integers(0, 10**7), st.integers(0, 999))
def test_durations_read_as_slurm_prints_them(seconds, milliseconds):
    text = printed_duration(seconds, milliseconds)
    assert values.duration(text) == pytest.approx(naive_duration(text), abs=1e-9)
    exact = seconds + milliseconds / 1000 if "." in text else seconds
    assert values.duration(text) == pytest.approx(exact, abs=1e-9)


@given(
    st.one_of(st.integers(0, 2**53), st.builds(lambda n, k: n * 512 * 1024**k, st.integers(0, 4096), st.integers(0, 3)))
)
def test_amounts_read_as_slurm_prints_them(number):
    text = printed_amount(number)
    assert values.amount(text) == naive_amount(text) == number


@given(st.text(alphabet="0123456789:-.KMGnc UNLIMTED", max_size=12))
def test_any_text_is_a_value_or_breaks_a_rule(text):
    for read in (values.duration, values.amount, values.count, values.requested_memory, values.time_limit, values.tres):
        with suppress(ValueError):
            read(text)
            continue
        with pytest.raises(ValueError, match=r"^must be"):
            read(text)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.duration, "1-02:03:04", 93784),
        (values.duration, "02:03:04", 7384),
        (values.duration, "03:04", 184),
        (values.duration, "00:01.250", 1.25),
        (values.time_limit, "UNLIMITED", None),
        (values.time_limit, "Partition_Limit", None),
        (values.time_limit, "7-00:00:00", 604800),
        (values.raw_time_limit, "90", 5400),
        (values.raw_time_limit, "UNLIMITED", None),
        (values.instant, "Unknown", None),
        (values.instant, "None", None),
        (values.instant, "2026-11-24T00:00:00", MIDNIGHT),
        (values.instant, "2026-11-24T01:00:00+01:00", MIDNIGHT),
        (values.instant, "2026-11-24T01:00:00+0100", MIDNIGHT),
        (values.instant, "2026-11-24T00:00:00Z", MIDNIGHT),
        (values.instant, str(MIDNIGHT), MIDNIGHT),
        (values.requested_memory, "4Gn", (4 * GIB, "n")),
        (values.requested_memory, "4000Mc", (4000 * 2**20, "c")),
        (values.requested_memory, "16G", (16 * GIB, "")),
        (values.requested_memory, "512", (512 * 2**20, "")),
        (values.requested_memory, "0n", (0, "n")),
        (values.amount, "1056K", 1056 * 1024),
        (values.amount, "1.50G", 1.5 * GIB),
        (values.amount, "4096", 4096),
        (values.count, "1K", 1024),
        (values.tres, "billing=4,cpu=4,gres/gpu:a100=2", {"billing": "4", "cpu": "4", "gres/gpu:a100": "2"}),
    ],
)
def test_documented_forms(read, text, value):
    assert read(text) == value


def test_text_and_json_of_all_versions_say_the_same(tmp_path):
    text = read_accounting(written(tmp_path, job(), step(), job("101", 5, None), job("102", 6, 70, None)))
    document = {
        "meta": {},
        "errors": [],
        "jobs": [json_job(steps=[json_step()]), json_job(101, 5, None), json_job(102, 6, 70, None)],
    }
    for name, form in (("old.json", document), ("new.json", in_later_form(document))):
        path = tmp_path / name
        path.write_text(json.dumps(form))
        found = read_accounting(path)
        alike = [replace(record, where="", line=0) for record in text.records]
        # Where nothing is allocated, JSON says what is requested of nodes that there are not.
        assert [replace(record, where="", line=0) for record in found.records] == alike
        assert found.unix
    first = text.records[0]
    assert (first.measured_cpu_s, first.measured_memory, first.requested) == (1440, GIB, 4 * GIB)
    assert (first.elapsed_s, first.limit_s, first.cpus, first.ran) == (3600, 7200, 4, True)
    assert [record.ran for record in text.records[1:]] == [False, False]


def test_accounting_may_come_out_of_a_pipe(tmp_path):
    text = written(tmp_path, job())
    document = json.dumps({"meta": {}, "errors": [], "jobs": [json_job()]})
    for data in (text.read_bytes(), document.encode()):
        with pipe_of(data) as path:
            (record,) = read_accounting(path).records
            assert record.elapsed_s == 3600


def test_parsable_output_has_a_bar_at_the_end_of_each_line(tmp_path):
    rows = (job(), step(), job("101", AllocTRES=""))
    plain = read_accounting(written(tmp_path, *rows))
    assert read_accounting(written(tmp_path, *rows, end="|")) == plain


def test_columns_may_have_their_other_names_and_any_order(tmp_path):
    row = job(NCPUS=4, NNodes=1, Elapsed="01:00:00", Timelimit="02:00:00")
    columns = "End,Start,State,Submit,Eligible,Timelimit,Elapsed,NNodes,NCPUS,User,ReqMem,AllocTRES,JobID"
    (other,) = read_accounting(written(tmp_path, row, columns=columns)).records
    (usual,) = read_accounting(written(tmp_path, job())).records
    assert other == usual


def test_states_steps_and_numbers_of_all_kinds_of_jobs(tmp_path):
    rows = (
        job("7", State="CANCELLED by 1000"),
        job("8_4", JobIDRaw="12"),
        step("8_4.extern"),
        step("8_4.0"),
        job("8_[5-10%2]", 0, None, JobIDRaw="8"),
        job("9+1", JobIDRaw="10"),
        step("9+1.0+1"),
    )
    records = read_accounting(written(tmp_path, *rows)).records
    assert [(r.name, r.number, r.state, len(r.steps)) for r in records] == [
        ("7", 7, "CANCELLED", 0),
        ("8_4", 12, "COMPLETED", 2),
        ("8_[5-10%2]", 8, "PENDING", 0),
        ("9+1", 10, "COMPLETED", 1),
    ]


def test_steps_belong_to_the_last_record_of_their_job(tmp_path):
    rows = (
        job(State="REQUEUED", run=100),
        step(run=100),
        job(submit=200, start=300),
        step(start=300),
        step("100.0", start=300),
    )
    records = read_accounting(written(tmp_path, *rows)).records
    assert [len(record.steps) for record in records] == [1, 2]


def test_memory_is_requested_by_node_by_cpu_or_by_job(tmp_path):
    both = {"AllocCPUS": 8, "AllocNodes": 2}
    rows = (
        job("1", ReqMem="4Gn", **both),
        job("2", ReqMem="1Gc", **both),
        job("3", ReqMem="8G", **both),
        job("4", ReqMem="", AllocTRES="cpu=8,mem=16384M,node=2", **both),
        job("5", ReqMem="0", AllocTRES="cpu=8,node=2", **both),
    )
    records = read_accounting(written(tmp_path, *rows)).records
    assert [record.requested for record in records] == [4 * GIB, 4 * GIB, 4 * GIB, 8 * GIB, None]


def of(memory, tasks=1, nodes=1, start=0.0, end=10.0):
    return Step(start=start, end=end, nodes=nodes, tasks=tasks, memory=memory, cpu_s=0.0)


@pytest.mark.parametrize(
    ("steps", "nodes", "peak"),
    [
        ([], 1, None),
        ([of(0)], 1, None),
        ([of(3)], 1, 3),
        ([of(3), of(4)], 1, 7),
        ([of(3), of(4, start=10.0, end=20.0)], 1, 4),
        ([of(3), of(4, start=None, end=None)], 1, 7),
        ([of(2, tasks=8, nodes=2)], 2, 8),
        ([of(2, tasks=7, nodes=2)], 2, 8),
        ([of(6)], 2, 6),
        ([of(6) for _ in range(4)], 2, 12),
    ],
)
def test_memory_on_a_node_is_that_of_steps_that_ran_together(steps, nodes, peak):
    assert peak_memory(steps, nodes) == peak


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 9), st.integers(1, 9)),
        min_size=1,
    ),
    st.integers(1, 4),
)
def test_memory_at_its_peak_is_that_of_the_fullest_instant(rows, nodes):
    steps = [of(m, tasks=t * n, nodes=n, start=float(a), end=float(a + d)) for m, t, n, a, d in rows]
    instants = [sum(s.memory * s.tasks for s in steps if s.start <= now < s.end) / nodes for now in range(20)]
    single = max(s.memory * math.ceil(s.tasks / s.nodes) for s in steps)
    assert peak_memory(steps, nodes) == pytest.approx(max([single, *instants]))


WRONG = {
    "empty": ("", ["day.txt:1", "header", "sacct --parsable2"]),
    "not from sacct": ("JobID State\n", ["day.txt:1", "header"]),
    "a column is missing": (
        "JobID|Submit|End|State|NCPUS|NNodes\n",
        ["day.txt:1", "no column Start", "--format=JobID"],
    ),
    "no CPUs": ("JobID|Submit|Start|End|State|NNodes\n", ["day.txt:1", "AllocCPUS, NCPUS or AllocTRES"]),
    "a bar too many": (printed(job()) + "101|x\n", ["day.txt:3", "2 columns", "must be 17", "JobName"]),
    "a bad instant": (printed(job(Start="yesterday")), ["day.txt:2", 'Start = "yesterday"', "must be YYYY"]),
    "a day that is none": (printed(job(End="2026-02-30T00:00:00")), ["End", "must be YYYY"]),
    "no submission": (printed(job(Submit="Unknown")), ['Submit = "Unknown"', "must be an instant"]),
    "an end before the start": (printed(job(End=at(0))), ["day.txt:2", "End", f"not be before Start, {at(60)}"]),
    "CPUs in words": (printed(job(AllocCPUS="four")), ['AllocCPUS = "four"', "must be a number"]),
    "half a node": (printed(job(AllocNodes="0.5")), ['AllocNodes = "0.5"', "must be a whole number"]),
    "memory in words": (printed(job(ReqMem="4 GB")), ['ReqMem = "4 GB"', "must be a number", "n (for each node)"]),
    "a limit in words": (printed(job(TimelimitRaw="2h")), ['TimelimitRaw = "2h"', "whole minutes"]),
    "CPU time in words": (printed(job(), step(TotalCPU="1h")), ["day.txt:3", 'TotalCPU = "1h"', "[D-[HH:]]MM:SS"]),
    "memory of a step": (printed(job(), step(MaxRSS="1GB")), ["day.txt:3", 'MaxRSS = "1GB"']),
    "resources": (printed(job(AllocTRES="cpu")), ['AllocTRES = "cpu"', "NAME=AMOUNT"]),
    "memory among resources": (printed(job(ReqMem="", AllocTRES="mem=much")), ["AllocTRES", "mem must be a number"]),
    "CPUs among resources": (printed(job(AllocCPUS="", AllocTRES="cpu=x")), ["AllocTRES", "must be a number"]),
    "a step without its job": (printed(step()), ["day.txt:2", 'JobID = "100.batch"', "below its job"]),
    "no name": (printed(job("")), ["day.txt:2", "must name a job"]),
    "JSON of another kind": ('{"nodes": []}', ["no list jobs", "sacct --json"]),
    "broken JSON": ('{"jobs": [', ["day.txt:1:", "not JSON"]),
    "a number that is none": (
        json.dumps({"jobs": [json_job(allocation_nodes="two")]}),
        ["jobs[0].allocation_nodes", "two"],
    ),
    "a job without number": (json.dumps({"jobs": [json_job(0)]}), ["jobs[0].job_id = 0", "number of a job"]),
    "a job that is none": (json.dumps({"jobs": [3]}), ["jobs[0].job_id", "number of a job"]),
    "steps that are none": (json.dumps({"jobs": [json_job() | {"steps": 3}]}), ["jobs[0].steps = 3", "must be a list"]),
    "no submission in JSON": (json.dumps({"jobs": [json_job() | {"time": {}}]}), ["time.submission = null", "instant"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line_with_place_value_and_rule(tmp_path, case):
    text, words = WRONG[case]
    path = tmp_path / "day.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_accounting(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "day.txt" in message
    for word in words:
        assert word in message


def test_unknown_numbers_of_json_are_none_of_theirs(tmp_path):
    path = tmp_path / "day.json"
    document = json_job()
    document["time"] |= {"limit": 0xFFFFFFFF, "start": 0xFFFFFFFE}
    path.write_text(json.dumps({"jobs": [document, json_job(101, time=json_job()["time"] | {"limit": None})]}))
    first, second = read_accounting(path).records
    assert (first.limit_s, first.start, first.ran) == (None, None, False)
    assert (second.limit_s, second.ran) == (None, True)


def test_json_has_arrays_heterogeneous_jobs_and_gpus(tmp_path):
    gpu = {"type": "gres", "name": "gpu:a100", "id": 1001, "count": 2}
    array = json_job(12, array={"job_id": 8, "task_id": 0})
    part = json_job(10, het={"job_id": 9, "job_offset": 1})
    gpus = json_job(13)
    gpus["tres"] = {"allocated": [*gpus["tres"]["allocated"], gpu], "requested": gpus["tres"]["requested"]}
    path = tmp_path / "day.json"
    path.write_text(json.dumps({"jobs": [array, part, gpus]}))
    records = read_accounting(path).records
    assert [(r.name, r.number, r.gpus) for r in records] == [("8_0", 12, False), ("9+1", 10, False), ("13", 13, True)]


SCONTROL = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=0.02
   OS=Linux 6.1.0 #1 SMP Debian
   RealMemory=128000 AllocMem=0 FreeMem=120000 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1

NodeName=n2 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.02
   RealMemory=64000 AllocMem=0 FreeMem=120000 Sockets=2 Boards=1
   State=DOWN ThreadsPerCore=1 TmpDisk=0 Weight=1
"""
NODES = {
    "scontrol show nodes": SCONTROL,
    "scontrol show nodes -o": "\n".join(" ".join(part.split()) for part in SCONTROL.split("\n\n")) + "\n",
    "sinfo -N -o": "NODELIST|CPUS|MEMORY\nn1|32|128000\nn2|64|64000\nn2|64|64000\n",
    "sinfo -N -l": (
        "Tue Nov 24 00:00:00 2026\n"
        "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON\n"
        "n1             1    batch*        idle 32     2:16:1 128000        0      1   (null) none\n"
        "n2             1    batch*       down* 64     2:16:2  64000        0      1   (null) not responding\n"
    ),
}


@pytest.mark.parametrize("form", NODES)
def test_nodes_of_all_forms(tmp_path, form):
    path = tmp_path / "nodes.txt"
    path.write_text(NODES[form])
    nodes = read_nodes(path)
    assert nodes.cpus.tolist() == [32, 64]
    assert nodes.memory.tolist() == [128000 * 2**20, 64000 * 2**20]
    assert nodes.capacity.tolist() == [[0.5, 1.0], [1.0, 0.5]]
    cores = nodes.split()
    assert len(cores.cpus) == 96
    assert cores.capacity[0].tolist() == [1.0, 1.0]
    assert cores.capacity[-1].tolist() == [1.0, 0.25]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no node", "scontrol show nodes"]),
        ("NODELIST|CPUS\nn1|2\n", ["nodes.txt:1", "no column MEMORY"]),
        ("NODELIST|CPUS|MEMORY\nn[1-4]|2|100\n", ["nodes.txt:2", "n[1-4]", "sinfo -N"]),
        ("NODELIST|CPUS|MEMORY\nn1|2+|100\n", ["nodes.txt:2", 'CPUs of n1 = "2+"', "whole number above 0"]),
        ("NODELIST|CPUS|MEMORY\nn1|2\n", ["nodes.txt:2", 'memory of n1 = ""']),
        ("NodeName=n1 CPUTot=2\n", ["nodes.txt:1", 'memory of n1 = ""']),
        ("NodeName=n1 CPUTot=0 RealMemory=1\n", ["nodes.txt:1", 'CPUs of n1 = "0"']),
    ],
)
def test_wrong_nodes_are_one_line(tmp_path, text, words):
    path = tmp_path / "nodes.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_nodes(path)
    for word in words:
        assert word in str(caught.value)
