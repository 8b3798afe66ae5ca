"""What `allocate` says about rules: conflicts as the reason, failures that are not survived; it breaks no hard one."""

import json

import numpy as np
import pytest

import dfrs
from dfrs.model.allocation import Allocation, Outcome, Status
from dfrs.model.instance import Instance
from dfrs.placement.headroom import least_reserve
from dfrs.placement.outcome import found
from dfrs.placement.rule_report import under_rules
from dfrs.report.documents import outcome_document
from dfrs.runs.validator.allocations import check_documents
from dfrs.workloads.files import instance_document


def two_nodes(*rules: object, headroom: dfrs.Headroom | None = None, memory: float = 0.3) -> Instance:
    return Instance.from_arrays(
        np.ones((2, 2)), np.full((2, 2), memory), [True, False], rules=dfrs.Rules(rules, headroom)
    )


def test_rules_that_conflict_are_the_reason() -> None:
    outcome = dfrs.allocate(two_nodes(dfrs.Apart(["*"]), dfrs.Maintenance(["n0"])), "OPT")
    assert outcome.status == Status.INFEASIBLE
    assert outcome.details["reason"] == (
        "no placement keeps rules[0] (apart *) and rules[1] (maintenance nodes=n0): whatever the capacities"
    )


def test_failures_that_are_not_survived_are_told_where_headroom_is_asked_for() -> None:
    apart = dfrs.Apart(["*"])
    outcome = dfrs.allocate(two_nodes(apart, headroom=dfrs.Headroom()), "OPT")
    assert len(outcome.details["headroom"]) == 2
    assert "headroom" not in dfrs.allocate(two_nodes(apart), "OPT").details
    assert dfrs.allocate(two_nodes(headroom=dfrs.Headroom()), "VP_CPSUM").details["headroom"] == []


def test_a_placement_that_breaks_a_hard_rule_never_leaves() -> None:
    instance = two_nodes(dfrs.Apart(["*"]))
    broken = Outcome(
        algorithm="",
        status=Status.FEASIBLE,
        allocation=Allocation(place=np.array([0, 0]), scaled_yields=np.zeros(2)),
        minimum_yield=0.0,
        bound=1.0,
    )
    with pytest.raises(AssertionError, match=r"rules\[0\] apart"):
        under_rules(instance, broken)


def test_a_result_of_opt_passes_the_independent_checker() -> None:
    instance = two_nodes(dfrs.Apart(["*"]), dfrs.Never(["s0"], ["n0"]))
    document = json.loads(json.dumps(outcome_document(instance, dfrs.allocate(instance, "OPT"))))
    assert check_documents(instance_document(instance), document).problems == []


def test_of_a_single_device_nothing_is_reserved() -> None:
    need = np.array([[0.6, 0.0], [0.3, 0.0], [0.5, 1.0], [0.5, 0.0], [0.5, 0.0]])
    instance = Instance.from_arrays(np.ones((4, 2)), need, [True, True])
    seen: list[float] = []

    def allocator(part: Instance, _rng: np.random.Generator) -> Outcome:
        seen.append(float(part.capacity[:, 1].min()))
        return found(instance, np.array([0, 0, 1, 2, 3] if part.capacity[0, 0] > 0.8 else [0, 3, 1, 1, 2]))

    reserved = least_reserve(instance, allocator)
    assert reserved is not None
    assert 0.2 <= reserved.reserve <= 0.21
    assert set(seen) == {1.0}
