"""What is left of CPUs that others use, from what tasks got of them; and when that is worth an event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.live.controller.capacity_left import APART_S, CHANGE, FAIR, LEAST, CpuUse, LeftEstimate, Revisions


class Story:
    """A second after the other."""

    def __init__(self, cpus=1.0, declared=None, known=None):
        self.cpus, self.declared = cpus, declared or cpus
        self.estimate = LeftEstimate() if known is None else LeftEstimate(known, 1.0)
        self.revisions, self.in_force, self.now_s, self.part = Revisions(), known or 1.0, 0.0, 1.0
        self.events = []

    def goes_on(self, seconds, *, used=0.0, wanted=None, others=0.0, steal=0.0):
        for _ in range(seconds):
            self.now_s += 1.0
            use = CpuUse(
                cpus=self.cpus,
                declared=self.declared,
                used=used,
                wanted=used if wanted is None else wanted,
                busy=used + others,
                steal=steal,
            )
            self.part = self.estimate.observe(1.0, use)
            found = self.revisions.look(self.now_s, self.part, self.in_force)
            if found is not None:
                self.events.append((self.now_s, found))
                self.in_force = found
                self.revisions.told(self.now_s)
        return self


def test_what_tasks_get_while_they_wait_is_what_is_left():
    story = Story().goes_on(60, used=1.0).goes_on(60, used=0.55, wanted=1.0, others=0.45)
    assert [found for _, found in story.events] == pytest.approx([0.55], abs=0.04)
    # 15 s until the median is of the new load, and as long that it was so.
    assert 85.0 <= story.events[0][0] <= 95.0


def test_load_that_goes_gives_all_back():
    story = Story().goes_on(120, used=0.5, wanted=1.0, others=0.5).goes_on(60, used=1.0)
    assert [found for _, found in story.events] == pytest.approx([0.5, 1.0], abs=0.02)


def test_bursts_do_nothing():
    story = Story().goes_on(60)
    for _ in range(10):
        story.goes_on(5, others=1.0).goes_on(25)
        story.goes_on(5, used=0.1, wanted=1.0, others=0.9).goes_on(25, used=1.0)
    assert not story.events


def test_a_little_does_nothing():
    assert not Story().goes_on(300, used=0.9, wanted=1.0, others=0.1).events


def test_what_nobody_tried_to_use_is_taken_for_a_fair_half():
    story = Story().goes_on(120, others=0.8)
    assert story.part == pytest.approx(0.2 + FAIR * 0.8)
    assert [found for _, found in story.events] == [0.6]


def test_what_was_learnt_counts_while_nobody_is_held_up_and_fades():
    story = Story().goes_on(120, used=0.2, wanted=1.0, others=0.8)
    assert story.part == pytest.approx(0.2, abs=0.01)
    story.goes_on(10, others=1.0)
    assert story.part == pytest.approx(0.2, abs=0.02)
    story.goes_on(3000, others=1.0)
    assert story.part == pytest.approx(FAIR, abs=0.01)


def test_what_idles_is_left_whatever_was_learnt():
    story = Story().goes_on(60, used=0.2, wanted=1.0, others=0.8).goes_on(1, others=0.3)
    assert story.part == pytest.approx(0.7)


def test_a_task_that_seldom_wants_the_cpu_shows_nothing():
    story = Story().goes_on(120, used=0.1, wanted=0.15, others=0.9)
    assert story.part == pytest.approx(0.1 + FAIR * 0.9)


def test_a_task_that_pauses_now_and_then_is_not_taken_to_leave_the_rest_to_others():
    # It computes 0.8 s, of which others take as much again, and sleeps 0.2 s.
    story = Story().goes_on(120, used=0.8 / 1.8, wanted=1.6 / 1.8, others=1.0 - 0.8 / 1.8)
    assert story.part == pytest.approx(0.5, abs=0.01)


def test_steal_is_taken():
    assert Story().goes_on(100, used=0.6, wanted=1.0, steal=0.4).part == pytest.approx(0.6, abs=0.01)
    assert Story().goes_on(100, used=0.1, steal=0.3).part == pytest.approx(0.7)


def test_two_halves_of_a_cpu_take_nothing_from_each_other():
    # One has all that it may have, by its quota: no other program is there.
    assert Story(cpus=1.0, declared=0.5).goes_on(60, used=0.5, wanted=0.5).part == 1.0
    assert Story(cpus=1.0).goes_on(60, used=1.0, wanted=1.0).part == 1.0
    # A node of half of the CPU has enough of what another program leaves.
    assert Story(cpus=1.0, declared=0.5).goes_on(60, used=0.5, wanted=0.5, others=0.5).part == 1.0


def test_of_several_cpus():
    story = Story(cpus=4.0).goes_on(100, used=3.0, wanted=4.0, others=1.0)
    assert story.events == [(pytest.approx(38.0, abs=4.0), pytest.approx(0.75, abs=0.01))]
    # One thread has one of two CPUs, and another program the other: nobody waits.
    assert Story(cpus=2.0).goes_on(60, used=1.0, others=1.0).part == pytest.approx(0.5 + 0.5 * FAIR)


def test_a_node_that_gets_nothing_keeps_a_little():
    assert Story().goes_on(100, used=0.0, wanted=1.0, others=1.0).in_force == LEAST


def test_what_was_in_force_before_a_restart_was_learnt():
    story = Story(known=0.3).goes_on(30, others=1.0)
    assert story.part == pytest.approx(0.3, abs=0.03)
    assert not story.events


def test_revisions_are_a_minute_apart():
    story = Story()
    for k in range(20):
        story.goes_on(40, used=0.2 + 0.5 * (k % 2), wanted=1.0, others=0.8 - 0.5 * (k % 2))
    times = [now_s for now_s, _ in story.events]
    assert len(times) > 3
    assert min(np.diff(times)) >= APART_S


def test_without_reports_nothing_is_revised():
    revisions = Revisions()
    assert [revisions.look(100.0 * k, 0.3, 1.0) for k in range(10)] == [None] * 10


def test_less_than_the_threshold_is_told_only_where_all_is_left_again():
    assert not Story(known=0.9).goes_on(200, used=0.8, wanted=1.0, others=0.2).events
    assert Story(known=0.9).goes_on(200, used=1.0).events[0][1] == 1.0


loads = st.floats(0.0, 4.0)


@given(st.lists(st.tuples(loads, loads, loads, loads, st.floats(0.1, 20.0)), max_size=40), st.floats(0.5, 4.0))
def test_it_is_never_more_than_all_nor_less_than_the_floor(history, declared):
    estimate, revisions, in_force, now_s = LeftEstimate(), Revisions(), 1.0, 0.0
    for used, waits, others, steal, seconds in history:
        now_s += seconds
        use = CpuUse(cpus=4.0, declared=declared, used=used, wanted=used + waits, busy=used + others, steal=steal)
        part = estimate.observe(seconds, use)
        assert LEAST <= part <= 1.0
        assert part >= min(1.0, (used + use.idle) / use.size) - 1e-12
        found = revisions.look(now_s, part, in_force)
        if found is not None:
            assert LEAST <= found <= 1.0
            assert abs(found - in_force) > CHANGE or found == 1.0
            in_force = found
            revisions.told(now_s)
