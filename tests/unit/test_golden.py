"""What the simulator writes stays byte for byte, unless somebody says why not."""

import json
from pathlib import Path

from tests.golden import kept

KEPT = Path(__file__).parents[1] / "golden.json"


def test_schedules_of_the_committed_trace_are_as_they_were(tmp_path, monkeypatch):
    """If they are to change: `python -m tests.golden keep tests/golden.json`, and the reason in the commit."""
    monkeypatch.chdir(tmp_path)
    assert kept() == json.loads(KEPT.read_text())
