"""PAYS: a repacking is adopted only where it pays for its penalties before the next one."""

from dataclasses import replace

import numpy as np
import pytest

from dfrs.model.decisions import Prices
from dfrs.model.errors import InputError
from dfrs.model.run import Penalty
from dfrs.policies.fractional.extensions import Paying, PricedPeriod
from dfrs.policies.names import find_policy
from dfrs.runs.metrics.schedule import summarize
from dfrs.simulator.simulation import Simulation, SimulationSettings
from dfrs.testing import SnapshotJob, build_snapshot
from dfrs.workloads.annotate import to_workload
from dfrs.workloads.lublin import Lublin, generate
from dfrs.workloads.transform import scale_to_load

MAIN = "GreedyPM*/per/OPT=MIN/MVT=600"
CROWDED = (SnapshotJob(nodes=[0], yield_=0.5), SnapshotJob(nodes=[0], yield_=0.5))


def adopted(jobs, trial, *, price_s=300.0, period_s=600.0):
    """Whether a repacking of `jobs` to `trial`, the node of each, is adopted at 1200 s."""
    prices = Prices(resume_s=price_s, move_s=price_s)
    shot = replace(build_snapshot(jobs, now_s=1200.0), prices=prices)

    def repack(_snapshot, slots, reasons):
        slots[:] = trial
        reasons[:] = 5

    slots, reasons = shot.task_nodes.copy(), np.zeros(len(jobs), np.int64)
    Paying(repack=repack, period_s=period_s)(shot, slots, reasons)
    changed = slots.tolist() == list(trial)
    assert changed or slots.tolist() == shot.task_nodes.tolist()
    assert reasons.tolist() == [5 * changed] * len(jobs)
    return changed


def test_where_everybody_has_all_they_need_nobody_moves():
    apart = (SnapshotJob(nodes=[0], need=0.5), SnapshotJob(nodes=[1], need=0.5))
    assert not adopted(apart, [0, 0])
    assert not adopted(apart, [0, 0], price_s=0.0)


@pytest.mark.parametrize(
    ("price_s", "period_s", "pays"), [(299.0, 600.0, True), (300.0, 600.0, False), (300.0, 601.0, True)]
)
def test_a_move_pays_where_the_least_yield_rises_in_what_its_penalty_leaves_of_the_period(price_s, period_s, pays):
    """Two jobs with half a node each; the one that moves gets a whole one, for about half of the period."""
    assert adopted(CROWDED, [0, 1], price_s=price_s, period_s=period_s) == pays


def test_the_penalty_is_charged_to_those_that_move_alone():
    """Jobs 1 and 2 have a third of node 0; job 3, which moves, had and keeps more than that."""
    jobs = (
        SnapshotJob(nodes=[0], yield_=1 / 3),
        SnapshotJob(nodes=[0], yield_=1 / 3),
        SnapshotJob(nodes=[0], yield_=1 / 3),
    )
    assert adopted(jobs, [0, 0, 1])
    assert not adopted(jobs, [0, 1, 1], price_s=600.0)


def test_the_period_may_follow_the_prices():
    priced = PricedPeriod(times=3.0, least_s=0.0, most_s=1e6)
    assert adopted(CROWDED, [0, 1], period_s=priced)
    assert not adopted(CROWDED, [0, 1], period_s=PricedPeriod(times=2.0, least_s=0.0, most_s=1e6))


def test_a_job_that_gets_nodes_without_taking_anybodys_is_reason_enough():
    waiting = (SnapshotJob(nodes=[0], memory=0.6), SnapshotJob(nodes=[1], memory=0.3), SnapshotJob(memory=0.7))
    assert adopted(waiting, [0, 0, 1])


@pytest.mark.parametrize(("virtual_s", "pays"), [(300.0, True), (301.0, False), (0.0, True)])
def test_a_job_comes_in_place_of_another_where_its_stretch_is_twice_as_large(virtual_s, pays):
    """The one that leaves has a stretch of 1200 / 600."""
    jobs = (
        SnapshotJob(nodes=[0], memory=0.8, virtual_s=600.0),
        SnapshotJob(paused=True, memory=0.8, virtual_s=virtual_s),
    )
    assert adopted(jobs, [-1, 0]) == pays


def test_who_leaves_for_nobody_stays():
    assert not adopted(CROWDED, [0, -1])


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("GreedyPM*/PAYS", "PAYS is about repacking from time to time"),
        ("MCB*/PAYS", "PAYS is about repacking from time to time"),
        ("GreedyPM*/stretch-per/PAYS", "PAYS compares yields"),
        (f"{MAIN}/PAYS=1", "takes no value"),
    ],
)
def test_names_that_make_no_sense_are_refused(name, rule):
    with pytest.raises(InputError, match=rule):
        find_policy(name)


@pytest.mark.parametrize("parts", ["", "/BUDGET=5", "/REBALANCE", "/VP_CPSUM", "/DECAY=600"])
def test_it_goes_with_the_other_parts(parts):
    for period in ("per", "per=auto", "due"):
        assert find_policy(f"GreedyPM*/{period}/OPT=MIN/MVT=600{parts}/PAYS")


def test_nodes_without_all_abilities_are_packed_within_them():
    policy = find_policy(f"{MAIN}/PAYS")
    within = policy.residence.within(policy.on_wake)
    assert isinstance(within, Paying)
    assert type(within.repack).__name__ == "ResidentRepack"
    assert not any(isinstance(action, Paying) for action in policy._actions)


@pytest.mark.parametrize("seed", [1, 2])
def test_at_low_load_hardly_anybody_moves_and_stretches_are_those_of_easy(seed):
    """A tenth of 1,000 nodes: without it most jobs that run for long move at every repacking, for nothing."""
    trace = generate(Lublin.of(jobs=300, nodes=128), seed=seed)
    workload = to_workload(trace, nodes=1000, annotate="dfrs", seed=seed)[0]
    workload = scale_to_load(workload, 0.1)
    figures = {}
    for name in ("EASY", MAIN, f"{MAIN}/PAYS"):
        run = Simulation(workload, find_policy(name), name, SimulationSettings(penalty=Penalty(seconds=300.0))).run()
        figures[name] = summarize(run)
    moves = {name: found["migrations_per_job"] for name, found in figures.items()}
    assert moves[f"{MAIN}/PAYS"] < 0.05 < moves[MAIN]
    assert figures[f"{MAIN}/PAYS"]["stretch_mean"] <= 1.1 * figures["EASY"]["stretch_mean"]
