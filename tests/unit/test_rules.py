"""Rules: what names mean, by how much they are broken, what files say, and what the independent checker says."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfrs import allocate
from dfrs.kernels import rules as kernels
from dfrs.model.allocation import Allocation, Outcome, Status
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance, Ints
from dfrs.model.move_limits import MoveLimits
from dfrs.model.rule_scope import Scope
from dfrs.model.rules import (
    RULES,
    Apart,
    Features,
    Headroom,
    Licensed,
    Maintenance,
    Never,
    Only,
    Requires,
    Rule,
    Rules,
    Spread,
    Sticky,
    Together,
)
from dfrs.report.documents import outcome_document
from dfrs.runs.validator.allocations import check_documents
from dfrs.runs.validator.rules import RuleCheck
from dfrs.workloads import files
from dfrs.workloads.documents import InstanceDocument
from tests.rule_cases import random_instance

LABELS = [{"rack": "r0", "ssd": "yes"}, {"rack": "r0"}, {"rack": "r1", "gpu": "a100"}, {"rack": "r1", "ssd": "no"}]


def instance_with(*rules: Rule, headroom: Headroom | None = None) -> Instance:
    """db of three tasks, web of two, cache of one, on four nodes of two racks."""
    return Instance.from_arrays(
        np.ones((4, 2)),
        np.full((6, 2), 0.25),
        [True, False],
        services=["db", "web", "cache"],
        service_of=[0, 0, 0, 1, 1, 2],
        labels=LABELS,
        rules=Rules(rules, headroom),
    )


@pytest.mark.parametrize(
    ("rule", "place", "amount"),
    [
        (Together(["db"]), [0, 0, 0, 1, 1, 2], 0),
        (Together(["db"]), [0, 1, 2, 1, 1, 2], 2),
        (Together(["db"], level="rack"), [0, 1, 2, 1, 1, 2], 1),
        (Together(["db", "web"], each=True), [0, 0, 0, 1, 1, 2], 0),
        (Apart(["db"]), [0, 1, 2, 1, 1, 2], 0),
        (Apart(["db"]), [0, 0, 0, 1, 1, 2], 2),
        (Apart(["db"], at_most=2), [0, 0, 0, 1, 1, 2], 1),
        (Apart(["*"], each=True), [0, 1, 2, 0, 1, 0], 0),
        (Apart(["*"]), [0, 1, 2, 0, 1, 0], 3),
        (Spread(["db"], at_least=3), [0, 1, 1, 1, 1, 2], 1),
        (Spread(["db"], at_least=2, at_most=1, level="rack"), [0, 1, 1, 0, 0, 0], 3),
        (Only(["web/1"], ["rack=r1"]), [0, 0, 0, 0, 1, 0], 1),
        (Only(["web"], ["n2", "n3"]), [0, 0, 0, 2, 3, 0], 0),
        (Never(["*"], ["n0"]), [0, 0, 0, 1, 1, 2], 3),
        (Maintenance(["n[01]"]), [0, 0, 0, 1, 1, 2], 5),
        (Features(["db"], ["ssd"]), [0, 1, 3, 1, 1, 1], 1),
        (Features(["db"], ["ssd=yes", "rack"]), [0, 1, 3, 1, 1, 1], 2),
        (Requires(["web"], ["cache"]), [0, 0, 0, 2, 3, 2], 1),
        (Requires(["web"], ["cache"], level="rack"), [0, 0, 0, 2, 3, 2], 0),
        (Requires(["web"], ["db", "cache"], level="rack"), [0, 0, 0, 2, 1, 0], 1),
        (Licensed(["db", "web"], 2), [0, 1, 2, 1, 1, 3], 1),
        (Sticky(["db"], 7.0), [0, 0, 0, 0, 0, 0], 0),
    ],
)
def test_by_how_much_a_rule_is_broken(rule: Rule, place: list[int], amount: int) -> None:
    rules = instance_with(rule).rules
    assert rules is not None
    at = np.array(place)
    assert rules.broken(at).tolist() == [amount]
    assert kernels.broken(rules.arrays, at) == amount
    assert len(rules.problems(at)) == (amount > 0)
    assert rules.cost(at) == 0.0
    soft = instance_with(replace(rule, price=0.25)).rules if not isinstance(rule, Sticky) else None
    if soft is not None:
        assert (soft.problems(at), soft.cost(at)) == ([], 0.25 * amount)
        assert len(soft.concessions(at)) == (amount > 0)


def test_a_problem_names_rule_domain_and_tasks() -> None:
    rules = instance_with(Apart(["db"], level="rack", name="replicas"), Maintenance(["n2"])).rules
    assert rules is not None
    assert rules.problems(np.array([0, 1, 2, 3, 3, 2])) == [
        "rules[0] replicas: rack r0 has 2 of at most 1: db/0, db/1",
        "rules[1] maintenance nodes=n2: db/2 on n2, cache on n2",
    ]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Apart(["dbx"]), 'rules[0].services: "dbx" matches no service'),
        (Apart(["db/3"]), 'rules[0].services: "db/3": no such service has a task of rank 3; ranks begin at 0'),
        (Apart([]), "rules[0].services = []: must name a service"),
        (Only(["db"], ["n9"]), 'rules[0].nodes: "n9" matches no node'),
        (Only(["db"], ["rack=r9"]), 'rules[0].nodes: "rack=r9" matches no node'),
        (Sticky(["x*"], 1.0), 'rules[0].services: "x*" matches no service'),
        (
            Spread(["db"], at_least=2, level="gpu"),
            'rules[0].level = "gpu": node "n0" has no label of that name; must be "node" or a label of every node',
        ),
    ],
)
def test_names_that_do_not_exist_are_refused(rule: Rule, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        instance_with(rule)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Apart(["db"], at_most=0), "apart: at_most = 0: must be a whole number of at least 1"),
        (lambda: Licensed(["db"], 1.5), "licensed: at_most = 1.5: must be a whole number of at least 1"),  # type: ignore[arg-type]
        (lambda: Apart(["db"], price=0.0), "apart: price = 0.0: must be a positive number; leave it out: hard"),
        (lambda: Spread(["db"]), "spread: must have at_least, at_most or both"),
        (lambda: Sticky(["db"], -1.0), "sticky: cost = -1.0: must be a finite number of at least 0, and no price"),
        (lambda: Headroom(failures=0), "headroom.failures = 0: must be a whole number of at least 1"),
        (lambda: MoveLimits(per_link=1), "move_limits.per_link: must have a link_level, whose domains have the links"),
        (lambda: MoveLimits(at_once=0), "move_limits.at_once = 0: must be a whole number of at least 1"),
    ],
)
def test_values_out_of_range_are_refused(make, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert str(refusal.value) == message


def test_soft_rules_are_in_the_arrays_until_they_are_dropped() -> None:
    rules = instance_with(Apart(["db"]), Together(["web"], price=0.1), Maintenance(["n3"], price=0.2)).rules
    assert rules is not None
    assert [rule.kind for rule in rules.soft] == ["together", "maintenance"]
    assert (rules.arrays.level.size, rules.arrays.allowed.all()) == (2, False)
    assert (rules.without(0).arrays.level.size, rules.without(0).arrays.allowed.all()) == (1, False)
    assert rules.without(1).arrays.allowed.all()
    assert rules.without(0).without(1).arrays.level.size == rules.hard_only.arrays.level.size == 1
    at = np.array([0, 1, 2, 3, 2, 0])
    assert rules.hard_only.cost(at) == rules.cost(at) == pytest.approx(0.3)
    with pytest.raises(IndexError):
        rules.without(2)


def test_a_sticky_rule_sets_what_moving_costs() -> None:
    assert instance_with(Sticky(["db/1", "web"], 4.0)).move_cost.tolist() == [1, 4, 1, 4, 4, 1]


def test_an_instance_that_loses_nodes_keeps_its_rules() -> None:
    whole = instance_with(Only(["db"], ["n0", "rack=r1"]), Maintenance(["n1"]), Apart(["web"], level="rack"))
    part = whole.on_nodes(np.array([0, 1]))
    assert part.labels == tuple(LABELS[:2])
    assert part.rules is not None
    assert part.rules.arrays.allowed[part.rules.arrays.kind_of[0]].tolist() == [True, False]
    again = part.on_nodes(np.array([1]))
    assert again.rules is not None
    assert not again.rules.arrays.allowed[again.rules.arrays.kind_of[0]].any()
    assert replace(whole, name="x").rules is not None


def test_a_service_whose_name_has_a_slash_comes_before_a_rank() -> None:
    scope = Scope(("n",), ("a", "a/1", "b*"), np.array([0, 0, 1, 2]))
    assert scope.members(["a/1"], "").tolist() == [2]
    assert scope.members(["a/0"], "").tolist() == [0]
    assert scope.members(["b*"], "").tolist() == [3]
    assert scope.members(["a*"], "").tolist() == [0, 1, 2]
    assert scope.members(["*/1"], "").tolist() == [2]


def placed(instance: Instance, place: Ints) -> dict[str, object]:
    outcome = Outcome(
        algorithm="hand",
        status=Status.FEASIBLE,
        allocation=Allocation(place=place, scaled_yields=np.zeros(len(instance.services))),
        minimum_yield=0.0,
        bound=0.0,
    )
    return json.loads(json.dumps(outcome_document(instance, outcome)))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_the_independent_checker_counts_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 7))
    instance = random_instance(rng, tasks=int(rng.integers(1, 9)), nodes=nodes, rules=int(rng.integers(1, 6)))
    place = rng.integers(0, nodes, len(instance.need))
    assert instance.rules is not None
    document = json.loads(json.dumps(files.instance_document(instance)))
    check = RuleCheck(document, placed(instance, place)["placement"])  # type: ignore[arg-type]
    assert [sum(k for k, _ in check.broken(rule)) for rule in check.rules] == instance.rules.broken(place).tolist()
    assert len(check.problems()) == len(instance.rules.problems(place))
    assert check.cost() == pytest.approx(instance.rules.cost(place))


def test_the_checker_notices_broken_rules_and_a_wrong_cost() -> None:
    instance = instance_with(Apart(["db"]), Together(["web"], price=0.1))
    document = files.instance_document(instance)
    good = placed(instance, np.array([0, 1, 2, 3, 2, 3]))
    assert check_documents(document, good).problems == []
    bad = placed(instance, np.array([0, 0, 2, 3, 2, 3]))
    assert check_documents(document, bad).problems == ["rules[0] (apart): 2 tasks of db in node n0, at most 1"]
    lie = copy.deepcopy(good) | {"rules_cost": 0.0}
    assert check_documents(document, lie).problems == ["rules_cost is stated as 0.0, but is 0.1"]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_documents_round_trip(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 7))
    instance = random_instance(rng, tasks=int(rng.integers(1, 9)), nodes=nodes, rules=int(rng.integers(0, 6)))
    factor = rng.choice([1.0, 1.1, 1.5, 3.0], instance.capacity.shape)
    physical = rng.choice([0.7, 0.9, 1.0, 1.3], instance.capacity.shape)
    assert instance.rules is not None
    instance = replace(
        instance,
        capacity=physical * factor,
        overcommit=factor,
        rules=replace(instance.rules, headroom=Headroom(level="rack")),
        move_limits=MoveLimits(per_node=2, latency_s=0.5),
    )
    document = json.loads(json.dumps(files.instance_document(instance)))
    again = files.build_instance(InstanceDocument.model_validate(document))
    assert again.rules is not None
    assert again.rules.rules == instance.rules.rules
    assert again.rules.headroom == instance.rules.headroom
    assert again.move_limits == instance.move_limits
    assert again.labels == instance.labels
    for label in ("capacity", "need", "move_cost"):
        assert np.array_equal(getattr(again, label), getattr(instance, label)), label
    assert again.overcommit is None or np.array_equal(again.overcommit, factor)
    assert json.loads(json.dumps(files.instance_document(again))) == document


def test_overcommit_raises_capacity_and_the_checker_allows_it() -> None:
    document = {
        "format": "dfrs-instance/1",
        "resources": [{"name": "memory", "kind": "rigid"}, {"name": "cpu", "kind": "fluid"}],
        "nodes": [{"name": "a", "labels": {"row": "x"}}, {"name": "b"}],
        "services": [{"name": "s", "needs": {"memory": 1.2, "cpu": 0.5}}],
        "overcommit": [
            {"resource": "memory", "factor": 2.0},
            {"resource": "memory", "factor": 1.5, "nodes": ["row=x"]},
        ],
    }
    instance = files.build_instance(InstanceDocument.model_validate(document))
    assert instance.capacity.tolist() == [[1.5, 1.0], [2.0, 1.0]]
    allocation = placed(instance, np.array([0]))
    assert check_documents(document, allocation).problems == []
    with_none = {k: v for k, v in document.items() if k != "overcommit"}
    assert check_documents(with_none, allocation).problems == ["node a: memory is 1.2, capacity 1"]


@pytest.mark.parametrize("algorithm", ["VP_CPSUM", "GREEDY"])
@pytest.mark.parametrize(("memory", "need"), [(0.75, 0.9), (0.57, 0.684), (0.38, 0.456)])
def test_a_requirement_as_large_as_an_overcommitted_node_has_room_there(memory, need, algorithm) -> None:
    document = {
        "format": "dfrs-instance/1",
        "resources": [{"name": "memory", "kind": "rigid"}, {"name": "cpu", "kind": "fluid"}],
        "nodes": [{"name": "a", "capacity": {"memory": memory}}],
        "services": [{"name": "s", "needs": {"memory": need, "cpu": 0.5}}],
        "overcommit": [{"resource": "memory", "factor": 1.2}],
    }
    instance = files.build_instance(InstanceDocument.model_validate(document))
    assert instance.capacity[0, 0] < need
    outcome = allocate(instance, algorithm)
    assert outcome.minimum_yield == pytest.approx(1.0, abs=0.01)
    assert check_documents(document, json.loads(json.dumps(outcome_document(instance, outcome)))).problems == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"kind": "apart", "services": ["dbx"]}, 'f.json: rules[0].services: "dbx" matches no service'),
        (
            {"kind": "apart", "services": ["db"], "at_most": 0},
            "f.json: rules[0].at_most = 0: input should be greater than or equal to 1",
        ),
        ({"kind": "near"}, f'f.json: rules[0] = {{"kind": "near"}}: kind must be one of {", ".join(RULES)}'),
        ({"kind": "spread", "services": ["db"]}, "f.json: rules[0]: spread: must have at_least, at_most or both"),
        ({"kind": "only", "services": ["db"], "nodes": ["x"]}, 'f.json: rules[0].nodes: "x" matches no node'),
    ],
)
def test_errors_in_files_name_file_rule_field_and_value(tmp_path, monkeypatch, rule, message) -> None:
    monkeypatch.chdir(tmp_path)
    document = {
        "format": "dfrs-instance/1",
        "resources": [{"name": "cpu", "kind": "fluid"}],
        "nodes": 2,
        "services": [{"name": "db"}],
        "rules": [rule],
    }
    (tmp_path / "f.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as refusal:
        files.read_instance(files.Path("f.json"))
    assert str(refusal.value) == message


def test_csv_has_no_place_for_rules() -> None:
    with pytest.raises(InputError, match="write JSON"):
        files.instance_csv(instance_with(Apart(["db"])))
