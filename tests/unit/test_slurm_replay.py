"""From Slurm's accounting to a workload, and `dfrs simulate --from-sacct`: what was beside what would have been."""

import json

import numpy as np
import pytest

from dfrs.cli.main import main
from dfrs.model.errors import InputError
from dfrs.runs.validator.runs import validate_run
from dfrs.workloads.slurm.nodes import SlurmNodes
from dfrs.workloads.slurm.reading import read_accounting
from dfrs.workloads.slurm.replay import ReplayOptions, replay
from tests.slurm_cases import MIDNIGHT, at, job, json_job, json_step, step, written

GIB = 2**30
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"
NODES = SlurmNodes.equal(4, 8, 16 * GIB)


def replayed(folder, *rows, nodes=NODES, **options):
    return replay(read_accounting(written(folder, *rows)), nodes, ReplayOptions(**options))


def rules(found):
    return {o.rule: o.count for o in found.report.warnings}


def test_a_job_has_the_need_that_it_used_and_the_memory_that_it_had(tmp_path):
    found = replayed(tmp_path, job(start=100), step(start=100))
    work = found.workload
    assert (len(work), work.nodes, work.job_id[0], work.tasks[0]) == (1, 4, 100, 1)
    # 24 minutes of CPU time in an hour are 0.4 of a core, of 8.
    assert work.need[0] == pytest.approx(0.4 / 8)
    assert work.memory[0] == pytest.approx(1 / 16)
    assert (work.run_s[0], work.estimate_s[0], work.submit_s[0]) == (3600, 7200, 0)
    assert (found.start_s[0], found.end_s[0], found.origin) == (100, 3700, MIDNIGHT)
    assert (found.measured_cpu, found.measured_memory, found.parts) == (1, 1, 1)
    assert rules(found) == {}


def test_what_was_allocated_and_requested_is_taken_by_choice_or_where_nothing_was_measured(tmp_path):
    rows = (job("1"), step("1.batch"), job("2"), job("3", ReqMem="", AllocTRES="cpu=4,node=1"))
    found = replayed(tmp_path, *rows)
    assert found.workload.need.tolist() == pytest.approx([0.05, 0.5, 0.5])
    assert found.workload.memory.tolist() == pytest.approx([1 / 16, 4 / 16, 0])
    assert rules(found) == {
        "no memory measured": 1,
        "no CPU time measured": 2,
        "memory neither measured nor requested": 1,
    }
    found = replayed(tmp_path, *rows[:3], cpu_from="allocated", memory_from="requested")
    assert found.workload.need.tolist() == pytest.approx([0.5, 0.5])
    assert found.workload.memory.tolist() == pytest.approx([4 / 16, 4 / 16])
    assert rules(found) == {}


def test_a_task_is_a_jobs_part_of_a_node_or_one_of_its_cores(tmp_path):
    rows = (
        job("1", AllocCPUS=12, AllocNodes=2, ReqMem="8G"),
        step("1.0", AllocNodes=2, NTasks=12, MaxRSS="512M", TotalCPU="06:00:00"),
        job("2", AllocCPUS=1, ReqMem="6G"),
    )
    found = replayed(tmp_path, *rows)
    assert found.workload.tasks.tolist() == [2, 1]
    assert found.workload.need.tolist() == pytest.approx([6 / 2 / 8, 1 / 8])
    assert found.workload.memory.tolist() == pytest.approx([6 * 0.5 / 16, 6 / 16])
    found = replayed(tmp_path, *rows, tasks="core")
    # A core has 2 GiB: a job with 6 GiB keeps three of them from others.
    assert (found.workload.nodes, found.workload.tasks.tolist()) == (32, [12, 3])
    assert found.workload.need.tolist() == pytest.approx([0.5, 1 / 3])
    assert found.workload.memory.tolist() == pytest.approx([6 / 12 / 2, 1])
    assert rules(found)["more memory than that of its CPUs' parts of nodes"] == 1
    assert found.node_bytes == 2 * GIB


def test_jobs_that_did_not_run_to_an_end_are_left_out_and_counted(tmp_path):
    rows = (
        job("1"),
        job("2", start=None),
        job("3_[1-10%2]", start=None, JobIDRaw="3"),
        job("4", 0, 50, None),
        job("5", 0, None, State="CANCELLED by 1000", Start="None", End=at(30)),
        # Until Slurm 21.08, who never started began when it was cancelled.
        job("6", 0, 30, 0, State="CANCELLED by 1000", AllocCPUS=0, AllocTRES=""),
        # One that no node could hold has all that it asked for, but nodes.
        job("7", 0, 0, 0, State="FAILED", AllocCPUS=8, AllocNodes=0, AllocTRES=""),
    )
    found = replayed(tmp_path, *rows)
    assert found.workload.job_id.tolist() == [1]
    assert {r: rules(found)[r] for r in ("has not started", "has not ended", "never started")} == {
        "has not started": 2,
        "has not ended": 1,
        "never started": 3,
    }
    # NNodes has those, too; then there is neither time nor a step.
    columns = "JobID,Submit,Start,End,State,NCPUS,NNodes,ElapsedRaw"
    forms = [row | {"NCPUS": row["AllocCPUS"] or 4, "NNodes": row["AllocNodes"] or 1} for row in rows]
    other = replay(read_accounting(written(tmp_path, *forms, columns=columns)), NODES, ReplayOptions())
    assert other.workload.job_id.tolist() == [1]
    assert str(found.report.warnings[0].examples[0]) == "line 3: State of job 2 = PENDING"
    with pytest.raises(InputError, match=r"day\.txt: no job remains of 1 records; has not started: 1"):
        replayed(tmp_path, rows[1])


def test_a_job_that_was_queued_again_counts_once_from_its_first_submission_on(tmp_path):
    rows = (
        job("1", 0, 10, 100, State="NODE_FAIL"),
        job("1", 120, 200, 600),
        # The same number later is another job.
        job("1", 5000, 5000, 60),
    )
    found = replayed(tmp_path, *rows)
    assert found.workload.submit_s.tolist() == [0, 5000]
    assert found.workload.run_s.tolist() == [600, 60]
    assert (found.start_s.tolist(), found.end_s.tolist()) == ([10, 5000], [800, 5060])
    assert found.workload.job_id.tolist() == [1, 2]
    assert rules(found)["queued again"] == 1


def test_unix_time_is_known_as_such_and_not_mixed_with_dates(tmp_path):
    accounting = read_accounting(written(tmp_path, job("1") | {"Submit": str(MIDNIGHT), "Start": "", "End": ""}))
    assert accounting.unix
    assert not read_accounting(written(tmp_path, job("1"))).unix
    with pytest.raises(InputError, match=r"3: Submit = .*must be as in the rows above"):
        read_accounting(written(tmp_path, job("1"), job("2") | {"Submit": str(MIDNIGHT)}))


def test_a_start_that_never_came_is_none(tmp_path):
    never = job("2", 0, 500, 100, State="CANCELLED by 1000", AllocCPUS=0, AllocTRES="", End=at(100))
    found = replayed(tmp_path, job("1"), never)
    assert found.workload.job_id.tolist() == [1]
    with pytest.raises(InputError, match="must not be before Start"):
        replayed(tmp_path, job("1"), never | {"AllocCPUS": 4})


def test_a_job_is_there_from_when_it_was_eligible(tmp_path):
    rows = (job("1"), job("2", 0, 500, Eligible=at(400)), job("3", 0, 500, Eligible=at(600)))
    found = replayed(tmp_path, *rows)
    assert sorted(found.workload.submit_s.tolist()) == [0, 400, 500]
    assert rules(found)["became eligible after its submission"] == 2


def test_since_puts_what_was_there_at_the_beginning(tmp_path):
    rows = (
        job("1", 0, 0, 100),
        job("2", 0, 50, 200, TimelimitRaw=5),
        job("3", 10, 400, 100),
        job("4", 5, 40, 300),
        job("5", 200, 500, 100),
    )
    found = replayed(tmp_path, *rows, since=MIDNIGHT + 150.0)
    # Who ran comes before who waited; job 1 had ended.
    assert found.workload.job_id.tolist() == [4, 2, 3, 5]
    assert found.workload.submit_s.tolist() == [0, 0, 0, 50]
    assert found.workload.run_s.tolist() == [190, 100, 100, 100]
    assert found.workload.estimate_s.tolist() == [7200 - 110, 300 - 100, 7200, 7200]
    assert found.start_s.tolist() == [0, 0, 250, 350]
    assert found.end_s.tolist() == [190, 100, 350, 450]
    assert (rules(found)["ended before --since"], rules(found)["there already at --since"]) == (1, 3)


def test_odd_jobs_are_taken_and_said(tmp_path):
    rows = (
        job("1+0", 0, 10, 0, JobIDRaw="1", TimelimitRaw="UNLIMITED"),
        job("2", AllocTRES="cpu=4,gres/gpu=1,node=1"),
        step("2.batch", TotalCPU="10:00:00", MaxRSS="20G"),
    )
    found = replayed(tmp_path, *rows)
    assert found.workload.run_s.tolist() == [1, 3600]
    assert found.workload.estimate_s.tolist() == [1, 7200]
    assert found.workload.need[1] == found.workload.memory[1] == 1
    for rule in (
        "part of a heterogeneous job",
        "run time 0",
        "no time limit",
        "had GPUs, which are not modelled",
        "more CPU time than its nodes have",
        "memory above that of a node",
    ):
        assert rules(found)[rule] == 1


def test_unequal_nodes_are_fractions_of_the_largest(tmp_path):
    nodes = SlurmNodes(cpus=np.array([8.0, 16.0]), memory=np.array([64.0, 32.0]) * GIB)
    found = replayed(tmp_path, job(AllocCPUS=12), nodes=nodes)
    assert found.capacity.tolist() == [[0.5, 1.0], [1.0, 0.5]]
    assert (found.workload.need[0], found.workload.memory[0]) == (12 / 16, 4 / 64)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": "socket"}, ['--tasks "socket"', "node or core"]),
        ({"cpu_from": "guess"}, ['--cpu-from "guess"', "measured or allocated"]),
        ({"memory_from": "guess"}, ['--memory-from "guess"', "measured or requested"]),
        ({"estimates": "some"}, ["estimates", '"some"']),
    ],
)
def test_wrong_options(tmp_path, options, words):
    with pytest.raises(InputError) as caught:
        replayed(tmp_path, job(), **options)
    for word in words:
        assert word in str(caught.value)


def test_a_job_larger_than_a_node_contradicts_the_description(tmp_path):
    with pytest.raises(InputError, match=r"day\.txt:2: job 100 had 20 CPUs on 2 nodes: must be at most the 8 that"):
        replayed(tmp_path, job(AllocCPUS=20, AllocNodes=2))


def day(folder, jobs=24, seed=3):
    """A day in which jobs of one to eight cores on one or two nodes waited longer than they had to."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(1, jobs + 1):
        submit, run, nodes = int(rng.integers(0, 7200)), int(rng.integers(60, 5000)), int(rng.integers(1, 3))
        cpus, start = nodes * int(rng.integers(1, 9)), submit + int(rng.integers(0, 3600))
        rows.append(job(str(k), submit, start, run, AllocCPUS=cpus, AllocNodes=nodes, ReqMem="2Gn", User=f"u{k % 3}"))
        cpu_s = int(run * cpus * rng.uniform(0.2, 1.0))
        clock = f"{cpu_s // 3600:02d}:{cpu_s // 60 % 60:02d}:{cpu_s % 60:02d}"
        rows.append(step(f"{k}.0", start, run, TotalCPU=clock, AllocNodes=nodes, NTasks=nodes))
    return written(folder, *rows, job("99", start=None))


@pytest.fixture
def dfrs(capsys, monkeypatch):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["dfrs", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


SIZE = ("--nodes", 4, "--cores", 8, "--node-memory", 17.179869184)


def test_a_day_under_policies_beside_what_it_was(tmp_path, dfrs):
    path, output = day(tmp_path), tmp_path / "runs"
    words = ("simulate", "--from-sacct", path, *SIZE, "-p", "EASY", "-p", POLICY, "-o", output)
    status, out, err = dfrs(*words)
    assert status == 0
    rows = [line.split()[0] for line in out.splitlines() if line.startswith(("as it was", "EASY", "Greedy"))]
    assert rows[0] == "as"
    assert {"EASY", POLICY} == set(rows[1:])
    assert "24 jobs of 25 records" in err
    assert "CPU needs measured in 24" in err
    assert "has not started: 1 (left out; first: line 50: State of job 99 = PENDING)" in err
    assert "EASY: gives whole nodes to jobs" in err
    for policy in ("EASY", "GreedyPM+_per_OPT=MIN_MVT=600"):
        assert not validate_run(output / policy).problems
    summary = json.loads((output / "EASY" / "summary.json").read_text())
    truth = summary["configuration"]["as_it_was"]
    records = [record for record in read_accounting(path).records if record.ran]
    waits = [record.start - record.submit for record in records]
    stretches = [(record.end - record.submit) / record.elapsed_s for record in records]
    assert truth["wait_mean_s"] == pytest.approx(np.mean(waits))
    assert truth["wait_p95_s"] == pytest.approx(np.quantile(waits, 0.95))
    assert truth["bounded_stretch_max"] == pytest.approx(max(stretches))
    span = max(record.end for record in records) - min(record.submit for record in records)
    cpu_s = sum(record.measured_cpu_s for record in records)
    assert truth["cpu_utilisation"] == pytest.approx(cpu_s / (32 * span), rel=1e-3)
    assert truth["makespan_s"] == span
    # The same work is in the runs.
    metrics = summary["metrics"]
    assert metrics["cpu_utilisation"] * metrics["span_s"] == pytest.approx(truth["cpu_utilisation"] * span, rel=1e-9)
    assert metrics["run_mean_s"] == truth["run_mean_s"]
    status, out, _ = dfrs("compare", output)
    assert (status, out.count("as it was")) == (0, 1)
    status, out, _ = dfrs(*words, "--json", "--resume")
    document = json.loads(out)
    assert [run["configuration"]["as_it_was"] == truth for run in document["runs"]] == [True, True]


def test_cores_as_nodes_let_batch_policies_share_nodes(tmp_path, dfrs):
    path = day(tmp_path)
    waits = []
    for tasks in ("node", "core"):
        status, out, err = dfrs(
            "simulate", "--from-sacct", path, *SIZE, "--tasks", tasks, "-p", "EASY", "-o", tmp_path / tasks, "--json"
        )
        assert status == 0
        assert ("gives whole nodes" in err) == (tasks == "node")
        waits.append(json.loads(out)["runs"][0]["metrics"]["wait_mean_s"])
    assert waits[1] < waits[0]


def test_json_and_nodes_from_a_file(tmp_path, dfrs):
    path = tmp_path / "day.json"
    jobs = [json_job(k, 10 * k, 10 * k, steps=[json_step(k, start=10 * k)]) for k in range(1, 5)]
    path.write_text(json.dumps({"jobs": [*jobs, json_job(9, start=None)]}))
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("NODELIST|CPUS|MEMORY\nn1|8|16384\nn2|4|8192\n")
    weights = tmp_path / "weights.csv"
    weights.write_text("job_id,weight\n3,2\n")
    status, out, err = dfrs(
        *("simulate", "--from-sacct", path, "--from-sinfo", nodes, "--weights", weights),
        *("--since", MIDNIGHT + 15, "-p", POLICY, "-o", tmp_path / "runs", "--json"),
    )
    assert status == 0
    assert "first: State of job 9 = PENDING" in err
    run = json.loads(out)["runs"][0]
    assert run["configuration"]["capacity"] == [[1.0, 1.0], [0.5, 0.5]]
    assert run["metrics"]["jobs_finished"] == 4
    assert run["configuration"]["penalty"]["node_bytes"] == 16 * GIB


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "accounting does not say how large the cluster is: give --nodes, --cores, --node-memory, or --from-sinfo"),
        (("--nodes", 4, "--cores", 8), "give --node-memory, or --from-sinfo"),
        ((*SIZE, "--from-sinfo", "x"), "--nodes, --cores, --node-memory: cannot go with --from-sinfo"),
        (("--from-sinfo", "nowhere"), "nowhere: cannot read"),
        ((*SIZE, "--since", "monday"), '--since "monday": must be YYYY-MM-DDTHH:MM:SS'),
        ((*SIZE, "--since", at(90_000)), "no job remains of 25 records"),
        (("--nodes", 4, "--cores", 4, "--node-memory", 8), "must be at most the 4 that a node has"),
        ((*SIZE, "--tasks", "core", "--node-events", "events.csv"), "cannot go with --node-events"),
        ((*SIZE, "trace.swf"), "one of them must be given, and only one"),
    ],
)
def test_what_is_missing_or_contradicts_is_one_line(tmp_path, monkeypatch, dfrs, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text("time_s,node,condition\n5,0,down\n")
    status, out, err = dfrs("simulate", "--from-sacct", day(tmp_path), *words)
    assert (status, out) == (2, "")
    assert told in err
    assert err.startswith("dfrs: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", ["--cores=8", "--tasks=core", "--cpu-from=measured", "--since=0", "--from-sinfo=x"])
def test_options_of_accounting_are_refused_without_it(tmp_path, dfrs, option):
    status, _, err = dfrs("simulate", tmp_path / "x.swf", option)
    assert status == 2
    assert f"{option.partition('=')[0]}: only with --from-sacct" in err
