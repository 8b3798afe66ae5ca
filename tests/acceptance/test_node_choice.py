"""Jobs of a real cluster that may not run on every node: by name, by feature, on nodes that are to come."""

import signal

from tests.live_processes import LiveCluster, wait_until

SMALL = {"cpu_cores": 0.2, "memory_bytes": 64 << 20}
NAMED = ("sh", "-c", "echo on $DFRS_NODE")


def features(cluster):
    return {node["name"]: node["features"] for node in cluster.client.get("/api/v1/nodes").json()}


def restart_agent(cluster, name, *options):
    """As an operator does who gives the node other features; its tasks run on."""
    process = cluster.agents.get(name)
    if process is not None:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    cluster.agent_options = options
    cluster.start_agent(name)


def test_jobs_run_on_the_nodes_that_they_ask_for(tmp_path):
    with LiveCluster(tmp_path) as cluster:
        by_name = [cluster.submit(*NAMED, nodelist=["n1"], **SMALL), cluster.submit(*NAMED, exclude=["n0"], **SMALL)]
        for job in by_name:
            assert cluster.wait_for(job, "done")["nodes"] == ["n1"]
        waits = cluster.submit("sleep", "600", constraint="avx512,rack:a", **SMALL)
        words = "waits: no node it may run on is up (--constraint avx512,rack:a)"
        wait_until(lambda: cluster.job(waits)["why"] == words, words)
        restart_agent(cluster, "n0", "--feature", "rack:a", "--feature", "avx512")
        assert cluster.wait_for(waits, "running")["nodes"] == ["n0"]
        assert features(cluster) == {"n0": ["avx512", "rack:a"], "n1": []}
        # What runs stays where it is when its node has the feature no more; what comes then waits.
        restart_agent(cluster, "n0", "--feature", "rack:a")
        wait_until(lambda: features(cluster)["n0"] == ["rack:a"], "other features")
        more = cluster.submit(*NAMED, constraint="avx512", **SMALL)
        wait_until(lambda: cluster.job(more)["why"] == "waits: no node it may run on is up (--constraint avx512)", "it")
        assert (cluster.job(waits)["state"], cluster.job(waits)["nodes"]) == ("running", ["n0"])
        cluster.client.post(f"/api/v1/jobs/{waits}/cancel").raise_for_status()
        cluster.wait_for(waits, "cancelled")
