"""Fair share over time: who has used much goes behind, by the stated rule, and it is not forgotten by a restart."""

import numpy as np
import pytest

from dfrs.engine.codec import decode, encode
from dfrs.engine.core import Core
from dfrs.engine.events import Hold, Reweigh, Submit, Unhold
from dfrs.live.controller.fair_shares import LEAST, LOOK_S, FairShares
from dfrs.live.controller.records import JobRecord
from dfrs.live.protocol.quotas import AccountQuota, Payer, Quota, Quotas
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import InputError
from dfrs.policies.names import find_policy
from dfrs.testing import InMemoryCluster, run_virtually, until

DAY = 86400.0


def job(name, user="ann", **fields):
    return JobRecord(
        id=name, request_id=name, request=JobRequest(command=("x",), **fields), user=user, submitted_at=0.0
    )


class Clock:
    def __init__(self):
        self.now = 1e9

    def __call__(self):
        return self.now


def shares(quotas=None, half_life_s=7 * DAY):
    clock = Clock()
    return FairShares(half_life_s, quotas, clock), clock


def look(made, *jobs, used):
    made.look({each.id: each for each in jobs}, lambda each: used.get(each.id, 0.0), 0.0)
    return [made.factor(each.request, each.user) for each in jobs]


def test_the_rule():
    made, _ = shares()
    ann, bob = job(1), job(2, "bob")
    assert look(made, ann, bob, used={}) == [1.0, 1.0]
    assert look(made, ann, bob, used={1: 100.0}) == [2.0**-2, 1.0]
    assert look(made, ann, bob, used={1: 100.0, 2: 100.0}) == [0.5, 0.5]
    assert look(made, ann, bob, used={1: 100.0, 2: 300.0}) == pytest.approx([2**-0.5, 2**-1.5])


def test_shares_are_those_of_the_file_and_an_account_pays_for_its_jobs():
    quotas = Quotas(users={"bob": Quota(share=3.0)}, accounts={"physics": AccountQuota(share=2.0)})
    assert [quotas.share(each) for each in (Payer("ann"), Payer("bob"), Payer("physics", is_account=True))] == [1, 3, 2]
    made, _ = shares(quotas)
    of_ann, of_bob, charged = job(1), job(2, "bob"), job(3, account="physics")
    used = {1: 100.0, 2: 300.0, 3: 200.0}
    assert look(made, of_ann, of_bob, charged, used=used) == pytest.approx([0.5, 0.5, 0.5])


def test_those_without_jobs_do_not_count_and_no_factor_is_too_small():
    made, _ = shares()
    many = [job(k, f"user{k}") for k in range(40)]
    found = look(made, *many, used={0: 1e6})
    assert found == [LEAST] + [1.0] * 39
    # Alone, it competes with nobody.
    assert look(made, many[0], used={0: 1e6}) == [0.5]


def test_half_is_forgotten_after_the_half_life():
    made, clock = shares()
    ann, bob = job(1), job(2, "bob")
    look(made, ann, bob, used={1: 400.0})
    clock.now += 14 * DAY
    assert look(made, ann, bob, used={1: 400.0, 2: 100.0}) == pytest.approx([0.5, 0.5])
    clock.now -= DAY
    assert look(made, ann, bob, used={1: 400.0, 2: 100.0}) == pytest.approx([0.5, 0.5])


def test_what_is_stored_goes_on_and_nothing_counts_twice():
    made, clock = shares()
    ann, bob = job(1), job(2, "bob")
    look(made, ann, bob, used={1: 100.0})
    later = FairShares(7 * DAY, None, clock)
    later.restore(made.row()["b_value"], [1, 2])
    # What its jobs have used is not known at once after a start, and then it is what was counted before.
    assert look(later, ann, bob, used={}) == [0.25, 1.0]
    assert look(later, ann, bob, used={1: 100.0}) == [0.25, 1.0]
    assert look(later, ann, bob, used={1: 100.0, 2: 50.0}) == [0.25, 1.0]
    assert look(later, ann, bob, used={1: 100.0, 2: 150.0}) == pytest.approx([0.5, 0.5])


def test_one_that_begins_anew_counts_anew():
    made, _ = shares()
    ann, bob = job(1), job(2, "bob")
    look(made, ann, bob, used={1: 100.0, 2: 150.0})
    assert look(made, ann, bob, used={1: 50.0, 2: 150.0}) == pytest.approx([0.5, 0.5])


def test_without_it_weights_are_as_they_are():
    made, _ = shares(half_life_s=None)
    made.count(job(1), 100.0)
    assert not made.due(1e9)
    assert made.factor(JobRequest(command=("x",)), "ann") == 1.0


def test_the_core_takes_over_weights_also_of_held_jobs():
    core = Core(find_policy("FCFS"), np.ones((1, 2)))
    for k in range(4):
        core.handle(Submit(k, 1, 1.0, 1.0), 0.0)
    core.handle(Hold(2), 1.0)
    event = Reweigh(np.array([1, 2, 9]), np.array([0.5, 0.25, 3.0]))
    assert not len(core.handle(event, 2.0))
    core.handle(Unhold(2), 3.0)
    assert core.snapshot().jobs["weight"].tolist() == [1.0, 0.5, 0.25, 1.0]
    core.handle(Reweigh(np.zeros(0, np.int64), np.zeros(0)), 4.0)
    for bad in (0.0, np.nan, np.inf):
        with pytest.raises(InputError, match="weights: must be finite numbers above 0"):
            core.handle(Reweigh(np.array([0]), np.array([bad])), 5.0)
    again = decode(encode(event))
    assert (again.serials.tolist(), again.weights.tolist()) == ([1, 2, 9], [0.5, 0.25, 3.0])
    with pytest.raises(InputError, match="reweigh: weights: 1 values for 2 serials"):
        decode({"event": "reweigh", "serials": [1, 2], "weights": [1.0]})


async def pass_time(live):
    for _ in range(3):
        live.tick(LOOK_S)
        live.controller.engine.poke()
        steps = live.controller.engine.steps
        await until(lambda before=steps: live.controller.engine.steps > before + 2)


def test_on_a_cluster_who_used_it_alone_goes_behind(tmp_path):
    async def story():
        options = {"directory": tmp_path, "nodes": 1, "fair_share_s": 7 * DAY}
        async with InMemoryCluster("GreedyPM*/OPT=MIN/WEIGHT", **options) as live:
            first = await live.submit("forever", user="ann", cpu_cores=4.0)
            await live.reaches(first, JobState.RUNNING)
            await pass_time(live)
            second = await live.submit("forever", user="bob", cpu_cores=4.0)
            await live.reaches(second, JobState.RUNNING)
            await pass_time(live)
            for _ in range(2):
                ann, bob = live.job(first), live.job(second)
                assert ann.fair_share < 0.5 < bob.fair_share
                assert ann.yield_granted < 0.8 * bob.yield_granted
                assert live.controller.state.mismatches == live.controller.state.refused == 0
                await live.restart(kill=True)
                await until(lambda: live.job(first).fair_share not in {None, 1.0})

    run_virtually(0, lambda _: story())


@pytest.mark.parametrize("requeued", [False, True])
def test_what_did_not_run_at_a_restart_is_charged_from_its_beginning(tmp_path, requeued):
    """Also where it is over before anybody looks."""

    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=2, fair_share_s=7 * DAY) as live:
            runs = await live.submit("forever", user="bob", cpu_cores=1.0)
            await live.reaches(runs, JobState.RUNNING)
            waits = await live.submit("forever", user="ann", cpu_cores=1.0, held=not requeued)
            if requeued:
                await live.reaches(waits, JobState.RUNNING)
                await live.controller.hold(waits, "ann")
                await live.controller.requeue(waits, "ann")
                await until(lambda: live.job(waits).attempt == 1 and not live.controller.state.jobs[waits].old)
            await live.restart(kill=True)
            before_s = dict(live.controller.state.fair_shares._used_s)
            await live.controller.release(waits, "ann")
            await live.reaches(waits, JobState.RUNNING)
            live.tick(30.0)
            for node in live.nodes.values():
                node.end(waits)
            await live.reaches(waits, JobState.DONE)
            used_s = live.controller.state.fair_shares._used_s
            assert used_s[Payer("ann")] - before_s.get(Payer("ann"), 0.0) == pytest.approx(30.0, rel=1e-3)

    run_virtually(0, lambda _: story())


def test_a_job_that_waits_is_shown_with_the_factor_of_now(tmp_path):
    async def story():
        async with InMemoryCluster("FCFS", directory=tmp_path, nodes=1, fair_share_s=7 * DAY) as live:
            runs = await live.submit("forever", user="ann", cpu_cores=1.0)
            waits = await live.submit("forever", user="ann", held=True)
            await live.reaches(runs, JobState.RUNNING)
            assert (await live.controller.latest()).open.job(waits).fair_share == 1.0
            await pass_time(live)
            assert (await live.controller.latest()).open.job(waits).fair_share == 0.5

    run_virtually(0, lambda _: story())
