"""What users are told that their jobs received is what they received, whatever else the machine does."""

import os
import shutil

import pytest

from dfrs.workloads.live_log import FILE
from tests.received_scene import FOR, SLEEP, WORK, beside, cluster, dfrs, observe

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root: shares are kept by control groups"
)
PATIENCE_S = 240.0


def test_stretches_and_shares_beside_a_load_from_outside(tmp_path, monkeypatch):
    for name in ("DFRS_SERVER", "DFRS_TOKEN_FILE", "DFRS_CA", "DFRS_STATE", "DFRS_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    one = ("--cpu", 1)
    jobs = [("declared", one, FOR, 30), ("unknown", (), FOR, 30), ("work", one, WORK, 5), ("sleeper", (), SLEEP, 20)]
    with beside(2), cluster(tmp_path / "state"):
        found = observe(jobs, PATIENCE_S)
        dfrs("export", "-o", tmp_path / "run")
    # Those that computed were told to the core as they fared, not as they were granted.
    assert '"event": "progressed"' in (tmp_path / "run" / FILE).read_text()
    for each in found.values():
        # A second at the most is before the first look and after the last one.
        assert each.virtual_s == pytest.approx(each.alone_s, rel=0.05, abs=1.0), each
        assert abs(each.off) < 0.1, each
    assert found["unknown"].cpu_s == pytest.approx(found["declared"].cpu_s, rel=0.5)
