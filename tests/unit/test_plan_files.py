"""Plans as files: what is written is read back, errors name the field, and the checker notices each kind of lie."""

import copy
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dfrs.cli.main import app
from dfrs.model.errors import InputError
from dfrs.model.instance import Instance
from dfrs.model.move_limits import MoveLimits
from dfrs.model.resources import Kind, Resource
from dfrs.model.rules import Apart, Maintenance
from dfrs.placement.plan import make_plan
from dfrs.placement.plan_document import plan_document, plan_from_document, read_plan
from dfrs.runs.validator.plans import check_plan, validate_plan
from dfrs.workloads.files import instance_document
from tests.plan_cases import random_case

LIMITS = MoveLimits(bandwidth_bytes_per_s=1e9, latency_s=1.0, at_once=2, per_node=1, per_link=1, link_level="rack")


def scene():
    """web-0 and web-1 are apart, h4 is to be empty, and two large tasks exchange."""
    return Instance.from_arrays(
        np.ones((5, 2)),
        np.array([[0.2, 0.6], [0.2, 0.6], [0.6, 0.2], [0.7, 0.3], [0.1, 0.4]]),
        [True, False],
        resources=[
            Resource(name="memory", kind=Kind.RIGID, bytes_per_node=10e9),
            Resource(name="cpu", kind=Kind.FLUID),
        ],
        services=["web", "big", "large", "small"],
        service_of=[0, 0, 1, 2, 3],
        nodes=[f"h{n}" for n in range(5)],
        labels=[{"rack": f"r{n % 2}"} for n in range(5)],
        rules=[Apart(("web",)), Maintenance(("h4",))],
    )


def written():
    instance = scene()
    plan = make_plan(instance, np.array([0, 2, 0, 1, 4]), np.array([0, 3, 1, 0, 2]), LIMITS)
    assert plan.complete
    assert plan.temporary
    return instance, plan, json.loads(json.dumps(plan_document(plan, instance)))


def problems(document, instance=None):
    return check_plan(instance_document(instance or scene()), document).problems


def test_what_is_written_is_read_back(tmp_path):
    instance, plan, document = written()
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**document, "instance": "cluster.json", "nodes": None}))
    read = read_plan(path, instance)
    assert read.steps == plan.steps
    assert read.limits == plan.limits
    for label in ("present", "target", "final"):
        assert (getattr(read, label) == getattr(plan, label)).all()
    assert plan_document(read, instance) == plan_document(plan, instance)


def put(*path):
    def change(document, value):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


ERRORS = [
    (("format",), "dfrs-plan/2", "plan: format: input should be 'dfrs-plan/1'"),
    (("steps", 0, "to"), "h9", 'plan: steps[0].to = "h9": no such node in the instance'),
    (("steps", 0, "from"), "h9", 'plan: steps[0].from = "h9": no such node in the instance'),
    (("steps", 0, "rank"), 7, 'plan: steps[0]: "big", rank 7: no such task in the instance'),
    (("steps", 0, "service"), "x", 'plan: steps[0]: "x", rank 0: no such task in the instance'),
    (("steps", 0, "start_s"), -1, "plan: steps[0].start_s: input should be greater than or equal to 0"),
    (("present", "web"), ["h0"], 'plan: present."web" has 1 nodes: must be one for each of 2 tasks'),
    (("present", "x"), ["h0"], 'plan: present."x": no such service in the instance'),
    (("target", "web"), ["h0", None], 'plan: target."web"[1] = null: no such node in the instance'),
    (("limits", "at_once"), 0, "plan: limits: move_limits.at_once = 0: must be a whole number of at least 1"),
]


@pytest.mark.parametrize(("path", "value", "text"), ERRORS)
def test_errors_name_the_field(path, value, text):
    instance, _, document = written()
    put(*path)(document, value)
    with pytest.raises(InputError) as error:
        plan_from_document(document, instance)
    assert str(error.value) == text


def test_a_service_without_nodes_is_named():
    instance, _, document = written()
    del document["present"]["web"]
    with pytest.raises(InputError, match='present has no entry for service "web"'):
        plan_from_document(document, instance)


def last(document):
    return document["steps"][-1]


LIES = {
    "a move ends early": lambda d: last(d).update(end_s=last(d)["end_s"] - 0.5),
    "a move begins early": lambda d: last(d).update(start_s=0.0, end_s=last(d)["end_s"] - last(d)["start_s"]),
    "a move is left out": lambda d: d["steps"].pop(0),
    "a move begins elsewhere": lambda d: d["steps"][0].update({"from": "h3"}),
    "a move goes elsewhere": lambda d: last(d).update(to="h4"),
    "a task that is none": lambda d: last(d).update(rank=5),
    "a node that is none": lambda d: last(d).update(to="h7"),
    "no temporary move": lambda d: [m.update(temporary=False) for m in d["steps"]],
    "the yield after a move": lambda d: last(d).update(minimum_yield_after=0.987),
    "the yield before": lambda d: d.update(minimum_yield_before=0.5),
    "the bytes of a move": lambda d: last(d).update(bytes=1.0),
    "the makespan": lambda d: d.update(makespan_s=d["makespan_s"] - 1),
    "the bound": lambda d: d.update(makespan_bound_s=d["makespan_s"] + 1),
    "the bytes": lambda d: d.update(bytes=d["bytes"] + 1e6),
    "how many are temporary": lambda d: d.update(temporary=0),
    "not complete": lambda d: d.update(complete=False),
    "another target": lambda d: d["target"].update(small=["h3"]),
    "problems that are none": lambda d: d.update(problems=["x"]),
    "faster moves": lambda d: d["limits"].update(bandwidth_bytes_per_s=2e9),
    "fewer at once": lambda d: d["limits"].update(at_once=1),
    "steps out of order": lambda d: d["steps"].reverse(),
    "one step twice": lambda d: d["steps"].insert(1, dict(d["steps"][0])),
    "steps joined": lambda d: [m.update(step=0) for m in d["steps"]],
    "a present placement without a service": lambda d: d["present"].pop("web"),
}


@pytest.mark.parametrize("lie", LIES)
def test_the_checker_notices(lie):
    _, _, document = written()
    assert problems(document) == []
    LIES[lie](document)
    assert problems(document) != []


TIGHTER = {
    "per_node": ({"bandwidth_bytes_per_s": 1e9}, [0, 0, 2, 3, 4], [1, 2, 2, 3, 3], {"per_node": 1}),
    "per_link": (
        {"bandwidth_bytes_per_s": 1e9},
        [0, 2, 0, 1, 4],
        [1, 3, 0, 1, 2],
        {"per_link": 1, "link_level": "rack"},
    ),
}


@pytest.mark.parametrize("limit", TIGHTER)
def test_the_checker_notices_a_limit_that_is_passed(limit):
    given, present, target, tighter = TIGHTER[limit]
    instance = scene()
    plan = make_plan(instance, np.array(present), np.array(target), MoveLimits(**given))
    document = json.loads(json.dumps(plan_document(plan, instance)))
    assert problems(document) == []
    document["limits"] |= tighter
    assert any(limit in text for text in problems(document))


def test_the_checker_notices_a_node_over_capacity_and_a_rule_that_breaks():
    instance, _, document = written()
    smaller = instance_document(instance)
    for node in smaller["nodes"]:
        node["capacity"]["memory"] = 0.65
    assert any("of memory, capacity 0.65" in text for text in check_plan(smaller, document).problems)
    stricter = copy.deepcopy(instance_document(instance))
    stricter["rules"].append({"kind": "never", "services": ["small"], "nodes": ["h2"]})
    assert any("rules[2] (never)" in text for text in check_plan(stricter, document).problems)
    stricter["rules"][2] = {"kind": "together", "services": ["web/0", "large"], "name": "near"}
    assert check_plan(stricter, document).problems == []
    stricter["rules"][2] = {"kind": "together", "services": ["web/0", "big"], "name": "near"}
    assert any("rules[2] (near): broken by 1, was broken by 0" in t for t in check_plan(stricter, document).problems)


def test_validate_finds_a_plan_by_its_format(tmp_path):
    instance, _, document = written()
    (tmp_path / "cluster.json").write_text(json.dumps(instance_document(instance)))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**document, "instance": str(tmp_path / "cluster.json")}))
    run = CliRunner().invoke(app, ["validate", str(path)])
    assert run.exit_code == 0
    assert run.stdout.startswith(f"valid: {len(document['steps'])} moves in ")
    path.write_text(json.dumps({**document, "makespan_s": 1.0}))
    run = CliRunner().invoke(app, ["validate", str(path), "-i", str(tmp_path / "cluster.json"), "--json"])
    assert run.exit_code == 1
    assert "makespan_s is stated as 1.0" in json.loads(run.stdout)["problems"][0]
    path.write_text(json.dumps({"format": "dfrs-plan/1"}))
    with pytest.raises(InputError, match="names no instance"):
        validate_plan(path)
    with pytest.raises(InputError, match="not a dfrs-plan/1 document"):
        validate_plan(path, tmp_path / "cluster.json")


@pytest.mark.long
def test_hundreds_of_random_plans():
    for seed in range(10**6, 10**6 + 300):
        case = random_case(seed)
        plan = make_plan(case.instance, case.present, case.target, case.limits)
        assert problems(json.loads(json.dumps(plan_document(plan, case.instance))), case.instance) == []
