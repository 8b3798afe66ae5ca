"""Jobs in the order of their columns: by records as by what users are shown of them."""

import re

import numpy as np
import pytest

from dfrs.live.protocol.job_order import COLUMNS, PATTERN, parse_order
from dfrs.live.protocol.ports import Chosen
from dfrs.live.protocol.resources import JobState
from tests.job_orders import KEYS, sort_jobs
from tests.live_states import random_controller


def test_the_twin_has_the_same_columns():
    assert tuple(KEYS) == COLUMNS


def test_jobs_are_in_the_order_that_their_views_say(tmp_path):
    rng, sorted_ = np.random.default_rng(4), 0
    for seed in range(60):
        controller = random_controller(seed, tmp_path)
        controller.database.close()
        seen = controller.snapshots.make()
        columns = rng.permutation(COLUMNS)[: rng.integers(1, 4)]
        sort = ",".join(f"{'-' if rng.random() < 0.5 else ''}{column}" for column in columns)
        states = frozenset(rng.permutation(list(JobState))[:6].tolist())
        skip, limit = int(rng.integers(0, 3)), int(rng.integers(1, 9))
        found = controller.jobs(states=states, sort=sort, skip=skip, limit=limit, of=seen)
        twin = sort_jobs([job for job in seen.jobs if job.state in states], sort)
        assert [job.id for job in found] == [job.id for job in twin[skip : skip + limit]], (seed, sort)
        sorted_ += len(found) > 1
    assert sorted_ > 20


def test_only_what_is_asked_for_is_sorted(tmp_path):
    controller = random_controller(1, tmp_path)
    controller.database.close()
    seen = controller.snapshots.make()
    user, before = seen.jobs[0].user, seen.jobs[1].id
    found = seen.open.in_order(Chosen(user=user, before=before), parse_order("job"), 0, 1000)
    assert [job.id for job in found] == sorted(job.id for job in seen.jobs if job.user == user and job.id < before)


@pytest.mark.parametrize("text", ["", "size", "job,", "-", "--job", "job;age", "Job"])
def test_other_words_do_not_fit(text):
    assert re.match(PATTERN, text) is None


def test_a_column_that_comes_again_is_not_sorted_by_again():
    assert parse_order("need,-need,user,need") == [("need", False), ("user", False)]
