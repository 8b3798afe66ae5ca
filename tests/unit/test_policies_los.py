"""The policies of [Kumar2011] Table III: names, the document's example, dedicated jobs on time, users' commands."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dfrs
from dfrs.model.elastic import Answer, CommandKind, ElasticCommands
from dfrs.model.errors import InputError
from dfrs.model.jobs import Workload
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Action
from dfrs.model.tolerances import SAME_S
from dfrs.policies.batch.backfilling import MissingEstimateError
from dfrs.policies.batch.los import UnequalNodesError
from dfrs.policies.names import TABLE_III, find_policy
from dfrs.simulator.simulation import Simulation, SimulationSettings

DEDICATED = [name for name in TABLE_III if name.endswith(("-D", "-DE")) or name.startswith("Hybrid")]
BATCH = [name for name in TABLE_III if name not in DEDICATED]
LATE = {
    "late: other dedicated jobs had the nodes",
    "late: jobs from before its submission had the nodes",
    "late: jobs past their estimates, or extended, had the nodes",
    "late: too many nodes were closed",
    "late: a command had changed it",
}


def workload(rows: Sequence[tuple[float, int, float, float]], nodes: int = 10, **more) -> Workload:
    """Jobs 1, 2, … as (submission, nodes, run time, requested start or NaN)."""
    submit_s, tasks, run_s, wanted_s = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    columns = {"user": np.full(len(rows), -1), "weight": np.ones(len(rows)), "need": np.ones(len(rows))}
    return Workload(
        job_id=np.arange(1, len(rows) + 1),
        submit_s=submit_s,
        tasks=tasks.astype(np.int64),
        run_s=run_s,
        memory=np.zeros(len(rows)),
        requested_start_s=wanted_s,
        nodes=nodes,
        **{"estimate_s": run_s} | columns | more,
    )


def batch(*rows):
    return [(*row, np.nan) for row in rows]


def commands(*rows):
    time_s, job_id, kind, amount = zip(*rows, strict=True)
    return ElasticCommands(
        time_s=np.array(time_s, np.float64),
        job_id=np.array(job_id),
        kind=np.array([CommandKind[k] for k in kind]),
        amount=np.array(amount, np.float64),
    )


def why_started(run, job):
    row = np.flatnonzero((run.events.job == job) & (run.events.action == Action.START))[-1]
    return run.events.reasons[run.events.why[row]]


def in_use(run, at_s):
    runs = (run.start_s <= at_s) & (at_s < run.finish_s)
    return int(run.workload.tasks[runs].sum())


FIGURE_2 = batch((0.0, 10, 5.0), (1.0, 7, 100.0), (2.0, 4, 100.0), (3.0, 6, 100.0))
"""A job that fills the machine while the three of the figure arrive."""


@pytest.mark.parametrize(("policy", "used"), [("LOS", 7), ("Delayed-LOS", 10), ("EASY", 7)])
def test_figure_2_processors_in_use(policy, used):
    assert in_use(dfrs.simulate(workload(FIGURE_2), policy), 5.0) == used


@pytest.mark.parametrize("skips", [1, 2, 3])
def test_the_first_of_the_queue_is_left_out_so_many_times(skips):
    # Pairs of 4 and 6 nodes fill the machine again and again; the job of 7 waits until it has been left out enough.
    pairs = [row for k in range(4) for row in ((2.0 + k, 4, 10.0), (2.5 + k, 6, 10.0))]
    run = dfrs.simulate(workload(batch((0.0, 10, 5.0), (1.0, 7, 10.0), *pairs)), f"Delayed-LOS/CS={skips}")
    assert run.start_s[1] == 5.0 + 10.0 * skips


def test_a_set_is_looked_for_among_the_first_of_the_queue_only():
    rows = workload(FIGURE_2)
    assert in_use(dfrs.simulate(rows, "Delayed-LOS/LOOKAHEAD=3"), 5.0) == 10
    assert in_use(dfrs.simulate(rows, "Delayed-LOS/LOOKAHEAD=2"), 5.0) == 7


def test_nodes_in_units_are_not_shared_by_jobs():
    rows = workload(batch((0.0, 3, 10.0), (0.0, 4, 10.0), (0.0, 2, 10.0)), nodes=10)
    assert dfrs.simulate(rows, "LOS").start_s.tolist() == [0.0, 0.0, 0.0]
    assert dfrs.simulate(rows, "LOS/UNIT=4").start_s.tolist() == [0.0, 0.0, 10.0]


def test_with_many_small_jobs_a_switching_policy_is_easy():
    rows = FIGURE_2 + batch(*((4.0, 1, 1.0) for _ in range(20)))
    easy, switching = (dfrs.simulate(workload(rows), name) for name in ("EASY", "Delayed-LOS/SWITCH=0.5"))
    assert switching.start_s.tolist() == easy.start_s.tolist()
    few = dfrs.simulate(workload(FIGURE_2), "Delayed-LOS/SWITCH=0.5")
    assert in_use(few, 5.0) == 10


def test_automatic_skips_are_as_many_as_serve_the_queue_best():
    # Left out once, the job of 7 would wait for 1,000 s: the two that fill the machine do better one after another.
    long = batch((0.0, 10, 5.0), (1.0, 7, 1.0), (2.0, 4, 1_000.0), (3.0, 6, 1_000.0))
    assert in_use(dfrs.simulate(workload(long), "Delayed-LOS/CS=AUTO"), 5.0) == 7
    assert in_use(dfrs.simulate(workload(FIGURE_2), "Delayed-LOS/CS=AUTO"), 5.0) == 10


@st.composite
def workloads(draw, *, dedicated=True, most=14):
    nodes = draw(st.integers(2, 10))
    # Times that are no whole numbers are known up to rounding.
    tick_s = draw(st.sampled_from([1.0, 1.0, 0.1, 1 / 3]))
    rows = []
    for _ in range(draw(st.integers(1, most))):
        submit = draw(st.integers(0, 30))
        wanted_s = (
            (submit + draw(st.integers(-2, 25))) * tick_s if dedicated and draw(st.integers(0, 2)) == 0 else np.nan
        )
        rows.append((submit * tick_s, draw(st.integers(1, nodes)), draw(st.integers(1, 12)) * tick_s, wanted_s))
    return workload(rows, nodes=nodes)


@pytest.mark.parametrize("name", BATCH)
@settings(max_examples=25, deadline=None)
@given(rows=workloads(dedicated=False))
def test_without_dedicated_jobs_and_commands_the_queues_for_them_change_nothing(name, rows):
    plain = dfrs.simulate(rows, name.removesuffix("-E"))
    kin = {"EASY": "EASY-D", "EASY-E": "EASY-DE", "LOS": "LOS-D", "LOS-E": "LOS-DE"}
    other = kin.get(name, name.replace("Delayed", "Hybrid"))
    for run in (dfrs.simulate(rows, name), dfrs.simulate(rows, other)):
        assert run.start_s.tolist() == plain.start_s.tolist()


def could_be_on_time(run, job):
    """Whether, when it was submitted, nodes were left for it beside who ran then and who was booked before it."""
    work = run.workload
    begin_s = work.release_s[job]
    end_s = begin_s + work.run_s[job]
    before = np.arange(len(work)) < job
    ran = (run.start_s < work.submit_s[job]) | (before & (run.start_s == work.submit_s[job]))
    there = np.flatnonzero(ran | (before & work.dedicated))
    there = there[there != job]
    moments = [begin_s, *(t for t in run.start_s[there] if begin_s < t < end_s - SAME_S)]
    used = [
        work.tasks[there][(run.start_s[there] <= at + SAME_S) & (at + SAME_S < run.finish_s[there])].sum()
        for at in moments
    ]
    return max(used) + work.tasks[job] <= work.nodes


@pytest.mark.parametrize("name", ["Hybrid-LOS", "Hybrid-LOS/CS=1", "LOS-D", "EASY-D", "Hybrid-LOS/CS=AUTO"])
@settings(max_examples=120, deadline=None)
@given(rows=workloads(), order=st.sampled_from(["completions-first", "submissions-first"]))
def test_dedicated_jobs_start_on_time_when_there_is_room_or_say_why_not(name, rows, order):
    run = dfrs.simulate(rows, name, order=order)
    assert np.isfinite(run.finish_s).all()
    for job in np.flatnonzero(rows.dedicated).tolist():
        delay_s = run.start_s[job] - rows.release_s[job]
        assert delay_s >= 0
        if could_be_on_time(run, job):
            assert delay_s <= SAME_S
        why = why_started(run, job)
        assert why == "its requested start" if delay_s <= SAME_S else why in LATE
        if delay_s > SAME_S and order == "completions-first":
            assert_true_reason(run, job, why)


def assert_true_reason(run, job, why):
    """Estimates are right, nothing is changed and no node fails here: two reasons remain."""
    work, at_s = run.workload, run.workload.release_s[job]
    there = (run.start_s <= at_s + SAME_S) & (at_s < run.finish_s)
    earlier = there & ~work.dedicated & (run.start_s <= work.submit_s[job])
    if "submission" in why:
        assert earlier.any()
    else:
        assert "dedicated" in why
        booked = (np.arange(len(work)) < job) & work.dedicated & (run.finish_s > at_s)
        assert booked.any()


def test_a_dedicated_job_is_late_because_of_a_job_that_ran_before():
    run = dfrs.simulate(workload([(0.0, 8, 50.0, np.nan), (1.0, 5, 10.0, 20.0)]), "Hybrid-LOS")
    assert (run.start_s[1], why_started(run, 1)) == (50.0, "late: jobs from before its submission had the nodes")


def test_a_dedicated_job_is_late_because_of_one_booked_before():
    run = dfrs.simulate(workload([(0.0, 8, 50.0, 10.0), (1.0, 5, 10.0, 20.0)]), "Hybrid-LOS")
    assert (run.start_s[1], why_started(run, 1)) == (60.0, "late: other dedicated jobs had the nodes")


def test_a_dedicated_job_is_late_because_a_job_was_extended():
    rows = [(0.0, 1, 1.0, 20.0), (1.0, 5, 10.0, 20.0), (2.0, 8, 17.0, np.nan)]
    run = dfrs.simulate(workload(rows, commands=commands((10.0, 3, "ET", 5.0))), "Hybrid-LOS-E")
    assert run.start_s[2] == 2.0
    assert (run.start_s[1], why_started(run, 1)) == (
        24.0,
        "late: jobs past their estimates, or extended, had the nodes",
    )


def test_rounding_takes_no_booking_away():
    rows = [(0.2, 5, 14.9, np.nan), (3.1, 10, 10.0, 15.1), (4.7, 10, 10.0, 20.1), (6.0, 5, 13.1, np.nan)]
    run = dfrs.simulate(workload(rows), "Hybrid-LOS")
    assert run.start_s[1] == pytest.approx(15.1, abs=SAME_S)


def test_a_promised_start_is_not_taken_by_a_booking_that_becomes_possible():
    # Job 2 wants 20 s, when job 1 is still there; job 3 is promised 25 s; then job 1 is shortened.
    rows = [(0.0, 8, 30.0, np.nan), (1.0, 5, 10.0, 20.0), (2.0, 2, 10.0, 25.0), (3.0, 8, 10.0, 30.0)]
    run = dfrs.simulate(workload(rows, commands=commands((5.0, 1, "RT", 12.0))), "Hybrid-LOS-E")
    assert run.start_s.tolist()[1:3] == [20.0, 25.0]
    rows[1] = (1.0, 9, 10.0, 20.0)
    run = dfrs.simulate(workload(rows, commands=commands((5.0, 1, "RT", 12.0))), "Hybrid-LOS-E")
    assert run.start_s[2] == 25.0


def test_a_booking_that_is_extended_waits_for_those_that_are_not():
    rows = [(0.0, 6, 10.0, 10.0), (1.0, 6, 10.0, 20.0)]
    run = dfrs.simulate(workload(rows, commands=commands((5.0, 1, "ET", 5.0))), "Hybrid-LOS-E")
    assert run.start_s.tolist() == [30.0, 20.0]
    assert why_started(run, 0) == "late: other dedicated jobs had the nodes"


@pytest.mark.parametrize(
    ("rows", "changes", "events", "why"),
    [
        (
            [(0.0, 3, 9.0, 10.0)],
            [(5.0, 1, "EP", 7.0), (12.0, 1, "RP", 5.0)],
            [(8.0, 0, "DOWN"), (11.0, 0, "UP")],
            "late: too many nodes were closed",
        ),
        (
            [(0.0, 4, 5.0, 10.0), (1.0, 8, 9.0, 12.0)],
            [],
            [(10.0, 0, "DRAIN"), (11.0, 0, "UP")],
            "late: other dedicated jobs had the nodes",
        ),
        (
            [(0.0, 9, 9.0, 10.0)],
            [],
            [(9.0, 0, "DRAIN"), (9.0, 1, "DRAIN"), (13.0, 0, "UP")],
            "late: too many nodes were closed",
        ),
        (
            [(0.0, 4, 12.0, 5.0), (1.0, 8, 9.0, 20.0)],
            [(6.0, 1, "ET", 9.0)],
            [],
            "late: jobs past their estimates, or extended, had the nodes",
        ),
    ],
)
def test_the_reason_of_a_late_start_is_the_true_one(rows, changes, events, why):
    nodes = [(at_s, NodeChange(node, Condition[name])) for at_s, node, name in events]
    made = {"commands": commands(*changes)} if changes else {}
    run = Simulation(
        workload(rows, **made), find_policy("Hybrid-LOS-E"), "Hybrid-LOS-E", SimulationSettings(node_events=nodes)
    ).run()
    late = np.flatnonzero(run.start_s > run.workload.release_s)
    assert [why_started(run, job) for job in late.tolist()] == [why]


def test_a_dedicated_job_that_lost_its_node_starts_anew():
    nodes = [(12.0, NodeChange(0, Condition.DOWN)), (14.0, NodeChange(0, Condition.UP))]
    run = Simulation(
        workload([(0.0, 10, 9.0, 10.0)]), find_policy("Hybrid-LOS"), "Hybrid-LOS", SimulationSettings(node_events=nodes)
    ).run()
    assert (run.finish_s.tolist(), why_started(run, 0)) == ([23.0], "room became free")


def test_a_running_job_grows_only_into_units_of_its_own():
    rows = workload(batch((0.0, 3, 50.0), (0.0, 4, 50.0)), commands=commands((1.0, 1, "EP", 1.0), (2.0, 1, "EP", 1.0)))
    answers = dfrs.simulate(rows, "LOS-E/UNIT=4").answers.answer.tolist()
    assert answers == [Answer.GRANTED, Answer.NO_ROOM]
    assert dfrs.simulate(rows, "LOS-E").answers.answer.tolist() == [Answer.GRANTED] * 2


def test_batch_jobs_start_around_dedicated_ones():
    # A job of nine nodes fits before the dedicated one or after it, one of two nodes beside it.
    rows = [(0.0, 8, 10.0, 20.0), (0.0, 9, 10.0, np.nan), (0.0, 9, 30.0, np.nan), (0.0, 2, 20.0, np.nan)]
    run = dfrs.simulate(workload(rows), "Hybrid-LOS")
    assert run.start_s.tolist() == [20.0, 0.0, 30.0, 10.0]


def test_policies_without_a_queue_for_them_learn_of_dedicated_jobs_at_their_requested_start():
    rows = [(0.0, 5, 10.0, 20.0), (0.0, 10, 15.0, np.nan), (1.0, 10, 10.0, np.nan)]
    run = dfrs.simulate(workload(rows), "EASY")
    assert run.start_s.tolist() == [25.0, 0.0, 15.0]
    assert dfrs.simulate(workload(rows), "EASY-D").start_s.tolist() == [20.0, 0.0, 30.0]


@pytest.mark.parametrize("name", TABLE_III)
def test_only_elastic_policies_grant_commands(name):
    run = dfrs.simulate(workload(batch((0.0, 4, 10.0)), commands=commands((5.0, 1, "ET", 7.0))), name)
    elastic = name.endswith(("-E", "-DE"))
    assert run.answers.answer.tolist() == [Answer.GRANTED if elastic else Answer.INELASTIC]
    assert run.finish_s.tolist() == [17.0 if elastic else 10.0]


ELASTIC = [name for name in TABLE_III if name.endswith(("-E", "-DE"))]


@pytest.mark.parametrize("name", ELASTIC)
def test_commands_change_times_and_sizes_of_jobs_that_wait_or_run(name):
    rows = batch((0.0, 6, 20.0), (1.0, 6, 10.0), (2.0, 4, 30.0))
    given_ = commands(
        (3.0, 1, "RT", 5.0),
        (4.0, 1, "RP", 1.0),
        (5.0, 2, "EP", 1.0),
        (6.0, 2, "ET", 2.0),
        (7.0, 3, "EP", 1.0),
        (8.0, 3, "EP", 2.0),
        (9.0, 9, "ET", 1.0),
        (10.0, 3, "RP", 9.0),
        (16.0, 1, "ET", 1.0),
    )
    run = dfrs.simulate(workload(rows, commands=given_), name)
    a = Answer
    assert run.answers.answer.tolist() == [
        a.GRANTED,
        a.GRANTED,
        a.GRANTED,
        a.GRANTED,
        a.GRANTED,
        a.NO_ROOM,
        a.UNKNOWN,
        a.CUT,
        a.ENDED,
    ]
    # At 15 s job 1 is done, and job 3 of one node leaves room for job 2 of seven.
    assert run.start_s.tolist() == [0.0, 15.0, 2.0]
    assert run.finish_s.tolist() == [15.0, 27.0, 32.0]
    assert run.answers.change_tasks.tolist() == [0, -1, 1, 0, 1, 0, 0, -4, 0]


def test_at_most_so_many_commands_on_one_job_are_granted():
    rows = workload(batch((0.0, 4, 10.0)), commands=commands(*((k, 1, "ET", 1.0) for k in (1.0, 2.0, 3.0))))
    run = Simulation(rows, find_policy("LOS-E"), "LOS-E", SimulationSettings(command_limit=2)).run()
    assert run.answers.answer.tolist() == [Answer.GRANTED, Answer.GRANTED, Answer.LIMIT]
    assert run.finish_s.tolist() == [12.0]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Delayed-LOS/CS=0", "must be a whole number of at least 1"),
        ("Delayed-LOS/CS=2.5", "must be a whole number of at least 1"),
        ("Delayed-LOS/CS=3/CS=4", "there is another part for CS"),
        ("LOS/CS=3", "CS is for Delayed-LOS and Hybrid-LOS"),
        ("EASY-D/SWITCH=0.5", "SWITCH is for Delayed-LOS and Hybrid-LOS"),
        ("EASY-D/LOOKAHEAD=9", "LOOKAHEAD is for LOS, Delayed-LOS and Hybrid-LOS"),
        ("EASY-E/UNIT=2", "EASY-E has no parts"),
        ("Delayed-LOS/SWITCH=1.5", "must be a share above 0, at most 1"),
        ("Delayed-LOS/LOOKAHED=50", "did you mean LOOKAHEAD"),
        ("Delayed-LOS/per", "parts are CS=…, LOOKAHEAD=…, UNIT=…, SWITCH=…"),
        ("Delayed-Los", "did you mean Delayed-LOS"),
        ("Hybrid-LOS-D", "did you mean Hybrid-LOS"),
        ("EASY-X", "did you mean EASY"),
    ],
)
def test_what_is_not_a_name_is_refused_with_the_rule(name, rule):
    with pytest.raises(InputError) as caught:
        find_policy(name)
    assert rule in str(caught.value)
    assert name in str(caught.value)


def test_what_policies_cannot_plan_with_is_refused():
    rows = workload(batch((0.0, 4, 10.0)), estimate_s=np.array([np.nan]))
    with pytest.raises(MissingEstimateError, match="job 1 has no estimate, which Hybrid-LOS plans with"):
        dfrs.simulate(rows, "Hybrid-LOS")
    with pytest.raises(UnequalNodesError, match="LOS counts nodes: all open ones must have the same capacity"):
        dfrs.simulate(workload(batch((0.0, 1, 10.0)), nodes=2), "LOS", capacity=np.array([[1.0, 1.0], [2.0, 1.0]]))
