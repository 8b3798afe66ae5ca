"""VP_CHEKURI: at most D*m tasks split, everything fits at the yield searched, equal nodes only."""

from math import ceil

import numpy as np
import pytest

from dfrs.model import tolerances
from dfrs.model.allocation import Status
from dfrs.model.errors import InfeasibleError, UnsupportedError
from dfrs.placement import chekuri
from dfrs.placement.bounds import lp_bound
from dfrs.placement.chekuri import Chekuri, pack
from dfrs.placement.milp import Exact
from dfrs.workloads.services import ServiceScenario, dissertation_instance
from tests.cases import make_instance


def sample(seed, nodes=10, services=60, slack=0.5, dims=2):
    return dissertation_instance(
        ServiceScenario(nodes=nodes, services=services, dims=dims, slack=slack, sigma=0.5, rho=0.25), seed
    )


def size(instance, yield_):
    return instance.base + yield_ * instance.slope


@pytest.mark.parametrize("dims", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_vertex_splits_few_tasks_and_all_fit_at_the_yield_asked_for(seed, dims):
    instance = sample(seed, dims=dims, slack=0.7)
    packed_at = []
    for share in (0.0, 0.3, 0.6, 0.9, 1.0):
        yield_ = share * lp_bound(instance)
        packed = pack(instance, yield_)
        if packed is None:
            continue
        packed_at.append(share)
        aggregate = size(instance, yield_).sum(axis=0).max()
        assert packed.nodes == max(1, ceil(aggregate - 1e-8))
        assert packed.split <= dims * packed.nodes
        loads = np.zeros_like(instance.capacity)
        np.add.at(loads, packed.place, size(instance, yield_))
        assert loads.max() <= 1 + 1e-6
    assert 0.0 in packed_at


def test_whole_tasks_stay_on_the_first_nodes_and_split_ones_get_nodes_of_their_own():
    instance = sample(1, slack=0.8)
    packed = pack(instance, 0.0)
    beyond = packed.place >= packed.nodes
    assert beyond.sum() == packed.split > 0
    assert packed.place.max() < len(instance.nodes)


def test_fractions_are_shares_and_a_vertex():
    vectors = size(sample(3, dims=4), 0.2)
    nodes = ceil(vectors.sum(axis=0).max())
    fraction = chekuri._basic_solution(vectors, nodes)
    assert fraction.sum(axis=1) == pytest.approx(np.ones(len(vectors)))
    assert (fraction.T @ vectors <= 1 + 1e-6).all()
    assert (fraction > 1e-9).sum() <= len(vectors) + vectors.shape[1] * nodes
    assert chekuri._basic_solution(vectors, nodes - 1) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_outcome_reaches_the_yield_searched_and_not_the_bound(seed):
    instance = sample(seed, slack=0.6)
    outcome = Chekuri()(instance)
    assert outcome.status == Status.FEASIBLE
    assert outcome.details["searched_yield"] - 1e-6 <= outcome.minimum_yield <= outcome.bound
    assert outcome.details["split"] <= 2 * outcome.details["program_nodes"]
    above = outcome.details["searched_yield"] + tolerances.YIELD_SEARCH_WIDTH
    assert above > lp_bound(instance) or pack(instance, above) is None


def test_the_search_tries_the_upper_end_first_and_zero_last(monkeypatch):
    asked = []

    def answer(threshold):
        def packing(_instance, yield_):
            asked.append(yield_)
            return chekuri.Packed(place=np.zeros(1), nodes=1, split=0) if yield_ <= threshold else None

        return packing

    monkeypatch.setattr(chekuri, "pack", answer(1.0))
    assert chekuri._search(None, 0.8)[0] == 0.8
    assert asked == [0.8]
    asked.clear()
    monkeypatch.setattr(chekuri, "pack", answer(0.3))
    assert 0.3 - tolerances.YIELD_SEARCH_WIDTH <= chekuri._search(None, 0.8)[0] <= 0.3
    assert asked[:2] == [0.8, 0.4]
    assert 0.0 not in asked
    asked.clear()
    monkeypatch.setattr(chekuri, "pack", answer(0.0))
    low, packed = chekuri._search(None, 0.8)
    assert (low, asked[-1]) == (0.0, 0.0)
    assert packed is not None
    monkeypatch.setattr(chekuri, "pack", answer(-1.0))
    assert chekuri._search(None, 0.8)[1] is None


def test_it_is_never_better_than_the_optimum():
    for seed in range(4):
        instance = sample(seed, nodes=4, services=9, slack=0.6)
        value = Chekuri()(instance).minimum_yield
        assert value is None or value <= Exact()(instance).minimum_yield + 1e-9


def test_one_node_and_several_tasks_of_a_service():
    instance = make_instance([[0.2, 0.5]] * 4, capacity=np.ones((1, 2)), service_of=[0, 0, 1, 1])
    outcome = Chekuri()(instance)
    assert outcome.status == Status.OPTIMAL
    assert outcome.minimum_yield == pytest.approx(0.5)
    assert outcome.details == {"searched_yield": pytest.approx(0.5), "program_nodes": 1, "split": 0}


def test_capacities_other_than_one_and_resources_nobody_has():
    half = make_instance([[0.1, 0.25, 0.0]] * 4, capacity=np.tile([0.4, 0.5, 0.0], (3, 1)))
    double = make_instance([[0.25, 0.5, 0.0]] * 4, capacity=np.ones((3, 3)))
    assert Chekuri()(half).minimum_yield == pytest.approx(Chekuri()(double).minimum_yield)
    wanting = make_instance([[0.1, 0.1, 0.1]], capacity=np.tile([1.0, 1.0, 0.0], (3, 1)))
    assert Chekuri()(wanting).minimum_yield == 0.0


def test_no_packing_is_not_found_and_too_much_is_infeasible():
    outcome = Chekuri()(make_instance([[0.6, 0.1]] * 3, capacity=np.ones((2, 2))))
    assert outcome.status == Status.NOT_FOUND
    with pytest.raises(InfeasibleError, match="r0"):
        Chekuri()(make_instance([[0.9, 0.1]] * 3, capacity=np.ones((2, 2))))


def test_unequal_nodes_are_refused_with_the_names_of_what_takes_them():
    with pytest.raises(UnsupportedError, match=r"VP_\*, GREEDY or BEST"):
        Chekuri()(make_instance([[0.1, 0.1]], capacity=[[1.0, 1.0], [1.0, 0.5]]))
