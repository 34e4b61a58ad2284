"""Exposure: a row that stands for several rewards says what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from numpyro.infer.util import log_density

from mixts.inference import (
    ClosedForm,
    Factored,
    Laplace,
    Nuts,
    Program,
    Svi,
    compare,
    empirical_bayes,
    log_evidence,
)
from mixts.models import (
    Bernoulli,
    Data,
    Gaussian,
    Hierarchy,
    Level,
    Poisson,
    Reward,
    linear,
)

K, DIM, ROWS = 4, 2, 9
WEIGHTS = np.random.default_rng(3).dirichlet(np.ones(2), K)


def crossed(reward):
    action = Level("action", K, parents={"effect": WEIGHTS}, cov=0.5)
    return Hierarchy([Level("effect", 2, cov=0.8), action], reward, DIM)


def nested(reward):
    branch = Level("branch", 2, parents={"top": [[1.0], [0.5]]}, cov=0.7)
    action = Level("action", K, parents={"branch": np.eye(2)[[0, 0, 1, 1]]}, cov=0.5)
    return Hierarchy([Level("top", 1), branch, action], reward, DIM)


def grouped(family, rows=ROWS, most=5, seed=0):
    """Rows with an exposure, and the elementary rewards they stand for, one in each row."""
    rng = np.random.default_rng(seed)
    contexts, actions = rng.uniform(-1, 1, (rows, DIM)), rng.integers(0, K, rows)
    times = rng.integers(1, most + 1, rows)
    draw = {
        Gaussian: lambda n: rng.normal(0.3, 0.6, n),
        Bernoulli: lambda n: rng.integers(0, 2, n).astype(float),
        Poisson: lambda n: rng.poisson(1.5, n).astype(float),
    }[type(family)]
    each = [draw(n) for n in times]
    total = np.array([y.mean() if isinstance(family, Gaussian) else y.sum() for y in each])
    together = Data(contexts, actions, total, times.astype(float))
    apart = Data(np.repeat(contexts, times, 0), np.repeat(actions, times), np.concatenate(each))
    return together, apart


def moments(backend, data, one_by_one=False):
    state = backend.init(jax.random.key(0))
    if one_by_one:
        for row in zip(*data, strict=True):
            state = backend.update(state, *row)
    else:
        state = backend.condition(state, *data)
    found = backend.posterior(state)
    assert found.status.ok
    return found


def assert_same(found, expected, **close):
    for name in expected.mean:
        np.testing.assert_allclose(found.mean[name], expected.mean[name], **close)
        np.testing.assert_allclose(found.cov[name], expected.cov[name], **close)


# Gaussian rewards: exact. ------------------------------------------------------------------------


@pytest.mark.parametrize("hierarchy", [crossed, nested])
@pytest.mark.parametrize("rows", [3, ROWS, 40])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_mean_of_ratings_says_what_they_say(x64, hierarchy, rows, one_by_one):
    """So few rows that they are taken as they are, and so many that they are reduced first."""
    family = Gaussian(0.6)
    together, apart = grouped(family, rows)
    backend = ClosedForm(hierarchy(family))
    found = moments(backend, together, one_by_one and rows < 40)
    assert_same(found, moments(backend, apart), rtol=1e-9, atol=1e-11)
    # The density of a mean is not that of what it is the mean of.
    theirs = apart.rewards - np.repeat(together.rewards, together.exposure.astype(int))
    within = scipy.stats.norm.logpdf(np.asarray(theirs), scale=0.6).sum()
    m = np.asarray(together.exposure)
    within += np.sum(0.5 * np.log(2 * np.pi * 0.6**2 / m))
    expected = moments(backend, apart).log_evidence - within
    np.testing.assert_allclose(found.log_evidence, expected, rtol=1e-10)
    np.testing.assert_allclose(log_evidence(hierarchy(family), together), expected, rtol=1e-10)


def test_factored_levels_and_links_learn_from_means(x64):
    family = Gaussian(0.6)
    together, apart = grouped(family)
    hierarchy = crossed(family)
    assert_same(
        moments(Factored(hierarchy), together), moments(Factored(hierarchy), apart), atol=1e-8
    )
    action = hierarchy.actions.remade(link=jnp.tanh)
    linked = Laplace(hierarchy.remade(levels=[hierarchy.levels[0], action]))
    assert_same(moments(linked, together), moments(linked, apart), atol=1e-6)


def test_the_density_is_that_of_weighted_least_squares(x64):
    """One action, one number: the evidence by hand."""
    hierarchy = Hierarchy([Level("action", 1, cov=2.0)], Gaussian(0.5), 1)
    data = Data([[1.0], [2.0]], [0, 0], [0.7, -0.2], [3.0, 5.0])
    x, noise = np.array([1.0, 2.0]), np.diag([0.25 / 3, 0.25 / 5])
    law = scipy.stats.multivariate_normal(np.zeros(2), 2.0 * np.outer(x, x) + noise)
    np.testing.assert_allclose(log_evidence(hierarchy, data), law.logpdf([0.7, -0.2]), rtol=1e-12)


def test_evidence_has_its_maximum_where_that_of_single_rewards_is(x64):
    """All that a mean leaves out, the spread around it, concerns the noise alone: fit the rest."""
    together, apart = grouped(Gaussian(0.6), 40)
    fits = [
        empirical_bayes(crossed(Gaussian(0.6)), data, learn=("cov", "effect.mean"))
        for data in (together, apart)
    ]
    for level in (0, 1):
        found, expected = (fit.hierarchy.levels[level].cov for fit in fits)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-8)
    found = log_evidence(fits[0].hierarchy, together)
    np.testing.assert_allclose(fits[0].log_evidence, found, rtol=1e-8)


# Other rewards. ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Bernoulli(), Poisson(), Gaussian(0.6)], ids=repr)
@pytest.mark.parametrize("hierarchy", [crossed, nested])
def test_laplace_finds_the_same_mode(x64, family, hierarchy):
    together, apart = grouped(family)
    backend = Laplace(hierarchy(family))
    assert_same(moments(backend, together), moments(backend, apart), atol=1e-7)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
def test_one_by_one_as_at_once_for_one_action(x64, family):
    """With a single action, refitting it to all its rewards is refitting everything."""
    together, apart = grouped(family)
    alone = Hierarchy([Level("action", 1)], family, DIM)
    rows = together.contexts, jnp.zeros(ROWS, int), together.rewards, together.exposure
    found = moments(Laplace(alone), Data(*rows), one_by_one=True)
    expected = moments(Laplace(alone), Data(apart.contexts, apart.actions * 0, apart.rewards))
    assert_same(found, expected, atol=1e-7)


@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
def test_the_program_has_the_density_of_the_rewards_a_row_stands_for(x64, family):
    """Up to what does not depend on any unknown: how many ways there are to the same sum."""
    together, apart = grouped(family)
    hierarchy, m = crossed(family), np.asarray(together.exposure)
    rng = np.random.default_rng(1)

    def density(data, theta):
        values = {"effect": jnp.zeros((2, DIM)), "action": jnp.asarray(theta)}
        return float(log_density(hierarchy.program, tuple(data), {}, values)[0])

    gaps = []
    for _ in range(3):
        theta = rng.normal(size=(K, DIM))
        gaps.append(density(together, theta) - density(apart, theta))
        u = np.sum(np.asarray(together.contexts) * theta[np.asarray(together.actions)], axis=1)
        y = np.asarray(together.rewards)
        if isinstance(family, Bernoulli):
            expected = scipy.stats.binom.logpmf(y, m, scipy.special.expit(u)).sum()
        else:
            expected = scipy.stats.poisson.logpmf(y, m * np.exp(u)).sum()
        law = family.law_of(jnp.asarray(u), together.exposure)
        np.testing.assert_allclose(law.log_prob(together.rewards).sum(), expected, rtol=1e-10)
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("family", [Bernoulli(), Poisson()], ids=repr)
def test_nuts_and_svi_learn_from_rows_with_exposure(family):
    """Against NUTS on single rewards."""
    together, apart = grouped(family, rows=30)
    hierarchy = crossed(family)
    reference = moments(Nuts(hierarchy, samples=4000), apart)
    for backend in (Nuts(hierarchy, samples=4000), Svi(hierarchy)):
        found = moments(backend, together)
        sd = np.sqrt(np.einsum("kdd->kd", reference.cov["action"]))
        gap = (found.mean["action"] - reference.mean["action"]) / sd
        # Draws are worth some 2,000 each: a standard error of 0.03 sd of their difference.
        assert np.abs(gap).max() < 0.15


def test_nuts_and_svi_keep_the_exposure():
    together, _ = grouped(Bernoulli())
    hierarchy = crossed(Bernoulli())
    for backend in (
        Nuts(hierarchy, warmup=5, samples=5, window=5, capacity=4),
        Svi(hierarchy, fit_steps=5, steps=2, capacity=4),
    ):
        state = backend.condition(backend.init(jax.random.key(0)), *together)
        state = backend.update(state, [1.0, 0.0], 0, 3.0, exposure=7)
        state = backend.update(state, [1.0, 0.0], 0, 1.0)
        kept = state.buffer.exposure[: ROWS + 2]
        np.testing.assert_array_equal(kept, [*together.exposure, 7, 1])
        assert (state.buffer.exposure[ROWS + 2 :] == 1).all()


def test_a_program_by_hand_takes_exposure_by_its_name(x64):
    def clicks(contexts, actions, rewards=None, exposure=None):
        theta = numpyro.sample("action", dist.Normal(0, 1).expand([K, DIM]).to_event(2))
        score = jnp.sum(theta[actions] * contexts, axis=-1)
        numpyro.sample("reward", dist.BinomialLogits(score, exposure), obs=rewards)

    program, (together, _) = Program(clicks, dim=DIM), grouped(Bernoulli())
    assert program.takes_exposure
    assert program.columns == ()
    flat = Hierarchy([Level("action", K)], Bernoulli(), DIM)
    for data in (together, Data(*tuple(together)[:2], np.ones(ROWS))):
        values = {"action": jax.random.normal(jax.random.key(0), (K, DIM))}
        found, expected = (
            log_density(model.program, tuple(data), {}, values)[0] for model in (program, flat)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    backend = Nuts(program, warmup=5, samples=5, window=5)
    state = backend.condition(backend.init(jax.random.key(0)), *together)
    np.testing.assert_array_equal(state.buffer.exposure[:ROWS], together.exposure)

    def plain(contexts, actions, rewards=None):
        clicks(contexts, actions, rewards, jnp.ones(actions.shape))

    refusing = Nuts(Program(plain, dim=DIM), warmup=5, samples=5, window=5)
    state = refusing.init(jax.random.key(0))
    assert state.buffer.exposure is None
    with pytest.raises(ValueError, match=r"exposure: got one, .* give its function an argument"):
        refusing.condition(state, *together)


# What costs nothing, and what is refused. --------------------------------------------------------


class Waiting(Reward):
    """A family of a user's, which knows of no exposure."""

    def law(self, predictor):
        return dist.Exponential(jnp.exp(-predictor))

    def mean(self, predictor):
        return jnp.exp(predictor)


def test_without_exposure_nothing_changes():
    """A family without an exposure keeps no column, and a number of one is none."""
    backend = Laplace(Hierarchy([Level("action", 2)], Waiting(), 1))
    state = backend.update(backend.init(), [1.0], 0, 2.0, exposure=1.0)
    assert state.memory.buffer.exposure is None
    exact = ClosedForm(linear([[1.0], [1.0]], dim=1))
    plain, one = (exact.update(exact.init(), [1.0], 0, 2.0, *more) for more in ((), (1.0,)))
    jax.tree.map(np.testing.assert_array_equal, plain, one)
    trace = jax.make_jaxpr(lambda s: exact.update(s, jnp.ones(1), 0, 2.0))(exact.init())
    assert str(trace) == str(
        jax.make_jaxpr(lambda s: exact.update(s, jnp.ones(1), 0, 2.0, 1))(exact.init())
    )


def test_inside_jit_an_exposure_that_is_none_is_rejected():
    exact = ClosedForm(linear([[1.0], [1.0]], dim=1))
    update = jax.jit(lambda m: exact.update(exact.init(), jnp.ones(1), 0, 2.0, m))
    for wrong in (0.0, -1.0, np.nan, np.inf):
        state = update(wrong)
        assert int(state.info.rejected) == 1
        np.testing.assert_array_equal(state.actions.center, exact.init().actions.center)
    assert int(update(2.0).info.rejected) == 0


@pytest.mark.parametrize(
    ("family", "rewards", "exposure", "message"),
    [
        (
            Bernoulli(),
            [2.0],
            [1.5],
            r"exposure holds 1.5; of Bernoulli\(\) rewards .* whole numbers",
        ),
        (Bernoulli(), [3.0], [2.0], r"rewards hold 3 with exposure 2, which Bernoulli\(\)"),
        (Poisson(), [0.5], [2.0], r"rewards hold 0.5 with exposure 2, which Poisson\(\)"),
        (Gaussian(), [1.0], [0.0], r"exposure holds 0; expected positive"),
        (Gaussian(), [1.0], [-1.0], r"exposure holds -1; expected positive"),
        (Gaussian(), [1.0], [np.inf], r"exposure: holds inf"),
        (Gaussian(), [1.0], [1.0, 2.0], r"shapes do not fit: .*exposure \(2,\)"),
        (
            Waiting(),
            [1.0],
            [2.0],
            r"exposure: got one, and Waiting\(\) has none: .* a row of its own",
        ),
    ],
)
def test_exposures_that_cannot_be(family, rewards, exposure, message):
    hierarchy = Hierarchy([Level("action", 2)], family, 1)
    with pytest.raises(ValueError, match=message):
        hierarchy.observations([[1.0]], [0], rewards, exposure)
    backend = Laplace(hierarchy)
    with pytest.raises(ValueError, match=message):
        backend.condition(backend.init(), [[1.0]], [0], rewards, exposure)
    if len(exposure) == 1:
        with pytest.raises(ValueError, match=message):
            backend.update(backend.init(), [1.0], 0, rewards[0], exposure[0])


def test_an_update_takes_one_exposure():
    exact = ClosedForm(linear([[1.0], [1.0]], dim=1))
    with pytest.raises(ValueError, match=r"exposure has shape \(2,\); expected one number"):
        exact.update(exact.init(), [1.0], 0, 2.0, [1.0, 2.0])


def test_a_mask_in_the_place_of_an_exposure():
    hierarchy = linear([[1.0], [1.0]], dim=1)
    with pytest.raises(TypeError, match=r"exposure is True and False; .* mask=\.\.\."):
        hierarchy.observations([[1.0]], [0], [1.0], np.array([True]))


def test_data_of_exposure():
    data = Data([[1.0], [2.0]], [0, 1], [3.0, 4.0], exposure=5)
    assert [part.shape for part in data] == [(2, 1), (2,), (2,), (2,)]
    assert repr(data) == "Data(2 observations, dim=1, with exposure)"
    with pytest.raises(ValueError, match=r"Data exposure holds -2; expected positive"):
        Data([[1.0]], [0], [1.0], [-2.0])
    with pytest.raises(ValueError, match=r"shapes do not fit: .*exposure \(1,\)"):
        Data([[1.0], [2.0]], [0, 1], [3.0, 4.0], [1.0])


def test_padding_of_exposure_is_blanked():
    hierarchy = Hierarchy([Level("action", 2)], Bernoulli(), 1)
    seen = hierarchy.observations(
        [[1.0], [np.nan]], [0, 9], [2.0, np.nan], [4.0, np.nan], mask=[True, False]
    )
    assert seen.exposure.tolist() == [4.0, 1.0]


def test_backends_are_compared_on_rows_with_exposure():
    together, _ = grouped(Gaussian(0.6))
    found = compare(crossed(Gaussian(0.6)), together, {"Factored": Factored}, draws=50)
    assert "Factored" in str(found)


def test_large_counts_are_as_right_in_float32():
    data = [[1.0, 0.0]] * 3, [0, 1, 2], [0.0, 4000.0, 12.0], [5000.0, 4000.0, 90000.0]
    found = moments(Laplace(crossed(Bernoulli())), Data(*data))
    with jax.enable_x64(True):
        expected = moments(Laplace(crossed(Bernoulli())), Data(*data))
    found, expected = (
        (np.asarray(part.mean["action"]), np.asarray(part.cov["action"]))
        for part in (found, expected)
    )
    # In standard deviations: the curvature is known to some 1e-4 where a count is 90,000.
    sd = np.sqrt(np.einsum("kdd->kd", expected[1]))
    assert np.abs((found[0] - expected[0]) / sd).max() < 1e-2
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-2, atol=1e-4)
