"""Jobs on agents of root: not as root, and what they cannot enter is said in one line."""

import os

import pytest

from tests.live_processes import LiveCluster

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may run tasks under other accounts"),
]


def test_jobs_of_root_run_as_nobody_and_cannot_enter_what_is_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.delenv("DFRS_RUN_AS")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with LiveCluster(tmp_path, nodes=1, run_as=None) as cluster:
        fine = cluster.submit(
            "/bin/sh", "-c", "id -un; id -G; touch /tmp/x.$$ && rm /tmp/x.$$ && echo writes", directory="/"
        )
        refused = cluster.submit("/bin/true", directory=str(closed))
        assert cluster.wait_for(fine, "done", "failed")["state"] == "done"
        text = cluster.client.get(f"/api/v1/jobs/{fine}/output").json()["text"]
        assert text.split()[0] == "nobody"
        assert "0" not in text.split()[1:-1]
        assert text.split()[-1] == "writes"
        why = cluster.wait_for(refused, "failed")["exit"]
        assert why == (
            f"could not be started: no right to enter the directory as nobody: {closed}; "
            "submit from one that is open to that account; dfrs agent --run-as names another"
        )
