"""The fault matrix: its judge sees what it is to see, and some of its cells on real processes."""

import os
import random

import pytest

from tests.matrix import Verdict, judge, run_cell

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: control groups")


@pytest.mark.parametrize(
    ("state", "notes", "wrong"),
    [
        ("done", ["begin 1", "end 1"], ""),
        ("done", ["begin 1", "begin 2", "end 2"], "twice"),
        ("done", ["begin 1", "end 1", "begin 2", "end 2"], "again"),
        ("running", ["begin 1"], "stuck"),
        ("failed", ["begin 1"], "lost"),
        ("gone", [], "lost"),
        ("done", [], "lost"),
    ],
)
def test_the_judge(state, notes, wrong):
    assert judge({7: state}, {7: notes}) == Verdict(**({wrong: 1} if wrong else {}))


@needs_root
@pytest.mark.parametrize(
    ("who", "fault"), [("the controller", "kill -9"), ("an agent", "cut one way: to the controller")]
)
def test_cells_of_the_matrix(who, fault, tmp_path):
    assert run_cell(who, fault, 10, random.Random(0), tmp_path).good
