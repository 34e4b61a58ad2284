"""Pictures of simulations: the right lines, told apart, whatever was played."""

import io

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mixts.bandit import Played, Simulation
from mixts.bandit.simulation.regret_plot import COLOURS


def part(runs: int, horizon: int, scale: float = 1.0) -> Played:
    rng = np.random.default_rng(int(10 * scale))
    regret = scale * rng.uniform(0.5, 1.5, (runs, horizon))
    return Played(regret, np.zeros((runs, horizon), np.int32), {})


def simulation(names, runs: int = 6, horizon: int = 40) -> Simulation:
    return Simulation({n: part(runs, horizon, 1 + i) for i, n in enumerate(names)}, horizon)


def drawn(figure: Figure) -> np.ndarray:
    """The pixels, as they are saved."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return matplotlib.image.imread(io.BytesIO(buffer.getvalue()))


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_line_for_each_policy_with_its_band():
    given = simulation(["A", "B", "C"])
    axes = given.plot().axes[0]
    assert len(axes.lines) == len(axes.collections) == 3
    for line, band, name in zip(axes.lines, axes.collections, given.played, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 41))
        np.testing.assert_allclose(line.get_ydata(), given.mean()[name])
        corners = band.get_paths()[0].vertices
        last = corners[corners[:, 0] == 40, 1]
        width = 2 * given.standard_error()[name][-1]
        assert np.ptp(last) == pytest.approx(width)
    assert axes.get_ylim()[0] == 0
    assert "regret" in axes.get_ylabel()
    assert axes.get_xlabel() == "round"


def test_names_stand_in_the_order_of_their_lines():
    """The highest first, each beside a sample of its own line."""
    figure = simulation(["low", "middle", "high"]).plot()
    assert legend(figure) == ["high", "middle", "low"]
    samples = [line.get_color() for line in figure.legends[0].get_lines()]
    assert samples == [COLOURS[2], COLOURS[1], COLOURS[0]]


def test_lines_are_told_apart_however_many():
    """By colour and dashes together, and in grey by dashes and markers together."""
    figure = simulation([f"policy {i}" for i in range(30)]).plot()
    lines = figure.axes[0].lines
    looks = {(to_hex(line.get_color()), str(line._unscaled_dash_pattern)) for line in lines}
    assert len(looks) == 30
    assert len({(str(line._unscaled_dash_pattern), line.get_marker()) for line in lines}) == 30
    drawn(figure)
    height = figure.bbox.height
    for text in figure.legends[0].get_texts():
        assert 0 <= text.get_window_extent().y0 < text.get_window_extent().y1 <= height


def test_names_are_never_cut_nor_cover_lines():
    figure = simulation(["y" * 100, "meTS with a rather long name"]).plot()
    drawn(figure)
    axes = figure.axes[0].get_window_extent()
    assert axes.width > 300
    for text in figure.legends[0].get_texts():
        assert axes.x1 < text.get_window_extent().x0
        assert text.get_window_extent().x1 <= figure.bbox.width
    assert legend(figure)[1] == "y" * 39 + "…"


def test_names_may_be_anything():
    names = ["_hidden", "$x^$", "two\nlines", "50%", "\\frac{", ""]
    figure = simulation(names).plot()
    assert sorted(legend(figure)) == sorted(["_hidden", "$x^$", "two lines", "50%", "\\frac{", ""])
    drawn(figure)


@pytest.mark.parametrize(("runs", "horizon"), [(1, 1), (1, 30), (5, 1), (2, 2), (3, 9)])
def test_few_runs_and_rounds(runs, horizon):
    """Warnings are errors here; a single round shows as a marker that is not cut."""
    given = simulation(["A", "B"], runs, horizon)
    pixels = drawn(given.plot())
    assert pixels.std() > 0
    line = given.plot().axes[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), given.mean()["A"])
    start, step = line.get_markevery()
    assert start < horizon
    assert step >= 1
    assert not line.get_clip_on()


def test_policies_without_runs_are_left_out():
    given = Simulation({"A": part(2, 5), "none": part(0, 5)}, 5, interrupted=True)
    figure = given.plot()
    assert legend(figure) == ["A"]
    nothing = Simulation({"none": part(0, 5)}, 5, interrupted=True).plot()
    assert not nothing.legends
    drawn(nothing)


def test_no_regret_at_all():
    zeros = Played(np.zeros((3, 8)), np.zeros((3, 8), np.int32), {})
    axes = Simulation({"best": zeros}, 8).plot().axes[0]
    assert axes.get_ylim()[0] == 0 < axes.get_ylim()[1]


def test_a_picture_is_saved(tmp_path):
    given = simulation(["A"])
    for suffix in (".png", ".svg", ".pdf"):
        given.plot(tmp_path / f"regret{suffix}")
        assert (tmp_path / f"regret{suffix}").stat().st_size > 1000
    assert given.plot()._repr_png_()[0].startswith(b"\x89PNG")
