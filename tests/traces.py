"""Where the reference traces are."""

import os
from pathlib import Path

import pytest

TRACES = Path(os.environ.get("DFRS_TRACES", Path(__file__).parents[1].parent / "shared" / "traces"))
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the traces are not at {TRACES} (set DFRS_TRACES)")
