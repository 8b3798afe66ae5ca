"""The cluster of the tests is one: jobs run on nodes of their own, and live on when daemons are killed."""

import time

from tests.live_processes import wait_until
from tests.slurm_cluster import SlurmCluster

STATE_SAVED_S = 6.0
"""slurmctld writes down what has changed within five seconds: before, a job that began is one that has not."""


def launched(slurm, job, node):
    return any(each.name == f"job_{job}" for each in slurm.group("freezer", node).rglob("job_*"))


def test_a_job_outlives_the_daemons():
    with SlurmCluster(2) as slurm:
        job = slurm.sbatch("--nodelist=n2", wrap="hostname; sleep 300")
        assert slurm.await_job(job, "RUNNING") == "RUNNING"
        time.sleep(STATE_SAVED_S)
        for daemon in slurm.daemons:
            slurm.restart(daemon)
        slurm.await_nodes()
        assert slurm.squeue("JobID,State,NodeList") == [[str(job), "RUNNING", "n2"]]
        assert launched(slurm, job, "n2")

        slurm.run("scancel", job)
        assert slurm.await_job(job, "CANCELLED") == "CANCELLED"
        accounts = slurm.run("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State,NodeList")
        assert accounts.stdout.split("|")[0] == str(job)


def test_a_node_comes_back_and_its_jobs_do_not(slurm):
    job = slurm.sbatch("--nodelist=n1", "--no-requeue", wrap="sleep 300")
    slurm.await_job(job, "RUNNING")
    wait_until(lambda: launched(slurm, job, "n1"), "its processes are there")
    # A launch that its node has not confirmed yet is one that failed, and the job waits again.
    time.sleep(STATE_SAVED_S)
    slurm.kill_host("n1")
    slurm.node_down("n1")
    assert slurm.await_job(job, "NODE_FAIL") == "NODE_FAIL"
    slurm.start("n1")
    slurm.node_up("n1")
    slurm.await_nodes()
    job = slurm.sbatch("--nodelist=n1", wrap="true")
    assert slurm.await_job(job, "COMPLETED") == "COMPLETED"
