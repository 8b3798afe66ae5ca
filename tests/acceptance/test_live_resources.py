"""Named resources and nodes to oneself on a real node: whoever has a GPU has it alone, and keeps it."""

import pytest

from dfrs.live.client import Client, read_client_file
from dfrs.live.protocol.resources import ENDED, JobState
from tests.live_processes import LiveCluster, wait_until

SMALL = {"cpu_cores": 0.1, "memory_bytes": 64 << 20}
SAYS = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES; echo $DFRS_RESOURCE_GPU; exec sleep 600")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with LiveCluster(tmp_path_factory.mktemp("resources"), nodes=1, agent=("--resource", "gpu=2")) as live:
        yield live


@pytest.fixture
def client(cluster):
    with Client(read_client_file(cluster.state)) as found:
        yield found
        for job in found.all_jobs():
            found.cancel(job.id)
        wait_until(lambda: not found.jobs(), "nothing left")


def reaches(client, job, *states):
    return wait_until(lambda: found if (found := client.job(job)).state in states else None, f"job {job}: {states}")


def said(client, job):
    reaches(client, job, JobState.RUNNING)
    return wait_until(lambda: len(lines := client.output(job).text.split()) == 2 and lines, f"job {job} has said it")


def waits_for(client, job, why):
    wait_until(lambda: client.job(job).why == why, f"job {job}: {why}")


def test_two_tasks_have_different_gpus_and_a_third_waits_until_one_has_ended(cluster, client):
    one, two = (client.submit(SAYS, resources={"gpu": 1}, **SMALL)[0] for _ in range(2))
    assert sorted([said(client, one), said(client, two)]) == [["0", "0"], ["1", "1"]]
    third = client.submit(SAYS, resources={"gpu": 1}, **SMALL)[0]
    waits_for(client, third, "waits: gpu: all in use")
    (node,) = client.nodes()
    assert (node.resources, node.resources_used) == ({"gpu": 2}, {"gpu": 2})
    mine = said(client, one)
    client.hold(one)
    reaches(client, one, JobState.HELD)
    # It keeps its own while it is held, also where the agent begins anew.
    cluster.agents["n0"].kill()
    cluster.agents["n0"].wait()
    cluster.start_agent("n0")
    wait_until(lambda: client.nodes()[0].connected, "the agent is back")
    other = client.submit(("true",), **SMALL)[0]
    reaches(client, other, *ENDED)
    assert client.job(third).state is JobState.WAITING
    client.release(one)
    reaches(client, one, JobState.RUNNING)
    client.cancel(one)
    assert said(client, third) == mine


def test_a_job_that_is_alone_waits_for_others_and_others_for_it(client):
    first = client.submit(("sleep", "600"), **SMALL)[0]
    reaches(client, first, JobState.RUNNING)
    alone = client.submit(("sleep", "600"), exclusive=True, **SMALL)[0]
    later = client.submit(("true",), **SMALL)[0]
    waits_for(client, alone, "waits: no node is without other tasks")
    waits_for(client, later, f"waits: nodes are kept for job {alone}, which is to be alone there")
    client.cancel(first)
    reaches(client, alone, JobState.RUNNING)
    assert [task.job for task in client.nodes()[0].tasks] == [alone]
    assert client.job(later).state is JobState.WAITING
    client.cancel(alone)
    assert reaches(client, later, *ENDED).state is JobState.DONE
