"""Some cells of the fault matrix, and that its judge finds what must not be (all of it: `python -m tests.matrix`)."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from dfrs.live.protocol.resources import JobState
from tests.matrix.__main__ import Runner, table
from tests.matrix.cells import Cell
from tests.matrix.verdict import Verdict, judge

ONCE = ("begin", "end")
DONE, RUNNING, FAILED = JobState.DONE, JobState.RUNNING, JobState.FAILED


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups")
def test_some_cells():
    cells = [Cell("controller", "kill -9", 10), Cell("agent", "one-way cut", 10)]
    with Runner(seed=1) as runner, ThreadPoolExecutor(len(cells)) as pool:
        results = dict(zip(cells, pool.map(runner.run, cells), strict=True))
    for cell, found in results.items():
        assert isinstance(found, Verdict), (cell, found)
        assert found.clean, (cell, found)
        assert found.anew == 0, (cell, found)


@pytest.mark.parametrize(
    ("state", "said", "wrong"),
    [
        (DONE, ONCE, {}),
        (DONE, ("begin", "begin", "end"), {"anew": 1}),
        (None, (), {"lost": 1}),
        (None, ONCE, {"lost": 1}),
        (FAILED, ONCE, {"lost": 1}),
        (DONE, ("begin",), {"lost": 1}),
        (RUNNING, ("begin",), {"stuck": 1}),
        (DONE, ("begin", "twice", "begin", "end", "end"), {"twice": 1}),
        (DONE, (*ONCE, *ONCE), {"again": 1}),
    ],
)
def test_the_judge(state, said, wrong):
    """Of two jobs the other one is as it must be."""
    found = judge([1, 2], {1: DONE} | ({} if state is None else {2: state}), {1: ONCE, 2: said})
    assert found.clean == (not wrong or "anew" in wrong)
    assert {name: getattr(found, name) for name in ("lost", "twice", "again", "stuck", "anew")} == {
        name: wrong.get(name, 0) for name in ("lost", "twice", "again", "stuck", "anew")
    }
    assert [note.startswith("job 2: ") for note in found.notes] == [True] * (not found.clean)


def test_a_job_of_which_nobody_was_told_counts():
    assert judge([], {}, {7: ONCE}).lost == 1


def test_the_table_shows_what_is_wrong_and_what_is_not_run():
    cells = {Cell("agent", "cut", 0): Verdict(well_s=1.25), Cell("agent", "cut", 5): Verdict(lost=1, again=2, well_s=3)}
    none = Cell("standby", "reorder", 0)
    assert table(cells, [none, Cell("standby", "reorder", 5)], 5).splitlines() == [
        "| of | fault | idle | well after | 5 jobs | well after | begun anew |",
        "| --- | --- | --: | --: | --: | --: | --: |",
        "| agent | cut | 0 / 0 / 0 / 0 | 1.2 s | 1 / 0 / 2 / 0 | 3.0 s | 0 |",
        "| standby | reorder | - | - | - | - | - |",
        "",
        f"- standby, reorder: {none.senseless}.",
    ]
