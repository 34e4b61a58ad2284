"""`compare`: its numbers against hand-computed ones, its tables, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from known_posteriors import Known, known
from mistakes import cases, check_refused
from mixts.inference import (
    ClosedForm,
    Comparison,
    Laplace,
    Nuts,
    Status,
    Svi,
    Trouble,
    TroubleWarning,
    compare,
)
from mixts.inference.judging import comparison
from mixts.models import Data, Gaussian, Hierarchy, Level, glm, linear
from tolerance import tolerance

N = 4000
GENRES, MOVIES = ["drama", "comedy"], ["Heat", "Up", "Big"]
ERRORS = [
    *["mean_error", "mean_error_max", "sd_ratio", "sd_ratio_min", "sd_ratio_max"],
    *["wasserstein", "coverage"],
]


def movies() -> Hierarchy:
    """Ten numbers in two levels."""
    weights = np.array([[1.0, 0.5], [0.3, 1.0], [1.0, 1.0]])
    genre = Level("genre", 2, cov=2.0, labels=GENRES)
    movie = Level("movie", 3, parents={"genre": weights}, labels=MOVIES)
    return Hierarchy([genre, movie], Gaussian(0.5), 2)


def ratings() -> Data:
    rng = np.random.default_rng(0)
    return Data(rng.uniform(-1, 1, (12, 2)), [0, 1, 2] * 4, rng.normal(size=12))


def of_movies(backends, reference, **options) -> Comparison:
    return compare(movies(), ratings(), backends, reference, **{"draws": N} | options)


@pytest.fixture(scope="module")
def moved() -> Comparison:
    """Against a known posterior: one moved half a standard deviation and half as wide, and one wider."""
    truth = known(movies())
    return of_movies(
        {"truth": truth, "moved": truth.moved(0.5, 0.5), "wide": truth.moved(0.0, 2.0)}, "truth"
    )


def test_moments_are_compared_in_standard_deviations_of_the_reference(moved):
    row = moved.table.loc["moved"]
    for column in ERRORS[:5]:
        np.testing.assert_allclose(row[column], 0.5, **tolerance())
    row = moved.table.loc["wide"]
    for column in ERRORS[:2]:
        np.testing.assert_allclose(row[column], 0.0, **tolerance())
    for column in ERRORS[2:5]:
        np.testing.assert_allclose(row[column], 2.0, **tolerance())


def test_mean_error_and_sd_ratio_over_numbers_that_differ():
    """By hand, over all ten numbers and over each level."""
    truth = known(movies())
    rng = np.random.default_rng(1)
    shift = {name: rng.normal(size=mean.shape) for name, mean in truth.mean.items()}
    ratio = {name: rng.uniform(0.5, 2.0, mean.shape) for name, mean in truth.mean.items()}
    other = Known(
        {name: truth.mean[name] + shift[name] * truth.sd[name] for name in shift},
        {name: ratio[name] * truth.sd[name] for name in ratio},
    )
    found = of_movies({"other": other}, lambda h: truth, draws=10)
    rows = {name: found.by_level.loc["other", name] for name in shift}
    rows["all"] = found.table.loc["other"]
    shift["all"], ratio["all"] = (
        np.concatenate([part.ravel() for part in parts.values()]) for parts in (shift, ratio)
    )
    for name, row in rows.items():
        expected = {
            "mean_error": np.sqrt(np.mean(shift[name] ** 2)),
            "mean_error_max": np.abs(shift[name]).max(),
            "sd_ratio": np.prod(ratio[name]) ** (1 / ratio[name].size),
            "sd_ratio_min": ratio[name].min(),
            "sd_ratio_max": ratio[name].max(),
        }
        for column, value in expected.items():
            np.testing.assert_allclose(row[column], value, **tolerance())


@pytest.mark.parametrize(("name", "shift", "scale"), [("moved", 0.5, 0.5), ("wide", 0.0, 2.0)])
def test_coverage_and_wasserstein_distance(moved, name, shift, scale):
    """Against their values for normals.

    A share of N draws has a standard error below 0.5 / sqrt(N). The ends of an interval are quantiles,
    each off by sqrt(0.05 * 0.95 / N) / density = 2.1 / sqrt(N) of the backend's standard deviations: at
    most 0.4 * 2.1 * scale / sqrt(N) of the reference's draws each. A mean of |difference| over N pairs
    is off by less than sqrt(1 + scale^2) / sqrt(N). Averages over ten numbers have less.
    """
    row = moved.table.loc[name]
    end = scale * norm.ppf(0.95)
    inside = norm.cdf(shift + end) - norm.cdf(shift - end)
    assert abs(row["coverage"] - inside) < 5 * (0.5 + 2 * 0.84 * scale) / np.sqrt(10 * N)
    # The quantiles of one, shift + scale * z, against those of the other, z.
    distance = norm.expect(lambda z: abs(shift + (scale - 1) * z))
    assert abs(row["wasserstein"] - distance) < 5 * np.sqrt((1 + scale**2) / (10 * N))


def test_the_reference_s_row_is_the_monte_carlo_error(moved):
    """Two sets of draws of one normal: E |F_n - G_n| is sqrt(2 / pi) sqrt(2 F (1 - F) / n) everywhere.

    A single distance varies by about half of itself, the average of ten by a sixth.
    """
    row = moved.table.iloc[0]
    assert row.name == "truth"
    for column in ERRORS[:2]:
        assert row[column] == 0.0
    for column in ERRORS[2:5]:
        assert row[column] == 1.0
    spread, _ = quad(lambda x: np.sqrt(norm.cdf(x) * norm.sf(x)), -10, 10)
    expected = np.sqrt(2 / np.pi) * np.sqrt(2 / N) * spread
    assert abs(row["wasserstein"] / expected - 1) < 0.6
    assert abs(row["coverage"] - 0.9) < 5 * (0.3 + 2 * 0.1 * 2.1) / np.sqrt(10 * N)
    assert 0 < row["best_tv"] < 3 * 5 * 0.5 / np.sqrt(N)


def test_probabilities_of_being_best():
    """Two actions whose scores differ by a normal; a share of N draws is off by 0.5 / sqrt(N)."""
    hierarchy = Hierarchy([Level("action", 2)], Gaussian(1.0), 1)
    data = Data([[2.0]], [0], [1.0])

    def backend(mean, sd):
        return Known({"action": jnp.array(mean)}, {"action": jnp.array(sd)})

    backends = {
        "a": backend([[1.0], [0.0]], [[1.0], [1.0]]),
        "b": backend([[0.0], [1.0]], [[3.0], [4.0]]),
    }
    found = compare(hierarchy, data, backends, "a", draws=N)
    first = {"a": norm.cdf(1 / np.sqrt(2)), "b": norm.cdf(-1 / 5)}
    within = 5 * 0.5 / np.sqrt(N)
    for name, chance in first.items():
        np.testing.assert_allclose(found.best[name], [chance, 1 - chance], atol=within)
    expected = abs(first["a"] - first["b"])
    np.testing.assert_allclose(found.table.loc["b", "best_tv"], expected, atol=2 * within)
    # The other way round in a negative context.
    turned = compare(hierarchy, data, backends, "a", draws=N, context=[-1.0])
    np.testing.assert_allclose(turned.best["a"], [1 - first["a"], first["a"]], atol=within)


def test_a_context_for_each_action():
    """Only the second action has a context, and its vector is far above zero."""
    truth = known(movies())
    sure = Known(
        jax.tree.map(lambda mean: jnp.full_like(mean, 5.0), truth.mean),
        jax.tree.map(lambda sd: jnp.full_like(sd, 0.1), truth.sd),
    )
    context = [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    found = of_movies({"sure": sure}, lambda h: sure, draws=50, context=context)
    assert found.best["sure"].tolist() == [0.0, 1.0, 0.0]


def test_ties_are_shared():
    """In the context zero all actions score zero."""
    found = of_movies({"a": known(movies())}, "a", draws=50, context=[0.0, 0.0])
    np.testing.assert_allclose(found.best["a"], 1 / 3)


def test_tables(moved):
    names = ["truth", "moved", "wide"]
    assert list(moved.table.index) == list(moved.best.columns) == list(moved.posteriors) == names
    assert list(moved.table["reference"]) == [True, False, False]
    assert moved.reference == "truth"
    timing = ["best_tv", "seconds", "compile_seconds", "status"]
    assert list(moved.table.columns) == ["reference", *ERRORS, *timing]
    assert list(moved.by_level.columns) == ERRORS
    assert list(moved.by_level.index[:3]) == [
        ("truth", "genre"),
        ("truth", "movie"),
        ("moved", "genre"),
    ]
    assert moved.best.index.name == "movie"
    assert moved.best.index.tolist() == MOVIES
    np.testing.assert_allclose(moved.best.sum(), 1.0, rtol=1e-12)
    assert (moved.table["seconds"] > 0).all()
    assert (moved.table["compile_seconds"] >= 0).all()
    np.testing.assert_allclose(moved.context, ratings().contexts.mean(0))


def test_intervals_are_the_central_90_percent(moved):
    """Ends of an interval of N draws are off by 2.1 / sqrt(N) standard deviations."""
    truth = moved.posteriors["truth"].backend
    low, high = moved.intervals["truth"]["movie"]
    for end, z in ((low, norm.ppf(0.05)), (high, norm.ppf(0.95))):
        far = (end - truth.mean["movie"]) / truth.sd["movie"] - z
        assert np.abs(far).max() < 5 * 2.1 / np.sqrt(N)


def test_text(moved):
    lines = repr(moved).splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == ["truth (reference)", "moved", "wide"]
    assert lines[3].split()[1:6] == ["0.500"] * 5
    assert all(line.endswith("ok") for line in lines[2:])


def test_trouble_is_said_in_words():
    truth = known(movies())
    nothing = Known(jax.tree.map(lambda mean: mean * jnp.nan, truth.mean), truth.sd)
    backends = {"bad": truth.moved(0.0, 1.0, Status({"made up": True})), "nothing": nothing}
    with pytest.warns(TroubleWarning, match="compare: bad: made up: 1; nothing: means"):
        found = of_movies(backends, lambda h: truth, draws=20)
    not_finite = Trouble.NOT_FINITE.sentence
    assert found.table["status"].tolist() == ["ok", "made up: 1", not_finite]
    assert found.table.loc["nothing", "mean_error":"mean_error_max"].isna().all()
    assert found.best["nothing"].isna().all()
    lines = repr(found).splitlines()
    assert [line.split()[-1] for line in lines[2:5]] == ["ok", "below", "below"]
    assert lines[5:] == ["bad: made up: 1", f"nothing: {not_finite}"]
    found.plot().canvas.draw()


def test_fits_that_did_not_converge_are_counted():
    """As `Laplace` and `Factored` count them in their states."""

    class Stopped(Known):
        def init(self, key=None, *, room=0):
            return jnp.asarray(3)

        def status(self, state):
            return Status({Trouble.UNCONVERGED: state})

    truth = known(movies())
    with pytest.warns(TroubleWarning, match="stopped: 3 fits"):
        found = of_movies({"stopped": Stopped(truth.mean, truth.sd)}, lambda h: truth, draws=20)
    assert found.table.loc["stopped", "status"] == "3 fits stopped before they had converged"


def test_trouble_of_the_reference_of_a_second_run_and_of_draws_is_shown():
    """A reference that cannot be relied on makes all numbers of the table meaningless."""
    truth = known(movies())
    runs: list[int] = []

    class Moody(Known):
        """Nothing is wrong with its first run."""

        def init(self, key=None, *, room=0):
            runs.append(1)
            return jnp.asarray(len(runs))

        def status(self, state):
            return Status({Trouble.STUCK: state == 2})

    class Broken(Known):
        """Its moments are finite, its draws are not."""

        def sample(self, key, state):
            return jax.tree.map(lambda draw: draw * jnp.nan, super().sample(key, state))

    backends = {"fine": truth, "broken": Broken(truth.mean, truth.sd)}
    with pytest.warns(TroubleWarning, match="reference: 1 chains hardly move"):
        found = of_movies(backends, lambda h: Moody(truth.mean, truth.sd), draws=20)
    words = {name: found.table.loc[name, "status"].split()[0] for name in found.table.index}
    assert words == {"reference": "1", "fine": "ok", "broken": "means,"}


def test_one_key_one_answer():
    truth = known(movies())
    options = {"draws": 100, "key": jax.random.key(5)}
    first, second = (of_movies({"a": truth}, lambda h: truth, **options) for _ in range(2))
    columns = [*ERRORS, "best_tv"]
    assert first.table[columns].equals(second.table[columns])
    other = of_movies({"a": truth}, lambda h: truth, **options | {"key": jax.random.key(6)})
    assert not first.table[columns].equals(other.table[columns])


def test_the_reference_may_be_one_of_the_backends_a_function_or_exact(monkeypatch):
    """`exact` is the closed form, and where there is none a long run of NUTS."""
    truth = known(movies())
    both = {"a": truth, "b": truth}
    assert list(of_movies(both, "b", draws=10).table.index) == ["b", "a"]
    assert list(of_movies(both, lambda h: truth, draws=10).table.index) == ["reference", "a", "b"]
    assert list(of_movies(both, truth, draws=10).table.index) == ["reference", "a", "b"]
    called = []

    def build(hierarchy, **options):
        called.append(options)
        return truth

    monkeypatch.setattr(comparison, "ClosedForm", build)
    monkeypatch.setattr(comparison, "Nuts", build)
    assert list(of_movies(both, "exact", draws=10).table.index) == ["exact", "a", "b"]
    logistic = Hierarchy(movies().levels, glm(np.ones((2, 1)), 1).reward, 2)
    assert list(compare(logistic, LIKED, both, draws=10).table.index) == ["long NUTS", "a", "b"]
    assert called == [{}, {"chains": 4, "warmup": 1000, "samples": 2000, "capacity": 2}]


def test_laplace_is_exact_for_gaussian_rewards():
    found = compare(movies(), ratings(), {"Laplace": Laplace}, draws=500)
    assert list(found.table.index) == ["exact", "Laplace"]
    assert isinstance(found.posteriors["exact"].backend, ClosedForm)
    row = found.table.loc["Laplace"]
    assert row["mean_error_max"] < 1e-3
    assert abs(row["sd_ratio_min"] - 1) < 1e-3
    assert abs(row["sd_ratio_max"] - 1) < 1e-3
    # What is left is chance, of which the reference's own row has as much.
    assert row["wasserstein"] < 2 * found.table.loc["exact", "wasserstein"]
    assert row["compile_seconds"] > row["seconds"]
    assert (found.table["status"] == "ok").all()
    np.testing.assert_allclose(found.best.sum(), 1.0, rtol=1e-12)


def test_arviz_has_a_group_for_each_backend():
    truth = known(movies())
    found = of_movies(
        {"SVI, mean field": truth, "svi mean-field": truth, "2nd": truth}, truth, draws=7
    )
    view = found.to_arviz()
    names = ["reference", "svi_mean_field", "svi_mean_field_again", "backend_2nd"]
    # A method of InferenceData, an attribute of DataTree, which has "/" and "/name".
    groups = view.groups() if callable(view.groups) else view.groups
    assert [group.strip("/") for group in groups if group != "/"] == names
    for group, name in zip(names, found.posteriors, strict=True):
        drawn = found.posteriors[name].draw(found.keys[name], 7)
        movie = view[group]["movie"]
        assert movie.dims == ("chain", "draw", "movie_id", "component")
        assert movie["movie_id"].values.tolist() == MOVIES
        np.testing.assert_array_equal(movie.values[0], drawn["movie"])


def test_plot(moved):
    figure = moved.plot()
    figure.canvas.draw()
    above, legend, actions, best = figure.axes
    assert [text.get_text() for text in above.get_yticklabels()] == GENRES
    order = moved.best["truth"].sort_values(ascending=False).index.tolist()
    assert [text.get_text() for text in actions.get_yticklabels()] == order
    shown = [text.get_text() for text in legend.get_legend().get_texts()]
    assert shown == ["truth (reference)", "moved", "wide"]
    for axes, rows in ((above, 2), (actions, 3), (best, 3)):
        # A band for each row of the reference, and a mark for each row of the others.
        assert len(axes.patches) == rows
        marks = {
            line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")
        }
        assert list(marks) == ["moved", "wide"]
        assert len({line.get_marker() for line in marks.values()}) == 2
        assert all(len(line.get_xdata()) == rows for line in marks.values())
    np.testing.assert_allclose(best.patches[0].get_width(), moved.best["truth"].max())
    np.testing.assert_allclose(above.patches[1].get_x(), moved.intervals["truth"]["genre"][0, 1, 0])
    assert actions.get_xlabel() == "first number of each vector: mean and central 90% interval"
    assert best.get_xlabel() == "probability of being best, from 4,000 draws"
    assert best.get_title(loc="left") == "Which movie is best?"


def test_plot_of_many_vectors():
    """The likeliest eight of a hundred actions, the first of the effects; long labels are cut."""
    labels = [f"an action with the very long name {i}" for i in range(100)]
    effect = Level("effect", 20)
    action = Level("action", 100, parents={"effect": np.ones((100, 20))}, labels=labels)
    hierarchy = Hierarchy([effect, action], Gaussian(1.0), 2)
    truth = known(hierarchy)
    data = Data([[1.0, -1.0]], [0], [1.0])
    found = compare(hierarchy, data, {f"backend {i}": truth for i in range(7)}, truth, draws=300)
    figure = found.plot()
    figure.canvas.draw()
    above, _, actions, best = figure.axes
    assert [text.get_text() for text in above.get_yticklabels()] == [
        f"effect {i}" for i in range(8)
    ]
    assert len(actions.get_yticklabels()) == 8
    assert all(len(text.get_text()) == 24 for text in actions.get_yticklabels())
    assert best.get_title(loc="left") == "Which action is best? The 8 likeliest of 100"


def test_plot_of_a_backend_that_is_far_off():
    """The others stay readable: the axis ends near the reference, with hollow marks beyond."""
    truth = known(movies())
    found = of_movies(
        {"near": truth.moved(0.1, 1.0), "far": truth.moved(100.0, 1.0)}, truth, draws=50
    )
    figure = found.plot()
    figure.canvas.draw()
    above, _, actions, _ = figure.axes
    ends = np.concatenate(
        [level[..., 0] for level in found.intervals["reference"].values()], axis=1
    )
    left, right = actions.get_xlim()
    assert ends.min() - 0.1 * np.ptp(ends) < left < ends.min()
    assert ends.max() + np.ptp(ends) < right < ends.max() + 1.1 * np.ptp(ends)
    for axes, rows in ((above, 2), (actions, 3)):
        (hollow,) = (line for line in axes.lines if line.get_markerfacecolor() == "white")
        np.testing.assert_allclose(hollow.get_xdata(), [right] * rows, **tolerance())


def test_plot_of_actions_alone():
    hierarchy = Hierarchy([Level("action", 1)], Gaussian(1.0), 2)
    found = compare(
        hierarchy, Data([[1.0, 1.0]], [0], [1.0]), {"a": known(hierarchy)}, "a", draws=10
    )
    figure = found.plot()
    figure.canvas.draw()
    assert [text.get_text() for text in figure.axes[2].get_yticklabels()] == ["action 0"]
    assert not figure.axes[0].axison


def asked(hierarchy=None, data=None, backends=None, reference="a", **options):
    """A comparison with one thing wrong."""
    hierarchy = movies() if hierarchy is None else hierarchy
    data = ratings() if data is None else data
    backends = {"a": known(movies())} if backends is None else backends
    return lambda: compare(hierarchy, data, backends, reference, **{"draws": 10} | options)


LIKED = Data(np.ones((2, 2)), [0, 1], [1.0, 0.0])
NONE = Data(np.zeros((0, 2)), np.zeros(0, int), np.zeros(0))


@cases(
    what={
        "not a hierarchy": (asked("linear"), TypeError, ["got 'linear'", "expected a Hierarchy"]),
        "not data": (asked(data=(1, 2, 3)), TypeError, ["a tuple", "Data(contexts, actions, rewards)"]),
        "data of another": (
            asked(data=Data(np.ones((1, 3)), [0], [0.0])),
            ValueError,
            ["contexts have shape (1, 3)", "(n, 2)"],
        ),
        "no data": (asked(data=NONE), ValueError, ["no observations", "give context="]),
        "context": (asked(context=[1.0]), ValueError, ["shape (1,)", "(2,)", "(3, 2)"]),
        "draws": (asked(draws=0), ValueError, ["compare draws: got 0", "at least 1"]),
    },
    backends={
        "none": (asked(backends={}), ValueError, ["empty", "{'Laplace': Laplace"]),
        "a list": (asked(backends=[Laplace]), TypeError, ["expected a dict", "{'Laplace': Laplace"]),
        "a number": (asked(backends={"a": 3}), TypeError, ["backend 'a' is 3", "a backend already built"]),
        "no name": (asked(backends={" ": Laplace}), TypeError, ["the name ' '", "expected a text"]),
        "refused": (
            asked(glm(np.ones((3, 2)), 2), LIKED, {"mine": ClosedForm}, "mine"),
            ValueError,
            ["backend 'mine' does not take this hierarchy", "reward is Bernoulli, not Gaussian"],
        ),
        "not a backend": (
            asked(backends={"a": lambda h: h}),
            TypeError,
            ["backend 'a'", "returned a Hierarchy", "Laplace(hierarchy)"],
        ),
        "of another size": (
            asked(backends={"a": known(linear(np.ones((3, 2)), 2))}),
            ValueError,
            ["backend 'a' has no mean for level 'genre'", "(2, 2)", "the hierarchy that is compared"],
        ),
    },
    reference={
        "unknown": (asked(reference="b"), ValueError, ["reference is 'b'", "'exact'", "('a')"]),
        "a number": (asked(reference=3), TypeError, ["reference is 3", "a function from the hierarchy"]),
        "a name taken": (
            asked(backends={"reference": Laplace}, reference=Laplace),
            ValueError,
            ["called 'reference'", "rename the backend", "reference='reference'"],
        ),
    },
)  # fmt: skip
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)


def test_no_data_but_a_context():
    """Priors can be compared too."""
    found = compare(movies(), NONE, {"a": known(movies())}, "a", context=[1.0, 0.0], draws=10)
    assert found.table.loc["a", "status"] == "ok"


@pytest.mark.slow
def test_every_backend_on_logistic_rewards():
    """Against a long run of NUTS, approximations are within a fraction of a standard deviation."""
    rng = np.random.default_rng(0)
    hierarchy = glm(rng.uniform(-1, 1, (6, 2)), 2, effect_cov=3.0)
    contexts, taken = rng.uniform(-1, 1, (120, 2)), np.arange(120) % 6
    data = Data(contexts, taken, rng.integers(0, 2, 120))
    backends = {
        "Laplace": Laplace,
        "NUTS": Nuts,
        "SVI, full rank": Svi,
        "SVI, mean field": lambda h: Svi(h, guide="mean_field"),
    }
    found = compare(hierarchy, data, backends)
    assert list(found.table.index) == ["long NUTS", *backends]
    assert (found.table["status"] == "ok").all(), found
    # Two long runs: 8,000 transitions are worth 1,000 independent draws at least.
    assert found.table.loc["long NUTS", "mean_error"] < 2 / np.sqrt(1000)
    assert (found.table["mean_error"] < 0.3).all(), found
    assert found.table["coverage"].between(0.8, 0.95).all(), found
    assert (found.table["best_tv"] < 0.15).all(), found
    found.plot().canvas.draw()
