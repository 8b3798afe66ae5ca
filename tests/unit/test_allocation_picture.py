"""The picture of an allocation: who is where, in proportion, and which minimum is which."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from dfrs import Instance, allocate
from dfrs.report import allocation as picture
from dfrs.report.allocation import draw_allocation, shortened


def figure_of(monkeypatch, instance):
    """What is drawn of the best allocation found, and that."""
    made = []
    monkeypatch.setattr(picture, "save", lambda make, path: made.append(make()))
    found = allocate(instance, "VP_CPSUM", second_phase="none").allocation
    draw_allocation(instance, found, 1.0, "title", None)
    plt.close(made[0])
    return made[0], found


def unequal(minimum_yield=0.0, nodes=3):
    """One node is twice as large as the others."""
    capacity = np.tile([0.5, 0.5], (nodes, 1))
    capacity[0] = 1.0
    need = np.tile([0.2, 0.3], (nodes + 1, 1))
    names = [f"service-{k}" for k in range(nodes + 1)]
    hosts = ["big", *(f"small-{k}" for k in range(1, nodes))]
    return Instance.from_arrays(
        capacity,
        need,
        [True, False],
        services=names,
        nodes=hosts,
        resources=["memory", "cpu"],
        minimum_yield=minimum_yield,
    )


def texts(axes):
    return {text.get_text() for text in axes.texts}


def test_nodes_and_services_have_their_names(monkeypatch):
    figure, found = figure_of(monkeypatch, unequal())
    memory, cpu, _, *_ = figure.axes
    assert [label.get_text() for label in cpu.get_xticklabels()] == ["big", "small-1", "small-2"]
    assert texts(memory) == {f"service-{k}" for k in range(4)}
    at = {text.get_text(): text.get_position() for text in cpu.texts}
    assert all(at[f"service-{k}"][0] == node for k, node in enumerate(found.place))


def test_a_node_is_as_high_as_it_is_large(monkeypatch):
    instance = unequal()
    figure, found = figure_of(monkeypatch, instance)
    for d, axes in enumerate(figure.axes[:2]):
        (limits,) = (each for each in axes.collections if isinstance(each, LineCollection))
        assert [float(segment[0][1]) for segment in limits.get_segments()] == [1.0, 0.5, 0.5]
        (bars,) = (each for each in axes.collections if isinstance(each, PolyCollection))
        tops = dict.fromkeys(range(3), 0.0)
        for path in bars.get_paths():
            node = round(float(path.vertices[:, 0].mean()))
            tops[node] += float(np.ptp(path.vertices[:, 1]))
        assert list(tops.values()) == pytest.approx(found.loads(instance)[:, d])
        assert axes.get_ylabel().endswith("of the largest node")


def test_of_many_nodes_whole_numbers_stand_below(monkeypatch):
    figure, _ = figure_of(monkeypatch, unequal(nodes=40))
    cpu = figure.axes[1]
    assert cpu.get_xlabel() == "40 nodes"
    assert all(float(tick).is_integer() for tick in cpu.get_xticks())
    assert not texts(figure.axes[0])


def test_the_minimum_yield_and_the_scaled_one_are_told_apart(monkeypatch):
    figure, found = figure_of(monkeypatch, unequal(minimum_yield=0.5))
    title = figure.axes[2].get_title(loc="left")
    assert title.startswith(
        f"minimum yield {0.5 + 0.5 * found.minimum_yield:.3f}, scaled {found.minimum_yield:.3f}   average"
    )
    plain, found = figure_of(monkeypatch, unequal())
    assert plain.axes[2].get_title(loc="left").startswith(f"minimum yield {found.minimum_yield:.3f}   average")


@pytest.mark.parametrize(
    ("name", "most", "shown"),
    [("short", 5, "short"), ("node-0001", 7, "nod…001"), ("node-0001", 2, "n…"), ("node-0001", 0, "n…")],
)
def test_a_long_name_keeps_both_ends(name, most, shown):
    assert shortened(name, most) == shown
