import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfrs.model.errors import InputError
from dfrs.model.resources import Kind
from dfrs.workloads.services import (
    LARGE_SERVICES,
    SLACKS,
    SMALL_SERVICES,
    ServiceScenario,
    VirtualClusterScenario,
    dissertation_instance,
    dissertation_sample,
    dissertation_scenarios,
    virtual_cluster_instance,
    virtual_cluster_scenarios,
)

seeds = st.integers(0, 24_299)
scenarios = st.builds(
    ServiceScenario,
    nodes=st.sampled_from((4, 64)),
    services=st.integers(8, 100),
    dims=st.sampled_from((2, 4, 6)),
    slack=st.sampled_from(SLACKS),
    sigma=st.sampled_from((0.0, 0.25, 0.5, 1.0)),
    rho=st.sampled_from((0.0, 0.25, 0.5, 1.0)),
)
cluster_scenarios = st.builds(
    VirtualClusterScenario,
    nodes=st.just(4),
    tasks=st.integers(6, 100),
    slack=st.sampled_from(SLACKS),
    memory_cov=st.sampled_from((0.0, 0.25, 0.75)),
    cpu_cov=st.sampled_from((0.25, 0.75)),
    parallel=st.booleans(),
)


def naive_two_resources(scenario, seed):
    """QoS, memory and CPU of each service in turn; memory scaled to the slack, cut off at 1, all in thousandths."""
    rng = random.Random(seed)
    rows = []
    for _ in range(scenario.services):
        qos, memory, cpu = (0.5 if rng.random() <= scenario.rho else 0.0), 0.0, 0.0
        while not 0.01 <= memory <= 1.0:
            memory = rng.normalvariate(0.5, scenario.sigma)
        while not 0.01 <= cpu <= 1.0:
            cpu = rng.normalvariate(0.5, scenario.sigma)
        rows.append((qos, memory, cpu))
    factor = (1.0 - scenario.slack) * scenario.nodes / sum(memory for _, memory, _ in rows)
    return [(qos, round(min(memory * factor, 1.0), 3), round(cpu, 3)) for qos, memory, cpu in rows]


@pytest.mark.parametrize("seed", range(20))
def test_two_resources_come_out_as_from_the_naive_generator(seed):
    scenario = list(dissertation_scenarios())[seed * 12]
    instance = dissertation_instance(scenario, seed)
    expected = naive_two_resources(scenario, seed)
    assert instance.minimum_yield.tolist() == [qos for qos, _, _ in expected]
    assert instance.need.tolist() == [[memory, cpu] for _, memory, cpu in expected]


@given(scenarios, seeds)
def test_requirements_fill_the_cluster_up_to_the_slack(scenario, seed):
    """Exactly, but for the rounding to thousandths and what is lost where a value is cut off at 1."""
    instance = dissertation_instance(scenario, seed)
    target = (1.0 - scenario.slack) * scenario.nodes
    for d in range(scenario.dims // 2):
        total = instance.need[:, d].sum()
        assert total <= target + 0.0005 * scenario.services + 1e-9
        if instance.need[:, d].max() < 1.0:
            assert total == pytest.approx(target, abs=0.0005 * scenario.services + 1e-9)


@given(scenarios, seeds)
def test_values_are_in_thousandths_between_zero_and_one(scenario, seed):
    instance = dissertation_instance(scenario, seed)
    assert (instance.need >= 0.0).all()
    assert (instance.need <= 1.0).all()
    assert (np.round(instance.need, 3) == instance.need).all()
    assert (instance.need[:, scenario.dims // 2 :] >= 0.01).all()


@given(scenarios, seeds)
def test_the_first_half_of_the_resources_is_rigid(scenario, seed):
    instance = dissertation_instance(scenario, seed)
    half = scenario.dims // 2
    assert [r.kind for r in instance.resources] == [Kind.RIGID] * half + [Kind.FLUID] * half
    assert instance.rigid.tolist() == [[True] * half + [False] * half] * scenario.services
    assert instance.capacity.tolist() == [[1.0] * scenario.dims] * scenario.nodes
    assert instance.service_of.tolist() == list(range(scenario.services))
    assert len({r.name for r in instance.resources}) == scenario.dims


@given(scenarios, seeds)
def test_the_same_seed_gives_the_same_instance_and_another_one_another(scenario, seed):
    instance = dissertation_instance(scenario, seed)
    again = dissertation_instance(scenario, seed)
    assert (instance.need == again.need).all()
    assert (instance.minimum_yield == again.minimum_yield).all()
    assert instance.name == again.name
    if scenario.sigma > 0:
        other = dissertation_instance(scenario, seed + 1)
        assert (instance.need != other.need).any()
        assert instance.name != other.name


@pytest.mark.parametrize(("rho", "share"), [(0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (1.0, 1.0)])
def test_services_have_a_minimum_yield_with_the_given_probability(rho, share):
    scenario = ServiceScenario(nodes=64, services=4000, dims=2, slack=0.5, sigma=0.5, rho=rho)
    minimum = dissertation_instance(scenario, 1).minimum_yield
    assert set(minimum.tolist()) <= {0.0, 0.5}
    assert (minimum > 0).mean() == pytest.approx(share, abs=0.03)


def test_there_are_729_dissertation_scenarios():
    listed = list(dissertation_scenarios())
    assert len(listed) == len(set(listed)) == 729
    assert [s.dims for s in listed[::243]] == [2, 4, 6]
    assert {s.services for s in listed} == set(LARGE_SERVICES)
    small = list(dissertation_scenarios(4, SMALL_SERVICES))
    assert len(small) == 729
    assert {(s.nodes, s.services) for s in small} == {(4, 8), (4, 10), (4, 12)}


def test_seeds_count_samples_within_the_data_set_of_one_number_of_resources():
    assert [dissertation_sample(k, 0) for k in (0, 1, 242, 243)] == [0, 100, 24_200, 0]
    assert dissertation_sample(728, 99) == 24_299
    assert len({dissertation_sample(k, s) for k in range(243) for s in range(100)}) == 24_300


def test_there_are_144_small_and_108_large_virtual_cluster_scenarios():
    small, large = list(virtual_cluster_scenarios(large=False)), list(virtual_cluster_scenarios(large=True))
    assert (len(small), len(large)) == (144, 108)
    assert len(set(small)) == 144
    assert len(set(large)) == 108
    assert {(s.nodes, s.tasks) for s in small} == {(4, 6), (4, 8), (4, 10), (4, 12)}
    assert {(s.nodes, s.tasks) for s in large} == {(64, 100), (64, 250), (64, 500)}
    assert all(s.parallel for s in virtual_cluster_scenarios(large=True, parallel=True))


@given(cluster_scenarios, seeds)
def test_virtual_clusters_fill_the_memory_up_to_the_slack(scenario, seed):
    instance = virtual_cluster_instance(scenario, seed)
    target = (1.0 - scenario.slack) * scenario.nodes
    assert instance.need.shape == (scenario.tasks, 2)
    assert (instance.need >= 0.0).all()
    assert (instance.need <= 1.0).all()
    memory = instance.need[:, 0]
    assert memory.sum() <= target + 1e-9
    if memory.max() < 1.0:
        assert memory.sum() == pytest.approx(target)
    assert (instance.minimum_yield == 0.0).all()


@given(cluster_scenarios, seeds)
def test_parallel_jobs_have_one_to_64_equal_tasks_and_together_as_many_as_asked(scenario, seed):
    instance = virtual_cluster_instance(replace(scenario, parallel=True), seed)
    sizes = Counter(instance.service_of.tolist())
    assert sum(sizes.values()) == scenario.tasks
    assert all(1 <= size <= 64 for size in sizes.values())
    for j in sizes:
        rows = instance.need[instance.service_of == j]
        assert (rows == rows[0]).all()


def test_sizes_of_parallel_jobs_favour_one_and_the_powers_of_two():
    """Serial jobs are 24.4 % of the model, powers of two above 1 at least another 57.6 %."""
    scenario = VirtualClusterScenario(nodes=64, tasks=60_000, slack=0.5, memory_cov=0.25, cpu_cov=0.25, parallel=True)
    sizes = virtual_cluster_instance(scenario, 1).tasks_per_service
    assert (sizes == 1).mean() == pytest.approx(0.244, abs=0.02)
    assert np.isin(sizes, [2, 4, 8, 16, 32, 64]).mean() >= 0.576 - 0.02
    assert set(sizes[:-1].tolist()) - {1, 2, 4, 8, 16, 32, 64}
    assert sizes.max() <= 64


@given(cluster_scenarios, seeds)
def test_virtual_clusters_repeat_by_seed(scenario, seed):
    instance, again = (virtual_cluster_instance(scenario, seed) for _ in range(2))
    assert (instance.need == again.need).all()
    assert (instance.service_of == again.service_of).all()
    other = virtual_cluster_instance(scenario, seed + 1)
    assert instance.need.shape == other.need.shape
    assert (instance.need != other.need).any()


GOOD = {"nodes": 4, "services": 8, "dims": 2, "slack": 0.5, "sigma": 0.5, "rho": 0.25}
GOOD_CLUSTER = {"nodes": 4, "tasks": 8, "slack": 0.5, "memory_cov": 0.25, "cpu_cov": 0.25}


@pytest.mark.parametrize(
    ("field", "bad", "rule"),
    [
        ("nodes", 0, "nodes = 0: must be at least 1"),
        ("services", 0, "services = 0: must be at least 1"),
        ("dims", 3, "resources = 3: must be even and at least 2"),
        ("dims", 0, "resources = 0: must be even and at least 2"),
        ("slack", 1.0, r"slack = 1: must be in \[0, 1\)"),
        ("slack", -0.1, r"slack = -0.1: must be in \[0, 1\)"),
        ("sigma", -1.0, r"sigma = -1: must be in \[0, 10\]"),
        ("sigma", float("nan"), r"sigma = nan: must be in \[0, 10\]"),
        ("rho", 1.5, r"rho = 1.5: must be in \[0, 1\]"),
        ("qos", 2.0, r"qos = 2: must be in \[0, 1\]"),
        ("mu", 0.0, r"mu = 0: must be in \[0\.01, 1\]"),
    ],
)
def test_a_bad_dissertation_setting_is_refused_by_name_and_rule(field, bad, rule):
    with pytest.raises(InputError, match=rule):
        ServiceScenario(**(GOOD | {field: bad}))


@pytest.mark.parametrize(
    ("field", "bad", "rule"),
    [
        ("nodes", 0, "nodes = 0: must be at least 1"),
        ("tasks", 0, "tasks = 0: must be at least 1"),
        ("slack", 1.0, r"slack = 1: must be in \[0, 1\)"),
        ("memory_cov", -0.5, r"memory-cov = -0.5: must be in \[0, 10\]"),
        ("cpu_cov", float("inf"), r"cpu-cov = inf: must be in \[0, 10\]"),
        ("nodes", 17, r"slack: mean memory per task would be above 1"),
    ],
)
def test_a_bad_virtual_cluster_setting_is_refused_by_name_and_rule(field, bad, rule):
    with pytest.raises(InputError, match=rule):
        VirtualClusterScenario(**(GOOD_CLUSTER | {field: bad}))
