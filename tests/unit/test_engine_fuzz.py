"""Every event in random order, under several policies, on nodes of several abilities."""

import json

import numpy as np
import pytest

from dfrs.engine.codec import decode, replay
from dfrs.engine.core import Core
from dfrs.policies.names import find_policy
from tests.live_events import Site, columns, drive
from tests.small_policies import FairShare, Mover

NODES_0 = np.zeros((0, 2))
POLICIES = (
    "GreedyPM*/per/OPT=MIN/MVT=600",
    "MCB*/per/OPT=MIN/MVT=600",
    "GreedyP/per/OPT=MIN/MVT=600",
    "/per/OPT=AVG",
    "EASY",
    "CONSERVATIVE",
    "EQUIPARTITION",
)
SITES = {
    "plain": Site(),
    "kept memory": Site(frees=(False,)),
    "some kept memory": Site(frees=(True, False), minimum=False),
    "islands": Site(islands=3),
    "all": Site(islands=2, frees=(True, False)),
    "dedicated": Site(islands=2, frees=(True, True, False), dedicated=True),
    "refused pauses": Site(islands=2, frees=(True, True, True, False), refusals=True),
    "one island, refused pauses": Site(refusals=True, minimum=False),
    "jobs that begin anew": Site(islands=2, frees=(True, False, False), refusals=True, restarts=True),
    "others use CPU": Site(outside=True),
    "others use CPU, kept memory": Site(islands=2, frees=(True, False), outside=True, refusals=True),
    "others use CPU, dedicated": Site(outside=True, dedicated=True),
    "named resources": Site(islands=2, frees=(True, True, True, False), refusals=True, resources=True),
    "named resources, choices": Site(
        resources=True, choices=True, restarts=True, frees=(True, True, False), refusals=True
    ),
    "refused moves": Site(refusals=True, moves=True, changes=False),
    "refused moves, islands": Site(islands=2, frees=(True, True, False), moves=True, changes=False),
    "refused moves, jobs that begin anew": Site(
        islands=2, frees=(True, False), refusals=True, moves=True, restarts=True, changes=False
    ),
}


def policy(name):
    return {"Mover": Mover, "FairShare": FairShare}[name]() if name in {"Mover", "FairShare"} else find_policy(name)


ALIKE = Site(alike=True, islands=2, frees=(True, False), dedicated=True, outside=True)


@pytest.mark.parametrize("name", ["Delayed-LOS", "Hybrid-LOS-E", "EASY-DE"])
def test_policies_for_nodes_that_are_alike_see_nodes_that_are_alike(name):
    for seed in range(4):
        drive(Core(policy(name), NODES_0), seed, ALIKE)


@pytest.mark.parametrize("site", SITES.values(), ids=SITES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*POLICIES, "Mover", "FairShare"])
def test_whatever_happens_nothing_is_lost_or_overcommitted_and_the_record_replays(name, seed, site):
    core = Core(policy(name), NODES_0)
    record, log = drive(core, seed, site)
    entries = json.loads(json.dumps(record))
    assert replay(Core(policy(name), NODES_0), entries) is None
    cut = len(log) * (seed + 1) // 3
    before = Core(policy(name), NODES_0)
    for event, now_s, commands in log[:cut]:
        assert columns(before.handle(event, now_s)) == commands
    after = Core(policy(name), NODES_0)
    after.restore({key: np.array(array) for key, array in before.state().items()})
    for (_, _, commands), (now_s, document, _) in zip(log[cut:], record[cut:], strict=True):
        assert columns(after.handle(decode(document), now_s)) == commands
    assert everything(after) == everything(core)


@pytest.mark.parametrize("seed", [18, 23, 41, 44])
def test_nobody_goes_on_where_others_came_through_the_room_it_was_to_leave(seed):
    drive(Core(policy("Mover"), NODES_0), seed, SITES["refused moves, jobs that begin anew"])


def test_a_held_job_whose_pause_is_refused_stays_beside_one_that_has_the_node_to_itself():
    site = Site(islands=2, frees=(True, False), resources=True, refusals=True, restarts=True)
    drive(Core(policy("FCFS"), NODES_0), 1000, site)


AMENDED = Site(islands=2, frees=(True, False), amendments=True)


@pytest.mark.parametrize("name", ["GreedyPM*/per/OPT=MIN/MVT=600", "EASY"])
def test_jobs_that_users_change_are_neither_lost_nor_overcommitted(name):
    record, _ = drive(Core(policy(name), NODES_0), 0, AMENDED)
    assert {"amend", "withdraw"} <= {document["event"] for _, document, _ in record}
    assert replay(Core(policy(name), NODES_0), json.loads(json.dumps(record))) is None


def everything(core):
    return {name: array.tobytes() for name, array in core.state().items()}
