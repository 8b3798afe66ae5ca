"""A cell of the fault matrix over a real Slurm; all of it: `python -m tests.slurm.matrix`."""

import pytest

from tests.matrix.verdict import Verdict
from tests.slurm.matrix import Cell, run
from tests.slurm_cluster import why_not


@pytest.mark.skipif(why_not() != "", reason=why_not())
def test_jobs_do_not_need_slurmdbd():
    cell = Cell("slurmdbd", "kill -9", 4)
    found = run([cell], seed=1)[cell]
    assert isinstance(found, Verdict), found
    assert found.clean, found
    assert found.anew == 0
