"""Pictures of posteriors: the right numbers in the right rows, under their names."""

import jax
import numpy as np
import pytest

from mixts.inference import ClosedForm, Nuts, Posterior, plot_forest, plot_learning
from mixts.models import Gaussian, Hierarchy, Level
from mixts.models.picture.look import COLOURS

GENRES = ("comedy", "drama")


@pytest.fixture(scope="module")
def posteriors() -> dict[int, Posterior]:
    """What is known of two genres and thirty movies after 0, 10 and 20 rewards."""
    weights = np.random.default_rng(0).dirichlet(np.ones(2), 30)
    levels = [Level("genre", 2, labels=GENRES), Level("movie", 30, parents={"genre": weights})]
    backend = ClosedForm(Hierarchy(levels, Gaussian(1.0), dim=2))
    rng = np.random.default_rng(1)
    state, known = backend.init(), {}
    for t in (0, 10, 20):
        known[t] = backend.posterior(state)
        rows = rng.normal(size=(10, 2)), rng.integers(0, 30, 10), rng.normal(size=10)
        state = backend.condition(state, *rows)
    return known


def intervals(axes, posterior: Posterior, level: str, component: int, size: int) -> None:
    """The last error bars of some axes are those of a posterior."""
    bars = axes.containers[-1]
    segments = np.stack(bars.lines[2][0].get_segments())
    mean = posterior.mean[level][:size, component]
    deviation = np.sqrt(posterior.cov[level][:size, component, component])
    np.testing.assert_allclose(bars.lines[0].get_xdata(), mean)
    np.testing.assert_allclose(segments[:, 0, 0], mean - 2 * deviation, rtol=1e-5)
    np.testing.assert_allclose(segments[:, 1, 0], mean + 2 * deviation, rtol=1e-5)


def test_a_forest_has_a_row_for_each_vector(posteriors):
    figure = posteriors[20].plot(show="first")
    genre, movie = figure.axes
    intervals(genre, posteriors[20], "genre", 0, 2)
    intervals(movie, posteriors[20], "movie", 0, 20)
    assert [text.get_text() for text in genre.get_yticklabels()] == list(GENRES)
    assert movie.get_yticklabels()[3].get_text() == "movie 3"
    assert movie.get_title(loc="left") == "movie: the first 20 of 30"
    assert "first number" in movie.get_xlabel()
    assert not figure.legends


def drawn(figure) -> tuple[list[str], np.ndarray]:
    """The labels of a forest's last axes and the means beside them, from top to bottom."""
    axes = figure.axes[-1]
    return [text.get_text() for text in axes.get_yticklabels()], axes.containers[-1].lines[
        0
    ].get_xdata()


@pytest.mark.parametrize(
    ("show", "rows", "title"),
    [
        ("top", slice(0, 6), "the 6 highest means of 30"),
        ("bottom", slice(24, 30), "the 6 lowest means of 30"),
        ("both", [0, 1, 2, 27, 28, 29], "the 3 highest and 3 lowest means of 30"),
    ],
)
def test_of_many_vectors_those_at_the_ends_are_drawn(posteriors, show, rows, title):
    """By the means of the last posterior, the highest first."""
    known = {"before": posteriors[0], "after": posteriors[20]}
    figure = plot_forest(known, levels=["movie"], most=6, show=show)
    means = np.asarray(posteriors[20].mean["movie"][:, 0])
    order = np.argsort(-means)[rows]
    labels, numbers = drawn(figure)
    assert labels == [f"movie {i}" for i in order]
    np.testing.assert_allclose(numbers, means[order])
    assert figure.axes[0].get_title(loc="left") == f"movie: {title}"


def test_long_labels_are_inside_the_picture():
    """The longest end in an ellipsis, and a dollar sign is no formula."""
    labels = ["The Lord of the Rings: the Fellowship of", "win $5 or $6", "x" * 500, "two\nlines"]
    hierarchy = Hierarchy([Level("movie", 4, labels=labels)], Gaussian(1.0), dim=1)
    backend = ClosedForm(hierarchy)
    figure = backend.posterior(backend.init()).plot()
    names, _ = drawn(figure)
    assert names == [labels[0], labels[1], "x" * 39 + "…", "two lines"]
    figure.canvas.draw()
    whole = figure.bbox
    for text in figure.axes[0].get_yticklabels():
        box = text.get_window_extent()
        assert box.x0 >= whole.x0
        assert box.y0 >= whole.y0
    # Half of the picture at least is for the intervals.
    assert figure.axes[0].get_window_extent().width > 0.5 * whole.width


def test_posteriors_stand_side_by_side_with_the_truth(posteriors):
    truth = {"genre": np.array([[0.1, 0.2], [0.3, 0.4]]), "another": np.zeros(3)}
    known = {"before": posteriors[0], "after": posteriors[20]}
    figure = plot_forest(known, truth=truth, levels=["genre"], component=1)
    (axes,) = figure.axes
    intervals(axes, posteriors[20], "genre", 1, 2)
    rows = [bars.lines[0].get_ydata() for bars in axes.containers]
    np.testing.assert_allclose(rows, [[-0.2, 0.8], [0.2, 1.2]])
    ticks = axes.collections[-1]
    np.testing.assert_allclose([s[0, 0] for s in ticks.get_segments()], [0.2, 0.4])
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"truth", *known}
    assert "second number" in axes.get_xlabel()


def test_learning_is_a_line_for_each_vector(posteriors):
    truth = np.array([[0.5, 0.0], [-0.5, 0.0]])
    figure = plot_learning(posteriors, "genre", truth=truth)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(lines) == list(GENRES)
    for i, line in enumerate(lines.values()):
        np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20])
        means = [posterior.mean["genre"][i, 0] for posterior in posteriors.values()]
        np.testing.assert_allclose(line.get_ydata(), means)
        first = axes.collections[i].get_paths()[0].vertices
        widest = 4 * np.sqrt(posteriors[0].cov["genre"][i, 0, 0])
        assert np.ptp(first[first[:, 0] == 0, 1]) == pytest.approx(widest, rel=1e-5)
    level = [line.get_ydata()[0] for line in axes.lines if line.get_label().startswith("_")]
    assert level == [0.5, -0.5]
    assert len({line.get_linestyle() for line in lines.values()}) == 2
    assert figure.legends[0].get_title().get_text() == "genre"


def test_no_more_lines_than_can_be_told_apart(posteriors):
    figure = plot_learning(posteriors, "movie")
    assert len(figure.axes[0].lines) == len(COLOURS)
    assert figure.legends[0].get_title().get_text() == "movie: the 7 highest means of 30"
    best = int(np.argmax(posteriors[20].mean["movie"][:, 0]))
    assert figure.axes[0].lines[0].get_label() == f"movie {best}"
    assert len(plot_learning(posteriors, "movie", most=3).axes[0].lines) == 3


def test_a_program_without_labels_is_drawn(posteriors):
    hierarchy = posteriors[0].backend.hierarchy
    hand_written = hierarchy.program  # a program says nothing of labels
    backend = Nuts(hand_written, actions="movie", dim=2, chains=2, samples=1000)
    posterior = backend.posterior(backend.init(jax.random.key(0)))
    (axes,) = posterior.plot(levels=["movie"], most=4, show="first").axes
    assert [t.get_text() for t in axes.get_yticklabels()] == [f"movie {i}" for i in range(4)]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda p: plot_forest({}), "expected a posterior, or a dictionary"),
        (lambda p: plot_forest({"a": 3}), "got 3; expected a Posterior"),
        (lambda p: plot_forest(p[0], levels=["film"]), "no level 'film'; there are genre, movie"),
        (lambda p: plot_forest(p[0], component=2), "component is 2; expected 0 to 1"),
        (lambda p: p[0].plot(truth={"genre": np.zeros(2)}), r"shape \(2,\); expected \(2, 2\)"),
        (
            lambda p: plot_forest(p[0], show="best"),
            "show is 'best'; expected one of 'top', 'bottom'",
        ),
        (lambda p: plot_forest(p[0], most=0), "most: got 0; expected a whole number"),
        (lambda p: plot_learning({}, "genre"), "expected a dictionary from rounds"),
        (lambda p: plot_learning(p, "film"), "no level 'film'"),
        (lambda p: plot_learning(p, "genre", truth=np.zeros((3, 2))), r"expected \(2, 2\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(posteriors, draw, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw(posteriors)
