"""Pictures of figures: a panel each, a line for each policy, and legends that fit them."""

import numpy as np
import pytest

from mixts.bandit import Played, Simulation
from mixts.bandit.experiments import Result
from mixts.bandit.experiments.picture import draw
from mixts.inference import Status
from tiny_figures import SIZE, panel, tiny

ROUNDS = np.arange(1, SIZE.horizon + 1)


def result(figure) -> Result:
    """Every policy has so much regret a round as its place in its panel says, and ten of it more for each
    panel before."""
    played = {}
    for i, given in enumerate(figure.panels):
        levels = {name: 1.0 + 10 * i + j for j, name in enumerate(given.policies)}
        shape = SIZE.runs, SIZE.horizon
        actions = np.zeros(shape, int)
        spread = np.arange(SIZE.runs)[:, None] - 1.0  # over runs, around zero
        regrets = {name: level + 0.1 * spread + np.zeros(shape) for name, level in levels.items()}
        parts = {name: Played(regret, actions, Status()) for name, regret in regrets.items()}
        played[given.name] = Simulation(parts, SIZE.horizon)
    return Result(figure, SIZE, played)


def two(**given):
    return tiny(panels=(panel(3), panel(4)), **given)


def test_a_panel_each_with_a_line_for_each_policy():
    drawing = draw(result(two()))
    assert [axes.get_title() for axes in drawing.axes] == ["K = 3", "K = 4"]
    for i, axes in enumerate(drawing.axes):
        assert len(axes.lines) == len(axes.collections) == 2
        for j, line in enumerate(axes.lines):
            np.testing.assert_array_equal(line.get_xdata(), ROUNDS)
            np.testing.assert_allclose(line.get_ydata(), (1.0 + 10 * i + j) * ROUNDS)
        band = axes.collections[0].get_paths()[0].vertices
        last = band[band[:, 0] == SIZE.horizon, 1]
        assert np.ptp(last) == pytest.approx(2 * 0.1 * SIZE.horizon / np.sqrt(3))
        assert axes.get_yscale() == "linear"
        assert axes.get_ylim()[0] == 0
    assert drawing.get_suptitle() == "Tiny problems"


def test_panels_with_the_same_lines_share_a_legend():
    drawing = draw(result(two()))
    (legend,) = drawing.legends
    assert [text.get_text() for text in legend.get_texts()] == ["LinTS", "chance"]
    assert all(axes.get_legend() is None for axes in drawing.axes)


def test_panels_with_other_lines_have_legends_of_their_own():
    drawing = draw(result(tiny()))  # the second panel has a bound as well
    assert not drawing.legends
    names = [[text.get_text() for text in a.get_legend().get_texts()] for a in drawing.axes]
    assert names == [["LinTS", "chance"], ["LinTS", "chance", "bound"]]


def test_a_logarithmic_axis():
    drawing = draw(result(two(logarithmic=True)))
    assert [axes.get_yscale() for axes in drawing.axes] == ["log", "log"]


def test_totals_across_panels():
    panels = panel(3, value=3), panel(4, value=4)
    drawing = draw(result(tiny(panels=panels, across="number of actions")))
    (axes,) = drawing.axes
    assert axes.get_xlabel() == "number of actions"
    assert axes.get_ylabel() == "regret of 40 rounds"
    for j, line in enumerate(axes.lines):
        np.testing.assert_array_equal(line.get_xdata(), [3, 4])
        np.testing.assert_allclose(line.get_ydata(), [(1 + j) * 40, (11 + j) * 40])


def test_a_place_without_a_panel_is_left_empty():
    drawing = draw(result(tiny(panels=(panel(3), panel(4), panel(5)), columns=2)))
    assert [axes.axison for axes in drawing.axes] == [True, True, True, False]
