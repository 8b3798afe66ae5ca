"""Storms on a virtual loop: what users were told stays true, and each of them repeats from its seed."""

import pytest

from tests.storms import storm
from tests.storms.acts import FAULTS, acts_of, faults_of

CLASSIC = (10, 131, 340, 720)
"""Told without faults beyond kills, reboots, cut connections, and messages that are repeated or late."""
FAULTY = {"agents": 3, "images": 131, "forks": 1, "power": 0}


@pytest.mark.parametrize("seed", CLASSIC)
def test_storms(seed):
    over, _ = storm(seed, frozenset())
    assert over.kills > 0


@pytest.mark.parametrize("fault", FAULTY)
def test_storms_with_one_fault_more(fault):
    over, _ = storm(FAULTY[fault], frozenset({fault}))
    assert over.kills > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_more_storms(seed):
    storm(seed)


def test_all_faults_are_told_of_soon():
    assert set().union(*(faults_of(seed) for seed in range(40))) == set(FAULTS)


def test_a_storm_repeats_from_its_seed():
    assert storm(3)[1] == storm(3)[1] != storm(4)[1]


def test_an_act_is_the_same_whatever_others_are_left_out():
    acts = acts_of(5, faults_of(5))
    assert acts == acts_of(5, faults_of(5))
    assert acts[:30] == acts_of(5, faults_of(5), 30)
