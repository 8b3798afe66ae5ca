"""What methods of discovery conclude from usage, the phases of [Stillwell2010] 7.2.2; the table is all memory."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.decisions import JOB, RUNNING, WAITING, Cause, Snapshot
from dfrs.model.errors import InputError
from dfrs.model.needs import NEVER_S, TASK, UNKNOWN, USAGE, WEIGHTS, job_needs, new_tasks
from dfrs.policies.discovery.dynamic import best_weights
from dfrs.policies.discovery.methods import DISCOVERIES, find_discovery, settings_of
from dfrs.policies.names import find_policy
from dfrs.simulator.discovery import Scene, share, traces
from tests.naive.sharing import divided

SUMMED = [name for name in DISCOVERIES if name != "NONE"]


def table_of(*nodes, estimates=None, declared=None):
    table = np.concatenate([new_tasks(t, [n], None if declared is None else declared[t]) for t, n in enumerate(nodes)])
    if estimates is not None:
        table["estimate"] = estimates
    return table


def usage_of(table, need, seconds, capacity):
    """What tasks with these needs use under the weights of the table."""
    usage = np.zeros(len(table), USAGE)
    node, weight = table["node"].tolist(), table["weight"].tolist()
    total = np.bincount(table["node"], weights=table["weight"], minlength=len(capacity))
    usage["seconds"] = seconds
    usage["used_s"] = np.array(divided(node, weight, need, capacity)) * seconds
    usage["share"] = table["weight"] / total[table["node"]] * np.array(capacity)[table["node"]]
    for name in UNKNOWN:
        usage[name] = np.nan
    return usage


def driven(method, table, need, until_s, capacity=(1.0,)):
    """Revisions at each step, from 0 on, with these needs throughout."""
    now, usage, revisions = 0.0, np.zeros(len(table), USAGE), []
    while now < until_s:
        revision = method.step(now, table, usage, np.array(capacity))
        revisions.append((now, revision))
        table = revision.table
        usage = usage_of(table, need, revision.next_step_s - now, list(capacity))
        now = revision.next_step_s
    return revisions


def test_a_new_task_starts_with_all_it_may_need_or_with_what_was_declared():
    rows = new_tasks(7, [3, 1], most=0.5)
    assert rows["estimate"].tolist() == rows["told"].tolist() == [0.5, 0.5]
    assert rows[["job", "rank", "node"]].tolist() == [(7, 0, 3), (7, 1, 1)]
    assert (rows["discovered_s"] == NEVER_S).all()
    assert new_tasks(7, [0], need=0.2)["estimate"].tolist() == [0.2]


def test_a_job_needs_what_the_largest_of_its_tasks_does():
    table = np.concatenate([new_tasks(1, [0, 1]), new_tasks(2, [1])])
    table["estimate"] = [0.2, 0.7, 0.4]
    assert job_needs(table) == {1: 0.7, 2: 0.4}


@pytest.mark.parametrize("name", DISCOVERIES)
def test_every_method_is_found_under_its_name(name):
    assert find_discovery(name).name == name


def test_what_is_no_method_or_setting_is_refused():
    with pytest.raises(InputError, match="did you mean DYNAMIC"):
        find_discovery("DYNAMICS")
    with pytest.raises(InputError, match="no setting probe_s; settings are discovery_s"):
        find_discovery("DYNAMIC", probe_s=1.0)
    with pytest.raises(InputError, match="it has no settings"):
        find_discovery("NONE", step_s=1.0)
    with pytest.raises(InputError, match="above 0"):
        find_discovery("OBSERVE", step_s=0.0)
    assert "step_s" in settings_of("OBSERVE")
    assert (
        find_discovery("DYNAMIC", discovery_s=5.0).step(0.0, table_of(0), np.zeros(1, USAGE), np.ones(1)).next_step_s
        == 5
    )


@pytest.mark.parametrize("name", SUMMED)
def test_weights_are_positive_and_sum_to_100_on_each_node(name):
    rng = np.random.default_rng(5)
    need = traces(rng, 6, 600, 60.0, 1)
    scene = Scene(capacity=np.array([1.0, 0.5]), node=np.array([0, 0, 0, 1, 1, 1, 0]), need=need, memory=np.ones(7))
    method = find_discovery(name)

    class Checked:
        name = method.name

        def step(self, now_s, table, usage, capacity):
            given = table.copy(), usage.copy()
            revision = method.step(now_s, table, usage, capacity)
            assert (given[0] == table).all()
            assert given[1].tobytes() == usage.tobytes()
            assert (revision.weights > 0).all()
            assert np.bincount(table["node"], revision.weights) == pytest.approx([WEIGHTS, WEIGHTS])
            return revision

    share(scene, Checked())


@pytest.mark.parametrize("name", DISCOVERIES)
def test_no_tasks_are_no_error(name):
    for now in (0.0, 60.0, 130.0):
        revision = find_discovery(name).step(now, np.zeros(0, TASK), np.zeros(0, USAGE), np.ones(2))
        assert (len(revision.table), dict(revision.needs)) == (0, {})
        assert revision.weights is None or len(revision.weights) == 0
        assert revision.next_step_s > now


@pytest.mark.parametrize("name", ["DYNAMIC", "OBSERVE"])
def test_a_restarted_controller_goes_on_to_the_bit(name):
    need = traces(np.random.default_rng(2), 4, 800, 100.0)
    scene = Scene(capacity=np.ones(1), node=np.zeros(4, np.int64), need=need, memory=np.ones(4))

    class Restarting:
        """Each step is of a new object, with the table read back from bytes."""

        name = "restarting"

        def step(self, now_s, table, usage, capacity):
            stored = np.array([tuple(row) for row in table.tolist()], TASK)
            return find_discovery(name).step(now_s, stored, usage, capacity)

    assert (share(scene, Restarting()).yields == share(scene, find_discovery(name)).yields).all()
    assert np.isfinite(np.array(table_of(0).tolist()[0], float)).all()


@pytest.mark.parametrize("name", ["DYNAMIC", "OBSERVE"])
def test_declared_needs_are_never_revised(name):
    table = table_of(0, 0, declared=[0.3, 0.4])
    for _, revision in driven(find_discovery(name), table, [0.9, 0.05], 600.0):
        assert revision.table["estimate"].tolist() == [0.3, 0.4]
        assert not revision.needs


class TestDynamic:
    def test_phases_alternate_and_one_task_a_node_has_all_but_one_for_each_other(self):
        revisions = driven(find_discovery("DYNAMIC"), table_of(0, 0, 0), [0.9, 0.8, 0.7], 540.0)
        discoveries = [revision for now, revision in revisions if now % 180 == 0]
        assert [r.weights.tolist() for r in discoveries] == [[98, 1, 1], [1, 98, 1], [1, 1, 98]]
        assert [r.next_step_s for r in discoveries] == [60, 240, 420]

    @pytest.mark.parametrize(("tasks", "most", "least"), [(1, 100, 100), (51, 50, 1), (101, 50, 0.5), (151, 50, 1 / 3)])
    def test_the_task_under_discovery_has_half_of_a_node_with_very_many(self, tasks, most, least):
        revision = find_discovery("DYNAMIC").step(0.0, table_of(*[0] * tasks), np.zeros(tasks, USAGE), np.ones(1))
        assert (revision.weights.max(), revision.weights.min()) == pytest.approx((most, least))
        assert revision.weights.sum() == pytest.approx(WEIGHTS)

    def test_the_average_over_the_phase_is_the_estimate(self):
        revisions = dict(driven(find_discovery("DYNAMIC"), table_of(0, 0), [0.6, 0.9], 200.0))
        after = revisions[60.0]
        assert after.table["estimate"][0] == pytest.approx(0.6)
        assert after.table["discovered_s"].tolist() == [60.0, NEVER_S]
        assert after.needs[0] == pytest.approx(0.6)

    def test_the_least_recently_discovered_is_next_ties_to_the_lower_estimate(self):
        table = table_of(0, 0, 0, estimates=[0.9, 0.2, 0.1])
        table["discovered_s"] = [5.0, 5.0, 9.0]
        revision = find_discovery("DYNAMIC").step(0.0, table, np.zeros(3, USAGE), np.ones(1))
        assert revision.table["chosen"].tolist() == [0, 1, 0]

    def test_weights_of_allocation_are_max_min_then_the_best_average(self):
        """Node 0 decides the minimum yield 0.5; on node 1 the small task costs least to raise."""
        table = table_of(0, 0, 1, 1, estimates=[1.0, 1.0, 0.4, 0.8])
        weights = best_weights(table, np.ones(2))
        assert weights == pytest.approx([50, 50, 40, 60])

    def test_what_is_left_when_all_are_satisfied_is_for_all_alike(self):
        assert best_weights(table_of(0, 0, estimates=[0.2, 0.4]), np.ones(1)) == pytest.approx([40, 60])

    def test_less_than_estimate_and_share_is_a_discovery_and_its_slack_is_dealt_out_equally(self):
        table = table_of(0, 0, 0, estimates=[0.5, 0.5, 0.5])
        table["phase"], table["weight"] = 1, WEIGHTS / 3
        usage = usage_of(table, [0.1, 0.9, 0.9], 10.0, [1.0])
        revision = find_discovery("DYNAMIC").step(70.0, table, usage, np.ones(1))
        assert revision.table["estimate"] == pytest.approx([0.1, 0.5, 0.5])
        assert revision.table["discovered_s"].tolist() == [70.0, NEVER_S, NEVER_S]
        assert revision.weights == pytest.approx([10, 45, 45])

    def test_a_task_that_is_held_to_its_share_is_not_taken_for_a_smaller_one(self):
        table = table_of(0, 0, estimates=[0.9, 0.9])
        table["phase"], table["weight"] = 1, 50.0
        revision = find_discovery("DYNAMIC").step(70.0, table, usage_of(table, [0.9, 0.9], 10.0, [1.0]), np.ones(1))
        assert revision.table["estimate"].tolist() == [0.9, 0.9]

    def test_more_than_the_estimate_raises_it_without_a_discovery(self):
        table = table_of(0, 0, estimates=[0.2, 0.2])
        table["phase"], table["weight"] = 1, 50.0
        revision = find_discovery("DYNAMIC").step(70.0, table, usage_of(table, [0.7, 0.2], 10.0, [1.0]), np.ones(1))
        assert revision.table["estimate"] == pytest.approx([0.7, 0.2])
        assert (revision.table["discovered_s"] == NEVER_S).all()

    def test_only_the_one_that_migrates_asks_for_it(self):
        for name, expected in (("DYNAMIC", False), ("DYNAMIC+MIGRATION", True)):
            revisions = driven(find_discovery(name), table_of(0, 0), [0.6, 0.9], 200.0)
            assert any(r.repack for _, r in revisions) is expected
            assert all(now % 180 == 60 for now, r in revisions if r.needs)


class TestObserve:
    def test_needs_that_can_be_met_are_known_after_one_step(self):
        revisions = driven(find_discovery("OBSERVE"), table_of(0, 0), [0.3, 0.4], 4.0)
        assert revisions[1][1].table["estimate"] == pytest.approx([0.3, 0.4])
        assert revisions[1][1].table["error"] == pytest.approx([0.0, 0.0])

    @given(need=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=4))
    def test_an_overloaded_node_is_known_within_a_few_probes(self, need):
        revisions = driven(find_discovery("OBSERVE"), table_of(*[0] * len(need)), need, 600.0)
        last = revisions[-1][1].table
        # A need near all of the node is seen only while it is probed: then the bar is wide, and says so.
        assert (np.abs(last["estimate"] - need) <= np.maximum(0.2, 2 * last["error"])).all()

    def test_a_fall_shows_in_the_next_step_and_a_rise_where_there_is_room(self):
        method = find_discovery("OBSERVE")
        table = driven(method, table_of(0, 0), [0.3, 0.4], 10.0)[-1][1].table
        for need in ([0.1, 0.4], [0.1, 0.8]):
            table = method.step(12.0, table, usage_of(table, need, 2.0, [1.0]), np.ones(1)).table
            assert table["estimate"] == pytest.approx(need)

    def test_a_task_that_uses_all_it_has_is_known_to_need_no_less_and_the_bar_is_wide(self):
        table = table_of(0, 0)
        table["weight"] = 50.0
        revision = find_discovery("OBSERVE").step(2.0, table, usage_of(table, [0.9, 0.7], 2.0, [1.0]), np.ones(1))
        assert (revision.table["estimate"] > 0.5).all()
        assert (revision.table["error"] > 0.1).all()
        assert (revision.table["discovered_s"] == NEVER_S).all()

    def test_a_throttled_task_is_limited_on_an_idle_node(self):
        table = table_of(0)
        table["weight"] = 100.0
        usage = usage_of(table, [0.2], 2.0, [1.0])
        usage["throttled_s"] = 1.0
        assert find_discovery("OBSERVE").step(2.0, table, usage, np.ones(1)).table["discovered_s"][0] == NEVER_S

    @pytest.mark.parametrize(
        ("waiting_s", "idle_s", "hidden"), [(1.95, 0.0, True), (0.8, 0.9, False), (0.0, 0.0, False)]
    )
    def test_who_stands_in_line_whenever_it_does_not_run_is_not_satisfied(self, waiting_s, idle_s, hidden):
        table = table_of(0, 0)
        table["weight"] = 10.0, 90.0
        usage = usage_of(table, [0.8, 1.0], 2.0, [1.0])
        usage["used_s"] = 0.04, 1.94
        usage["waiting_s"][0], usage["idle_s"][0], usage["delayed_s"][0] = waiting_s, idle_s, waiting_s
        after = find_discovery("OBSERVE").step(2.0, table, usage, np.ones(1)).table
        assert (after["discovered_s"][0] == NEVER_S) == hidden
        assert (after["error"][0] > 0.1) == hidden

    @pytest.mark.parametrize(
        ("used_s", "waiting_s", "delayed_s", "idle_s", "need"),
        [
            # Always ready, with half a node's CPUs of threads: that is its need, whoever else has the node.
            (0.1, 0.9, 1.8, 0.0, 0.5),
            # Half the time it waits for something else, half of the rest for the CPU: between 1 / 8 and 1 / 6.
            (0.25, 0.25, 0.5, 1.0, 7.0 / 48.0),
            (0.5, 0.0, 0.0, 1.0, 0.25),
        ],
    )
    @pytest.mark.parametrize("load", [0.05, 1.0])
    def test_how_long_a_task_was_held_up_tells_its_need_whatever_else_the_host_does(
        self, used_s, waiting_s, delayed_s, idle_s, need, load
    ):
        table = table_of(0, 0)
        table["weight"] = 50.0
        usage = usage_of(table, [0.1, load], 2.0, [1.0])
        usage["used_s"][0], usage["waiting_s"][0] = used_s, waiting_s
        usage["delayed_s"][0], usage["idle_s"][0] = delayed_s, idle_s
        after = find_discovery("OBSERVE").step(2.0, table, usage, np.ones(1)).table
        assert after["estimate"][0] == pytest.approx(need)
        assert after["error"][0] < 0.05

    @pytest.mark.parametrize(("delays", "need"), [((0.8, 0.0, 0.8), 0.25), ((0.8, 0.8), (0.25 + 0.25 / 0.6) / 2)])
    def test_who_is_held_up_and_has_time_left_needs_something_between(self, delays, need):
        """A quarter of a node is needed by work that comes by itself: a time without delays shows it."""
        table = table_of(0, 0)
        table["weight"] = 50.0
        for k, delayed_s in enumerate(delays):
            usage = usage_of(table, [0.1, 1.0], 2.0, [1.0])
            usage["used_s"][0], usage["waiting_s"][0] = 0.5, delayed_s
            usage["delayed_s"][0], usage["idle_s"][0] = delayed_s, 1.5 - delayed_s
            table = find_discovery("OBSERVE").step(2.0 + 2.0 * k, table, usage, np.ones(1)).table
        assert table["estimate"][0] == pytest.approx(need)
        assert (table["error"][0] < 0.01) == (0.0 in delays)

    @pytest.mark.parametrize(("weight", "capacity"), [(95.0, 1.0), (95.0, 0.6), (60.0, 1.0)])
    def test_who_is_offered_nearly_all_of_its_node_needs_what_it_uses(self, weight, capacity):
        """Though it is held up, as by tasks of another node on the same CPUs."""
        table = table_of(0, 0)
        table["weight"] = weight, 100.0 - weight
        usage = usage_of(table, [0.1, 1.0], 2.0, [capacity])
        usage["used_s"][0], usage["waiting_s"][0], usage["delayed_s"][0], usage["idle_s"][0] = 0.5, 0.8, 0.8, 0.7
        found = find_discovery("OBSERVE").step(2.0, table, usage, np.full(1, capacity)).table
        assert (found["estimate"][0] == pytest.approx(0.25)) == (weight == 95.0)
        assert (found["error"][0] < 0.01) == (weight == 95.0)

    def test_who_may_need_more_than_is_known_gets_no_less_than_an_equal_share(self):
        table = table_of(0, 0, 0, estimates=[1.0, 1.0, 0.2], declared=[1.0, 1.0, None])
        table["declared"] = 1, 1, 0
        table["weight"] = 40.0, 40.0, 20.0
        table["low"], table["high"], table["trust"], table["error"] = 0.2, 0.9, 0.5, 0.2
        usage = usage_of(table, [1.0, 1.0, 1.0], 2.0, [1.0])
        found = find_discovery("OBSERVE").step(2.0, table, usage, np.ones(1))
        assert found.table["error"][2] > 0.15
        assert found.weights[2] >= WEIGHTS / 3 - 1e-9

    def test_the_error_bar_grows_while_a_need_is_hidden(self):
        revisions = driven(find_discovery("OBSERVE", probe_error=9.0), table_of(0, 0), [0.2, 1.0], 120.0)
        hidden = [r.table["error"][1] for _, r in revisions[5:]]
        assert all(b >= a - 0.05 for a, b in pairwise(hidden))

    def test_probes_are_short_rare_and_leave_others_something(self):
        revisions = driven(find_discovery("OBSERVE"), table_of(0, 0, 0), [0.9, 0.9, 0.9], 600.0)
        probing = [now for now, r in revisions if r.table["chosen"].any()]
        assert probing
        assert all(now % 60 < 2 for now in probing)
        assert all(r.weights.min() >= 0.5 for _, r in revisions)

    def test_nobody_is_probed_where_there_is_room(self):
        revisions = driven(find_discovery("OBSERVE"), table_of(0, 0), [0.3, 0.4], 300.0)
        assert not any(r.table["chosen"].any() for _, r in revisions[1:])

    def test_the_policy_is_told_of_what_matters_and_not_too_often(self):
        revisions = driven(find_discovery("OBSERVE"), table_of(0, 0), [0.3, 0.4], 300.0)
        told = [(now, dict(r.needs)) for now, r in revisions if r.needs]
        assert len(told) == 1
        assert told[0][1] == pytest.approx({0: 0.3, 1: 0.4})

    def test_it_beats_equal_weights_by_both_measures(self):
        for hogs in (0, 1):
            need = traces(np.random.default_rng(11), 6, 7200, 1200.0, hogs)
            node = np.array([0, 0, 0, 1, 1, 1, *range(hogs)])
            scene = Scene(capacity=np.ones(2), node=node, need=need, memory=np.full(len(node), 0.25))
            ours, equal = share(scene, find_discovery("OBSERVE")), share(scene, find_discovery("EQUAL"))
            assert ours.average_minimum > 0.95 * equal.average_minimum
            assert ours.minimum_average > equal.minimum_average


def snapshot_of(need, nodes, count=2, states=None):
    jobs = np.zeros(len(need), JOB)
    jobs["id"] = jobs["serial"] = np.arange(len(need))
    jobs["tasks"], jobs["weight"], jobs["need"], jobs["memory"] = 1, 1.0, need, 0.25
    jobs["state"] = RUNNING if states is None else states
    jobs["virtual_s"], jobs["requested_start_s"] = 100.0, np.nan
    return Snapshot(
        now_s=200.0,
        cause=Cause.NEEDS,
        subject=-1,
        capacity=np.ones((count, 2)),
        open=np.ones(count, np.bool_),
        jobs=jobs,
        first=np.arange(len(need) + 1),
        task_nodes=np.array(nodes),
        moved=0.0,
    )


class TestThreshold:
    def test_revised_needs_move_jobs_only_for_more_than_the_threshold(self):
        policy = find_policy("MCB*/OPT=MIN/NEEDS=0.1")
        crowded = snapshot_of([0.9, 0.9, 0.1, 0.1], [0, 0, 1, 1])
        assert sorted(policy.decide(crowded).task_nodes[:2].tolist()) == [0, 1]
        near = snapshot_of([0.53, 0.53, 0.5, 0.5], [0, 0, 1, 1])
        assert policy.decide(near).task_nodes.tolist() == [0, 0, 1, 1]
        assert sorted(find_policy("MCB*/OPT=MIN/NEEDS=0.01").decide(near).task_nodes[:2].tolist()) == [0, 1]

    def test_a_job_that_waits_is_reason_enough(self):
        waiting = snapshot_of([0.5, 0.5], [0, -1], states=[RUNNING, WAITING])
        assert (find_policy("MCB*/NEEDS=0.1").decide(waiting).task_nodes >= 0).all()

    def test_without_it_revised_needs_are_as_a_completion(self):
        crowded = snapshot_of([0.9, 0.9, 0.1, 0.1], [0, 0, 1, 1])
        assert find_policy("Greedy*").decide(crowded).task_nodes.tolist() == [0, 0, 1, 1]
        assert find_policy("MCB*").decide(crowded).task_nodes.tolist() != [0, 0, 1, 1]

    def test_the_part_is_read(self):
        with pytest.raises(InputError, match="above 0"):
            find_policy("MCB*/NEEDS=none")
