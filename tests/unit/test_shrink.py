"""--shrink: the loss allowed is kept, and the nodes turned off are the smallest."""

import numpy as np
import pytest

from dfrs import InfeasibleError, InputError, generate_services
from dfrs.placement.packing import VECTOR_PACKINGS
from dfrs.placement.shrink import shrink

PACK = VECTOR_PACKINGS["VP_CPSUM"]


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.3])
def test_the_loss_is_kept(loss):
    instance = generate_services(nodes=20, services=50, slack=0.6, seed=5)
    result = shrink(instance, PACK, loss, 0)
    assert result.outcome.minimum_yield is not None
    assert result.outcome.minimum_yield >= result.full_yield - loss - 1e-9
    assert result.tried[len(result.keep) - 1] is None or result.tried[len(result.keep) - 1] < result.full_yield - loss


def test_more_loss_never_needs_more_nodes():
    instance = generate_services(nodes=20, services=50, slack=0.6, seed=6)
    counts = [len(shrink(instance, PACK, loss, 0).keep) for loss in (0.0, 0.1, 0.2, 0.4)]
    assert counts == sorted(counts, reverse=True)


def test_the_smallest_nodes_go_first():
    instance = generate_services(nodes=6, services=4, slack=0.8, rho=0.0, seed=1)
    capacity = instance.capacity.copy()
    capacity[[1, 4]] = 0.5
    uneven = type(instance)(
        resources=instance.resources,
        nodes=instance.nodes,
        capacity=capacity,
        services=instance.services,
        minimum_yield=instance.minimum_yield,
        service_of=instance.service_of,
        need=instance.need,
        rigid=instance.rigid,
        move_cost=instance.move_cost,
    )
    result = shrink(uneven, PACK, 0.2, 0)
    off = set(range(6)) - set(result.keep.tolist())
    assert off
    assert off <= {1, 4} or {1, 4} <= off


def test_what_cannot_be_is_said():
    instance = generate_services(nodes=4, services=10, seed=1)
    with pytest.raises(InputError, match=r"in \[0, 1\]"):
        shrink(instance, PACK, 1.5, 0)
    full = generate_services(nodes=2, services=40, slack=0.0, rho=1.0, qos=1.0, seed=1)
    with pytest.raises(InfeasibleError):
        shrink(full.on_nodes(np.array([0])), PACK, 0.1, 0)
