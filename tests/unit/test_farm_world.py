"""The ground under a simulated farm: rates of placements, costs of plans, profiles."""

import numpy as np
import pytest

from dfrs.engine.commands import Commands
from dfrs.model.errors import InputError
from dfrs.model.run import Action, Penalty
from dfrs.model.true_speeds import TrueSpeeds
from dfrs.simulator.heterogeneous import HardwareSettings, HardwareWorld, fits_a_partition, hardware_capacity
from dfrs.simulator.world import World
from tests.farm_cases import farm_of, random_truth
from tests.online_cases import plain_workload

FARM = farm_of()
CAPACITY = hardware_capacity(FARM)
RATE = np.array([[[0.5, 0.8], [0.25, 0.4], [1.0, 1.0]]] * 3)
# Nodes 0 and 1 are machine 0 (A); 2, 3 and 4, 5 machines 1 and 2 (B); 6, 7, 8 machines of their own (C).


def truth(**options):
    return TrueSpeeds.of(
        FARM, RATE, **{"memory": np.array([0.0, 0.75, 0.3]), "thrash": 4.0, "stretch_s": 2.0, "copy_s": 10.0, **options}
    )


def world_of(*run_s, tasks=2, **options):
    settings = HardwareSettings(truth=truth(**options), tau_s=50.0)
    jobs = plain_workload([(0, tasks, 1.0, 0.1, run) for run in run_s], nodes=9)
    ground = HardwareWorld(settings, CAPACITY, np.arange(len(run_s)))
    return World(jobs, Penalty(seconds=7.0), ground), ground


def perform(world, now_s, *rows):
    """Rows (action, job, yield, nodes); what the world acknowledges by job."""
    action, job = (np.array([row[k] for row in rows]) for k in (0, 1))
    bounds = np.cumsum([0, *(len(row[3]) for row in rows)])
    none = np.zeros(len(rows), np.int64)
    nodes = np.array([node for row in rows for node in row[3]], np.int64)
    yields = np.array([row[2] for row in rows], float)
    world.perform(Commands(action, job, job + 1, yields, np.diff(bounds), none, bounds, nodes), now_s)
    told = world.acknowledgement()
    return {} if told is None else dict(zip(told.serials.tolist(), told.ready_s.tolist(), strict=True))


@pytest.mark.parametrize(
    ("nodes", "rate"),
    [
        ((0, 1), 0.8),
        ((2, 3), 0.4),
        ((2, 4), 0.25),
        ((6, 7), 1.0),
        ((6, 6), 1.0),
        ((0, 6), 0.5),
        ((0, 2), 0.25),
        ((2,), 0.4),
        ((4, 5, 6), 0.25),
    ],
)
def test_a_jobs_rate_is_that_of_the_slowest_sub_cluster_it_is_in(nodes, rate):
    assert truth().rate_on(0, nodes, CAPACITY[:, 1]) == rate


def test_a_task_that_wants_more_than_its_node_has_thrashes():
    memory = CAPACITY[:, 1]
    assert truth().rate_on(1, (2, 3), memory) == 0.4 / 4
    assert truth().rate_on(1, (0, 1), memory) == 0.8
    assert truth().rate_on(1, (0, 0), memory) == 0.8 / 4, "two tasks of 0.75 on one node"
    assert truth().rate_on(2, (2, 3), memory) == 0.4


def test_a_job_takes_its_processing_time_over_yield_and_rate():
    world, _ = world_of(100.0)
    assert perform(world, 5.0, (Action.START, 0, 0.5, (2, 3))) == {0: 5.0}
    assert world.next_completion() == (5.0 + 100 / 0.5 / 0.4, 0)
    perform(world, 15.0, (Action.SHARE, 0, 1.0, ()))
    assert world.next_completion() == (15.0 + 98 / 0.4, 0)


@pytest.mark.parametrize(("parallel", "tasks"), [(False, 4), (True, 2)])
def test_jobs_that_migrate_together_share_the_cost_of_their_plan(parallel, tasks):
    """Two jobs exchange A and C: one is then faster, the other slower; four processes move, two leave machine 0."""
    world, _ = world_of(1000.0, 1000.0, memory=np.zeros(3), parallel=parallel)
    perform(world, 0.0, (Action.START, 0, 1.0, (0, 1)), (Action.START, 1, 1.0, (6, 7)))
    told = perform(world, 100.0, (Action.MIGRATE, 0, 1.0, (6, 7)), (Action.MIGRATE, 1, 1.0, (0, 1)))
    stretch_s, took_s = 2.0 * tasks, 10.0 * tasks
    assert told[0] == pytest.approx(100 + stretch_s + took_s * (1 - 0.8 / 1.0))
    assert told[1] == 100 + stretch_s, "the slower rate is that of where it goes: nothing but the stretch is lost"
    by_hand = 100.0 + stretch_s + took_s + (1000 - 80 - 0.8 * took_s) / 1.0
    assert world.next_completion() == (pytest.approx(by_hand), 0)


def test_a_migration_later_at_the_same_instant_makes_the_plan_longer_for_all():
    world, ground = world_of(1000.0, 1000.0, memory=np.zeros(3))
    perform(world, 0.0, (Action.START, 0, 1.0, (0, 1)), (Action.START, 1, 1.0, (6, 7)))
    assert perform(world, 50.0, (Action.MIGRATE, 0, 1.0, (2, 4))) == {0: 54.0}
    assert perform(world, 50.0, (Action.MIGRATE, 1, 1.0, (7, 8))) == {0: 56.0 + 0.0, 1: 50 + 2.0 * 3}
    assert dict(reversed(pair) for pair in ground.pending()) == {0: 50 + 36 + 50, 1: 50 + 36 + 50}
    assert perform(world, 60.0, (Action.MIGRATE, 1, 1.0, (6, 7))) == {1: 60.0 + 2.0}, "another instant, another plan"


def test_resumes_cost_the_penalty_and_starts_nothing():
    world, _ = world_of(1000.0)
    assert perform(world, 0.0, (Action.START, 0, 1.0, (0, 1))) == {0: 0.0}
    assert perform(world, 10.0, (Action.PAUSE, 0, 0.0, ())) == {}
    assert perform(world, 20.0, (Action.RESUME, 0, 1.0, (6, 7))) == {0: 27.0}
    assert world.next_completion() == (27.0 + 992.0, 0)


def test_a_profile_says_what_is_predicted_where_it_was_taken():
    prediction = np.arange(3 * 3 * 2 * 3 * 2).reshape(3, 3, 2, 3, 2) + 1.0
    settings = HardwareSettings(truth=truth(), prediction=prediction)
    ground = HardwareWorld(settings, CAPACITY, np.array([2, 1, 0]))
    world = World(plain_workload([(0, 2, 1.0, 0.1, 100.0)] * 3, nodes=9), Penalty(), ground)
    perform(world, 0.0, (Action.START, 0, 1.0, (2, 4)), (Action.START, 1, 1.0, (3, 5)), (Action.START, 2, 1.0, (0, 6)))
    assert sorted(ground.news()) == [(50.0, 0), (50.0, 1), (50.0, 2)]
    told = ground.profiled(0, 77, 50.0)
    assert (told.job_id, told.swapping, told.required) == (77, False, pytest.approx(0.33))
    assert (told.speed == prediction[2, 1, 0]).all()
    told = ground.profiled(1, 78, 50.0)
    assert told.swapping
    assert np.isnan(told.speed).all(), "a thrashing job is not predicted ([Atif2011] section 5.7)"
    assert told.required == pytest.approx(0.825)
    assert np.isnan(ground.profiled(2, 79, 50.0).speed).all(), "nor one across sub-clusters"
    assert list(ground.pending()) == []


def test_a_profile_is_taken_anew_wherever_the_job_comes_and_not_of_one_that_is_gone():
    world, ground = world_of(1000.0, memory=np.zeros(3))
    perform(world, 0.0, (Action.START, 0, 1.0, (0, 1)))
    perform(world, 30.0, (Action.MIGRATE, 0, 1.0, (6, 7)))
    assert list(ground.news()) == [(30 + 24 + 50.0, 0), (30 + 24 + 50.0, 0)]
    assert list(ground.pending()) == [(104.0, 0)]
    perform(world, 40.0, (Action.SHARE, 0, 0.5, ()))
    assert list(ground.pending()) == [(104.0, 0)]
    perform(world, 60.0, (Action.PAUSE, 0, 0.0, ()))
    assert list(ground.pending()) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rate": np.zeros((2, 3, 2))}, "rate[0]"),
        ({"rate": np.full((2, 3, 2), 1.5)}, "rate[0]"),
        ({"rate": np.full((2, 3, 2), np.nan)}, "rate[0]"),
        ({"rate": np.ones((2, 2, 2))}, "rate of shape"),
        ({"memory": np.array([0.5, -1.0])}, "memory[1]"),
        ({"memory": np.zeros(3)}, "memory of shape"),
        ({"thrash": 0.5}, "thrash[0]"),
        ({"copy_s": -1.0}, "copy_s"),
        ({"stretch_s": np.inf}, "stretch_s"),
    ],
)
def test_what_cannot_be_true_is_an_input_error(changes, named):
    with pytest.raises(InputError) as caught:
        TrueSpeeds.of(FARM, **{"rate": np.ones((2, 3, 2)), **changes})
    assert named in str(caught.value)


def test_a_restored_ground_goes_on_alike():
    world, ground = world_of(1000.0, 1000.0, memory=np.zeros(3))
    perform(world, 0.0, (Action.START, 0, 1.0, (0, 1)), (Action.START, 1, 1.0, (6, 7)))
    perform(world, 50.0, (Action.MIGRATE, 0, 1.0, (2, 4)))
    other, fresh = world_of(1000.0, 1000.0, memory=np.zeros(3))
    other.restore({name: array.copy() for name, array in world.state().items()})
    assert list(fresh.pending()) == list(ground.pending())
    move = (Action.MIGRATE, 1, 1.0, (7, 8))
    assert perform(other, 50.0, move) == perform(world, 50.0, move) == {0: 56.0, 1: 56.0}
    assert other.next_completion() == world.next_completion()


def test_select_keeps_rows_together():
    whole = random_truth(3, 10, FARM)
    part = whole.select(np.array([7, 2]))
    assert len(part) == 2
    assert (part.rate[0] == whole.rate[7]).all()
    assert (part.memory[1], part.thrash[1]) == (whole.memory[2], whole.thrash[2])


@pytest.mark.parametrize(
    ("need", "tasks", "exclusive", "fits"),
    [(0.25, 4, True, True), (0.25, 5, True, False), (0.25, 5, False, True), (1.0, 4, True, True)],
)
def test_an_exclusive_job_fits_a_sub_cluster_with_a_node_a_task(need, tasks, exclusive, fits):
    jobs = plain_workload([(0, tasks, need, 0.1, 10.0)], nodes=9)
    assert fits_a_partition(jobs, CAPACITY, FARM.partition, exclusive=exclusive).tolist() == [fits]
