"""The independent checker accepts every algorithm's result and notices each kind of lie."""

import copy
import json
import re

import numpy as np
import pytest

from dfrs import allocate, generate_services, generate_virtual_clusters
from dfrs.model.errors import InputError
from dfrs.placement.budget import Budget
from dfrs.placement.registry import ALGORITHMS, Options
from dfrs.report.documents import outcome_document
from dfrs.runs.validator.allocations import check_documents, instance_of, validate_allocation
from dfrs.workloads.documents import InstanceDocument
from dfrs.workloads.files import build_instance, instance_document, read_instance

PHASES = ("none", "average", "average-lp", "max-min")


def shop():
    return build_instance(
        InstanceDocument.model_validate(
            {
                "format": "dfrs-instance/1",
                "resources": [
                    {"name": "memory", "kind": "rigid", "bytes": 1e9},
                    {"name": "cpu", "kind": "fluid"},
                    {"name": "io", "kind": "fluid"},
                ],
                "nodes": [{"name": "a"}, {"name": "b", "capacity": {"cpu": 2.0, "memory": 1.5}}, {"name": "c"}],
                "services": [
                    {
                        "name": "shop",
                        "minimum_yield": 0.3,
                        "needs": {"cpu": 0.5, "memory": 0.1, "io": 0.2},
                        "components": [
                            {"name": "web", "tasks": 2},
                            {"name": "db", "factor": 0.5, "needs": {"memory": 0.4}},
                        ],
                    },
                    {"name": "mail", "needs": {"cpu": 0.9, "memory": 0.2, "io": 0.7}, "kinds": {"io": "rigid"}},
                    {"name": "batch", "tasks": 3, "needs": {"cpu": 0.8, "memory": 0.1}},
                    {"name": "sure", "needs": {"cpu": 0.2}, "minimum_yield": 1.0},
                ],
            }
        )
    )


INSTANCES = {
    "services": generate_services(nodes=4, services=9, slack=0.5, seed=1),
    "parallel": generate_virtual_clusters(nodes=4, tasks=12, slack=0.5, parallel=True, seed=2),
    "unequal, components, mixed kinds": shop(),
}


def options(instance):
    present = np.arange(len(instance.need)) % len(instance.nodes)
    return Options(rounds=1, time_limit_s=20.0, present=present, budget=Budget(moves=100))


@pytest.mark.parametrize("label", INSTANCES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_result_of_every_algorithm_is_valid(name, label):
    instance = INSTANCES[label]
    if not ALGORITHMS[name].unequal_nodes and not instance.equal_nodes:
        return
    for phase in PHASES if name in {"VP_CPSUM", "GREEDY_S5_P4"} else ("average",):
        outcome = allocate(instance, name, options=options(instance), second_phase=phase)
        if outcome.allocation is None:
            assert outcome.minimum_yield is None
            continue
        document = json.loads(json.dumps(outcome_document(instance, outcome), default=float))
        report = check_documents(instance_document(instance), document)
        assert report.problems == []
        assert report.checks > len(instance.services)


def put(*path):
    def change(document, value):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value(document[path[-1]]) if callable(value) else value

    return change


LIES = {
    "node does not exist": (put("placement", "s0"), ["elsewhere"], "no node is named"),
    "task lost": (put("placement", "s0"), [], "0 nodes for 1 tasks"),
    "service lost": (lambda d, _: d["placement"].pop("s0"), None, "not placed"),
    "stranger": (put("placement"), lambda p: p | {"ghost": ["n0"]}, "not in the instance"),
    "yield above one": (put("yields", "s0"), 1.5, "not in"),
    "yield not a number": (put("yields", "s0"), float("nan"), "nan"),
    "all on one node": (put("placement"), lambda p: {k: ["n0"] for k in p}, "capacity"),
    "minimum yield embellished": (put("minimum_yield"), lambda v: v + 1e-3, "minimum_yield is stated"),
    "average embellished": (put("average_yield"), lambda v: v + 1e-3, "average_yield is stated"),
    "utilization embellished": (put("utilization"), lambda v: v + 1e-3, "utilization is stated"),
    "gap embellished": (put("gap"), lambda v: v / 2 - 1e-3, "gap is stated"),
    "bound too loose": (put("bound"), lambda v: v + 0.01, "looser"),
    "bound below the yield": (put("bound"), lambda v: v / 100, "above its own bound"),
    "called optimal": (put("status"), "optimal", "status is optimal"),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_noticed(lie):
    instance = generate_services(nodes=6, services=18, slack=0.3, rho=0.25, seed=3)
    outcome = allocate(instance, "VP_CPSUM")
    truth = outcome_document(instance, outcome)
    assert outcome.gap is not None
    assert outcome.gap > 0.01
    document = copy.deepcopy(truth)
    change, value, words = LIES[lie]
    change(document, value)
    problems = check_documents(instance_document(instance), document).problems
    assert any(words in problem for problem in problems), problems
    assert check_documents(instance_document(instance), truth).problems == []


@pytest.mark.parametrize("field", ["minimum_yield", "average_yield", "utilization", "bound", "gap"])
def test_an_allocation_that_lacks_a_figure_is_no_such_document(tmp_path, field):
    instance = generate_services(nodes=6, services=18, slack=0.3, rho=0.25, seed=3)
    document = {"format": "dfrs-allocation/1", **outcome_document(instance, allocate(instance, "VP_CPSUM"))}
    del document[field]
    (tmp_path / "i.json").write_text(json.dumps(instance_document(instance)))
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=f"not a dfrs-allocation/1 document for .*{field}"):
        validate_allocation(tmp_path / "a.json", tmp_path / "i.json")


def test_a_file_of_services_is_read_as_the_program_reads_it(tmp_path):
    instance, allocation = tmp_path / "i.csv", tmp_path / "a.json"
    allocation.write_text('{"format": "dfrs-allocation/1"}')
    instance.write_text("name, tasks, cpu:fluid\nweb, 2, 0.5\n,,\n")
    _, _, problem = instance_of(allocation, {}, instance, 2)
    assert {name: len(tasks) for name, tasks in problem.tasks.items()} == {"web": 2}
    instance.write_text("name,tasks,cpu:fluid\nweb,2\n")
    with pytest.raises(InputError, match=r"i\.csv:2: 2 cells: must be 3 as in the header"):
        instance_of(allocation, {}, instance, 2)


def test_a_byte_order_mark_is_no_part_of_a_document(tmp_path):
    instance = generate_services(nodes=6, services=18, slack=0.3, rho=0.25, seed=3)
    document = {"format": "dfrs-allocation/1", **outcome_document(instance, allocate(instance, "VP_CPSUM"))}
    (tmp_path / "i.json").write_text(json.dumps(instance_document(instance)), encoding="utf-8-sig")
    (tmp_path / "a.json").write_text(json.dumps(document), encoding="utf-8-sig")
    assert read_instance(tmp_path / "i.json").services == instance.services
    assert validate_allocation(tmp_path / "a.json", tmp_path / "i.json").problems == []


NODE = {"name": "a", "capacity": [1, 1]}
SERVICE = {"name": "s", "needs": {"cpu": 0.5}}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("i.csv", b"service,cpu:fluid\nweb,0.5\n", "not a file of services: KeyError: 'name'"),
        ("i.csv", b"name,cpu:fluid\nweb,much\n", "not a file of services: ValueError: could not convert"),
        ("i.csv", b"name,cpu:fluid\nw\xffb,0.5\n", "not CSV: 'utf-8' codec can't decode"),
        ("i.json", {"nodes": [NODE], "services": [SERVICE]}, "not a dfrs-instance/1 document: AttributeError: 'list'"),
        ("i.json", {"nodes": 1, "services": 5}, "not a dfrs-instance/1 document: TypeError"),
    ],
)
def test_an_instance_that_is_none_is_refused_in_one_line(tmp_path, name, text, said):
    if isinstance(text, dict):
        text = json.dumps({"resources": [{"name": "cpu", "kind": "fluid"}], **text}).encode()
    (tmp_path / name).write_bytes(text)
    (tmp_path / "a.json").write_text('{"format": "dfrs-allocation/1"}')
    with pytest.raises(InputError, match=re.escape(f"{name}: {said}")) as caught:
        validate_allocation(tmp_path / "a.json", tmp_path / name)
    assert "\n" not in str(caught.value)


def test_an_allocation_names_its_instance_by_a_path(tmp_path):
    (tmp_path / "a.json").write_text('{"format": "dfrs-allocation/1", "instance": 5}')
    with pytest.raises(InputError, match="names no instance"):
        validate_allocation(tmp_path / "a.json")
