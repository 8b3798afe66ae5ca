"""What `squeue --json` of Slurm 22.05 prints, as jobs: the second reader, against which the one of formats is held.

It costs more CPU, so that dfrs does not use it. It says some things more exactly: when a job was suspended or resumed,
and whether memory was asked for by CPU.
"""

import json
from dataclasses import replace

from dfrs.live.backends.slurm.reading import MIB, ROUNDED_S, SPECIAL, STATES
from dfrs.live.backends.slurm.records import PLACED, SlurmJob

SAID_OTHERWISE = ("reason", "since_s", "window")
"""Fields in which the two forms may differ: words for a reason, seconds that are rounded, and an array's `%N`."""
NO_VALUE = 0xFFFFFFFE


def read_json(text, partition):
    """(jobs of the partition, those of others that are on nodes), as `JobReader.read` gives them."""
    ours, others = [], []
    for row in json.loads(text)["jobs"]:
        (ours if partition in row["partition"].split(",") else others).extend(_jobs(row))
    return ours, [job for job in others if job.placed]


def _jobs(row):
    array, task, tasks = row["array_job_id"], row["array_task_id"], row["array_task_string"]
    if not tasks:
        return [_job(row, f"{array}_{task}" if task is not None else str(row["job_id"]), row["job_id"])]
    indices = _indices(tasks)
    number = row["job_id"] if tasks.isdigit() else 0
    return [_job(row, f"{array}_{index}", number) for index in indices]


def _indices(tasks):
    found = []
    for part in tasks.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def _job(row, name, number):
    state = STATES.get(row["job_state"], row["job_state"])
    cpus = max(1, row["cpus"] or 0)
    limit = row["time_limit"]
    return SlurmJob(
        id=name,
        number=number,
        state=state,
        reason=row["state_reason"],
        held=row["priority"] == 0,
        user=row["user_name"],
        name=row["name"],
        command=row["command"],
        comment=row["comment"],
        admin_comment=row["admin_comment"],
        account=row["account"],
        cpus=cpus,
        memory_bytes=MIB * (row["memory_per_node"] or (row["memory_per_cpu"] or 0) * cpus),
        time_limit_s=None if limit is None or limit >= NO_VALUE else 60.0 * limit,
        nodes=max(1, row["node_count"]),
        node=row["required_nodes"] if state == "PENDING" else row["nodes"],
        restarts=row["restart_cnt"],
        requeue=row["requeue"],
        submit_s=float(row["submit_time"]),
        eligible_s=float(row["eligible_time"]),
        since_s=float(max(row["start_time"], row["suspend_time"]) if state in PLACED else row["end_time"]),
        dependency=row["dependency"],
        reservation=row["resv_name"],
        window=row["array_max_tasks"],
        exit_status=row["exit_code"],
        parts=row["het_job_id"] != 0,
        special=row["job_state"] in SPECIAL,
    )


def _plain(jobs):
    return [replace(job, **dict.fromkeys(SAID_OTHERWISE, 0)) for job in sorted(jobs, key=lambda job: job.id)]


def assert_same(found, expected):
    """What both readers gave is the same, as far as both forms say it."""
    for one, other in zip(found, expected, strict=True):
        assert _plain(one) == _plain(other)
    since_s = {job.id: job.since_s for job in expected[0]}
    for job in found[0]:
        if not job.pending and job.state != "COMPLETING":
            assert abs(job.since_s - since_s[job.id]) < ROUNDED_S, job
